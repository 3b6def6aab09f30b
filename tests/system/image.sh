# SPDX-License-Identifier: GPL-2.0-or-later
# The guest's root file system: a stock Debian with hostd's packages, or without them, made once for each list of packages and kept.
# Sourced by run. Everything a case may change lies on an overlay of its own; the image itself is only read.

image_cache=${HOSTD_SYSTEM_CACHE:-/var/cache/hostd-system}
# The machine's own mirror, from its apt configuration.
image_mirror=${HOSTD_SYSTEM_MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | head -1)}
image_format=2 # raise when the recipe below changes
image_suite() { case $1 in 12) echo bookworm ;; 13) echo trixie ;; *) return 1 ;; esac; }
# "stock" has nothing that hostd's own packages should bring.
image_packages() { # [stock]
        [ "${1:-}" = stock ] || echo $packages_build $packages_run apparmor dbus passwd login sudo jq strace attr libcap2-bin xz-utils zstd conntrack bubblewrap
        echo systemd-sysv udev kmod openssh-server linux-image-cloud-amd64
}

# Sets image_dir: {root.raw, vmlinuz, initrd, key, apt}.
image_name() { # RELEASE [stock]
        local suite hash
        suite=$(image_suite "$1") || return 1
        hash=$(printf '%s %s %s' "$image_format" "$suite" "$(image_packages "${2:-}" | tr ' ' '\n' | sort)" | sha256sum | cut -c1-16)
        image_dir=$image_cache/$suite-$hash
}

image_make() { # RELEASE [stock]
        local suite work
        image_name "$1" "${2:-}" && suite=$(image_suite "$1") || return 1
        # Images of other package lists go when nobody has used them for a week.
        find "$image_cache" -maxdepth 1 -name "$suite-*" -mtime +7 -exec rm -rf {} +
        [ -f "$image_dir/root.raw" ] && { touch "$image_dir"; return 0; }
        work=$image_dir.tmp.$$
        mkdir -p "$work" || return 1
        ssh-keygen -q -t ed25519 -N '' -f "$work/key" &&
                mmdebstrap --mode=root --variant=minbase --aptopt='APT::Install-Recommends "false"' \
                        --include="$(image_packages "${2:-}" | xargs | tr ' ' ',')" "$suite" "$work/root" ${HOSTD_SYSTEM_MIRROR:+"$HOSTD_SYSTEM_MIRROR"} &&
                image_configure "$work" "$1" && image_pack "$work"
        local status=$?
        if [ $status -eq 0 ]; then
                rm -rf "$image_dir"
                mv "$work" "$image_dir" || status=1
        fi
        rm -rf "$work"
        return $status
}

# What an administrator's installation has set, and no more: an address, a key for root, a disk for /var/lib/hostd.
image_configure() { # WORK RELEASE
        local root=$1/root unit
        install -d -m 0700 "$root/root/.ssh" && install -m 0600 "$1/key.pub" "$root/root/.ssh/authorized_keys" || return 1
        echo "debian$2" >"$root/etc/hostname"
        printf '127.0.0.1 localhost debian%s\n' "$2" >"$root/etc/hosts"
        rm -f "$root/etc/resolv.conf"
        echo nameserver 10.0.2.3 >"$root/etc/resolv.conf"
        printf '[Match]\nDriver=virtio_net\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\nLinkLocalAddressing=no\n' >"$root/etc/systemd/network/10-uplink.network"
        printf 'PermitRootLogin yes\nUseDNS no\nUsePAM no\n' >"$root/etc/ssh/sshd_config.d/system-test.conf"
        printf '/dev/vdb /var/lib/hostd xfs prjquota 0 0\n' >"$root/etc/fstab"
        mkdir -p "$root/var/lib/hostd" "$root/etc/systemd/journald.conf.d"
        printf '[Journal]\nStorage=persistent\n' >"$root/etc/systemd/journald.conf.d/system-test.conf"
        # Slow under emulation, and nothing here depends on them.
        for unit in getty@tty1.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
                e2scrub_reap.service lxc.service lxc-net.service lxc-monitord.service haproxy.service fstrim.timer xfs_scrub_all.timer systemd-networkd-wait-online.service; do
                ln -sf /dev/null "$root/etc/systemd/system/$unit"
        done
        rm -f "$root"/etc/ssh/ssh_host_*
        ssh-keygen -q -t ed25519 -N '' -f "$root/etc/ssh/ssh_host_ed25519_key" || return 1
        systemctl --root="$root" enable systemd-networkd ssh >/dev/null 2>&1
        chroot "$root" passwd -d root >/dev/null
}

# With what apt knows of it, so that packages for it can be fetched from outside.
image_pack() { # WORK
        mkdir -p "$1/apt" && cp -r "$1/root/etc/apt" "$1/apt/etc" && cp "$1/root/var/lib/dpkg/status" "$1/apt/status" || return 1
        cp "$(ls "$1"/root/boot/vmlinuz-* | tail -1)" "$1/vmlinuz" && cp "$(ls "$1"/root/boot/initrd.img-* | tail -1)" "$1/initrd" || return 1
        truncate -s 24G "$1/root.raw.part" && mkfs.ext4 -q -F -d "$1/root" "$1/root.raw.part" || return 1
        rm -rf --one-file-system "$1/root"
        mv "$1/root.raw.part" "$1/root.raw"
}
