# SPDX-License-Identifier: GPL-2.0-or-later
"""hostctl on a terminal of our own: size, keys, what it gives back. Run by exec.sh with the name of an instance."""
import fcntl, os, pty, select, signal, struct, sys, termios, time

NAME = sys.argv[1]


def say(good, what, why=""):
    print(("ok " + what) if good else "FAIL %s: %r" % (what, why), flush=True)


class Session:
    def __init__(self, *command, size=(33, 101)):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[0], size[1], 0, 0))
            os.execvp("hostctl", ["hostctl", "exec", NAME, "--", *command])

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, data):
        os.write(self.fd, data)

    def until(self, text, seconds=8):
        end = time.monotonic() + seconds
        while text not in self.seen and time.monotonic() < end:
            if not select.select([self.fd], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            if not data:
                break
            self.seen += data
        return text in self.seen

    def end(self, seconds=8):
        self.until(b"\0never", 0.3)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            self.until(b"\0never", 0.1)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return None


s = Session("sh", "-c", "stty size; test -t 0 && test -t 1 && test -t 2 && echo terminal; tty; exit 23")
found = s.until(b"/dev/pts/")
say(b"33 101" in s.seen and b"terminal" in s.seen, "pty: it is a terminal of the size of ours", s.seen)
code = s.end()
say(code == 23, "pty: exit code", code)

s = Session("sh", "-c", "trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done")
s.until(b"ready")
s.resize(55, 77)
say(s.until(b"55 77"), "pty: a new size arrives", s.seen)
s.send(b"\x03")
code = s.end()
say(code == 130, "pty: Ctrl-C ends it with 130", code)

s = Session("sh")
s.until(b"#")
s.send(b"sleep 100\n")
time.sleep(0.4)
s.send(b"\x03")
time.sleep(0.2)
s.send(b"echo al''ive\n")
say(s.until(b"alive"), "pty: Ctrl-C ends the job, the shell lives", s.seen[-200:])
s.send(b"exit 4\n")
code = s.end()
say(code == 4, "pty: exit code of the shell", code)

s = Session("sh", "-c", "cat >/dev/null; echo eof")
time.sleep(0.3)
s.send(b"some text\n\x04")
say(s.until(b"eof"), "pty: Ctrl-D is the end of input", s.seen)
s.end()

s = Session("sh", "-c", "stty raw -echo; echo go; head -c 400000 /dev/zero | tr '\\0' x; echo; echo done")
s.until(b"done", 20)
say(s.seen.count(b"x") == 400000, "pty: 400 kB of output arrive whole", s.seen.count(b"x"))
s.end()

# The guest cannot type into our terminal: TIOCSTI acts on its own pty at most.
before = None
s = Session("sh", "-c", "readlink /proc/self/fd/0; cut -d' ' -f7 /proc/self/stat; echo fin")
s.until(b"fin")
ours = os.ttyname(s.fd) if os.isatty(s.fd) else ""
say(b"/dev/pts/" in s.seen, "pty: its terminal is the instance's own", s.seen)
s.end()

s = Session("sh", "-c", "setsid sleep 7501 & sleep 7502")
time.sleep(0.6)
os.kill(s.pid, signal.SIGKILL)
os.waitpid(s.pid, 0)
os.close(s.fd)
time.sleep(1)
left = os.popen("hostctl exec %s -- ps 2>/dev/null | grep -v grep | grep 'sleep 750'" % NAME).read()
say(not left, "pty: kill -9 of hostctl ends all of it", left)
