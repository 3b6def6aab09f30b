# SPDX-License-Identifier: GPL-2.0-or-later
# The guest for hostd's Debian packages: a Debian without anything that hostd needs, and in /root/packages
#
#   *.deb           the packages of the tree at hand, as tests/packages/build makes them
#   depends/*.deb   what they depend on and the guest does not have (it has no network to fetch it by), and the tools that a case looks with
#   next/*.deb      the packages with a higher version
#
# Sourced by run, after snapshot.sh.

. "$top/tests/packages/lib.sh"
stock_dir= stock_snapshot= stock_packages=

# apt of this machine, with its own ways to a mirror, as if the guest's root were its own.
stock_apt() {
        local dir=$stock_packages.apt
        mkdir -p "$dir"/state/lists/partial "$dir"/cache/archives/partial || return 1
        apt-get -q -y -o Dir::Etc::sourcelist="$stock_dir/apt/etc/sources.list" -o Dir::Etc::sourceparts="$stock_dir/apt/etc/sources.list.d" \
                -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
                -o Dir::State="$dir/state" -o Dir::State::status="$stock_dir/apt/status" -o Dir::Cache="$dir/cache" \
                -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o APT::Keep-Downloaded-Packages=true "$@"
}

stock_packages_make() {
        stock_packages=$work/packages-$release
        "$top/tests/packages/build" "$release" "$stock_packages" && rm -f "$stock_packages"/*-dbgsym_* && mkdir "$stock_packages/depends" || return 1
        stock_apt update && stock_apt install --download-only "$stock_packages"/*.deb nftables iproute2 procps || return 1
        mv "$stock_packages.apt"/cache/archives/*.deb "$stock_packages/depends/" && rm -rf "$stock_packages.apt" && packages_next "$stock_packages/next" "$stock_packages"/*.deb
}

# Once for each release in a run.
stock_make() {
        local image_dir snapshot_boot
        [ -n "$stock_snapshot" ] && return 0
        image_name "$release" stock
        made image_make "$image_dir.lock" "$logs/image-$release.log" "$release" stock && made snapshot_make_boot "$image_dir.lock" /dev/stdout || return 1
        stock_dir=$image_dir
        stock_packages_make >"$logs/packages-$release.log" 2>&1 || { tail -n 20 "$logs/packages-$release.log"; return 1; }
        stock_snapshot=$snapshot_boot
}

stock_guest() {
        stock_make || return 1
        local image_dir=$stock_dir
        guest_take_slot && guest_resume "$stock_snapshot" && tree_push &&
                tar c -C "$stock_packages" . | limited 300 guest_ssh 'mkdir -p /root/packages && tar x -C /root/packages'
}
