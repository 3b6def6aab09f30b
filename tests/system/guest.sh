# SPDX-License-Identifier: GPL-2.0-or-later
# A guest: one run of QEMU with disks of its own, reached by ssh on a loopback port. Sourced by run, after image.sh.

guest_dir= guest_pid= guest_port=
guest_memory=${HOSTD_SYSTEM_MEMORY:-6144}

guest_ssh() {
        ssh -q -F /dev/null -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=10 \
                -o ServerAliveInterval=15 -o ServerAliveCountMax=20 -i "$guest_dir/key" -p "$guest_port" root@127.0.0.1 "$@"
}

# /dev/kvm may be there and yet run no stock kernel: a short boot to the kernel's first words decides.
guest_accelerator() {
        [ -n "${guest_accel:-}" ] && return
        guest_accel=tcg,thread=multi
        [ -w /dev/kvm ] || return 0
        timeout 8 qemu-system-x86_64 -M q35 -accel kvm -cpu host -m 512 -display none -no-reboot -kernel "$image_dir/vmlinuz" \
                -append "console=ttyS0 panic=-1" -serial stdio </dev/null 2>/dev/null | grep -qm1 'Linux version' && guest_accel=kvm
        return 0
}

# The disk for /var/lib/hostd, with the template in it.
guest_data_disk() {
        truncate -s 20G "$guest_dir/data.raw" && mkfs.xfs -q "$guest_dir/data.raw" || return 1
        mkdir "$guest_dir/mnt" && mount -o loop "$guest_dir/data.raw" "$guest_dir/mnt" || return 1
        mkdir -m 0700 "$guest_dir/mnt/templates" && cp -a "$template_dir"/* "$guest_dir/mnt/templates/"
        local status=$?
        umount "$guest_dir/mnt" && rmdir "$guest_dir/mnt"
        return $status
}

guest_make() {
        guest_dir=$(mktemp -d "$image_cache/run.XXXXXX") || return 1
        install -m 0600 "$image_dir/key" "$guest_dir/key"
        qemu-img create -q -f qcow2 -F raw -b "$image_dir/root.raw" "$guest_dir/root.qcow2" && guest_data_disk
}

# The panic of an emulated kernel ends in a boot loop: the console tells.
guest_panicked() { grep -q 'Kernel panic' "$guest_dir/console.log" 2>/dev/null; }

guest_answers() {
        timeout 20 bash -c "$(declare -f guest_ssh); guest_dir=$guest_dir guest_port=$guest_port; guest_ssh true" 2>/dev/null
}

guest_wait() { # SECONDS
        local end=$((SECONDS + $1))
        while [ $SECONDS -lt $end ]; do
                kill -0 "$guest_pid" 2>/dev/null && ! guest_panicked || return 1
                guest_answers && return 0
                sleep 1
        done
        return 1
}

# Boots what guest_make() made, and waits for ssh.
guest_boot() {
        local begin=$SECONDS
        guest_accelerator
        guest_port=$((20000 + RANDOM % 10000))
        setsid nice -n "${HOSTD_SYSTEM_NICE:-5}" qemu-system-x86_64 -M q35 -accel $guest_accel -cpu max -m "$guest_memory" -smp 2 -display none \
                -kernel "$image_dir/vmlinuz" -initrd "$image_dir/initrd" \
                -drive file="$guest_dir/root.qcow2",if=virtio,format=qcow2,cache=unsafe \
                -drive file="$guest_dir/data.raw",if=virtio,format=raw,cache=unsafe \
                -netdev user,id=n0,restrict=on,hostfwd=tcp:127.0.0.1:$guest_port-:22 -device virtio-net-pci,netdev=n0 -device virtio-rng-pci \
                -serial file:"$guest_dir/console.log" -monitor none \
                -append "root=/dev/vda rw console=ttyS0 quiet panic=1 systemd.show_status=false mitigations=off" >"$guest_dir/qemu.log" 2>&1 </dev/null &
        guest_pid=$!
        guest_wait 240 || return 1
        guest_boot_seconds=$((SECONDS - begin))
}

# An orderly reboot from inside; back only when it is another boot.
guest_reboot() {
        local id
        id=$(guest_ssh cat /proc/sys/kernel/random/boot_id) || return 1
        guest_ssh systemctl reboot
        for _ in $(seq 150); do
                sleep 2
                guest_wait 240 || return 1
                [ "$(guest_ssh cat /proc/sys/kernel/random/boot_id)" = "$id" ] || return 0
        done
        return 1
}

guest_stop() {
        if [ -n "$guest_pid" ] && kill -0 "$guest_pid" 2>/dev/null; then
                timeout 20 bash -c "$(declare -f guest_ssh); guest_dir=$guest_dir guest_port=$guest_port; guest_ssh poweroff" >/dev/null 2>&1
                for _ in $(seq "${1:-20}"); do kill -0 "$guest_pid" 2>/dev/null || break; sleep 1; done
                kill -9 "$guest_pid" 2>/dev/null
        fi
        wait "$guest_pid" 2>/dev/null
        guest_pid=
}

guest_remove() {
        [ -n "$guest_dir" ] || return 0
        guest_stop 1
        mountpoint -q "$guest_dir/mnt" && umount "$guest_dir/mnt"
        rm -rf "$guest_dir"
        guest_dir=
}
