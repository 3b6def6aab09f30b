#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What a machine is like, one line a fact, so that two of these can be compared: has something that was removed left anything behind?
# usage: machine_state.sh >FILE; and after it: machine_state.sh --compare FILE, which prints what differs and fails if anything does.
set -u
export LC_ALL=C PATH=/usr/sbin:/sbin:/usr/bin:/bin

# Counters, entropy and the like, which move by themselves.
moving='^(fs\.(aio-nr|dentry-state|inode|file-nr|quota)|kernel\.(random|ns_last_pid|pty\.nr|perf|sched|printk)|net\.netfilter\.nf_conntrack_(count|buckets)|net\.ipv[46]\..*(stat|neigh)|vm\.stat|user\.max_)'
# Where the system writes as it goes on, and what package management leaves.
noise='^/(var/log/(journal|apt|wtmp|btmp|lastlog|syslog|auth|kern|dpkg|alternatives|daemon|messages|user)|var/(lib/(apt|dpkg|systemd|dbus|private|ucf|polkit-1|logrotate|NetworkManager|dhcp)|cache/(apt|debconf|man|ldconfig|fontconfig|private)|tmp/(systemd|hostd-check-logs|hostd-system-logs)|backups|mail|spool)|run/(systemd|udev|log|user|dbus|lock|utmp|mount|blkid|initctl|screen|sshd|motd|chrony|credentials|xtables|dhclient|NetworkManager|sudo|tmpfiles)|etc/(ld\.so\.cache|\.pwd|(passwd|group|shadow|gshadow|subuid|subgid)-|mtab|adjtime|resolv\.conf|alternatives)|tmp/(systemd|\.))'

# The host's own interfaces, whatever they are called; those that come and go with a test show up as interfaces.
state() {
        sysctl -a 2>/dev/null | grep -vE "$moving" | sed 's/^/sysctl /'
        for f in passwd group shadow gshadow subuid subgid fstab; do [ -f /etc/$f ] && sed "s,^,/etc/$f: ," /etc/$f; done
        { ip -o link; ip -o -4 addr; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; } 2>/dev/null | sed -E 's/^[0-9]+: //; s/ (valid_lft|expires|qlen|state|mode) .*//; s/^/network /'
        ip netns list 2>/dev/null | sed 's/^/netns /'
        nft list tables 2>/dev/null | sed 's/^/nft /'
        awk '$5 != "/run/netns" { print "mount", $5, $9 }' /proc/self/mountinfo # that one is ip's, from its first netns on
        losetup -n -O NAME,BACK-FILE 2>/dev/null | sed 's/^/loop /'
        find /sys/fs/cgroup -type d \( -name 'hostd*' -o -name 'lxc*' \) 2>/dev/null | sed 's/^/cgroup /'
        [ -r /sys/kernel/security/apparmor/profiles ] && sed 's/^/apparmor /' /sys/kernel/security/apparmor/profiles
        for p in /proc/[0-9]*; do { tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null | grep -aE '(^|/)hostd' | grep -avF machine_state.sh | sed 's/^/process /'; done
        if [ -d /run/systemd/system ]; then systemctl list-unit-files 'hostd*' --no-legend 2>/dev/null | sed 's/^/unit file /'; systemctl list-units --all 'hostd*' --no-legend --plain 2>/dev/null | sed 's/^/unit /'; fi
        find /tmp /root -maxdepth 1 -name '*hostd*' -printf 'file %y %m %u:%g %p\n' 2>/dev/null
        find /etc /usr/local /opt /srv /var /run /usr/lib/systemd /usr/lib/sysusers.d /usr/lib/tmpfiles.d -xdev -printf '%y %m %u:%g %p %l\n' 2>/dev/null | awk -v noise="$noise" '$4 !~ noise' | sed 's/^/file /'
}

if [ "${1:-}" = --compare ]; then
        mine=$(mktemp /dev/shm/machine-state.XXXXXX)
        state | sort -u >"$mine"
        # Only what came or went: sorted again, since what was given may come from another tool.
        difference=$(diff <(sort -u "$2") "$mine" | grep '^[<>]')
        rm -f "$mine"
        [ -z "$difference" ] && exit 0
        printf '%s\n' "$difference"
        exit 1
fi
state | sort -u
