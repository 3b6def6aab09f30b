#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What agents nest: bubblewrap, podman with each runtime, network and build, systemd in a container, databases as services of the
# instance, virtual machines of qemu:///embed. In the template `probe` where hostd has it (tests/system/template.sh makes it), else in `agent`.
# LIMIT: 3600
# NEEDS: probe
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
template=probe
hostctl template show probe >/dev/null 2>&1 || template=agent
hostctl template show $template >/dev/null 2>&1 || { skip "nested" "there is neither a template probe nor agent"; finish; }
[ "$slow" -le 5 ] || slow=5 # a factor on minutes here
launch_from $template pt-n memory=2GiB disk=5GiB pids=2048 cpu=2 >"$work/out" 2>&1 || { fail "launch" "$(tail -n 1 "$work/out")"; finish; }

login() { timeout $((60 * slow)) hostctl exec --login -u agent pt-n -- "$@"; }
login_root() { timeout $((60 * slow)) hostctl exec --login pt-n -- "$@"; }
as_root() { timeout $((60 * slow)) hostctl exec pt-n -- "$@"; }
has() { hostctl exec pt-n -- sh -c "command -v $1" >/dev/null 2>&1; }
check "the user's manager comes up" wait_for $((60 * slow)) hostctl exec -u agent pt-n -- test -S /run/user/1000/bus
check_is "nothing failed at boot" "" as_root systemctl --failed --no-legend

# --- bubblewrap
box="bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev"
check_is "bwrap" ok login $box echo ok
check_is "bwrap without a session" ok ex -u agent pt-n -- $box echo ok
check_is "bwrap as root of the instance" ok as_root $box echo ok
check_is "bwrap in bwrap" ok login $box $box echo ok
check_is "bwrap as another user inside" 4242 login $box --uid 4242 id -u
check_is "bwrap with an empty tmp and no network but lo" "0 lo" login bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp sh -c 'echo $(ls -A /tmp | wc -l) $(sed -n "s/^ *\([a-z0-9]*\):.*/\1/p" /proc/net/dev)'
check "50 bwraps, 10 at once" login sh -c "for r in 1 2 3 4 5; do p=; for i in 1 2 3 4 5 6 7 8 9 10; do $box true & p=\"\$p \$!\"; done; for i in \$p; do wait \$i || exit 1; done; done"
check "10 killed: no mount and no process stays" login sh -c "for i in 1 2 3 4 5 6 7 8 9 10; do $box --die-with-parent sleep 600 & p=\"\$p \$!\"; done; until [ \$(pgrep -fc '^sleep 600') -eq 10 ]; do sleep 0.1; done; kill -9 \$p; wait; for i in 1 2 3 4 5 6 7 8 9 10; do pgrep -x sleep || break; sleep 1; done; ! pgrep -a -x sleep && ! grep -e newroot -e oldroot /proc/self/mountinfo"

# --- podman, rootless
mkdir -p "$work/ctr/bin"
cp "$(command -v busybox)" "$work/ctr/bin/busybox"
for a in sh echo cat true httpd wget id sleep ls stat; do ln -sf busybox "$work/ctr/bin/$a"; done
tar -C "$work/ctr" -cf "$work/ctr.tar" .
hostctl file push "$work/ctr.tar" pt-n:/var/tmp/ctr.tar
check "podman import" login podman import -q /var/tmp/ctr.tar local/bb
note "$(as_root podman --version), $(as_root crun --version | head -n 1), $(as_root sh -c 'runc --version 2>/dev/null || echo no runc' | head -n 1)"
limits="-m 64m --pids-limit 20"
as_root grep -q pids /sys/fs/cgroup/cgroup.controllers || limits=
[ -n "$limits" ] || skip "limits of containers" "no v2 controllers on this host"
for runtime in crun runc; do
        if ! has $runtime; then skip "podman with $runtime" "it is not in the template $template"; continue; fi
        check_is "podman with $runtime" ok login podman --runtime $runtime run --rm --network none local/bb /bin/echo ok
        check_is "podman with $runtime and limits" ok login podman --runtime $runtime run --rm --network none $limits local/bb /bin/echo ok
        check_is "podman with $runtime, an exit code" 7 sh -c "timeout $((60 * slow)) hostctl exec --login -u agent pt-n -- podman --runtime $runtime run --rm --network none local/bb /bin/sh -c 'exit 7'; echo \$?"
        check_is "podman with $runtime, read-only" ok login podman --runtime $runtime run --rm --network none --read-only local/bb /bin/echo ok
        check_is "podman with $runtime, a volume" ok login sh -c "mkdir -p v && echo ok >v/x && podman --runtime $runtime run --rm --network none -v ./v:/v local/bb /bin/cat /v/x"
done
if has runc; then
        version=$(as_root runc --version | sed -n 's/^runc version \([0-9.]*\).*/\1/p')
        [ "$(printf '%s\n1.3.3\n' "$version" | sort -V | head -n 1)" = 1.3.3 ] || skip "runc 1.3.3 and later, which open procfs another way" "Debian's is $version"
fi
check_is "podman build" built login sh -c 'mkdir -p b && printf "FROM local/bb\nRUN [\"/bin/sh\",\"-c\",\"echo built >/built\"]\n" >b/Containerfile && podman build -q -t local/built b >/dev/null && podman run --rm --network none local/built /bin/cat /built'
check_is "podman --userns=auto" "uid=0 gid=0" login podman run --rm --userns=auto --network none local/bb /bin/id
check "podman --userns=keep-id" login sh -c 'podman run --rm --userns=keep-id --network none local/bb /bin/id | grep uid=1000'
check_is "its storage is its own overlay" overlay login podman info -f '{{.Store.GraphDriverName}}'
check "podman with a network of its own and a published port" login sh -c 'podman run -q -d --name web -p 18080:8080 local/bb /bin/httpd -f -p 8080 -h / >/dev/null && for i in 1 2 3 4 5 6 7 8 9 10; do curl -s -m 5 -o /dev/null http://127.0.0.1:18080/bin/sh && break; sleep 1; done && curl -s -m 5 http://127.0.0.1:18080/bin/sh | cmp - /bin/busybox 2>/dev/null || curl -sf -m 5 -o /dev/null http://127.0.0.1:18080/bin/sh'
check_is "podman exec" ok login podman exec web /bin/echo ok
check "podman stop and rm" login sh -c 'podman stop -t 1 web && podman rm web'
if as_root test -c /dev/fuse && has fuse-overlayfs; then
        fo="podman --root /home/agent/fo --storage-opt overlay.mount_program=/usr/bin/fuse-overlayfs"
        check_is "podman on fuse-overlayfs" ok login sh -c "$fo import -q /var/tmp/ctr.tar local/bb >/dev/null && $fo run --rm --network none local/bb /bin/echo ok"
else
        skip "podman on fuse-overlayfs" "there is no /dev/fuse, or no fuse-overlayfs in the template $template"
fi

# --- podman, as root of the instance
check_is "rootful podman" ok login_root sh -c 'podman import -q /var/tmp/ctr.tar local/bb >/dev/null && podman run --rm --network none local/bb /bin/echo ok'
if as_root test -x /usr/lib/podman/netavark && has nft; then
        check_is "rootful podman with its bridge" ok login_root podman run --rm local/bb /bin/echo ok
else
        skip "rootful podman with its bridge" "netavark or nft is not in the template $template"
fi

# --- systemd in a container
hostctl file push --mode 755 "$(dirname "$0")/../lib/systemd-image.sh" pt-n:/var/tmp/systemd-image.sh
check "an image with systemd is made of the instance's own files" login sh -c '/var/tmp/systemd-image.sh /home/agent/sd.tar && podman import -q -c "CMD [\"/usr/lib/systemd/systemd\"]" /home/agent/sd.tar local/systemd && rm sd.tar'
check_is "bwrap in podman" ok login podman run --rm --network none --security-opt unmask=ALL local/systemd /usr/bin/bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev /bin/sh -c "echo ok"
sd_state() { login podman exec sd systemctl is-system-running 2>/dev/null | grep -E '^(running|degraded)$'; }
if login podman run -q -d --name sd --systemd=always --network none local/systemd >"$work/out" 2>&1; then
        ok "systemd starts in rootless podman"
        check "and comes up" wait_for $((60 * slow)) sd_state
        check_is "as process 1" systemd login podman exec sd cat /proc/1/comm
        check "a service runs there" login podman exec sd systemd-run --wait -q /bin/true
        check "it stops when asked" login podman stop -t 30 sd
else
        fail "systemd in podman" "$(tail -n 2 "$work/out" | tr '\n' ' ')"
fi
login podman rm -f sd >/dev/null 2>&1
check_is "no container is left" "" login podman ps -aq
check "prune" login podman system prune -af

# --- services with all the fences that systemd has
check "a service with systemd's own sandbox" as_root systemd-run --wait -q -p DynamicUser=yes -p ProtectSystem=strict -p PrivateDevices=yes -p PrivateNetwork=yes -p PrivateTmp=yes -p ProtectKernelTunables=yes -p ProtectControlGroups=yes -p SystemCallFilter=@system-service -p MemoryDenyWriteExecute=yes /bin/true

# --- databases
if has psql; then
        check "PostgreSQL is up" wait_for $((60 * slow)) hostctl exec pt-n -- runuser -u postgres -- psql -qtc 'select 1'
        check_is "it counts" 10000 as_root runuser -u postgres -- psql -qAtc 'create table t as select generate_series(1,10000) n; select count(*) from t'
        check "it survives the death of its master" as_root sh -c 'pkill -9 -o -u postgres postgres; sleep 1; systemctl restart postgresql; for i in $(seq 30); do runuser -u postgres -- psql -qAtc "select count(*) from t" 2>/dev/null | grep -qx 10000 && exit 0; sleep 1; done; exit 1'
        check_is "with 256 MB of shared memory" 256MB as_root sh -c 'runuser -u postgres -- psql -qAtc "alter system set shared_buffers = \"256MB\""; systemctl restart "postgresql@$(pg_lsclusters -h | cut -d" " -f1)-main"; for i in $(seq 30); do runuser -u postgres -- psql -qAtc "show shared_buffers" 2>/dev/null && break; sleep 1; done'
else
        skip "PostgreSQL" "it is not in the template $template"
fi
if has redis-cli; then
        check "Redis is up" wait_for $((60 * slow)) hostctl exec pt-n -- redis-cli ping
        check_is "it keeps what it was given over a restart" v as_root sh -c 'redis-cli set k v >/dev/null; redis-cli save >/dev/null; systemctl restart redis-server; for i in $(seq 30); do redis-cli ping >/dev/null 2>&1 && break; sleep 1; done; redis-cli get k'
else
        skip "Redis" "it is not in the template $template"
fi

# --- a virtual machine without a daemon and without root
if has virt-qemu-run; then
        cat >"$work/vm.xml" <<'XML'
<domain type="qemu"><name>t</name><memory unit="MiB">128</memory><vcpu>1</vcpu><os><type arch="x86_64" machine="q35">hvm</type></os>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator><serial type="pty"/></devices></domain>
XML
        hostctl file push "$work/vm.xml" pt-n:/var/tmp/vm.xml
        hostctl exec --login -u agent pt-n -- virt-qemu-run -v -r /home/agent/vm /var/tmp/vm.xml >"$work/vm" 2>&1 &
        vm=$!
        check "qemu:///embed as uid 1000: the machine runs" wait_for $((60 * slow)) grep -q 'guest running' "$work/vm"
        check_is "as one process of that user" agent as_root sh -c 'ps -o user= -p $(pgrep -o qemu-system)'
        kill -INT $vm
        check "and ends when asked" wait_for $((30 * slow)) sh -c "grep -q 'cleaned up' $work/vm"
        wait $vm
        check_not "without a trace" hostctl exec pt-n -- pgrep qemu-system
else
        skip "qemu:///embed" "virt-qemu-run is not in the template $template"
fi

check_is "nothing failed meanwhile" "" as_root sh -c 'systemctl --failed --no-legend'
check "stop" timeout $((60 * slow)) hostctl stop pt-n
hostctl delete --force pt-n >/dev/null
check "no leaks at the end" no_leaks
finish
