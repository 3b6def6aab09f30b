# SPDX-License-Identifier: GPL-2.0-or-later
"""hostd-flow as its user has it: this script is hostd, the instance and the internet. The ruleset is a few lines with the prefix and the marks
of network/ruleset.c. Started by flow.sh in namespaces of its own."""
import errno
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time

from border_world import ANSWERED, APPLIED, EVENT, HELLO, KINDS, QUERY, RECORD, SLOW, VIEWS, Link, run, until

PROGRAM = sys.argv[1]
USER, OTHER = 65533, 65532
BASE = "/run/hostd-flow-test"
LOGS = BASE + "/logs"
RULE = 52
passed = failures = 0


def check(what, ok, detail=""):
    global passed, failures
    passed += bool(ok)
    failures += not ok
    print(f"{'ok' if ok else 'FAILED'}: {what}{'' if ok else f' ({detail})'}", flush=True)


# ---- a host, an instance behind a veth, and rules with marks ------------------------------------------------------------------------------

def make_network():
    run("mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", "/run")
    os.makedirs(LOGS)
    os.chown(LOGS, USER, USER)
    os.chmod(LOGS, 0o700)
    run("sysctl", "-qw", "net.netfilter.nf_conntrack_acct=1", "net.netfilter.nf_conntrack_timestamp=1",
        "net.netfilter.nf_conntrack_tcp_timeout_time_wait=1", "net.netfilter.nf_conntrack_udp_timeout=2")
    instance = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
    until(lambda: os.readlink(f"/proc/{instance.pid}/ns/net") != os.readlink("/proc/self/ns/net"))
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "hv0001", "type", "veth", "peer", "name", "eth0", "netns", str(instance.pid))
    run("ip", "address", "add", "10.90.0.254/24", "dev", "hv0001")
    run("ip", "-6", "address", "add", "fd00:90::fe/64", "dev", "hv0001", "nodad")
    run("ip", "link", "set", "hv0001", "up")
    for words in (["ip", "link", "set", "lo", "up"], ["ip", "address", "add", "10.90.0.1/24", "dev", "eth0"],
                  ["ip", "-6", "address", "add", "fd00:90::1/64", "dev", "eth0", "nodad"], ["ip", "link", "set", "eth0", "up"]):
        run("nsenter", "-n", "-t", str(instance.pid), *words)
    run("nft", "-f", "-", input=f"""
table inet t {{ counter denied {{ }}
chain input {{ type filter hook input priority 0; policy accept;
  iifname != "hv0001" accept
  icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept
  tcp dport 7000 ct mark set 0x0001{RULE:04x} accept
  ct state established accept
  counter name denied log prefix "hostd:0001:deny " group 10
  meta l4proto tcp reject with tcp reset
  reject with icmpx admin-prohibited
  }}
}}
""")
    return instance.pid


def view():
    def rule(action, to, protocol, ports, origin, number):
        return {"action": action, "to": to, "protocol": protocol, "ports": ports, "origin": origin, "id": number}
    policies = [{"name": "base", "first": 0, "rules": [rule("deny", "10.90.0.254/32", "udp", "53", 0, 0)]},
                {"name": "web", "first": 1, "rules": [rule("deny", "fd00:90::/64", "tcp", "22", 1, 0), rule("allow", "0.0.0.0/0", "tcp", "7000", 2, RULE)]}]
    return json.dumps({"generation": 1, "whole": True, "upstreams": [], "gone": [], "slots": [
        {"slot": 1, "ifname": "hv0001", "instance": "a", "ipv4": "10.90.0.1", "ipv6": "fd00:90::1", "offline": False,
         "dns": {"rate": 200, "burst": 400, "names": 100, "types": []}, "policies": policies}]})


# ---- hostd's end of the control channel, and records ----------------------------------------------------------------------------------------

class Flow:
    def __init__(self):
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        records = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        for s, name in ((listening, "flow.sock"), (records, "flow-records.sock")):
            if os.path.exists(f"{BASE}/{name}"):
                os.unlink(f"{BASE}/{name}")
            s.bind(f"{BASE}/{name}")
            os.chmod(f"{BASE}/{name}", 0o666)
        listening.listen()
        fds = (listening.fileno(), records.fileno())

        def move():
            high = [os.dup2(fd, 20 + i) for i, fd in enumerate(fds)]
            for i, fd in enumerate(high):
                os.dup2(fd, 3 + i)
        self.errors = open(BASE + "/errors", "a+")
        self.process = subprocess.Popen(
            ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all,+net_admin", "--ambient-caps=+net_admin",
             "--bounding-set=-all,+net_admin", PROGRAM], preexec_fn=move, close_fds=False, stdin=subprocess.DEVNULL, stderr=self.errors,
            env={"LISTEN_FDS": "2", "LISTEN_FDNAMES": "control:records", "LOGS_DIRECTORY": LOGS, "HOSTD_FLOW_TEST": "1"})
        listening.close()
        records.close()
        self.link = Link(BASE + "/flow.sock")
        self.events = []
        self.cookie = 0
        self.results = {}
        self.hello = self.link.frame(10)

    def answer(self, wanted, cookie):
        while (wanted, cookie) not in self.results:
            kind, answered, payload = self.link.frame(30)
            if kind == EVENT:
                self.events.append(payload)
            else:
                self.results[kind, answered] = struct.unpack("<i", payload)[0]
        return self.results.pop((wanted, cookie))

    def views(self, text):
        self.cookie += 1
        self.link.send(VIEWS, self.cookie, text.encode())
        return self.answer(APPLIED, self.cookie)

    def read_events(self):
        try:
            while True:
                kind, _, payload = self.link.frame(0.3)
                if kind == EVENT:
                    self.events.append(payload)
        except TimeoutError:
            return [RECORD.unpack(e) for e in self.events]


def record(kind, verdict, name, slot=1, size=480, missed=0):
    data = RECORD.pack(1, 480, slot, kind, verdict, 0, 6, 443, 1, 0, missed, time.time_ns() // 1000, 5, 6, 7, b"", b"web", name, b"a test")
    return data[:size]


def send_record(data, uid):
    """From a process of that user: the kernel's word counts."""
    child = os.fork()
    if child == 0:
        os.setresuid(uid, uid, uid)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.sendto(data, BASE + "/flow-records.sock")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


current = None  # the Flow that is asked


def query(*, since=0, denied=0, kind="any", limit=1000000, instance="a"):
    """The lines; a negative errno instead of a list that is not whole."""
    reading, writing = os.pipe()
    frame = struct.pack("<qQBB6x40s", since, limit, denied, KINDS.index(kind) if kind in KINDS else 255, instance.encode())
    current.cookie += 1
    current.link.send(QUERY, current.cookie, frame, [writing])
    os.close(writing)
    with os.fdopen(reading) as f:
        lines = [json.loads(line) for line in f]
    error = current.answer(ANSWERED, current.cookie)
    if error == 0 and not (lines and lines.pop().get("end")):
        return -1
    return error or lines


def found(**want):
    return [row for row in query() if all(row.get(k) == v for k, v in want.items())]


# ---- what an instance does -------------------------------------------------------------------------------------------------------------------

def instance_does(pid, code):
    return run("nsenter", "-n", "-t", str(pid), sys.executable, "-c", "import socket, struct, time\n" + code, timeout=120 * SLOW)


ATTEMPTS = """
def tcp(family, address, port):
    s = socket.socket(family)
    s.settimeout(5)
    try:
        s.connect((address, port))
        print("CONNECTED")
    except OSError:
        pass
def udp(family, address, port):
    socket.socket(family, socket.SOCK_DGRAM).sendto(b"x", (address, port))
tcp(socket.AF_INET, "10.90.0.254", 443)
tcp(socket.AF_INET6, "fd00:90::fe", 22)
udp(socket.AF_INET, "10.90.0.254", 53)
udp(socket.AF_INET6, "fd00:90::fe", 5353)
socket.socket(socket.AF_INET, socket.SOCK_RAW, 47).sendto(bytes(8), ("10.90.0.254", 0))
socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).sendto(bytes([8, 0]) + bytes(10), ("10.90.0.254", 0))
"""


def serve():
    """Answers each connection's bytes with ten times as many."""
    listening = socket.socket()
    listening.bind(("10.90.0.254", 7000))
    listening.listen()
    if os.fork() == 0:
        while True:
            s, _ = listening.accept()
            if os.fork() == 0:
                try:
                    while data := s.recv(65536):
                        s.sendall(data * 10)
                except OSError:
                    pass
                os._exit(0)
            s.close()
    listening.close()


def status(pid):
    return dict(line.split(":\t", 1) for line in open(f"/proc/{pid}/status").read().splitlines() if ":\t" in line)


def children(pid):
    return [int(p) for p in open(f"/proc/{pid}/task/{pid}/children").read().split()]


def test_rights(flow):
    check("hostd-flow says hello", flow.hello[0] == HELLO)
    check("views are applied", flow.views(view()) == 0)
    check("views that are none are refused", flow.views("{}") < 0)
    main = status(flow.process.pid)
    check("the recorder has no rights", int(main["CapEff"], 16) == int(main["CapPrm"], 16) == int(main["CapAmb"], 16) == 0 and
          main["Uid"].split() == [str(USER)] * 4, main["CapEff"])
    check("a pipe without a reader is not its end", int(main["SigIgn"], 16) & 1 << signal.SIGPIPE - 1, main["SigIgn"])
    check("the recorder has a syscall filter", main["Seccomp"] == "2" and main["NoNewPrivs"] == "1")
    keepers = children(flow.process.pid)
    until(lambda: len(keepers) == 1 and status(keepers[0])["Seccomp"] == "2")  # it confines itself while the recorder does
    keeper = status(keepers[0]) if len(keepers) == 1 else {}
    check("its keeper has one right", int(keeper.get("CapPrm", "0"), 16) == 1 << 12 and int(keeper["CapAmb"], 16) == 0, keepers)
    check("its keeper has a syscall filter and one descriptor", keeper.get("Seccomp") == "2" and os.listdir(f"/proc/{keepers[0]}/fd") == ["3"])
    return keepers[0]


def test_denials(flow, instance):
    out = instance_does(instance, ATTEMPTS)
    check("nothing denied gets through", "CONNECTED" not in out)
    rows = until(lambda: len(found(verdict="deny")) >= 6 and found(verdict="deny"))
    check("each denial is one line", rows and len(rows) == 6, rows)
    for want, what in (
            ({"address": "10.90.0.254", "protocol": "tcp", "port": 443, "reason": "denied: no rule allows it"}, "by default"),
            ({"address": "fd00:90::fe", "protocol": "tcp", "port": 22, "policy": "web", "rule": 1}, "by the rule of an IPv6 range"),
            ({"address": "10.90.0.254", "protocol": "udp", "port": 53, "policy": "base", "rule": 1}, "by a rule of another policy"),
            ({"address": "fd00:90::fe", "protocol": "udp", "port": 5353}, "of UDP over IPv6"),
            ({"address": "10.90.0.254", "protocol": "47"}, "of another protocol"),
            ({"address": "10.90.0.254", "protocol": "icmp"}, "of ICMP")):
        check(f"a denial {what} is explained", len(found(verdict="deny", kind="kernel", **want)) == 1, rows)
    events = flow.read_events()
    check("hostd hears of denials", len(events) == 6 and all(e[2] == 1 and e[3] == 4 and e[4] == 1 for e in events), events)


def test_connections(instance):
    instance_does(instance, """
s = socket.create_connection(("10.90.0.254", 7000))
s.sendall(bytes(10000))
n = 0
while n < 100000:
    n += len(s.recv(65536))
s.close()
time.sleep(0.1)
""")
    rows = until(lambda: [r for r in found(verdict="allow") if not r.get("open")], 20)
    row = rows[0] if rows else {}
    check("an ended connection is one line", len(rows) == 1, rows)
    check("with its bytes", 10000 < row.get("sent", 0) < 15000 and 100000 < row.get("received", 0) < 120000, row)
    check("its rule and its policy", row.get("policy") == "web" and row.get("rule") == 2 and row.get("port") == 7000, row)
    check("and its duration", 0 < row.get("duration", 0) < 30 * SLOW * 1000000, row)


def test_records():
    check("the writers' user may write", send_record(record(1, 1, b"evil.example"), USER))
    rows = until(lambda: found(kind="tls"))
    check("a record of the proxy is a line", len(rows) == 1 and rows[0]["name"] == "evil.example" and rows[0]["policy"] == "web" and
          rows[0]["sent"] == 6 and rows[0]["received"] == 7, rows)
    send_record(record(1, 1, b"forged.example", missed=100), OTHER)
    send_record(record(1, 1, b"short.example", size=479), USER)
    send_record(record(1, 1, b"bad\x1b[31mname"), USER)
    send_record(record(1, 1, b"nobody.example", slot=9), USER)
    send_record(record(0, 0, b"late.example", missed=3), USER)
    rows = until(lambda: found(kind="lost"), 30)
    missed = [r["count"] for r in rows if "in time" in r["reason"]]
    rows = [r for r in rows if "not right" in r["reason"]]
    check("forged, short, odd and nobody's records are none, and counted", rows and sum(r["count"] for r in rows) == 4 and len(found(kind="tls")) == 1, rows)
    check("what a writer could not hand over is counted as it says", missed == [3], missed)


def test_queries():
    all_rows = query()
    check("the newest line comes first", [r["time"] for r in all_rows] == sorted((r["time"] for r in all_rows), reverse=True))
    check("only denied", {r["verdict"] for r in query(denied=1)} == {"deny"} and len(query(denied=1)) == len(found(verdict="deny")))
    check("only one kind", {r["kind"] for r in query(kind="tls")} == {"tls"})
    check("at most so many", query(limit=3) == all_rows[:3])
    check("since", query(since=int(time.time() + 3600) * 1000000) == [] and len(query(since=int(time.time() - 3600) * 1000000)) == len(all_rows))
    check("an instance that never was", query(instance="b") == -errno.ENOENT)


def denied_packets():
    listing = json.loads(run("nft", "-j", "list", "counter", "inet", "t", "denied"))
    return listing["nftables"][1]["counter"]["packets"]


def overruns():
    return [r for r in found(kind="lost") if r["reason"].startswith("denied packets")]


def test_overrun(flow, instance):
    before = len(found(verdict="deny"))
    packets = denied_packets()
    check("so far each denied packet was a line", before - 1 == packets, (before, packets))  # and one that the proxy denied
    os.kill(flow.process.pid, signal.SIGSTOP)
    instance_does(instance, """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(100000):
    try:
        s.sendto(b"x", ("10.90.0.254", 9))
    except OSError:
        pass
""")
    os.kill(flow.process.pid, signal.SIGCONT)
    check("that packets are lost is said at once", until(lambda: overruns(), 40))
    instance_does(instance, 'socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("10.90.0.254", 9))')
    rows = until(lambda: any(r.get("count") for r in overruns()) and overruns(), 40) or []
    lost = sum(r.get("count", 0) for r in rows)
    written = len(found(verdict="deny")) - before
    packets = denied_packets() - packets
    check("and how many, when the next one comes", lost > 0, rows)
    print(f"    {packets} denied, {written} written down, {lost} lost")
    check("and each is either written down or counted", lost + written == packets, (written, lost, packets))


def test_full(flow):
    """The disk is full, and then it is not any more."""
    big = LOGS + "/big"
    with open(big, "wb") as f:
        try:
            while f.write(bytes(65536)):
                f.flush()
        except OSError:
            pass
    for _ in range(200):
        send_record(record(2, 0, b"full.example"), USER)
    time.sleep(0.5)
    os.unlink(big)
    written = len(found(kind="http"))
    send_record(record(2, 0, b"room.example"), USER)
    rows = until(lambda: [r for r in found(kind="lost") if "written" in r["reason"]])
    check("a full disk loses records and says how many", rows and sum(r["count"] for r in rows) == 200 - written and written < 200, (rows, written))
    check("and the log goes on", until(lambda: found(name="room.example")))


def query_ends(flow):
    try:
        return not flow.link.socket.recv(65536)
    except OSError:
        return True


def test_readers(flow):
    """A reader that goes away, one that reads nothing, and too many of them, while the records go on."""
    frame = struct.pack("<qQBB6x40s", 0, 1000000, 0, 255, b"a")
    pipes = []
    for _ in range(9):
        reading, writing = os.pipe()
        flow.cookie += 1
        flow.link.send(QUERY, flow.cookie, frame, [writing])
        os.close(writing)
        pipes.append(reading)
    check("a question too many is refused", flow.answer(ANSWERED, flow.cookie) == -errno.EBUSY)
    send_record(record(3, 0, b"meanwhile.example"), USER)
    for reading in pipes:
        os.close(reading)
    check("readers that go away end their answers", all(flow.answer(ANSWERED, flow.cookie - 8 + i) == -errno.EPIPE for i in range(8)))
    check("and records went on meanwhile", until(lambda: found(name="meanwhile.example")))


def test_kill(flow, keeper, instance):
    lines = len(query())
    os.kill(flow.process.pid, signal.SIGKILL)
    flow.process.wait()
    check("whoever asks is told by the end of its connection", query_ends(flow))
    check("the keeper goes with it", until(lambda: not os.path.exists(f"/proc/{keeper}") or status(keeper)["State"].startswith("Z")))
    global current
    current = again = Flow()
    check("the next one applies the views", again.views(view()) == 0)
    instance_does(instance, 'socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("10.90.0.254", 999))')
    check("and goes on with the log", until(lambda: found(port=999)) and len(query()) > lines)
    again.errors.seek(0)
    check("nobody had anything to complain of", "not recorded" not in again.errors.read())
    return again


def test_taken():
    other = Flow()
    other.views(view())
    other.errors.seek(0)
    check("a second reader of the group is told that it is none", "another program" in other.errors.read())
    other.process.terminate()
    check("SIGTERM ends it", other.process.wait(10 * SLOW) == 0)


def main():
    instance = make_network()
    serve()
    began = time.monotonic()
    lasting = subprocess.Popen(["nsenter", "-n", "-t", str(instance), sys.executable, "-c", "import socket, time\n"
                                's = socket.create_connection(("10.90.0.254", 7000))\ns.sendall(b"x")\ntime.sleep(600)'])
    global current
    current = flow = Flow()
    keeper = test_rights(flow)
    test_denials(flow, instance)
    test_connections(instance)
    test_records()
    test_queries()
    test_overrun(flow, instance)
    time.sleep(max(0, began + 63 - time.monotonic()))
    rows = until(lambda: [r for r in found(verdict="allow") if r.get("open")], 20)
    check("a connection that lasts is written down when it is a minute old, once", len(rows) == 1 and 60000000 <= rows[0]["duration"] < (75 * SLOW) * 1000000 and
          rows[0]["received"] > 0, rows)
    lasting.kill()
    test_readers(flow)
    test_full(flow)
    flow = test_kill(flow, keeper, instance)
    test_taken()
    flow.process.terminate()
    check("the end is clean", flow.process.wait(10 * SLOW) == 0)
    print(f"{passed} passed, {failures} failed, 0 skipped")
    return 1 if failures else 0


sys.exit(main())
