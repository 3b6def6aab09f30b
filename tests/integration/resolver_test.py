# SPDX-License-Identifier: GPL-2.0-or-later
"""hostd-resolver against real packets: the namespace this starts in is the host; up has the name servers; c1, c2 are instances.

What a denied question must not do is asserted where it would arrive: at the name servers, and by a capture on their wire.
"""
import ctypes, json, os, random, re, shutil, signal, socket, struct, subprocess, sys, threading, time

from border_world import ACK, APPLIED, HELLO, INSERT, SLOW, VIEWS, Link, Records, run, until
from border_world import wire as make_wire
from resolver_dns import FORMERR, NOERROR, NOTIMP, NXDOMAIN, REFUSED, SERVFAIL, Message, Upstream, query, receive_tcp

LIBC = ctypes.CDLL(None, use_errno=True)
HOST = os.open("/proc/self/ns/net", os.O_RDONLY)
PROGRAM = "/run/hostd/program"  # where nobody may start it, too
NOBODY = 65534
PORT = 8453
counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(ok, what):
    counts["passed" if ok else "failed"] += 1
    print(("ok    " if ok else "FAIL  ") + what, flush=True)
    return ok


class Inside:
    """Sockets made within belong to the namespace, wherever the thread goes afterwards."""

    def __init__(self, ns):
        self.fd = os.open("/run/netns/" + ns, os.O_RDONLY)

    def __enter__(self):
        assert LIBC.setns(self.fd, 0) == 0

    def __exit__(self, *unused):
        LIBC.setns(HOST, 0)
        os.close(self.fd)


# ---- the host's part

class Hostd:
    """The fake daemon: the control socket, views, and what it says to requests for addresses in the kernel."""
    def __init__(self, path):
        self.path, self.link, self.cookie = path, None, 0
        self.inserts, self.applied, self.mode, self.held, self.hello = [], {}, "ack", [], None
        self.ports = set()  # that were asked for, as bits of their rule's

    def connect(self):
        self.link = Link(self.path)
        self.hello = None
        threading.Thread(target=self.read, args=(self.link,), daemon=True).start()
        assert until(lambda: self.hello is not None), "no HELLO"

    def close(self):
        self.link.close()

    def ack(self, cookie, error=0):
        self.link.send(ACK, cookie, struct.pack("=i", error))

    def read(self, link):
        try:
            while True:
                self.frame(*link.frame())
        except (OSError, EOFError):
            return

    def frame(self, kind, cookie, payload):
        if kind == HELLO:
            self.hello = struct.unpack("=I", payload)[0]
        elif kind == APPLIED:
            self.applied[cookie] = struct.unpack("=i", payload)[0]
        elif kind == INSERT:
            slot, rule, family, address, ttl, ports = struct.unpack("=HHB3x16sII", payload)
            self.ports.add(ports)
            address = socket.inet_ntop(*((socket.AF_INET, address[:4]) if family == 4 else (socket.AF_INET6, address)))
            self.inserts.append((slot, rule, address, ttl))
            if self.mode == "ack":
                self.ack(cookie)
            elif self.mode == "refuse":
                self.ack(cookie, -28)
            elif self.mode == "hold":
                self.held.append(cookie)

    def views(self, slots, whole=True, gone=(), upstreams=None):
        self.cookie += 1
        view = {"generation": self.cookie, "whole": whole, "upstreams": UPSTREAMS if upstreams is None else upstreams, "slots": slots, "gone": list(gone)}
        self.link.send(VIEWS, self.cookie, json.dumps(view).encode())
        assert until(lambda: self.cookie in self.applied), "views were not applied"
        return self.applied[self.cookie]


class Program:
    def __init__(self):
        self.listeners = []
        for name, kind in (("resolver", socket.SOCK_STREAM), ("resolve", socket.SOCK_SEQPACKET)):
            path = "/run/hostd/%s.sock" % name
            if os.path.exists(path):
                os.unlink(path)
            s = socket.socket(socket.AF_UNIX, kind)
            s.bind(path)
            s.listen(16)
            self.listeners.append(s)
        self.start()

    def start(self):
        high = [os.dup2(s.fileno(), 100 + i) for i, s in enumerate(self.listeners)]
        self.p = subprocess.Popen(["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups", "bash", "-c",
                                   'exec 3<&100 4<&101 100<&- 101<&-; exec "$0"', PROGRAM], pass_fds=high,
                                  env={"LISTEN_FDS": "2", "LISTEN_FDNAMES": "control:resolve", "PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL)

    def status(self, key):
        for line in open("/proc/%d/status" % self.p.pid):
            if line.startswith(key + ":"):
                return line.split(":")[1].strip()

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.p.pid))

    def stop(self, number=signal.SIGTERM):
        self.p.send_signal(number)
        return self.p.wait(10 * SLOW)


# ---- the wires

def plug(n):
    """Its link-local address is one that is known."""
    make_wire("c%d" % n, n)
    run("ip", "addr", "add", "fe80::2/64", "dev", "eth0", "nodad", ns="c%d" % n)


def wires():
    open("/proc/sys/net/unix/max_dgram_qlen", "w").write("512")  # as systemd has it; records are lost where their reader is late
    run("ip", "link", "set", "lo", "up")
    for ns in "up", "c1", "c2":
        run("ip", "netns", "add", ns)
        run("ip", "link", "set", "lo", "up", ns=ns)
    run("ip", "link", "add", "uplk", "type", "veth", "peer", "name", "eth0", "netns", "up")
    run("ip", "addr", "add", "192.0.2.1/24", "dev", "uplk")
    run("ip", "link", "set", "uplk", "up")
    for last in 53, 54, 55:
        run("ip", "addr", "add", "192.0.2.%d/24" % last, "dev", "eth0", ns="up")
    run("ip", "link", "set", "eth0", "up", ns="up")
    plug(1)
    plug(2)


class Capture:
    """Every frame that reaches the name servers' wire, whatever port and protocol."""

    def __init__(self):
        with Inside("up"):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.frames = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while True:
            self.frames.append(self.socket.recv(65536).lower())

    def saw(self, label):
        return any(label.encode() in f for f in list(self.frames))


# ---- a guest's part

def client(n, kind=socket.SOCK_DGRAM, six=False, timeout=6):
    with Inside("c%d" % n):
        s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, kind)
        s.settimeout(timeout * SLOW)
        s.connect(("fe80::1", PORT, 0, socket.if_nametoindex("eth0")) if six else ("169.254.0.1", PORT))
    return s


def ask(n, name, kind="A", tcp=False, six=False, raw=None, timeout=6, edns=1232, options=b""):
    data = raw if raw is not None else query(name, kind, edns=edns, options=options)
    with client(n, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM, six, timeout) as s:
        if tcp:
            s.sendall(struct.pack(">H", len(data)) + data)
            reply = receive_tcp(s)
        else:
            s.send(data)
            reply = s.recv(8192)
    message = Message(reply)
    assert message.id == struct.unpack(">H", data[:2])[0]
    return message


def silent(n):
    try:
        ask(n, "plain.example", timeout=0.5)
        return False
    except OSError:
        return True


# ---- what is asked for

BAD = {"ten": "10.0.0.1", "loop": "127.0.0.1", "meta": "169.254.169.254", "nat": "100.64.0.1", "doc": "192.0.2.77", "multi": "224.0.0.1", "zero": "0.0.0.0", "ula": "fc00::1",
       "mapped": "::ffff:10.0.0.1", "nat64": "64:ff9b::a9fe:a9fe", "link": "fe80::1", "lo6": "::1"}

ZONE = {
    ("plain.example", "A"): [("A", 5, "20.0.0.1")],
    ("plain.example", "AAAA"): [("AAAA", 86400, "2a00::1")],
    ("plain.example", "MX"): [("MX", 60, "mail.plain.example")],
    ("plain.example", "TXT"): [("TXT", 60, "words")],
    ("_sip._tcp.plain.example", "SRV"): [("SRV", 60, (5060, "mail.plain.example"))],
    ("six.example", "AAAA"): [("AAAA", 60, "2a00::1")],
    ("alias.example", "CNAME"): [("CNAME", 60, "middle.elsewhere.example")],
    ("middle.elsewhere.example", "CNAME"): [("CNAME", 60, "end.elsewhere.example")],
    ("end.elsewhere.example", "A"): [("A", 60, "20.0.0.2")],
    ("a.stops.example", "CNAME"): [("CNAME", 60, "b.stops.example")],
    ("b.stops.example", "CNAME"): [("CNAME", 60, "end.elsewhere.example")],
    ("round.example", "CNAME"): [("CNAME", 60, "around.example")],
    ("around.example", "CNAME"): [("CNAME", 60, "round.example")],
    ("many.example", "A"): [("A", 60, "20.0.1.%d" % i) for i in range(1, 61)],
    ("all.example", "A"): [("A", 60, "20.0.%d.%d" % (i // 100 + 2, i % 100 + 1)) for i in range(150)],
    ("mixed.example", "A"): [("A", 60, "20.0.0.3"), ("A", 60, "10.0.0.3")],
    ("toprivate.example", "CNAME"): [("CNAME", 60, "ten.bad.example")],
    ("inside.example", "A"): [("A", 60, "10.1.2.3")],
    ("ssh.example", "A"): [("A", 60, "20.0.0.22"), ("A", 60, "20.0.0.23")],
    ("ssh2.example", "A"): [("A", 60, "20.0.0.24")],
    ("ssh3.example", "A"): [("A", 60, "20.0.0.25")],
    ("evil.example.org", "A"): [("A", 60, "20.0.0.66")],
    ("good.example.org", "A"): [("A", 60, "20.0.0.4")],
    ("shared.example", "A"): [("A", 60, "20.0.0.5")],
    ("denied.example", "A"): [("A", 60, "20.0.0.6")],
}
for label, address in BAD.items():
    ZONE[label + ".bad.example", "AAAA" if ":" in address else "A"] = [("AAAA" if ":" in address else "A", 60, address)]
for i in range(200):
    ZONE["f%d.fresh.example" % i, "A"] = [("A", 60, "20.1.0.%d" % (i + 1))]
    ZONE["t%d.tunnel.example" % i, "A"] = [("A", 60, "20.2.0.%d" % (i + 1))]

UPSTREAMS = ["192.0.2.53"]


def rule(to, action="allow", protocol="tcp", ports=None, ident=0, origin=0):
    r = {"action": action, "to": to, "protocol": protocol, "origin": origin, "id": ident}
    if ports:
        r["ports"] = ports
    return r


def slot(n, rules, rate=100000, burst=100000, names=1000, types=(), ifname=None):
    for i, r in enumerate(rules):
        r["origin"] = i
    return {"slot": n, "ifname": ifname or "hv000%d" % n, "instance": "i%d" % n, "ipv4": "10.99.0.%d" % n, "ipv6": "fd00::%d" % n, "offline": False,
            "dns": {"rate": rate, "burst": burst, "names": names, "types": list(types)}, "policies": [{"name": "web", "first": 0, "rules": rules}]}


def allow(*names):
    return [rule(n, ports="443", ident=i + 1) for i, n in enumerate(names)]


ALL = ("plain.example", "*.plain.example", "six.example", "alias.example", "a.stops.example", "round.example", "many.example", "all.example", "mixed.example", "toprivate.example",
       "inside.example", "*.bad.example", "shared.example", "*.fresh.example", "*.tunnel.example", "missing.example")


def first():
    return [slot(1, [rule("evil.example.org", "deny", "any")] + allow(*ALL, "*.example.org")), slot(2, allow("shared.example", "plain.example"), types=["TXT"])]


# ---- tests

def test_process(program):
    check(program.status("Uid").split()[1] == str(NOBODY), "it is nobody")
    check(int(program.status("CapEff"), 16) == 0 and int(program.status("CapPrm"), 16) == 0, "it has no capabilities")
    check(program.status("Seccomp") == "2" and program.status("NoNewPrivs") == "1", "it is confined")
    check(re.search(r"core file size +0 +0", open("/proc/%d/limits" % program.p.pid).read()), "it dumps no core")
    r = subprocess.run(["setpriv", "--reuid=%d" % NOBODY, PROGRAM], capture_output=True, text=True, env={"PATH": os.environ["PATH"]}).returncode
    check(r != 0, "without sockets from hostd it does not start")


def test_answers(up):
    m = ask(1, "plain.example")
    check(m.rcode == NOERROR and m.addresses() == ["20.0.0.1"], "an allowed name is answered")
    check(m.ttls() == {30}, "a short lifetime becomes 30 s: %s" % m.ttls())
    check(ask(1, "plain.example", "AAAA").ttls() == {300}, "a long lifetime becomes 300 s")
    check(ask(1, "plain.example", six=True).addresses() == ["20.0.0.1"], "by IPv6, too")
    check(ask(1, "plain.example", tcp=True).addresses() == ["20.0.0.1"], "by TCP, too")
    check(ask(1, "plain.example", tcp=True, six=True).addresses() == ["20.0.0.1"], "by TCP and IPv6")
    m = ask(1, "PLAIN.exAmple")
    check(m.addresses() == ["20.0.0.1"] and b"PLAIN\7exAmple" in m.data, "letters keep their case in the reply")
    check(ask(1, "plain.example", "MX").records[0][3] == "mail.plain.example", "MX")
    check(ask(1, "_sip._tcp.plain.example", "SRV").records[0][3] == (5060, "mail.plain.example"), "SRV")
    check(ask(1, "plain.example", edns=0).edns is False, "no EDNS for those who have none")
    m = ask(1, "missing.example")
    check(m.rcode == NXDOMAIN and not m.records, "a name that is not there")
    m = ask(1, "six.example")
    check(m.rcode == NOERROR and not m.records, "a name without such a record")
    n = len(up.asked)
    for kind in "A", "AAAA":
        ask(1, "missing.example", kind), ask(1, "six.example", kind)
    check(len(up.asked) == n + 2, "what is not there is remembered")
    ask(1, "plain.example", options=struct.pack(">HHHBB4s", 8, 8, 1, 32, 0, b"\x0a\x63\x00\x01"))
    check(not any(b"\x0a\x63\x00\x01" in a[4] for a in up.asked), "a client's subnet goes nowhere")


def test_denials(up, wire, records):
    for tcp in False, True:
        m = ask(1, "denied.example", tcp=tcp)
        check(m.rcode == REFUSED and m.ede and m.ede[0] == 15, "a name that no rule has is refused (%s)" % (m.ede,))
        check("hostd-guest ask net " in m.ede[1] and m.ede[1].endswith(" --reason WHY"), "with how to ask for it")
        m = ask(1, "evil.example.org", tcp=tcp)
        check(m.rcode == REFUSED and m.ede and "web" in m.ede[1] and "rule 1" in m.ede[1], "a denial names policy and rule (%s)" % (m.ede,))
    check(ask(1, "good.example.org").addresses() == ["20.0.0.4"], "the rule behind it holds for the others")
    check(ask(1, "example.org").rcode == REFUSED, "a wildcard is not for the name itself")
    for name in "denied.example.evil", "plain.example.denied.example", "xplain.example", "example", "com", "1.0.99.10.in-addr.arpa", "a.b.c.d.e.f.ip6.arpa", "12.34", "":
        check(ask(1, name, "PTR" if "arpa" in name else "A").rcode == REFUSED, "refused: %s" % (name or "the root"))
    check(records.find(name="evil.example.org", verdict="deny", policy="web", rule=1, slot=1), "and is recorded with its rule")
    check(records.find(name="plain.example", verdict="allow", slot=1), "what is allowed is recorded, too")
    check(not wire.saw("denied") and not wire.saw("evil"), "nothing of it reached a name server")


def test_types(up, wire):
    n = len(up.asked)
    for kind in "HTTPS", "SVCB":
        m = ask(1, "plain.example", kind)
        check(m.rcode == NOERROR and not m.records, "%s: there is none" % kind)
    for kind in "TXT", "ANY", "NULL", "AXFR", "NS", "SOA", "PTR", 43, 48, 999, 41:
        m = ask(1, "plain.example", kind)
        check(m.rcode == REFUSED and m.ede and m.ede[0] == 17, "type %s is refused (%s)" % (kind, m.ede))
    check(len(up.asked) == n, "and not asked for")
    check(ask(2, "plain.example", "TXT").records[0][3] == b"\5words", "TXT where it is enabled")
    raw = query("plain.example")
    check(ask(1, "", raw=raw[:-13] + b"\0\3" + raw[-11:]).rcode == REFUSED, "class CHAOS")


def test_malformed(up, program):
    n = len(up.asked)
    good = query("plain.example")
    check(ask(1, "", raw=good[:4] + b"\0\2" + good[6:]).rcode == FORMERR, "two questions")
    check(ask(1, "", raw=good[:2] + b"\x28\0" + good[4:]).rcode == NOTIMP, "an update")
    check(ask(1, "", raw=good + b"x").rcode == FORMERR, "bytes behind the question")
    with client(1) as s:
        for _ in range(3000):
            data = bytearray(random.choice((good, query("evil.example.org", "TXT"))))
            for _ in range(random.randrange(1, 6)):
                data[random.randrange(len(data))] = random.randrange(256)
            s.send(bytes(data)[:random.randrange(1, len(data) + 1)])
        s.send(b"")
    check(until(lambda: not silent(1)) and ask(1, "plain.example").addresses() == ["20.0.0.1"] and program.p.poll() is None, "3000 broken questions later it still answers")
    check(all(a.endswith(("plain.example", "example.org")) for a in up.names()[n:]), "and asked for none of them")


def test_chains(up):
    m = ask(1, "alias.example")
    check(m.addresses() == ["20.0.0.2"] and [r[1] for r in m.records] == ["CNAME", "CNAME", "A"], "a chain is followed into names that no rule has")
    check([r[0] for r in m.records] == ["alias.example", "middle.elsewhere.example", "end.elsewhere.example"], "with its owners")
    check(ask(1, "end.elsewhere.example").rcode == REFUSED, "which may not be asked for themselves")
    m = ask(1, "a.stops.example")
    check(m.addresses() == ["20.0.0.2"] and len(m.records) == 3, "a chain that the upstream leaves unfinished is followed")
    check(ask(1, "round.example").rcode == SERVFAIL, "a chain that goes in circles")


def test_rebinding():
    for label, address in BAD.items():
        m = ask(1, label + ".bad.example", "AAAA" if ":" in address else "A")
        check(m.rcode == REFUSED and not m.records and m.ede and m.ede[0] == 17, "%s is no answer (%s)" % (address, m.ede))
    check(ask(1, "mixed.example").rcode == REFUSED, "one bad address spoils the answer")
    check(ask(1, "toprivate.example").rcode == REFUSED, "and so it does behind an alias")
    check(ask(1, "mixed.example", tcp=True).rcode == REFUSED, "from the cache, too")


def test_named_ranges(hostd):
    hostd.views([slot(1, allow("inside.example") + [rule("10.1.0.0/16", protocol="any", ident=9)])], whole=False)
    check(ask(1, "inside.example").addresses() == ["10.1.2.3"], "a range that a rule names may be answered")
    hostd.views([slot(1, [rule("inside.example", ports="22", ident=3), rule("10.1.0.0/16", protocol="any", ident=9)])], whole=False)
    hostd.inserts.clear()
    check(ask(1, "inside.example").addresses() == ["10.1.2.3"] and not hostd.inserts, "and needs nothing else in the kernel")
    hostd.views(first(), whole=False)
    check(ask(1, "inside.example").rcode == REFUSED, "to that instance, and as long as the rule is there")


def test_isolation(up):
    check(ask(1, "shared.example").addresses() == ["20.0.0.5"], "a name of two instances")
    n = len(up.asked)
    check(ask(2, "shared.example").addresses() == ["20.0.0.5"] and len(up.asked) == n, "the second gets it from the cache")
    ask(1, "good.example.org")
    check(ask(2, "good.example.org").rcode == REFUSED, "a cached answer is for those whose rules allow it")


def test_large(up):
    m = ask(1, "many.example", edns=512)
    check(m.tc and not m.records, "what does not fit is truncated")
    check(any(a[0] == "tcp" and a[1].lower() == "many.example" for a in up.asked), "the upstream was asked by TCP for what did not fit there")
    check(len(ask(1, "many.example", tcp=True).addresses()) == 60, "by TCP all of it comes")
    check(len(ask(1, "all.example", tcp=True).addresses()) == 64, "but not more than 64 addresses")


def test_forgery(up):
    sent = []

    def forge(message, reply, send):
        sent.append(message.name)
        bad = bytearray(reply)
        bad[-4:] = socket.inet_aton("66.66.66.66")
        wrong_id = bytes([bad[0] ^ 1]) + bytes(bad[1:])
        other_case = bytearray(bad)
        other_case[13] ^= 0x20
        other_name = bytes(bad).replace(b"\5FRESH", b"\5fresx").replace(b"fresh", b"fresx")
        for b in wrong_id, bytes(other_case), bytes(bad[:20]), b"":
            send(b)
        send(reply)

    up.behave = forge
    check(ask(1, "f0.fresh.example").addresses() == ["20.1.0.1"], "forged answers in front of the right one are passed over")
    up.behave = lambda message, reply, send: [send(b"\0" * 20) for _ in range(40)]
    check(ask(1, "f1.fresh.example").addresses() == ["20.1.0.2"] and up.asked[-1][0] == "tcp", "many of them: the question goes by TCP")
    up.behave = lambda message, reply, send: send(reply[:-2])
    m = ask(1, "f2.fresh.example")
    check(m.rcode == SERVFAIL and m.ede[0] == 23, "a broken answer is none")
    up.behave = lambda message, reply, send: send(reply)


def test_randomness(up):
    n = len(up.asked)
    for i in range(10, 60):
        ask(1, "f%d.fresh.example" % i)
    asked = up.asked[n:]
    check(len(asked) == 50 and len({a[3] for a in asked}) > 40, "each question has a port of its own")
    check(len({a[4][:2] for a in asked}) > 40, "and an id")
    check(sum(a[1] != a[1].lower() for a in asked) > 40, "and letters of random case")


def test_coalescing(up):
    gate = threading.Event()
    up.behave = lambda message, reply, send: (gate.wait(3), send(reply))
    n = len(up.asked)
    sockets = [client(1) for _ in range(10)]
    for s in sockets:
        s.send(query("f3.fresh.example"))
    until(lambda: len(up.asked) > n)
    time.sleep(0.1)
    gate.set()
    answers = [Message(s.recv(4096)).addresses() for s in sockets]
    up.behave = lambda message, reply, send: send(reply)
    check(answers == [["20.1.0.4"]] * 10 and len(up.asked) == n + 1, "ten who ask the same wait for one answer")


def test_upstreams(program, hostd, up, second):
    hostd.views([], whole=False, upstreams=["192.0.2.54", "192.0.2.53"])  # nothing listens at the first
    check(ask(1, "f4.fresh.example").addresses() == ["20.1.0.5"], "an upstream that refuses is passed over")
    hostd.views([], whole=False, upstreams=["192.0.2.99", "192.0.2.53"])  # nobody is there
    start = time.monotonic()
    check(ask(1, "f5.fresh.example").addresses() == ["20.1.0.6"], "one that does not answer, too")
    middle = time.monotonic()
    ask(1, "f6.fresh.example")
    check(time.monotonic() - middle < 0.4 * SLOW and middle - start > 0.5, "and is left alone for a while")
    second.rcode = SERVFAIL
    hostd.views([], whole=False, upstreams=["192.0.2.55", "192.0.2.53"])
    check(ask(1, "f7.fresh.example").addresses() == ["20.1.0.8"], "one that answers with an error has a second opinion")
    hostd.views([], whole=False, upstreams=["192.0.2.99"])
    start = time.monotonic()
    m = ask(1, "f8.fresh.example", timeout=8)
    check(m.rcode == SERVFAIL and m.ede[0] == 23 and time.monotonic() - start < 5.5 * SLOW, "no upstream: SERVFAIL in time (%.1f s)" % (time.monotonic() - start))
    before = program.descriptors()
    for i in range(20):
        with client(1, socket.SOCK_STREAM) as s:
            q = [query("g%d.fresh.example" % (8 * i + j)) for j in range(8)]
            s.sendall(b"".join(struct.pack(">H", len(x)) + x for x in q))
            time.sleep(0.02)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    check(until(lambda: program.descriptors() <= before + 8, 1), "questions of those who left are left, too (%d, %d)" % (before, program.descriptors()))
    hostd.views([], whole=False, upstreams=UPSTREAMS)
    time.sleep(2.1)
    check(ask(1, "f8.fresh.example").addresses() == ["20.1.0.9"], "and it is forgotten soon")


def test_inserts(hostd):
    ssh = [rule("ssh.example", ports="22", ident=7), rule("ssh2.example", ports="22,443", ident=8), rule("ssh3.example", protocol="udp", ports="123", ident=9)]
    hostd.views([slot(1, ssh + allow("plain.example"))], whole=False)
    check(ask(1, "ssh.example").addresses() == ["20.0.0.22", "20.0.0.23"], "a name on a port that is not proxied")
    check(sorted(hostd.inserts) == [(1, 7, "20.0.0.22", 60), (1, 7, "20.0.0.23", 60)], "its addresses were put in (%s)" % hostd.inserts)
    hostd.inserts.clear()
    ask(1, "ssh.example")
    check(not hostd.inserts, "and are not again while they last")
    ask(1, "plain.example")
    check(not hostd.inserts, "those of proxied names never are")
    hostd.views([slot(1, ssh)], whole=False)
    ask(1, "ssh.example")
    check(len(hostd.inserts) == 2, "after a change they are, though the answer is cached")
    hostd.ports.clear()
    hostd.views([slot(1, [rule("ssh.example", "deny", "tcp", "22")] + [rule("ssh.example", ports="22,443,2222", ident=7)])], whole=False)
    check(ask(1, "ssh.example").rcode == NOERROR and hostd.ports == {4}, "a port that is denied to the name is not opened for it (%s)" % hostd.ports)
    hostd.views([slot(1, ssh)], whole=False)
    hostd.mode = "hold"
    s = client(1)
    s.send(query("ssh2.example"))
    check(until(lambda: hostd.held), "the kernel is asked")
    s.settimeout(0.3)
    try:
        s.recv(4096)
        early = True
    except OSError:
        early = False
    check(not early, "and no answer leaves before its word")
    hostd.ack(hostd.held.pop())
    s.settimeout(3 * SLOW)
    check(Message(s.recv(4096)).addresses() == ["20.0.0.24"], "then it does")
    hostd.mode = "refuse"
    m = ask(1, "ssh3.example")
    check(m.rcode == SERVFAIL and m.ede[0] == 14, "no room in the kernel: SERVFAIL (%s)" % (m.ede,))
    hostd.mode = "silent"
    m = ask(1, "ssh3.example", tcp=True)
    check(m.rcode == SERVFAIL, "no word: SERVFAIL")
    hostd.mode = "ack"
    check(ask(1, "ssh3.example").addresses() == ["20.0.0.25"], "and all is well again")
    hostd.close()
    check(until(lambda: ask(1, "ssh3.example").rcode == SERVFAIL), "without hostd nobody can put in anything")
    hostd.connect()
    hostd.views(first())
    check(ask(1, "ssh3.example").rcode == REFUSED, "a new hostd's views hold")


def test_sandbox(hostd, records):
    """A wire whose list is its profile's within its instance's: each list has its say, and its own map of the kernel's."""
    box = [rule("denied.example", "deny", "any"), rule("ssh.example", ports="22,443", ident=5), rule("plain.example", ports="443", ident=6), rule("good.example.org", ports="443", ident=8)]
    outer = [rule("ssh.example", ports="22", ident=7), rule("plain.example", ports="443", ident=3), rule("shared.example", ports="443", ident=4)]
    profile = {"slot": 0x800, "within": 1, "instance": "i1", "policies": [{"name": "box", "first": 0, "rules": [dict(r, origin=i) for i, r in enumerate(box)]}]}
    wire = dict(slot(2, []), slot=0x1002, profile=0x800, sandbox="sb1", instance="i1")
    del wire["policies"]
    hostd.inserts.clear()
    check(hostd.views([slot(1, outer), profile, wire], whole=False, gone=[2]) == 0, "a sandbox's view is applied")
    check(ask(2, "plain.example").addresses() == ["20.0.0.1"], "what both lists allow is answered")
    m = ask(2, "good.example.org")
    check(m.rcode == REFUSED and "of its instance" in m.ede[1], "what its instance lacks is not (%s)" % (m.ede,))
    m = ask(2, "shared.example")
    check(m.rcode == REFUSED and "of its instance" not in m.ede[1], "nor what it lacks itself (%s)" % (m.ede,))
    check(ask(1, "shared.example").addresses() == ["20.0.0.5"], "its instance has its own")
    check(ask(2, "ssh.example").addresses() == ["20.0.0.22", "20.0.0.23"] and sorted(i[:3] for i in hostd.inserts) ==
          sorted((n, i, "20.0.0.%d" % a) for n, i in ((0x800, 5), (1, 7)) for a in (22, 23)), "addresses are put in for both lists (%s)" % hostd.inserts)
    check(records.find(name="plain.example", verdict="allow", slot=0x1002) and records.find(name="good.example.org", verdict="deny", slot=0x1002), "and is recorded as the sandbox's")
    hostd.views([slot(1, outer[:1])], whole=False)
    check(ask(2, "plain.example").rcode == REFUSED, "what its instance loses it loses at once")
    hostd.views([], whole=False, gone=[1])
    check(ask(2, "ssh.example").rcode == REFUSED, "without its instance it has nothing")
    hostd.views(first())
    check(ask(2, "shared.example").addresses() == ["20.0.0.5"], "the wire is another's now")


def test_limits(hostd, up, records):
    hostd.views([slot(2, allow("shared.example", "plain.example", "*.tunnel.example"), rate=20, burst=40, names=10)], whole=False)
    records.all.clear()
    with client(2) as s:
        for _ in range(150):
            s.send(query("shared.example"))
        answers = [Message(s.recv(4096)) for _ in range(150)]
    good = sum(m.rcode == NOERROR for m in answers)
    bad = [m for m in answers if m.rcode == REFUSED]
    check(40 <= good <= 60 * SLOW and good + len(bad) == 150, "a burst of 40 and 20 a second (%d)" % good)
    check(bad[0].ede and "20 questions" in bad[0].ede[1], "the others are told (%s)" % (bad[0].ede,))
    check(ask(1, "plain.example").rcode == NOERROR, "another instance is not held up")
    check(len(records.matching(slot=2, verdict="deny")) <= 25 + 5 * SLOW, "and are not all recorded (%d)" % len(records.matching(slot=2, verdict="deny")))
    hostd.views([slot(2, allow("plain.example", "*.tunnel.example"), names=10)], whole=False)
    n = len(up.asked)
    codes = [ask(2, "t%d.tunnel.example" % i).rcode for i in range(20)]
    check(codes == [NOERROR] * 10 + [REFUSED] * 10, "ten names of a zone")
    check(len(up.asked) == n + 10, "the others do not leave")
    check("10 different names" in ask(2, "t19.tunnel.example").ede[1], "and say why")
    check(ask(2, "t3.tunnel.example").rcode == NOERROR and ask(2, "plain.example").rcode == NOERROR, "those that were counted, and exact rules, go on")
    hostd.views(first(), whole=False)


def answers(n):
    """The kernel may have dropped the question."""
    try:
        return ask(n, "plain.example", timeout=0.3).rcode == NOERROR
    except OSError:
        return False


def packets(n, way):
    return int(open("/sys/class/net/hv000%d/statistics/%s_packets" % (n, way)).read())


def test_flood(hostd):
    hostd.views([slot(2, allow("plain.example"), rate=20, burst=40)], whole=False)
    came, went, stop, slowest = packets(2, "rx"), packets(2, "tx"), threading.Event(), 0

    def flood():
        q, s = query("plain.example"), client(2)
        while not stop.is_set():
            s.send(q)

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    start = time.monotonic()
    while time.monotonic() - start < 2:
        before = time.monotonic()
        good = ask(1, "plain.example").rcode == NOERROR
        slowest = max(slowest, time.monotonic() - before if good else 99)
        time.sleep(0.01)
    stop.set()
    thread.join()
    seconds = time.monotonic() - start
    came, went = packets(2, "rx") - came, packets(2, "tx") - went
    # 540 at once, 520 a second, and what a pause lets pile up in the socket: that alone would be 300 twenty times a second.
    check(came > 8000 * seconds / SLOW and went < 600 + 8000 * seconds, "a flood of %d questions gets %d answers in %.1f s" % (came, went, seconds))
    check(slowest < 0.3 * SLOW, "and holds up nobody else (%.0f ms)" % (slowest * 1000))
    check(until(lambda: answers(2)), "behind it the instance may ask again")
    hostd.views(first(), whole=False)


def test_tcp():
    with client(1, socket.SOCK_STREAM) as s:
        data = b"".join(struct.pack(">H", len(q)) + q for q in (query("f%d.fresh.example" % i, ident=i) for i in range(60, 100)))
        s.sendall(data)
        ids = set()
        while len(ids) < 40:
            reply = b""
            while len(reply) < 2:
                reply += s.recv(2 - len(reply))
            size = struct.unpack(">H", reply)[0]
            reply = b""
            while len(reply) < size:
                reply += s.recv(size - len(reply))
            m = Message(reply)
            if m.addresses() != ["20.1.0.%d" % (m.id + 1)]:
                break
            ids.add(m.id)
        check(len(ids) == 40, "forty questions at once on one connection")
        q = query("plain.example")
        for byte in struct.pack(">H", len(q)) + q:
            s.sendall(bytes([byte]))
        check(Message(receive_tcp(s)).addresses() == ["20.0.0.1"], "a question byte by byte")
        s.sendall(struct.pack(">H", len(q)) + q)
        s.shutdown(socket.SHUT_WR)
        check(Message(receive_tcp(s)).addresses() == ["20.0.0.1"] and s.recv(1) == b"", "a half-closed connection gets its answer, and then its end")
    for data in b"\xff\xff" + b"x" * 100, b"\0\0", b"\0\5hello":
        with client(1, socket.SOCK_STREAM) as s:
            s.sendall(data)
            try:
                check(s.recv(10) == b"", "nonsense ends the connection")
            except ConnectionError:
                check(True, "nonsense ends the connection")
    held = [client(1, socket.SOCK_STREAM) for _ in range(8)]
    time.sleep(0.2)
    start = time.monotonic()
    with client(1, socket.SOCK_STREAM) as s:
        try:
            closed = s.recv(1) == b""
        except ConnectionError:
            closed = True
        check(closed, "a ninth connection is closed")
    check(ask(2, "plain.example", tcp=True).addresses() == ["20.0.0.1"], "another instance's is not")
    check(ask(1, "plain.example").addresses() == ["20.0.0.1"], "and UDP goes on")
    for s in held:
        s.settimeout(20 * SLOW)
        s.sendall(b"\0")
    check(all(s.recv(1) == b"" for s in held) and time.monotonic() - start > 8, "those who say nothing whole are closed after ten seconds (%.0f)" % (time.monotonic() - start))
    for s in held:
        s.close()
    check(ask(1, "plain.example", tcp=True).addresses() == ["20.0.0.1"], "and there is room again")


def test_special(up):
    n = len(up.asked)
    check(ask(1, "localhost").addresses() == ["127.0.0.1"] and ask(1, "db.localhost", "AAAA").addresses() == ["::1"], "localhost is the workload's own")
    check(ask(1, "x.invalid").rcode == NXDOMAIN and ask(1, "abc.onion").rcode == NXDOMAIN, "names that are nowhere")
    check(len(up.asked) == n, "nobody was asked")


def proxy_ask(name, number=1, family=4, cookie=5):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(10 * SLOW)
    s.connect("/run/hostd/resolve.sock")
    s.send(struct.pack("=QHB254s7x", cookie, number, family, name.encode()))
    data = s.recv(4096)
    s.close()
    got, error, ttl, n = struct.unpack("=QiII", data[:20])
    assert got == cookie and len(data) == 296
    out = []
    for i in range(n):
        f, a = struct.unpack("=B16s", data[20 + 17 * i:37 + 17 * i])
        out.append(socket.inet_ntop(*((socket.AF_INET, a[:4]) if f == 4 else (socket.AF_INET6, a))))
    return error, out


def test_proxy(hostd, wire):
    check(proxy_ask("plain.example") == (0, ["20.0.0.1"]), "the proxy gets addresses")
    check(proxy_ask("plain.example", family=6) == (0, ["2a00::1"]), "of the family that it asks for")
    check(proxy_ask("six.example") == (-61, []), "or hears that there are none")
    check(proxy_ask("missing.example") == (-2, []), "or no such name")
    check(proxy_ask("denied.example") == (-13, []), "nothing that no rule allows")
    check(proxy_ask("ten.bad.example") == (-13, []), "and no private addresses")
    check(proxy_ask("plain.example", number=77) == (-13, []), "nothing for a slot that is not there")
    check(proxy_ask("localhost")[0] == -13, "nor this machine")
    check(len(proxy_ask("many.example")[1]) == 16, "at most sixteen")
    hostd.inserts.clear()
    check(not hostd.inserts and not wire.saw("denied"), "and the kernel is left out of it")


def test_wire_made_anew():
    run("ip", "link", "del", "hv0001")
    check(ask(2, "plain.example").rcode == NOERROR, "a wire is gone, another one works")
    plug(1)
    check(until(lambda: not silent(1)), "made anew, it is served again")
    check(ask(1, "plain.example", tcp=True, six=True).rcode == NOERROR and ask(1, "evil.example.org").rcode == REFUSED, "by the same rules")


def test_gone(hostd):
    hostd.views([], whole=False, gone=[2])
    check(silent(2) and not silent(1), "a slot that is gone is not answered")
    hostd.views(first())
    check(not silent(2), "and is when it comes back")
    hostd.views(first() + [slot(3, allow("plain.example"), ifname="hv0003")])
    check(not silent(1), "a slot whose wire is not there yet harms nobody")
    hostd.views(first())


def test_address_in_use(hostd):
    hostd.views([], whole=False, gone=[2])
    other = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"hv0002")
    other.bind(("169.254.0.1", PORT))
    other.listen()
    check(hostd.views(first(), whole=False) == 0, "an instance that cannot be listened to keeps no other's policy from being in force")
    check(silent(2) and not silent(1), "it has no names, which others have")
    other.close()
    check(until(lambda: not silent(2), 5), "and that is mended as soon as it can be")


def test_bad_views(hostd):
    hostd.cookie += 1
    for text in b"{x", b"{}", json.dumps({"generation": 1, "whole": True, "upstreams": [], "slots": [{"slot": 1}], "gone": []}).encode():
        hostd.applied.pop(hostd.cookie, None)
        hostd.link.send(VIEWS, hostd.cookie, text)
        check(until(lambda: hostd.cookie in hostd.applied) and hostd.applied[hostd.cookie] < 0, "views that are none are refused")
    check(ask(1, "plain.example").rcode == NOERROR and ask(1, "denied.example").rcode == REFUSED, "and the last good ones hold")


def test_swaps(hostd, up, wire):
    """Rules come and go under load: each answer is one of the two that are right, and what no view allows never leaves."""
    stop, wrong, asked = threading.Event(), [], [0]

    def load(n):
        random.seed(n)
        with client(1) as s:
            while not stop.is_set():
                name = random.choice(("plain.example", "good.example.org", "never.example", "f%d.fresh.example" % random.randrange(200)))
                s.send(query(name))
                m = Message(s.recv(4096))
                asked[0] += 1
                if m.rcode != REFUSED and (name == "never.example" or m.rcode != NOERROR):
                    wrong.append((name, m.rcode, m.ede))

    threads = [threading.Thread(target=load, args=(n,), daemon=True) for n in range(4)]
    for t in threads:
        t.start()
    for i in range(200):
        hostd.views([slot(1, allow("plain.example", "*.fresh.example") if i % 2 else allow("*.example.org", "*.fresh.example"))], whole=False)
    stop.set()
    for t in threads:
        t.join(10)
    check(not wrong and asked[0] > 200, "200 changes of rules under %d questions (%s)" % (asked[0], wrong[:3]))
    check(not wire.saw("never"), "and what none of them allows never left")
    hostd.views(first())


def test_death(program, hostd):
    hostd.close()
    program.stop(signal.SIGKILL)
    check(silent(1) and silent(2), "killed, it is closed and not open")
    program.start()
    hostd.connect()
    check(silent(1), "started anew it knows nobody")
    hostd.views(first())
    check(not silent(1) and ask(1, "evil.example.org").rcode == REFUSED, "until hostd has told it")


def test_memory(program):
    with client(1) as s:
        s.settimeout(2)
        for i in range(3000):
            s.send(query("m%d.fresh.example" % i))
            try:
                s.recv(4096)
            except OSError:
                pass
    rss = int(program.status("VmRSS").split()[0])
    check(rss <= 8192, "after some thousand names it has %d KiB" % rss)


def test_end(program):
    check(program.stop() == 0, "it ends when it is told to")


def main():
    shutil.copy(sys.argv[1], PROGRAM)
    wires()
    up = Upstream(lambda: Inside("up"), "192.0.2.53", ZONE)
    second = Upstream(lambda: Inside("up"), "192.0.2.55", ZONE)
    wire = Capture()
    records = Records()
    program = Program()
    hostd = Hostd("/run/hostd/resolver.sock")
    hostd.connect()
    check(hostd.hello == 3, "it says its version")
    check(hostd.views(first()) == 0, "views are applied")
    test_process(program)
    test_answers(up)
    test_denials(up, wire, records)
    test_types(up, wire)
    test_malformed(up, program)
    test_chains(up)
    test_rebinding()
    test_named_ranges(hostd)
    test_isolation(up)
    test_large(up)
    test_forgery(up)
    test_randomness(up)
    test_coalescing(up)
    test_special(up)
    test_proxy(hostd, wire)
    test_upstreams(program, hostd, up, second)
    test_inserts(hostd)
    test_sandbox(hostd, records)
    test_limits(hostd, up, records)
    test_flood(hostd)
    test_tcp()
    test_wire_made_anew()
    test_gone(hostd)
    test_address_in_use(hostd)
    test_bad_views(hostd)
    test_swaps(hostd, up, wire)
    test_memory(program)
    test_death(program, hostd)
    test_end(program)
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % counts, flush=True)
    os._exit(counts["failed"] > 0)


if __name__ == "__main__":
    main()
