#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Work in a guest until its power is cut: cuts.py NOTES PID SEED ROOTS

NOTES is a file of events (see tests/power/power.py), here on the side that keeps its power: a beginning is noted before the guest hears
of it, an end when the answer has come. PID is QEMU, which is killed at a moment that SEED decides: some time after a number of answers, or
while the configuration goes back or the host is carved, which is soon done.
CUTS_SSH is the shell's text that runs a command in the guest, ROOTS the directory of the templates' roots in there.
"""
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "power"))
import power  # noqa: E402  (found by the line above)

ANSWERS_MIN, ANSWERS_MAX = 2, 30
DELAY_MAX = 2.0  # seconds from the last of these answers to the cut
AIMS = (None, None, None, "config rollback", "config carve")
AIM_DELAY_MAX = 1.0
REFUSED_MAX = 3  # answers of hostd, besides those that tell of a systemd which takes its time
WORK_MAX = 600  # seconds; hostd hangs when there are not so many answers by then


class Gone(Exception):
    """The guest has no power any more."""


class Guest:
    """Calls of hostctl in the guest, any number at a time. Also the hand at its power switch."""

    def __init__(self, pid, dice):
        self.pid, self.aim = pid, dice.choice(AIMS)
        self.answers, self.delay = dice.randint(ANSWERS_MIN, ANSWERS_MAX), dice.uniform(0, AIM_DELAY_MAX if self.aim else DELAY_MAX)
        self.moment = "%.1f s %s" % (self.delay, "into " + self.aim if self.aim else "after answer %d" % self.answers)
        self.armed = False
        self.lock, self.waiting, self.last, self.gone = threading.Lock(), {}, 0, False
        command = "cd /root/hostd/tests/power && HOSTD_TEST_SLOW=4 exec python3 -u serve.py"
        self.ssh = subprocess.Popen(("bash", "-c", os.environ["CUTS_SSH"] + ' "$1"', "ssh", command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if self.ssh.stdout.readline() != "ready\n":
            sys.exit("cuts: the guest does not answer")
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.ssh.stdout:
            try:
                reply = json.loads(line)
            except ValueError:
                break  # half a line
            with self.lock:
                self.waiting.pop(reply["id"]).put(reply)
        with self.lock:
            self.gone = True
            for box in self.waiting.values():
                box.put(None)
            self.waiting.clear()

    def call(self, *words):
        box = queue.Queue()
        with self.lock:
            if self.gone:
                raise Gone
            self.last += 1
            self.waiting[self.last] = box
            try:
                self.ssh.stdin.write(json.dumps(dict(id=self.last, words=words)) + "\n")
                self.ssh.stdin.flush()
            except OSError as e:
                raise Gone from e
        reply = box.get()
        if reply is None:
            raise Gone
        self.answered()
        return types.SimpleNamespace(returncode=reply["code"], stdout=reply["out"], stderr=reply["err"])

    def answered(self):
        with self.lock:
            self.answers -= 1
            if self.answers == 0 and not self.aim:
                self.arm()

    def begins(self, key):
        with self.lock:
            if key == self.aim and not self.armed:
                self.arm()

    def arm(self):
        self.armed = True
        threading.Timer(self.delay, self.cut).start()

    def cut(self):
        os.kill(self.pid, signal.SIGKILL)


class Cuts(power.Work):
    """Steps that are chosen at random among those that make sense for what is there; so any number of cuts can follow each other."""

    # On an emulated machine hostd's own limits on time end: systemd starts a unit after hostd has said that it did not.
    refused_is_undone = False

    def __init__(self, events, guest, now, dice, roots):
        super().__init__(events, guest.call)
        self.guest, self.now, self.dice, self.roots = guest, dict(now), dice, roots

    def run(self, key, value, *words, audit=None, also=()):
        if self.guest.gone:
            raise Gone  # nothing more is begun
        self.guest.begins(key)
        done = super().run(key, value, *words, audit=audit, also=also)
        if done:
            self.now.update([(key, value), *also])
        elif key.startswith("instance ") or key.startswith("state "):
            self.look(key.split()[1])
        return done

    def look(self, name):
        """What a refused command has left: the truth, for the next step."""
        there = {r["name"]: r["state"] for r in json.loads(self.call("list", "-f", "json").stdout)["instances"]}
        self.now["instance " + name] = "present" if name in there else None
        self.now["state " + name] = there.get(name)

    def has(self, key):
        return self.now.get(key) is not None

    def gone_with(self, name):
        """What is no more when an instance is deleted."""
        return [(k, None) for k in ("state " + name, "root " + name, "pids " + name, "memory " + name) if self.has(k)]

    def launch(self, name):
        self.run("instance " + name, "present", "launch", "one", name, *self.settings(), audit=("io.hostd.Instance.Launch", name), also=[("state " + name, "running")])

    def delete(self, name):
        self.run("instance " + name, None, "delete", "--force", name, audit=("io.hostd.Instance.Delete", name), also=self.gone_with(name))

    def other(self, key, choose):
        """A value that is a change: what sets the same again is answered, and makes no commit."""
        value = choose()
        while value == self.now.get(key):
            value = choose()
        return value

    def set_pids(self, dice, name):
        self.set(name, "pids", self.other("pids " + name, lambda: str(dice.randrange(100, 1000))))

    # ---- steps of streams: each stream has keys of its own ----

    def step_instance(self, dice, name):
        if not self.has("instance " + name):
            dice.choice((self.create, self.create, self.launch))(name)
        elif dice.random() < 0.3:
            self.set_pids(dice, name)
        else:
            self.delete(name)

    def step_settings(self, dice):
        policy = "p%d" % dice.randrange(3)
        way = dice.randrange(4)
        if way == 0:
            self.set("s", "memory", self.other("memory s", lambda: "%dMiB" % dice.randrange(65, 200)))
        elif way == 1:
            self.set_pids(dice, "s")
        elif way == 2 and self.has("policy " + policy):
            self.policy_delete(policy)
        else:
            self.policy(policy, self.other("policy " + policy, lambda: dice.randrange(1000, 9999)))

    def step_template(self, dice):
        name = "t%d" % dice.randrange(2)
        if self.has("template " + name):
            self.template_delete(name)
        else:
            self.template(name, "%s/%s" % (self.roots, name))

    def step_running(self, dice):
        if self.now.get("state r") != "running":
            self.start("r")
        else:
            dice.choice((self.step_exec, self.step_exec, self.step_rebuild, self.step_stop))(dice)

    def step_exec(self, _dice):
        self.execute("r")

    def step_rebuild(self, dice):
        self.rebuild("r", dice.choice(("one", "two")))

    def step_stop(self, _dice):
        self.stop("r")

    # ---- phases: one after the other ----

    def prepare(self):
        """What the streams take for granted, and the room that they need."""
        for name in ("one", "two"):
            if not self.has("template " + name):
                self.template(name, "%s/%s" % (self.roots, name))
        for key in [k for k in self.now if k.startswith("instance k") and self.has(k)]:
            self.delete(key.split()[1])
        for name in ("s", "r"):
            if not self.has("instance " + name):
                self.create(name)
        if not self.has("root r"):
            self.now["root r"] = "one"

    def stream(self, seed, step, *arguments):
        dice = random.Random(seed)
        try:
            for _ in range(6):
                step(dice, *arguments)
        except Gone:
            pass

    def phase_streams(self):
        steps = [(self.step_instance, "c0"), (self.step_instance, "c1"), (self.step_settings,), (self.step_template,), (self.step_running,)]
        threads = [threading.Thread(target=self.stream, args=(self.dice.random(), *s)) for s in steps]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def phase_rollback(self):
        """Back over some changes, each of which another file may be in."""
        rev = json.loads(self.call("config", "log", "-f", "json").stdout)["commits"][0]["rev"]
        before = dict(self.now)
        for _ in range(self.dice.randrange(1, 5)):
            self.step_settings(self.dice)
        changed = [(k, before.get(k)) for k, v in self.now.items() if v != before.get(k)]
        self.run("config rollback", rev, "config", "rollback", rev, audit=("io.hostd.Config.Rollback", rev), also=changed)

    def phase_carve(self):
        count = self.dice.randrange(1, 4)
        names = ["k%d" % i for i in range(1, count + 1)]
        self.run("config carve", None, "carve", "--count", str(count), "--template", "one", "--prefix", "k", "--yes", audit=("io.hostd.Host.Carve", "one"), also=[("instance " + n, "present") for n in names])
        for name in names:
            self.delete(name)

    def until_cut(self):
        self.prepare()
        while True:
            weights = (3, 4 if self.guest.aim == "config rollback" else 1, 4 if self.guest.aim == "config carve" else 1)
            self.dice.choices((self.phase_streams, self.phase_rollback, self.phase_carve), weights)[0]()


def main():
    notes, pid, seed, roots = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    dice = random.Random(seed)
    found = power.read_events(notes)
    guest = Guest(pid, dice)
    work = Cuts(power.Events(notes, 0, len(found)), guest, {e["key"]: e["value"] for e in found if e["what"] == "is"}, dice, roots)
    late = threading.Timer(WORK_MAX, guest.cut)
    late.daemon = True
    late.start()
    try:
        work.until_cut()
    except Gone:
        pass
    for text in work.failed:
        print("refused: " + text)
    if not guest.armed:
        print("the moment did not come in %d s" % WORK_MAX)
    under_way = sorted({e["words"] for e in power.under_way(power.read_events(notes))})
    print("cut %s, during: %s" % (guest.moment, ", ".join(under_way) or "nothing"))
    return 0 if guest.armed and len([t for t in work.failed if "did not start it within" not in t]) <= REFUSED_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
