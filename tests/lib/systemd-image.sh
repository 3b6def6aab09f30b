#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Run in an instance: makes a tar of the few files that systemd needs to come up in a container. usage: systemd-image.sh TAR
set -eu
work=$(mktemp -d)
cd /
programs="usr/lib/systemd/systemd usr/lib/systemd/systemd-executor usr/lib/systemd/systemd-journald usr/lib/systemd/systemd-shutdown usr/bin/systemctl
usr/bin/bwrap usr/bin/systemd-run usr/bin/journalctl usr/bin/dbus-daemon usr/bin/sh usr/bin/dash usr/bin/cat usr/bin/true usr/bin/mount usr/bin/umount usr/bin/systemd-tmpfiles"
for p in $programs; do
        [ -e $p ] || continue
        echo $p
        ldd $p 2>/dev/null | grep -o '/[^ ]*' | sed 's,^/,,; s,^lib,usr/lib,' || true
done | sort -u >$work/list
for p in $(cat $work/list); do readlink -f /$p | sed 's,^/,,'; done | cat - $work/list | sort -u >$work/all
mkdir -p $work/root/etc/systemd/system $work/root/proc $work/root/sys $work/root/dev $work/root/run $work/root/tmp $work/root/var/log $work/root/usr/lib/systemd/system
for d in bin sbin lib lib64; do ln -s usr/$d $work/root/$d; done
tar -c --no-recursion -T $work/all | tar -x -C $work/root --no-same-owner
for u in basic.target sysinit.target multi-user.target shutdown.target umount.target final.target exit.target systemd-exit.service dbus.service dbus.socket sockets.target timers.target \
        paths.target slices.target local-fs.target swap.target systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket systemd-poweroff.service poweroff.target \
        systemd-halt.service halt.target rescue.target; do
        [ -e usr/lib/systemd/system/$u ] && cp -P usr/lib/systemd/system/$u $work/root/usr/lib/systemd/system/ || true
done
ln -s /usr/lib/systemd/system/multi-user.target $work/root/etc/systemd/system/default.target
mkdir -p $work/root/etc/systemd/system/multi-user.target.wants $work/root/usr/share/dbus-1 $work/root/usr/lib/systemd/system/sockets.target.wants
ln -s /usr/lib/systemd/system/dbus.service $work/root/etc/systemd/system/multi-user.target.wants/dbus.service
ln -s ../dbus.socket $work/root/usr/lib/systemd/system/sockets.target.wants/dbus.socket
cp -r usr/share/dbus-1/system.conf usr/share/dbus-1/system.d $work/root/usr/share/dbus-1/ 2>/dev/null || true
cp etc/os-release $work/root/etc/ 2>/dev/null || cp -L usr/lib/os-release $work/root/etc/os-release
grep -E '^(root|messagebus|systemd-journal|nobody):' etc/passwd >$work/root/etc/passwd
grep -E '^(root|messagebus|systemd-journal|adm|tty|nogroup):' etc/group >$work/root/etc/group
: >$work/root/etc/machine-id
tar -c -C $work/root -f "$1" --owner 0 --group 0 .
rm -rf $work
