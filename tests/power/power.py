# SPDX-License-Identifier: GPL-2.0-or-later
"""Work that is recorded, and what must be true of it after a power cut.

    power.py work DEVICE ROOT...   does it on a running hostd; DEVICE takes the events (see cut.py), ROOT is a template's directory
    power.py verify DEVICE         after hostd has come up on what was left: 0, or each broken promise on a line

Each operation belongs to one key (an instance, a setting, a policy, a template), and the operations of a key follow each other. So
a key's state after the cut is known: that of the last operation that was answered, or of the one that was under way.
"""
import json
import mmap
import os
import subprocess
import sys
import threading
import time

EVENT_SIZE = 512
EVENTS_MAX = 8000


def hostctl(*words, timeout=120):
    return subprocess.run(("hostctl",) + words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)


def rows(*words):
    result = hostctl(*words, "-f", "json")
    if result.returncode:
        raise RuntimeError("hostctl %s: %s" % (" ".join(words), result.stderr.strip()))
    return next(v for v in json.loads(result.stdout).values() if isinstance(v, list))


# ---- events ------------------------------------------------------------------------------------------------------------------

class Events:
    """One sector each, past the page cache and whatever cache the disk has. A new one is on the disk before the next step."""

    def __init__(self, device):
        self.fd = os.open(device, os.O_WRONLY | os.O_DIRECT)
        self.buffer = mmap.mmap(-1, EVENT_SIZE)
        self.lock = threading.Lock()
        self.count = 0

    def add(self, **event):
        with self.lock:
            event["n"] = self.count
            text = json.dumps(event).encode()
            self.buffer[:] = text.ljust(EVENT_SIZE, b"\0")
            os.pwrite(self.fd, self.buffer, self.count * EVENT_SIZE)
            self.count += 1
            assert self.count < EVENTS_MAX


def read_events(device):
    found = []
    with open(device, "rb") as f:
        while True:
            text = f.read(EVENT_SIZE).split(b"\0")[0]
            if not text:
                return found
            found.append(json.loads(text))


# ---- work --------------------------------------------------------------------------------------------------------------------

class Work:
    def __init__(self, device):
        self.events = Events(device)
        self.failed = []

    def run(self, key, value, *words, audit=None):
        """`value` is what the key is when the command has succeeded; None: absent. `audit`: (method, target) of its record."""
        self.events.add(what="begin", key=key, value=value, audit=audit, words=" ".join(words[:2]))
        result = hostctl(*words)
        self.events.add(what="end", key=key, value=value, audit=audit, ok=result.returncode == 0)
        if result.returncode:
            self.failed.append("hostctl %s: %s" % (" ".join(words), result.stderr.strip()))

    def create(self, name, **settings):
        settings = dict(memory="64MiB", disk="64MiB", boot="last", **settings)
        words = [w for k, v in settings.items() for w in ("-s", "%s=%s" % (k, v))]
        self.run("instance " + name, "present", "create", "one", name, *words, audit=("io.hostd.Instance.Create", name))

    def delete(self, name):
        self.run("instance " + name, None, "delete", "--force", name, audit=("io.hostd.Instance.Delete", name))

    def set(self, name, key, value):
        self.run("%s %s" % (key, name), value, "set", name, "%s=%s" % (key, value), audit=("io.hostd.Instance.Set", name))

    def policy(self, name, number):
        self.run("policy " + name, number, "policy", "set", name, "allow 10.1.2.3/32 tcp %d" % number, audit=("io.hostd.Policy.Set", name))

    def policy_delete(self, name):
        self.run("policy " + name, None, "policy", "delete", name, audit=("io.hostd.Policy.Delete", name))

    def template(self, name, root):
        self.run("template " + name, "present", "template", "import", name, root, audit=("io.hostd.Template.Import", name))

    def template_delete(self, name):
        self.run("template " + name, None, "template", "delete", name, audit=("io.hostd.Template.Delete", name))

    def start(self, name):
        self.run("state " + name, "running", "start", name, audit=("io.hostd.Instance.Start", name))

    def stop(self, name):
        self.run("state " + name, "stopped", "stop", "--force", name, audit=("io.hostd.Instance.Stop", name))

    def rebuild(self, name, template):
        self.run("root " + name, template, "rebuild", name, "--force", "--template", template, audit=("io.hostd.Instance.Rebuild", name))

    def execute(self, name):
        self.run("exec " + name, None, "exec", name, "--", "sh", "-c", "cat /etc/which >/var/tmp/stamp; sync /var/tmp/stamp /var/tmp", audit=("io.hostd.Command.Exec", name))

    # Each stream goes its own way, so that things overlap as they do on a host with several users.
    def stream_instances(self, rounds):
        for i in range(rounds):
            self.create("c%d" % (i % 4))
            self.create("d%d" % (i % 4), description="power")
            self.delete("c%d" % (i % 4))
            if i % 2:
                self.delete("d%d" % (i % 4))
                self.delete("d%d" % ((i - 1) % 4))

    def stream_settings(self, rounds):
        self.create("s")
        for i in range(rounds):
            self.set("s", "memory", "%dMiB" % (65 + i))
            self.policy("p%d" % (i % 3), 1000 + i)
            self.set("s", "pids", str(100 + i))
            if i % 3 == 2:
                self.policy_delete("p%d" % (i % 3))

    def stream_templates(self, rounds, roots):
        for i in range(rounds):
            self.template("t%d" % (i % 2), roots[2 + i % 2])
            self.template_delete("t%d" % (i % 2))

    def stream_running(self, rounds):
        self.create("r")
        for i in range(rounds):
            self.start("r")
            self.execute("r")
            if i % 3 == 1:
                self.rebuild("r", ("one", "two")[i // 3 % 2])
            else:
                self.stop("r")

    def all(self, rounds, roots):
        self.template("one", roots[0])
        self.template("two", roots[1])
        streams = [(self.stream_instances, rounds), (self.stream_settings, rounds), (self.stream_templates, rounds, roots),
                   (self.stream_running, rounds)]
        threads = [threading.Thread(target=s[0], args=s[1:]) for s in streams]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.events.add(what="over")


# ---- promises ----------------------------------------------------------------------------------------------------------------

def expected(events):
    """key -> the values it may have. A refused operation changes nothing, one that was under way may have come to its end."""
    may = {}
    for e in events:
        if e["what"] == "begin":
            may.setdefault(e["key"], [None]).append(e["value"])
        elif e["what"] == "end" and not e["ok"]:
            may[e["key"]].pop()
        elif e["what"] == "end":
            may[e["key"]] = [e["value"]]
    return may


def wait_until(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def run_of(name):
    return {r["name"]: r["state"] for r in rows("list")}.get(name)


class Promises:
    def __init__(self, device, etc, state):
        self.events = read_events(device)
        self.may = expected(self.events)
        self.etc, self.state = etc, state
        self.broken = []

    def say(self, text):
        self.broken.append(text)

    def check(self, truth, text):
        if not truth:
            self.say(text)

    def git(self, *words):
        return subprocess.run(("git", "-c", "safe.directory=*", "-C", self.etc) + words, capture_output=True, text=True)

    def up(self):
        if not wait_until(60, lambda: hostctl("info").returncode == 0):
            self.say("hostd does not come up")
            return False
        return True

    def keys(self):
        instances = {r["name"]: r for r in rows("list")}
        policies = {r["policy"] for r in rows("policy", "list")}
        templates = {r["name"] for r in rows("template", "list")}
        for key, may in self.may.items():
            kind, name = key.split(" ", 1)
            if kind == "instance":
                now = "present" if name in instances else None
            elif kind == "policy":
                now = None
                if name in policies:
                    text = hostctl("policy", "show", name).stdout
                    now = next((m for m in may if m and str(m) in text.split()), "something else: " + text)
            elif kind == "template":
                now = "present" if name in templates else None
            elif kind in ("memory", "pids") and name in instances:
                value = json.loads(hostctl("show", name, "-f", "json").stdout)[kind]
                now = "%dMiB" % (value >> 20) if kind == "memory" else str(value)
                if now not in may and None in may:
                    continue  # what it had at its creation
            else:
                continue
            self.check(now in may, "%s is %s and not one of %s" % (key, now, may))

    def runs(self):
        """Everything whole: it starts and answers. What was answered as started runs again by itself."""
        for name in [r["name"] for r in rows("list")]:
            may = self.may.get("state " + name, [None])
            if may == ["running"] and len(self.may.get("root " + name, [None])) == 1:
                self.check(wait_until(60, lambda n=name: run_of(n) == "running"), "%s was started and does not run: %s" % (name, run_of(name)))
            elif may == ["stopped"] and run_of(name) != "stopped":
                self.say("%s was stopped and is %s" % (name, run_of(name)))
            result = hostctl("start", name)
            if result.returncode:
                self.say("%s does not start: %s" % (name, result.stderr.strip()))
                continue
            result = hostctl("exec", "--user", "agent", name, "--", "sh", "-c", "cat /etc/which; test -s ~/.profile && echo profile; echo x >~/w && rm ~/w; cat /var/tmp/stamp 2>/dev/null")
            lines = result.stdout.split()
            self.check(lines[:1] in (["one"], ["two"]) and lines[1:2] == ["profile"] and lines[2:] in ([], lines[:1]),
                       "%s is not whole: %s %s" % (name, lines, result.stderr.strip()))
            digest = json.loads(hostctl("show", name, "-f", "json").stdout)["digest"]
            of = {r["digest"]: r["name"] for r in rows("template", "list")}.get(digest)
            self.check([of] == lines[:1], "%s has the root of %s and the record of %s" % (name, lines[:1], of))
            if "root " + name in self.may:
                self.check(of in [m or "one" for m in self.may["root " + name]], "%s is of %s, not %s" % (name, of, self.may["root " + name]))
            hostctl("stop", "--force", name)

    def configuration(self):
        clean = wait_until(20, lambda: self.git("status", "--porcelain").stdout == "" and self.git("rev-parse", "HEAD").returncode == 0)
        self.check(clean, "the configuration is no commit: %s" % (self.git("status", "--porcelain").stdout or self.git("rev-parse", "HEAD").stderr))
        result = self.git("fsck", "--full", "--strict")
        self.check(result.returncode == 0, "git fsck: %s" % (result.stdout + result.stderr).strip())
        log = self.git("log", "--format=%B").stdout
        words = {"io.hostd.Instance.Create": "create", "io.hostd.Instance.Delete": "delete", "io.hostd.Instance.Set": "set",
                 "io.hostd.Policy.Set": "policy set", "io.hostd.Policy.Delete": "policy delete"}
        for (method, target), count in self.answered().items():
            if method in words:
                text = "%s %s" % (words[method], target)
                found = sum(part.split(" (")[0].strip() == text for line in log.splitlines() for part in line.split(";"))
                self.check(found >= count, "%d of %d answered \"%s\" are in the history" % (found, count, text))

    def answered(self):
        count = {}
        for e in self.events:
            if e["what"] == "end" and e["ok"] and e["audit"]:
                count[tuple(e["audit"])] = count.get(tuple(e["audit"]), 0) + 1
        return count

    def audit(self):
        result = hostctl("audit", "verify")
        self.check(result.returncode == 0, "audit verify: %s" % result.stderr.strip())
        have = {}
        for r in rows("audit", "query"):
            if r["result"] == "ok":
                have[(r["method"], r["target"])] = have.get((r["method"], r["target"]), 0) + 1
        for (method, target), count in self.answered().items():
            self.check(have.get((method, target), 0) >= count, "%d of %d answered %s %s are in the audit log" % (have.get((method, target), 0), count, method, target))

    def leftovers(self):
        result = hostctl("leaks")
        self.check(result.returncode == 0 and not result.stdout.strip(), "leaks: %s%s" % (result.stdout.strip(), result.stderr.strip()))
        there = set(os.listdir(self.state + "/instances"))
        names = {r["name"] for r in rows("list")}
        self.check(there == names, "storage of %s, instances %s" % (sorted(there), sorted(names)))
        trash = self.state + "/.trash"
        self.check(wait_until(60, lambda: not os.path.isdir(trash) or not os.listdir(trash)), "the trash is not emptied: %s" % (os.path.isdir(trash) and os.listdir(trash)))
        files = os.listdir(self.state + "/templates")
        digests = {r["digest"] for r in rows("template", "list")}
        odd = [f for f in files if f.split(".")[0] not in digests or f.split(".")[-1] not in ("erofs", "json")]
        self.check(not odd, "leftovers in templates: %s" % odd)
        self.check(not os.listdir(self.state + "/build"), "leftovers in build: %s" % os.listdir(self.state + "/build"))
        for folder in ("", "/instances.d", "/policies.d"):
            odd = [f for f in os.listdir(self.etc + folder) if f.endswith(".tmp")]
            self.check(not odd, "leftovers in the configuration: %s" % odd)
        odd = [f for f in os.listdir(self.state) if "corrupt" in f]
        self.check(not odd, "the store was damaged: %s" % odd)
        odd = [f for f in os.listdir(self.state + "/audit") if f.endswith(".tmp")]
        self.check(not odd, "leftovers in audit: %s" % odd)
        for w in rows("warning", "list"):
            self.say("warning: %s %s: %s" % (w["kind"], w["entity"], w["text"]))

    def images(self):
        for r in rows("template", "list"):
            path = "%s/templates/%s.erofs" % (self.state, r["digest"])
            out = subprocess.run(("sha256sum", path), capture_output=True, text=True).stdout.split()
            self.check(out[:1] == [r["digest"]], "the image of %s is not what its name says" % r["name"])

    def all(self):
        if not self.up():
            return
        for part in (self.keys, self.configuration, self.audit, self.images, self.leftovers, self.runs):
            try:
                part()
            except (RuntimeError, KeyError, ValueError, subprocess.TimeoutExpired) as e:
                self.say("%s: %r" % (part.__name__, e))
        result = hostctl("leaks")
        self.check(result.returncode == 0 and not result.stdout.strip(), "leaks afterwards: %s" % result.stdout.strip())


def main():
    if sys.argv[1] == "work":
        work = Work(sys.argv[2])
        work.all(int(sys.argv[3]), sys.argv[4:])
        print("%d events, %d refused" % (work.events.count, len(work.failed)))
        for text in work.failed:
            print("refused: " + text)
        return 1 if work.failed else 0
    promises = Promises(sys.argv[2], "/etc/hostd", "/var/lib/hostd")
    promises.all()
    for text in promises.broken:
        print("BROKEN " + text)
    events = promises.events
    print("%d answered, %d under way" % (sum(e["what"] == "end" for e in events), sum(e["what"] == "begin" for e in events) - sum(e["what"] == "end" for e in events)))
    return 1 if promises.broken else 0


if __name__ == "__main__":
    sys.exit(main())
