# SPDX-License-Identifier: GPL-2.0-or-later
"""What stands around hostd-proxy in its test: namespaces and wires, the hostd, the resolver and the record keeper that the test plays, and the
client's side of a connection."""
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import threading
import time

from border_world import *

CLIENT, CLIENT6 = "10.99.0.1", "2a00:99::1"
GOOD, EVIL, WEB2, GOOD6, BAD_PORTS = "93.1.1.1", "93.1.1.2", "93.1.1.3", "2a00:1::1", "93.1.1.4"
HERE = os.path.dirname(os.path.abspath(__file__))
RUN = "/run/test"
USER = 65534


def redirects():
    rules = """table inet t { chain p { type nat hook prerouting priority dstnat;
        iifname "hv*" tcp dport 443 redirect to :8443
        iifname "hv*" tcp dport 80 redirect to :8480
        }
        }"""
    run("nft", "-f", "-", input=rules)


def network():
    for name in ("client", "other", "internet"):
        run("ip", "netns", "add", name)
    run("ip", "link", "set", "lo", "up")
    # A namespace's own queue of datagrams is ten long; that of a host with systemd 512.
    for path, value in (("net/ipv4/ip_forward", 1), ("net/ipv6/conf/all/forwarding", 1), ("net/unix/max_dgram_qlen", 4096)):
        with open("/proc/sys/" + path, "w") as f:
            f.write(str(value))
    run("ip", *"link add uplink type veth peer name eth0 netns internet".split())
    for line in ("addr add 93.1.0.1/16 dev uplink", "-6 addr add 2a00:1::ffff/64 dev uplink nodad", "link set uplink up"):
        run("ip", *line.split())
    for line in ("link set lo up", "link set eth0 up", f"addr add {GOOD}/16 dev eth0", f"addr add {EVIL}/16 dev eth0", f"addr add {WEB2}/16 dev eth0",
                 f"addr add {BAD_PORTS}/16 dev eth0", f"-6 addr add {GOOD6}/64 dev eth0 nodad", "route add default via 93.1.0.1",
                 "-6 route add default via 2a00:1::ffff"):
        run("ip", "netns", "exec", "internet", "ip", *line.split())
    wire("client", 1)
    wire("other", 2)
    redirects()


def certificates(names):
    os.makedirs(RUN, exist_ok=True)
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test", "-keyout", f"{RUN}/key",
        "-out", f"{RUN}/cert", "-addext", "subjectAltName=" + ",".join("DNS:" + n for n in names) + f",IP:{GOOD},IP:{EVIL}")


# ---- what hostd-proxy speaks with

class Resolver(threading.Thread):
    """hostd-resolver's socket. `names`: name -> addresses, or a negative errno."""

    def __init__(self, names):
        super().__init__(daemon=True)
        self.names, self.asked = names, []
        self.delay = 0
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listening.bind("/run/hostd/resolve.sock")
        os.chmod("/run/hostd/resolve.sock", 0o666)
        self.listening.listen(8)
        self.start()

    def run(self):
        while True:
            connection, _ = self.listening.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        while packet := connection.recv(4096):
            cookie, slot, family, name = struct.unpack("=QHB254s7x", packet)
            name = text(name)
            self.asked.append((slot, family, name))
            answer = self.names.get(name, -2)
            error, addresses = (answer, []) if isinstance(answer, int) else (0, [a for a in answer if (":" in a) == (family == 6)])
            if not error and not addresses:
                error = -61
            body = b"".join(bytes([family]) + socket.inet_pton(socket.AF_INET6 if family == 6 else socket.AF_INET, a).ljust(16, b"\0") for a in addresses)
            time.sleep(self.delay)
            connection.send(struct.pack("=QiII", cookie, error, 60 if not error else 0, len(addresses)) + body.ljust(16 * 17, b"\0") + b"\0" * 4)


class Hostd:
    """The control channel, and the program at its other end."""

    def __init__(self, program):
        self.program, self.process, self.cookie = program, None, 0
        self.path = "/run/hostd/hostd-proxy.sock"
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening.bind(self.path)
        self.listening.listen(1)
        os.makedirs(f"{RUN}/state", exist_ok=True)
        os.chown(f"{RUN}/state", USER, USER)

    def start(self, files=16384):
        def child():
            os.dup2(self.listening.fileno(), 3)
            os.set_inheritable(3, True)
        env = dict(LISTEN_FDS="1", LISTEN_FDNAMES="control", STATE_DIRECTORY=f"{RUN}/state", PATH="/usr/sbin:/usr/bin")
        self.process = subprocess.Popen(["prlimit", f"--nofile={files}", "setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "--inh-caps=-all",
                                         "--bounding-set=-all", self.program], env=env, preexec_fn=child, pass_fds=[3], stderr=open(f"{RUN}/stderr", "a"))
        self.connect()

    def connect(self):
        self.link = Link(self.path)
        assert self.link.frame(20)[:2] == (HELLO, 0)

    def views(self, *slots, whole=True, gone=()):
        self.cookie += 1
        view = json.dumps(dict(generation=self.cookie, whole=whole, upstreams=[], slots=slots, gone=list(gone))).encode()
        self.link.send(VIEWS, self.cookie, view)
        kind, cookie, body = self.link.frame(20)
        assert (kind, cookie) == (APPLIED, self.cookie), (kind, cookie)
        return struct.unpack("=i", body)[0]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.link.close()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(10 * SLOW) == 0
        self.link.close()


def rule(line, index=0, **more):
    """'allow example.org 80,443' -> a rule of a view."""
    action, to, ports = (line.split() + [None])[:3]
    by_name = "/" not in to
    protocol = "tcp" if ports or (by_name and action == "allow") else "any"
    if by_name and action == "allow":
        ports = ports or "443"
    return dict(action=action, to=to, protocol=protocol, origin=index, id=0, **({"ports": ports} if ports else {}), **more)


def slot(*rules, number=1, instance="a", policy="p"):
    rules = [dict(r, origin=i) if isinstance(r, dict) else rule(r, i) for i, r in enumerate(rules)]
    return dict(slot=number, ifname=f"hv{number:04}", instance=instance, ipv4=f"10.99.0.{number}", ipv6=f"2a00:99::{number}", offline=False,
                dns=dict(rate=200, burst=400, names=100, types=[]), policies=[dict(name=policy, first=0, rules=rules)])


# ---- the client

def curl(*words, ns="client", resolve=None, timeout=20):
    """(exit status, what came, what curl said)"""
    words = list(words)
    for name, address in (resolve or {}).items():
        for port in (80, 443, 9000, 9443):
            words += ["--resolve", f"{name}:{port}:{address}"]
    r = subprocess.run(["ip", "netns", "exec", ns, "curl", "-sS", "--max-time", str(timeout * SLOW), "--cacert", f"{RUN}/cert", *words], capture_output=True)
    return r.returncode, r.stdout, r.stderr.decode(errors="replace")


SETNS = """
import ctypes, os, sys
fd = os.open("/run/netns/" + sys.argv[1], os.O_RDONLY)
assert ctypes.CDLL(None).setns(fd, 0x40000000) == 0
"""


def in_ns(name):
    import ctypes
    fd = os.open("/run/netns/" + name, os.O_RDONLY)
    ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000)
    os.close(fd)


def connect(address, port, ns="client", timeout=10):
    """A socket of that namespace: a thread goes there and makes it."""
    result = []

    def there():
        in_ns(ns)
        try:
            result.append(socket.create_connection((address, port), timeout * SLOW))
        except OSError as e:
            result.append(e)
    t = threading.Thread(target=there)
    t.start()
    t.join()
    if isinstance(result[0], Exception):
        raise result[0]
    return result[0]


def hello(name, more=b""):
    """A ClientHello with that name and more extensions, as bytes."""
    def vector(b, n):
        return len(b).to_bytes(n, "big") + b
    extensions = b"\0\0" + vector(vector(b"\0" + vector(name.encode(), 2), 2), 2) if name is not None else b""
    extensions += more
    body = b"\3\3" + bytes(32) + b"\0" + vector(b"\x13\1\x13\2", 2) + b"\1\0" + vector(extensions, 2)
    return b"\x16\3\1" + vector(b"\1" + vector(body, 3), 2)


def rest(sock, timeout=10, limit=1 << 20):
    """All that comes until the end; "reset" when it ends so."""
    sock.settimeout(timeout * SLOW)
    data = b""
    try:
        while len(data) < limit:
            piece = sock.recv(65536)
            if not piece:
                return data
            data += piece
    except ConnectionError:
        return data + b"reset"
    return data


def closed(sock, timeout=5):
    try:
        return rest(sock, timeout) is not None
    except TimeoutError:
        return False


ALERT_DENIED, ALERT_NAME = b"\x15\3\3\0\2\2\x31", b"\x15\3\3\0\2\2\x70"
