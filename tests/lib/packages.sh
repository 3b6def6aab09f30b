# SPDX-License-Identifier: GPL-2.0-or-later
# The Debian packages that hostd is built with, runs with and is tested with. Sourced by quickstart and check.

packages_build="autoconf automake pkg-config gcc make libc6-dev lxc-dev libnftables-dev libconfig-dev libsystemd-dev libjansson-dev
 libsqlite3-dev libnftnl-dev libmnl-dev libpsl-dev libsodium-dev libgnutls28-dev libarchive-dev libseccomp-dev libcmocka-dev zlib1g-dev"
packages_run="liblxc-common nftables netbase iproute2 git mmdebstrap uidmap publicsuffix erofs-utils btrfs-progs xfsprogs e2fsprogs ca-certificates curl python3 procps busybox-static"
packages_test="clang libclang-rt-dev openssl haproxy bubblewrap podman crun valgrind cppcheck universal-ctags mandoc jq strace bash-completion libcap2-bin attr xz-utils zstd conntrack dnsmasq-base bind9-dnsutils qemu-system-x86 qemu-system-common qemu-utils openssh-client"

# Only a kernel with AppArmor has a use for its tools.
packages_of_kernel() {
        [ -d /sys/module/apparmor ] && echo apparmor
        return 0
}

# For secrets at the border, which quickstart shows.
packages_run="$packages_run openssl haproxy"

packages_list() {
        echo $packages_build $packages_run $(packages_of_kernel) ${1:+$packages_test}
}

# packages_install [test]: installs what is missing; without the network it succeeds when nothing is.
packages_install() {
        local missing= p lxc haproxy
        export DEBIAN_FRONTEND=noninteractive
        for p in $(packages_list "${1:-}"); do
                dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed || missing="$missing $p"
        done
        [ -z "$missing" ] && return 0
        lxc=$(dpkg-query -W -f '${db:Status-Status}' lxc 2>/dev/null)
        haproxy=$(dpkg-query -W -f '${db:Status-Status}' haproxy 2>/dev/null)
        apt-get update && apt-get install -y --no-install-recommends $missing || return 1
        # The headers of liblxc bring all of lxc: its bridge, DHCP server and services are of no use to hostd. Where they were before, they stay.
        if [ "$lxc" != installed ] && [ -d /run/systemd/system ]; then systemctl disable --now lxc.service lxc-net.service lxc-monitord.service; fi
        # hostd starts its own HAProxies; the package's would be one more that nobody asked for.
        if [ "$haproxy" != installed ] && [ -d /run/systemd/system ]; then systemctl disable --now haproxy.service; fi
        return 0
}
