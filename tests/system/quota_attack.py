# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs in an instance: every way to take more disk than one may have, and to get out of the project that counts it.

    python3 - fill WAY DIRECTORY   takes all it gets in that way; prints what ended it; keeps it until a line comes on stdin
    python3 - leave DIRECTORY      tries to leave, see or raise the limit; prints what was not refused and exits 1
"""
import ctypes
import errno
import fcntl
import mmap
import os
import struct
import sys

MIB = 1 << 20
FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR, FICLONE = 0x801C581F, 0x401C5820, 0x40049409
libc = ctypes.CDLL(None, use_errno=True)


def dense(path):
    with open(path + "/dense", "wb", buffering=0) as f:
        while True:
            f.write(bytes(MIB))


def small(path):
    os.mkdir(path + "/small")
    for i in range(1 << 30):
        with open("%s/small/%d" % (path, i), "wb") as f:
            f.write(bytes(3000))


def empty(path):
    os.mkdir(path + "/empty")
    for i in range(1 << 30):
        os.close(os.open("%s/empty/%d" % (path, i), os.O_CREAT | os.O_WRONLY))


def links(path):
    """Hard links cost no inode, only their names: what is left of the blocks ends them, or the kernel's own bound."""
    os.close(os.open(path + "/link", os.O_CREAT | os.O_WRONLY))
    os.mkdir(path + "/links")
    for i in range(20000):
        os.link(path + "/link", "%s/links/%d" % (path, i))
    small(path)


def sparse(path):
    """One byte in every block: the size says nothing, the blocks count."""
    with open(path + "/sparse", "wb", buffering=0) as f:
        for i in range(1 << 30):
            f.seek(i * 65536)
            f.write(b"x")


def fallocate(path):
    with open(path + "/allocated", "wb") as f:
        for i in range(1 << 30):
            os.posix_fallocate(f.fileno(), i * 16 * MIB, 16 * MIB)


def unnamed(path):
    fd = os.open(path, os.O_TMPFILE | os.O_RDWR, 0o600)
    while True:
        os.write(fd, bytes(MIB))


def deleted(path):
    fd = os.open(path + "/deleted", os.O_CREAT | os.O_RDWR)
    os.unlink(path + "/deleted")
    while True:
        os.write(fd, bytes(MIB))


def clones(path):
    """Copies that share their blocks: each counts in full."""
    with open(path + "/clone", "wb") as f:
        f.write(os.urandom(8 * MIB))
        os.fsync(f.fileno())
        with open(path + "/clone", "rb") as source:
            for i in range(1 << 30):
                with open("%s/clone.%d" % (path, i), "wb") as copy:
                    fcntl.ioctl(copy.fileno(), FICLONE, source.fileno())


def mapped(path):
    with open(path + "/mapped", "w+b") as f:
        f.truncate(4096 * MIB)
        pid = os.fork()
        if pid == 0:  # a page that gets no block ends this process with SIGBUS
            view = mmap.mmap(f.fileno(), 4096 * MIB)
            for i in range(0, 4096 * MIB, 4096):
                view[i] = 1
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) not in (7, 9):
            raise SystemExit("mapped: status %d" % status)
        raise OSError(errno.EDQUOT, "SIGBUS")


def attributes(path):
    os.mkdir(path + "/attributes")
    for i in range(1 << 30):
        name = "%s/attributes/%d" % (path, i)
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
        os.setxattr(name, "user.x", bytes(3500))


def directories(path):
    os.mkdir(path + "/directories")
    for i in range(1 << 30):
        os.mkdir("%s/directories/%d" % (path, i))


def renamed(path):
    """What is made in a memory file system, which no disk quota counts, has to be copied to come here."""
    with open("/dev/shm/big", "wb") as f:
        f.write(bytes(8 * MIB))
    try:
        os.rename("/dev/shm/big", path + "/big")
        raise SystemExit("renamed: across file systems")
    except OSError as e:
        if e.errno != errno.EXDEV:
            raise
    try:
        os.link("/dev/shm/big", path + "/big")
        raise SystemExit("renamed: linked across file systems")
    except OSError as e:
        if e.errno != errno.EXDEV:
            raise
    os.unlink("/dev/shm/big")
    dense(path)


def fill(way, path):
    try:
        globals()[way](path)
    except OSError as e:
        if way == "clones" and e.errno in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL):
            print("%s: no such copies here (%s)" % (way, errno.errorcode[e.errno]), flush=True)
            return 3
        if e.errno not in (errno.EDQUOT, errno.ENOSPC):
            raise
        print("%s: ended by %s" % (way, errno.errorcode[e.errno]), flush=True)
        sys.stdin.readline()
        return 0
    print("%s: nothing ended it" % way, flush=True)
    return 1


# ---- leaving -----------------------------------------------------------------------------------------------------------------

def set_project(path, project, inherit):
    fd = os.open(path, os.O_RDONLY)
    try:
        attr = bytearray(28)
        fcntl.ioctl(fd, FS_IOC_FSGETXATTR, attr)
        flags = struct.unpack_from("I", attr, 0)[0]
        struct.pack_into("I", attr, 0, flags | 0x200 if inherit else flags & ~0x200)
        if project is not None:
            struct.pack_into("I", attr, 12, project)
        fcntl.ioctl(fd, FS_IOC_FSSETXATTR, bytes(attr))
    finally:
        os.close(fd)


def quotactl(command, path):
    block = ctypes.create_string_buffer(200)
    fd = os.open(path, os.O_RDONLY)
    try:
        for kind in (0, 1, 2):  # of users, groups, projects
            if libc.syscall(443, fd, (command << 8) | kind, 0, block) >= 0:  # quotactl_fd
                return
        raise OSError(ctypes.get_errno(), "quotactl_fd")
    finally:
        os.close(fd)


def leave(path):
    own, folder = path + "/own", path + "/folder"
    os.close(os.open(own, os.O_CREAT | os.O_WRONLY))
    os.makedirs(folder, exist_ok=True)
    tries = {
        "project 0 for a file": lambda: set_project(own, 0, True),
        "another project for a file": lambda: set_project(own, 1, True),
        "project 0 for a directory": lambda: set_project(folder, 0, True),
        "a directory that does not hand its project on": lambda: set_project(folder, None, False),
        "project 0 for the root": lambda: set_project("/", 0, True),
        "set a limit": lambda: quotactl(0x800008, path),
        "set a limit of xfs": lambda: quotactl(0x5804, path),
        "switch quotas off": lambda: quotactl(0x800003, path),
        "switch quotas of xfs off": lambda: quotactl(0x5802, path),
    }
    for name in ("memory.max", "memory.swap.max", "memory.high", "pids.max", "cpu.max", "cpu.weight", "io.max", "cgroup.subtree_control"):
        for group in ("/sys/fs/cgroup", "/sys/fs/cgroup/.."):
            if os.path.exists("%s/%s" % (group, name)):
                tries["%s/%s" % (group, name)] = lambda f="%s/%s" % (group, name): put(f, "+cpu" if "subtree" in f else "max")
    bad = 0
    for name, attempt in tries.items():
        if name.endswith("cgroup.subtree_control"):
            continue  # of its own root: systemd's, and below the limits
        try:
            attempt()
            print("not refused: " + name)
            bad = 1
        except OSError:
            pass
    return bad


def put(path, text):
    with open(path, "w") as f:
        f.write(text)


if __name__ == "__main__":
    sys.exit(fill(*sys.argv[2:4]) if sys.argv[1] == "fill" else leave(sys.argv[2]))
