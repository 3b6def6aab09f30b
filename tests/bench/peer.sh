# SPDX-License-Identifier: GPL-2.0-or-later
# The peer: incusd of Debian, run from a directory of its own with a btrfs loop pool of its own, so that nothing of a real Incus on
# this host is touched. Sourced by run. What peer_start installed or made, peer_stop removes; the package itself stays.

peer_dir=/var/lib/hostd-bench-peer
peer_pid=
peer_reason=
incusd=/usr/libexec/incus/incusd

peer_incus() { INCUS_DIR=$peer_dir/state INCUS_CONF=$peer_dir/client incus "$@"; }

# Debian 12 has the package in its backports only: its source is made from the host's own and taken away again.
peer_sources() {
        local from to=/etc/apt/sources.list.d/hostd-bench-backports.sources uri key
        apt-cache show incus-base >/dev/null 2>&1 && return 0
        . /etc/os-release
        for from in /etc/apt/sources.list.d/*.sources; do
                grep -qE "^Suites:.*\b$VERSION_CODENAME\b" "$from" 2>/dev/null || continue
                uri=$(awk '$1 == "URIs:" { print $2; exit }' "$from")
                key=$(awk '$1 == "Signed-By:" { print $2; exit }' "$from")
                break
        done
        [ -n "${uri:-}" ] || uri=$(awk -v s="$VERSION_CODENAME" '$1 == "deb" && $3 == s { print $2; exit }' /etc/apt/sources.list 2>/dev/null)
        [ -n "$uri" ] || return 1
        peer_added=$to
        printf 'Types: deb\nURIs: %s\nSuites: %s-backports\nComponents: main\nSigned-By: %s\n' "$uri" "$VERSION_CODENAME" \
                "${key:-/usr/share/keyrings/debian-archive-keyring.gpg}" >$to
        apt-get update >>"$log" 2>&1
}

# The package's own daemon must not start: on a host without an Incus this one is a guest only.
peer_install() {
        [ -x $incusd ] && command -v incus >/dev/null && return 0
        local policy=/usr/sbin/policy-rc.d made= status
        peer_added=
        peer_sources || { peer_reason="no apt source has the package incus-base"; return 1; }
        if [ ! -e $policy ]; then
                printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy
                made=1
        fi
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends incus-base incus-client btrfs-progs >>"$log" 2>&1
        status=$?
        [ -n "$made" ] && rm -f $policy
        if [ -n "$peer_added" ]; then
                rm -f "$peer_added"
                apt-get update >>"$log" 2>&1
        fi
        [ $status -eq 0 ] && [ -x $incusd ] || { peer_reason="apt-get could not install incus-base"; return 1; }
}

peer_start() {
        [ -n "$peer_pid" ] && return 0
        [ -n "$peer_reason" ] && return 1
        peer_install || return 1
        peer_clear
        mkdir -p $peer_dir/state $peer_dir/client
        INCUS_DIR=$peer_dir/state setsid $incusd --group root >$peer_dir/log 2>&1 </dev/null &
        peer_pid=$!
        if ! peer_incus admin waitready --timeout 30 >>"$log" 2>&1; then
                peer_reason="incusd did not become ready: $(tail -1 $peer_dir/log)"
        elif ! peer_incus storage create pool btrfs size=12GiB >>"$log" 2>&1; then
                peer_reason="incus could not make a btrfs pool"
        elif ! peer_incus profile device add default root disk path=/ pool=pool >>"$log" 2>&1; then
                peer_reason="incus did not take the profile"
        else
                return 0
        fi
        peer_stop
        return 1
}

# peer_image NAME DIRECTORY: the same tree that the hostd template was made of.
peer_image() {
        local t=$peer_dir/image-$1
        peer_incus image show "$1" >/dev/null 2>&1 && return 0
        mkdir -p "$t"
        printf 'architecture: %s\ncreation_date: 1\nproperties:\n  description: %s\n' "$(uname -m)" "$1" >"$t/metadata.yaml"
        tar -C "$t" -cf "$t/meta.tar" metadata.yaml &&
                tar -C "$2" --numeric-owner -cf "$t/root.tar" . &&
                peer_incus image import "$t/meta.tar" "$t/root.tar" --alias "$1" >>"$log" 2>&1
        local status=$?
        rm -rf "$t"
        return $status
}

peer_clear() {
        local m
        for m in $(awk -v d="$peer_dir/" 'index($5, d) == 1 { print $5 }' /proc/self/mountinfo | sort -r); do umount -l "$m" 2>/dev/null; done
        rm -rf $peer_dir
}

peer_stop() {
        local name
        [ -n "$peer_pid" ] || return 0
        for name in $(peer_incus list -f csv -c n 2>/dev/null); do peer_incus delete -f "$name" >/dev/null 2>&1; done
        peer_incus admin shutdown --timeout 20 >/dev/null 2>&1
        for _ in $(seq 100); do [ -d "/proc/$peer_pid" ] || break; sleep 0.1; done
        kill "$peer_pid" 2>/dev/null
        wait "$peer_pid" 2>/dev/null
        peer_pid=
        sleep 0.5
        peer_clear
}
