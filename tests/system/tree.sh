# SPDX-License-Identifier: GPL-2.0-or-later
# The tree that is tested: the working copy, changes included, built by the image's own compiler. Sourced by run, after image.sh.
#
# It is built in a chroot, since the guest takes ten times as long, and only what changed since the last time: the directory is kept.

tree_sources() { git -C "$top" ls-files -co --exclude-standard | while IFS= read -r f; do [ -f "$top/$f" ] && printf '%s\n' "$f"; done | sort; }

# Sets tree_dir, and tree_tar: the tree as "hostd", with its build directory.
tree_make() {
        local dir=$image_dir/tree-$(printf %s "$top" | sha256sum | cut -c1-8)
        tree_dir=$dir
        mkdir -p "$dir/hostd" || return 1
        exec 7>"$dir/lock"
        lock 7
        tree_sources >"$dir/sources.new"
        [ ! -f "$dir/sources" ] || comm -23 "$dir/sources" "$dir/sources.new" | (cd "$dir/hostd" && xargs -r -d '\n' rm -f)
        tar c -C "$top" --verbatim-files-from -T "$dir/sources.new" | tar x -C "$dir/hostd" && mv "$dir/sources.new" "$dir/sources" || return 1
        if ! tree_build "$dir" >"$logs/build-$release.log" 2>&1; then
                # What an older tree left may be the reason.
                rm -rf "$dir/hostd/build"
                tree_build "$dir" >"$logs/build-$release.log" 2>&1 || { tail -n 30 "$logs/build-$release.log"; return 1; }
        fi
        tree_tar=$work/tree-$release.tar
        tar cf "$tree_tar" -C "$dir" hostd || return 1
        exec 7>&-
}

# tree_chroot DIR COMMANDS: in the build directory, under the image's own compiler and libraries; nothing of the image changes.
tree_chroot() {
        unshare -m bash -ec '
                mkdir -p "$1"/{lower,over,root}
                mount -o loop,ro,noload "$2/root.raw" "$1/lower"
                mount -t tmpfs none "$1/over" && mkdir "$1"/over/{up,wk}
                mount -t overlay -o lowerdir="$1/lower",upperdir="$1/over/up",workdir="$1/over/wk" none "$1/root"
                mkdir "$1/root/root/hostd"
                mount --bind "$1/hostd" "$1/root/root/hostd"
                mount -t proc none "$1/root/proc"
                mount --rbind /dev "$1/root/dev"
                exec chroot "$1/root" bash -ec "cd /root/hostd && mkdir -p build && $3"' tree_chroot "$1" "$image_dir" "$2"
}

tree_build() { # DIR
        tree_chroot "$1" "{ [ configure -nt configure.ac ] || ./autogen.sh; } && cd build &&
                { [ -f Makefile ] || CFLAGS='-O1 -g' ../configure --prefix=/usr/local --sysconfdir=/etc --localstatedir=/var --enable-werror; } &&
                make -j$(nproc) && make -j$(nproc) check TESTS="
}

# The unit tests with this release's libraries; automake's summary becomes the closing line.
tree_unit() {
        local log status
        log=$(case_log unit).log
        tree_chroot "$tree_dir" "cd build && make -k check VERBOSE=1" >"$log" 2>&1 </dev/null
        status=$?
        awk '$1 == "#" { n[$2] += $3 } END { if ("PASS:" in n) printf "%d passed, %d failed, %d skipped\n", n["PASS:"], n["FAIL:"] + n["ERROR:"], n["SKIP:"] }' "$log" >>"$log"
        return $status
}

tree_push() { limited 300 guest_ssh 'tar x -C /root' <"$tree_tar"; }
