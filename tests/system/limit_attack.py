# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs in an instance: tries to see, raise or leave the limits that are not the disk's (those: quota_attack.py).

    python3 limit_attack.py leave       prints what was not refused, and exits with 1 if there was something
    python3 limit_attack.py hog WAY     takes memory in that way until it is killed; exits with 1 once it has 1 GiB
    python3 limit_attack.py files       prints how many files it could open
    python3 limit_attack.py pin         prints on which processors its children ran, which it asked for, and which it got
"""
import ctypes
import os
import resource
import socket
import struct
import sys
import time

MIB = 1 << 20
HOG_MAX = 1024 * MIB
CGROUP = "/sys/fs/cgroup"
libc = ctypes.CDLL(None, use_errno=True)
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWUSER = 0x20000, 0x2000000, 0x8000000, 0x10000000


def call(result, what="call"):
    if result < 0:
        raise OSError(ctypes.get_errno(), what)
    return result


def mount(source, target, kind, flags=0, data=None):
    os.makedirs(target, exist_ok=True)
    enc = [x.encode() if x is not None else None for x in (source, target, kind)]
    call(libc.mount(enc[0], enc[1], enc[2], ctypes.c_ulong(flags), data.encode() if data else None), "mount")


def put(path, text):
    with open(path, "w") as f:
        f.write(text)


# ---- leaving -----------------------------------------------------------------------------------------------------------------

LIMITS = {"memory.max": "max", "memory.high": "max", "memory.min": "64M", "memory.low": "64M", "memory.swap.max": "max", "pids.max": "max",
          "cpu.max": "max", "cpu.max.burst": "100000", "cpu.weight": "10000", "cpu.idle": "0", "cpuset.cpus": "0-1", "cpuset.mems": "0",
          "cpuset.cpus.partition": "root", "io.max": "254:16 rbps=max wbps=max", "io.weight": "default 10000", "cgroup.freeze": "0",
          "cgroup.type": "threaded", "cgroup.max.depth": "max", "cgroup.max.descendants": "max", "memory.oom.group": "0"}


# As the kernel's list of what is delegated has it, and harmless: what stands in a group is bounded by the groups above it.
def delegated():
    try:
        return open("/sys/kernel/cgroup/delegate").read().split()
    except OSError:
        return ["cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "memory.oom.group"]


def absent_or_own(path):
    """A group that the guest made is the guest's; what bounds it is above."""
    try:
        return os.lstat(path).st_uid != 65534 and os.lstat("%s/memory.max" % CGROUP).st_uid == 65534
    except FileNotFoundError:
        return True
    except OSError:
        return False  # may not even be looked at


def limit_files(tries, root, how):
    mine = delegated()
    for name, text in LIMITS.items():
        path = "%s/%s" % (root, name)
        if name in mine or absent_or_own(path):
            continue
        tries["write %s %s" % (name, how)] = lambda p=path, t=text: put(p, t)
        tries["chmod %s %s" % (name, how)] = lambda p=path: os.chmod(p, 0o666)
        tries["chown %s %s" % (name, how)] = lambda p=path: os.chown(p, os.getuid(), -1)
        tries["remove %s %s" % (name, how)] = lambda p=path: os.unlink(p)


def prepared(fn):
    """What prepares an attempt may be refused or not: it is the attempt that counts."""
    try:
        return fn()
    except OSError:
        return None


def by_handle(ident):
    """The control group of this number, past all paths: 1 is the host's root."""
    fd = os.open(CGROUP, os.O_RDONLY)
    try:
        handle = struct.pack("IiQ", 8, 0xFE, ident)
        found = call(libc.open_by_handle_at(fd, ctypes.c_char_p(handle), os.O_RDONLY), "open_by_handle_at")
        os.close(os.open("memory.max" if ident != 1 else "cgroup.procs", os.O_RDONLY, dir_fd=found))
    finally:
        os.close(fd)


# v1, whose controllers know nothing of what the unified tree allows.
def mount_v1(controller):
    mount("none", "/tmp/v1." + controller, "cgroup", 0, controller)


def see():
    for name in ("/proc/self/cgroup", "/proc/1/cgroup", "/proc/self/mountinfo", "/proc/self/mounts"):
        text = open(name).read()
        for line in text.splitlines():
            if "hostd.slice" in line or "hostd-instance@" in line:
                print("%s tells of the host: %s" % (name, line))
                return  # not refused
    raise PermissionError("nothing is seen")


def raise_files(pid):
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard + 1))


def huge():
    """Huge pages that were set aside are counted by no memory limit."""
    fd = call(libc.memfd_create(b"huge", 4), "memfd_create")
    try:
        os.ftruncate(fd, 2 * MIB)
        address = libc.mmap
        address.restype = ctypes.c_void_p
        at = address(None, ctypes.c_size_t(2 * MIB), 3, 1, fd, ctypes.c_long(0))
        if at == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap")
    finally:
        os.close(fd)


def deadline():
    attr = struct.pack("IIQiIQQQII", 56, 6, 0, 0, 0, 10000000, 30000000, 30000000, 0, 0)
    call(libc.syscall(314, 0, attr, 0), "sched_setattr")


def others():
    tries = {
        "see the host's groups": see,
        "a real-time schedule": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
        "a deadline": deadline,
        "a better nice value": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
        "a real-time class for its i/o": lambda: call(libc.syscall(251, 1, 0, 1 << 13), "ioprio_set"),
        "never to be killed for its memory": lambda: put("/proc/self/oom_score_adj", "-1000"),
        "more open files": lambda: raise_files(0),
        "more open files for init": lambda: raise_files(1),
        "huge pages": huge,
        "the host's root by its handle": lambda: by_handle(1),
        "swap off": lambda: call(libc.swapoff(b"/swap"), "swapoff"),
        "swap on": lambda: call(libc.swapon(b"/etc/hostname", 0), "swapon"),
        "a device of the disk": lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(254, 16)),
        "a loop device": lambda: os.close(os.open("/dev/loop-control", os.O_RDWR)),
    }
    own = os.stat(CGROUP).st_ino
    for ident in range(max(2, own - 40), own):
        tries["the group with the handle %d" % ident] = lambda i=ident: by_handle(i)
    for name in ("memory", "cpu", "pids", "cpuset", "blkio", "devices", "net_cls"):
        tries["control groups v1: " + name] = lambda n=name: mount_v1(n)
    for name, text in (("fs/nr_open", "2000000"), ("fs/file-max", "9999999"), ("kernel/pid_max", "4194304"), ("kernel/threads-max", "999999"),
                       ("kernel/sched_rt_runtime_us", "-1"), ("vm/overcommit_memory", "1"), ("vm/swappiness", "200"), ("vm/nr_hugepages", "8"),
                       ("vm/drop_caches", "3"), ("vm/dirty_ratio", "90"), ("vm/compact_memory", "1"), ("vm/panic_on_oom", "1")):
        tries["sysctl " + name] = lambda n=name, t=text: put("/proc/sys/" + n, t)
    return tries


def attempts(tries):
    bad = 0
    for name, attempt in tries.items():
        try:
            attempt()
        except (OSError, ValueError):
            continue
        print("not refused: " + name, flush=True)
        bad += 1
    return bad


def unshare(flags):
    uid, gid = os.getuid(), os.getgid()
    call(libc.unshare(flags), "unshare")
    if flags & CLONE_NEWUSER:
        put("/proc/self/setgroups", "deny")
        put("/proc/self/uid_map", "0 %d 1" % uid)
        put("/proc/self/gid_map", "0 %d 1" % gid)


def namespaces(flags):
    """Root of namespaces of its own, with the groups mounted afresh: run in a child."""
    unshare(flags)
    call(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "private")
    mount("tmpfs", "/mnt", "tmpfs")
    mount("none", "/mnt/cg", "cgroup2")


def in_child(flags, how):
    pid = os.fork()
    if pid == 0:
        status = 2  # anything unforeseen is a failure, too
        try:
            namespaces(flags)
            prepared(lambda: mount("none", "/mnt/cg", "cgroup2", MS_REMOUNT, "memory_localevents"))
            tries = {}
            limit_files(tries, "/mnt/cg", how)
            status = 1 if attempts(tries) else 0
        except OSError as e:
            print("%s: cannot be had (%s)" % (how, e), flush=True)  # refused earlier than that
            status = 0
        finally:
            os._exit(status)
    return 1 if os.waitpid(pid, 0)[1] else 0


def leave():
    tries = others()
    prepared(lambda: mount("none", CGROUP, None, MS_REMOUNT | MS_BIND))
    prepared(lambda: mount("none", CGROUP, "cgroup2", MS_REMOUNT))
    limit_files(tries, CGROUP, "of its root group")
    if os.getuid() == 0:
        prepared(lambda: mount("none", "/run/cg", "cgroup2"))
        limit_files(tries, "/run/cg", "in a mount of its own")
    bad = attempts(tries)
    if os.getuid() == 0:
        prepared(lambda: call(libc.umount2(b"/run/cg", 2), "umount"))
        bad += in_child(CLONE_NEWNS | CLONE_NEWCGROUP, "in a control group namespace of its own")
    bad += in_child(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWCGROUP, "as root of a user namespace")
    print("%d attempts, %d not refused" % (len(tries), bad))
    return 1 if bad else 0


# ---- memory ------------------------------------------------------------------------------------------------------------------

def hog_anonymous():
    kept = []
    while True:
        kept.append(bytearray(8 * MIB))
        yield 8 * MIB


def hog_file(fd):
    while True:
        yield os.write(fd, bytes(MIB))


def hog_memfd():
    return hog_file(call(libc.memfd_create(b"hog", 0), "memfd_create"))


def hog_mounted(kind):
    unshare(CLONE_NEWNS | (0 if os.getuid() == 0 else CLONE_NEWUSER))
    call(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "private")
    mount("none", "/mnt", kind)
    return hog_file(os.open("/mnt/hog", os.O_CREAT | os.O_WRONLY))


def hog_shared():
    """System V memory outlives its processes: here it goes with its namespace."""
    unshare(CLONE_NEWIPC | (0 if os.getuid() == 0 else CLONE_NEWUSER))
    libc.shmat.restype = ctypes.c_void_p
    while True:
        at = libc.shmat(call(libc.shmget(0, ctypes.c_size_t(8 * MIB), 0o1600), "shmget"), None, 0)
        ctypes.memset(at, 1, 8 * MIB)
        libc.shmdt(ctypes.c_void_p(at))
        yield 8 * MIB


def hog_sockets():
    kept = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    while True:
        pair = socket.socketpair()
        pair[0].setblocking(False)
        kept.append(pair)
        try:
            while True:
                yield pair[0].send(bytes(32768))
        except BlockingIOError:
            pass


def hog_forks():
    """Each child a little, so that no single one is large."""
    while True:
        if os.fork() == 0:
            kept = bytearray(8 * MIB)
            kept[::4096] = b"x" * (8 * MIB // 4096)
            time.sleep(600)
            os._exit(0)
        yield 8 * MIB


HOGS = {"anonymous": hog_anonymous, "memfd": hog_memfd, "tmpfs": lambda: hog_mounted("tmpfs"), "ramfs": lambda: hog_mounted("ramfs"),
        "shared": hog_shared, "sockets": hog_sockets, "forks": hog_forks}


def hog(way):
    """First to be killed, so that the instance itself goes on."""
    put("/proc/self/oom_score_adj", "1000")
    have = 0
    try:
        for more in HOGS[way]():
            have += more
            if have >= HOG_MAX:
                print("%s: has %d MiB" % (way, have // MIB))
                return 1
    except (MemoryError, OSError) as e:
        print("%s: ended at %d MiB by %s" % (way, have // MIB, e))
        return 2 if have >= 64 * MIB else 3
    return 1


# ---- the rest ----------------------------------------------------------------------------------------------------------------

def files():
    n = 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        while n < 1 << 21:
            os.dup(0)
            n += 1
    except OSError:
        pass
    print(n + 3)
    return 0


def pin():
    ran = set()
    asked = set(range(os.cpu_count() + 8))
    try:
        os.sched_setaffinity(0, asked)
    except OSError:
        pass
    for _ in range(6):
        if os.fork() == 0:
            end = time.monotonic() + 2
            while time.monotonic() < end:
                pass
            os._exit(libc.sched_getcpu())
    for _ in range(6):
        ran.add(os.waitstatus_to_exitcode(os.wait()[1]))
    print("ran on %s, may use %s" % (sorted(ran), sorted(os.sched_getaffinity(0))))
    return 0


if __name__ == "__main__":
    verb = sys.argv[1]
    sys.exit(hog(sys.argv[2]) if verb == "hog" else {"leave": leave, "files": files, "pin": pin}[verb]())
