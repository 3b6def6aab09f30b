# SPDX-License-Identifier: GPL-2.0-or-later
# Power cuts in earnest: hostd works in the guest, QEMU is killed, the guest boots from the disks as they were left, and every promise
# of tests/power/power.py is looked at; then the work goes on from there until the next cut. Sourced by run, after snapshot.sh.
#
# What a cut takes: with "cache=unsafe" a write that QEMU has made is in a file of this machine, which keeps its power. So a cut takes the
# guest's page cache, requests under way, and, because QEMU writes the tables of a qcow2 file when the guest flushes (or at its own
# leisure), what was written since the last flush to places where nothing was before. Each boot has new, empty overlays for that reason:
# nearly all places are new. What was flushed is kept: QEMU's own flush to this machine's disk, which "unsafe" leaves out, is for
# this machine's power. A write over an older one of the same boot is kept also without a flush; the cuts of
# tests/integration/power.sh take such writes, too.
. "$top/tests/lib/tiny.sh"
. "$top/tests/power/roots.sh"

cuts_say() { printf '%s\n' "$*" >>"$cuts_log"; }

# The first guest of all: hostd as it was saved, with the roots of templates in it. The tree outlives the cuts with what they flush.
cuts_begin() {
        guest_take_slot && guest_resume "$snapshot_hostd" || return 1
        [ -d "$work/roots" ] || power_roots "$work/roots" || return 1
        tar c -C "$work" roots | limited 300 guest_ssh 'tar x -C /root && sync' >>"$cuts_log" 2>&1 || return 1
        : >"$cuts_notes"
        cuts_boot_id=$(limited 60 guest_ssh cat /proc/sys/kernel/random/boot_id </dev/null)
}

# Works until the power is gone.
cuts_work() { # SEED
        local status
        CUTS_SSH="$(declare -f guest_ssh); guest_dir=$guest_dir guest_port=$guest_port; guest_ssh" \
                timeout -k 10 900 python3 "$top/tests/system/cuts.py" "$cuts_notes" "$guest_pid" "$1" /root/roots >"$work/cuts.out" 2>&1 </dev/null &
        wait $! 2>/dev/null # also the word of QEMU's end
        status=$?
        kill -9 "$guest_pid" 2>/dev/null
        wait "$guest_pid" 2>/dev/null
        guest_pid=
        if [ $status -ne 0 ] && guest_panicked; then
                cuts_say "# the guest's kernel panicked: a cut like any other"
                status=0
        fi
        return $status
}

# The disks of the last boot become the ground for empty ones.
cuts_disks() {
        local disk
        for disk in root data; do
                if [ -f "$guest_dir/$disk.ground.qcow2" ]; then
                        qemu-img commit -q -t unsafe "$guest_dir/$disk.qcow2" || return 1
                else
                        mv "$guest_dir/$disk.qcow2" "$guest_dir/$disk.ground.qcow2" || return 1
                fi
                qemu-img create -q -f qcow2 -F qcow2 -b "$guest_dir/$disk.ground.qcow2" "$guest_dir/$disk.qcow2" || return 1
        done
}

cuts_boot() {
        local try id
        # The emulation's own fault, a breakpoint of code that the kernel changes under another processor: the busier the machine, the more often.
        for try in 1 2 3 4 5 6; do
                cuts_disks || return 1
                guest_qemu && guest_wait 400 && break
                guest_panicked || return 1
                cuts_say "# the guest's kernel panicked in its start, once more"
                kill -9 "$guest_pid" 2>/dev/null
                wait "$guest_pid" 2>/dev/null
                guest_pid=
        done
        id=$(limited 60 guest_ssh cat /proc/sys/kernel/random/boot_id </dev/null) && [ -n "$id" ] && [ "$id" != "$cuts_boot_id" ] && cuts_boot_id=$id
}

# Prints what is broken. Of the store SQLite checks a copy, since hostd has it for itself, and hostd is at rest by then.
cuts_verify() {
        limited 60 guest_ssh 'cat >/root/notes' <"$cuts_notes" || { echo "BROKEN the guest takes no notes"; return 1; }
        limited 1500 guest_ssh 'cd /root/hostd/tests/power && HOSTD_TEST_SLOW=4 python3 power.py verify /root/notes /root/next && cd / &&
                rm -rf /root/store && mkdir /root/store && cp /var/lib/hostd/state.db* /root/store/ &&
                { store=$(python3 -c "import sqlite3; print(sqlite3.connect(\"/root/store/state.db\").execute(\"PRAGMA integrity_check\").fetchone()[0])"); [ "$store" = ok ] || { echo "BROKEN the store: $store"; exit 1; }; } &&
                { failed=$(systemctl --failed --no-legend --plain); [ -z "$failed" ] || { echo "BROKEN units failed: $failed"; exit 1; }; } &&
                { n=$(systemctl show -P NRestarts hostd); [ "$n" = 0 ] || { echo "BROKEN hostd was restarted $n times"; exit 1; }; }' </dev/null 2>&1 &&
                limited 60 guest_ssh 'cat /root/next' </dev/null >"$cuts_notes.next" && mv "$cuts_notes.next" "$cuts_notes"
}

# A panic of the emulated kernel while it is looked at is one more cut, after which the same must be true.
cuts_look() {
        cuts_verify && return
        guest_panicked || return 1
        cuts_say "# the guest's kernel panicked while it was looked at, once more"
        kill -9 "$guest_pid" 2>/dev/null
        wait "$guest_pid" 2>/dev/null
        guest_pid=
        cuts_boot && cuts_verify
}

# What there is to look at, and the end of this guest: what comes after a broken promise proves nothing.
cuts_broken() { # NUMBER WHAT
        failed_cuts=$((failed_cuts + 1))
        cuts_say "FAIL: cut $1 (seed $HOSTD_SYSTEM_SEED.$1): $2"
        { grep BROKEN "$work/cuts.verify" | head -n 12; grep -v BROKEN "$work/cuts.verify" | tail -n 5; } 2>/dev/null | cut -c1-500 | sed 's/^/    /' >>"$cuts_log"
        cp "$cuts_notes" "$(case_log cuts)-$1.notes"
        [ -z "$guest_dir" ] || cp "$guest_dir/console.log" "$(case_log cuts)-$1.console"
        [ -z "$guest_pid" ] || limited 90 guest_ssh 'journalctl --no-pager -o short-precise -b -1 | tail -n 300; echo ======== the boot after the cut; journalctl -b --no-pager -o short-precise' </dev/null >"$(case_log cuts)-$1.journal" 2>&1
        [ -z "${HOSTD_SYSTEM_KEEP_DISKS:-}" ] || cp --sparse=always "$guest_dir"/*.ground.qcow2 "$HOSTD_SYSTEM_KEEP_DISKS/"
        guest_remove
}

cuts_one() { # NUMBER
        local begin=$SECONDS booted
        rm -f "$work/cuts.verify"
        if [ -z "$guest_dir" ]; then cuts_begin || { cuts_broken "$1" "there is no guest to work in"; return; }; fi
        cuts_work "$HOSTD_SYSTEM_SEED.$1" || { cuts_broken "$1" "the work failed: $(tail -n 4 "$work/cuts.out")"; return; }
        booted=$SECONDS
        cuts_boot || { cuts_broken "$1" "the guest does not boot ($(tail -n 1 "$work/cuts.out"))"; return; }
        booted=$((SECONDS - booted))
        cuts_look >"$work/cuts.verify" || { cuts_broken "$1" "$(tail -n 1 "$work/cuts.out")"; return; }
        passed_cuts=$((passed_cuts + 1))
        grep '^refused' "$work/cuts.out" | sed 's/^/# /' >>"$cuts_log"
        cuts_say "ok: cut $1: $(tail -n 1 "$work/cuts.out"); $(grep answered "$work/cuts.verify"); booted in $booted s, all in $((SECONDS - begin)) s"
}

cuts_run() {
        local begin=$SECONDS n passed_cuts=0 failed_cuts=0 cuts_log cuts_notes=$work/cuts.notes cuts_boot_id=
        : "${HOSTD_SYSTEM_SEED:=$(date +%s)}"
        cuts_log=$(case_log cuts).log
        echo "# HOSTD_SYSTEM_SEED=$HOSTD_SYSTEM_SEED" >"$cuts_log"
        snapshot_make_hostd || { broken "$release cuts: there is no guest to run it in"; return; }
        for n in $(seq "${HOSTD_SYSTEM_CUTS:-50}"); do cuts_one "$n"; done
        guest_remove
        cuts_say "$passed_cuts passed, $failed_cuts failed"
        [ $failed_cuts -eq 0 ]
        case_count cuts $? $((SECONDS - begin))
}
