#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# hostd-instance by itself: real containers from a busybox root and a Debian root with systemd, driven through the control
# socket. usage: instance.sh BUILD_DIR [quick]; needs root. The Debian root is built once below $HOSTD_TEST_CACHE.
set -u
build=$(cd "${1:-.}" && pwd) quick=${2:-}
cache=${HOSTD_TEST_CACHE:-/var/tmp/hostd-test-cache}
passed=0 failed=0 skipped=0
# How much slower than a real machine this one may be; `wait` is for what should take no time, and few rounds are enough there.
slow=${HOSTD_TEST_SLOW:-1}
wait=$((20 * (slow > 1 ? 6 : 1)))
[ "$slow" -eq 1 ] || quick=quick
ok() { passed=$((passed + 1)); echo "ok: $*"; }
bad() { failed=$((failed + 1)); echo "FAILED: $*"; }
skip() { skipped=$((skipped + 1)); echo "SKIP: $*"; }
check() { local what=$1; shift; if "$@" >"$top/out" 2>&1; then ok "$what"; else bad "$what: $(tail -n 3 "$top/out")"; fi; }
# settles TENTHS COMMAND...: it comes true within so many tenths of a second, or later on a machine that is slow itself
settles() { local i; for ((i = 0; i <= (slow > 1 ? 50 * slow : $1); i++)); do "${@:2}" >/dev/null 2>&1 && return 0; sleep 0.1; done; return 1; }
finish() { echo "$passed passed, $failed failed, $skipped skipped"; [ "$failed" = 0 ]; exit; }

[ "$(id -u)" = 0 ] || { top=/tmp; skip "needs root"; finish; }
top=$(mktemp -d /var/tmp/hostd-test-instance.XXXXXX)
id=hostd-test-instance-$$ netns=hostd-ti-$$ host_if=hti$$
client=$build/tests/integration/instance_client
base=524288000 count=1048576
export HOSTD_GUEST=$build/tests/integration/fake_guest
hierarchies=$(findmnt -rno TARGET -t cgroup,cgroup2)
unified=false; findmnt -rno FSTYPE /sys/fs/cgroup | grep -q cgroup2 && unified=true

cgroups_make() { # PREFIX, as hostd does it
        local h d
        for h in $hierarchies; do
                d=$h
                for part in ${1//\// } box guest; do
                        [ "$unified" = true ] && echo "+memory +pids +cpu" >"$d/cgroup.subtree_control" 2>/dev/null
                        d=$d/$part; mkdir -p "$d"
                        [ -e "$d/cgroup.clone_children" ] && echo 1 >"$d/cgroup.clone_children"
                        if [ -e "$d/cpuset.cpus" ] && [ "$unified" = false ]; then
                                cat "$h/cpuset.cpus" >"$d/cpuset.cpus"; cat "$h/cpuset.mems" >"$d/cpuset.mems"
                        fi
                done
        done
}
cgroups_sweep() {
        local h
        for h in $hierarchies; do
                [ -d "$h/$id" ] && find "$h/$id" -depth -type d -exec rmdir {} + 2>/dev/null
        done
        return 0
}
cgroup_procs() { cat $(for h in $hierarchies; do find "$h/$id" -name cgroup.procs 2>/dev/null; done) /dev/null 2>/dev/null | sort -u; }
no_procs() { [ -z "$(cgroup_procs)" ]; }
supervisors=""
cleanup() {
        for p in $supervisors; do kill -9 "$p" 2>/dev/null; done
        sleep 0.3; cgroups_sweep
        ip netns del "$netns" 2>/dev/null
        findmnt -rn "$top/erofs" >/dev/null && umount "$top/erofs"
        rm -rf --one-file-system "$top"
}
trap cleanup EXIT
ip netns add "$netns"; ip -n "$netns" link set lo up

generation=0
instance_new() { # NAME TEMPLATE: a fresh run directory and storage
        run=$top/$1/run; storage=$top/$1/root
        mkdir -p "$top/$1" "$storage"/{upper,work,data}; mkdir -p -m 0700 "$run"
}
spec() { # NAME TEMPLATE [extra json]
        generation=$((generation + 1)); prefix=$id/i0042-g$generation
        cgroups_make "$prefix"
        cat >"$run/spec.json" <<END
{"name": "$1", "slot": 42, "id_base": $base, "id_count": $count, "run_dir": "$run", "template_dir": "$2",
 "root_dir": "$storage", "cgroup_prefix": "$prefix", "log_file": "$storage/console.log", ${3:-}
 "open_files": 16384, "read_only": ${read_only:-false}, "unified_cgroup": $unified}
END
        rm -f "$run/target" "$run/error" "$run/started"
}
launch() { nsenter --net="/run/netns/$netns" "$build/hostd-instance" "$run" 2>"$run/stderr" & supervisor=$!; supervisors="$supervisors $supervisor"; }
running() { "$client" "$run" running "${1:-$wait}" >"$run/client"; }
init_pid() { sed -n 's/^STATE running.*init=//p' "$run/client" | tail -n 1; }
gone() { local i; for ((i = 0; i < ${1:-200} * slow; i++)); do kill -0 "$supervisor" 2>/dev/null || return 0; sleep 0.05; done; return 1; }
stop() { timeout $((wait + 20)) "$client" "$run" stop $((wait + 10)) >"$run/stop"; gone; }
in_it() { nsenter -a -t "$init" -S 0 -G 0 -- "$@"; } # all namespaces, as their root
# As hostd does it: the client runs this as soon as there is a namespace, and init waits for its end.
plug=$top/plug
cat >"$plug" <<END
set -e
ip -n "$netns" link del "$host_if" 2>/dev/null || true
ip -n "$netns" link add "$host_if" type veth peer name eth0 address 02:00:00:00:00:42 netns "\$1"
ip -n "$netns" addr add 169.254.0.1/32 dev "$host_if"; ip -n "$netns" link set "$host_if" up
ip -n "$netns" route add 10.77.0.2/32 dev "$host_if"
inside() { nsenter -t "\$1" -n -- "\${@:2}"; }
inside "\$1" ip addr add 10.77.0.2/32 dev eth0; inside "\$1" ip addr add fd00:77::2/128 dev eth0
inside "\$1" ip link set eth0 up; inside "\$1" ip route add 169.254.0.1 dev eth0
inside "\$1" ip route add default via 169.254.0.1; inside "\$1" ip route add default via fe80::1 dev eth0
END
export INSTANCE_PLUG=$plug
net='"network": true,'

busybox_root() { # DIR
        mkdir -p "$1"/{bin,sbin,dev,proc,sys,run,tmp,etc,var/lib,home/agent,root}
        cp "$(command -v busybox)" "$1/bin/busybox"
        "$1/bin/busybox" --list | grep -vx busybox | while read -r a; do ln -sf busybox "$1/bin/$a"; done
        rm -f "$1/sbin/init"; ln -s ../bin/busybox "$1/sbin/init"
        printf '::sysinit:/bin/true\nconsole::respawn:/bin/sh\n' >"$1/etc/inittab"
        echo 'root:x:0:0:root:/root:/bin/sh' >"$1/etc/passwd"
        echo hello >"$1/home/agent/file"; chown -R 1000:1000 "$1/home/agent"; chmod 0640 "$1/home/agent/file"
        ln -s /etc/shadow "$1/home/agent/link"; mkfifo "$1/home/agent/fifo"
}
ldd "$(command -v busybox)" 2>&1 | grep -q 'not a dynamic' || { skip "busybox is not static"; finish; }
busybox_root "$top/bb"

# --- a small init
instance_new small
spec small "$top/bb" "$net"
t0=$(date +%s%N); launch; running && t1=$(date +%s%N)
init=$(init_pid)
[ -n "$init" ] && ok "busybox init runs after $(((t1 - t0) / 1000000)) ms (helper included)" || { bad "no start: $(cat "$run/stderr" "$run/lxc.log" 2>/dev/null)"; finish; }
check "the root is an overlay, device nodes off, no host path in it" sh -c "awk '\$5 == \"/\"' /proc/$init/mountinfo | grep -q ' / / rw,nodev,relatime.* overlay root rw,lowerdir=l,upperdir=u/upper,workdir=u/work'"
check "no mount tells of the host but the data binds and the group" sh -c "! grep -v -e ' /home ' -e ' /var/lib/containers ' -e ' /sys/fs/cgroup ' /proc/$init/mountinfo | grep -e '$top' -e hostd"
check "host name" test "$(in_it hostname)" = small
check "home was filled from the template with owner and mode" test "$(in_it stat -c '%u:%g %a' /home/agent/file)" = "1000:1000 640"
check "links were copied as links" test "$(readlink "$storage/data/home/agent/link")" = /etc/shadow
check "fifos were left out" test ! -e "$storage/data/home/agent/fifo"
check "on disk ids are 0-based" test "$(stat -c '%u' "$storage/data/home/agent/file")" = 1000
check "a file made inside is the instance root's, 0 on disk" sh -c "nsenter -a -t $init -S 0 -G 0 -- touch /etc/new && test \$(stat -c %u '$storage/upper/etc/new') = 0"
check "address, route and link" sh -c "nsenter -a -t $init -- ip addr show eth0 | grep -q '10.77.0.2/32' && nsenter -a -t $init -- ip route | grep -q 'default via 169.254.0.1'"
check "ping through the veth" in_it ping -c 1 -W 2 169.254.0.1
check "IPv6 default route" sh -c "nsenter -a -t $init -- ip -6 route | grep -q 'default via fe80::1'"
check "init is filtered" grep -q '^Seccomp:.*2' "/proc/$init/status"
check "open files limit" sh -c "grep -q '^Max open files *16384 *16384' /proc/$init/limits"
check "init is in box/payload" grep -q "$prefix/box/payload" "/proc/$init/cgroup"
check "one v2 hierarchy inside" in_it sh -c 'test -e /sys/fs/cgroup/cgroup.procs && mkdir /sys/fs/cgroup/x && rmdir /sys/fs/cgroup/x'
answer=$("$client" "$run" guest "$wait"); guest=$(sed -n 's/.*hostpid=\([0-9]*\).*/\1/p' <<<"$answer")
check "helper: only descriptors 0 to 3, and its program" bash -c "grep -q 'fds=0,1,2,3,4, ' <<<'$answer' && readlink /proc/$guest/fd/4 | grep -q '^/memfd:hostd-guest'"
check "helper: root inside, mapped outside" grep -q "hostuid=0.*uid=0\|hostuid=$base.*uid=0" <<<"$answer"
check "helper: seccomp filter" grep -q 'module=38 ' <<<"$answer"
check "helper: environment" grep -q 'env=PATH=[^;]*;LANG=C.UTF-8;HOME=/;container=lxc;$' <<<"$answer"
check "helper: in box/guest" grep -q "$prefix/box/guest" "/proc/$guest/cgroup"
if ! capsh --has-p=cap_sys_resource 2>/dev/null; then skip "helper: oom score: no CAP_SYS_RESOURCE here"; else check "helper: oom score" grep -qx -- -900 "/proc/$guest/oom_score_adj"; fi
check "helper: same namespaces as init" sh -c "for n in user mnt pid net ipc uts cgroup; do [ \$(readlink /proc/$guest/ns/\$n) = \$(readlink /proc/$init/ns/\$n) ] || exit 1; done"
inner=$(awk '/^NSpid/ {print $3}' "/proc/$guest/status")
check "helper: the guest's root can read neither program, memory nor descriptors" in_it sh -c "! cat /proc/$inner/exe >/dev/null 2>&1 && ! cat /proc/$inner/maps >/dev/null 2>&1 && ! ls /proc/$inner/fd/ >/dev/null 2>&1"
check "supervisor lets no descriptor into init" sh -c "! ls -l /proc/$init/fd | grep -e memfd -e '$top' -e socket: -e pipe:"
"$client" "$run" quit "$wait"
helper_is_back() { answer2=$("$client" "$run" guest 10); [ -n "$answer2" ] && [ "$answer2" != "$answer" ]; }
check "a helper that died is back" settles 6 helper_is_back
console=$( (echo 'echo $((40+2))marker'; sleep $((slow > 1 ? 8 : 1))) | timeout "$wait" "$client" "$run" console $((wait - 1)) | tr -d '\r')
check "console" grep -q 42marker <<<"$console"
monitor=$(pgrep -P "$supervisor" | head -n 1) # whose standard input is the pipe that init waited for
no_relay() { ! pgrep -P "$supervisor" | grep -vx "$monitor" | xargs -r -I{} sh -c 'readlink /proc/{}/fd/0' | grep -q pipe; }
check "console relay ends with its client" settles 3 no_relay
timeout "$wait" "$client" "$run" watch "$wait" >"$run/watch" & watcher=$!
stop; wait $watcher
check "halt of busybox is reported" grep -q 'STATE stopped target=halt' "$run/watch"
check "and written" grep -qx halt "$run/target"
check "no mount of it outside" sh -c "! grep -q '$top/small' /proc/self/mountinfo"
check "no process left" settles 0 no_procs
ip -n "$netns" link del "$host_if" 2>/dev/null

# --- how it ends
end() { # WHAT TARGET COMMAND...: inside, as root
        local what=$1 target=$2; shift 2
        spec small "$top/bb"; launch; running; init=$(init_pid)
        timeout "$wait" "$client" "$run" watch "$wait" >"$run/watch" & watcher=$!
        sleep 0.1; "$@"; wait $watcher; gone
        check "$what is reported as $target" grep -q "STATE stopped target=$target" "$run/watch"
}
end "poweroff from inside" halt eval 'in_it poweroff -f'
end "reboot from inside" reboot eval 'in_it reboot -f'
end "death of init" crash eval 'kill -9 "$init"'
end "SIGTERM to the supervisor" terminated eval 'kill -TERM $supervisor'

# --- a spec is good for one start
launch; wait "$supervisor"; status=$?
check "a second start with the same run directory is refused" sh -c "[ $status != 0 ] && grep -q 'started by .hostctl start' '$run/stderr'"
said=$("$build/hostd-instance" "$top/absent/by-name/some" 2>&1); status=$?
check "a start that nobody prepared is refused" sh -c "[ $status != 0 ] && echo '$said' | grep -q 'started by .hostctl start some'"

# --- SIGTERM and a guest that does not listen
cp -a "$top/bb" "$top/deaf-root"; rm "$top/deaf-root/sbin/init"
printf '#!/bin/sh\ntrap "" USR2 PWR\nwhile :; do sleep 1; done\n' >"$top/deaf-root/sbin/init"; chmod 0755 "$top/deaf-root/sbin/init"
instance_new deaf; spec deaf "$top/deaf-root" '"stop_seconds": 2,'; launch; running
timeout "$wait" "$client" "$run" watch "$wait" >"$run/watch" & watcher=$!
t0=$(date +%s%N); kill -TERM "$supervisor"; wait $watcher; gone; t1=$(date +%s%N)
check "a guest that does not shut down is killed after stop_seconds ($(((t1 - t0) / 1000000)) ms)" test $(((t1 - t0) / 1000000)) -ge 1900 -a $(((t1 - t0) / 1000000)) -lt $((2000 + 4000 * slow))
check "that is said, and reported as terminated" sh -c "grep -q 'did not shut down within 2 s' '$run/stderr' && grep -q 'STATE stopped target=terminated' '$run/watch'"
check "and nothing of it is left" test -z "$(cgroup_procs)"
instance_new small

# --- kill -9 of the supervisor
spec small "$top/bb"; launch; running; init=$(init_pid); monitor=$(pgrep -P "$supervisor" | head -n 1)
kill -9 "$supervisor"
check "kill -9 of the supervisor takes all processes along" settles 5 no_procs

# --- init is held back until its interface is there
spec small "$top/bb" "$net"; launch
env -u INSTANCE_PLUG "$client" "$run" running "$wait" >"$run/client"; status=$?
check "init waits for its interface" test $status = 4
sleep 0.3
check "and goes on waiting" test "$(env -u INSTANCE_PLUG "$client" "$run" watch 1 | grep -c 'STATE running')" = 0
running; init=$(init_pid)
check "until a hostd comes that makes it" sh -c "nsenter -t $init -n -- ip addr show eth0 | grep -q 10.77.0.2/32"
stop
spec small "$top/bb" "$net"; launch
env -u INSTANCE_PLUG "$client" "$run" running "$wait" >"$run/client"; sleep 0.3
kill -9 "$supervisor"
check "kill -9 of the supervisor meanwhile takes all processes along" settles 5 no_procs

# --- stop at once, before init listens
spec small "$top/bb"; launch
check "start; stop at once" stop

# --- read-only root
instance_new ro
read_only=true spec ro "$top/bb"; launch; running; init=$(init_pid)
check "read-only root" in_it sh -c '! touch /etc/x && touch /tmp/x /run/x /home/agent/x'
stop

# --- hostile roots
hostile() { # WHAT PATTERN CHANGE
        local what=$1 pattern=$2
        cp -a "$top/bb" "$top/evil-root"; (cd "$top/evil-root" && eval "$3")
        instance_new evil; spec evil "$top/evil-root"; launch
        timeout "$wait" "$client" "$run" watch "$wait" >"$run/watch"
        wait "$supervisor"; status=$?
        check "hostile root ($what): refused with a reason" sh -c "[ $status != 0 ] && grep -q '^ERROR .*$pattern' '$run/watch' && grep -q 'STATE stopped' '$run/watch'"
        check "hostile root ($what): nothing left" sh -c "! grep -q '$top/evil' /proc/self/mountinfo && [ -z '$(cgroup_procs)' ]"
        rm -rf --one-file-system "$top/evil" "$top/evil-root"
}
hostile "dev is a link" /dev 'rmdir dev; ln -s / dev'
hostile "proc is a link" /proc 'rmdir proc; ln -s /etc proc'
hostile "sys is a file" /sys 'rmdir sys; echo >sys'
hostile "home is a link" /home 'rm -rf home; ln -s /root home'
hostile "var/lib is a link" /var/lib 'rm -rf var/lib; ln -s /etc var/lib'
hostile "no init" /sbin/init 'rm sbin/init'
hostile "init is a fifo" /sbin/init 'rm sbin/init; mkfifo sbin/init'
hostile "init is no program" 'did not start' 'rm sbin/init; echo "#!/absent" >sbin/init; chmod 755 sbin/init'
instance_new none; spec none "$top/absent"; launch; timeout "$wait" "$client" "$run" watch "$wait" >"$run/watch"; wait "$supervisor"
check "missing template: one sentence" grep -q '^ERROR opening the template' "$run/watch"
mkdir -p "$top/devtmpl"; cp -a "$top/bb/." "$top/devtmpl"; mknod -m 666 "$top/devtmpl/root/zero" c 1 5
instance_new dev; spec dev "$top/devtmpl"; launch; running; init=$(init_pid)
check "a device node of the template cannot be opened" in_it sh -c '! head -c 1 /root/zero'
stop

# --- erofs template
if command -v mkfs.erofs >/dev/null && mkdir "$top/erofs" && mkfs.erofs "$top/bb.erofs" "$top/bb" >/dev/null 2>&1 && mount -o loop,ro "$top/bb.erofs" "$top/erofs" 2>/dev/null; then
        instance_new image; spec image "$top/erofs"; launch; running; init=$(init_pid)
        check "erofs template" test "$(in_it stat -c '%u:%g %a' /home/agent/file)" = "1000:1000 640"
        stop
else
        skip "no erofs here"
fi

# --- cycles
instance_new cycle; cycles=50; [ -n "$quick" ] && cycles=5
times=""
for ((i = 0; i < cycles; i++)); do
        spec cycle "$top/bb" "$net"
        t0=$(date +%s%N); launch; running || { bad "cycle $i: no start: $(tail -n 2 "$run/lxc.log")"; break; }
        t1=$(date +%s%N); times="$times $(((t1 - t0) / 1000))"
        stop || { bad "cycle $i: no end"; break; }
        cgroups_sweep
done
echo "busybox start to helper, $cycles cycles, usec: p50 $(tr ' ' '\n' <<<"$times" | sed 1d | sort -n | sed -n "$((cycles / 2 + 1))p")"
check "$i cycles leave no mount" sh -c "! grep -e '$top/cycle' -e ' - overlay root ' -e ' /dev/shm/' /proc/self/mountinfo"
wire_gone() { local j; for ((j = 0; j < 50; j++)); do ip -n "$netns" link | grep -q -e "$host_if" -e eth0 || return 0; sleep 0.1; done; return 1; }
check "$i cycles leave no link" wire_gone
check "$i cycles leave no control group after a sweep of empty ones" sh -c "! ls -d /sys/fs/cgroup/$id /sys/fs/cgroup/*/$id 2>/dev/null"

# --- systemd of both releases
systemd_suite() {
        debian=$cache/$suite-root
        if [ ! -d "$debian" ] && command -v mmdebstrap >/dev/null; then
                mkdir -p "$cache"
                mmdebstrap --mode=root --variant=minbase --include=systemd,systemd-sysv,dbus,libpam-systemd,dbus-user-session,bubblewrap,podman,crun,uidmap,slirp4netns,passt,iputils-ping,fuse-overlayfs,procps,libcap2-bin,netavark,iproute2 "$suite" "$debian.new" >"$cache/$suite.log" 2>&1 && mv "$debian.new" "$debian"
        fi
        if [ ! -d "$debian" ]; then
                skip "systemd of $suite: its root cannot be made: $(tail -n 1 "$cache/$suite.log" 2>/dev/null || echo mmdebstrap is not installed)"
                return
        fi
        if [ ! -e "$debian/etc/containers/storage.conf" ]; then
                [ -d "$debian/home/agent" ] || chroot "$debian" useradd -m -u 1000 -s /bin/bash agent
                echo agent:100000:65536 >"$debian/etc/subuid"; echo agent:100000:65536 >"$debian/etc/subgid"
                mkdir -p "$debian/var/lib/systemd/linger"; touch "$debian/var/lib/systemd/linger/agent"
                for u in systemd-udevd.service systemd-modules-load.service systemd-networkd-wait-online.service e2scrub_all.timer sys-kernel-debug.mount sys-kernel-tracing.mount apt-daily.timer apt-daily-upgrade.timer; do ln -sf /dev/null "$debian/etc/systemd/system/$u"; done
                mkdir -p "$debian/etc/systemd/system/user@.service.d"; printf '[Service]\nDelegate=cpu cpuset io memory pids\n' >"$debian/etc/systemd/system/user@.service.d/delegate.conf"
                : >"$debian/etc/machine-id"
                # podman 4.3 falls back to vfs without being told.
                mkdir -p "$debian/etc/containers"
                printf '[storage]\ndriver = "overlay"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/containers/storage"\n' >"$debian/etc/containers/storage.conf"
        fi
        instance_new "deb-$suite"
        spec deb "$debian" "$net"
        t0=$(date +%s%N); launch; running $((wait + 10)); t1=$(date +%s%N); init=$(init_pid)
        [ -n "$init" ] || { bad "$suite: no start: $(tail -n 5 "$run/stderr" "$run/lxc.log")"; return; }
        state=none
        for ((i = 0; i < 300 * slow; i++)); do
                state=$(in_it systemctl is-system-running 2>/dev/null); case $state in running | degraded) break ;; esac; sleep 0.1
        done
        t2=$(date +%s%N)
        echo "$suite: init and helper after $(((t1 - t0) / 1000000)) ms, $state after $(((t2 - t0) / 1000000)) ms"
        check "$suite: systemd is running" test "$state" = running || in_it systemctl --failed --no-legend
        agent() { in_it setpriv --reuid 1000 --regid 1000 --init-groups env -i HOME=/home/agent PATH=/usr/bin:/bin:/usr/sbin:/sbin XDG_RUNTIME_DIR=/run/user/1000 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus "$@"; }
        in_it sh -c 'cp /usr/bin/ping /usr/local/bin/ping && setcap cap_net_raw+ep /usr/local/bin/ping'
        check "$suite: file capabilities: ping as uid 1000" agent /usr/local/bin/ping -c 1 -W 2 169.254.0.1
        check "$suite: setuid: su exists and newuidmap maps" agent podman unshare sh -c 'test $(wc -l </proc/self/uid_map) = 2'
        check "$suite: bwrap as uid 1000" agent bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev true
        for _ in $(seq $((50 * slow))); do in_it test -S /run/user/1000/bus && break; sleep 0.1; done
        rm -rf "$top/ctr"; mkdir -p "$top/ctr/bin"; cp "$(command -v busybox)" "$top/ctr/bin/sh"
        tar -C "$top/ctr" -c . | agent sh -c 'cat >/home/agent/ctr.tar; podman import -q /home/agent/ctr.tar local/bb' >"$top/import" 2>&1
        # Without v2 controllers on the host there is none inside, and crun insists on its default pids limit.
        pids=; in_it grep -q pids /sys/fs/cgroup/cgroup.controllers || pids=--pids-limit=0
        # From a shell in the payload's root group podman cannot move to systemd's user session; through a session it can.
        check "$suite: rootless podman as uid 1000" in_it systemd-run -q --wait --pipe -M agent@ --user podman run --rm --network none $pids local/bb /bin/sh -c 'echo inside'
        check "$suite: podman's storage is its own overlay" test "$(in_it systemd-run -q --wait --pipe -M agent@ --user podman info -f '{{.Store.GraphDriverName}}')" = overlay
        timeout $((wait * 3)) "$client" "$run" watch $((wait * 3)) >"$run/watch" & watcher=$!
        t0=$(date +%s%N); stop; t1=$(date +%s%N); wait $watcher
        check "$suite: systemd halts when asked ($(((t1 - t0) / 1000000)) ms)" grep -q 'STATE stopped target=halt' "$run/watch"

        spec deb "$debian"; launch; running $((wait + 10)); init=$(init_pid)
        for ((i = 0; i < 100 * slow; i++)); do in_it systemctl is-system-running 2>/dev/null | grep -q -e running -e degraded && break; sleep 0.1; done
        timeout $((wait * 3)) "$client" "$run" watch $((wait * 3)) >"$run/watch" & watcher=$!
        in_it systemctl reboot; wait $watcher; gone
        check "$suite: reboot of systemd is reported, not done" grep -q 'STATE stopped target=reboot' "$run/watch"

        # --- lost halt: start; stop at once
        rounds=20; [ -n "$quick" ] && rounds=3; late=0
        for ((i = 0; i < rounds; i++)); do
                spec deb "$debian"; launch; t0=$(date +%s%N)
                stop || { bad "lost halt: round $i hangs"; kill -9 "$supervisor"; break; }
                [ $((($(date +%s%N) - t0) / 1000000000)) -lt $((20 * slow)) ] || late=$((late + 1))
                cgroups_sweep
        done
        check "$suite: start; stop at once, $i times with systemd, each below $((20 * slow)) s" test "$late" = 0
}
for suite in bookworm trixie; do systemd_suite; done
check "no process left at the end" settles 0 no_procs
finish
