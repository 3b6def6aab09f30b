# SPDX-License-Identifier: GPL-2.0-or-later
"""What is tried from inside, as whom, and how it must end there. After each row the host is compared with itself (host.py)."""
from dataclasses import dataclass, field


@dataclass
class Row:
    attempt: str              # of the program, with its argument; {words} are filled in by host.py
    root: str = ""            # outcomes that are right for root of the instance, "" not tried
    agent: str = ""           # for uid 1000
    apparmor: dict = field(default_factory=dict)  # {"root": ..., "agent": ...}: outcomes under the profile, where they differ
    never: str = "READ|OPENED|LISTED"             # what the detail must not show
    only: str = ""            # if "done": each word of the detail must match
    host: str = ""            # a check of host.py beyond the common ones
    network: bool = False     # those of `apparmor` hold where the profile says something about sockets, and "unconfined" is where it does not
    loads: str = ""           # "always", "unconfined": may have the host load modules (docs/security-model.md, "What is left")


def profile_minds_sockets():
    """Linux before 6.2 cannot be told to without refusing locks on them: see the head of the profile."""
    with open("/etc/apparmor.d/hostd-instance") as f:
        return "abi/kernel-5.4-vanilla" not in f.read()


NO = "EPERM|EACCES"
GONE = "ENOENT|ENODEV|EOPNOTSUPP|EPERM|EACCES"  # the kernel may not have it, and AppArmor may say so first


def both(attempt, outcomes, **more):
    return Row(attempt, outcomes, outcomes, **more)


# File systems that show or change the host are for the initial user namespace; the others are each instance's own.
FOREIGN_TYPES = ("debugfs tracefs securityfs bpf pstore efivarfs hugetlbfs configfs devtmpfs fusectl autofs nfs nfs4 cifs 9p ceph "
                 "rpc_pipefs nfsd selinuxfs functionfs resctrl vboxsf zonefs ext4 xfs btrfs vfat iso9660 squashfs f2fs ntfs3 "
                 "ext4:{image} xfs:{image} erofs:{image} squashfs:{image}").split()
OWN_TYPES = "tmpfs ramfs devpts".split()

# Below /proc/sys: what is per network, ipc, pid, uts and user namespace. The rest has an owner that is not mapped.
OWN_SYSCTL = (r"/sys/net/.*|/sys/fs/mqueue/.*|/sys/user/.*|/sys/kernel/(auto_msgmni|msg.*|sem.*|shm.*|ns_last_pid|pid_max|hostname|domainname)"
              r"|/pressure/(io|cpu|memory|irq)|/net/.*")
# Below /sys: the interfaces of its own network namespace, and its own control groups.
OWN_SYSFS = r"/devices/virtual/net/.*|/devices/.*/net/eth0/.*|/class/net/.*|/fs/cgroup/.*|/kernel/ima/.*"

ROWS = [
    # --- mounts
    *[both(f"mount {t}", GONE + "|EINVAL|ENOTBLK", loads="always") for t in FOREIGN_TYPES],
    # Own for each user namespace from 6.7 on. The profile refuses mount(2), and nothing that begins with fsopen(2).
    both("mount binfmt_misc", GONE + "|done", loads="always"),
    *[both(f"mount {t}", "done") for t in OWN_TYPES],
    Row("mount mqueue", "done", "done|EPERM"),
    Row("mount cgroup2", "done|EBUSY", NO),
    both("mount cgroup", NO + "|EINVAL|ENODEV|EBUSY"),
    both("mount-proc", "done"),
    both("overlay /etc", "done"),
    both("remount-dev /", NO + "|EINVAL"),
    both("remount-dev /home", NO + "|EINVAL"),
    both("remount-dev /dev", NO + "|EINVAL|done"),
    both("idmap /home", NO + "|EINVAL"),
    both("idmap /", NO + "|EINVAL"),
    both("reach {canary}", "ENOENT"),
    both("chroot {canary}", "ENOENT"),
    both("umount-all {canary}", "ENOENT"),
    both("pivot {canary}", "ENOENT"),
    both("enter {canary}", "ENOENT"),
    both("handle /", "ENOSYS"),
    both("handle /home", "ENOSYS"),
    # --- devices
    *[both(f"mknod {d}", NO) for d in ("{disk}", "b:7:0", "b:8:0", "c:1:1", "c:1:2", "c:1:11", "c:10:229", "c:10:232", "c:10:237", "c:1:3")],
    *[both(f"open /dev/{d}", "ENOENT|EACCES|ENXIO|EPERM") for d in
      ("mem kmem port kmsg kvm loop-control loop0 sda vda nvme0n1 vsock vhost-net vhost-vsock userfaultfd snapshot mapper/control "
       "cpu_dma_latency btrfs-control tty0 vcs input/event0 rtc0 watchdog hpet sgx_enclave dri/card0").split()],
    both("devices", "ENOENT"),
    both("tun {interface}", "done|EACCES|ENOENT|EPERM", loads="always"),
    both("ldisc", "EPERM"),
    both("console", NO + "|EINVAL|ENOTTY"),
    both("fs-calls /", NO + "|ENOTTY|EOPNOTSUPP", never="=done"),
    both("fs-calls /home", NO + "|ENOTTY|EOPNOTSUPP", never="=done"),
    # --- processes
    both("by-number {victim}", "ESRCH|EPERM", never="=done"),
    both("by-number {hostd}", "ESRCH|EPERM", never="=done"),
    both("by-number {monitor}", "ESRCH|EPERM", never="=done"),
    both("everybody", "done|EPERM"),
    both("helper", "EPERM|EACCES", never="=done"),
    Row("trace-init", "done", NO),
    both("ipc", "ENOENT"),
    both("descriptors", "ENOENT"),
    both("outlive", "done", host="no_escapee"),
    # --- the kernel
    both("bpf", "EPERM"),
    both("perf", "EPERM|EACCES"),
    both("io_uring", "ENOSYS"),
    both("userfaultfd", "EPERM|ENOSYS"),
    both("kexec", "ENOSYS", never="=done"),
    both("modules", "ENOSYS", never="=done"),
    both("swap {image}", "EPERM", never="=done"),
    both("acct /tmp/acct", "ENOSYS"),
    both("quota /home", NO + "|ENOSYS|ESRCH|EINVAL|ENOTTY|ENOENT|ENODEV", never="=done"),
    both("time", "EPERM", never="=done"),
    both("timens", "done"),
    both("ports", "EPERM|ENOSYS", never="=done"),
    both("syslog", "EPERM", never="=done"),
    both("reboot", "EPERM|EINVAL", never="=done"),
    both("names", "done"),
    both("fanotify /", NO + "|EINVAL|EOPNOTSUPP|ENODEV|EXDEV", never="=done"),
    both("fanotify /home", NO + "|EINVAL|EOPNOTSUPP|ENODEV|EXDEV", never="=done"),
    both("priority", NO, never="=done"),
    both("vhangup", "EPERM"),
    both("keys {key}", "ENOKEY|EACCES", never="READ|=done"),
    both("fill-keys", "done"),
    both("keys {key}", "ENOKEY|EACCES", never="READ|=done"),
    both("empty-keys", "done"),
    both("request-key", "EPERM", never="=done", host="no_upcall"),
    # The argument of i386's socketcall cannot be seen by seccomp: where AppArmor minds no sockets it opens what the host's kernel has.
    both("int80", "EPERM|ENOSYS|EAFNOSUPPORT|EACCES|done", never="(bpf|perf|userfaultfd|io_uring|init_module|kexec|handle|swapon|request_key)=done", loads="unconfined",
         network=True, apparmor={"root": "EPERM|ENOSYS|EAFNOSUPPORT|EACCES", "agent": "EPERM|ENOSYS|EAFNOSUPPORT|EACCES"}),
    both("x32", "EPERM|ENOSYS|EAFNOSUPPORT|EACCES", never="=done"),
    # --- sockets
    both("families", "EAFNOSUPPORT"),
    both("vsock {vsock}", "EAFNOSUPPORT"),
    both("abstract {abstract}", "ECONNREFUSED|EACCES"),
    both("host-port {port}", "ECONNREFUSED|EHOSTUNREACH|ETIMEDOUT|ENETUNREACH|EINPROGRESS|EACCES", never="=done"),
    both("netlink", "EPERM|EACCES|ECONNREFUSED|EPROTONOSUPPORT", never="=done"),
    both("sniff {secret}", "ENOENT|EPERM"),
    # --- what hostd holds
    both("give {given}", "ENOENT|ECONNREFUSED|ENOTSOCK|EACCES", never="=done", host="no_gift"),
    both("tables hostd", "done", never="LISTED|delete-hostd=done", host="same_rules", loads="always"),
    both("target-namespace", "EACCES|EPERM|EINVAL", never="=done", host="same_rules", loads="always"),
    # --- the kernel's files
    both("writable /proc", "done|EACCES", only=OWN_SYSCTL),
    both("writable /sys", "done|EACCES", only=OWN_SYSFS),
    both("writable-fresh proc", "done|EPERM|EACCES", only=OWN_SYSCTL),
    both("writable-fresh sysfs", "done|EPERM|EACCES", only=OWN_SYSFS),
    both("writable /dev/.lxc/proc", "done|EACCES", only=OWN_SYSCTL, apparmor={"root": "EACCES", "agent": "EACCES"}),
    both("writable /dev/.lxc/sys", "done|EACCES", only=OWN_SYSFS, apparmor={"root": "EACCES", "agent": "EACCES"}),
    *[both(f"write {f}", "EACCES|EROFS|ENOENT|EPERM") for f in (
        "/proc/sysrq-trigger=h", "/proc/sys/kernel/core_pattern=|{planted}", "/proc/sys/kernel/modprobe={planted}", "/proc/sys/vm/drop_caches=1",
        "/proc/sys/kernel/sysrq=1", "/proc/sys/kernel/panic=1", "/proc/sys/fs/suid_dumpable=2", "/proc/sys/fs/binfmt_misc/register=:x:M::x::{planted}:",
        "/sys/kernel/uevent_helper={planted}", "/sys/power/state=x", "/sys/kernel/mm/ksm/run=1", "/sys/module/kernel/parameters/panic=1",
        "/sys/fs/cgroup/release_agent={planted}", "/proc/irq/default_smp_affinity=1", "/proc/1/oom_score_adj=-1000")],
    *[both(f"read {f}", "EACCES|ENOENT|EPERM|EIO|ENODATA") for f in (
        "/proc/kcore", "/proc/kmsg", "/proc/vmallocinfo", "/proc/kpagecount", "/proc/slabinfo", "/proc/kpageflags", "/sys/kernel/debug/x", "/proc/vmcore")],
    both("read /proc/kallsyms", "done|EACCES|EPERM|ENOENT", apparmor={"root": "EACCES|ENOENT", "agent": "EACCES|ENOENT"}),
    both("read /dev/.lxc/proc/version", "done|EACCES", apparmor={"root": "EACCES", "agent": "EACCES"}),
    both("write /proc/self/attr/current=changeprofile unconfined", "done|EINVAL|EACCES|EPERM|ENOENT", apparmor={"root": "EACCES|EPERM", "agent": "EACCES|EPERM"}),
    both("write /sys/kernel/security/apparmor/.remove=hostd-instance", "ENOENT|EACCES|EPERM"),
    # --- control groups
    both("raise", "EACCES|ENOENT|EPERM", never="=done"),
    both("many-groups", "EAGAIN|EACCES"),
    both("release-agent {planted}", NO + "|EINVAL|ENODEV|ENOENT|EBUSY", never="(release_agent|devices.allow)=done"),
    Row("fresh-cgroup", NO + "|ENOENT|EBUSY", NO + "|EBUSY", never="(max|group|box)=done"),
]
