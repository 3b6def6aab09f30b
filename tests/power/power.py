# SPDX-License-Identifier: GPL-2.0-or-later
"""Work that is recorded, and what must be true of it after a power cut.

    power.py work DEVICE ROOT...   does it on a running hostd; DEVICE takes the events (see cut.py), ROOT is a template's directory
    power.py verify DEVICE [NEXT]  after hostd has come up on what was left: 0, or each broken promise on a line. NEXT takes the events
                                   of work that goes on from here: what everything is now, and how much the logs have already

Each operation belongs to one key (an instance, a setting, a policy, a template), and the operations of a key follow each other. So
a key's state after the cut is known: that of the last operation that was answered, or of the one that was under way.
"""
import glob
import json
import mmap
import os
import subprocess
import sys
import threading
import time

EVENT_SIZE = 512
EVENTS_MAX = 8000
SLOW = float(os.environ.get("HOSTD_TEST_SLOW", "1"))  # what limits on time are multiplied with


def hostctl(*words, timeout=120):
    return subprocess.run(("hostctl",) + words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout * SLOW)


def rows(*words):
    result = hostctl(*words, "-f", "json")
    if result.returncode:
        raise RuntimeError("hostctl %s: %s" % (" ".join(words), result.stderr.strip()))
    return next(v for v in json.loads(result.stdout).values() if isinstance(v, list))


# ---- events ------------------------------------------------------------------------------------------------------------------

class Events:
    """One sector each, past the page cache and whatever cache the disk has. A new one is on the disk before the next step.
    Where the events lie outside of what loses its power, `flags` need not be O_DIRECT; `count` of them are kept."""

    def __init__(self, device, flags=os.O_DIRECT, count=0):
        self.fd = os.open(device, os.O_WRONLY | flags, 0o600)
        self.buffer = mmap.mmap(-1, EVENT_SIZE)
        self.lock = threading.Lock()
        self.count = count

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
    refused_is_undone = True

    def __init__(self, events, call=hostctl):
        self.events, self.call = events, call
        self.failed = []

    def run(self, key, value, *words, audit=None, also=()):
        """`value` is what the key is when the command has succeeded; None: absent. `audit`: (method, target) of its record.
        `also`: further keys and their values. Returns whether it succeeded."""
        changes = [(key, value, audit)] + [(k, v, None) for k, v in also]
        for k, v, a in changes:
            self.events.add(what="begin", key=k, value=v, audit=a, words=" ".join(words[:2]))
        result = self.call(*words)
        for k, v, a in changes if result.returncode == 0 or self.refused_is_undone else ():
            self.events.add(what="end", key=k, value=v, audit=a, ok=result.returncode == 0)
        if result.returncode:
            self.failed.append("hostctl %s: %s" % (" ".join(words), result.stderr.strip()))
        return result.returncode == 0

    def settings(self, **settings):
        settings = dict(memory="64MiB", disk="64MiB", boot="last", **settings)
        return [w for k, v in settings.items() for w in ("-s", "%s=%s" % (k, v))]

    def create(self, name, **settings):
        self.run("instance " + name, "present", "create", "one", name, *self.settings(**settings), audit=("io.hostd.Instance.Create", name))

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
        if e["what"] == "is":
            may[e["key"]] = [e["value"]]
        elif e["what"] == "begin":
            may.setdefault(e["key"], [None]).append(e["value"])
        elif e["what"] == "end" and not e["ok"]:
            may[e["key"]].pop()
        elif e["what"] == "end":
            may[e["key"]] = [e["value"]]
    return may


def under_way(events):
    """The beginnings that have no end."""
    found = {}
    for e in events:
        if e["what"] == "begin":
            found[e["key"]] = e
        elif e["what"] == "end":
            del found[e["key"]]
    return list(found.values())


def wait_until(seconds, condition):
    end = time.monotonic() + seconds * SLOW
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
        self.before = {tuple(e["of"]): e["count"] for e in self.events if e["what"] == "had"}
        self.now, self.had = {}, dict(self.before)

    def say(self, text):
        self.broken.append(text)

    def check(self, truth, text):
        if not truth:
            self.say(text)

    def git(self, *words):
        # "status" would lock the index that hostd is about to write.
        return subprocess.run(("git", "--no-optional-locks", "-c", "safe.directory=*", "-C", self.etc) + words, capture_output=True, text=True)

    def up(self):
        if not wait_until(60, lambda: hostctl("info").returncode == 0):
            self.say("hostd does not come up")
            return False
        return True

    def value(self, kind, name, may):
        """What is so now, in the words of the events. LookupError: not a key that can be looked up."""
        if kind == "instance":
            return "present" if name in self.instances else None
        if kind == "template":
            return "present" if name in self.templates else None
        if kind == "policy" and name not in self.policies:
            return None
        if kind == "policy":
            text = hostctl("policy", "show", name).stdout
            return next((m for m in may if m and str(m) in text.split()), "something else: " + text)
        if kind in ("memory", "pids") and name in self.instances:
            value = json.loads(hostctl("show", name, "-f", "json").stdout)[kind]
            return "%dMiB" % (value >> 20) if kind == "memory" else str(value)
        raise LookupError(kind)

    def keys(self):
        self.instances = {r["name"] for r in rows("list")}
        self.policies = {r["policy"] for r in rows("policy", "list")}
        self.templates = {r["name"] for r in rows("template", "list")}
        for key, may in self.may.items():
            kind, name = key.split(" ", 1)
            try:
                now = self.now[key] = self.value(kind, name, may)
            except LookupError:
                continue
            if kind in ("memory", "pids") and None in may:
                continue  # what it had at its creation
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
            self.now["state " + name] = "stopped"
            if "root " + name in self.may:
                self.now["root " + name] = of
                self.check(of in [m or "one" for m in self.may["root " + name]], "%s is of %s, not %s" % (name, of, self.may["root " + name]))
            hostctl("stop", "--force", name)

    def configuration(self):
        clean = wait_until(20, lambda: self.git("status", "--porcelain").stdout == "" and self.git("rev-parse", "HEAD").returncode == 0)
        self.check(clean, "the configuration is no commit: %s; locks: %s" % (self.git("status", "--porcelain").stdout or self.git("rev-parse", "HEAD").stderr,
                                                                            glob.glob(self.etc + "/.git/**/*.lock", recursive=True)))
        result = self.git("fsck", "--full", "--strict")
        self.check(result.returncode == 0, "git fsck: %s" % (result.stdout + result.stderr).strip())
        log = self.git("log", "--format=%B").stdout
        words = {"io.hostd.Instance.Create": "create", "io.hostd.Instance.Launch": "launch", "io.hostd.Instance.Delete": "delete", "io.hostd.Instance.Set": "set",
                 "io.hostd.Policy.Set": "policy set", "io.hostd.Policy.Delete": "policy delete"}
        for (method, target), count in self.answered().items():
            if method in words:
                text = "%s %s" % (words[method], target)
                found = sum(part.split(" (")[0].strip() == text for line in log.splitlines() for part in line.split(";"))
                count += self.before.get((text,), 0)
                self.had[(text,)] = found
                self.check(found >= count, "%d of %d answered \"%s\" are in the history" % (found, count, text))

    def answered(self):
        count = {}
        for e in self.events:
            if e["what"] == "end" and e["ok"] and e["audit"]:
                count[tuple(e["audit"])] = count.get(tuple(e["audit"]), 0) + 1
        return count

    def audited(self):
        have = {}
        for r in rows("audit", "query"):
            if r["result"] == "ok":
                have[(r["method"], r["target"])] = have.get((r["method"], r["target"]), 0) + 1
        return have

    def audit(self):
        result = hostctl("audit", "verify")
        self.check(result.returncode == 0, "audit verify: %s" % result.stderr.strip())
        have = self.audited()
        for of, count in self.answered().items():
            count += self.before.get(of, 0)
            self.had[of] = have.get(of, 0)
            self.check(self.had[of] >= count, "%d of %d answered %s %s are in the audit log" % (self.had[of], count, *of))

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

    def settle(self, path):
        """Everything is known again: what was under way is either done or undone."""
        events = Events(path, os.O_CREAT | os.O_TRUNC)
        for key, value in self.now.items():
            events.add(what="is", key=key, value=value)
        have = self.audited()  # with what runs() asked for
        for of, count in self.had.items():
            events.add(what="had", of=of, count=have.get(of, count))

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
        work = Work(Events(sys.argv[2]))
        work.all(int(sys.argv[3]), sys.argv[4:])
        print("%d events, %d refused" % (work.events.count, len(work.failed)))
        for text in work.failed:
            print("refused: " + text)
        return 1 if work.failed else 0
    promises = Promises(sys.argv[2], "/etc/hostd", "/var/lib/hostd")
    promises.all()
    for text in promises.broken:
        print("BROKEN " + text)
    if len(sys.argv) > 3 and not promises.broken:
        promises.settle(sys.argv[3])
    events = promises.events
    print("%d answered, %d under way" % (sum(e["what"] == "end" for e in events), len(under_way(events))))
    return 1 if promises.broken else 0


if __name__ == "__main__":
    sys.exit(main())
