# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs in an instance: every way to take more disk than one may have, and to get out of the project that counts it.

    python3 - fill WAY DIRECTORY   makes the directory, takes all it gets there in that way; prints what ended it; keeps it until a line
                                   comes on stdin, and removes it
    python3 - leave DIRECTORY      tries to leave, see or raise the limit; prints what was not refused and exits 1
"""
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import socket
import struct
import subprocess
import sys

MIB = 1 << 20
FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR, FICLONE = 0x801C581F, 0x401C5820, 0x40049409
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, PROJINHERIT = 0x80086601, 0x40086602, 0x20000000
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


def kept(path):
    """Blocks behind the end of files: no size tells of them."""
    for i in range(1 << 30):
        with open("%s/kept.%d" % (path, i), "wb") as f:
            if libc.fallocate(f.fileno(), 1, ctypes.c_long(0), ctypes.c_long(MIB)) < 0:
                raise OSError(ctypes.get_errno(), "fallocate")


def truncated(path):
    """Length that nothing stands behind costs nothing and gives nothing: what is written into it counts."""
    with open(path + "/long", "wb", buffering=0) as f:
        f.truncate(1 << 40)
        f.truncate(0)
        f.truncate(4096 * MIB)
        for i in range(4096 - 1, -1, -1):
            f.seek(i * MIB)
            f.write(bytes(MIB))


def special(path):
    """What has no blocks at all still has an inode each: links, pipes, sockets."""
    os.mkdir(path + "/special")
    for i in range(1 << 30):
        os.symlink("nowhere", "%s/special/l%d" % (path, i))
        os.mkfifo("%s/special/p%d" % (path, i))
        with socket.socket(socket.AF_UNIX) as s:
            s.bind("%s/special/s%d" % (path, i))


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
    os.mkdir(path)
    status = take(way, path)
    shutil.rmtree(path)
    return status


def take(way, path):
    try:
        globals()[way](path)
    except OSError as e:
        # Clones need reflinks, a file without a name in an overlay Linux 6.3.
        if way in ("clones", "unnamed") and e.errno in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL):
            print("%s: there is no such thing here (%s)" % (way, errno.errorcode[e.errno]), flush=True)
            sys.stdin.readline() # whoever holds the other end writes to it
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


# The same by the older call, which knows the flag only.
def set_inherit(path, on):
    fd = os.open(path, os.O_RDONLY)
    try:
        flags = bytearray(8)
        fcntl.ioctl(fd, FS_IOC_GETFLAGS, flags)
        old = struct.unpack_from("I", flags, 0)[0]
        struct.pack_into("I", flags, 0, old | PROJINHERIT if on else old & ~PROJINHERIT)
        if struct.unpack_from("I", flags, 0)[0] == old:
            raise OSError(errno.EINVAL, "already so: nothing is tried")
        fcntl.ioctl(fd, FS_IOC_SETFLAGS, bytes(flags))
    finally:
        os.close(fd)


def program(*words):
    try:
        status = subprocess.call(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        raise OSError(errno.ENOENT, words[0])
    if status != 0:
        raise OSError(errno.EPERM, words[0])


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
    os.makedirs(path, exist_ok=True)
    os.close(os.open(own, os.O_CREAT | os.O_WRONLY))
    os.makedirs(folder, exist_ok=True)
    tries = {
        "project 0 for a file": lambda: set_project(own, 0, True),
        "another project for a file": lambda: set_project(own, 1, True),
        "project 0 for a directory": lambda: set_project(folder, 0, True),
        "a directory that does not hand its project on": lambda: set_project(folder, None, False),
        "project 0 for the root": lambda: set_project("/", 0, True),
        "project 0 for the home": lambda: set_project(os.path.expanduser("~"), 0, True),
        "no inheritance, by flag": lambda: set_inherit(folder, False),
        "chattr -p": lambda: program("chattr", "-p", "0", own),
        "chattr -P": lambda: program("chattr", "-P", folder),
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
