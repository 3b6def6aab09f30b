# SPDX-License-Identifier: GPL-2.0-or-later
"""Cases of tests/integration/proxy.sh. usage: proxy_test.py PROGRAM [CASE...]"""
import hashlib
import os
import random
import re
import resource
import ssl
import subprocess
import sys
import threading
import time

from proxy_world import *

NAMES = ["good.example.org", "other.example.org", "evil.example.org", "h2.example.org", "ports.example.org", "private.example.org", "limited.example.org",
         "gone.example.org", "seen.example.org", "many.example.org"]
RULES = ["deny evil.example.org", "allow good.example.org 80,443", "allow other.example.org 443", "allow h2.example.org 443", "allow ports.example.org 443,9000",
         "allow private.example.org 443", "allow gone.example.org 443", "allow many.example.org 443", f"allow {WEB2}/32 443"]
passed = failed = 0


def check(what, condition, *details):
    global passed, failed
    if condition:
        passed += 1
        print("ok:", what, flush=True)
    else:
        failed += 1
        print("FAILED:", what, *[str(d)[:600] for d in details], flush=True)


def log():
    with open(f"{RUN}/origin.log") as f:
        return f.read().splitlines()


def nothing_arrived(before, address=EVIL):
    time.sleep(0.1)
    return [line for line in log()[before:] if address in line] == []


def mark():
    return len(log()), len(records.all)


# ---- cases

def case_tls():
    lines, since = mark()
    code, out, err = curl("https://good.example.org/hello", resolve={"good.example.org": GOOD})
    check("an allowed name is reached", code == 0 and out == f"hello from {GOOD}\n".encode(), code, out, err)
    r = records.find(since, verdict="allow")
    check("its record has name, rule, address and bytes", r and (r["name"], r["policy"], r["rule"], r["address"], r["port"], r["kind"]) ==
          ("good.example.org", "p", 2, GOOD, 443, "tls") and r["tx"] > 300 and r["rx"] > 500 and r["duration"] > 0 and r["reason"] == "", r)
    code, out, err = curl("https://GOOD.example.org/hello", resolve={"GOOD.example.org": GOOD})
    check("in capitals, too", code == 0, err)
    lines, since = mark()
    code, out, err = curl("https://good.example.org/hello", resolve={"good.example.org": EVIL})
    check("an allowed name at a stranger's address goes to the real host", code == 0 and out == f"hello from {GOOD}\n".encode() and nothing_arrived(lines), out, err)
    code, out, err = curl("-6", "https://good.example.org/hello", resolve={"good.example.org": "[2a00:1::99]"})
    check("over IPv6, by an address that nobody has", code == 0 and b"hello from" in out, out, err)
    r = records.find(since, verdict="allow", address=GOOD6)
    check("a client with IPv6 is led to IPv6 first", r, records.all[since:])
    since = mark()[1]
    code, out, err = curl("https://good.example.org/hello", resolve={"good.example.org": GOOD}, ns="other")
    check("another instance has rules of its own", code != 0 and records.find(since, slot=2, verdict="deny"), code, records.all[since:])


def case_ech():
    since = mark()[1]
    s = connect(EVIL, 443)
    s.sendall(hello("good.example.org", b"\xfe\x0d\0\6\0\0\1\0\1\7"))
    check("an encrypted ClientHello beside an allowed name: the server's to answer", rest(s)[:1] == b"\x15")
    s.close()
    check("and in the record", records.find(since, verdict="allow", name="good.example.org", reason="with an encrypted ClientHello"), records.all[since:])


def case_denied():
    for name in ("evil.example.org", "unknown.example.org", "sub.good.example.org"):
        lines, since = mark()
        code, out, err = curl("https://" + name, resolve={name: EVIL})
        check(f"{name} is refused by an alert", code == 35 and "access denied" in err, code, err)
        check(f"{name}: nothing arrives anywhere", nothing_arrived(lines) and not [q for q in resolver.asked if q[2] == name], log()[lines:])
        r = records.find(since, verdict="deny", name=name)
        check(f"{name}: the record says why", r and ("rule 1 of policy p" in r["reason"] if name == NAMES[2] else "no rule" in r["reason"]), r)
    for what, first, answer in (("no server name", hello(None), ALERT_NAME), ("an address", hello(EVIL), ALERT_NAME), ("a number", hello("1564540162"), ALERT_NAME),
                                ("two dots", hello("good..example.org"), ALERT_NAME), ("a dot at the end", hello("good.example.org."), ALERT_NAME),
                                ("plain text", b"GET / HTTP/1.1\r\nHost: good.example.org\r\n\r\n", b"reset"), ("ssh", b"SSH-2.0-x\r\n", b"reset"),
                                ("cut records", b"\x16\3\1\0\0", ALERT_NAME)):
        lines, since = mark()
        s = connect(EVIL, 443)
        s.sendall(first)
        got = rest(s)
        check(f"{what} on 443 is closed", got == answer and nothing_arrived(lines), got)
        r = records.find(since, verdict="deny")
        check(f"{what}: the record says why", r and r["reason"] and r["address"] == EVIL, r)
    lines, since = mark()
    code, out, err = curl("https://private.example.org/", resolve={"private.example.org": GOOD})
    check("a name that leads to private addresses is refused", code == 35 and records.find(since, verdict="deny", name="private.example.org"), code, records.all[since:])
    since = mark()[1]
    code, out, err = curl("https://gone.example.org/", resolve={"gone.example.org": GOOD})
    check("a name that is not there is an error, at once", code == 35 and records.find(since, verdict="error", name="gone.example.org"), code, err)


def case_address_rules():
    code, out, err = curl("-k", "https://whatever.example.org/", resolve={"whatever.example.org": WEB2})
    check("a rule by address behind those by name is a plain wire", code == 0 and out == b"h2", out, err)
    code, out, err = curl("https://other.example.org/hello", resolve={"other.example.org": WEB2})
    check("but a name that has a rule goes where its name leads", code == 0 and out == f"hello from {GOOD}\n".encode(), out, err)
    since = mark()[1]
    s = connect(WEB2, 443)
    s.sendall(hello("evil.example.org"))
    check("a denied name is denied at that address, too", rest(s) == ALERT_DENIED)
    s = connect(WEB2, 443)
    s.sendall(hello(None))
    check("and what names nobody could be that name", rest(s) == ALERT_NAME and records.find(since, verdict="deny", rule=1, name=""), records.all[since:])


def case_h2():
    code, out, err = curl("--http2", "-w", "%{http_version}", "https://h2.example.org/", resolve={"h2.example.org": WEB2})
    check("HTTP/2", code == 0 and out == b"h22", out, err)


def case_http():
    lines, since = mark()
    code, out, err = curl("http://good.example.org/hello", resolve={"good.example.org": EVIL})
    check("plain HTTP by its Host goes to the real host", code == 0 and out == f"hello from {GOOD}\n".encode() and nothing_arrived(lines), out, err)
    check("its record", records.find(since, kind="http", verdict="allow", name="good.example.org", rule=2), records.all[since:])
    lines, since = mark()
    code, out, err = curl("-i", "http://other.example.org/", resolve={"other.example.org": EVIL})
    check("a name that has no rule for port 80: 403 with reason and remedy", b" 403 " in out and b"no rule allows it" in out and
          b"allow other.example.org tcp 80" in out and b"hostd-guest ask net other.example.org:80 --reason" in out and nothing_arrived(lines), out)
    for what, request in (("two hosts", b"GET / HTTP/1.1\r\nHost: good.example.org\r\nHost: evil.example.org\r\n\r\n"),
                          ("a target and a Host", b"GET http://evil.example.org/ HTTP/1.1\r\nHost: good.example.org\r\n\r\n"),
                          ("two lengths", b"POST / HTTP/1.1\r\nHost: good.example.org\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
                          ("a folded line", b"GET / HTTP/1.1\r\nHost: good.example.org\r\nX: a\r\n b\r\n\r\n"),
                          ("bare LF", b"GET / HTTP/1.1\nHost: good.example.org\n\n"),
                          ("HTTP/2 at once", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
                          ("CONNECT", b"CONNECT good.example.org:80 HTTP/1.1\r\nHost: good.example.org\r\n\r\n"),
                          ("TLS", hello("good.example.org"))):
        lines, since = mark()
        s = connect(EVIL, 80)
        s.sendall(request)
        got = rest(s)
        check(f"{what} on port 80: 400", b" 400 " in got and not [x for x in log()[lines:] if "accept" in x], got)
    lines, since = mark()
    s = connect(EVIL, 80)
    s.sendall(b"GET /hello HTTP/1.1\r\nHost: good.example.org\r\n\r\n" + b"GET /second HTTP/1.1\r\nHost: evil.example.org\r\n\r\n")
    got = rest(s)
    check("a second request behind the first goes nowhere", got.count(b"HTTP/1.1 200") == 1 and not [x for x in log()[lines:] if "second" in x], got, log()[lines:])
    s = connect(EVIL, 80)
    body = b"hello"
    s.sendall(b"POST /upload HTTP/1.1\r\nHost: good.example.org\r\nContent-Length: 5\r\n\r\n" + body + b"GET /second HTTP/1.1\r\nHost: evil.example.org\r\n\r\n")
    got = rest(s)
    check("nor behind a body", got.endswith(b"5 " + hashlib.sha256(body).hexdigest().encode()) and not [x for x in log()[lines:] if "second" in x], got)
    s = connect(EVIL, 80)
    s.sendall(b"POST /upload HTTP/1.1\r\nHost: good.example.org\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" +
              b"GET /second HTTP/1.1\r\nHost: evil.example.org\r\n\r\n")
    got = rest(s)
    check("nor behind chunks", got.endswith(b"5 " + hashlib.sha256(body).hexdigest().encode()) and not [x for x in log()[lines:] if "second" in x], got)
    s = connect(EVIL, 80)
    s.sendall(b"GET /hello HTTP/1.1\r\nHost: good.example.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    time.sleep(0.3)
    s.sendall(b"GET /second HTTP/1.1\r\nHost: evil.example.org\r\n\r\n")
    s.settimeout(2 * SLOW)
    got = s.recv(4096)
    check("nor behind an upgrade that the server did not make", b"200" in got and not [x for x in log()[lines:] if "second" in x], got)
    code, out, err = curl("--http2", "http://good.example.org/headers", resolve={"good.example.org": EVIL})
    check("no upgrade to HTTP/2 without TLS", code == 0 and b"h2c" not in out and b"Connection: close" in out, out, err)


def case_connect():
    proxy, proxy6 = "http://" "169.254.0.1:3128", "http://[fe80::1%25eth0]:3128"
    lines, since = mark()
    code, out, err = curl("-x", proxy, "https://good.example.org/hello")
    check("CONNECT to an allowed name", code == 0 and out == f"hello from {GOOD}\n".encode(), out, err)
    check("its record", records.find(since, kind="connect", verdict="allow", name="good.example.org", port=443), records.all[since:])
    code, out, err = curl("-x", proxy6, "https://good.example.org/hello")
    check("CONNECT by the link's own address", code == 0, out, err)
    lines, since = mark()
    code, out, err = curl("-i", "-x", proxy, "https://evil.example.org/")
    check("CONNECT to a denied name: 403", code in (7, 56) and b" 403 " in out, code, out, err)
    s = connect("169.254.0.1", 3128)
    s.sendall(b"CONNECT evil.example.org:443 HTTP/1.1\r\nHost: evil.example.org:443\r\n\r\n")
    check("with rule and remedy", b"denied by rule 1 of policy p" in (got := rest(s)) and b"allow evil.example.org tcp 443" in got and nothing_arrived(lines), got)
    s = connect("169.254.0.1", 3128)
    s.sendall(b"CONNECT ports.example.org:9000 HTTP/1.1\r\nHost: x\r\n\r\n")
    check("CONNECT whose Host is another: 400", b" 400 " in rest(s))
    code, out, err = curl("-p", "-x", proxy, "http://ports.example.org:9000/hello")
    check("CONNECT to a port that the rule names", code == 0 and b"hello" in out, out, err)
    code, out, err = curl("-p", "-x", proxy, "http://good.example.org:9000/hello")
    check("and not to one that it does not name", code != 0, out, err)
    lines, since = mark()
    s = connect("169.254.0.1", 3128)
    s.sendall(b"CONNECT good.example.org:443 HTTP/1.1\r\nHost: good.example.org:443\r\n\r\n")
    first = s.recv(4096)
    s.sendall(hello("evil.example.org"))
    got = rest(s)
    check("another server name in the tunnel is refused", b" 200 " in first and got == ALERT_NAME and not [x for x in log()[lines:] if "sni" in x], first, got)
    s = connect("169.254.0.1", 3128)
    s.sendall(b"CONNECT good.example.org:443 HTTP/1.1\r\nHost: good.example.org:443\r\n\r\nGET / HTTP/1.1\r\nHost: good.example.org\r\n\r\n")
    check("plain text in the tunnel is cut", rest(s).endswith(b"reset"))
    time.sleep(0.3) # what was cut is still being written down at the other end
    lines, since = mark()
    for target in (f"{EVIL}:443", f"[{GOOD6}]:443", "127.0.0.1:22", "169.254.0.1:3128", "[::1]:22", "10.99.0.2:22", "2130706433:22", "localhost:22"):
        s = connect("169.254.0.1", 3128)
        s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        got = rest(s)
        check(f"CONNECT {target} is refused", b" 403 " in got or b" 400 " in got, got)
    check("none of them went anywhere", not [x for x in log()[lines:] if "accept" in x], log()[lines:])
    s = connect("169.254.0.1", 3128)
    s.sendall(f"CONNECT {WEB2}:443 HTTP/1.1\r\nHost: {WEB2}:443\r\n\r\n".encode())
    check("CONNECT to an address that could be a denied name's", b" 403 " in (got := rest(s)), got)
    hostd.views(slot("allow 0.0.0.0/0 443"), whole=False)
    code, out, err = curl("-x", proxy, "https://unknown2.example.org/hello")
    check("CONNECT by a name that is not there: 502", code != 0 and "502" in err, code, err)
    code, out, err = curl("-x", proxy, "https://good.example.org/hello")
    check("CONNECT by a name where a rule allows its address", code == 0 and b"hello" in out, code, err)
    code, out, err = curl("-x", proxy, "https://private.example.org/hello")
    check("and not where its address is private", code != 0 and "403" in err, code, err)
    reset_views()
    code, out, err = curl("-x", proxy, "http://good.example.org/headers")
    check("a plain request through the proxy", code == 0 and b"Host: good.example.org" in out and b"Proxy" not in out, out, err)
    code, out, err = curl("-i", "-x", proxy, "http://other.example.org/")
    check("and one that is denied", b" 403 " in out, out, err)
    s = connect("169.254.0.1", 3128)
    s.sendall(b"GET / HTTP/1.1\r\nHost: good.example.org\r\n\r\n")
    check("a request that is to no proxy: 400", b" 400 " in rest(s))


def tls(name, address=EVIL, port=443, ns="client"):
    context = ssl.create_default_context(cafile=f"{RUN}/cert")
    return context.wrap_socket(connect(address, port, ns), server_hostname=name)


def websocket(s, name):
    s.sendall(f"GET /socket HTTP/1.1\r\nHost: {name}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n".encode())
    answer = s.recv(4096)
    assert b" 101 " in answer, answer
    return s


def echoes(s, data=b"ping"):
    try:
        s.settimeout(5 * SLOW)
        s.sendall(data)
        return s.recv(4096) == data
    except OSError:
        return False


def case_streams():
    a, b = websocket(tls("good.example.org"), "good.example.org"), websocket(connect(EVIL, 80), "good.example.org")
    check("WebSocket in TLS and in plain HTTP", echoes(a) and echoes(b))
    code, out, err = curl("-N", "https://good.example.org/events?n=8", resolve={"good.example.org": EVIL})
    check("server-sent events", code == 0 and out.count(b"data:") == 8, err)
    size = int((200 << 20) / SLOW)
    with open(f"{RUN}/upload", "wb") as f:
        f.truncate(size)
    digest = subprocess.run(["sha256sum", f"{RUN}/upload"], capture_output=True, text=True).stdout.split()[0]
    for words in (["https://good.example.org/upload"], ["http://good.example.org/upload"], ["-H", "Transfer-Encoding: chunked", "http://good.example.org/upload"],
                  ["-H", "Expect:", "-x", "http://" "169.254.0.1:3128", "https://good.example.org/upload"]):
        since = mark()[1]
        code, out, err = curl("-T", f"{RUN}/upload", *words, resolve={"good.example.org": EVIL}, timeout=120)
        check(f"an upload of {size >> 20} MiB: {' '.join(words)}", code == 0 and out.decode() == f"{size} {digest}", out, err)
        check("is counted", until(lambda: any(r["tx"] >= size for r in records.all[since:])), records.all[since:])
    since = mark()[1]
    code, out, err = curl("-o", "/dev/null", "-w", "%{size_download}", "https://good.example.org/big?n=300000000", resolve={"good.example.org": EVIL}, timeout=120)
    check("a download of 300 MB", out == b"300000000", out, err)
    check("is counted", until(lambda: any(r["rx"] >= 300000000 for r in records.all[since:])), records.all[since:])
    s = connect(EVIL, 80)
    s.sendall(b"GET /hello HTTP/1.0\r\nHost: good.example.org\r\n\r\n")
    s.shutdown(1)
    check("a client that has closed its half gets its answer", b"hello" in rest(s))
    time.sleep(11)
    check("both are alive after more than any time limit of a beginning", echoes(a) and echoes(b))
    a.close()
    b.close()


def case_views():
    since = mark()[1]
    good, other = websocket(tls("good.example.org"), "good.example.org"), websocket(tls("other.example.org"), "other.example.org")
    check("two streams", echoes(good) and echoes(other))
    began = time.monotonic()
    hostd.views(slot("allow other.example.org 443"), whole=False)
    check("the stream that is not allowed any more is cut", closed(good, 2) and time.monotonic() - began < SLOW)
    r = records.find(since, name="good.example.org", kind="tls", flags=2)
    check("its record says so", r and r["verdict"] == "allow" and "cut by other rules" in r["reason"] and r["rx"] > 0, r)
    check("the other one goes on", echoes(other))
    for i in range(200):
        hostd.views(slot("allow other.example.org 443", *(["allow good.example.org 443"] if i % 2 else [])), whole=False)
    check("through 200 changes of other rules", echoes(other))
    hostd.views(slot("deny evil.example.org", "deny good.example.org", "allow *.example.org 443"), whole=False)
    check("and when another rule allows it", echoes(other))
    hostd.views(slot(rule("allow other.example.org 443", inspect=True)), whole=False)
    check("not when it is to be inspected", closed(other, 2))
    reset_views()
    other = websocket(tls("other.example.org"), "other.example.org")
    hostd.views(dict(slot("allow other.example.org 443"), offline=True), whole=False)
    check("an instance that is cut off has no connections", closed(other, 2))
    hostd.views(slot("allow other.example.org 443"), whole=False)
    other = websocket(tls("other.example.org"), "other.example.org")
    check("and new ones when it is given its network back", echoes(other))
    hostd.views(whole=False, gone=[1])
    check("an instance that is gone has no connections", closed(other, 2))
    try:
        connect(EVIL, 443)
        reached = True
    except OSError:
        reached = False
    check("and no listeners", not reached)
    reset_views()
    check("which are there again with it", curl("https://good.example.org/hello", resolve={"good.example.org": EVIL})[0] == 0)
    resolver.delay = 0.5
    threads = [threading.Thread(target=curl, args=("https://good.example.org/hello",), kwargs=dict(resolve={"good.example.org": EVIL})) for _ in range(4)]
    lines = mark()[0]
    [t.start() for t in threads]
    time.sleep(0.3)
    hostd.views(slot("allow other.example.org 443"), whole=False)
    [t.join() for t in threads]
    resolver.delay = 0
    check("what is being resolved while the rules change meets the new ones", not [x for x in log()[lines:] if "accept" in x], log()[lines:])
    reset_views()


def case_grant():
    ends = time.time() + 4
    hostd.views(slot(rule("allow good.example.org 443", until=int(ends * 1e6)), "allow other.example.org 443"), whole=False)
    since = mark()[1]
    good, other = websocket(tls("good.example.org"), "good.example.org"), websocket(tls("other.example.org"), "other.example.org")
    check("what was granted is reached", echoes(good) and echoes(other))
    check("and cut at its time, though nobody says so", closed(good, 8) and 0 <= time.time() - ends < 3 * SLOW, time.time() - ends)
    r = records.find(since, name="good.example.org", kind="tls", flags=2)
    check("its record says so", r and "cut by other rules" in r["reason"], r)
    check("a new connection is refused", curl("https://good.example.org/hello", resolve={"good.example.org": GOOD})[0] != 0)
    check("the other stream goes on", echoes(other))
    reset_views()


def case_sandbox():
    """A wire whose list is its profile's within its instance's."""
    profile = dict(slot=0x800, within=1, instance="a", policies=[dict(name="box", first=0, rules=[rule("deny evil.example.org"), rule("allow *.example.org 443", 1)])])
    box = dict(slot(number=2), slot=0x1002, profile=0x800, sandbox="sb1", instance="a", destinations=3)
    del box["policies"]
    own = ("allow good.example.org 443", "allow other.example.org 443", "allow evil.example.org 443")
    get = lambda name, ns="other": curl("https://" + name + "/hello", resolve={name: GOOD}, ns=ns)
    since = mark()[1]
    check("views of a sandbox are applied", hostd.views(dict(slot(*own), destinations=3), profile, box) == 0)
    check("what both lists allow", get("good.example.org")[0] == 0)
    check("what its instance lacks", get("h2.example.org")[0] != 0)
    r = records.find(since, slot=0x1002, verdict="deny", name="h2.example.org")
    check("its record says whose rules", r and "no rule of its instance allows it" in r["reason"], r)
    check("what it lacks itself", get("evil.example.org")[0] != 0 and get("evil.example.org", "client")[0] == 0)
    check("its allow is recorded by its own rule", records.find(since, slot=0x1002, verdict="allow", name="good.example.org", policy="box", rule=2), records.all[since:])
    stream = websocket(tls("other.example.org", ns="other"), "other.example.org")
    check("a third destination of three", echoes(stream))
    hostd.views(dict(slot("allow *.example.org 443"), destinations=3), profile, box, whole=False)
    check("a fourth is refused: the instance's count is for both", get("ports.example.org")[0] != 0 and get("ports.example.org", "client")[0] != 0 and get("good.example.org")[0] == 0)
    hostd.views(slot("allow good.example.org 443"), box, whole=False)
    check("a stream that its instance may not have any more is cut", closed(stream, 2))
    hostd.views(whole=False, gone=(1,))
    check("without its instance it has nothing", get("good.example.org")[0] != 0)
    reset_views()


def case_destinations():
    rules = ("allow good.example.org 443", "allow other.example.org 443", "allow h2.example.org 443", f"allow {WEB2}/32 443")
    get = lambda name: curl("https://" + name + "/hello", resolve={name: GOOD})
    hostd.views(dict(slot(*rules), destinations=2), whole=False)
    check("two destinations of two in a minute, as often as one likes", [get(n)[0] for n in ("good.example.org", "other.example.org", "good.example.org", "other.example.org")] == [0] * 4)
    since, lines = mark()[1], len(log())
    check("a third is refused", get("h2.example.org")[0] != 0 and nothing_arrived(lines, GOOD))
    r = records.find(since, name="h2.example.org", kind="tls", verdict="deny")
    check("its record says why", r and "more than 2 different destinations in a minute" in r["reason"], r)
    since = mark()[1]
    code, out, err = curl("-k", "-p", "-x", "http://" "169.254.0.1:3128", "https://" + WEB2 + "/hello")
    check("so is an address that a rule allows, by CONNECT", code != 0 and "403" in err, code, err)
    hostd.views(dict(slot(*rules), destinations=3), whole=False)
    code, out, err = curl("-k", "-p", "-x", "http://" "169.254.0.1:3128", "https://" + WEB2 + "/hello")
    check("with room for three it is the third", code == 0, err)
    check("and a name one too many", get("h2.example.org")[0] != 0)
    hostd.views(slot(*rules), whole=False)
    check("without a limit all are reached", get("h2.example.org")[0] == 0 and get("good.example.org")[0] == 0)
    reset_views()


def case_inspect():
    hostd.views(slot(rule("allow seen.example.org 443", inspect=True)), whole=False)
    lines, since = mark()
    code, out, err = curl("https://seen.example.org/", resolve={"seen.example.org": EVIL})
    check("what is to be inspected goes nowhere without an interceptor", code != 0 and not [x for x in log()[lines:] if "accept" in x] and
          records.find(since, verdict="error", name="seen.example.org"), records.all[since:])
    os.makedirs("/run/hostd/haproxy/1", exist_ok=True)
    front = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    front.bind("/run/hostd/haproxy/1/front.sock")
    os.chmod("/run/hostd/haproxy/1/front.sock", 0o666)
    front.listen(4)
    for address, ip in ((EVIL, 4), ("2a00:1::77", 6)):
        since = mark()[1]
        s = connect(address, 443)
        s.sendall(hello("seen.example.org"))
        front.settimeout(5 * SLOW)
        stream, _ = front.accept()
        stream.settimeout(5 * SLOW)
        want = len(hello("seen.example.org"))
        head = b""
        while len(head) < 16 or len(head) < 16 + int.from_bytes(head[14:16], "big") + want:
            head += stream.recv(4096)
        body = head[16:16 + int.from_bytes(head[14:16], "big")]
        n = 4 if head[13] == 0x11 else 16
        family = socket.AF_INET if n == 4 else socket.AF_INET6
        check(f"an interceptor gets the PROXY header (IPv{ip})", head[:13] == b"\r\n\r\n\0\r\nQUIT\n\x21" and b"\2\0\x10seen.example.org" in body and body.endswith(b"\5\0\0011"), head)
        check("with the vetted address as its destination", socket.inet_ntop(family, body[n:2 * n]) in (GOOD, GOOD6) and body[2 * n + 2:2 * n + 4] == b"\1\xbb", body)
        if ip == 4:
            check("and the client's as its source", socket.inet_ntop(family, body[:n]) == CLIENT, body)
        check("and then the client's bytes", head.endswith(hello("seen.example.org")), head)
        stream.sendall(b"answer")
        check("and the client gets its answer", s.recv(100) == b"answer")
        stream.close()
        check("and its end", closed(s))
        s.close()
        r = records.find(since, verdict="allow", name="seen.example.org")
        check("and its record says that it was intercepted, and counts the client's bytes alone", r and r["flags"] & 1 and r["tx"] == want and r["rx"] == 6, r)
    front.close()
    os.unlink("/run/hostd/haproxy/1/front.sock")
    haproxy = http_server("front", "unix@/run/hostd/haproxy/1/front.sock mode 666 accept-proxy ssl crt {both} alpn h2,http/1.1",
                          'lf-string "%[fc_pp_authority] %[fc_pp_unique_id] %[src] %[dst] %[dst_port]"')
    until(lambda: os.path.exists("/run/hostd/haproxy/1/front.sock"))
    for address, words in ((EVIL, []), ("[2a00:1::77]", ["-6"]), (EVIL, ["-x", "http://" "169.254.0.1:3128"])):
        code, out, err = curl("--http2", *words, "https://seen.example.org/", resolve={"seen.example.org": address})
        source = CLIENT6 if words == ["-6"] else CLIENT
        check("the real HAProxy reads name, slot, client and server from it", code == 0 and out.decode().split() ==
              ["seen.example.org", "1", source, GOOD6 if words == ["-6"] else GOOD, "443"], out, err)
    haproxy.terminate()
    hostd.views(slot(rule("allow good.example.org 80", methods=["GET"], paths=["/hello"])), whole=False)
    code, out, err = curl("http://good.example.org/hello", resolve={"good.example.org": EVIL})
    check("method and path of plain HTTP", code == 0 and out.startswith(b"hello"), out, err)
    for words in (["http://good.example.org/headers"], ["-X", "POST", "http://good.example.org/hello"], ["--path-as-is", "http://good.example.org/hello/../headers"]):
        code, out, err = curl("-i", *words, resolve={"good.example.org": EVIL})
        check(f"refused: {' '.join(words)}", b" 403 " in out, out, err)
    reset_views()


def case_meters():
    hostd.views(slot(rule("allow good.example.org 443", rate=2 << 20), rule("allow limited.example.org 443", budget=3 << 20)), whole=False)
    began = time.monotonic()
    code, out, err = curl("-o", "/dev/null", "-w", "%{size_download}", "https://good.example.org/big?n=12582912", resolve={"good.example.org": EVIL}, timeout=60)
    took = time.monotonic() - began
    check("12 MiB at 2 MiB a second", code == 0 and 4 < took < 9 * SLOW, took, err)
    since = mark()[1]
    code, out, err = curl("-o", "/dev/null", "-w", "%{size_download}", "https://limited.example.org/big?n=12582912", resolve={"limited.example.org": EVIL})
    check("3 MiB a day, then the connection ends", code != 0 and 2 << 20 < int(out) < 4 << 20, code, out, err)
    check("its record says so", (r := records.find(since, name="limited.example.org")) and "budget" in r["reason"], r)
    since = mark()[1]
    code, out, err = curl("https://limited.example.org/hello", resolve={"limited.example.org": EVIL})
    check("and the next is refused", code == 35 and records.find(since, verdict="deny", name="limited.example.org"), code, err)
    hostd.stop()
    hostd.start()
    hostd.views(slot("allow other.example.org 443", rule("allow limited.example.org 443", budget=3 << 20)))
    check("after a restart and among other rules, too", curl("https://limited.example.org/hello", resolve={"limited.example.org": EVIL})[0] == 35)
    hostd.views(slot("allow other.example.org 443", rule("allow limited.example.org 443", budget=30 << 20)))
    check("until the rule has more", curl("https://limited.example.org/hello", resolve={"limited.example.org": EVIL})[0] == 0)
    reset_views()


def hold(n):
    """That many connections which say half of something; those that are refused at once are left out."""
    held, half = [], hello("good.example.org")[:20]

    def there():  # all in one thread: the first must not be over before the last is there
        in_ns("client")
        for _ in range(n):
            try:
                s = socket.create_connection((EVIL, 443), 10 * SLOW)
                s.sendall(half)
                held.append(s)
            except OSError:
                pass
    t = threading.Thread(target=there)
    t.start()
    t.join()
    return held


def ended(sockets):
    poll = select.poll()
    for s in sockets:
        poll.register(s, select.POLLRDHUP)
    return len(poll.poll(0))


def ticks(pid):
    with open(f"/proc/{pid}/stat") as f:
        return sum(int(n) for n in f.read().rsplit(") ", 1)[1].split()[11:13])


def case_bounds():
    since = mark()[1]
    held = hold(620)
    check("one instance has at most 512 connections, others are refused at once",
          until(lambda: sum(1 for r in records.all[since:] if r["reason"] == "too many connections of this instance") >= 80, 10), len(held), records.all[-1])
    hostd.views(slot("allow good.example.org 443", number=2, instance="b"), whole=False)
    code, out, err = curl("https://good.example.org/hello", resolve={"good.example.org": EVIL}, ns="other")
    check("another instance does not feel it", code == 0, err)
    with open(f"/proc/{hostd.process.pid}/status") as f:
        rss = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    check("resident with 512 of them below 16 MiB", rss < 16384, rss)
    # Asked of the sockets: of so many records at once some are lost where nobody reads them quickly.
    check("and they end after 10 s", until(lambda: ended(held) == len(held), 15), ended(held), len(held))
    for s in held:
        s.close()
    s = connect(EVIL, 443)
    began = time.monotonic()
    try:
        for byte in hello("good.example.org"):
            s.send(bytes([byte]))
            time.sleep(0.2)
    except OSError:
        pass
    check("a client that sends byte by byte has no more time than others", 9 < time.monotonic() - began < 13 * SLOW, time.monotonic() - began)
    check("the service goes on", curl("https://good.example.org/hello", resolve={"good.example.org": EVIL})[0] == 0)
    hostd.stop()
    hostd.start()
    reset_views()
    open_files = len(os.listdir(f"/proc/{hostd.process.pid}/fd"))
    hostd.stop()
    hostd.start(files=open_files)
    reset_views()
    answers = []
    t = threading.Thread(target=lambda: answers.append(curl("https://good.example.org/hello", resolve={"good.example.org": EVIL})))
    before = ticks(hostd.process.pid)
    t.start()
    time.sleep(1.5)
    check("without a free descriptor a client waits, and nothing spins", not answers and ticks(hostd.process.pid) - before < 20 * SLOW, answers, open_files, sorted(int(f) for f in os.listdir(f"/proc/{hostd.process.pid}/fd")))
    hostd.views(whole=False, gone=[2])
    t.join()
    check("and is served when there are some", answers[0][0] == 0, answers)
    hostd.stop()
    hostd.start(files=1060)
    reset_views()
    since = mark()[1]
    held = hold(200)
    time.sleep(0.5)
    check("with few descriptors there are fewer connections", any("on this host" in r["reason"] for r in records.all[since:]), len(records.all) - since)
    [s.close() for s in held]
    time.sleep(0.3)
    check("and service after them", curl("https://good.example.org/hello", resolve={"good.example.org": EVIL})[0] == 0)
    hostd.stop()
    hostd.start()
    reset_views()


def case_garbage():
    rnd = random.Random(7)
    pid = hostd.process.pid
    valid = hello("good.example.org")
    lines = mark()[0]
    for i in range(400):
        data = bytearray(valid)
        for _ in range(rnd.randrange(1, 8)):
            data[rnd.randrange(len(data))] = rnd.randrange(256)
        try:
            s = connect(EVIL, rnd.choice((443, 80)))
            s.sendall(bytes(data[:rnd.randrange(1, len(data) + 1)]) if i % 2 else bytes(data))
            s.close()
        except OSError:
            pass
    time.sleep(0.5)
    check("400 broken beginnings: the same process serves on", hostd.process.poll() is None and hostd.process.pid == pid and
          curl("https://good.example.org/hello", resolve={"good.example.org": EVIL})[0] == 0)
    check("and none of them came to a stranger", nothing_arrived(lines))


def case_confined():
    with open(f"/proc/{hostd.process.pid}/status") as f:
        status = dict(line.split(":\t") for line in f if ":\t" in line)
    check("it has no rights, a filter and another user", status["CapEff"].strip() == "0" * 16 and status["CapPrm"].strip() == "0" * 16 and status["Seccomp"].strip() == "2" and
          status["NoNewPrivs"].strip() == "1" and str(USER) in status["Uid"], status["CapEff"], status["Seccomp"])
    with open(f"/proc/{hostd.process.pid}/limits") as f:
        check("and leaves no core", next(line for line in f if line.startswith("Max core")).split()[4] == "0")


def case_death():
    stream = websocket(tls("good.example.org"), "good.example.org")
    lines = mark()[0]
    hostd.kill()
    check("killed: its streams end", closed(stream))
    began = time.monotonic()
    code, out, err = curl("https://good.example.org/hello", resolve={"good.example.org": EVIL})
    check("killed: nothing goes by it, refused at once", code == 7 and time.monotonic() - began < 2 * SLOW and not [x for x in log()[lines:] if "accept" in x], code, err)
    hostd.start()
    check("without rules nothing goes", curl("https://good.example.org/hello", resolve={"good.example.org": EVIL})[0] == 7)
    reset_views()
    check("begun anew: it serves", curl("https://good.example.org/hello", resolve={"good.example.org": EVIL})[0] == 0)
    stream = websocket(tls("good.example.org"), "good.example.org")
    hostd.link.close()
    time.sleep(0.2)
    check("without hostd it goes on with what it has", echoes(stream) and curl("https://good.example.org/hello", resolve={"good.example.org": EVIL})[0] == 0)
    hostd.connect()
    reset_views()
    check("and a new hostd disturbs no stream", echoes(stream))
    stream.close()


def case_interface():
    run("ip", "link", "del", "hv0001")
    wire("client", 1)
    check("a wire that was made anew is listened on", until(lambda: curl("https://good.example.org/hello", resolve={"good.example.org": EVIL})[0] == 0, 8))


def case_many():
    """Addresses of which the first do not answer."""
    run("ip", "netns", "exec", "internet", "nft", "add table inet d; add chain inet d i { type filter hook input priority 0; }; add rule inet d i ip daddr " + BAD_PORTS + " drop")
    resolver.names["many.example.org"] = [BAD_PORTS, GOOD]
    began = time.monotonic()
    code, out, err = curl("https://many.example.org/hello", resolve={"many.example.org": EVIL})
    check("an address that does not answer costs a moment", code == 0 and time.monotonic() - began < 2 * SLOW, time.monotonic() - began, err)
    lines, since = mark()
    asked = len(resolver.asked)
    t = threading.Thread(target=curl, args=("https://many.example.org/hello",), kwargs=dict(resolve={"many.example.org": EVIL}))
    t.start()
    until(lambda: len(resolver.asked) >= asked + 2, 5)
    time.sleep(0.05)
    hostd.views(slot(f"deny {GOOD}/32", "allow many.example.org 443"), whole=False)
    t.join()
    check("rules that change while it is being connected hold for every address", not [x for x in log()[lines:] if "sni" in x] and
          records.find(since, name="many.example.org", verdict="deny", address=GOOD), log()[lines:], records.all[since:])
    reset_views()
    resolver.names["many.example.org"] = ["10.0.0.1", GOOD]
    since = mark()[1]
    code, out, err = curl("https://many.example.org/hello", resolve={"many.example.org": EVIL})
    check("a private address among others is left out", code == 0 and records.find(since, name="many.example.org", address=GOOD), err)


def download(port, n, first=b""):
    s = connect(GOOD, port, timeout=60)
    began = time.monotonic()
    s.sendall(first + b"SEND %d\n" % n)
    got, buffer = 0, bytearray(1 << 20)
    while size := s.recv_into(buffer):
        got += size
    assert got == n, (got, n)
    return time.monotonic() - began


def case_wire():
    """A client that does not read: what waits for it does so at the server, not in its socket; and all of it comes."""
    n = 64 << 20
    run("nft", "add rule inet t p iifname hv0001 tcp dport 9001 redirect to :8443")
    hostd.views(slot("allow good.example.org 443,9001"), whole=False)
    s = connect(GOOD, 9001, timeout=60)
    s.sendall(hello("good.example.org") + b"SEND %d\n" % n)
    seen = lambda: run("ss", "-Htin", "state", "established", "sport", "=", ":8443")
    unsent = lambda: [int(x) for x in re.findall(r"notsent:(\d+)", seen())]
    check("what waits for the client in its socket is bounded", until(lambda: unsent()) and (time.sleep(1), max(unsent()) <= 256 << 10)[1], seen())
    check("no pacing on a wire of this host", " reno " in seen(), seen())
    got, buffer = 0, bytearray(1 << 20)
    while size := s.recv_into(buffer):
        got += size
    check("a client that was slow gets all of it", got == n, got)
    handle = [x for x in run("nft", "-a", "list", "chain", "inet", "t", "p").splitlines() if "9001" in x][0].split()[-1]
    run("nft", "delete", "rule", "inet", "t", "p", "handle", handle)
    reset_views()


def case_bench():
    """Prints the microseconds of a spliced stream and of one that is only routed, in turn."""
    n = int(os.environ.get("PROXY_BENCH_BYTES", 1 << 30))
    run("nft", "add rule inet t p iifname hv0001 tcp dport 9001 redirect to :8443")
    hostd.views(slot("allow good.example.org 443,9001"), whole=False)
    rounds = []
    for _ in range(int(os.environ.get("PROXY_BENCH_ROUNDS", 5))):
        spliced = download(9001, n, hello("good.example.org"))
        handle = [x for x in run("nft", "-a", "list", "chain", "inet", "t", "p").splitlines() if "9001" in x][0].split()[-1]
        run("nft", "delete", "rule", "inet", "t", "p", "handle", handle)
        direct = download(9001, n)
        run("nft", "add rule inet t p iifname hv0001 tcp dport 9001 redirect to :8443")
        rounds.append((spliced, direct))
    for spliced, direct in rounds:
        print(f"splice {spliced * 1e6:.0f}\ndirect {direct * 1e6:.0f}", flush=True)
    reset_views()


# ---- all of it

def reset_views():
    applied = hostd.views(slot(*RULES), slot("allow other.example.org 443", number=2, instance="b"))
    assert applied == 0, os.strerror(-applied)
    return applied


def http_server(name, bind, answer, ns=None):
    """A HAProxy that answers everything with that."""
    with open(f"{RUN}/cert", "rb") as cert, open(f"{RUN}/key", "rb") as key, open(f"{RUN}/both", "wb") as f:
        f.write(cert.read() + key.read())
    with open(f"{RUN}/{name}.cfg", "w") as f:
        f.write(f"""defaults
            mode http
            timeout client 10s
        frontend f
            bind {bind.format(both=RUN + "/both")}
            http-request return status 200 content-type text/plain {answer}
""")
    return subprocess.Popen([*(["ip", "netns", "exec", ns] if ns else []), "haproxy", "-db", "-f", f"{RUN}/{name}.cfg"], stderr=subprocess.DEVNULL)


resource.setrlimit(resource.RLIMIT_NOFILE, (16384, 16384))
network()
certificates(NAMES)
open(f"{RUN}/origin.log", "w").close()
origin = subprocess.Popen(["ip", "netns", "exec", "internet", sys.executable, f"{HERE}/proxy_origin.py", f"{RUN}/origin.log", f"{RUN}/cert", f"{RUN}/key", GOOD, EVIL, BAD_PORTS, GOOD6])
web = http_server("h2", WEB2 + ":443 ssl crt {both} alpn h2,http/1.1", "string h2", "internet")
records = Records()
resolver = Resolver({**{n: [GOOD, GOOD6] for n in NAMES}, "evil.example.org": [EVIL], "h2.example.org": [WEB2], "private.example.org": ["10.99.0.2", "fd00::1"],
                     "gone.example.org": -2})
hostd = Hostd(sys.argv[1])
os.chmod(RUN, 0o755)
hostd.start()
assert until(lambda: "ready" in log()), "the origin did not start"
check("the rules are taken", (taken := reset_views()) == 0, taken, open(f"{RUN}/stderr").read())
wanted = sys.argv[2:] or [name[5:] for name in list(globals()) if name.startswith("case_") and name != "case_bench"]
for name in wanted:
    try:
        globals()["case_" + name]()
    except Exception as e: # one case that breaks off must not hide the others
        check(f"{name} ended", False, type(e).__name__, e, "line", e.__traceback__.tb_lineno, [f.lineno for f in __import__("traceback").extract_tb(e.__traceback__)])
check("the program lives", hostd.process.poll() is None, open(f"{RUN}/stderr").read())
check("it stops when it is told", hostd.process.poll() is None and hostd.stop() is None)
for process in (origin, web):
    process.terminate()
print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
