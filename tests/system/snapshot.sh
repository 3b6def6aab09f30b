# SPDX-License-Identifier: GPL-2.0-or-later
# Saved guests that cases go on from. Sourced by run, after guest.sh.
#
#   boot    just booted, the template in /var/lib/hostd. Kept beside the image for as long as image, template and QEMU are the same.
#   hostd   from there: the tree in /root/hostd, hostd installed and running. Made once in each run, for the tree at hand.

snapshot_boot= snapshot_hostd=

# The disk for /var/lib/hostd as it is at the first boot: xfs with the template.
snapshot_data_disk() {
        local mnt status
        data_disk=$image_cache/data-$(ls "$template_dir" | sha256sum | cut -c1-16).raw
        [ -f "$data_disk" ] && return 0
        mnt=$(mktemp -d "$image_cache/mnt.XXXXXX") || return 1
        truncate -s 20G "$data_disk.part" && mkfs.xfs -q -f "$data_disk.part" && unshare -m bash -ec '
                mount -o loop "$1" "$2"
                mkdir -m 0700 "$2/templates"
                cp -a "$3"/* "$2/templates/"
                umount "$2"' data_disk "$data_disk.part" "$mnt" "$template_dir" && mv "$data_disk.part" "$data_disk"
        status=$?
        rmdir "$mnt"
        return $status
}

# Sets snapshot_boot. An emulated kernel panics now and then in its own start: that, and nothing else, is tried once more.
snapshot_make_boot() {
        local begin=$SECONDS
        snapshot_data_disk || return 1
        snapshot_boot=$image_dir/boot-$(printf '%s %s' "$(guest_machine)" "$data_disk" | sha256sum | cut -c1-16)
        [ -f "$snapshot_boot/memory" ] && return 0
        rm -rf "$snapshot_boot.part"
        guest_take_slot
        if ! guest_boot; then
                guest_panicked || return 1
                note "$release: the guest's kernel panicked in its start, once more"
                guest_remove && guest_take_slot && guest_boot || return 1
        fi
        note "$release: booted in $((SECONDS - begin)) s ($guest_accel)"
        # Until systemd has done everything, so that each case finds the machine at rest.
        limited 240 guest_ssh 'systemctl is-system-running --wait' </dev/null >/dev/null
        guest_save "$snapshot_boot.part" && mv "$snapshot_boot.part" "$snapshot_boot"
        local status=$?
        guest_remove
        return $status
}

# Sets snapshot_hostd, below work.
snapshot_make_hostd() {
        local begin=$SECONDS status
        [ -n "$snapshot_hostd" ] && return 0
        guest_take_slot
        guest_resume "$snapshot_boot" && tree_push &&
                limited 900 guest_ssh 'cd /root/hostd && bash -c ". tests/system/lib.sh; hostd_up"' </dev/null >"$logs/$release-hostd-up.log" 2>&1 &&
                guest_save "$work/hostd-$release"
        status=$?
        guest_remove
        if [ $status -ne 0 ]; then
                tail -n 20 "$logs/$release-hostd-up.log"
                return 1
        fi
        snapshot_hostd=$work/hostd-$release
        note "$release: hostd installed and running after $((SECONDS - begin)) s"
}
