# SPDX-License-Identifier: GPL-2.0-or-later
"""The world of egress.py: an Internet with origins, name servers and an attacker, a real hostd with two instances, and what looks at each wire."""
import collections, ctypes, os, socket, ssl, struct, subprocess, threading, time

from border_world import SLOW, run, until
from resolver_dns import Message, Upstream

LIBC = ctypes.CDLL(None, use_errno=True)
HERE = os.path.dirname(os.path.abspath(__file__))
HOST4, HOST6, GATEWAY, GATEWAY6 = "93.1.1.2", "2a01:4f8:2::2", "169.254.0.1", "fe80::1"
DNS, DIRECT, DIRECT6 = "93.1.0.53", "93.1.2.9", "2a01:4f8:3::9"
GOOD, GOOD6, API, MIRROR, PLAIN, MOVING, KEEP, FAST = "93.1.2.10", "2a01:4f8:3::10", "93.1.2.11", "93.1.2.12", "93.1.2.13", "93.1.2.14", "93.1.2.15", "93.1.2.16"
EVIL, EVIL6 = "93.1.66.6", "2a01:4f8:66::6"
PRIVATE, METADATA, CGNAT, ULA = "10.50.0.1", "169.254.169.254", "100.64.9.9", "fd50::1"
HOST_PORTS = (22, 80, 443, 7000, 8080)
WEB = {GOOD: "good.example.org", API: "api.example.org", MIRROR: "mirror.example.org", PLAIN: "plain.example.org", MOVING: "moving.example.org", EVIL: "evil.example.org"}
# Where hostd itself may lead what an instance sends: nothing else may leave on the uplink.
LEGIT = {(GOOD, 443), (GOOD6, 443), (API, 443), (MIRROR, 443), (MIRROR, 80), (PLAIN, 80), (DIRECT, 8000), (DIRECT6, 8000), (GOOD, 9000), (KEEP, 8000)}
ZONE = {(name, "A"): [("A", 60, address)] for address, name in WEB.items()}
ZONE.update({("good.example.org", "AAAA"): [("AAAA", 60, GOOD6)], ("ports.example.org", "A"): [("A", 60, GOOD)], ("fast.example.org", "A"): [("A", 60, FAST)], ("evil.example.org", "AAAA"): [("AAAA", 60, EVIL6)],
             ("evil.example.org", "*"): [("TXT", 60, "text")], ("good.example.org", "TXT"): [("TXT", 60, "text")], ("dns.doh.example.org", "A"): [("A", 60, EVIL)],
             ("git.mirror.example.org", "A"): [("A", 60, MIRROR)], ("pip.mirror.example.org", "A"): [("A", 60, MIRROR)],
             ("npm.mirror.example.org", "A"): [("A", 60, MIRROR)], ("apt.mirror.example.org", "A"): [("A", 60, MIRROR)]})
RULES = ["allow %s/32 tcp 8000" % DIRECT, "allow %s/32 udp 8000" % DIRECT, "allow %s/128 udp 8000" % DIRECT6, "allow good.example.org", "allow plain.example.org tcp 80",
         "allow api.example.org inspect", "allow *.wild.example.org", "allow *.wild.example.net", "allow ports.example.org tcp 9000", "allow *.rebind.example.org tcp 443,9000", "allow mirror.example.org tcp 80,443",
         "allow *.mirror.example.org", "allow fast.example.org inspect"]


class Inside:
    """Sockets made within belong to the namespace, wherever the thread goes afterwards."""

    def __init__(self, fd):
        self.fd = fd

    def __enter__(self):
        assert LIBC.setns(self.fd, 0) == 0

    def __exit__(self, *unused):
        LIBC.setns(HOST_NS, 0)


HOST_NS = os.open("/proc/self/ns/net", os.O_RDONLY)


class Capture:
    """All frames that went out of an interface, or came in by it, since the last look."""

    def __init__(self, ns, dev, outgoing=False):
        with Inside(ns):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
        self.socket.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
        self.socket.bind((dev, 3))
        self.socket.setblocking(False)
        self.outgoing = outgoing

    def drain(self):
        return [frame for frame, _ in self.stamped()]

    def stamped(self):
        frames = []
        while True:
            try:
                frame, extra, _, address = self.socket.recvmsg(65600, 256)
            except BlockingIOError:
                return frames
            if (address[2] == socket.PACKET_OUTGOING) == self.outgoing:
                stamp = next((struct.unpack("qq", data[:16]) for level, kind, data in extra if (level, kind) == (socket.SOL_SOCKET, 35)), (0, 0))
                frames.append((frame, stamp[0] + stamp[1] / 1e9))

    def lost(self):
        return struct.unpack("II", self.socket.getsockopt(263, 6, 8))[1]  # SOL_PACKET, PACKET_STATISTICS


class Frame:
    """What of a frame says where it goes."""

    def __init__(self, data):
        self.data, self.kind = data, data[12:14]
        self.source = self.target = self.protocol = self.port = None
        if self.kind == b"\x08\0" and len(data) >= 34:
            self.source, self.target, self.protocol = socket.inet_ntoa(data[26:30]), socket.inet_ntoa(data[30:34]), data[23]
            self.body = data[14 + (data[14] & 15) * 4:]
        elif self.kind == b"\x86\xdd" and len(data) >= 54:
            self.source, self.target = (socket.inet_ntop(socket.AF_INET6, data[at:at + 16]) for at in (22, 38))
            self.protocol, self.body = data[20], data[54:]
        if self.protocol in (6, 17) and len(self.body) >= 4:
            self.port = struct.unpack("!H", self.body[2:4])[0]

    def neighbours(self):
        """ARP, and what IPv6 has in its place."""
        return self.kind == b"\x08\x06" or (self.kind == b"\x86\xdd" and self.protocol == 58 and self.body[:1] and 133 <= self.body[0] <= 136) or \
            (self.kind == b"\x86\xdd" and self.protocol == 0 and len(self.body) > 8 and self.body[8] == 143)

    def __str__(self):
        return "%s -> %s proto %s port %s" % (self.source, self.target, self.protocol, self.port) if self.source else "ethertype %s" % self.kind.hex()


class Web(threading.Thread):
    """An HTTP server that answers to every name, writes down each request, and has files for those of the mirror."""

    def __init__(self, world, address, port):
        super().__init__(daemon=True)
        self.world, self.address = world, address
        with Inside(world.outside):
            self.socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((address, port))
        self.socket.listen(256)
        self.tls = None
        if port == 443:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(world.work + "/leaf.pem")
        self.start()

    def run(self):
        while True:
            s, _ = self.socket.accept()
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        try:
            s.settimeout(30 * SLOW)
            if self.tls:
                s = self.tls.wrap_socket(s, server_side=True)
            data = b""
            while True:
                while b"\r\n\r\n" not in data:
                    more = s.recv(65536)
                    if not more:
                        return
                    data += more
                head, data = data.split(b"\r\n\r\n", 1)
                self.world.requests.append((self.address, head))
                s.sendall(self.answer(head))
                if b"connection: close" in head.lower():
                    return
        except OSError:
            pass
        finally:
            s.close()

    def answer(self, head):
        words = head.split(b"\r\n")[0].decode("latin-1").split(" ")
        path = os.path.normpath("/" + words[1].split("?")[0]) if len(words) > 1 else "/"
        body, status = self.address.encode(), "200 OK"
        if self.address == MIRROR:
            path += "/index.html" if os.path.isdir(self.world.work + "/www" + path) else ""
            try:
                with open(self.world.work + "/www" + path, "rb") as f:
                    body = f.read()
            except OSError:
                status, body = "404 Not Found", b""
        kind = "application/json" if path.startswith("/npm") and not path.endswith("tgz") else "text/html" if path.endswith("index.html") else "application/octet-stream"
        if words[0] == "HEAD":
            return ("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(body))).encode()
        return ("HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (status, kind, len(body))).encode() + body


def echo_stream(s):
    def serve(c):
        try:
            while data := c.recv(65536):
                c.sendall(data)
        except OSError:
            pass
        c.close()

    def accept():
        while True:
            c, _ = s.accept()
            threading.Thread(target=serve, args=(c,), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()


def echo_datagram(s):
    def serve():
        while True:
            data, peer = s.recvfrom(65536)
            try:
                s.sendto(data, peer)
            except OSError:
                pass
    threading.Thread(target=serve, daemon=True).start()


class World:
    def __init__(self, work):
        self.work, self.requests, self.host_events, self.flows_rules = work, collections.deque(maxlen=4096), [], []
        self.hostd = None

    # ---- the Internet

    def make_net(self):
        os.makedirs("/run/netns", exist_ok=True)
        run("ip", "netns", "add", "net")
        self.outside = os.open("/run/netns/net", os.O_RDONLY)
        run("ip", "link", "add", "uplk", "type", "veth", "peer", "name", "inet0", "netns", "net")
        for a in (HOST4 + "/24", HOST6 + "/64"):
            run("ip", "addr", "add", a, "dev", "uplk", *(("nodad",) if ":" in a else ()))
        run("ip", "link", "set", "uplk", "up")
        run("ip", "link", "set", "inet0", "up", ns="net")
        run("ip", "link", "set", "lo", "up", ns="net")
        four = [DNS, DIRECT, *WEB, KEEP, FAST, PRIVATE, METADATA, CGNAT]
        for a in ["93.1.1.1/24", "2a01:4f8:2::1/64"] + [a + "/32" for a in four] + [a + "/128" for a in (GOOD6, DIRECT6, EVIL6, ULA)]:
            run("ip", "addr", "add", a, "dev", "inet0", *(("nodad",) if ":" in a else ()), ns="net")
        run("ip", "route", "add", "default", "via", "93.1.1.1")
        run("ip", "-6", "route", "add", "default", "via", "2a01:4f8:2::1")
        run("ip", "route", "add", "10.209.0.0/16", "via", HOST4, ns="net")
        run("ip", "-6", "route", "add", "fd68:6f73:7464::/64", "via", HOST6, ns="net")

    def make_certificates(self):
        os.chdir(self.work)
        names = ",".join("DNS:" + n for n in (*WEB.values(), "*.mirror.example.org", "*.rebind.example.org", "ports.example.org", "fast.example.org", "*.evil.example.org"))
        for line in ("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -subj /CN=world -days 2",
                     "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout leaf.key -out leaf.csr -subj /CN=leaf"):
            run(*line.split())
        with open("ext", "w") as f:
            f.write("subjectAltName=" + names)
        run(*"openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile ext -out leaf.crt -days 2".split())
        with open("leaf.pem", "w") as f:
            f.write(open("leaf.crt").read() + open("leaf.key").read())
        # In this machine alone: its HAProxy trusts the origins.
        with open("/etc/ssl/certs/world.pem", "w") as f:
            f.write(open("ca.pem").read())
        os.symlink("world.pem", "/etc/ssl/certs/%s.0" % run("openssl", "x509", "-hash", "-noout", "-in", "ca.pem").strip())

    def make_servers(self):
        self.dns = Upstream(lambda: Inside(self.outside), DNS, ZONE)
        for address in WEB:
            for port in (80, 443):
                Web(self, address, port)
        Web(self, GOOD6, 443)
        for address, ports in ((DIRECT, (8000, 8001)), (KEEP, (8000,)), (MOVING, (8000,)), (GOOD, (9000, 9001)), (EVIL, (8000,)), (DIRECT6, (8000,))):
            for port in ports:
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    with Inside(self.outside):
                        s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    s.bind((address, port))
                    if kind == socket.SOCK_STREAM:
                        s.listen(256)
                    (echo_stream if kind == socket.SOCK_STREAM else echo_datagram)(s)

    def make_host_listeners(self):
        """Services of the host's own that nobody inside may reach."""
        for port in HOST_PORTS + (67, 5353):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                s = socket.socket(socket.AF_INET6, kind)
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(("::", port))
                if kind == socket.SOCK_STREAM:
                    s.listen(64)
                threading.Thread(target=self.host_listener, args=(s, port, kind), daemon=True).start()

    def host_listener(self, s, port, kind):
        while True:
            if kind == socket.SOCK_STREAM:
                c, peer = s.accept()
                c.close()
            else:
                _, peer = s.recvfrom(65536)
            self.host_events.append("host's port %d reached from %s" % (port, peer[0]))

    # ---- hostd

    def start_hostd(self):
        os.makedirs("/run/hostd", exist_ok=True)
        with open("/etc/hostd/hostd.conf", "w") as f:
            f.write('default_template = "tiny";\nallow_degraded = [ "apparmor", "disk", "inodes", "seccomp" ];\nresolver_upstream = [ "%s" ];\n' % DNS)
        with open(self.work + "/hostd.log", "a") as log:
            self.hostd = subprocess.Popen(["hostd"], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, cwd="/")
        assert until(lambda: subprocess.run(["hostctl", "info"], capture_output=True).returncode == 0, 20), "hostd does not answer"

    def launch(self, name, policy):
        run("bash", "-c", "work=/tmp; . %s/../lib/product.sh; tiny_import && launch %s policies=%s" % (HERE, name, policy))
        pid = next(line.split(",")[1] for line in run("hostctl", "list", "-f", "csv", "-c", "name,pid").split() if line.startswith(name + ","))
        return int(pid)

    def policy(self, name, rules):
        """Written whole where a rule has what the command's words have not."""
        if not any("inspect" in r for r in rules):
            run("hostctl", "policy", "set", name, *rules)
            return
        lines = []
        for r in rules:
            words = r.split()
            more = "".join(' %s = "%s";' % (k, v) for k, v in zip(("protocol", "ports"), [w for w in words[2:] if w != "inspect"]))
            lines.append('{ action = "%s"; to = "%s";%s%s }' % (words[0], words[1], more, " inspect = true;" if "inspect" in words else ""))
        with open("/etc/hostd/policies.d/%s.conf" % name, "w") as f:
            f.write("rules = (\n%s\n);\n" % ",\n".join(lines))
        run("hostctl", "apply")

    def make(self):
        self.make_net()
        self.make_certificates()
        self.make_servers()
        self.make_host_listeners()
        self.start_hostd()
        os.makedirs("/etc/hostd/policies.d", exist_ok=True)
        self.policy("pt-names", RULES)
        self.flows_rules = ["allow %s/32 tcp 8000" % KEEP, "allow %s/32 udp 8000" % DIRECT]
        self.policy("pt-flows", self.flows_rules)
        self.pids = {"pt-a": self.launch("pt-a", "pt-names"), "pt-b": self.launch("pt-b", "pt-flows")}
        self.ns = {name: os.open("/proc/%d/ns/net" % pid, os.O_RDONLY) for name, pid in self.pids.items()}
        slots = dict(line.split(",") for line in run("hostctl", "list", "-f", "csv", "-c", "name,slot").split()[1:])
        self.ipv4 = {name: "10.209.0.%d" % int(slots[name]) for name in self.pids}
        self.ipv6 = {name: "fd68:6f73:7464::%x" % int(slots[name]) for name in self.pids}
        self.device = {name: "hv%04x" % int(slots[name]) for name in self.pids}
        self.mac = {}
        for name in self.ns:
            self.mac[name] = run("nsenter", "--net=/proc/%d/ns/net" % self.pids[name], "ip", "-o", "link", "show", "eth0").split("link/ether ")[1].split()[0]
        self.gateway_mac = run("ip", "-o", "link", "show", self.device["pt-a"]).split("link/ether ")[1].split()[0]
        self.uplink, self.arrived = Capture(HOST_NS, "uplk", outgoing=True), Capture(self.outside, "inet0")
        self.neighbour, self.own, self.wire = Capture(self.ns["pt-b"], "eth0"), Capture(self.ns["pt-a"], "eth0"), Capture(HOST_NS, self.device["pt-a"])
        with open(self.work + "/resolv.conf", "w") as f:
            f.write("nameserver 169.254.0.1\noptions timeout:2 attempts:1\n")
        with open(self.work + "/nsswitch", "w") as f:
            f.write("hosts: dns\n")
        assert until(lambda: self.client("curl", "-sf", "--cacert", "ca.pem", "https://good.example.org/").returncode == 0, 20), "an allowed name is not reached"

    def client(self, *words, name="pt-a", seconds=30, env=None):
        """A program of this machine's in the instance's network, with its resolver."""
        script = 'mount --bind "$0/resolv.conf" /etc/resolv.conf; mount --bind "$0/nsswitch" /etc/nsswitch.conf; exec "$@"'
        return subprocess.run(["nsenter", "--net=/proc/%d/ns/net" % self.pids[name], "unshare", "-m", "sh", "-c", script, self.work, *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds * SLOW, cwd=self.work,
                              env={**{k: v for k, v in os.environ.items() if "CERT" not in k and "CA_BUNDLE" not in k and "CAINFO" not in k}, **(env or {})})

    # ---- what the captures say

    def settle(self):
        """Nothing of before is counted: the wires are quiet."""
        captures = (self.uplink, self.arrived, self.neighbour, self.own, self.wire)
        quiet = 0
        for _ in range(100):
            seen = [f for c in captures for f in c.drain()]
            quiet = 0 if any(not Frame(f).neighbours() for f in seen) else quiet + 1
            if quiet == 2:
                break
            time.sleep(0.008)
        self.requests.clear()
        self.host_events.clear()
        self.dns.asked.clear()

    def leaves(self, data, tag, carries):
        """Whether a frame on the uplink is one that an instance had no right to."""
        f = Frame(data)
        if f.source == HOST4 and f.protocol == 1 and f.body[0] == 3 and f.body[24:28] == socket.inet_aton(HOST4):
            return False  # the host's own word to who asked for a port that it has not
        if tag in data.lower() and not carries:
            return True
        if f.neighbours():
            return False
        if f.target == DNS and f.source == HOST4 and f.port == 53:
            return f.protocol == 17 and not self.may_ask(f.body[8:])
        return f.protocol not in (6, 17) or (f.target, f.port) not in LEGIT

    @staticmethod
    def may_ask(data):
        name = Message(data).name.lower()
        if name.startswith("inner"):  # where an allowed name's CNAME leads
            return True
        return any(name == n or n.startswith("*.") and name.endswith(n[1:]) for n in (r.split()[1] for r in RULES))

    def reaches(self, data, tag):
        """Whether a frame at the neighbour's is one of somebody else's. What the host itself refuses it is not."""
        f = Frame(data)
        if not f.source or f.neighbours() or f.source in (KEEP, DIRECT):
            return tag in data and f.source not in (KEEP, DIRECT)
        if f.protocol == 6 and len(f.body) > 13 and f.body[13] & 4:
            return False
        return not (f.protocol in (1, 58) and f.body[0] in (1, 3))

    def violations(self, tag, carries):
        out = ["%s: %s" % (where, Frame(f)) for where, capture in (("uplink", self.uplink), ("origin", self.arrived)) for f in capture.drain() if self.leaves(f, tag, carries)]
        out += ["neighbour: %s" % Frame(f) for f in self.neighbour.drain() if self.reaches(f, tag)]
        out += self.host_events
        out += ["%s was asked %s" % (a, head[:60]) for a, head in self.requests if tag in head and not carries]
        return out

    # ---- the fence away: the control of most attempts

    def tear_down(self):
        for name in ("hostd", "hostd-resolver", "hostd-proxy", "hostd-flow", "haproxy"):
            subprocess.run(["pkill", "-9", "-x", name])  # all of this machine's own process namespace
        self.hostd.wait()
        run("nft", "flush", "ruleset")
        for words in (("ip", "rule"), ("ip", "-6", "rule")):
            for line in run(*words).splitlines():
                preference = int(line.split(":")[0])
                if preference not in (0, 32766, 32767):
                    run(*words, "del", "pref", preference)
        for device in ("all", *self.device.values()):
            for key, value in (("rp_filter", 0), ("accept_source_route", 1), ("accept_local", 1)):
                with open("/proc/sys/net/ipv4/conf/%s/%s" % (device, key), "w") as f:
                    f.write(str(value))
        if os.path.exists("/usr/sbin/conntrack"):
            subprocess.run(["conntrack", "-F"], capture_output=True)
