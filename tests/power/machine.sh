# SPDX-License-Identifier: GPL-2.0-or-later
# A machine of its own on this kernel: namespaces of every kind, control groups below a group of its own, a root file system that is
# an overlay of this one with hostd installed, and a disk with /etc/hostd and /var/lib/hostd. It can lose its power at any moment, and
# neither needs nor disturbs a hostd outside. Sourced by tests/integration/power.sh.
#
#   machine_run IMAGE COMMAND...   boots with the disk image IMAGE and runs COMMAND in it as its init's only child; ends with it
# Needs: $work (a directory), $build (a build directory), power_here (this directory).
machine_groups= machine_number=0

machine_install() { # once: hostd below $work/install
        make -s -C "$build" install DESTDIR="$work/install" >"$work/install.log" 2>&1 || { tail -n 5 "$work/install.log"; return 1; }
}

machine_disk() { # SIZE: an empty one, $work/disk.raw, whose first MiBs are no part of its file system
        local loop status
        truncate -s "$1" "$work/disk.raw" || return 1
        loop=$(losetup --show -f --offset 4194304 "$work/disk.raw") || return 1
        mkfs.ext4 -q -F "$loop"
        status=$?
        losetup -d "$loop"
        return $status
}

# A group in each hierarchy, which becomes the root of what the machine sees.
machine_enter_groups() {
        local dir file
        for dir in /sys/fs/cgroup/*/; do
                [ -e "$dir/cgroup.procs" ] || continue
                mkdir -p "$dir/$1"
                # v1 cpuset takes no process before it has these
                for file in cpuset.cpus cpuset.mems; do [ -e "$dir/$1/$file" ] && cat "$dir/$file" >"$dir/$1/$file"; done
                echo $BASHPID >"$dir/$1/cgroup.procs" || return 1
        done
}

machine_leave_groups() {
        local dir
        for dir in /sys/fs/cgroup/*/"$1"; do
                [ -d "$dir" ] && find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null
        done
        return 0
}

machine_run() { # IMAGE FSTYPE COMMAND...
        local image=$1 name status
        shift
        machine_number=$((machine_number + 1))
        name=hostd-power-$$-$machine_number
        (
                machine_enter_groups "$name" || exit 1
                exec unshare --mount --pid --net --ipc --uts --cgroup --fork --kill-child=KILL --propagation private \
                        bash "$power_here/machine-init.sh" "$work" "$power_here" "$image" "$@"
        )
        status=$?
        for _ in $(seq 50); do
                machine_leave_groups "$name"
                ls -d /sys/fs/cgroup/*/"$name" >/dev/null 2>&1 || break
                sleep 0.1
        done
        return $status
}
