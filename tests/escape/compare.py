# SPDX-License-Identifier: GPL-2.0-or-later
"""What differs between a run of all attempts under the profile and one without: compare.py CONFINED UNCONFINED

Each rule of the profile has an attempt that it alone refuses, or a reason why none can show it: something else refuses first."""
import re
import sys

from table import profile_minds_sockets

# Rule of the profile: attempts of root's, at least one of which gets through without it and not under it.
DECIDED = {
    "deny /dev/.lxc/**": ["writable /dev/.lxc/proc", "writable /dev/.lxc/sys", "read /dev/.lxc/proc/version"],
    "deny /proc/kallsyms": ["read /proc/kallsyms"],
    "network": ["int80"],
}
# The same on kernels that would let it through: here each refuses one or the other by itself.
BY_KERNEL = {
    "deny change of profile": ["write /proc/self/attr/current=changeprofile unconfined"],
    "deny mount binfmt_misc": ["mount binfmt_misc"],
}
# Rules that nothing shows, because user namespaces, seccomp or the kernel's own checks say no before: a second lock.
SECOND = {
    "deny capability": ["time", "ports", "syslog", "modules"],
    "deny /proc/{kcore,kmem,mem}": ["read /proc/kcore"],
    "deny /proc/sysrq-trigger": ["write /proc/sysrq-trigger=h"],
    "deny /proc/sys/{fs,vm,kernel}": ["write /proc/sys/vm/drop_caches=1", "write /proc/sys/kernel/sysrq=1", "write /proc/sys/fs/suid_dumpable=2"],
    "deny /sys/kernel/{debug,security,tracing}": ["read /sys/kernel/debug/x"],
    "deny /sys/module/*/parameters": ["write /sys/module/kernel/parameters/panic=1"],
    "deny mount of debugfs, tracefs, securityfs, efivarfs, hugetlbfs, pstore, rpc_pipefs": [
        "mount debugfs", "mount tracefs", "mount securityfs", "mount efivarfs", "mount hugetlbfs", "mount pstore", "mount rpc_pipefs"],
    "ptrace and signal to others": ["by-number {victim}"],
}
REFUSED = re.compile(r"E[A-Z0-9]+$")


def load(path):
    """(attempt, who): (outcome, detail)"""
    with open(path) as f:
        lines = [line.rstrip("\n").split("\t") for line in f]
    return {(attempt, who): (outcome, detail) for attempt, who, outcome, detail in lines}


def doors(detail):
    """Names of single ways in, and how each ended: "a=done b=EPERM"."""
    return dict(re.findall(r"(\S+)=(done|E[A-Z0-9]+)(?= |$)", detail))


def opened(confined, unconfined):
    """Ways that are open without the profile alone; "" is the attempt as a whole."""
    with_it, without = doors(confined[1]), doors(unconfined[1])
    ways = [way for way in with_it if without.get(way) == "done" and with_it[way] != "done"]
    return ways + [""] if unconfined[0] == "done" and REFUSED.match(confined[0]) else ways


def show(confined, unconfined):
    for key in sorted(confined.keys() & unconfined.keys()):
        (a, a_detail), (b, b_detail) = confined[key], unconfined[key]
        with_it, without = doors(a_detail), doors(b_detail)
        ways = [f"{way}: {with_it[way]}, {without[way]}" for way in with_it if way in without and with_it[way] != without[way]]
        if a != b or ways:
            print(f"{key[0]} | {key[1]} | {a} | {b}" + (f" | {'; '.join(ways[:6])}" if ways else ""))


def judge(rule, attempts, confined, unconfined, by_kernel):
    missing = [t for t in attempts if (t, "root") not in confined or (t, "root") not in unconfined]
    if missing:
        return f"FAIL profile: {rule}: {missing} was not tried"
    shown = [t for t in attempts if opened(confined[t, "root"], unconfined[t, "root"])]
    if shown:
        return f"ok profile: {rule}: refused under it, done without: {', '.join(shown)}"
    outcomes = [f"{confined[t, 'root'][0]}, {unconfined[t, 'root'][0]}" for t in attempts]
    if by_kernel and all(REFUSED.match(unconfined[t, "root"][0]) for t in attempts):
        return f"ok profile: {rule}: this kernel refuses it without the profile too ({'; '.join(outcomes)})"
    return f"FAIL profile: {rule}: decides nothing: {'; '.join(outcomes)}"


def judge_second(rule, attempts, unconfined):
    through = [t for t in attempts if not REFUSED.match(unconfined.get((t, "root"), ("not tried",))[0])]
    return f"FAIL profile: {rule}: {through} is not refused without it" if through else f"ok profile: {rule}: refused without it too, a second lock"


def main():
    confined, unconfined = load(sys.argv[1]), load(sys.argv[2])
    show(confined, unconfined)
    for table, by_kernel in ((DECIDED, False), (BY_KERNEL, True)):
        for rule, attempts in table.items():
            if rule == "network" and not profile_minds_sockets():
                print("SKIP profile: network: on kernels before 6.2 the profile leaves sockets alone, or locks on them would be refused")
                continue
            print(judge(rule, attempts, confined, unconfined, by_kernel))
    for rule, attempts in SECOND.items():
        print(judge_second(rule, attempts, unconfined))


main()
