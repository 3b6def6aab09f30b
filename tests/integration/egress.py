# SPDX-License-Identifier: GPL-2.0-or-later
"""The border as a whole: what real programs reach through it, what root inside may try against it, and what passes while policies change.

What must not arrive is looked for where it would: on the uplink, at the origins and the attacker, at the neighbour, in the host's own services. Run by
egress.sh in a machine of its own: egress.py WORK [clients|swaps|attempts[=WHICH]|bench-intercept|bench-rotate]...
"""
import hashlib, json, os, re, shutil, signal, socket, ssl, subprocess, sys, threading, time, zipfile

from border_world import SLOW, run, until
from egress_frames import client_hello, server_names
from egress_table import BARE, OPEN, PT_A, TABLE, WIRE, connect
from egress_world import *

counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(ok, what, detail=""):
    counts["passed" if ok else "failed"] += 1
    print(("ok    " if ok else "FAIL  ") + what + ("" if ok else " (%s)" % str(detail)[:300]), flush=True)
    return ok


def skip(what):
    counts["skipped"] += 1
    print("SKIP  " + what, flush=True)


# ---- real programs

def mirror_files(w):
    """A repository for each of the programs, as static files."""
    top = w.work + "/www"
    for d in ("git", "pip/simple/hostd-egress", "npm", "apt"):
        os.makedirs(top + "/" + d)
    if shutil.which("git"):
        repo = w.work + "/repo"
        quiet = {"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t"}
        run("sh", "-c", 'git init -q "$0" && cd "$0" && echo from the mirror >file && git add file && git commit -qm one && git clone -q --bare . "$1" && cd "$1" && git update-server-info',
            repo, top + "/git/repo.git", env={**os.environ, **quiet})
    wheel = "hostd_egress-1.0-py3-none-any.whl"
    with zipfile.ZipFile(top + "/pip/simple/hostd-egress/" + wheel, "w") as z:
        z.writestr("hostd_egress.py", "x = 1\n")
        z.writestr("hostd_egress-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: hostd-egress\nVersion: 1.0\n")
        z.writestr("hostd_egress-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("hostd_egress-1.0.dist-info/RECORD", "")
    with open(top + "/pip/simple/hostd-egress/index.html", "w") as f:
        f.write('<a href="%s">%s</a>' % (wheel, wheel))
    os.makedirs(w.work + "/package")
    with open(w.work + "/package/package.json", "w") as f:
        f.write('{"name": "hostd-egress", "version": "1.0.0"}')
    run("tar", "czf", top + "/npm/hostd-egress.tgz", "-C", w.work, "package")
    digest = hashlib.sha1(open(top + "/npm/hostd-egress.tgz", "rb").read()).hexdigest()
    with open(top + "/npm/hostd-egress", "w") as f:
        json.dump({"name": "hostd-egress", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {
            "name": "hostd-egress", "version": "1.0.0", "dist": {"shasum": digest, "tarball": "https://npm.mirror.example.org/npm/hostd-egress.tgz"}}}}, f)
    if shutil.which("dpkg-deb"):
        os.makedirs(w.work + "/deb/DEBIAN")
        with open(w.work + "/deb/DEBIAN/control", "w") as f:
            f.write("Package: hostd-egress\nVersion: 1.0\nArchitecture: all\nMaintainer: t <t@t>\nDescription: t\n")
        run("dpkg-deb", "-b", w.work + "/deb", top + "/apt/hostd-egress_1.0_all.deb")
        deb = open(top + "/apt/hostd-egress_1.0_all.deb", "rb").read()
        with open(top + "/apt/Packages", "w") as f:
            f.write("Package: hostd-egress\nVersion: 1.0\nArchitecture: all\nMaintainer: t <t@t>\nDescription: t\nFilename: ./hostd-egress_1.0_all.deb\nSize: %d\nSHA256: %s\n\n"
                    % (len(deb), hashlib.sha256(deb).hexdigest()))


def program(w, what, want, *words, tool=None, env=None, seconds=40):
    tool = tool or words[0]
    if not shutil.which(tool):
        skip("%s: %s is not installed" % (what, tool))
        return
    try:
        done = w.client(*words, env=env, seconds=seconds)
    except subprocess.TimeoutExpired:
        check(False, what, "it did not end")
        return
    good = done.returncode == 0 if want is True else done.returncode != 0 if want is False else re.search(want, done.stdout) is not None
    check(good, what, done.stdout[-300:])


def denied(w, what, *words, text=None, tool=None, env=None):
    """A program that is told no: soon, and nobody outside hears of it."""
    if not shutil.which(tool or words[0]):
        skip("%s: %s is not installed" % (what, tool or words[0]))
        return
    w.settle()
    begin = time.monotonic()
    done = w.client(*words, env=env, seconds=60)
    took = time.monotonic() - begin
    bad = w.violations(b"evil.example", False)
    check(done.returncode != 0 and not bad and took < (8 if "curl" in what else 30) * SLOW and (not text or re.search(text, done.stdout)), "%s (%.1f s)" % (what, took), bad or done.stdout[-300:])


def test_clients(w):
    mirror_files(w)
    ca, evil = w.work + "/ca.pem", "evil.example.org"
    to_evil = ["--resolve", "evil.example.org:443:" + EVIL]
    program(w, "curl by name", GOOD, "curl", "-sS", "--cacert", ca, "https://good.example.org/")
    program(w, "curl in IPv6", GOOD6, "curl", "-sS6", "--cacert", ca, "https://good.example.org/")
    program(w, "curl of plain HTTP", PLAIN, "curl", "-sS", "http://plain.example.org/")
    program(w, "curl by the explicit proxy", GOOD, "curl", "-sS", "--cacert", ca, "https://good.example.org/", env={"https_proxy": "http://%s:3128" % GATEWAY})
    denied(w, "curl of a denied name", "curl", "-sS", "--cacert", ca, "https://evil.example.org/")
    denied(w, "curl that knows its address", "curl", "-sS", "--cacert", ca, *to_evil, "https://evil.example.org/")
    denied(w, "curl of plain HTTP, told why", "curl", "-sS", "-f", "--resolve", "evil.example.org:80:" + PLAIN, "http://evil.example.org/", text="403")
    program(w, "openssl s_client by name", "Verify return code: 0", "sh", "-c", "openssl s_client -connect good.example.org:443 -servername good.example.org -CAfile %s </dev/null" % ca, tool="openssl")
    denied(w, "openssl with another name", "sh", "-c", "openssl s_client -connect %s:443 -servername evil.example.org -CAfile %s </dev/null" % (GOOD, ca), tool="openssl", text="alert")
    program(w, "dig of an allowed name", "^" + re.escape(GOOD), "dig", "+short", "+tries=1", "good.example.org")
    program(w, "dig by TCP", "^" + re.escape(GOOD), "dig", "+short", "+tcp", "+tries=1", "good.example.org")
    w.settle()
    program(w, "dig of a denied name, told why", "(?s)REFUSED.*EDE.*no rule", "dig", "+tries=1", evil, tool="dig")
    program(w, "dig that asks somebody else", "REFUSED", "dig", "+tries=1", "@" + EVIL, evil, tool="dig")
    check(not w.violations(b"evil", False), "dig's denied questions reach nobody")
    git = {"GIT_SSL_CAINFO": ca, "HOME": w.work, "GIT_TERMINAL_PROMPT": "0"}
    program(w, "git clone by name", True, "git", "clone", "-q", "https://git.mirror.example.org/git/repo.git", w.work + "/clone", env=git)
    denied(w, "git clone of a denied name", "git", "clone", "-q", "https://git.evil.example.org/git/repo.git", w.work + "/clone2", env=git)
    python = next((p for p in ("/usr/bin/python3", shutil.which("python3")) if p and subprocess.run([p, "-m", "pip", "--version"], capture_output=True).returncode == 0), None)
    if python:
        pip = [python, "-m", "pip", "--isolated", "download", "--no-deps", "--no-cache-dir", "--retries", "0", "--disable-pip-version-check", "--cert", ca, "-d", w.work + "/wheels"]
        program(w, "pip by name", True, *pip, "-i", "https://pip.mirror.example.org/pip/simple/", "hostd-egress")
        denied(w, "pip of a denied name", *pip, "-i", "https://pip.evil.example.org/pip/simple/", "hostd-egress")
    else:
        skip("pip: no python3 here has it")
    npm = ["npm", "install", "--no-audit", "--no-fund", "--fetch-retries=0", "--cafile", ca, "--cache", w.work + "/npm-cache", "--prefix", w.work + "/npm-here"]
    program(w, "npm by name", True, *npm, "--registry", "https://npm.mirror.example.org/npm/", "hostd-egress", env={"HOME": w.work}, seconds=90)
    denied(w, "npm of a denied name", *npm, "--registry", "https://npm.evil.example.org/npm/", "hostd-egress-2", env={"HOME": w.work})
    apt = ["-o", "Dir::State::status=/dev/null", "-o", "APT::Sandbox::User=root", "-o", "Acquire::https::CaInfo=" + ca, "-o", "Acquire::Retries=0", "-o", "Dir::Etc::sourceparts=-",
           "-o", "APT::Update::Error-Mode=any", "-o", "Acquire::Languages=none"]
    for kind, host in (("https", "apt.mirror"), ("http", "mirror"), ("https", "apt.evil")):
        state = "%s/apt-%s-%s" % (w.work, kind, host)
        os.makedirs(state + "/lists/partial")
        os.makedirs(state + "/cache/archives/partial")
        with open(state + "/list", "w") as f:
            f.write("deb [trusted=yes] %s://%s.example.org/apt ./\n" % (kind, host))
        words = ["apt-get", *apt, "-o", "Dir::State::lists=%s/lists" % state, "-o", "Dir::Cache=%s/cache" % state, "-o", "Dir::Etc::sourcelist=%s/list" % state]
        if host == "apt.evil":
            denied(w, "apt of a denied name", *words, "update")
        else:
            program(w, "apt update by %s" % kind, True, *words, "update")
            program(w, "apt download by %s" % kind, True, "sh", "-c", 'cd "$0" && "$@"', state, *words, "download", "hostd-egress", tool="apt-get")
    w.requests.clear()
    program(w, "curl with the placeholder", API, "curl", "-sSk", "-H", "Authorization: Bearer " + w.placeholder, "https://api.example.org/v1/x")
    heads = [h for a, h in w.requests if a == API]
    check(heads and ("Bearer " + w.secret).encode() in heads[-1] and b"hostd-ph-" not in heads[-1], "the origin got the value, and the workload had the placeholder alone", heads)
    check(w.secret not in w.client("sh", "-c", "env; cat /proc/self/environ").stdout, "the workload has the value nowhere")


# ---- root inside who wants out

def tag_of(number, phase):
    return ("atk%03d%s" % (number, phase)).encode() + b"zq"


def attempt(w, row, number, phase):
    tag = tag_of(number, phase)
    w.settle()
    own = row.act(w, tag) or []
    time.sleep(0.02 * SLOW)
    return list(own) + w.violations(tag, row.carries), any(tag in f for f in w.wire.drain())


def test_attempts(w, which=""):
    begin = time.monotonic()
    seen, table = {}, [row for row in TABLE if re.search(which, row.what)]
    for n, row in enumerate(table):
        try:
            bad, on_wire = attempt(w, row, n, "a")
        except Exception as e:
            bad, on_wire = ["the attempt itself: %r" % e], False
        check(not bad, "stopped: " + row.what, bad[:4])
        if row.control == WIRE:
            seen[n] = on_wire
        elif callable(row.control):
            w.settle()
            tag = tag_of(n, "c")
            seen[n] = bool((row.control(w, tag) or []) or w.violations(tag, False))
    print("# %d attempts in %.0f s" % (len(table), time.monotonic() - begin))
    w.policy("pt-names", ["allow *", "allow * tcp 80", "allow 0.0.0.0/0", "allow ::/0"])
    for n, row in enumerate(table):
        if row.control == OPEN:
            for _ in range(5):  # a program that takes its time over a changed policy is shut off for as long
                seen[n] = attempt(w, row, n, "o")[0]
                if seen[n]:
                    break
                time.sleep(SLOW)
    w.policy("pt-names", RULES)
    w.tear_down()
    for n, row in enumerate(table):
        if row.control == BARE:
            for _ in range(3):  # nothing answers for the host's neighbours until they are known
                seen[n] = attempt(w, row, n, "b")[0]
                if seen[n]:
                    break
    for n, row in enumerate(table):
        check(seen.get(n), "seen by the captures when %s: %s" % ({BARE: "there is no fence", OPEN: "everything is allowed", WIRE: "on its own wire"}.get(row.control, "it may pass"), row.what))
    print("# with their controls %.0f s" % (time.monotonic() - begin))


# ---- policies that change under load

def in_child(w, ns, function):
    pid = os.fork()
    if pid == 0:
        try:
            assert LIBC.setns(w.ns[ns], 0) == 0
            while True:
                function()
        finally:
            os._exit(0)
    return pid


def load_datagrams():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(100):
        for address in (EVIL, MOVING) * 5:
            try:
                s.sendto(b"load", (address, 8000))
            except OSError:
                pass
        time.sleep(0.004)
    s.close()


def load_connections():
    for address, port, data in ((EVIL, 8000, b"load"), (MOVING, 8000, b"load"), (EVIL, 443, client_hello(server_names(b"evil.example.org"), b"load")),
                                (EVIL, 443, client_hello(server_names(b"moving.example.org"), b"load"))):
        s = socket.socket()
        s.settimeout(0.3 * SLOW)
        try:
            s.connect((address, port))
            s.sendall(data)
            s.recv(100)
        except OSError:
            pass
        s.close()


def load_stream():
    s = socket.socket()
    s.settimeout(0.3 * SLOW)
    try:
        s.connect((MOVING, 8000))
        while True:
            s.sendall(b"stream" * 20)
            s.recv(4096)
            time.sleep(0.001)
    except OSError:
        time.sleep(0.002)
    s.close()


class Flow(threading.Thread):
    """A conversation that must not notice anything: how often it spoke, whether it died, what was sent again."""

    def __init__(self, sock, question, kind):
        super().__init__(daemon=True)
        self.socket, self.question, self.kind = sock, question, kind
        self.dead, self.trips, self.running, self.gap = None, 0, True, 0.0
        sock.settimeout(20 * SLOW)
        self.start()

    def run(self):
        while self.running and not self.dead:
            begin = time.monotonic()
            try:
                self.socket.sendall(self.question)
                if not self.socket.recv(65536):
                    self.dead = "closed"
            except OSError as e:
                self.dead = repr(e)
            self.trips += 1
            self.gap = max(self.gap, time.monotonic() - begin)
            time.sleep(0.002)

    def sent_again(self):
        return struct.unpack("I", self.socket.getsockopt(socket.IPPROTO_TCP, 11, 104)[100:104])[0]  # tcpi_total_retrans


def test_swaps(w, swaps=200):
    yes = RULES + ["allow %s/32 tcp 8000" % MOVING, "allow %s/32 udp 8000" % MOVING, "allow moving.example.org", "deny %s/32" % EVIL]
    shapes = ([r for r in RULES if "inspect" not in r], ["deny %s/32" % MOVING, "deny moving.example.org"] + [r for r in RULES if "inspect" not in r],
              [r for r in RULES[::-1] if "inspect" not in r])
    yes = [r for r in yes if "inspect" not in r]
    w.policy("pt-names", yes)
    name = ssl.create_default_context(cafile=w.work + "/ca.pem").wrap_socket(connect(w, GOOD, 443, timeout=10), server_hostname="good.example.org")
    flows = [Flow(connect(w, DIRECT, 8000, timeout=10), b"x", "pt-a's by address"), Flow(name, b"GET / HTTP/1.1\r\nHost: good.example.org\r\n\r\n", "pt-a's by name"),
             Flow(connect(w, KEEP, 8000, name="pt-b", timeout=10), b"x", "the neighbour's")]
    children = [in_child(w, PT_A, f) for f in (load_datagrams, load_connections, load_stream)]
    watch, arrived = Capture(HOST_NS, "uplk", outgoing=True), Capture(w.outside, "inet0")
    frames, windows, answers, seen, resets = [], [], [], 0, 0
    try:
        time.sleep(0.3 * SLOW)
        for i in range(swaps):
            begin = time.time()
            w.policy("pt-names", yes if i % 2 else shapes[i // 2 % 3])
            answered = time.time()
            answers.append(answered - begin)
            time.sleep(0.03)
            windows.append((answered, time.time(), bool(i % 2)))
            for place, capture in (("uplink", watch), ("origin", arrived)):
                for data, stamp in capture.stamped():
                    f = Frame(data)
                    seen += 1
                    # Whoever goes on with a connection that was cut is sent a reset, also when it is the origin: the host's word, with nothing in it.
                    reset = f.protocol == 6 and f.body[13] & 4 and len(f.body) == 20
                    resets += reset
                    if f.target in (MOVING, EVIL) and not reset:
                        frames.append((place, f.target, (f.protocol, f.port), stamp))
        time.sleep(0.1)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    lost = watch.lost() + arrived.lost()
    within = lambda stamp, allowed: any(a <= stamp <= b for a, b, yes in windows if yes == allowed)
    for place in ("uplink", "origin"):
        evil = sum(1 for p, target, _, _ in frames if p == place and target == EVIL)
        late = [(kind, s) for p, target, kind, s in frames if p == place and target == MOVING and within(s, False)]
        good = [kind for p, target, kind, s in frames if p == place and target == MOVING and within(s, True)]
        check(evil == 0, "%d swaps: no packet to what is never allowed, seen at the %s" % (swaps, place), evil)
        check(not late, "none to what was taken away, from the answer on, at the %s" % place, (len(late), late[:4]))
        check(all(kind in good for kind in ((6, 8000), (17, 8000), (6, 443))), "which sees them when they may pass: %d, by TCP, UDP and name" % len(good), set(good))
    check(lost == 0 and seen > 1000, "the captures lost nothing of %d frames" % seen, lost)
    for f in flows:
        f.running = False
    for f in flows:
        f.join(25 * SLOW)
        check(not f.dead and f.sent_again() == 0, "untouched: %s flow (%d round trips, %.0f ms the longest)" % (f.kind, f.trips, f.gap * 1000), (f.dead, f.sent_again()))
    answers.sort()
    print("# a swap took %.0f ms, the slowest %.0f; %d resets to the origins" % (answers[len(answers) // 2] * 1000, answers[-1] * 1000, resets))
    w.policy("pt-names", RULES)


def grant(w):
    """A secret that goes out by the instance's HAProxy."""
    w.secret = "real-" + os.urandom(8).hex()
    subprocess.run(["hostctl", "secret", "set", "token"], input=w.secret, text=True, check=True, stdout=subprocess.DEVNULL)
    said = run("hostctl", "secret", "grant", "token", PT_A, "--host", "api.example.org", "--header", "Authorization", "--paths", "/v1/", "--methods", "GET")
    w.placeholder = re.search(r"hostd-ph-[0-9a-f]+", said).group()
    return until(lambda: w.client("curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", "https://api.example.org/v1/").stdout == "200", 20)


# ---- measured, in the same machine (tests/bench/run)

def bench_intercept(w):
    """Microseconds of a stream through hostd-proxy and the instance's HAProxy, and of one through a HAProxy alone that ends and begins TLS and sets a header."""
    size, rounds = int(os.environ.get("EGRESS_BENCH_BYTES", 256 << 20)), int(os.environ.get("EGRESS_BENCH_ROUNDS", 5))
    with open(w.work + "/big", "wb") as f:
        f.truncate(size)
    origin = subprocess.Popen(["ip", "netns", "exec", "net", "openssl", "s_server", "-WWW", "-quiet", "-accept", FAST + ":443", "-cert", "leaf.crt", "-key", "leaf.key"],
                              cwd=w.work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    said = run("hostctl", "secret", "grant", "token", PT_A, "--host", "fast.example.org", "--header", "Authorization")
    assert "hostd-ph-" in said, said
    with open(w.work + "/bare.cfg", "w") as f:  # threads and buffers as hostd's has them
        f.write("""global
    nbthread 2
    tune.bufsize 32768
defaults
    mode http
    timeout connect 10s
    timeout client 1m
    timeout server 1m
frontend f
    bind 172.31.0.1:8443 ssl crt %s/leaf.pem alpn h2,http/1.1
    http-request set-header Authorization "Bearer %s"
    default_backend b
backend b
    server s %s:443 ssl verify required ca-file %s/ca.pem sni str(fast.example.org) verifyhost fast.example.org alpn http/1.1
""" % (w.work, w.secret, FAST, w.work))
    for line in ("ip netns add bare", "ip link add hqbare type veth peer name eth0 netns bare", "ip addr add 172.31.0.1/24 dev hqbare", "ip link set hqbare up",
                 "ip -n bare addr add 172.31.0.2/24 dev eth0", "ip -n bare link set eth0 up"):
        run(*line.split())
    bare = subprocess.Popen(["haproxy", "-db", "-f", w.work + "/bare.cfg"], stderr=subprocess.DEVNULL, start_new_session=True)
    command = ["curl", "-sSk", "--http1.1", "-o", "/dev/null", "-w", "%{time_total} %{size_download}", "https://fast.example.org/big"]

    def took(done):
        assert done.returncode == 0 and done.stdout.split()[1] == str(size), done.stdout
        return float(done.stdout.split()[0])
    elsewhere = lambda: subprocess.run(["ip", "netns", "exec", "bare", *command, "--connect-to", "fast.example.org:443:172.31.0.1:8443"], capture_output=True, text=True)
    until(lambda: elsewhere().returncode == 0, 20)
    until(lambda: w.client(*command, seconds=120).stdout.endswith(" %d" % size), 30)
    for _ in range(rounds):
        print("intercept %.0f" % (took(w.client(*command, seconds=120)) * 1e6))
        print("bare %.0f" % (took(elsewhere()) * 1e6), flush=True)
    bare.kill()
    origin.kill()


def bench_rotate(w):
    """A line for each request that was made while the secret rotated: 1 if it failed, or had a value of long before."""
    values, settled, results, running = [w.secret], [0], [], [True]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def load(number, keep):
        s = None
        for i in range(1 << 30):
            if not running[0]:
                return
            current = settled[0]
            try:
                s = s or context.wrap_socket(connect(w, API, 443, timeout=20), server_hostname="api.example.org")
                s.sendall(("GET /v1/r%d-%d HTTP/1.1\r\nHost: api.example.org\r\nAuthorization: Bearer %s\r\n\r\n" % (number, i, w.placeholder)).encode())
                answer = b""
                while not answer.endswith(API.encode()):
                    more = s.recv(65536)
                    if not more:
                        raise OSError("closed")
                    answer += more
                head = next(h for a, h in reversed(list(w.requests)) if (b"/v1/r%d-%d " % (number, i)) in h)
                good = answer.startswith(b"HTTP/1.1 200") and any(("Bearer " + v).encode() in head for v in values[current:])
            except (OSError, StopIteration):
                good, s = False, None
            results.append(not good)
            if s and not keep:
                s.close()
                s = None
    threads = [threading.Thread(target=load, args=(n, n % 2 == 0)) for n in range(4)]
    for t in threads:
        t.start()
    for n in range(int(os.environ.get("EGRESS_BENCH_ROTATIONS", 50))):
        value = "real-%d-%s" % (n, os.urandom(8).hex())
        values.append(value)  # from here on it may be used, and soon no other
        subprocess.run(["hostctl", "secret", "rotate", "token"], input=value, text=True, check=True, stdout=subprocess.DEVNULL)
        time.sleep(0.25 * SLOW)  # it is in force milliseconds after the answer
        settled[0] = n + 1
    running[0] = False
    for t in threads:
        t.join()
    for failed in results:
        print("request %d" % failed)
    print("rotations %d" % (len(values) - 1))


def main():
    wanted = sys.argv[2:] or ["clients", "swaps", "attempts"]
    w = World(sys.argv[1])
    begin = time.monotonic()
    w.make()
    if not check(grant(w), "a grant is ready"):
        print(run("hostctl", "secret", "grants"))
    print("# the world was made in %.0f s" % (time.monotonic() - begin))
    if "clients" in wanted:
        test_clients(w)
    if "swaps" in wanted:
        test_swaps(w)
    if "bench-intercept" in wanted:
        bench_intercept(w)
    if "bench-rotate" in wanted:
        bench_rotate(w)
    for word in wanted:
        if word.startswith("attempts"):
            test_attempts(w, word[9:])
    print("# %.0f s" % (time.monotonic() - begin))
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % counts)
    return counts["failed"] != 0


sys.exit(main())
