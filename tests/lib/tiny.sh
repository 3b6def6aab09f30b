# SPDX-License-Identifier: GPL-2.0-or-later
# A root of one megabyte: busybox and an init of twenty lines. Most product tests use it, because it starts in milliseconds; what
# needs systemd uses the template `agent`. Sourced by tests/lib/product.sh.

# tiny_root DIR
tiny_root() {
        local dir=$1 applet
        mkdir -p "$dir"/{bin,sbin,dev,proc,sys,run,tmp,etc,var/lib,var/tmp,root,home/agent} || return 1
        cp "$(command -v busybox)" "$dir/bin/busybox" || return 1
        "$dir/bin/busybox" --list | grep -vx -e busybox -e init | while read -r applet; do ln -sf busybox "$dir/bin/$applet"; done
        chmod 1777 "$dir/tmp" "$dir/var/tmp"
        printf 'root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n' >"$dir/etc/passwd"
        printf 'root:x:0:\nagent:x:1000:\nstaff:x:50:agent\n' >"$dir/etc/group"
        chown 1000:1000 "$dir/home/agent"
        # A package client, for what @packages is: it says where it fetches from, and no more.
        printf '#!/bin/sh\necho http://plain.good.example.org/debian\n' >"$dir/bin/apt-get"
        chmod 0755 "$dir/bin/apt-get"
        tiny_init >"$dir/sbin/init"
        chmod 0755 "$dir/sbin/init"
}

# Process 1: reaps what falls to it and ends when it is asked to halt (37 = SIGRTMIN+3). Busybox ash knows its own signal names only.
tiny_init() {
        cat <<'INIT'
#!/bin/busybox sh
halt() {
        [ -e /var/tmp/slow-halt ] && sleep "$(cat /var/tmp/slow-halt)"
        echo tiny: halting
        exit 0
}
if [ -e /var/tmp/deaf ]; then trap '' 37 PWR TERM INT; else trap halt 37 PWR TERM INT; fi
echo tiny: up
# What init itself starts, and not hostd-guest: tests/product/escape.sh looks at its confinement.
[ -x /var/tmp/at-boot ] && /var/tmp/at-boot >/var/tmp/at-boot.out 2>&1
while :; do
        sleep 3600 &
        wait $!
done
INIT
}

# tiny_import: makes the template `tiny` unless it is there.
tiny_import() {
        local dir
        hostctl template show tiny >/dev/null 2>&1 && return 0
        dir=$(mktemp -d /var/tmp/hostd-tiny.XXXXXX) || return 1
        chmod 0755 "$dir"
        tiny_root "$dir" && hostctl template import tiny "$dir" >"$dir.log" 2>&1
        local status=$?
        [ $status -eq 0 ] || cat "$dir.log" >&2
        rm -rf "$dir" "$dir.log"
        return $status
}
