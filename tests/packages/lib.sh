# SPDX-License-Identifier: GPL-2.0-or-later
# Clean roots of a release, made once from the host's own apt configuration and kept; what runs in one runs on an overlay in memory.
# Sourced by build, install, life and tests/system/stock.sh.

packages_cache=${HOSTD_PACKAGES_CACHE:-/var/cache/hostd-packages}
packages_suite() { case $1 in 12) echo bookworm ;; 13) echo trixie ;; *) return 1 ;; esac; }

# What debian/control says that a build needs, one a line.
packages_build_depends() { # TREE
        sed -n '/^Build-Depends:/,/^[A-Z][A-Za-z-]*:/{ s/^Build-Depends://; /^[A-Z]/d; p }' "$1/debian/control" | tr ',' '\n' |
                sed -E 's/\([^)]*\)//; s/<[^>]*>//; s/\|.*//; s/[[:space:]]//g; s/^debhelper-compat$/debhelper/; /^$/d'
}

# packages_root RELEASE NAME VARIANT PACKAGE...: sets packages_dir
packages_root() {
        local suite hash work name=$2 variant=$3 status
        suite=$(packages_suite "$1") || return 1
        shift 3
        hash=$(printf '%s ' 1 "$suite" "$variant" "$@" | sha256sum | cut -c1-16)
        packages_dir=$packages_cache/$suite-$name-$hash
        [ -d "$packages_dir" ] && return 0
        work=$packages_cache/$suite-$name-$hash.tmp.$$
        mkdir -p "$packages_cache" || return 1
        # Lists of an older root of the same name are of no use any more.
        rm -rf --one-file-system "$packages_cache/$suite-$name"-*
        mmdebstrap --mode=root --variant="$variant" --aptopt='APT::Install-Recommends "false"' --include="$(IFS=,; echo "$*")" \
                "$suite" "$work" ${HOSTD_SYSTEM_MIRROR:+"$HOSTD_SYSTEM_MIRROR"} && chroot "$work" useradd -m -u 1234 builder && mv "$work" "$packages_dir"
        status=$?
        rm -rf --one-file-system "$work"
        return $status
}

# What the packages depend on beyond each other: the root has that and no more.
packages_depends() { # DEB...
        local deb
        for deb in "$@"; do dpkg-deb -f "$deb" Depends Pre-Depends | sed 's/^[A-Z][A-Za-z-]*: //'; done | tr ',' '\n' |
                sed -E 's/\|.*//; s/\([^)]*\)//; s/[[:space:]]//g; /^$/d; /^host(ctl|d|d-guest|d-templates|d-doc)$/d' | sort -u
}

# packages_install_root RELEASE DEB...: sets packages_dir
packages_install_root() {
        local release=$1 status
        shift
        mkdir -p "$packages_cache" && exec 9>"$packages_cache/lock" && flock 9
        # shellcheck disable=SC2046
        packages_root "$release" install minbase $(packages_depends "$@")
        status=$?
        exec 9>&-
        [ $status -eq 0 ] || echo "packages: a clean root of Debian $release cannot be made" >&2
        return $status
}

packages_copy() { cp "$1"/*.deb "$2/" && rm -f "$2"/*-dbgsym_*; } # FROM TO

# packages_next DIR DEB...: the same files under a higher version: what an upgrade does to what runs is seen without a second build.
packages_next() {
        local deb dir out=$1 version
        shift
        mkdir -p "$out" || return 1
        for deb in "$@"; do
                dir=$(mktemp -d) && dpkg-deb -R "$deb" "$dir" || return 1
                version=$(dpkg-deb -f "$deb" Version)
                sed -i "s/$version/$version+next/g" "$dir/DEBIAN/control"
                dpkg-deb --root-owner-group -b "$dir" "$out" >/dev/null || return 1
                rm -rf "$dir"
        done
}

# packages_in ROOT DIR COMMAND: as an ordinary user (packages_user), without a network, with DIR as /build; the root stays as it is.
packages_user=1234:1234
packages_in() {
        unshare -m -n bash -ec '
                over=$(mktemp -d)
                mount -t tmpfs none "$over"
                mkdir "$over"/{up,wk,root}
                mount -t overlay -o lowerdir="$1",upperdir="$over/up",workdir="$over/wk" none "$over/root"
                mkdir -p "$over/root/build"
                mount --bind "$2" "$over/root/build"
                mount -t proc none "$over/root/proc"
                mount -t tmpfs -o mode=1777 none "$over/root/tmp"
                mount -t tmpfs -o mode=0755 none "$over/root/dev"
                mkdir "$over"/root/dev/{pts,shm} && chmod 1777 "$over/root/dev/shm"
                mount -t devpts -o newinstance,ptmxmode=0666 none "$over/root/dev/pts"
                ln -s pts/ptmx "$over/root/dev/ptmx" && ln -s /proc/self/fd "$over/root/dev/fd"
                for node in null zero full random urandom tty; do touch "$over/root/dev/$node" && mount --bind "/dev/$node" "$over/root/dev/$node"; done
                status=0
                env -i PATH=/usr/bin:/usr/sbin:/bin:/sbin LC_ALL=C.UTF-8 HOME=/home/builder chroot --userspec="$4" "$over/root" bash -ec "cd /build && $3" || status=$?
                umount -R -l "$over/root"
                umount -l "$over"
                rmdir "$over"
                exit $status' packages_in "$1" "$2" "$3" "$packages_user" </dev/null
}
