# SPDX-License-Identifier: GPL-2.0-or-later
"""DNS messages, clients and name servers for the tests of hostd-resolver: written apart from it, so that both can be wrong in different ways."""
import os, random, socket, struct, threading, time

TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "NULL": 10, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33, "HTTPS": 65, "SVCB": 64,
         "AXFR": 252, "ANY": 255}
NAMES = {v: k for k, v in TYPES.items()}
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = range(6)


def wire(name):
    return b"".join(bytes([len(x)]) + x.encode() for x in name.strip(".").split(".") if x) + b"\0"


def query(name, kind="A", edns=1232, ident=None, options=b""):
    ident = random.randrange(65536) if ident is None else ident
    kind = TYPES.get(kind, kind)
    opt = b"\0" + struct.pack(">HHIH", 41, edns, 0, len(options)) + options if edns else b""
    return struct.pack(">6H", ident, 0x100, 1, 0, 0, 1 if edns else 0) + wire(name) + struct.pack(">HH", kind, 1) + opt


def read_name(data, at):
    labels, end, jumps = [], None, 0
    while True:
        n = data[at]
        if n >= 0xc0:
            end = end or at + 2
            at = (n & 0x3f) << 8 | data[at + 1]
            jumps += 1
            assert jumps < 64
            continue
        at += 1
        if n == 0:
            break
        labels.append(data[at:at + n].decode())
        at += n
    return ".".join(labels), end or at


class Message:
    """rcode, tc, records [(name, type, ttl, value)], ede (code, text) or None"""

    def __init__(self, data):
        self.data = data
        self.id, flags, qd, an, ns, ar = struct.unpack(">6H", data[:12])
        self.rcode, self.tc, self.records, self.ede = flags & 15, bool(flags & 0x200), [], None
        self.name = self.kind = None
        self.edns = False
        at = 12
        if qd:
            self.name, at = read_name(data, at)
            self.kind = NAMES.get(*struct.unpack(">H", data[at:at + 2]) * 2)
            self.question = data[12:at + 4]
            at += 4
        for i in range(an + ns + ar):
            name, at = read_name(data, at)
            kind, klass, ttl, size = struct.unpack(">HHIH", data[at:at + 10])
            at += 10
            value = data[at:at + size]
            if kind == 41:
                self.edns = True
                self.options = value
                while value:
                    code, n = struct.unpack(">HH", value[:4])
                    if code == 15:
                        self.ede = struct.unpack(">H", value[4:6])[0], value[6:4 + n].decode()
                    value = value[4 + n:]
            elif i < an:
                if kind == 1:
                    value = socket.inet_ntop(socket.AF_INET, value)
                elif kind == 28:
                    value = socket.inet_ntop(socket.AF_INET6, value)
                elif kind in (5, 2, 12):
                    value = read_name(data, at)[0]
                elif kind == 15:
                    value = read_name(data, at + 2)[0]
                elif kind == 33:
                    value = struct.unpack(">H", value[4:6])[0], read_name(data, at + 6)[0]
                self.records.append((name, NAMES.get(kind, kind), ttl, value))
            at += size
        assert at == len(data), "bytes behind the message"

    def addresses(self):
        return sorted(r[3] for r in self.records if r[1] in ("A", "AAAA"))

    def ttls(self):
        return {r[2] for r in self.records}


def receive_tcp(s):
    data = b""
    while len(data) < 2 or len(data) < 2 + struct.unpack(">H", data[:2])[0]:
        more = s.recv(65536)
        if not more:
            return None
        data += more
    return data[2:]


def record(name, kind, ttl, value):
    if kind == "A":
        value = socket.inet_pton(socket.AF_INET, value)
    elif kind == "AAAA":
        value = socket.inet_pton(socket.AF_INET6, value)
    elif kind in ("CNAME", "NS", "PTR"):
        value = wire(value)
    elif kind == "MX":
        value = struct.pack(">H", 10) + wire(value)
    elif kind == "SRV":
        value = struct.pack(">HHH", 1, 2, value[0]) + wire(value[1])
    elif kind == "TXT":
        value = bytes([len(value)]) + value.encode()
    return wire(name) + struct.pack(">HHIH", TYPES[kind], 1, ttl, len(value)) + value


class Upstream:
    """A name server with a zone {(name, type): [(type, ttl, value) …]} and all that it was ever asked."""

    def __init__(self, inside, address, zone):
        self.zone, self.asked, self.address = zone, [], address
        self.behave = lambda message, reply, send: send(reply)  # what an attacker or a fault would do instead
        self.rcode = None
        self.limit = 512
        with inside():
            self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.udp.bind((address, 53))
        self.tcp.bind((address, 53))
        self.tcp.listen(64)
        for f in self.run_udp, self.run_tcp:
            threading.Thread(target=f, daemon=True).start()

    def close(self):
        self.udp.close()
        self.tcp.close()

    def answer(self, message):
        """One step only where a name ends in "stops.example", as an authority would; else the whole chain."""
        out, name, rcode = [], message.name.lower(), NOERROR
        owner = message.question[:-4]  # the case of its letters goes back
        for _ in range(20):
            found = self.zone.get((name, message.kind)) or self.zone.get((name, "*"))
            if not found:
                found = self.zone.get((name, "CNAME"), []) if message.kind != "CNAME" else []
            if not found:
                if not out and not any(k[0] == name for k in self.zone):
                    rcode = NXDOMAIN
                break
            for kind, ttl, value in found:
                r = record(name, kind, ttl, value)
                out.append(owner + r[len(wire(name)):] if name == message.name.lower() else r)
            if found[0][0] != "CNAME" or message.kind == "CNAME" or name.endswith("stops.example"):
                break
            name = found[0][2]
        soa = b"" if out else record("example", "SOA", 20, wire("ns.example") + wire("admin.example") + struct.pack(">5I", 1, 2, 3, 4, 15))
        rcode = self.rcode if self.rcode is not None else rcode
        head = struct.pack(">6H", message.id, 0x8180 | rcode, 1, len(out), 1 if soa else 0, 0)
        return head + message.question + b"".join(out) + soa

    def run_udp(self):
        while True:
            try:
                data, peer = self.udp.recvfrom(4096)
            except OSError:
                return
            message = Message(data)
            self.asked.append(("udp", message.name, message.kind, peer[1], data))
            reply = self.answer(message)
            if len(reply) > self.limit:
                reply = reply[:2] + struct.pack(">5H", 0x8380, 1, 0, 0, 0) + message.question
            self.behave(message, reply, lambda b, peer=peer: self.udp.sendto(b, peer))

    def run_tcp(self):
        while True:
            try:
                s, peer = self.tcp.accept()
            except OSError:
                return
            threading.Thread(target=self.serve_tcp, args=(s, peer), daemon=True).start()

    def serve_tcp(self, s, peer):
        s.settimeout(10)
        try:
            while data := receive_tcp(s):
                message = Message(data)
                self.asked.append(("tcp", message.name, message.kind, peer[1], data))
                reply = self.answer(message)
                s.sendall(struct.pack(">H", len(reply)) + reply)
        except OSError:
            pass
        s.close()

    def names(self):
        return [a[1].lower() for a in list(self.asked)]
