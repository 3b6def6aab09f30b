# SPDX-License-Identifier: GPL-2.0-or-later
"""Escape attempts on one running instance, judged from the host.

  host.py INSTANCE PROGRAM [--apparmor] [--report FILE] [--only REGEX]
  host.py --with-key COMMAND...    runs COMMAND in a session whose keyring holds a key that no instance may see

Before the first row the host gets things that an escape would touch: a file, a process, a key, sockets, shared memory, traffic. After
each row the host is compared with what it was. Prints "ok NAME" and "FAIL NAME: WHY" lines; run by tests/product/escape.sh.
"""
import ctypes, json, os, re, signal, socket, stat, subprocess, sys, threading, time
from table import ROWS, profile_minds_sockets

LIBC = ctypes.CDLL(None, use_errno=True)
SYS_ADD_KEY, SYS_KEYCTL = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
SECRET = "hostd-escape-%d" % os.getpid()
GIVEN = SECRET + "-given"
KEY_FILE = "HOSTD_ESCAPE_KEY"
VOLATILE = re.compile(r"/(random/|dentry-state|file-nr|inode-nr|inode-state|aio-nr|ns_last_pid|pty/nr|nf_conntrack_count|perf_event_max_sample_rate|perf_cpu_time"
                      r"|sched_domain|stat_refresh|compact_memory|drop_caches|flush|(conf|neigh)/h[vpi]|sunrpc|sched_rr_timeslice|min_free_kbytes|keys/|quota/|unix_"
                      r"|tcp_fastopen_key|somaxconn_now|vs/|dirty_(bytes|background_bytes))")


def say(good, what, why=""):
    print(f"ok {what}" if good else f"FAIL {what}: {why}", flush=True)


def run(*command, check=False, timeout=60):
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, stdin=subprocess.DEVNULL)
    if check and done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")
    return done.stdout


def read(path):
    try:
        with open(path, errors="replace") as f:
            return f.read(1 << 20)
    except OSError as e:
        return f"({e.strerror})"


# ---- keys

def key_add():
    """In a session keyring of our own, so that it is there for whatever is started from here."""
    if LIBC.syscall(SYS_KEYCTL, 1, b"hostd-escape") < 0:
        return 0
    return max(0, LIBC.syscall(SYS_ADD_KEY, b"user", b"hostd-canary", b"of the host", 11, ctypes.c_long(-3)))


def key_text(serial):
    buffer = ctypes.create_string_buffer(64)
    n = LIBC.syscall(SYS_KEYCTL, 11, serial, buffer, 63)
    return buffer.raw[:n].decode() if n > 0 else f"(errno {ctypes.get_errno()})"


def loaded_modules():
    return sorted(line.split()[0] for line in read("/proc/modules").splitlines())


# ---- what an escape would touch

class Victim:
    """A process of root's that notes every signal."""
    def __init__(self, log):
        self.log = log
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            for fd in (0, 1, 2):
                os.dup2(os.open("/dev/null", os.O_RDWR), fd)
            for number in range(1, 65):
                if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
                    signal.signal(number, lambda n, _: open(log, "a").write(f"{n}\n"))
            while os.getppid() != 1 or not os.path.exists(log + ".end"):
                time.sleep(0.2)
                if os.path.exists(log + ".end"):
                    break
            os._exit(0)

    def state(self):
        status = read(f"/proc/{self.pid}/status")
        fields = re.findall(r"^(?:State|Uid|Seccomp|Cpus_allowed|TracerPid):.*$", status, re.M)
        fields[:1] = ["alive" if fields and "Z" not in fields[0] else "dead"]
        return "\n".join(fields + [read(self.log), read(f"/proc/{self.pid}/limits"), str(os.getpriority(os.PRIO_PROCESS, self.pid)) if fields[0] == "alive" else ""])

    def end(self):
        open(self.log + ".end", "w").close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Listeners:
    """Sockets that nobody on this host but we connects to."""
    def __init__(self):
        self.hits = []
        self.sockets = {}
        self.add("abstract", socket.socket(socket.AF_UNIX), "\0" + SECRET)
        self.add("port", socket.socket(socket.AF_INET), ("0.0.0.0", 0))
        try:
            self.add("vsock", socket.socket(socket.AF_VSOCK), (socket.VMADDR_CID_ANY, 65000 + os.getpid() % 500))
        except OSError:
            pass  # this kernel has none

    def add(self, name, sock, address):
        sock.bind(address)
        sock.listen(8)
        self.sockets[name] = sock
        threading.Thread(target=self.accept, args=(name, sock), daemon=True).start()

    def accept(self, name, sock):
        while True:
            sock.accept()
            self.hits.append(name)

    def port(self, name):
        return self.sockets[name].getsockname()[1] if name in self.sockets else 65000

    def prove(self):
        """That each of them would notice."""
        socket.create_connection(("127.0.0.1", self.port("port"))).close()
        s = socket.socket(socket.AF_UNIX)
        s.connect("\0" + SECRET)
        time.sleep(0.2)
        say(sorted(self.hits) == ["abstract", "port"], "control: the host's sockets notice who connects", self.hits)
        self.hits.clear()


class Talk(threading.Thread):
    """The secret on the loopback of the host, all the time."""
    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def run(self):
        while True:
            self.socket.sendto((SECRET + "-spoken").encode(), ("127.0.0.1", 9))
            time.sleep(0.05)


# ---- the host's state

class Host:
    def __init__(self, instance, directory):
        self.instance, self.directory = instance, directory
        shown = json.loads(run("hostctl", "show", instance, "-f", "json", check=True))
        self.init, self.supervisor = shown["pid"], shown["supervisor"]
        self.interface = "hv%04x" % shown["slot"]
        self.monitor = int(read(f"/proc/{self.init}/stat").rsplit(")", 1)[1].split()[1])
        self.hostd = int(run("bash", "-c", os.environ["HOSTD_PID"]) if os.environ.get("HOSTD_PID") else run("pidof", "-s", "hostd"))
        os.makedirs(directory, mode=0o755, exist_ok=True)
        self.canary = f"{directory}/canary"
        with open(self.canary, "w") as f:
            f.write(SECRET + "\n")
        self.victim = Victim(f"{directory}/signals")
        self.listeners = Listeners()
        self.listeners.prove()
        Talk().start()
        self.key = int(os.environ.get(KEY_FILE) or 0) or key_add()
        self.shm = LIBC.shmget(0x65736361, 4096, 0o1666)
        open("/dev/shm/hostd-escape", "w").close()
        self.boxes = self.box_directories()
        self.rules = self.rule_text()
        self.files = self.kernel_files()
        self.before = self.state(True)

    def end(self):
        self.victim.end()
        LIBC.shmctl(self.shm, 0, None)
        os.unlink("/dev/shm/hostd-escape")

    def box_directories(self):
        found = []
        for line in read(f"/proc/{self.init}/cgroup").splitlines():
            number, controllers, path = line.split(":", 2)
            path = path.split("/payload")[0]
            for top in ["/sys/fs/cgroup"] + ["/sys/fs/cgroup/" + d for d in os.listdir("/sys/fs/cgroup")]:
                if path.endswith("/box") and os.path.isdir(top + path) and top + path not in found:
                    found.append(top + path)
        return found

    def kernel_files(self):
        """Settings of the kernel's, and the limits of the instance's groups: what is compared line by line."""
        names = re.compile(r"(max|high|min|low|weight|limit_in_bytes|cfs_\w+|shares|cpus|mems|devices\.list|notify_on_release|oom\.group)$")
        found = []
        for directory, _, files in os.walk("/proc/sys"):
            found += [f"{directory}/{f}" for f in files if not VOLATILE.search(f"{directory}/{f}") and os.stat(f"{directory}/{f}").st_mode & 0o400]
        for group in [box + part for box in self.boxes for part in ("", "/payload", "/guest", "/commands")]:
            # The kernel counts what was used in the first of these; the second is the guest's own.
            found += [f"{group}/{n}" for n in (os.listdir(group) if os.path.isdir(group) else ())
                      if names.search(n) and not n.endswith(("max_usage_in_bytes", "effective_cpus")) and not (group.endswith("/payload") and n == "memory.oom.group")]
        return sorted(found)

    def network(self):
        """Ours and the uplink only: others may work on this machine."""
        uplink = re.findall(r"^default .*dev (\S+)", run("ip", "route"), re.M)
        lines = [line for name in ["lo", self.interface] + uplink for line in run("ip", "-o", "addr", "show", "dev", name).splitlines()]
        lines += [line for line in run("ip", "route").splitlines() if self.interface in line or line.startswith("default")]
        return "\n".join(re.sub(r"valid_lft.*", "", line) for line in lines) + run("ip", "rule") + run("nft", "list", "tables", "inet")

    @staticmethod
    def rule_text():
        """hostd's table, without what traffic changes in it."""
        return re.sub(r" expires \S+", "", run("nft", "-s", "list", "table", "inet", "hostd")) + run("nft", "list", "tables")

    @staticmethod
    def mounts():
        """The kernel's own file systems, the root, what belongs to hostd, and whatever has an attempt's name."""
        lines = []
        for line in read("/proc/self/mountinfo").splitlines():
            fields, kind = line.split(), line.split(" - ")[1].split()
            if re.match(r"/(proc|sys|dev|etc)?(/|$)", fields[4]) or "hostd" in fields[4] or "escape" in line:
                lines.append(f"{fields[3]} {fields[4]} {fields[5]} {kind[0]}")
        return "\n".join(sorted(set(lines)))

    @staticmethod
    def loops():
        files = [read(f"/sys/block/{d}/loop/backing_file").strip() for d in os.listdir("/sys/block") if os.path.exists(f"/sys/block/{d}/loop/backing_file")]
        return " ".join(f for f in sorted(files) if "escape" in f or f.endswith("/image"))

    @staticmethod
    def writes():
        """No file system that instances share with the host may be frozen, read-only or shut down."""
        path = os.path.join(os.environ.get("HOSTD_STATE", "/var/lib/hostd"), ".escape")
        writer = subprocess.Popen(["touch", path], stderr=subprocess.DEVNULL)
        try:
            if writer.wait(timeout=10):
                return "read-only"
        except subprocess.TimeoutExpired:
            return "frozen"  # and nobody can kill it
        os.unlink(path)
        return "yes"

    def state(self, thorough=False):
        """`thorough` takes programs of their own, and is for the end."""
        st = os.stat(self.canary)
        state = {
            "the file": f"{read(self.canary)} {oct(st.st_mode)} {st.st_uid} {st.st_gid} {sorted(f for f in os.listdir(self.directory) if not f.startswith('signals'))}",
            "the process": self.victim.state(),
            "the key": key_text(self.key) if self.key else "",
            "the shared memory": str(LIBC.shmget(0x65736361, 0, 0) >= 0) + str(os.path.exists("/dev/shm/hostd-escape")),
            "the sockets": " ".join(self.listeners.hits),
            # By one program: under emulation Python takes half a minute for these.
            "sysctls and limits": run("grep", "-as", "", "/dev/null", *self.files),
            "names": " ".join(os.uname()[1:2]) + read("/proc/sys/kernel/domainname"),
            "modules": "\n".join(loaded_modules()),
            "mounts": self.mounts(),
            "devices": " ".join(sorted(os.listdir("/dev"))),
            "loops": self.loops(),
            "swaps": "\n".join(line.split()[0] for line in read("/proc/swaps").splitlines()),
            "kexec": read("/sys/kernel/kexec_loaded"),
            "the helper program": read("/sys/kernel/uevent_helper"),
            "hostd": f"{os.path.exists(f'/proc/{self.hostd}')} {read(f'/proc/{self.hostd}/comm')}",
            "the instance": f"{os.path.exists(f'/proc/{self.init}')}",
            "planted": str(os.path.exists("/tmp/hostd-escape-planted") or os.path.exists(f"{self.directory}/planted")),
            "storage": self.writes(),
            "interfaces": "\n".join(sorted(line.split(":")[0].strip() for line in read("/proc/net/dev").splitlines() if re.match(rf" *(lo|e\w+|{self.interface}):", line))),
        }
        if thorough:
            state["network"] = self.network()
        return state

    def differences(self, thorough=False):
        """None, or what changed. A thing that lags behind gets a moment."""
        for attempt in range(6):
            now = self.state(thorough)
            clock = time.time() - time.monotonic()
            changed = [k for k in now if now[k] != self.before[k]]
            if not changed and abs(clock - self.clock) < 2:
                return None
            time.sleep(0.3)
        if not changed:
            return f"the clock jumped by {clock - self.clock:.1f} s"
        lines = []
        for k in changed:
            old, new = self.before[k].splitlines(), now[k].splitlines()
            lines.append(f"{k}: " + " ".join(["-" + line for line in old if line not in new] + ["+" + line for line in new if line not in old])[:600])
        return "; ".join(lines)

    clock = time.time() - time.monotonic()

    # --- checks of single rows

    def processes(self):
        ours = os.readlink(f"/proc/{self.init}/ns/user")
        for pid in os.listdir("/proc"):
            try:
                if pid.isdigit() and os.readlink(f"/proc/{pid}/ns/user") == ours:
                    yield int(pid)
            except OSError:
                pass

    def no_escapee(self):
        """Whatever a command leaves behind dies with it."""
        for _ in range(50):
            left = [p for p in os.listdir("/proc") if p.isdigit() and read(f"/proc/{p}/comm") == "hostd-escapee\n" and "Z" not in re.search(r"^State:.*", read(f"/proc/{p}/status"), re.M)[0]]
            if not left:
                return None
            time.sleep(0.1)
        return f"process {left[0]} lives on in {read(f'/proc/{left[0]}/cgroup')}"

    def accept_modules(self):
        """What was loaded stays so, and is named; that nothing was unloaded is compared."""
        now = "\n".join(sorted(set(loaded_modules()) | set(self.before["modules"].splitlines())))
        new = set(now.splitlines()) - set(self.before["modules"].splitlines())
        self.before["modules"] = now
        return new

    def no_gift(self):
        """No file of the guest's is open in what hostd runs on the host, nor in its helper inside."""
        helpers = [int(pid) for pid in run("pidof", "hostd-guest").split()]
        for pid in (self.hostd, self.supervisor, self.monitor, *helpers):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                try:
                    if GIVEN in os.readlink(f"/proc/{pid}/fd/{fd}"):
                        return f"{read(f'/proc/{pid}/comm').strip()} took descriptor {fd}"
                except FileNotFoundError:
                    pass  # closed meanwhile
        return None

    def same_rules(self):
        now = self.rule_text()
        return None if now == self.rules else f"the host's rules changed: {sorted(set(now.splitlines()) ^ set(self.rules.splitlines()))}"

    def no_upcall(self):
        log = os.environ.get("HOSTD_ESCAPE_UPCALL")
        time.sleep(0.3 if log else 0)
        return f"the kernel ran /sbin/request-key: {read(log)}" if log and os.path.exists(log) else None


# ---- what holds without any attempt

def all_confined(host, apparmor):
    base, count = (int(n) for n in read(f"/proc/{host.init}/uid_map").split()[1:3])
    wrong = []
    for pid in host.processes():
        status = read(f"/proc/{pid}/status")
        if status.startswith("("):
            continue
        uids = [int(n) for n in re.search(r"^Uid:\s+(.*)$", status, re.M)[1].split()]
        if not all(base <= u < base + count for u in uids):
            wrong.append(f"{pid} has uids {uids}")
        if "\nSeccomp:\t2\n" not in status:
            wrong.append(f"{pid} has no filter")
        if "\nCapInh:\t0000000000000000\n" not in status:
            wrong.append(f"{pid} has inheritable capabilities")
        if apparmor and read(f"/proc/{pid}/attr/current").strip("\0\n") != "hostd-instance (enforce)":
            wrong.append(f"{pid} is {read(f'/proc/{pid}/attr/current')}")
    say(not wrong, "every process inside is in its id range, filtered" + (" and under the profile" if apparmor else ""), wrong)


def no_host_descriptors(host):
    """A file of the host's has a mount that the instance does not have."""
    mounts = {line.split()[0] for line in read(f"/proc/{host.init}/mountinfo").splitlines()}
    wrong, seen = [], 0
    for pid in host.processes():
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
                seen += 1
                if not target.startswith("/") or target in ("/dev/null", "/memfd:hostd-guest (deleted)"):
                    continue
                mount = re.search(r"^mnt_id:\s+(\d+)", read(f"/proc/{pid}/fdinfo/{fd}"), re.M)
                if not mount or mount[1] not in mounts:
                    wrong.append(f"{read(f'/proc/{pid}/comm').strip()} {fd}: {target}")
        except OSError:
            continue
    say(not wrong and seen > 5, f"none of the {seen} descriptors inside is a file of the host's", wrong)


def as_nobody(*command):
    return subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", *command], capture_output=True, text=True).returncode


def setuid_out_of_reach(host, program):
    """On disk ids are 0-based: a setuid file of the guest's root would be one of the host's root."""
    inside = "cp /bin/escape /home/agent/su && chown 0:0 /home/agent/su && chmod 4755 /home/agent/su && cp -p /home/agent/su /var/tmp/su && (exec -a x /var/tmp/su descriptors; sleep 20) &"
    run("hostctl", "exec", host.instance, "--", "sh", "-c", inside.replace("exec -a x ", "") + " sleep 1")
    state = os.environ.get("HOSTD_STATE", "/var/lib/hostd")
    paths = run("find", f"{state}/instances/{host.instance}", "-name", "su", "-perm", "-4000").split()
    say(len(paths) == 2 and all(os.stat(p).st_uid == 0 for p in paths), "control: the files are there, root's and setuid", paths)
    pids = list(host.processes())
    ways = paths + [f"/proc/{p}/root/var/tmp/su" for p in pids] + [f"/proc/{p}/cwd" for p in pids] + [f"{state}", os.environ.get("HOSTD_RUN", "/run/hostd") + "/instances"]
    reached = [w for w in ways if as_nobody("test", "-e", w) == 0 and (w in paths or as_nobody("ls", w) == 0)]
    say(not reached, f"no local user reaches a setuid file of the guest's by any of {len(ways)} paths", reached)
    run("hostctl", "exec", host.instance, "--", "rm", "-f", "/home/agent/su", "/var/tmp/su")


# ---- the rows

def attempt(host, who, name, arguments):
    """A line of the program for each argument, "" being none at all."""
    lines = run("hostctl", "exec", "-u", who, host.instance, "--", "/bin/escape", name, *[a for a in arguments if a], timeout=60 + 30 * len(arguments)).splitlines()
    lines += ["nothing"] * (len(arguments) - len(lines))
    return [line.partition(" ")[::2] for line in lines]


def is_under(row, apparmor):
    return apparmor and (not row.network or profile_minds_sockets())


def judge(row, who, outcome, detail, apparmor):
    expected = row.apparmor.get(who) if is_under(row, apparmor) and row.apparmor.get(who) else getattr(row, who)
    if not re.fullmatch(expected, outcome):
        return f"{outcome} instead of {expected}: {detail[:400]}"
    if re.search(row.never, detail):
        return f"it got through: {detail[:600]}"
    if row.only and outcome == "done":
        strange = [w for w in detail.split() if not re.fullmatch(row.only, w)]
        if strange:
            return f"these can be written: {' '.join(strange)[:600]}"
    return None


def batches(only):
    """Rows that are one attempt with other arguments are made in one go."""
    batch = []
    for row in ROWS:
        if only and not re.search(only, row.attempt):
            continue
        if batch and (row.attempt.split()[0] != batch[0].attempt.split()[0] or row.host or " " not in row.attempt):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def rows(host, words, apparmor, report, only):
    for batch in batches(only):
        name = batch[0].attempt.split()[0]
        for who in ("root", "agent"):
            tried = [row for row in batch if getattr(row, who)]
            if not tried:
                continue
            outcomes = attempt(host, who, name, [row.attempt.format(**words).partition(" ")[2] for row in tried])
            if any(row.loads == "always" or row.loads and not is_under(row, apparmor) for row in tried):
                modules = host.accept_modules()
                if modules:
                    print(f"# {name} as {who} had the host load {' '.join(sorted(modules))}", flush=True)
            changed = (getattr(host, tried[0].host)() if tried[0].host else None) or host.differences()
            for row, (outcome, detail) in zip(tried, outcomes):
                if report:
                    report.write(f"{row.attempt}\t{who}\t{outcome}\t{detail}\n")
                    report.flush()
                why = judge(row, who, outcome, detail, apparmor) or changed and f"of these {len(tried)} one changed the host: {changed}"
                say(not why, f"escape: {row.attempt} as {who}", why)


def main():
    if sys.argv[1] == "--with-key":
        os.environ[KEY_FILE] = str(key_add())
        os.execvp(sys.argv[2], sys.argv[2:])
    instance, program = sys.argv[1:3]
    options = sys.argv[3:]
    value = lambda name: options[options.index(name) + 1] if name in options else None
    directory = f"/var/tmp/{SECRET}"
    report = open(value("--report"), "w") if value("--report") else None
    host = Host(instance, directory)
    disk = next((d for d in os.listdir("/sys/block") if re.match(r"(vd|sd|nvme)", d)), None)
    number = read(f"/sys/block/{disk}/dev").strip() if disk else "8:0"
    words = {
        "canary": host.canary, "planted": f"{directory}/planted", "disk": "b:" + number, "image": "/tmp/image", "victim": host.victim.pid,
        "hostd": host.hostd, "monitor": host.monitor, "key": host.key, "abstract": SECRET, "port": host.listeners.port("port"),
        "vsock": host.listeners.port("vsock"), "given": GIVEN, "secret": SECRET + "-spoken", "interface": host.interface,
    }
    try:
        all_confined(host, "--apparmor" in options)
        no_host_descriptors(host)
        setuid_out_of_reach(host, program)
        say(not host.differences(), "control: the host is as it was before the first attempt", host.differences())
        rows(host, words, "--apparmor" in options, report, value("--only"))
        say(not host.differences(True), "after all of them the host is as it was, its network too", host.differences(True))
        all_confined(host, "--apparmor" in options)
    finally:
        host.end()
        subprocess.run(["rm", "-rf", directory])


main()
