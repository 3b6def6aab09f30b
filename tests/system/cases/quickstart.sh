# SPDX-License-Identifier: GPL-2.0-or-later
# The README's command on a fresh machine; then what its reader does next: restart hostd under a running command, reboot, remove.
# LIMIT: 1200
# FROM: boot
# SHORT
. tests/system/lib.sh

survive() { # COMMAND...: a running command, both instances and all limits live through it
        local running before status=0
        before=$(limits agent1 agent2)
        hostctl exec agent1 -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "tick $i"; sleep 1; done; exit 7' >ticks &
        running=$!
        until_true 30 grep -q 'tick 2' ticks
        "$@"
        until_true 60 hostctl info
        wait $running || status=$?
        [ $status -eq 7 ]
        [ "$(tail -n 1 ticks)" = "tick 12" ]
        until_true 30 hostctl exec agent2 -- true
        [ "$(limits agent1 agent2)" = "$before" ]
        hostctl leaks
        echo "survived: $*"
}

reload_systemd() { systemctl daemon-reload && systemctl daemon-reexec; }
crash_hostd() { kill -9 "$(systemctl show -p MainPID --value hostd)"; }

case ${1:-1} in
1)
        begin=$SECONDS
        ./quickstart
        echo "quickstart took $((SECONDS - begin)) s"
        hostctl doctor -f csv -c protection,state | tr -d '\r' | grep -v ,enforced >not-enforced || true
        [ "$(sed 1d not-enforced)" = "limit io_weight,degraded" ] # nothing but what the emulated disk has no scheduler for
        survive systemctl restart hostd
        survive crash_hostd
        survive reload_systemd
        [ "$(journalctl -u hostd -u 'hostd-instance@*' HOSTD_INSTANCE=agent1 -o cat | grep -c 'init runs')" -ge 1 ]
        systemctl --failed --no-legend | tee failed
        [ ! -s failed ]
        exit 88
        ;;
2)
        until_true 120 hostctl exec agent1 -- true
        until_true 120 hostctl exec agent2 -- true
        nothing "word of a failure" "$(journalctl -b -u hostd -o cat | grep -iE 'fail|cannot|error')"
        hostctl exec agent1 -- cat /var/tmp/result.txt
        hostctl leaks
        ./quickstart --clean
        nothing_left
        ;;
esac
