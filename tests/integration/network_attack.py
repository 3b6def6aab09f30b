# SPDX-License-Identifier: GPL-2.0-or-later
"""Flows, revocation and attacks against libnetwork, with real packets between namespaces.

host = the namespace this program starts in; net = the internet; c1, c2 = instances. Run by network.sh, never directly.
"""
import ctypes, difflib, os, random, re, socket, struct, subprocess, sys, threading, time

from egress_frames import ip4, ip6, sums

LIBC = ctypes.CDLL(None, use_errno=True)
HOST = os.open("/proc/self/ns/net", os.O_RDONLY)
DRIVER = sys.argv[1]
SLOW = int(os.environ.get("HOSTD_TEST_SLOW", "1"))  # how much slower than a real machine this one may be
counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(ok, what):
    counts["passed" if ok else "failed"] += 1
    print(("ok    " if ok else "FAIL  ") + what, flush=True)


def run(*command, ns=None, quiet=False):
    if ns:
        command = ("ip", "netns", "exec", ns) + command
    return subprocess.run(command, check=not quiet, capture_output=True, text=True)


class Inside:
    """Sockets made within belong to the namespace, wherever the thread goes afterwards."""

    def __init__(self, ns):
        self.fd = os.open("/run/netns/" + ns, os.O_RDONLY) if ns else HOST

    def __enter__(self):
        assert LIBC.setns(self.fd, 0) == 0

    def __exit__(self, *unused):
        LIBC.setns(HOST, 0)
        if self.fd != HOST:
            os.close(self.fd)


class Driver:
    def __init__(self):
        self.p = subprocess.Popen([DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, line):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()
        return self.p.stdout.readline().strip()

    def ok(self, line):
        answer = self.do(line)
        if "ok " not in answer:
            check(False, "%s: %s" % (line, answer))
        return answer

    def ms(self, line):
        return int(self.ok(line).split()[-2]) / 1000

    def close(self):
        self.p.stdin.close()
        self.p.wait()

    def counters(self, slot):
        return {k: int(v) for k, v in (w.split("=") for w in self.ok("counters %d" % slot).split() if "=" in w)}


def serve(ns, port, kind=socket.SOCK_STREAM):
    with Inside(ns):
        s = socket.socket(socket.AF_INET6, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.bind(("::", port))

    def echo(c):
        try:
            while data := c.recv(65536):
                c.sendall(data)
        except OSError:
            pass
        c.close()

    def stream():
        s.listen(64)
        while True:
            c, _ = s.accept()
            threading.Thread(target=echo, args=(c,), daemon=True).start()

    def datagram():
        while True:
            data, peer = s.recvfrom(2048)
            try:
                s.sendto(data, peer)
            except OSError:
                pass

    threading.Thread(target=stream if kind == socket.SOCK_STREAM else datagram, daemon=True).start()


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def tcp(ns, address, port, timeout=1.0):
    """open, reset, unreachable, silent or error; and the socket."""
    with Inside(ns):
        s = socket.socket(family(address), socket.SOCK_STREAM)
    s.settimeout(timeout)
    try:
        s.connect((address, port))
        s.sendall(b"x")
        return ("open" if s.recv(1) == b"x" else "error"), s
    except (ConnectionRefusedError, ConnectionResetError):
        return "reset", None
    except socket.timeout:
        return "silent", None
    except OSError as e:
        return "unreachable %d" % e.errno, None


def udp(ns, address, port, timeout=0.4):
    with Inside(ns):
        s = socket.socket(family(address), socket.SOCK_DGRAM)
    s.settimeout(timeout)
    try:
        s.connect((address, port))
        s.send(b"x")
        return "open" if s.recv(16) == b"x" else "error"
    except socket.timeout:
        return "silent"
    except OSError:
        return "unreachable"


class Flow(threading.Thread):
    """A ping-pong that notes its largest gap and how it died."""

    def __init__(self, ns, address, port):
        super().__init__(daemon=True)
        state, self.s = tcp(ns, address, port)
        self.dead = None if state == "open" else state
        self.died_at = self.gap = self.trips = 0
        self.running = True
        if self.s:
            self.s.settimeout(5)
        self.start()

    def run(self):
        last = time.monotonic()
        while self.running and not self.dead:
            try:
                self.s.sendall(b"y")
                if not self.s.recv(1):
                    self.dead = "eof"
            except ConnectionResetError:
                self.dead = "reset"
            except OSError as e:
                self.dead = str(e)
            now = time.monotonic()
            self.gap = max(self.gap, now - last)
            last = now
            self.died_at = now
            self.trips += 1
            time.sleep(0.0005)


def wire_up():
    for ns in ("net", "c1", "c2"):
        run("ip", "netns", "add", ns)
        run("ip", "link", "set", "lo", "up", ns=ns)
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "uplk", "type", "veth", "peer", "name", "inet0", "netns", "net")
    for ns, dev, addresses in ((None, "uplk", ("93.1.1.2/24", "2a01:4f8:2::2/64")),
                               ("net", "inet0", ("93.1.1.1/24", "93.1.2.1/32", "10.50.0.1/32", "169.254.169.254/32",
                                                 "2a01:4f8:2::1/64", "2a01:4f8:3::1/128", "fd50::1/128"))):
        for a in addresses:
            run("ip", "addr", "add", a, "dev", dev, *(("nodad",) if ":" in a else ()), ns=ns)
        run("ip", "link", "set", dev, "up", ns=ns)
    run("ip", "route", "add", "default", "via", "93.1.1.1")
    run("ip", "-6", "route", "add", "default", "via", "2a01:4f8:2::1")
    run("ip", "route", "add", "10.99.0.0/16", "via", "93.1.1.2", ns="net")
    run("ip", "-6", "route", "add", "2a01:4f8:1:1::/64", "via", "2a01:4f8:2::2", ns="net")
    for port in (25, 53, 80, 81, 443, 9000):
        serve("net", port)
    for address in ("93.1.1.1", "2a01:4f8:2::1"):  # until the uplink's neighbours know each other
        while tcp(None, address, 80)[0] != "open":
            time.sleep(0.1)
    serve("net", 53, socket.SOCK_DGRAM)
    serve(None, 8080)
    for ns in ("c1", "c2"):
        serve(ns, 7000)


def plug(d, slot):
    d.ok("plug %d /run/netns/c%d" % (slot, slot))


def test_plug(d):
    """The wire: born inside, fenced before it is up, whole or not there."""
    show = lambda: run("ip", "-o", "addr", "show", "eth0", ns="c2").stdout
    check("plugged=no" in d.do("plugged 2"), "attach alone makes no interface")
    check("error" in d.do("plug 3 /run/netns/c2") and "eth0" not in run("ip", "link", ns="c2").stdout, "a slot without a fence gets no wire")
    check("error" in d.do("plug 2 /etc/passwd") and "plugged=no" in d.do("plugged 2"), "what is no namespace is refused")
    run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other", ns="c2")
    check("error" in d.do("plug 2 /run/netns/c2") and "plugged=no" in d.do("plugged 2"), "a plug that fails leaves nothing")
    run("ip", "link", "del", "eth0", ns="c2")
    plug(d, 2)
    first = run("ip", "-o", "link", "show", "hv0002").stdout
    check("10.99.0.2/32" in show() and "2a01:4f8:1:1::2/128" in show() and "default via 169.254.0.1" in run("ip", "route", ns="c2").stdout
          and "default via fe80::1" in run("ip", "-6", "route", ns="c2").stdout and "UP" in run("ip", "link", "show", "lo", ns="c2").stdout,
          "addresses and routes are set inside")
    # As after a plug of which hostd died in the middle: the name is taken by a wire to somewhere else.
    plug(d, 2)
    second = run("ip", "-o", "link", "show", "hv0002").stdout
    check(first.split(":")[0] != second.split(":")[0] and "10.99.0.2/32" in show(), "a second plug makes a new wire")
    check("hook ingress device \"hv0002\"" in run("nft", "list", "chain", "netdev", "hostd", "i0002").stdout, "with the gate on it")
    check("hp0" not in run("ip", "link").stdout, "no end of a wire is in the host's namespace but the host's own")


def test_default_deny(d):
    for address, port, what in (("93.1.1.1", 80, "v4"), ("2a01:4f8:2::1", 80, "v6"), ("93.1.1.2", 8080, "host's uplink v4"),
                                ("169.254.0.1", 8080, "host's gateway v4"), ("2a01:4f8:2::2", 8080, "host's uplink v6"),
                                ("10.99.0.2", 7000, "neighbour v4"), ("2a01:4f8:1:1::2", 7000, "neighbour v6")):
        check(tcp("c1", address, port)[0] == "reset", "no policy: TCP to %s is reset" % what)
    check(udp("c1", "93.1.1.1", 53) == "unreachable", "no policy: UDP is answered administratively prohibited")
    check(tcp("net", "10.99.0.1", 7000, 0.4)[0] == "silent", "inbound v4 is dropped")
    check(tcp("net", "2a01:4f8:1:1::1", 7000, 0.4)[0] == "silent", "inbound v6 is dropped")
    check(d.counters(1)["denied"] >= 8, "denials are counted")


def test_broad(d):
    d.ok("policy 1 allow@0.0.0.0/0@any@- allow@::/0@any@-")
    for address, port, want in (("93.1.1.1", 80, "open"), ("93.1.2.1", 443, "open"), ("2a01:4f8:2::1", 80, "open"),
                                ("10.50.0.1", 80, "reset"), ("169.254.169.254", 80, "reset"), ("fd50::1", 80, "reset"),
                                ("93.1.1.1", 25, "reset"), ("2a01:4f8:2::1", 25, "reset"), ("93.1.1.2", 8080, "reset"),
                                ("169.254.0.1", 8080, "reset"), ("10.99.0.2", 7000, "reset"), ("2a01:4f8:1:1::2", 7000, "reset")):
        check(tcp("c1", address, port)[0] == want, "broad allow: %s port %d is %s" % (address, port, want))
    check(udp("c1", "93.1.1.1", 53) == "open", "broad allow: UDP passes")
    d.ok("policy 1 allow@10.50.0.0/16@tcp@80 allow@93.1.1.0/24@tcp@25,1000-9999 allow@10.99.0.2/32@any@-")
    for address, port, want in (("10.50.0.1", 80, "open"), ("10.50.0.1", 81, "reset"), ("93.1.1.1", 25, "open"), ("93.1.1.1", 9000, "open"),
                                ("93.1.1.1", 80, "reset"), ("10.99.0.2", 7000, "reset")):
        check(tcp("c1", address, port)[0] == want, "named exactly: %s port %d is %s" % (address, port, want))


def settle(flows, seconds=0.3):
    time.sleep(seconds)
    for f in flows:
        f.gap = 0


def stop(flows):
    for f in flows:
        f.running = False
    for f in flows:
        f.join(6)


def test_revocation(d):
    keep, four, six = "allow@93.1.1.0/24@tcp@80", "allow@93.1.2.0/24@tcp@9000", "allow@2a01:4f8:2::/64@tcp@443"
    d.ok("policy 1 %s %s %s" % (keep, four, six))
    flows = [Flow("c1", "93.1.1.1", 80), Flow("c1", "93.1.2.1", 9000), Flow("c1", "2a01:4f8:2::1", 443)]
    settle(flows)
    check(not any(f.dead for f in flows), "three flows run")
    start = time.monotonic()
    for _ in range(10):
        d.ok("policy 1 " + keep)
    time.sleep(0.3)
    check(flows[1].dead == "reset" and flows[2].dead == "reset", "revoked v4 and v6 flows were reset (%s, %s)" % (flows[1].dead, flows[2].dead))
    check(flows[0].dead is None and flows[0].gap < 0.15, "the other lost nothing (largest gap %.1f ms; a lost packet costs 200)" % (flows[0].gap * 1000))
    print("      cut after %.1f ms" % ((max(flows[1].died_at, flows[2].died_at) - start) * 1000))
    stop(flows)
    # A denial in front of an allow cuts what it denies and nothing else.
    broad = "allow@93.0.0.0/8@tcp@-"
    d.ok("policy 1 " + broad)
    flows = [Flow("c1", "93.1.1.1", 80), Flow("c1", "93.1.2.1", 9000)]
    settle(flows)
    d.ok("policy 1 deny@93.1.2.0/24@tcp@- " + broad)
    time.sleep(0.3)
    check(flows[1].dead == "reset", "a denial put in front cuts its flow")
    check(flows[0].dead is None and flows[0].gap < 0.15, "and no other (gap %.1f ms)" % (flows[0].gap * 1000))
    stop(flows)
    # The server speaks last: its packets to a revoked flow do not arrive either.
    d.ok("policy 1 " + keep)
    state, s = tcp("c1", "93.1.1.1", 80)
    d.ok("policy 1")
    s.settimeout(0.5)
    try:
        s.sendall(b"z")
        check(s.recv(1) == b"", "an idle flow is cut by its next packet")
    except OSError as e:
        check(isinstance(e, ConnectionResetError), "an idle flow is cut by its next packet")


def test_grant(d):
    """What ends by itself does so with nobody there: its connections are cut, new ones refused, and no other loses a packet."""
    keep, broad = "allow@93.1.1.0/24@tcp@80", "allow@93.1.2.0/24@tcp@9000"
    d.ok("policy 1 %s@2500 %s" % (broad, keep))
    chain = lambda: run("nft", "list", "chain", "inet", "hostd", "i0001_rules").stdout
    check(chain().count("ct mark @i0001_live goto i0001_pass") == 1, "a grant admits while its mark is live")
    started = time.monotonic()
    flows = [Flow("c1", "93.1.1.1", 80), Flow("c1", "93.1.2.1", 9000)]
    idle, s = tcp("c1", "93.1.2.1", 9000)
    settle(flows)
    check(not any(f.dead for f in flows) and idle == "open", "a grant opens at once")
    d.close()
    while not flows[1].dead and time.monotonic() < started + 6:
        time.sleep(0.02)
    took = (flows[1].died_at or time.monotonic()) - started
    check(flows[1].dead == "reset" and 2 < took < 3.5, "without hostd its flow is cut at its time (%s, after %.2f s)" % (flows[1].dead, took))
    s.settimeout(1)
    try:
        s.sendall(b"z")
        check(s.recv(1) == b"", "an idle one by its next packet")
    except OSError as e:
        check(isinstance(e, ConnectionResetError), "an idle one by its next packet")
    check(tcp("c1", "93.1.2.1", 9000)[0] == "reset", "nothing new is let through")
    check(flows[0].dead is None and flows[0].gap < 0.15, "the other lost nothing (gap %.1f ms)" % (flows[0].gap * 1000))
    d = Driver()
    d.ok("new uplk routed")
    d.ok("attach 1")
    d.ok("limits 1")
    d.ok("policy 1 " + keep)
    check(flows[0].dead is None, "nor does it when hostd is back and takes the rule out")
    # Twice the same: the later end holds. A rule of the policy that allows it, too, takes over.
    d.ok("policy 1 %s@700 %s@60000 %s" % (broad, broad, keep))
    flow = Flow("c1", "93.1.2.1", 9000)
    time.sleep(1.5)
    check(flow.dead is None and tcp("c1", "93.1.2.1", 9000)[0] == "open", "of two grants of one thing the later end holds")
    stop([flow])
    d.ok("policy 1 %s@700 %s" % (broad, broad))
    flow = Flow("c1", "93.1.2.1", 9000)
    time.sleep(1.5)
    check(flow.dead is None and flow.gap < 0.15, "what the policy itself allows goes on (gap %.1f ms)" % (flow.gap * 1000))
    first = chain()
    d.ok("text 1 %s@700 %s" % (broad, broad))
    second = re.sub(r"0x0001[0-9a-f]{4}", "", chain())
    check(re.sub(r'comment.*', "", re.sub(r"0x0001[0-9a-f]{4}", "", first)) == re.sub(r'comment.*', "", second), "messages and text make the same rule")
    stop(flows + [flow])
    return d


def test_restart(d):
    d.ok("policy 1 allow@93.1.1.0/24@tcp@80 allow@93.1.2.0/24@tcp@9000")
    flow = Flow("c1", "93.1.2.1", 9000)
    settle([flow])
    before, rules = d.counters(1), run("nft", "list", "chain", "inet", "hostd", "i0001_rules").stdout
    d.close()
    d = Driver()
    d.ok("new uplk routed")
    check(d.counters(1)["tx"] >= before["tx"], "counters survive a restart")
    check(run("nft", "list", "chain", "inet", "hostd", "i0001_rules").stdout == rules, "so do the rules")
    d.ok("attach 1")
    d.ok("limits 1")
    d.ok("policy 1 deny@1.2.3.4/32@any@- allow@93.1.1.0/24@tcp@80")
    d.ok("policy 1 allow@93.1.1.0/24@tcp@80 allow@93.1.2.0/24@tcp@9000")
    d.ok("policy 1 allow@93.1.1.0/24@tcp@80 allow@93.1.2.0/24@tcp@9000")
    after = run("nft", "list", "chain", "inet", "hostd", "i0001_rules").stdout
    check("0x00010000" not in after and after.count("goto i0001_pass") == 2, "ids are given anew, never again")
    stop([flow])
    return d


def test_ids(d):
    d.ok("policy 1 allow@93.1.1.0/24@tcp@80 allow@93.1.2.0/24@tcp@9000")
    rules = run("nft", "list", "chain", "inet", "hostd", "i0001_rules").stdout
    flow = Flow("c1", "93.1.2.1", 9000)
    settle([flow])
    d.close()
    d = Driver()
    d.ok("new uplk routed")
    d.ok("attach 1")
    d.ok("limits 1")
    d.ok("policy 1 allow@93.1.1.0/24@tcp@80 allow@93.1.2.0/24@tcp@9000")
    check(run("nft", "list", "chain", "inet", "hostd", "i0001_rules").stdout == rules, "a restarted hostd gives equal rules their old ids")
    check(flow.dead is None and flow.gap < 0.15, "and flows went on (gap %.1f ms)" % (flow.gap * 1000))
    stop([flow])
    return d


def sniff(ns, dev):
    with Inside(ns):
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.bind((dev, 3))
    s.setblocking(False)
    return s


def drain(s):
    frames = []
    while True:
        try:
            frames.append(s.recvfrom(2048))
        except BlockingIOError:
            return frames


def test_flush(d):
    d.ok("policy 1 allow@0.0.0.0/0@any@- allow@::/0@any@-")
    flow = Flow("c1", "2a01:4f8:2::1", 443)
    settle([flow])
    d.ok("watch 300")
    run("nft", "flush", "ruleset")
    wan, lan = sniff("net", "inet0"), sniff("c1", "eth0")
    drain(wan), drain(lan)
    results = [tcp("c1", a, 80, 0.3)[0] for a in ("93.1.1.1", "2a01:4f8:2::1")]
    inbound = [tcp("net", a, 7000, 0.3)[0] for a in ("10.99.0.1", "2a01:4f8:1:1::1")]
    leaked = [f for f, a in drain(wan) if a[2] != socket.PACKET_OUTGOING and (socket.inet_aton("10.99.0.1") in f[:40] or socket.inet_pton(socket.AF_INET6, "2a01:4f8:1:1::1") in f[:60])]
    arrived = [f for f, a in drain(lan) if a[2] != socket.PACKET_OUTGOING and f[12:14] in (b"\x08\x00", b"\x86\xdd")
               and (f[23:24] == b"\x06" or f[20:21] == b"\x06") and (socket.inet_aton("93.1.1.1") in f[:40] or socket.inet_pton(socket.AF_INET6, "2a01:4f8:2::1") in f[:60])]
    check("open" not in results and not leaked, "after a foreign flush no packet leaves (%s, %d frames)" % (results, len(leaked)))
    check("open" not in inbound and not arrived, "and none arrives (%s, %d frames)" % (inbound, len(arrived)))
    answer = d.ok("watch 1000")
    check("lost=yes" in answer, "the loss was noticed")
    print("      notice and restore: %s" % answer)
    check(tcp("c1", "93.1.1.1", 80)[0] == "open" and tcp("c1", "2a01:4f8:2::1", 80)[0] == "open", "restored: allowed flows open")
    check(tcp("c1", "10.50.0.1", 80)[0] == "reset", "restored: denied ones do not")
    time.sleep(1.5)
    check(flow.dead is None, "the flow from before goes on (gap %.0f ms, %s)" % (flow.gap * 1000, flow.dead))
    stop([flow])
    check("lost=no" in d.ok("watch 200"), "own changes are not taken for foreign ones")
    run("nft", "insert", "rule", "inet", "hostd", "i0001_out", "accept")
    check("lost=yes" in d.ok("watch 1000"), "a foreign rule in our table is noticed")
    check(tcp("c1", "10.50.0.1", 80)[0] == "reset", "and gone again")
    run("nft", "add", "table", "inet", "foreign")
    check("lost=no" in d.ok("watch 200"), "a foreign table does not concern us")
    run("nft", "delete", "table", "inet", "foreign")


TAG = b"ATTACK-PAYLOAD"


def ipv4(source, target):
    return ip4(source, target, 17, struct.pack("!HHHH", 4444, 53, 8 + len(TAG), 0) + TAG)


def ipv6(source, target, protocol, body):
    return ip6(source, target, protocol, sums(source, target, protocol, body, {17: 6, 58: 2}[protocol]), hops=255)


def udp6(source, target):
    return ipv6(source, target, 17, struct.pack("!HHHH", 4444, 53, 8 + len(TAG), 0) + TAG)


def arp(operation, mac, sender, target):
    return struct.pack("!HHBBH6s4s6s4s", 1, 0x800, 6, 4, operation, mac, socket.inet_aton(sender), b"\0" * 6, socket.inet_aton(target))


def test_spoof(d):
    d.ok("policy 1 allow@0.0.0.0/0@any@- allow@::/0@any@-")
    good, evil, gateway = bytes.fromhex("020000000001"), bytes.fromhex("020000000002"), bytes.fromhex("020001000001")
    v4, v6, me4, me6 = b"\x08\0", b"\x86\xdd", "10.99.0.1", "2a01:4f8:1:1::1"
    lla = "fe80::ff:fe00:1"
    ra = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + struct.pack("!BBBBIII", 3, 4, 64, 0xc0, 3600, 3600, 0) + socket.inet_pton(socket.AF_INET6, "2a01:dead::")
    na = struct.pack("!BBHI", 136, 0, 0, 0x60000000) + socket.inet_pton(socket.AF_INET6, "2a01:4f8:2::1") + b"\x02\x01" + good
    attacks = [("source of the neighbour v4", good, v4, ipv4("10.99.0.2", "93.1.1.1")), ("source of the host v4", good, v4, ipv4("93.1.1.2", "93.1.1.1")),
               ("source of the gateway v4", good, v4, ipv4("169.254.0.1", "93.1.1.1")), ("source 0.0.0.0", good, v4, ipv4("0.0.0.0", "93.1.1.1")),
               ("random source v4", good, v4, ipv4("8.8.4.4", "93.1.1.1")), ("forged MAC v4", evil, v4, ipv4(me4, "93.1.1.1")),
               ("source of the neighbour v6", good, v6, udp6("2a01:4f8:1:1::2", "2a01:4f8:2::1")), ("extra address in the prefix", good, v6, udp6("2a01:4f8:1:1::beef", "2a01:4f8:2::1")),
               ("link-local to the internet", good, v6, udp6(lla, "2a01:4f8:2::1")), ("ULA to the internet", good, v6, udp6("fd00::1", "2a01:4f8:2::1")),
               ("forged MAC v6", evil, v6, udp6(me6, "2a01:4f8:2::1")), ("v4-mapped on the wire", good, v6, udp6(me6, "::ffff:93.1.1.1")),
               ("VLAN 7", good, b"\x81\0", struct.pack("!H", 7) + v4 + ipv4(me4, "93.1.1.1")), ("QinQ", good, b"\x88\xa8", struct.pack("!H", 7) + v4 + ipv4(me4, "93.1.1.1")),
               ("unknown ethertype", good, b"\x88\xb5", TAG), ("router advertisement", good, v6, ipv6(lla, "ff02::1", 58, ra)),
               ("router advertisement from the own address", good, v6, ipv6(me6, "ff02::1", 58, ra)), ("neighbour advertisement for the uplink's gateway", good, v6, ipv6(lla, "fe80::1", 58, na)),
               ("ARP as the neighbour", good, b"\x08\x06", arp(2, good, "10.99.0.2", "169.254.0.1")), ("ARP as the uplink's gateway", good, b"\x08\x06", arp(2, good, "93.1.1.1", "93.1.1.1")),
               ("ARP with another MAC inside", good, b"\x08\x06", arp(1, evil, me4, "169.254.0.1"))]
    with Inside("c1"):
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    raw.bind(("eth0", 0))
    wan, neighbour = sniff("net", "inet0"), sniff("c2", "eth0")
    state = lambda: [run("ip", *a).stdout for a in (("route",), ("-6", "route"), ("neigh", "show", "nud", "permanent"), ("-6", "neigh", "show", "nud", "permanent"), ("-br", "addr"))]
    tcp("c1", "93.1.1.1", 80)
    before, spoofed = state(), d.counters(1)["spoofed"]
    for name, mac, kind, payload in attacks:
        drain(wan), drain(neighbour)
        target = b"\x33\x33\0\0\0\1" if "advertisement" in name and "router" in name else gateway
        for _ in range(2):
            raw.send(target + mac + kind + payload)
        time.sleep(0.03)
        seen = [f for f, a in drain(wan) + drain(neighbour) if TAG in f and a[2] != socket.PACKET_OUTGOING]
        check(not seen, "attack: %s" % name)
    drain(wan)
    raw.send(gateway + good + v4 + ipv4(me4, "93.1.1.1"))
    time.sleep(0.05)
    check(any(TAG in f for f, _ in drain(wan)), "control: the honest frame passes")
    check(state() == before, "routes, fixed neighbours and addresses of the host are unchanged")
    poisoned = run("ip", "neigh").stdout + run("ip", "-6", "neigh").stdout
    check("93.1.1.1 dev hv" not in poisoned and "10.99.0.2 dev hv0001" not in poisoned, "no neighbour entry was planted")
    check(d.counters(1)["spoofed"] - spoofed >= 30, "attempts are counted (%d)" % (d.counters(1)["spoofed"] - spoofed))


def test_explain_sample(d):
    """Random policies: the answer of the rules' text, first match wins, against real connections."""
    rng = random.Random(7)
    nets = {"93.1.1.0/24": "93.1.1.1", "93.1.2.0/24": "93.1.2.1", "0.0.0.0/0": None, "10.0.0.0/8": "10.50.0.1", "93.0.0.0/8": None, "10.50.0.1/32": "10.50.0.1"}
    wrong = []
    for _ in range(12):
        rules = [(rng.choice(("allow", "deny")), rng.choice(list(nets)), rng.choice(("any", "tcp", "udp")), None) for _ in range(rng.randint(1, 6))]
        rules = [(a, n, p, "-" if p == "any" else rng.choice(("-", "80", "25,80-90", "1-1024", "443"))) for a, n, p, _ in rules]
        line = " ".join("@".join(r) for r in rules)
        d.ok("policy 1 " + line)
        for address in ("93.1.1.1", "93.1.2.1", "10.50.0.1"):
            for port in rng.sample((25, 80, 81, 443, 9000), 3):
                want = "allow" in d.ok("explain %s tcp %d %s" % (address, port, line))
                got = tcp("c1", address, port)[0]
                if got != ("open" if want else "reset"):
                    wrong.append((line, address, port, want, got))
    check(not wrong, "108 random connections do what policy_explain says %s" % wrong[:2])
    wrong, maps = [], 0
    for _ in range(12):  # long ones, so that what they have in common becomes maps
        rules = []
        for _ in range(rng.randint(20, 60)):
            network = rng.choice(("93.1.1.%d/32" % rng.randint(1, 3), "93.1.2.%d/32" % rng.randint(1, 20), "93.1.%d.0/24" % rng.randint(1, 3), "93.1.1.%d/32" % rng.randint(100, 200)))
            rules.append("@".join(("deny" if rng.randint(1, 20) == 1 else "allow", network, "tcp", rng.choice(("80", "81", "443", "80,443", "9000")))))
        line = " ".join(rules)
        d.ok("policy 1 " + line)
        maps += run("nft", "list", "chain", "inet", "hostd", "i0001_rules").stdout.count(" map {")
        for address in ("93.1.1.1", "93.1.2.1"):
            for port in rng.sample((80, 81, 443, 9000), 3):
                want = "allow" in d.ok("explain %s tcp %d %s" % (address, port, line))
                got = tcp("c1", address, port)[0]
                if got != ("open" if want else "reset"):
                    wrong.append((line, address, port, want, got))
    check(not wrong and maps > 12, "72 random connections under long policies with %d maps, too %s" % (maps, wrong[:2]))


def test_same(d):
    """The messages of transact.c and the text of ruleset.c are the same rules."""
    rules = "allow@0.0.0.0/0@any@- deny@93.1.2.0/23@udp@53,1000-2000 allow@10.1.0.0/17@tcp@25,20-30 allow@::/0@tcp@1-1024 allow@2a00::/13@icmp@- deny@2a00::/16@icmp@- allow@1.2.3.4/32@udp@-"
    many = ["allow@10.2.%d.%d/32@tcp@%s" % (i % 7, i, ports) for i, ports in enumerate(["80", "443", "80,443", "1000-2000"] * 10)]
    many += ["allow@10.%d.0.0/17@any@-" % i for i in range(30, 40)] + ["deny@10.%d.0.0/15@udp@53" % i for i in range(40, 60, 2)]
    many += ["allow@2a00::%x/128@udp@%d" % (i, 53 + i) for i in range(20)] + ["allow@2a00:%x::/30@tcp@25" % (4 * i) for i in range(1, 20)]
    rules += " " + " ".join(many)
    show = lambda: "".join(run("nft", "list", *w.split()[:1], "inet", "hostd", w.split()[1]).stdout for w in ("chain i0009_rules", "chain i0009_nat", "set i0009_live"))
    d.ok("attach 9")
    d.ok("policy 9 " + rules)
    first = show()
    d.ok("text 9 " + rules)
    second = show()
    if first != second:
        print("\n".join(difflib.unified_diff(first.split("\n"), second.split("\n"), lineterm="")))
    check(first == second and first.count("comment") == 6 + 40 + 10 + 20 + 19 and first.count(" map {") >= 5, "messages and text make the same rules")
    d.ok("border 9 resolver proxy")
    rules += " allow@www.example.org@tcp@443 allow@*.example.org@tcp@80,443,9000 allow@93.0.0.0/8@tcp@443"
    d.ok("policy 9 " + rules)
    first = show()
    d.ok("text 9 " + rules)
    second = show()
    if first != second:
        print("\n".join(difflib.unified_diff(first.split("\n"), second.split("\n"), lineterm="")))
    check(first == second and first.count("redirect to") == 4 and first.count("@i0009_names") == 4 and " return" in first, "with rules by name, too")
    d.ok("border 9")
    check("redirect" not in show() and "names" not in show(), "a slot that is not led to the border has no redirect")
    d.ok("detach 9")
    listed = run("nft", "list", "set", "inet", "hostd", "deny4").stdout + run("nft", "list", "set", "inet", "hostd", "deny6").stdout
    check(listed.count("/") == 28 and "10.0.0.0/8" in listed and "fc00::/7" in listed, "the denied ranges are as the table has them")


def test_upload(d):
    d.ok("policy 1 allow@93.0.0.0/8@tcp@-")
    with Inside("net"):
        sink = socket.socket()
    sink.bind(("93.1.1.1", 5001))
    sink.listen(1)
    total = [0]

    def swallow():
        c, _ = sink.accept()
        while data := c.recv(1 << 20):
            total[0] += len(data)

    threading.Thread(target=swallow, daemon=True).start()
    limit = 100 if SLOW == 1 else 10  # Mbit/s; an emulated machine does not fill the bucket of 100
    d.ok("limits 1 upload=%d" % (limit * 125000))
    with Inside("c1"):
        s = socket.socket()
    s.connect(("93.1.1.1", 5001))
    start, block, before = time.monotonic(), b"u" * 65536, 0
    while time.monotonic() - start < 5:  # the bucket of one second is empty after two
        s.sendall(block)
        if not before and time.monotonic() - start > 2:
            before, since = total[0], time.monotonic()
    rate = (total[0] - before) * 8 / (time.monotonic() - since) / 1e6
    s.close()
    d.ok("limits 1")
    check(limit * 0.5 < rate < limit * 1.12, "upload limited to %d Mbit/s: measured %.1f" % (limit, rate))


def sink(ns, address, port):
    """Counts what arrives; or sends without end to whoever says "get"."""
    with Inside(ns):
        s = socket.socket(family(address))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port))
    s.listen(8)

    def serve_one(c):
        try:
            if c.recv(3) == b"get":
                while True:
                    c.sendall(b"d" * 65536)
        except OSError:
            pass

    def accept():
        while True:
            threading.Thread(target=serve_one, args=(s.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def download(ns, address, port, seconds):
    """Mbit/s of the last part, and how it ended."""
    with Inside(ns):
        s = socket.socket(family(address))
    s.settimeout(1)
    s.connect((address, port))
    s.sendall(b"get")
    start, total, since, ended = time.monotonic(), 0, None, "open"
    while time.monotonic() - start < seconds:
        try:
            total += len(s.recv(1 << 18))
        except OSError as e:
            ended = type(e).__name__
            break
        if since is None and time.monotonic() - start > seconds / 4:
            since, total = time.monotonic(), 0
    s.close()
    return total * 8 / max(time.monotonic() - (since or start), 0.001) / 1e6, ended


def test_download(d):
    d.ok("policy 1 allow@93.0.0.0/8@tcp@- allow@2a01:4f8::/32@tcp@-")
    sink("net", "93.1.1.1", 5002)
    sink("net", "2a01:4f8:2::1", 5002)
    limit = 100 if SLOW == 1 else 10
    d.ok("limits 1 download=%d" % (limit * 125000))
    qdisc = run("tc", "qdisc", "show", "dev", "hv0001").stdout
    fair = "fq_codel" in qdisc
    for address in ("93.1.1.1", "2a01:4f8:2::1"):
        rate, _ = download("c1", address, 5002, 3)
        check(limit * 0.5 < rate < limit * 1.1, "download from %s limited to %d Mbit/s: measured %.1f" % (address, limit, rate))
    check("tbf" in qdisc and fair == ("fq_codel" not in d.ok("doctor")), "by a queue, %s" % ("fair" if fair else "first in, first out; doctor says so"))
    plug(d, 1)
    check("tbf" in run("tc", "qdisc", "show", "dev", "hv0001").stdout, "a new wire has the rate as well")
    d.ok("limits 1")
    check("tbf" not in run("tc", "qdisc", "show", "dev", "hv0001").stdout, "and none when the limit is taken away")


def open_many(ns, address, port, n):
    got = [tcp(ns, address, port) for _ in range(n)]
    return [s for state, s in got if state == "open"], [state for state, _ in got if state != "open"]


def test_limits(d):
    """Connections, new ones a second, destinations a minute; each refusal is a reset, and counted."""
    d.ok("policy 1 allow@93.0.0.0/8@tcp@- allow@93.0.0.0/8@udp@53 allow@2a01:4f8::/32@tcp@-")
    d.ok("limits 1 connections=20")
    held, refused = open_many("c1", "93.1.1.1", 80, 15)
    more, also = open_many("c1", "2a01:4f8:2::1", 80, 15)
    check(len(held + more) == 20 and set(refused + also) == {"reset"} and d.counters(1)["connections"] == 10,
          "20 connections at once, of both families together (%d), 10 resets counted" % len(held + more))
    d.close()
    d = Driver()
    d.ok("new uplk routed")
    d.ok("attach 1")
    d.ok("limits 1 connections=20")
    d.ok("policy 1 allow@93.0.0.0/8@tcp@- allow@93.0.0.0/8@udp@53 allow@2a01:4f8::/32@tcp@-")
    check(tcp("c1", "93.1.1.1", 80)[0] == "reset", "a restarted hostd goes on counting")
    for s in held[:5]:
        s.close()
    time.sleep(0.3)
    again, _ = open_many("c1", "93.1.1.1", 80, 7)
    check(len(again) == 5, "five that ended make room for five (%d)" % len(again))
    d.ok("limits 1 connections=30")
    for s in held + more + again:
        s.close()
    time.sleep(0.3)
    held, _ = open_many("c1", "93.1.1.1", 80, 33)
    check(len(held) == 30, "a new limit counts at once (%d)" % len(held))
    for s in held:
        s.close()
    d.ok("limits 1 connection_rate=5")
    before = d.counters(1)["rate"]
    held, refused = open_many("c1", "93.1.1.1", 80, 40)
    check(8 <= len(held) < 40 and set(refused) == {"reset"} and d.counters(1)["rate"] - before == len(refused), "new connections a second (%d of 40 at once)" % len(held))
    for s in held:
        s.close()
    d.ok("limits 1 destinations=10")
    [udp("c1", "93.1.1.%d" % i, 53, 0.05) for i in range(1, 21) if i != 2]  # which is the host
    check(d.counters(1)["destinations"] == 9, "a scan of 19 ends at the tenth address (%d refused)" % d.counters(1)["destinations"])
    check(tcp("c1", "93.1.1.1", 80)[0] == "reset" and udp("c1", "93.1.1.1", 53) == "open", "a port more is a destination more; those from before are not")
    check(tcp("c1", "2a01:4f8:2::1", 80)[0] == "open", "the other family is counted by itself")
    d.ok("limits 1 destinations=12")
    check(tcp("c1", "93.1.1.1", 80)[0] == "open", "another limit begins a new minute")
    d.ok("policy 1 allow@93.1.1.0/24@tcp@-")
    [tcp("c1", "93.1.2.1", port) for port in range(2000, 2020)]
    check(tcp("c1", "93.1.1.1", 81)[0] == "open", "what the policy denies uses up nothing")
    d.ok("limits 1")
    return d


def test_traffic(d):
    d.ok("policy 1 allow@93.0.0.0/8@tcp@-")
    d.ok("limits 1 traffic=3000000")
    flow = Flow("c1", "93.1.1.1", 80)
    settle([flow])
    d.ok("watch 50")
    rate, ended = download("c1", "93.1.1.1", 5002, 5)
    used = int(re.search(r"used=(\d+)", d.ok("traffic 1")).group(1))
    time.sleep(0.2)
    check(ended == "ConnectionResetError" and 3000000 <= used < 4000000, "at the end of the day's traffic everything is reset (%s, %d)" % (ended, used))
    check(flow.dead == "reset" and tcp("c1", "93.1.1.1", 80)[0] == "reset" and d.counters(1)["traffic"] >= 2, "established flows, and new ones (%s)" % flow.dead)
    check("lost=no spent=1" in d.ok("watch 100") and "spent=0" in d.ok("watch 50"), "what the kernel tells of it is no foreign change, and is told once")
    d.close()
    d = Driver()
    d.ok("new uplk routed")
    d.ok("attach 1")
    d.ok("limits 1 traffic=3000000")
    d.ok("policy 1 allow@93.0.0.0/8@tcp@-")
    check("used=%d" % used in d.ok("traffic 1") and tcp("c1", "93.1.1.1", 80)[0] == "reset", "what was used survives a restart")
    d.ok("watch 100")
    run("nft", "flush", "ruleset")
    d.ok("watch 1000")
    check("used=%d" % used in d.ok("traffic 1") and tcp("c1", "93.1.1.1", 80)[0] == "reset", "and a foreign flush")
    d.ok("limits 1 traffic=9000000")
    more = int(re.search(r"used=(\d+)", d.ok("traffic 1")).group(1))
    check(used <= more < used + 100000 and tcp("c1", "93.1.1.1", 80)[0] == "open", "a larger limit counts on (%d)" % more)
    d.ok("resume 1 5")
    check(int(re.search(r"used=(\d+)", d.ok("traffic 1")).group(1)) >= more, "what the kernel has counted is kept")
    d.ok("begin 1")
    left = int(re.search(r"used=(\d+)", d.ok("traffic 1")).group(1))
    check(left < 1000, "a day begins with nothing (%d)" % left)
    d.ok("detach 1")
    for line in ("attach 1", "resume 1 8999999", "limits 1 traffic=9000000", "policy 1 allow@93.0.0.0/8@tcp@-"):
        d.ok(line)
    plug(d, 1)
    tcp("c1", "93.1.1.1", 80)
    check(tcp("c1", "93.1.1.1", 80)[0] == "reset", "a new start of the instance begins with what was used before")
    d.ok("limits 1")
    check("error" in d.do("traffic 1") and tcp("c1", "93.1.1.1", 80)[0] == "open", "without the limit nothing is counted")
    return d


def test_cut(d):
    d.ok("policy 1 allow@93.0.0.0/8@tcp@- allow@2a01:4f8::/32@tcp@-")
    flows = [Flow("c1", "93.1.1.1", 80), Flow("c1", "2a01:4f8:2::1", 80)]
    state, idle = tcp("c1", "93.1.1.1", 81)
    state, host = tcp(None, "10.99.0.1", 7000)
    settle(flows)
    start = time.monotonic()
    d.ok("cut 1 yes")
    time.sleep(0.3)
    check([f.dead for f in flows] == ["reset"] * 2, "cut: established flows die (%s, after %.1f ms)" % ([f.dead for f in flows], (max(f.died_at for f in flows) - start) * 1000))
    wan = sniff("net", "inet0")
    drain(wan)
    check(tcp("c1", "93.1.1.1", 80)[0] == "reset" and tcp("c1", "2a01:4f8:2::1", 80)[0] == "reset", "new ones are reset")
    leaked = [f for f, a in drain(wan) if a[2] != socket.PACKET_OUTGOING and (socket.inet_aton("10.99.0.1") in f[:40] or socket.inet_pton(socket.AF_INET6, "2a01:4f8:1:1::1") in f[:60])]
    check(not leaked, "and nothing leaves (%d frames)" % len(leaked))
    inside = sniff("c1", "eth0")
    drain(inside)
    check(tcp(None, "10.99.0.1", 7000, 0.4)[0] != "open" and not [f for f, _ in drain(inside) if f[36:38] == struct.pack("!H", 7000)], "the host does not reach it either, not by one packet")
    d.close()
    d = Driver()
    d.ok("new uplk routed")
    check(tcp("c1", "93.1.1.1", 80)[0] == "reset", "cut survives a restart")
    for line in ("attach 1", "limits 1", "cut 1 yes", "policy 1 allow@93.0.0.0/8@tcp@- allow@2a01:4f8::/32@tcp@-", "watch 100"):
        d.ok(line)
    run("nft", "flush", "ruleset")
    d.ok("watch 1000")
    check(tcp("c1", "93.1.1.1", 80)[0] == "reset", "and a foreign flush")
    d.ok("cut 1 no")
    check(tcp("c1", "93.1.1.1", 80)[0] == "open" and tcp("c1", "2a01:4f8:2::1", 80)[0] == "open", "restored: as before")
    idle.settimeout(0.5)
    try:
        idle.sendall(b"z")
        alive = idle.recv(1) == b"z"
    except OSError:
        alive = False
    check(not alive, "but no flow from before comes back to life")
    stop(flows)
    host.close()
    return d


def banner(port, text, kind=socket.SOCK_STREAM, at=("::", 0)):
    """On the host: whoever says something is told who he has reached."""
    with Inside(None):
        s = socket.socket(family(at[0]), kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if at[0] == "::":
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.bind((at[0], port, 0, at[1]) if ":" in at[0] else (at[0], port))

    def hold(c):
        try:
            c.recv(100)
            c.sendall(text)
            c.recv(100)
        except OSError:
            pass

    def stream():
        s.listen(64)
        while True:
            threading.Thread(target=hold, args=(s.accept()[0],), daemon=True).start()

    def datagram():
        while True:
            _, peer = s.recvfrom(2048)
            s.sendto(text, peer)

    threading.Thread(target=stream if kind == socket.SOCK_STREAM else datagram, daemon=True).start()


def who(ns, address, port, kind=socket.SOCK_STREAM):
    with Inside(ns):
        s = socket.socket(family(address), kind)
    s.settimeout(2)
    try:
        s.connect((address, port))
        s.send(b"x")
        return s.recv(100).decode()
    except (ConnectionRefusedError, ConnectionResetError):
        return "reset"
    except socket.timeout:
        return "silent"
    except OSError:
        return "unreachable"


def talk(ns, address, port, n):
    """Of n that begin to talk, those who are answered."""
    held = []
    for _ in range(n):
        with Inside(ns):
            s = socket.socket(family(address))
        s.settimeout(1)
        try:
            s.connect((address, port))
            s.send(b"x")
            if s.recv(50):
                held.append(s)
        except OSError:
            pass
    return held


def ends(s):
    try:
        s.send(b"x")
        time.sleep(0.2)
        s.send(b"x")
        return s.recv(100) == b""
    except (ConnectionResetError, BrokenPipeError):
        return True
    except OSError:
        return False


def live_ids(slot):
    return [int(m, 16) & 0xffff for m in re.findall(r"0x([0-9a-f]{8})", run("nft", "list", "set", "inet", "hostd", "i%04x_live" % slot).stdout)]


def test_redirect(d):
    four, six = "93.1.1.1", "2a01:4f8:2::1"
    banner(8453, b"resolver")
    banner(8453, b"resolver", socket.SOCK_DGRAM, ("169.254.0.1", 0))  # where a datagram comes from is what it was sent to
    banner(8453, b"resolver", socket.SOCK_DGRAM, ("fe80::1", socket.if_nametoindex("hv0001")))
    for port, text in ((8443, b"tls"), (8480, b"http"), (3128, b"connect")):
        banner(port, text)
    broad = "allow@0.0.0.0/0@any@- allow@::/0@any@-"
    d.ok("policy 1 " + broad)
    check(who("c1", four, 53, socket.SOCK_DGRAM) == "x" and who("c1", four, 443) == "x", "without the border nothing is redirected")
    check({who("c1", a, p) for a in ("169.254.0.1", "93.1.1.2") for p in (8453, 8443, 8480, 3128)} == {"reset"}, "and its ports are closed")
    d.ok("border 1 resolver proxy")
    names = "deny@93.1.2.0/24@tcp@444 allow@93.1.2.0/24@tcp@80,443 allow@www.example.org@tcp@443"
    d.ok("policy 1 " + names)
    asked = [who("c1", a, 53, k) for a in (four, six, "8.8.8.8", "10.99.0.2") for k in (socket.SOCK_DGRAM, socket.SOCK_STREAM)]
    check(set(asked) == {"resolver"}, "every DNS question goes to the resolver %s" % asked)
    check(who("c1", four, 443) == "tls" and who("c1", six, 443) == "tls" and who("c1", "10.50.0.1", 443) == "tls", "TLS goes to the proxy")
    check(who("c1", "93.1.2.1", 443) == "x" and who("c1", "93.1.2.1", 80) == "x", "but not where a rule by address stands in front")
    check(who("c1", four, 80) == "reset" and who("c1", six, 80) == "reset", "HTTP is denied unless a name has its port")
    check(who("c1", four, 853) == "reset" and who("c1", four, 443, socket.SOCK_DGRAM) == "unreachable", "so are DoT and QUIC")
    check({who("c1", a, p) for a in ("169.254.0.1", "93.1.1.2") for p in (8453, 8443, 8480)} == {"reset"}, "nobody speaks to the redirects' ports who was not sent there")
    check(who("c1", "169.254.0.1", 3128) == "connect" and who("c1", "93.1.1.2", 3128) == "reset", "CONNECT is asked at the gateway's address only")
    d.ok("policy 1 allow@0.0.0.0/0@any@-")
    flows = [Flow("c1", four, 443), Flow("c1", four, 81)]
    settle(flows)
    d.ok("policy 1 allow@www.example.org@tcp@443 allow@0.0.0.0/0@any@-")
    time.sleep(0.3)
    check([f.dead for f in flows] == ["reset", None], "a name in front takes what is the proxy's from a flow that went past it, and no other (%s)" % [f.dead for f in flows])
    stop(flows)
    d.ok("policy 1 allow@0.0.0.0/0@any@-")
    flows = [Flow("c1", four, 443), Flow("c1", four, 80)]
    settle(flows)
    d.ok("policy 1 deny@*.example.org@any@- allow@0.0.0.0/0@any@-")
    time.sleep(0.3)
    check([f.dead for f in flows] == ["reset"] * 2, "and so does a denial by name, of both ports (%s)" % [f.dead for f in flows])
    stop(flows)
    d.ok("border 1")
    check(who("c1", four, 443) == "reset" and who("c1", four, 80) == "reset" and who("c1", four, 81) == "x", "which nothing opens while there is no proxy")
    d.ok("border 1 resolver proxy")
    d.ok("policy 1 deny@93.1.1.0/24@tcp@- allow@*.example.org@tcp@80,443")
    check(who("c1", four, 443) == "reset" and who("c1", "93.1.2.1", 443) == "tls" and who("c1", "93.1.2.1", 80) == "http", "a denial in front is decided here; HTTP by Host")
    d.ok("policy 1 deny@*.evil.example@any@- allow@0.0.0.0/0@any@- allow@::/0@any@-")
    d.ok("border 1 resolver proxy proxy-shut")
    check({who("c1", a, p) for a in (four, six) for p in (443, 80)} == {"reset"} and who("c1", "169.254.0.1", 3128) == "reset",
          "a shut proxy is closed, and no rule by address behind the names decides in its place")
    check(who("c1", four, 53, socket.SOCK_DGRAM) == "resolver", "the resolver is not")
    d.ok("border 1 resolver proxy resolver-shut proxy-shut")
    check(who("c1", four, 53, socket.SOCK_DGRAM) == "unreachable" and who("c1", four, 53) == "reset", "a shut resolver answers nothing")
    d.ok("border 1 resolver proxy")
    check(who("c1", four, 443) == "tls" and who("c1", four, 53, socket.SOCK_DGRAM) == "resolver", "and both open again")
    with Inside("c1"):
        s = socket.socket()
    s.settimeout(2)
    s.connect((four, 443))
    s.send(b"x")
    s.recv(10)
    d.ok("border 1 resolver proxy proxy-shut")
    check(ends(s), "a connection that was there is ended")
    d.ok("border 1 resolver proxy")
    d.ok("policy 1 deny@93.1.1.0/24@tcp@- allow@*.example.org@tcp@80,443")
    before = d.counters(1)
    d.ok("limits 1 connections=3")
    held = talk("c1", "93.1.2.1", 443, 5)
    check(len(held) == 3, "connections through the proxy count (%d)" % len(held))
    d.ok("limits 1")
    after = d.counters(1)
    check(after["tx"] - before["tx"] >= 12 and after["rx"] - before["rx"] >= 6, "and so do their packets, both ways")
    d.close()
    d = Driver()
    d.ok("new uplk routed")
    check(who("c1", "93.1.2.1", 443) == "tls" and who("c1", four, 53) == "resolver", "it survives a restart")
    for line in ("attach 1", "limits 1", "border 1 resolver proxy", "policy 1 " + names, "watch 50"):
        d.ok(line)
    run("nft", "flush", "ruleset")
    d.ok("watch 1000")
    check(who("c1", four, 443) == "tls" and who("c1", "93.1.2.1", 443) == "x" and who("c1", four, 53) == "resolver", "and a foreign flush")

    def ask(first, n):
        for port in range(first, first + n):
            with Inside("c1"):
                s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.bind(("", port))
            s.connect((four, 53))
            try:
                s.send(b"x")
            except OSError:
                pass
            s.close()

    d.ok("limits 1 connection_rate=10")
    before = d.counters(1)
    ask(20000, 60)
    refused = d.counters(1)["rate"] - before["rate"]
    check(5 <= refused <= 40, "questions a second have a bound (%d of 60 refused)" % refused)
    d.ok("limits 1")
    with Inside("c1"):
        proxied = socket.socket()
    proxied.settimeout(2)
    proxied.connect((four, 443))
    proxied.send(b"x")
    check(proxied.recv(10) == b"tls", "a connection through the proxy")
    ask(21000, 1100)
    refused = d.counters(1)["connections"] - before["connections"]
    check(60 <= refused < 300, "and so have questions at once (%d refused)" % refused)
    check(who("c1", four, 443) == "tls" and who("c1", "93.1.2.1", 443) == "x", "which takes nothing from connections")
    time.sleep(2)  # the kernel sends an ICMP error a second, and each refused question had used one
    d.ok("cut 1 yes")
    check(who("c1", four, 443) == "reset" and who("c1", four, 53, socket.SOCK_DGRAM) == "unreachable", "an instance that is cut off reaches neither")
    d.ok("cut 1 no")
    try:
        proxied.send(b"y")
        alive = proxied.recv(10)
    except OSError as e:
        alive = e
    check(isinstance(alive, ConnectionResetError), "and what went through the proxy does not come back to life (%s)" % alive)
    check(who("c1", four, 443) == "tls", "while a new connection does")
    d.ok("border 1")
    d.ok("policy 1 " + broad)
    check(who("c1", four, 443) == "x" and who("c1", four, 53, socket.SOCK_DGRAM) == "x", "without the border it is as before")
    return d


def test_names(d):
    """Addresses that the resolver found: there before its answer, gone by themselves, never more than the policy."""
    policy = "deny@93.1.2.1/32@any@- allow@db.example.org@tcp@443,9000"
    d.ok("border 1 resolver proxy")
    d.ok("policy 1 allow@www.example.org@tcp@80,443 allow@*.example.net@tcp@443")
    check(live_ids(1) == [], "a name that is the proxy's alone has no mark in the kernel")
    d.ok("policy 1 " + policy)
    (number,) = live_ids(1)
    check(tcp("c1", "93.1.1.1", 9000)[0] == "reset", "a name without its address is closed")
    d.ok("name 1 %d 93.1.1.1 30 1" % number)
    check(tcp("c1", "93.1.1.1", 9000)[0] == "reset", "and so is a port that was not asked for")
    first, again = d.ms("name 1 %d 93.1.1.1 30" % number), sorted(d.ms("name 1 %d 93.1.1.1 30" % number) for _ in range(9))[4]
    d.ok("name 1 %d 2a01:4f8:2::1 30" % number)
    print("      address of a name: first %.2f ms, refreshed %.2f ms" % (first, again))
    check(tcp("c1", "93.1.1.1", 9000)[0] == "open" and tcp("c1", "2a01:4f8:2::1", 9000)[0] == "open", "with it it is open")
    check(tcp("c1", "93.1.1.1", 81)[0] == "reset" and who("c1", "93.1.1.1", 443) == "tls", "on its port; TLS is the proxy's")
    listed = run("nft", "list", "map", "inet", "hostd", "i0001_names4").stdout
    check("443" not in listed and "timeout 10m30s" in listed, "for its time and a grace")
    check("error" in d.do("name 1 %d 10.50.0.1 30" % number) and "error" in d.do("name 1 %d 169.254.169.254 30" % number), "not a private address")
    check("error" in d.do("name 1 %d 93.1.1.1 30" % (number + 1)) and "error" in d.do("name 2 1 93.1.1.1 30"), "not for a rule that there is not")
    d.ok("name 1 %d 93.1.2.1 30" % number)
    check(tcp("c1", "93.1.2.1", 9000)[0] == "reset", "not against a denial in front")
    flow = Flow("c1", "93.1.1.1", 9000)
    settle([flow])
    d.close()
    d = Driver()
    d.ok("new uplk routed")
    for line in ("attach 1", "limits 1", "border 1 resolver proxy", "policy 1 " + policy, "watch 50"):
        d.ok(line)
    check(tcp("c1", "93.1.1.1", 9000)[0] == "open", "addresses survive a restart")
    run("nft", "flush", "ruleset")
    d.ok("watch 1000")
    check(tcp("c1", "93.1.1.1", 9000)[0] == "open" and flow.dead is None, "and a foreign flush")
    d.ok("policy 1 allow@other.example.org@tcp@9000")
    time.sleep(0.3)
    check(flow.dead == "reset" and tcp("c1", "93.1.1.1", 9000)[0] == "reset", "a rule that is gone takes its addresses with it")
    stop([flow])
    d.ok("policy 1 " + policy)
    check(tcp("c1", "93.1.1.1", 9000)[0] == "reset", "and one that comes back does not find them")
    (number,) = live_ids(1)
    d.ok("name 1 %d 93.1.1.1 30" % number)
    check(tcp("c1", "93.1.1.1", 9000)[0] == "open", "until they are found again")
    d.ok("name 1 %d 2a01:4f8:2::1 30" % number)
    kept = lambda: run("nft", "list", "map", "inet", "hostd", "i0001_names4").stdout.count("93.1.1.1 ") + run("nft", "list", "map", "inet", "hostd", "i0001_names6").stdout.count("2a01:4f8:2::1 ")
    before = kept()
    flow = Flow("c1", "93.1.1.1", 9000)
    settle([flow])
    d.ok("next 1 0xff00")
    d.ok("policy 1 allow@first.example.org@tcp@9000 " + policy)
    time.sleep(0.3)
    check(before == 2 and kept() == 0 and 1 in live_ids(1), "where ids begin anew no address of an earlier one stays")
    check(flow.dead == "reset" and tcp("c1", "93.1.1.1", 9000)[0] == "reset", "and no connection (%s)" % flow.dead)
    stop([flow])
    d.ok("watch 50")
    run("nft", "flush", "ruleset")
    d.ok("watch 1000")
    check(kept() == 0, "not after a foreign flush either")
    d.ok("policy 1 " + policy)
    (number,) = live_ids(1)
    d.ok("name 1 %d 93.1.1.1 30" % number)
    full = [d.do("name 1 %d 94.%d.%d.1 30" % (number, i >> 8, i & 255)) for i in range(4096)]
    check("error" in full[-1] and "error" not in full[4000], "the map has an end, and says so: %s" % full[-1])
    check(tcp("c1", "93.1.1.1", 9000)[0] == "open", "which leaves what was in it")
    d.ok("border 1")
    check(tcp("c1", "93.1.1.1", 9000)[0] == "reset", "without the resolver no address counts")
    d.ok("policy 1")
    return d


def peer_server(ns, port, kind=socket.SOCK_STREAM):
    """In an instance: tells each who he is, and goes on as long as he does."""
    for address in ("10.99.0.1", "2a01:4f8:1:1::1"):
        with Inside(ns):
            s = socket.socket(family(address), kind)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((address, port))

        def hold(c, peer):
            try:
                while c.recv(100):
                    c.sendall(peer[0].encode())
            except OSError:
                pass

        def stream(s=s):
            s.listen(64)
            while True:
                c, peer = s.accept()
                threading.Thread(target=hold, args=(c, peer), daemon=True).start()

        def datagram(s=s):
            while True:
                _, peer = s.recvfrom(2048)
                s.sendto(peer[0].encode(), peer)

        threading.Thread(target=stream if kind == socket.SOCK_STREAM else datagram, daemon=True).start()


def test_expose(d):
    d.ok("policy 1 allow@0.0.0.0/0@tcp@9999")
    d.ok("attach 2")
    peer_server("c1", 7100)
    peer_server("c1", 7100, socket.SOCK_DGRAM)
    four, six, inside4, inside6 = "93.1.1.2", "2a01:4f8:2::2", "93.1.1.1", "2a01:4f8:2::1"
    check(who("net", four, 8100) == "reset" and who("net", six, 8100) == "reset", "nothing is exposed unless somebody says so")
    d.ok("expose 1 0 tcp 8100 7100 0 -")
    d.ok("expose 1 1 udp 8100 7100 0 -")
    found = [who("net", a, 8100, k) for a in (four, six) for k in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]
    check(found == [inside4, inside4, inside6, inside6], "TCP and UDP, IPv4 and IPv6, and the instance sees who comes %s" % found)
    check(who("net", four, 7100) == "reset" and who("net", "10.99.0.1", 7100) == "silent", "no other port, and not past the host's address")
    check(who("c2", four, 8100) == "reset" and who("c2", "169.254.0.1", 8100) == "reset", "not for other instances")
    check("error" in d.do("expose 2 0 tcp 8100 7100 0 -") and "error" not in d.do("expose 1 0 tcp 8100 7100 0 -"), "a port leads to one instance; already so is success")
    d.ok("expose 1 2 tcp 8101 7100 0 93.1.2.0/24")
    with Inside("net"):
        s = socket.socket()
    s.bind(("93.1.2.1", 0))
    s.settimeout(1)
    s.connect((four, 8101))
    s.send(b"x")
    check(s.recv(50) == b"93.1.2.1" and who("net", four, 8101) == "silent" and who("net", six, 8101) == "reset", "from one network only")
    d.close()
    d = Driver()
    d.ok("new uplk routed")
    check(who("net", four, 8100) == inside4, "it survives a restart")
    for line in ("attach 1", "attach 2", "limits 1", "policy 1", "expose 1 0 tcp 8100 7100 0 -", "expose 1 1 udp 8100 7100 0 -", "expose 1 2 tcp 8101 7100 0 93.1.2.0/24", "watch 50"):
        d.ok(line)
    s.send(b"x")
    check(s.recv(50) == b"93.1.2.1", "with its connections")
    run("nft", "flush", "ruleset")
    d.ok("watch 1000")
    s.send(b"x")
    check(who("net", six, 8100) == inside6 and who("net", four, 8101) == "silent" and s.recv(50) == b"93.1.2.1", "and a foreign flush")
    d.ok("unexpose 1 2 tcp 8101 7100 0 93.1.2.0/24")
    check(ends(s) and who("net", four, 8101) == "reset", "closed: its connections end")
    d.ok("policy 1 allow@0.0.0.0/0@any@- allow@::/0@any@-")
    d.ok("expose 1 3 tcp 8102 7100 6000 -")  # a busy machine takes its time
    end = time.monotonic() + 6.5
    with Inside("net"):
        s = socket.socket()
    s.settimeout(4)
    s.connect((four, 8102))
    s.send(b"x")
    held = s.recv(50)
    time.sleep(max(end - time.monotonic(), 0))
    check(held == inside4.encode() and ends(s) and who("net", four, 8102) == "reset", "at its time it ends by itself, with its connections, whatever the policy")
    d.ok("expose 1 3 tcp 8102 7100 0 -")
    check(who("net", four, 8102) == inside4, "and may begin again")
    d.ok("limits 1 connections=2")
    held = talk("net", four, 8100, 4)
    check(len(held) == 2, "connections from outside are limited, too (%d)" % len(held))
    for c in held:
        c.close()
    d.ok("limits 1")
    d.ok("cut 1 yes")
    check(who("net", four, 8100) == "silent", "an instance that is cut off is not reached")
    d.ok("cut 1 no")
    check(who("net", four, 8100) == inside4, "and then again")
    d.ok("unexpose 1 0 tcp 8100 7100 0 -")
    d.ok("policy 1")
    return d


def as_user(uid, address, port, kind="STREAM"):
    code = "import socket,sys\ns=socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, socket.SOCK_%s)\ns.settimeout(1)\ns.connect((sys.argv[1],int(sys.argv[2])))\ns.send(b'x')\nprint(len(s.recv(9)))" % kind
    return run("setpriv", "--reuid=%d" % uid, "--regid=%d" % uid, "--clear-groups", "python3", "-c", code, address, str(port), quiet=True).returncode == 0


def test_helpers(d):
    """The border's programs must not become deputies."""
    resolver, proxy, other = 4001, 4002, 4003
    inside = (("10.50.0.1", 80, "STREAM"), ("10.50.0.1", 53, "STREAM"), ("fd50::1", 80, "STREAM"), ("169.254.169.254", 80, "STREAM"), ("93.1.1.2", 8080, "STREAM"),
              ("127.0.0.1", 8080, "STREAM"), ("::1", 8080, "STREAM"), ("10.99.0.1", 7000, "STREAM"), ("2a01:4f8:1:1::1", 7000, "STREAM"))
    run("ip", "-6", "route", "replace", "fd50::1", "via", "2a01:4f8:2::1")
    reach = lambda uid: {a for a in inside if as_user(uid, *a)}
    check(reach(proxy) == set(inside), "before it is told who they are the host's users reach everything %s" % (set(inside) - reach(proxy)))
    d.ok("helpers %d %d %d 5000-5003 @10.50.0.1 @fd50::1" % (resolver, resolver, proxy))
    check([as_user(uid, "10.50.0.1", 80) for uid in (4999, 5000, 5003, 5004)] == [True, False, False, True] and as_user(5003, "93.1.1.1", 80), "a range of users, and none beside it")
    for uid, what in ((proxy, "proxy"), (resolver, "resolver")):
        found = reach(uid)
        check(found == ({("10.50.0.1", 53, "STREAM")} if uid == resolver else set()), "%s: nothing private, nothing of the host, no instance %s" % (what, found))
        check(as_user(uid, "93.1.1.1", 80) and as_user(uid, "2a01:4f8:2::1", 443), "%s: the internet" % what)
    check(reach(other) == set(inside) and tcp(None, "10.99.0.1", 7000)[0] == "open", "others are not concerned")
    server = "import socket\ns=socket.socket()\ns.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1)\ns.bind(('169.254.0.1',3129))\ns.listen()\nprint(1,flush=True)\nwhile True:\n c,_=s.accept()\n c.recv(9)\n c.send(b'helper')\n c.close()"
    p = subprocess.Popen(["setpriv", "--reuid=%d" % proxy, "--clear-groups", "python3", "-c", server], stdout=subprocess.PIPE)
    p.stdout.readline()
    run("nft", "insert rule inet hostd i0001_host tcp dport 3129 accept")
    check(who("c1", "169.254.0.1", 3129) == "helper", "they answer those who ask them")
    p.kill()
    p.wait()
    d.close()
    d = Driver()
    d.ok("new uplk routed")
    check(not as_user(proxy, "10.50.0.1", 80) and as_user(proxy, "93.1.1.1", 80), "the fence survives a restart")
    d.ok("attach 1")
    d.ok("limits 1")
    d.ok("helpers %d %d %d" % (resolver, resolver, proxy))
    check(not as_user(resolver, "10.50.0.1", 53), "an upstream that is gone is closed")
    d.ok("watch 50")
    run("nft", "flush", "ruleset")
    d.ok("watch 1000")
    check(not as_user(proxy, "10.50.0.1", 80) and as_user(proxy, "93.1.1.1", 80), "and a foreign flush")
    d.ok("helpers 0")
    check(as_user(proxy, "10.50.0.1", 80), "without users there is no fence")
    return d


def test_speed(d):
    for slot in range(11, 17):
        d.ok("attach %d" % slot)
        d.ok("many %d 1000" % slot)
    text = "table inet foreign { set big { type ipv4_addr; flags interval; elements = { %s }; }; }" % ",".join("%d.%d.%d.%d" % (11 + (i >> 16), i >> 8 & 255, i & 255, 1) for i in range(50000))
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)
    answers = [d.ok("many 11 %d" % (100 + i % 2)).split() for i in range(21)]
    wall, cpu = sorted(int(a[-2]) / 1000 for a in answers), sorted(int(a[-4]) / 1000 for a in answers)
    print("      policy of 100 rules, six slots of 1000, foreign interval set of 50000: median %.1f ms (best %.1f, worst %.1f), of it CPU %.1f ms; load %s"
          % (wall[10], wall[0], wall[20], cpu[10], open("/proc/loadavg").read().split()[0]))
    check(cpu[10] <= 10 * SLOW, "policy of 100 rules takes at most %d ms of CPU" % (10 * SLOW))
    attach = sorted(d.ms("attach 20") + 0 * d.ms("detach 20") for _ in range(5))
    detach = []
    for _ in range(5):
        d.ok("attach 20")
        detach.append(d.ms("detach 20"))
    print("      attach median %.1f ms, detach median %.1f ms" % (attach[2], sorted(detach)[2]))
    run("nft", "delete", "table", "inet", "foreign")
    for slot in range(11, 17):
        d.ok("detach %d" % slot)


FOREIGN = (  # a firewall, whether it stops instances, and how: what doctor says
    ("Debian's example with policy drop", True, "chain forward of table inet filter drops",
     "table inet filter { chain input { type filter hook input priority 0; policy accept; }; chain forward { type filter hook forward priority 0; policy drop; }; }"),
    ("a last rule that rejects", True, "chain forward of table inet fw rejects",
     "table inet fw { chain forward { type filter hook forward priority 10; ct state established,related accept; ct state invalid drop; iifname \"br0\" accept; reject with icmpx admin-prohibited; }; }"),
    ("a drop in a chain that everything passes", True, "chain through of table ip fw drops",
     "table ip fw { chain last { counter drop; }; chain through { type filter hook forward priority 0; ip saddr 203.0.113.0/24 accept; jump last; }; }"),
    ("one before routing", True, "chain raw of table inet early drops",
     "table inet early { chain raw { type filter hook prerouting priority -300; policy drop; iifname { \"lo\", \"uplk\" } accept; }; }"),
    ("Docker's", True, "chain FORWARD of table ip filter drops",
     "table ip filter { chain DOCKER-USER { counter return; }; chain FORWARD { type filter hook forward priority 0; policy drop; counter jump DOCKER-USER; "
     "oifname \"docker0\" ct state established,related counter accept; iifname \"docker0\" counter accept; }; }"),
    ("one that knows of instances", False, None,
     "table inet fw { chain more { iifname \"hv*\" counter accept; ct state established accept; }; chain forward { type filter hook forward priority 0; policy drop; jump more; }; }"),
    ("an input chain that drops", False, None,
     "table inet fw { chain input { type filter hook input priority 0; policy drop; iifname { \"lo\", \"uplk\" } accept; }; }"),
    ("one that drops what it knows", False, None,
     "table inet fw { chain forward { type filter hook forward priority 0; ip daddr 203.0.113.0/24 drop; iifname \"docker0\" drop; oifname != \"hv*\" ct state new tcp dport 25 drop; }; }"),
)


def test_foreign(d):
    """Firewalls of others: named exactly when they stop what a policy allows, and what doctor says to do about them does it."""
    d.ok("policy 1 allow@93.1.1.1/32@tcp@80")
    check("[" not in d.ok("obstacles") and tcp("c1", "93.1.1.1", 80)[0] == "open", "without another firewall")
    for name, stops, words, table in FOREIGN:
        subprocess.run(["nft", "-f", "-"], input=table, text=True, check=True)
        said = re.findall(r"\[(.*?) => (.*?)\](?= |$)", d.ok("obstacles"))
        check((tcp("c1", "93.1.1.1", 80, 0.5)[0] != "open") == stops, "%s: %s" % (name, "stops instances" if stops else "lets instances pass"))
        check(len(said) == stops and (not stops or words in said[0][0]), "%s: %s" % (name, said or "nothing is said"))
        if stops and said:
            fix = said[0][1].split("; and in")[0]
            if fix.startswith("iptables"):
                check(fix == "iptables -I DOCKER-USER -i hv+ -j ACCEPT; iptables -I DOCKER-USER -o hv+ -j ACCEPT", "%s: in iptables' words" % name)
                fix = "nft 'insert rule ip filter DOCKER-USER iifname \"hv*\" counter accept; insert rule ip filter DOCKER-USER oifname \"hv*\" counter accept'"
            subprocess.run(["sh", "-c", fix], check=True)
            check(tcp("c1", "93.1.1.1", 80)[0] == "open" and "[" not in d.ok("obstacles"), "%s: the fix opens it" % name)
        run("nft", "delete", "table", *table.split()[1:3])
    d.ok("policy 1 allow@93.0.0.0/8@tcp@-")
    subprocess.run(["nft", "-f", "-"], input="table ip published { chain p { type nat hook prerouting priority dstnat; fib daddr type local tcp dport 8888 dnat to 93.1.2.1:80; }; "
                   "chain q { type nat hook postrouting priority srcnat; ip daddr 93.1.2.1 masquerade; }; }", text=True, check=True)
    check(tcp("net", "93.1.1.2", 8888)[0] == "open", "a port that the host publishes for others leads there")
    check(tcp("c1", "93.1.1.2", 8888)[0] == "reset" and tcp("c1", "93.1.2.1", 80)[0] == "open", "but not for an instance, whatever it may reach itself")
    run("nft", "delete", "table", "ip", "published")


def test_detach(d):
    check("[" not in d.ok("leaks 1 2"), "nothing leaked besides the two slots")
    for slot in (1, 2, 2):
        d.ok("detach %d" % slot)
    check("[" not in d.ok("leaks"), "detach leaves nothing")
    # One of the highest numbers; everything of it is told with its number.
    d.ok("attach 1793")
    run("ip", "netns", "add", "c3")
    d.ok("plug 1793 /run/netns/c3")
    d.close()
    d = Driver()
    d.ok("new uplk routed")
    leaks = re.findall(r"\[(\d+) ([^\]]*)\]", d.ok("leaks 1"))
    check({slot for slot, _ in leaks} == {"1793"}, "every leftover has its slot")
    check({"interface hv0701", "routing rule of hv0701", "nft i0701_out"} <= {what for _, what in leaks}, "of every kind")
    d.ok("detach 1793")
    check("[" not in d.ok("leaks"), "and detaching the slot removes them")
    base = run("nft", "list", "ruleset").stdout
    check(" 8100" not in base and "8102" not in base, "nor a port that led there")
    check("0001" not in base.replace("0x00000", "") and "hv0001" not in base + run("ip", "rule").stdout + run("ip", "-6", "rule").stdout, "no chain, element or rule of the slot is left")
    d.ok("remove-all")
    check("hostd" not in run("nft", "list", "tables").stdout and "blackhole" not in run("ip", "rule").stdout, "remove-all leaves nothing")
    return d


def sysctls():
    """Everything below net.ipv4 and net.ipv6 that has a value, of the interfaces that are there now, and the accounts of connections."""
    text = run("sysctl", "-a", "--pattern", r"^net\.(ipv[46]\.|netfilter\.nf_conntrack_(acct|timestamp))").stdout
    return {line for line in text.split("\n") if line and ".neigh." not in line and "stat_" not in line and "hv0" not in line}


def test_forwarding():
    """What routing changed on this host is put back, unless somebody else forwards by now. The first to run: it is off."""
    value = lambda name: run("sysctl", "-n", name).stdout.strip()
    on = lambda: (value("net.ipv4.ip_forward"), value("net.ipv6.conf.all.forwarding"))
    run("nft", "add table inet loads; add chain inet loads c; add rule inet loads c ct state new")  # the module, for what it has below /proc/sys
    run("nft", "delete table inet loads")
    run("sysctl", "-q", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0", "net.netfilter.nf_conntrack_acct=0", "net.netfilter.nf_conntrack_timestamp=0")
    run("ip", "link", "add", "special", "type", "veth", "peer", "name", "special2")
    run("sysctl", "-q", "net.ipv4.conf.special.forwarding=1", "net.ipv6.conf.special.forwarding=1", "net.ipv4.conf.all.accept_redirects=0",
        "net.ipv6.conf.uplk.accept_ra=1")
    before = sysctls()

    def once(word):
        d = Driver()
        d.ok("new uplk routed")
        check(on() == ("1", "1") and value("net.ipv6.conf.uplk.accept_ra") == "2", "%s: hostd switches forwarding on" % word)
        d.close()
        d = Driver()  # a hostd that finds it on
        d.ok("new uplk routed")
        return d

    d = once("alone")
    check((value("net.netfilter.nf_conntrack_acct"), value("net.netfilter.nf_conntrack_timestamp")) == ("1", "1"), "bytes and times of connections are kept")
    check("[net.ipv4.ip_forward is 0 again, as it was before hostd] [net.ipv6.conf.all.forwarding is 0 again" in d.ok("remove-all"), "removing says what it put back")
    difference = before ^ sysctls()
    check(not difference, "every sysctl is as it was %s" % sorted(difference))
    check(not os.path.exists(os.environ["BEFORE"]) and "[" not in d.ok("remove-all"), "the second time there is nothing to do")
    for word, reason, make, undo in (
            ("a NAT table", "net.ipv4.ip_forward stays 1: the nftables table other needs it", "nft add table ip other; nft add chain ip other post { type nat hook postrouting priority srcnat\\; }", "nft delete table ip other"),
            ("a bridge", "net.ipv4.ip_forward stays 1: the bridge docker0 needs it", "ip link add docker0 type bridge", "ip link del docker0"),
            ("sysctl.d", "net.ipv4.ip_forward stays 1: /etc/sysctl.d/90-router.conf needs it", "echo '-net/ipv4/ip_forward = 1' >/etc/sysctl.d/90-router.conf", "rm /etc/sysctl.d/90-router.conf")):
        run("sysctl", "-q", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0")
        d = once(word)
        subprocess.run(["sh", "-c", make], check=True)
        check(reason in d.ok("remove-all") and on()[0] == "1", "%s: forwarding stays" % word)
        subprocess.run(["sh", "-c", undo], check=True)
        d.close()
    run("sysctl", "-q", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
    d = Driver()
    d.ok("new uplk routed")
    check("[" not in d.ok("remove-all") and on() == ("1", "1"), "what was on before stays on without a word")
    d.close()
    run("ip", "link", "del", "special")


def main():
    os.environ["BEFORE"] = "/run/netns/sysctls.before"
    wire_up()
    test_forwarding()
    d = Driver()
    check("uplink=uplk" in d.do("uplink"), "the uplink is found")
    d.ok("new uplk routed")
    for slot in (1, 2):
        d.ok("attach %d" % slot)
        d.ok("attach %d" % slot)
    plug(d, 1)
    test_plug(d)
    d.ok("attach 1")
    check(tcp(None, "10.99.0.1", 7000)[0] == "open", "the host reaches an instance")
    test_default_deny(d)
    test_broad(d)
    test_revocation(d)
    d = test_grant(d)
    d = test_restart(d)
    d = test_ids(d)
    d.ok("attach 2")
    test_flush(d)
    test_spoof(d)
    test_explain_sample(d)
    test_same(d)
    test_upload(d)
    test_download(d)
    d = test_limits(d)
    d = test_traffic(d)
    d = test_cut(d)
    d = test_redirect(d)
    d = test_names(d)
    d = test_expose(d)
    d = test_helpers(d)
    test_speed(d)
    test_foreign(d)
    test_detach(d).close()
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % counts, flush=True)
    os._exit(counts["failed"] > 0)


if __name__ == "__main__":
    main()
