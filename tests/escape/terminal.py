# SPDX-License-Identifier: GPL-2.0-or-later
"""What a guest can do to the operator's terminal. Run by tests/product/escape.sh with the name of an instance that has /bin/escape.

We are the terminal: a shell on it starts hostctl, and what the shell could read afterwards is what was typed into it."""
import os, pty, re, select, sys, time

NAME = sys.argv[1]
ANSWERS = {  # questions that terminals answer, some with text that the asker chose
    b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?64c", b"\x1b[21t": b"\x1b]lreboot\n\x1b\\", b"\x05": b"reboot\n", b"\x1bP$qm\x1b\\": b"\x1bP1$r0;reboot\nm\x1b\\",
}


def say(good, what, why=""):
    print(f"ok {what}" if good else f"FAIL {what}: {why!r}", flush=True)


def terminal(script, answers=True, delay=0.0, seconds=15):
    """Runs a shell script on a terminal; returns all that was shown."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "-c", script])
    seen, answered, end = b"", 0, time.monotonic() + seconds
    while time.monotonic() < end:
        if not select.select([fd], [], [], 0.1)[0]:
            if os.waitpid(pid, os.WNOHANG)[0]:
                pid = 0
                break
            continue
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
        for question, answer in ANSWERS.items() if answers else ():
            if question in seen[answered:]:
                time.sleep(delay)
                os.write(fd, answer)
        answered = max(answered, len(seen) - 8)
    if pid:
        os.waitpid(pid, 0)
    os.close(fd)
    return seen


READ = 'read -t 1 -n 1000 got; printf "LEFT=%q\\n" "$got"'


def left(seen):
    m = re.search(rb"LEFT=(.*?)\r?\n", seen)
    return m[1] if m else b"(no shell)"


def asks(question):
    return "".join("\\%03o" % b for b in question)


# The harness itself: an answer that nobody takes is what the shell reads.
seen = terminal(f"printf '{asks(b'[6n'[:0] + bytes([27]) + b'[6n')}'; sleep 0.5; {READ}")
say(b"1" in left(seen), "control: an unguarded terminal types its answers into the shell", seen)

seen = terminal(f"hostctl exec {NAME} -- /bin/escape sti 'echo pwned'; {READ}", answers=False)
say(left(seen) == b"''" and b"EPERM" in seen, "terminal: TIOCSTI is refused and types nothing into the operator's shell", seen)
for question in ANSWERS:
    # It waits, so that the answer is there when the session ends.
    seen = terminal(f"hostctl exec {NAME} -- sh -c \"printf '{asks(question)}'; sleep 0.5\"; {READ}")
    say(left(seen) == b"''", f"terminal: the answer to {question!r} does not reach the operator's shell", seen)
seen = terminal(f"hostctl exec {NAME} -- sh -c 'stty raw -echo; exec sleep 0.3'; stty -a | tr ';' '\\n' | grep -E 'icanon|echo'; {READ}")
say(b"-icanon" not in seen and b" echo " in seen, "terminal: it is given back as it was", seen)

# What hostctl itself shows of a guest's text is harmless: no escape sequence gets through.
HOSTILE = r"\033]52;c;cmVib290\007\033[2J\033[6n\033]0;x\007"
os.system(f"hostctl exec {NAME} -- sh -c \"printf '{HOSTILE}' >/dev/console; mkdir -p /etc/h; touch \\\"/etc/h/\\$(printf '{HOSTILE}' | tr / _)\\\"\" >/dev/null 2>&1")
for command in (f"hostctl log {NAME}", f"hostctl file list {NAME}:/etc/h", f"hostctl diff {NAME}", f"hostctl exec {NAME} -- \"$(printf '{HOSTILE}')\"",
                f"hostctl show {NAME}", f"hostctl events {NAME} --no-follow", "hostctl audit tail", "hostctl command list"):
    seen = terminal(f"{command}; {READ}", answers=False, seconds=20)
    clean = seen.replace(b"\x1b[?2004h", b"").replace(b"\x1b[?2004l", b"")
    say(b"\x1b" not in clean and b"\x07" not in clean, f"terminal: nothing that steers it in: {command.split(' --')[0][:40]}", clean[-300:])
os.system(f"hostctl exec {NAME} -- rm -rf /etc/h")
