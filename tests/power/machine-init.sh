# SPDX-License-Identifier: GPL-2.0-or-later
# The first process of a machine (see machine.sh): mounts what it needs in its own mount namespace and runs the command.
# bash machine-init.sh WORK HERE IMAGE COMMAND...
set -e
work=$1 here=$2 image=$3
shift 3
over=$work/over
mkdir -p "$over"
mount -t tmpfs none "$over"
mkdir "$over"/{up,wk,root}
mount -t overlay -o lowerdir=/,upperdir="$over/up",workdir="$over/wk" none "$over/root"
root=$over/root
cp -a "$work/install/." "$root/"
mount --rbind /dev "$root/dev"
mount -t proc none "$root/proc"
mount -t sysfs none "$root/sys"
mount -t tmpfs none "$root/sys/fs/cgroup"
while IFS=: read -r _ controllers _; do
        case $controllers in
        '') mkdir "$root/sys/fs/cgroup/unified"; mount -t cgroup2 none "$root/sys/fs/cgroup/unified" ;;
        name=*) mkdir "$root/sys/fs/cgroup/${controllers#name=}"; mount -t cgroup -o none,"$controllers" none "$root/sys/fs/cgroup/${controllers#name=}" ;;
        *) mkdir "$root/sys/fs/cgroup/$controllers"; mount -t cgroup -o "$controllers" none "$root/sys/fs/cgroup/$controllers" ;;
        esac
done </proc/self/cgroup
mount -t tmpfs none "$root/run"
mount -t tmpfs none "$root/tmp"
mkdir -p "$root/srv/disk" "$root/srv/power" "$root/srv/work" "$root/etc/hostd" "$root/var/lib/hostd"
mount --bind "$here" "$root/srv/power"
mount --bind "$work" "$root/srv/work"
touch "$root/srv/image"
mount --bind "$image" "$root/srv/image" # by itself: it may be a mount
# Behind the events; see cut.py.
mount -o loop,offset=4194304 "$image" "$root/srv/disk"
mkdir -p "$root/srv/disk/etc" "$root/srv/disk/state"
mount --bind "$root/srv/disk/etc" "$root/etc/hostd"
mount --bind "$root/srv/disk/state" "$root/var/lib/hostd"
for user in hostd-build hostd-resolver hostd-proxy hostd-flow hostd-haproxy hostd-io; do
        chroot "$root" useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin $user 2>/dev/null || true
done
for file in "$root/etc/subuid" "$root/etc/subgid"; do printf 'hostd-build:524288:65536\nhostd-haproxy:589824:1024\nroot:1048576:1073741824\n' >"$file"; done
for group in hostd-admin hostd hostd-view; do chroot "$root" groupadd -f --system $group; done
ip link set lo up
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
# Not chroot: whoever is in one may make no user namespace.
cd "$root"
mkdir -p "$root/mnt/old"
pivot_root . mnt/old
umount -l /mnt/old
exec "$@"
