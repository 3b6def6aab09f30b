# SPDX-License-Identifier: GPL-2.0-or-later
"""The socket of hostd without hostctl: bad frames, descriptors that are refused, and what each access level may do. Run by input.sh."""
import array, json, os, socket, sys, time

PATH = os.environ.get("HOSTD_SOCKET", "/run/hostd/hostd.sock")
NAME = "pt-a"


def say(good, what, why=""):
    print(("ok wire: " + what) if good else "FAIL wire: %s: %s" % (what, str(why)[:300]), flush=True)


def connect():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(8)
    s.connect(PATH)
    return s


def receive(s):
    data = b""
    try:
        while not data.endswith(b"\0"):
            part = s.recv(65536)
            if not part:
                break
            data += part
    except (ConnectionError, socket.timeout) as e:
        return {"broken": repr(e)}
    if not data:
        return {"closed": True}
    try:
        return json.loads(data.split(b"\0")[0])
    except ValueError:
        return {"garbage": data[:100]}


def call(method, parameters=None, fds=(), raw=None, s=None, more=False):
    s = s or connect()
    message = {"method": method, "parameters": parameters or {}}
    if more:
        message["more"] = True
    data = raw if raw is not None else json.dumps(message).encode() + b"\0"
    try:
        if fds:
            s.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        else:
            s.sendall(data)
    except (BrokenPipeError, ConnectionError):
        return {"closed": True}
    return receive(s)


def error(reply):
    return reply.get("error", "") or ("closed" if reply.get("closed") or reply.get("broken") else "")


def alive():
    return "parameters" in call("io.hostd.Host.Info") or error(call("io.hostd.Host.Info")).endswith("Denied")


def frames():
    good = json.dumps({"method": "io.hostd.Host.Info"}).encode() + b"\0"
    say("parameters" in call("", raw=good), "a good call is answered")
    cases = {
        "garbage": b"\xff\xfe\x00\x01garbage\0",
        "an empty frame": b"\0",
        "no object": b"[1,2]\0",
        "a number": b"42\0",
        "half an object": b'{"method":\0',
        "two objects in a frame": b'{"method":"a"}{"method":"b"}\0',
        "a key twice": b'{"method":"io.hostd.Host.Info","method":"io.hostd.Instance.List"}\0',
        "no method": b'{"parameters":{}}\0',
        "a method that is a number": b'{"method":7}\0',
        "parameters that are a list": b'{"method":"io.hostd.Host.Info","parameters":[]}\0',
        "NUL in a string": b'{"method":"io.hostd.Instance.Show","parameters":{"name":"a\\u0000b"}}\0',
        "bytes that are no UTF-8": b'{"method":"io.hostd.Instance.Show","parameters":{"name":"a\xff"}}\0',
        "deep nesting": b'{"method":"io.hostd.Host.Info","parameters":' + b"[" * 5000 + b"]" * 5000 + b"}\0",
        "a hundred thousand values": b'{"method":"io.hostd.Host.Info","parameters":{"x":[' + b"0," * 100000 + b"0]}}\0",
    }
    for what, data in cases.items():
        reply = call("", raw=data)
        say(error(reply) != "" and alive(), what + " is refused", reply)
    s = connect()
    reply = None
    try:
        for _ in range(40):
            s.sendall(b"x" * 65536)
        reply = receive(s)
    except (BrokenPipeError, ConnectionError):
        reply = {"closed": True}
    say(error(reply) != "" and alive(), "an endless frame ends the connection", reply)
    # Byte by byte, and many in one write.
    s = connect()
    for b in good:
        s.sendall(bytes([b]))
    say("parameters" in receive(s), "a frame byte by byte")
    s = connect()
    s.sendall(good * 20)
    got = b""
    end = time.monotonic() + 5
    while got.count(b"\0") < 20 and time.monotonic() < end:
        got += s.recv(65536)
    say(got.count(b"\0") == 20, "twenty in one write", got.count(b"\0"))
    for _ in range(100):
        s = connect()
        s.sendall(good[: len(good) // 2])
        s.close()
    say(alive(), "a hundred that hang up in the middle")

    for method in ("io.hostd.Nonsense", "io.hostd.Instance.Nonsense", "io.hostd", "", "org.example.X", "io.hostd.Instance.start"):
        reply = call(method)
        say("MethodNotFound" in error(reply) or "InvalidParameter" in error(reply) or error(reply) != "", "method %r is unknown" % method, reply)
    for parameters in ({"name": NAME, "extra": 1}, {"name": 5}, {"name": [NAME]}, {"name": None}, {}, {"name": NAME, "force": "yes"}, {"name": {"a": 1}}):
        reply = call("io.hostd.Instance.Stop", parameters)
        say("Invalid" in error(reply) and "field" in json.dumps(reply), "Stop with %s names the field" % json.dumps(parameters), reply)
    reply = call("io.hostd.Instance.Set", {"name": NAME, "settings": {"description": "a\nb"}})
    say("Invalid" in error(reply), "a newline in a setting", reply)
    reply = call("io.hostd.Command.Exec", {"name": NAME, "command": ["true"], "timeout": 2**63}, more=True, raw=b'{"method":"io.hostd.Command.Exec","more":true,"parameters":{"name":"pt-a","command":["true"],"timeout":9223372036854775808}}\0')
    say(error(reply) != "", "a number that does not fit", reply)

    # Descriptors: pipes that were made for it, and nothing else.
    def pipes():
        r, w = os.pipe()
        r2, w2 = os.pipe()
        return r, w2, w2, (w, r2)

    execute = {"name": NAME, "command": ["true"]}
    r, o, e, rest = pipes()
    reply = call("io.hostd.Command.Exec", execute, (r, o, e), more=True)
    say("parameters" in reply and "error" not in reply, "exec with three pipes", reply)
    null = os.open("/dev/null", os.O_RDWR)
    bad = {
        "a file": os.open("/etc/hostname", os.O_RDONLY),
        "a directory": os.open("/etc", os.O_RDONLY | os.O_DIRECTORY),
        "an O_PATH directory": os.open("/", os.O_PATH),
        "a device": null,
        "a socket": socket.socket(socket.AF_UNIX).detach(),
        "a socket pair": socket.socketpair()[0].detach(),
        "a memfd": os.memfd_create("x"),
        "an epoll": __import__("select").epoll().fileno(),
        "a proc file": os.open("/proc/self/mem", os.O_RDONLY),
    }
    fifo = "/tmp/hostd-product-fifo-%d" % os.getpid()
    os.mkfifo(fifo)
    bad["a named pipe"] = os.open(fifo, os.O_RDWR)
    os.unlink(fifo)
    for what, fd in bad.items():
        for place in range(3):
            r, o, e, rest = pipes()
            fds = [r, o, e]
            fds[place] = fd
            reply = call("io.hostd.Command.Exec", execute, fds, more=True)
            for x in {r, o, e, *rest}:
                os.close(x)
            if "error" not in reply:
                say(False, "%s as descriptor %d of exec is refused" % (what, place), reply)
                break
        else:
            say(True, what + " is refused as each descriptor of exec")
    for count in (1, 2):
        r, o, e, rest = pipes()
        reply = call("io.hostd.Command.Exec", execute, (r, o)[:count], more=True)
        say("error" in reply, "exec with %d descriptors is refused" % count, reply)
    reply = call("io.hostd.Command.Exec", execute, more=True)
    say("error" in reply, "exec without descriptors is refused", reply)
    r, o, e, rest = pipes()
    reply = call("io.hostd.Command.Exec", execute, (r, o, e, e), more=True)
    say(error(reply) != "" and alive(), "four descriptors end the connection", reply)
    reply = call("io.hostd.Command.Exec", execute, [r] * 250, more=True)
    say(error(reply) != "" and alive(), "250 descriptors too", reply)
    reply = call("io.hostd.Instance.List", {}, (r,))
    say("error" in reply or reply.get("closed"), "a method that takes none gets one", reply)
    reply = call("io.hostd.File.Pull", {"name": NAME, "path": "/etc/passwd"}, (bad["a file"],))
    say("error" in reply, "file pull into a file of ours is refused", reply)
    reply = call("io.hostd.File.Push", {"name": NAME, "path": "/tmp/x"}, (bad["a directory"],))
    say("error" in reply, "file push from a directory is refused", reply)
    # A client that never reads, and one that stays.
    s = connect()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    s.setblocking(False)
    try:
        for _ in range(20000):
            s.send(json.dumps({"method": "org.varlink.service.GetInterfaceDescription", "parameters": {"interface": "io.hostd.Instance"}}).encode() + b"\0")
    except BlockingIOError:
        pass
    except ConnectionError:
        pass
    say(alive(), "a client that never reads holds nobody up")
    many = []
    try:
        for _ in range(600):
            for _ in range(100):
                try:
                    many.append(connect())
                    break
                except BlockingIOError:  # the backlog is full for a moment
                    time.sleep(0.01)
    except OSError:
        pass
    time.sleep(0.3)
    refused = 0
    for c in many[-20:]:
        c.settimeout(2)
        refused += error(call("io.hostd.Host.Info", s=c)) != ""
    say(refused > 0, "connections of one user are bounded", "%d opened" % len(many))
    for c in many:
        c.close()
    end = time.monotonic() + 5
    while not alive() and time.monotonic() < end:
        time.sleep(0.1)
    say(alive(), "and free again when they close")
    info = call("org.varlink.service.GetInfo")
    say("io.hostd.Instance" in json.dumps(info), "the service describes itself", info)


VIEW = [("io.hostd.Instance.List", {}), ("io.hostd.Instance.Show", {"name": NAME}), ("io.hostd.Host.Info", {}), ("io.hostd.Audit.Tail", {}),
        ("io.hostd.Policy.Show", {"policy": "pt-p"}), ("io.hostd.Network.Show", {"name": NAME}), ("io.hostd.Config.Log", {}), ("io.hostd.Warning.List", {})]
OPERATE = [("io.hostd.Instance.Pause", {"name": NAME}), ("io.hostd.Instance.Resume", {"name": NAME}), ("io.hostd.Instance.Start", {"name": NAME})]
ADMIN = [("io.hostd.Instance.Create", {"name": "pt-denied", "template": "absent"}), ("io.hostd.Instance.Delete", {"name": "pt-absent", "force": True}),
         ("io.hostd.Instance.Set", {"name": NAME, "settings": {"pids": "x"}}), ("io.hostd.Policy.Delete", {"policy": "pt-absent"}),
         ("io.hostd.Config.Rollback", {"rev": "zz"}), ("io.hostd.Template.Delete", {"template": "absent"})]


def denied(reply):
    return error(reply).endswith("Denied")


def access(level):
    order = ["none", "view", "operate", "admin"]
    mine = order.index(level)
    for needed, table in (("view", VIEW), ("operate", OPERATE), ("admin", ADMIN)):
        for method, parameters in table:
            reply = call(method, parameters)
            if mine < order.index(needed):
                say(denied(reply), "%s may not %s" % (level, method), reply)
            else:
                say(not denied(reply) and not reply.get("closed"), "%s may %s" % (level, method), reply)
    r, w = os.pipe()
    reply = call("io.hostd.Command.Exec", {"name": NAME, "command": ["true"]}, (r, w, w), more=True)
    say(denied(reply) == (mine < 2) and not reply.get("closed"), "%s and exec" % level, reply)


if sys.argv[1] == "frames":
    frames()
else:
    access(sys.argv[1])
