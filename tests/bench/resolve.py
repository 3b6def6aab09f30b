# SPDX-License-Identifier: GPL-2.0-or-later
"""The measuring of tests/bench/resolve, which makes the namespaces and starts this."""
import os, shutil, statistics, subprocess, sys, time

here, program = sys.argv[1:3]
sys.argv[1] = program
sys.path.insert(0, os.path.join(here, "../integration"))
import resolver_test as t  # noqa: E402: its wires, fake hostd and program

ROUNDS, SECONDS, NAMES = int(os.environ.get("BENCH_ROUNDS", "7")), os.environ.get("BENCH_SECONDS", "2"), 1000
UNBOUND = """server:
  do-daemonize: no
  use-syslog: no
  verbosity: 0
  username: ""
  chroot: ""
  directory: "/mnt"
  pidfile: ""
  interface: 169.254.0.1@8454
  ip-freebind: yes
  access-control: 0.0.0.0/0 allow
  num-threads: 1
  do-ip6: no
  module-config: "iterator"
  do-not-query-localhost: no
  statistics-interval: 0
remote-control:
  control-enable: no
forward-zone:
  name: "."
  forward-addr: 192.0.2.53
"""


def load(port, window):
    out = subprocess.run(["ip", "netns", "exec", "c1", "/mnt/dns_load", "169.254.0.1", str(port), SECONDS, str(NAMES), str(window)], capture_output=True, text=True, check=True)
    rate, wrong, lost = out.stdout.split()
    if int(wrong) or int(lost):
        print("bench: port %d: %s wrong, %s lost" % (port, wrong, lost), file=sys.stderr)
    return float(rate)


def warm(port):
    """Each name once, slowly enough for a name server that is a test's."""
    with t.Inside("c1"):
        s = t.socket.socket(t.socket.AF_INET, t.socket.SOCK_DGRAM)
    s.settimeout(2)
    s.connect(("169.254.0.1", port))
    for i in range(NAMES):
        for _ in range(5):
            s.send(t.query("n%d.bench.example" % i))
            try:
                if t.Message(s.recv(4096)).addresses():
                    break
            except OSError:
                pass
        else:
            sys.exit("bench: port %d does not answer n%d.bench.example" % (port, i))


def line(name, ours, peers):
    value, peer = statistics.median(ours), statistics.median(peers) if peers else 0
    ratio = "%.3f" % (value / peer) if peer else "-"
    met = "-" if not peer else "yes" if value >= 0.5 * peer else "no"
    print("bench %s value=%.0f unit=questions/s peer=%s ratio=%s n=%d p99=- limit=least:0.5 met=%s" % (name, value, "%.0f" % peer if peer else "-", ratio, len(ours), met), flush=True)


def main():
    zone = {("n%d.bench.example" % i, "A"): [("A", 3600, "20.3.%d.%d" % (i // 250, i % 250 + 1))] for i in range(NAMES)}
    shutil.copy(program, t.PROGRAM)
    t.wires()
    t.Upstream(lambda: t.Inside("up"), "192.0.2.53", zone)
    sink = subprocess.Popen(["/mnt/dns_load", "sink", "/run/hostd/flow-records.sock"])
    assert t.until(lambda: os.path.exists("/run/hostd/flow-records.sock"))
    os.chmod("/run/hostd/flow-records.sock", 0o666)
    resolver = t.Program()
    hostd = t.Hostd("/run/hostd/resolver.sock")
    hostd.connect()
    rules = t.allow(*["x%d.example.org" % i for i in range(999)], "*.bench.example")
    assert hostd.views([t.slot(1, rules, rate=10000000, burst=10000000, names=1000000)]) == 0
    peer = None
    if shutil.which("unbound"):
        open("/mnt/unbound.conf", "w").write(UNBOUND)
        peer = subprocess.Popen(["unbound", "-d", "-c", "/mnt/unbound.conf"])
        time.sleep(1)
    else:
        print("SKIP: resolve: unbound is not installed: no peer")
    warm(8453)
    if peer:
        warm(8454)
    for name, window in ("resolve", 64), ("resolve-one", 1):
        ours, peers = [], []
        for _ in range(ROUNDS):
            ours.append(load(8453, window))
            if peer:
                peers.append(load(8454, window))
        line(name, ours, peers)
    rss = int(resolver.status("VmRSS").split()[0])
    print("bench resolve-resident value=%d unit=KiB peer=- ratio=- n=1 p99=- limit=max:8192 met=%s" % (rss, "yes" if rss <= 8192 else "no"))
    for p in sink, peer:
        if p:
            p.kill()
    resolver.stop()


main()
os._exit(0)
