# SPDX-License-Identifier: GPL-2.0-or-later
"""What stands around each of the border's programs in its test: an instance's wire, hostd's end of the control channel, and the keeper of
records. Written apart from hostd/border, so that both can be wrong in different ways."""
import os
import socket
import struct
import subprocess
import threading
import time

SLOW = float(os.environ.get("HOSTD_TEST_SLOW", 1))  # how much longer anything may take here


def run(*words, ns=None, **more):
    command = [*(("ip", "netns", "exec", ns) if ns else ()), *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    assert done.returncode == 0, (command, done.stdout)
    return done.stdout


def until(what, seconds=10):
    end = time.monotonic() + seconds * SLOW
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    return what()


def wire(ns, number):
    """An instance's wire as hostd makes it, its other end in the namespace."""
    host = f"hv{number:04}"
    for line in (f"link add {host} type veth peer name eth0 netns {ns}", f"link set {host} addrgenmode none", f"link set {host} up",
                 f"addr add 169.254.0.1/32 dev {host} scope link", f"addr add fe80::1/64 dev {host} nodad",
                 f"route add 10.99.0.{number}/32 dev {host} src 169.254.0.1", f"-6 route add 2a00:99::{number}/128 dev {host}"):
        run("ip", *line.split())
    for line in ("link set lo up", "link set eth0 up", f"addr add 10.99.0.{number}/32 dev eth0", f"-6 addr add 2a00:99::{number}/128 dev eth0 nodad",
                 "route add 169.254.0.1/32 dev eth0 scope link", "route add default via 169.254.0.1", "-6 route add default via fe80::1 dev eth0"):
        run("ip", *line.split(), ns=ns)


# ---- the control channel (hostd/border/control.h)

HEADER = struct.Struct("=IIQ")
VIEWS, ACK, QUERY, HELLO, APPLIED, INSERT, EVENT, ANSWERED = 1, 2, 3, 16, 17, 18, 19, 20


class Link:
    """hostd's end of it."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.data = b""

    def send(self, kind, cookie, payload, fds=()):
        data = HEADER.pack(kind, len(payload), cookie) + payload
        self.socket.sendall(data[socket.send_fds(self.socket, [data], fds) if fds else 0:])

    def frame(self, seconds=None):
        """The next one: kind, cookie, payload."""
        self.socket.settimeout(seconds and seconds * SLOW)
        while True:
            if len(self.data) >= HEADER.size:
                kind, length, cookie = HEADER.unpack_from(self.data)
                end = HEADER.size + length
                if len(self.data) >= end:
                    payload, self.data = self.data[HEADER.size:end], self.data[end:]
                    return kind, cookie, payload
            more = self.socket.recv(65536)
            if not more:
                raise EOFError("the program is gone")
            self.data += more

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


# ---- records (hostd/border/record.h)

RECORD = struct.Struct("=HHHBBBBHHBBqQQQ16s64s256s96s")
KINDS, VERDICTS = ("dns", "tls", "http", "connect", "kernel"), ("allow", "deny", "error")
RECORDS_PATH = "/run/hostd/flow-records.sock"


def text(raw):
    return raw.split(b"\0")[0].decode()


class Records(threading.Thread):
    """hostd-flow's socket."""

    def __init__(self):
        super().__init__(daemon=True)
        self.all = []
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self.sock.bind(RECORDS_PATH)
        os.chmod(RECORDS_PATH, 0o666)
        self.start()

    def run(self):
        while True:
            r = RECORD.unpack(self.sock.recv(4096))
            family = {4: socket.AF_INET, 6: socket.AF_INET6}.get(r[5])
            self.all.append(dict(slot=r[2], kind=KINDS[r[3]], verdict=VERDICTS[r[4]], address=family and socket.inet_ntop(family, r[15][:4 if r[5] == 4 else 16]),
                                 port=r[7], rule=r[8], flags=r[9], missed=r[10], duration=r[12], tx=r[13], rx=r[14], policy=text(r[16]), name=text(r[17]),
                                 reason=text(r[18])))

    def matching(self, since=0, **want):
        return [r for r in self.all[since:] if all(r[k] == v for k, v in want.items())]

    def find(self, since=0, seconds=5, **want):
        return until(lambda: next(iter(self.matching(since, **want)), None), seconds)
