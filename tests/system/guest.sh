# SPDX-License-Identifier: GPL-2.0-or-later
# A guest: one run of QEMU with disks of its own, reached by ssh on a loopback port. Sourced by run, after image.sh.
#
# Two guests may run on a machine, whoever started them: each has a slot, 1 or 2, which is a lock that QEMU itself inherits, so
# that no slot is free before its QEMU is gone. What a guest has on disk lies in guest.SLOT and is swept by the slot's next user.

guest_slot= guest_dir= guest_pid= guest_port=
guest_memory=${HOSTD_SYSTEM_MEMORY:-4096}
guest_slots=${HOSTD_SYSTEM_SLOTS:-2}

# -n: without a terminal's input. The time limit of a command is its caller's.
guest_ssh() {
        ssh -q -F /dev/null -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=10 \
                -o ServerAliveInterval=15 -o ServerAliveCountMax=20 -i "$guest_dir/key" -p "$guest_port" root@127.0.0.1 "$@"
}

# limited SECONDS FUNCTION...: a shell function with a time limit. In the background, because bash minds its traps only while it waits.
limited() {
        local seconds=$1 pid
        shift
        timeout -k 10 "$seconds" bash -c "$(declare -f guest_ssh); guest_dir=$guest_dir guest_port=$guest_port; \"\$@\"" limited "$@" <&0 &
        pid=$!
        wait $pid
}

# Descriptor 8 holds the slot. One waiter for each, because the kernel gives a lock to whoever has waited longest: who only looked
# now and then would never come between a guest and the next one of a long run.
guest_wait_slot() {
        local slot fd pid won= fds=() pids=()
        for slot in $(seq "$guest_slots"); do
                exec {fd}>"$image_cache/slot.$slot"
                fds[slot]=$fd
                (exec flock "$fd") &
                pids[slot]=$!
        done
        while [ -z "$won" ]; do
                wait -n -p pid "${pids[@]}" || return 1
                for slot in "${!pids[@]}"; do [ "${pids[slot]}" != "$pid" ] || won=$slot; done
        done
        exec 8>&"${fds[won]}"
        for slot in "${!pids[@]}"; do
                kill "${pids[slot]}" 2>/dev/null
                wait "${pids[slot]}" 2>/dev/null
                fd=${fds[slot]}
                exec {fd}>&-
        done
        guest_slot=$won
}

# Waits for one of the slots and makes guest_dir.
guest_take_slot() {
        local slot
        guest_slot=
        for slot in $(seq "$guest_slots"); do
                exec 8>"$image_cache/slot.$slot"
                flock -n 8 && guest_slot=$slot && break
        done
        if [ -z "$guest_slot" ]; then
                note "waiting: $guest_slots guests are running already"
                guest_wait_slot || return 1
        fi
        guest_dir=$image_cache/guest.$guest_slot
        rm -rf "$guest_dir"
        mkdir "$guest_dir"
}

# /dev/kvm may be there and yet run no stock kernel: a short boot to the kernel's first words decides. guest_slow is
# what the suites' own limits on time are multiplied with.
guest_accelerator() {
        [ -n "${guest_accel:-}" ] && return
        guest_accel=tcg,thread=multi guest_slow=20
        [ -w /dev/kvm ] || return 0
        timeout 8 qemu-system-x86_64 -M q35 -accel kvm -cpu host -m 512 -display none -no-reboot -kernel "$image_dir/vmlinuz" \
                -append "console=ttyS0 panic=-1" -serial stdio </dev/null 2>/dev/null | grep -qm1 'Linux version' && guest_accel=kvm guest_slow=1
        return 0
}

# What a saved guest can be resumed under, and no other.
guest_machine() {
        guest_accelerator
        echo "$(qemu-system-x86_64 --version | head -1) $guest_accel $guest_memory $guest_format"
        [ $guest_accel != kvm ] || grep -m1 '^model name' /proc/cpuinfo
}

guest_format=1 # raise when the command below changes

# Its parent's death ends QEMU, whatever that died of.
guest_qemu() { # OPTIONS...
        guest_accelerator
        guest_port=$((20000 + RANDOM % 10000))
        while [ -n "$(ss -Hltn "sport = :$guest_port")" ]; do guest_port=$((20000 + RANDOM % 10000)); done
        setsid setpriv --pdeathsig KILL nice -n "${HOSTD_SYSTEM_NICE:-5}" qemu-system-x86_64 -M q35 -accel $guest_accel -cpu max \
                -m "$guest_memory" -smp 2 -display none -kernel "$image_dir/vmlinuz" -initrd "$image_dir/initrd" \
                -drive file="$guest_dir/root.qcow2",if=virtio,format=qcow2,cache=unsafe \
                -drive file="$guest_dir/data.qcow2",if=virtio,format=qcow2,cache=unsafe \
                -netdev user,id=n0,restrict=on,hostfwd=tcp:127.0.0.1:$guest_port-:22 -device virtio-net-pci,netdev=n0 -device virtio-rng-pci \
                -serial file:"$guest_dir/console.log" -qmp unix:"$guest_dir/qmp",server=on,wait=off -monitor none \
                -append "root=/dev/vda rw console=ttyS0 quiet panic=1 systemd.show_status=false mitigations=off" "$@" \
                >"$guest_dir/qemu.log" 2>&1 </dev/null &
        guest_pid=$!
        printf "guest_port=%s release=%s guest_slow=%s\n" "$guest_port" "$release" "$guest_slow" >"$guest_dir/env"
}

# The panic of an emulated kernel ends in a boot loop: the console tells.
guest_panicked() { grep -q 'Kernel panic' "$guest_dir/console.log" 2>/dev/null; }

guest_wait() { # SECONDS
        local end=$((SECONDS + $1))
        while [ $SECONDS -lt $end ]; do
                kill -0 "$guest_pid" 2>/dev/null && ! guest_panicked || return 1
                limited 20 guest_ssh true </dev/null 2>/dev/null && return 0
                sleep 0.5
        done
        return 1
}

guest_disks() { # ROOT DATA: what they lie upon, as format:file
        install -m 0600 "$image_dir/key" "$guest_dir/key" &&
                qemu-img create -q -f qcow2 -F "${1%%:*}" -b "${1#*:}" "$guest_dir/root.qcow2" &&
                qemu-img create -q -f qcow2 -F "${2%%:*}" -b "${2#*:}" "$guest_dir/data.qcow2"
}

# From the power button to ssh.
guest_boot() {
        guest_disks "raw:$image_dir/root.raw" "raw:$data_disk" && guest_qemu && guest_wait 240
}

# Memory and disks go to DIR, for any number of guest_resume(); this guest ends.
guest_save() { # DIR
        limited 60 guest_ssh 'sync; echo 1 >/proc/sys/vm/drop_caches; fstrim -a' </dev/null
        mkdir -p "$1" && timeout 180 python3 "$top/tests/system/qmp.py" "$guest_dir/qmp" save "$1/memory" &&
                mv "$guest_dir/root.qcow2" "$guest_dir/data.qcow2" "$1/" && wait "$guest_pid"
}

# The guest goes on where it was saved, in another time and with other luck.
guest_resume() { # DIR
        guest_disks "qcow2:$1/root.qcow2" "qcow2:$1/data.qcow2" && guest_qemu -incoming "exec:cat '$1/memory'" &&
                timeout 120 python3 "$top/tests/system/qmp.py" "$guest_dir/qmp" resume && guest_wait 60 &&
                head -c 64 /dev/urandom | limited 60 guest_ssh "date -s @$(date +%s) >/dev/null; cat >/dev/urandom
                        command -v python3 >/dev/null || exit 0 # a stock guest makes do with what was mixed in
                        python3 -c 'import fcntl; fcntl.ioctl(open(\"/dev/urandom\", \"wb\"), 0x5207)'" # RNDRESEEDCRNG
}

# An orderly reboot from inside; back only when it is another boot.
guest_reboot() {
        local id end=$((SECONDS + 300))
        id=$(limited 60 guest_ssh cat /proc/sys/kernel/random/boot_id </dev/null) || return 1
        limited 60 guest_ssh systemctl reboot </dev/null
        while [ $SECONDS -lt $end ]; do
                sleep 2
                guest_wait 240 || return 1
                [ "$(limited 60 guest_ssh cat /proc/sys/kernel/random/boot_id </dev/null)" = "$id" ] || return 0
        done
        return 1
}

# Nothing on its disks is worth an orderly end.
guest_remove() {
        [ -n "$guest_dir" ] || return 0
        if [ -n "$guest_pid" ]; then
                kill -9 "$guest_pid" 2>/dev/null
                wait "$guest_pid" 2>/dev/null
                guest_pid=
        fi
        rm -rf "$guest_dir"
        guest_dir=
        exec 8>&-
}
