# SPDX-License-Identifier: GPL-2.0-or-later
"""hostd-io as hostd has it: this script is hostd, the commands and who follows them. Started by io.sh in namespaces of its own."""
import array
import fcntl
import hashlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

PROGRAM = sys.argv[1]
USER = 65533
BASE = "/run/hostd-io-test"
SLOW = float(os.environ.get("HOSTD_TEST_SLOW", "1"))
MAGIC, FRAME_MAGIC = 0x6f692d64, 0x6f692d66
HELLO, LIVE, READY, NEW, END, FOLLOW, STAT, FORGET, ANSWER, ENDED = range(1, 11)
OUT, ERR, LOST, FRAME_ENDED, CUT, NOW = range(6)
MESSAGE = struct.Struct("<IIQ48sQQiI5Q")
FRAME = struct.Struct("<IIQQ")
WAIT, IS_LIVE, HAS_ENDED = 1, 2, 4
MIB = 1 << 20
passed = failures = 0


def check(what, ok, detail=""):
    global passed, failures
    passed += bool(ok)
    failures += not ok
    print(f"{'ok' if ok else 'FAILED'}: {what}{'' if ok else f' ({detail})'}", flush=True)


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds * SLOW
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


# ---- hostd ----------------------------------------------------------------------------------------------------------------------

class Message:
    def __init__(self, data):
        (self.magic, self.type, self.cookie, ident, self.value, self.offset, self.error, self.flags, *numbers) = MESSAGE.unpack(data)
        self.id = ident.rstrip(b"\0").decode()
        self.written, self.kept, self.redacted = sum(numbers[:2]), sum(numbers[2:4]), numbers[4]
        self.numbers = numbers


class Hostd:
    """A connection, with what was told without being asked kept aside."""
    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(BASE + "/io/sock")
        self.socket.settimeout(30 * SLOW)
        self.cookie, self.ended, self.live = 0, {}, []
        first = self.receive()
        assert first.type == HELLO and first.value == 1
        while (message := self.receive()).type != READY:
            self.live.append(message.id)

    def receive(self):
        data = self.socket.recv(4096)
        if len(data) != MESSAGE.size:
            raise EOFError
        return Message(data)

    def ask(self, kind, ident, fds=(), value=0, offset=0, flags=0):
        self.cookie += 1
        data = MESSAGE.pack(MAGIC, kind, self.cookie, ident.encode(), value, offset, 0, flags, *[0] * 5)
        self.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
        while (message := self.receive()).type != ANSWER:
            self.ended[message.id] = message
        assert message.cookie == self.cookie
        return message

    def wait_ended(self, ident):
        while ident not in self.ended:
            message = self.receive()
            self.ended[message.id] = message
        return self.ended[ident]

    def close(self):
        self.socket.close()


class Keeper:
    def __init__(self, idle=3600):
        os.makedirs(BASE + "/io", exist_ok=True)
        os.chown(BASE + "/io", USER, USER)
        os.chmod(BASE + "/io", 0o700)
        os.path.exists(BASE + "/io/sock") and os.unlink(BASE + "/io/sock")
        valgrind = ["valgrind", "-q", "--error-exitcode=99", "--leak-check=full", "--track-fds=no"] if os.environ.get("IO_VALGRIND") else []
        self.process = subprocess.Popen(["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *valgrind, PROGRAM, BASE + "/io", str(idle)])
        assert until(lambda: os.path.exists(BASE + "/io/sock"), 30)

    def status(self, key):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith(key + ":"):
                return line.split()[1]

    def rss(self):
        return int(self.status("VmRSS")) * 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def kill(self):
        self.process.kill()
        self.process.wait()


ELSEWHERE = {}


def path_of(ident):
    return ELSEWHERE.get(ident, f"{BASE}/files/{ident}")


class Command:
    """Its pipes; what writes to them is the test's or a process of its own."""
    def __init__(self, hostd, ident, size=8 * MIB, values=None):
        self.id = ident
        file = os.open(path_of(ident), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        out, self.out = os.pipe()
        err, self.err = os.pipe()
        fds = [file, out, err]
        if values is not None:
            fds.append(values_pipe(values))
        self.answer = hostd.ask(NEW, ident, fds, value=size)
        for fd in fds:
            os.close(fd)

    def run(self, code):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=self.out, stderr=self.err)
        self.done()
        return process

    def done(self):
        os.close(self.out)
        os.close(self.err)


def values_pipe(values):
    r, w = os.pipe()
    fcntl.fcntl(w, 1031, MIB)  # F_SETPIPE_SZ
    for name, value in [*values.items(), ("", b"")]:
        os.write(w, struct.pack("<II36s", 0x72646163, len(value), name.encode()) + value)
    os.close(w)
    return r


# ---- who follows ------------------------------------------------------------------------------------------------------------------

class Follower(threading.Thread):
    def __init__(self, hostd, ident, offset=0, wait=True, file=False, pause=0.0, keep=True):
        super().__init__(daemon=True)
        self.read, write = os.pipe()
        fds = [write] + ([os.open(path_of(ident), os.O_RDONLY)] if file else [])
        self.answer = hostd.ask(FOLLOW, ident, fds, offset=offset, flags=WAIT if wait else 0)
        for fd in fds:
            os.close(fd)
        self.at, self.pause, self.keep = offset, pause, keep
        self.kept, self.lost, self.streams, self.last, self.fault, self.lost_at = 0, 0, {OUT: bytearray(), ERR: bytearray()}, None, None, []
        self.start()

    def bytes(self, n):
        data = bytearray()
        while len(data) < n:
            piece = os.read(self.read, n - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def run(self):
        time.sleep(self.pause)
        try:
            while True:
                magic, kind, offset, length = FRAME.unpack(self.bytes(FRAME.size))
                if magic != FRAME_MAGIC or (kind < FRAME_ENDED and offset != self.at):
                    self.fault = f"frame {kind} at {offset} instead of {self.at}"
                    return
                self.at += length
                if kind in (OUT, ERR):
                    data = self.bytes(length)
                    self.kept += length
                    if self.keep:
                        self.streams[kind] += data
                elif kind == LOST:
                    self.lost += length
                    self.lost_at.append((offset, length))
                else:
                    self.last = (kind, offset)
                    if os.read(self.read, 1):
                        self.fault = "something behind the end"
                    return
        except EOFError:
            self.fault = "no end"
        finally:
            os.close(self.read)

    def whole(self, seconds=60):
        self.join(seconds * SLOW)
        assert not self.is_alive(), "a follower has no end"
        return self


def pattern(n, seed=b"x"):
    """Bytes of which each place is known."""
    block = hashlib.shake_256(seed).digest(65537)
    return (block * (n // len(block) + 1))[:n]


def sha(data):
    return hashlib.sha256(data).hexdigest()


WRITER = """
import hashlib, os
block = hashlib.shake_256(%r).digest(65537)
data = (block * (%d // len(block) + 1))[:%d]
view = memoryview(data)
%s
"""


def writer(seed, n, how="while view: view = view[os.write(1, view):]"):
    return WRITER % (seed, n, n, how)


# ---- scenarios ----------------------------------------------------------------------------------------------------------------------

def rights(keeper):
    check("no capabilities, no new ones, a filter", int(keeper.status("CapEff"), 16) == 0 and int(keeper.status("CapPrm"), 16) == 0 and
          keeper.status("NoNewPrivs") == "1" and keeper.status("Seccomp") == "2")
    check("no user of the host's", keeper.status("Uid") == str(USER))


def one_write(hostd):
    n, data = 4194306, pattern(4194306)
    command = Command(hostd, "onewrite")
    follower = Follower(hostd, "onewrite")
    process = command.run(writer(b"x", n, "assert os.write(1, data) == %d" % n))
    check("one write of 4 194 306 bytes is one for the command", process.wait() == 0)
    end = hostd.wait_ended("onewrite")
    follower.whole()
    again = Follower(hostd, "onewrite", file=True).whole()
    check("its numbers", (end.written, end.kept) == (n, n) and end.flags & HAS_ENDED, f"{end.written} {end.kept}")
    check("who followed it has each byte", sha(follower.streams[OUT]) == sha(data) and follower.last == (FRAME_ENDED, n), follower.last or follower.fault)
    check("who asks afterwards, too", sha(again.streams[OUT]) == sha(data) and again.lost == 0)
    parts = [0, 1, 32760, 32768, 1000000, n - 1, n, n + 5]
    ok = all(bytes(f.streams[OUT]) == data[p:] and f.last == (FRAME_ENDED, n) for p in parts for f in [Follower(hostd, "onewrite", p, file=True).whole()])
    check("from any offset", ok)


def full_speed(hostd, keeper):
    n, data = 64 * MIB, pattern(64 * MIB, b"flood")
    # What the writer itself costs, into a pipe that somebody empties.
    begun = time.monotonic()
    sink = subprocess.Popen([sys.executable, "-c", writer(b"flood", n)], stdout=subprocess.PIPE)
    while os.read(sink.stdout.fileno(), 65536):
        pass
    sink.wait()
    alone = time.monotonic() - begun
    before = keeper.rss()
    command = Command(hostd, "flood")
    slow = Follower(hostd, "flood", pause=10)
    begun = time.monotonic()
    process = command.run(writer(b"flood", n))
    status = process.wait()
    took = time.monotonic() - begun
    end = hostd.wait_ended("flood")
    most = keeper.rss()
    print(f"   64 MiB: {alone:.2f} s into a pipe that is emptied, {took:.2f} s into hostd-io with a follower that sleeps", flush=True)
    check("64 MiB at full speed end although a follower sleeps", status == 0 and took < 10 and slow.is_alive(), f"{status} {took}")
    check("at no less than a quarter of the speed of a pipe that is emptied", took < 4 * alone + 2 * SLOW, f"{took:.2f} {alone:.2f}")
    slow.whole()
    check("all was counted", end.written == n and end.kept <= 8 * MIB and end.kept > 7.5 * MIB, f"{end.written} {end.kept}")
    after = Follower(hostd, "flood", file=True).whole()
    check("the dropped bytes are exact", after.lost == n - end.kept and after.kept == end.kept and len(after.lost_at) == 1, f"{after.lost} {after.lost_at}")
    begin, length = after.lost_at[0]
    got = after.streams[OUT]
    check("the begin is kept", begin > 3.9 * MIB and sha(got[:begin]) == sha(data[:begin]))
    check("the end is kept", n - begin - length > 3.9 * MIB and sha(got[begin:]) == sha(data[begin + length:]))
    check("who slept has what there was, and the count", slow.lost + slow.kept == n and slow.last == (FRAME_ENDED, n) and not slow.fault, slow.fault)
    check("the file is no more than 8 MiB", os.stat(path_of("flood")).st_size <= 8 * MIB)
    check("memory is not what passes", most - before < 4 * MIB or "IO_VALGRIND" in os.environ, f"{(most - before) >> 10} KiB more")


def order(hostd):
    command = Command(hostd, "order")
    follower = Follower(hostd, "order")
    for i in range(300):
        os.write(command.err if i % 2 else command.out, b"%d\n" % i)
        until(lambda: follower.at >= sum(len("%d\n" % k) for k in range(i + 1)))
    command.done()
    end = hostd.wait_ended("order")
    follower.whole()
    text = b"".join(b"%d\n" % i for i in range(300))
    check("two streams in their order", end.written == len(text) and bytes(follower.streams[OUT]) == b"".join(b"%d\n" % i for i in range(0, 300, 2)) and
          bytes(follower.streams[ERR]) == b"".join(b"%d\n" % i for i in range(1, 300, 2)) and not follower.fault)


def offsets(hostd):
    data = pattern(300000, b"two")
    command = Command(hostd, "two")
    os.write(command.out, data[:50000])
    first = Follower(hostd, "two", 0)
    second = Follower(hostd, "two", 70000)
    third = Follower(hostd, "two", 10, wait=False)
    third.whole()
    threading.Thread(target=lambda: [os.write(command.out, data[i:i + 1000]) for i in range(50000, 300000, 1000)] and command.done()).start()
    first.whole()
    second.whole()
    check("two followers at different offsets", bytes(first.streams[OUT]) == data and bytes(second.streams[OUT]) == data[70000:] and second.last == (FRAME_ENDED, 300000))
    check("one that does not wait has what is there", bytes(third.streams[OUT]) == data[10:10 + third.kept] and third.last == (NOW, third.at) and third.at <= 50000)


def vanish(hostd, keeper):
    before = keeper.descriptors()
    command = Command(hostd, "vanish")
    for i in range(50):
        read, write = os.pipe()
        hostd.ask(FOLLOW, "vanish", [write], flags=WAIT)
        os.close(write)
        if i % 2:
            os.write(command.out, b"x" * 10000)
        os.close(read)
    check("followers that vanish are gone", until(lambda: keeper.descriptors() <= before + 3), f"{keeper.descriptors()} {before}")
    os.write(command.out, b"y" * 10000)
    command.done()
    check("and the command was not disturbed", hostd.wait_ended("vanish").written == 26 * 10000)
    check("nothing is left of it", until(lambda: keeper.descriptors() <= before))


def too_many(hostd, keeper):
    before = keeper.descriptors()
    command = Command(hostd, "many")
    pipes = [os.pipe() for _ in range(260)]
    answers = [hostd.ask(FOLLOW, "many", [w], flags=WAIT).error for _, w in pipes]
    check("256 followers and no more", answers[:256] == [0] * 256 and set(answers[256:]) == {-87}, answers[250:])
    for r, w in pipes:
        os.close(r)
        os.close(w)
    command.done()
    hostd.wait_ended("many")
    check("and all are forgotten", until(lambda: keeper.descriptors() <= before))


def hundred(hostd, keeper):
    commands = [Command(hostd, f"c{i}", size=MIB) for i in range(100)]
    check("100 commands at once", all(c.answer.error == 0 for c in commands))
    code = "import os,sys\nfor k in range(200): os.write(1, b'o' * 5000); os.write(2, b'e' * 5000)"
    processes = [c.run(code) for c in commands]
    check("each ends", all(p.wait() == 0 for p in processes))
    ends = [hostd.wait_ended(c.id) for c in commands]
    check("each is counted", all(e.numbers[:2] == [1000000, 1000000] and e.kept < MIB for e in ends))
    most = int(keeper.status("VmHWM")) * 1024
    print(f"   at most {most >> 10} KiB resident until here", flush=True)
    check("memory is bounded", most < 32 * MIB or "IO_VALGRIND" in os.environ, f"{most >> 10} KiB")


def cpu_clock(keeper):
    return sum(int(x) for x in open(f"/proc/{keeper.process.pid}/stat").read().rsplit(")", 1)[1].split()[11:13])


def quiet(hostd, keeper):
    command = Command(hostd, "quiet")
    os.write(command.out, b"x" * 1000)
    follower = Follower(hostd, "quiet")
    stuck_read, stuck = os.pipe()
    os.write(command.out, b"y" * 60000)
    hostd.ask(FOLLOW, "quiet", [stuck], flags=WAIT)
    time.sleep(0.2)
    before = cpu_clock(keeper)
    time.sleep(2)
    check("nothing to do is nothing done", cpu_clock(keeper) - before <= 2, cpu_clock(keeper) - before)
    os.close(stuck_read)
    os.close(stuck)
    command.done()
    follower.whole()
    hostd.wait_ended("quiet")


def secrets(hostd):
    values = {"token": b"correct-horse-battery", "other": b"staple-staple\n"}
    command = Command(hostd, "secrets", values=values)
    follower = Follower(hostd, "secrets")
    for piece in (b"a correct-", b"horse", b"-battery b staple-staple\n", b"prompt corr"):
        os.write(command.out, piece)
        time.sleep(0.02)
    os.write(command.err, b"correct-horse-battery")
    expected = b"a [secret token] b [secret other]\nprompt corr"
    check("a prompt that begins like a value comes all the same", until(lambda: bytes(follower.streams[OUT]) == expected), follower.streams[OUT])
    command.done()
    end = hostd.wait_ended("secrets")
    follower.whole()
    check("values are names, in both streams, and counted", bytes(follower.streams[ERR]) == b"[secret token]" and end.redacted == 3, end.redacted)
    check("none is in the file", not any(v.strip() in open(path_of("secrets"), "rb").read() for v in values.values()))
    bad = Command(hostd, "badvalues", values={"x" * 36: b"y"})
    check("values that are none are refused", bad.answer.error < 0)
    bad.done()


def end_of_command(hostd):
    command = Command(hostd, "left")
    held = os.dup(command.out)  # by what it left behind
    os.write(command.out, b"last words")
    command.done()
    time.sleep(0.1)
    check("a pipe that somebody holds has no end", "left" not in hostd.ended)
    check("what it wrote is all once it is over", hostd.ask(END, "left").error == 0 and hostd.wait_ended("left").written == 10)
    for _ in range(2):
        try:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            os.write(held, b"more")
            refused = False
        except BrokenPipeError:
            refused = True
    check("and what is left has nobody to write to", refused)
    os.close(held)
    check("a second end is none", hostd.ask(END, "left").error == -2)


def outlives(keeper):
    hostd = Hostd()
    command = Command(hostd, "outlives")
    process = command.run("import time,sys\nfor i in range(20): print(i, flush=True); time.sleep(0.05)")
    other = Command(hostd, "gone")
    hostd.close()
    other.done()
    time.sleep(0.3)
    hostd = Hostd()
    check("the next hostd is told what is live", hostd.live == ["outlives"], hostd.live)
    follower = Follower(hostd, "outlives")
    follower.whole()
    check("and has all of it", process.wait() == 0 and bytes(follower.streams[OUT]) == b"".join(b"%d\n" % i for i in range(20)))
    check("what ended meanwhile is in its file", hostd.ask(STAT, "gone", [os.open(path_of("gone"), os.O_RDONLY)]).flags == HAS_ENDED)
    third = Hostd()
    check("a newer connection is hostd, the older one is closed", hostd.socket.recv(100) == b"")
    return third


def garbage(keeper):
    for what, data, fds in (("short", b"x" * 10, []), ("long", b"x" * 4000, []), ("magic", bytes(MESSAGE.size), []),
                            ("a type that is none", MESSAGE.pack(MAGIC, 99, 1, b"a", *[0] * 4, *[0] * 5), []),
                            ("an answer", MESSAGE.pack(MAGIC, ANSWER, 1, b"a", *[0] * 4, *[0] * 5), []),
                            ("no id", MESSAGE.pack(MAGIC, STAT, 1, b"", *[0] * 4, *[0] * 5), []),
                            ("an id without an end", MESSAGE.pack(MAGIC, STAT, 1, b"a" * 48, *[0] * 4, *[0] * 5), []),
                            ("no descriptors", MESSAGE.pack(MAGIC, NEW, 1, b"a", *[0] * 4, *[0] * 5), []),
                            ("too many", MESSAGE.pack(MAGIC, NEW, 1, b"a", *[0] * 4, *[0] * 5), [0] * 8)):
        hostd = Hostd()
        hostd.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
        try:
            closed = hostd.socket.recv(100) == b""
        except ConnectionResetError:
            closed = True
        check(f"{what}: the connection is closed", closed)
        hostd.close()
    hostd = Hostd()
    null = os.open("/dev/null", os.O_RDWR)
    check("a file that is none", hostd.ask(NEW, "null", [null, *os.pipe()], value=MIB).error < 0)
    file = os.open(path_of("nopipes"), os.O_RDWR | os.O_CREAT)
    check("pipes that are none", hostd.ask(NEW, "nopipes", [file, file, file], value=MIB).error < 0)
    check("a size that is none", hostd.ask(NEW, "small", [file, *os.pipe()], value=10).error == -22)
    check("what is not there", hostd.ask(STAT, "absent").error == -2 and hostd.ask(FORGET, "absent").error == 0)
    open(path_of("junk"), "wb").write(os.urandom(100000))
    check("a file of something else", hostd.ask(STAT, "junk", [os.open(path_of("junk"), os.O_RDONLY)]).error == -74)
    os.close(file)
    os.close(null)
    return hostd


def killed():
    keeper = Keeper()
    hostd = Hostd()
    data = pattern(20 * MIB, b"killed")
    command = Command(hostd, "killed", size=4 * MIB)
    follower = Follower(hostd, "killed", keep=False)
    process = command.run(writer(b"killed", len(data), "while view: view = view[os.write(1, view[:3001]):]"))
    until(lambda: follower.at > 6 * MIB)
    keeper.kill()
    process.wait()
    follower.join(10)
    hostd.close()
    check("who followed is told by the end of the pipe", follower.fault == "no end", follower.fault)
    keeper = Keeper()
    hostd = Hostd()
    after = Follower(hostd, "killed", file=True).whole()
    stat = hostd.ask(STAT, "killed", [os.open(path_of("killed"), os.O_RDONLY)])
    check("a kill of hostd-io loses nothing that a follower had", stat.written >= follower.at and after.last == (CUT, stat.written), f"{stat.written} {follower.at} {after.last}")
    check("it is said to be cut", not stat.flags & HAS_ENDED)
    (begin, length), got = after.lost_at[0], after.streams[OUT]
    check("begin and end are what was written", len(after.lost_at) == 1 and bytes(got[:begin]) == data[:begin] and bytes(got[begin:]) == data[begin + length:stat.written] and
          stat.kept == len(got) > 3.5 * MIB)
    return keeper, hostd


def full_disk(hostd):
    os.makedirs(BASE + "/small")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", BASE + "/small"], check=True)
    ELSEWHERE.update(full=BASE + "/small/full", none=BASE + "/small/none")
    n, data = 6 * MIB, pattern(6 * MIB, b"full")
    command = Command(hostd, "full")
    process = command.run(writer(b"full", n))
    check("a disk that is full is no error of the command", process.wait() == 0)
    end = hostd.wait_ended("full")
    after = Follower(hostd, "full", file=True).whole()
    check("what had no room is counted", end.written == n and end.kept < MIB and end.kept > 0.8 * MIB and after.lost == n - end.kept, f"{end.written} {end.kept} {after.lost}")
    expected, at = b"", 0
    for begin, length in [*after.lost_at, (n, 0)]:
        expected, at = expected + data[at:begin], begin + length
    check("the rest is there", after.lost_at[0][0] > 0.8 * MIB and bytes(after.streams[OUT]) == expected and after.last == (FRAME_ENDED, n))
    open(BASE + "/small/rest", "wb").write(b"x" * (os.statvfs(BASE + "/small").f_bavail * 4096))
    command = Command(hostd, "none")
    os.write(command.out, b"into nothing")
    command.done()
    end = hostd.wait_ended("none")
    check("no room at all is none either", command.answer.error == 0 and (end.written, end.kept) == (12, 0), f"{command.answer.error} {end.written} {end.kept}")


def idle():
    keeper = Keeper(idle=1)
    hostd = Hostd()
    command = Command(hostd, "idle")
    time.sleep(2.5 * SLOW)
    check("it stays as long as somebody may write", keeper.process.poll() is None)
    command.done()
    hostd.wait_ended("idle")
    check("and ends when there is nothing to be done", until(lambda: keeper.process.poll() == 0, 10), keeper.process.poll())


def main():
    os.makedirs(BASE, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512m,mode=755", "tmpfs", BASE], check=True)
    os.makedirs(BASE + "/files")
    keeper = Keeper()
    rights(keeper)
    hostd = Hostd()
    for scenario in (one_write, order, offsets, secrets, end_of_command):
        scenario(hostd)
    for scenario in (full_speed, vanish, too_many, hundred, quiet):
        scenario(hostd, keeper)
    hostd.close()
    outlives(keeper).close()
    hostd = garbage(keeper)
    full_disk(hostd)
    check("nothing is left open", until(lambda: keeper.descriptors() <= 8), os.listdir(f"/proc/{keeper.process.pid}/fd"))
    hostd.close()
    check("it lives", keeper.process.poll() is None)
    keeper.kill()
    keeper, hostd = killed()
    hostd.close()
    keeper.kill()
    idle()
    print(f"{passed} passed, {failures} failed, 0 skipped")
    return failures > 0


sys.exit(main())
