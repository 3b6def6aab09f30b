# SPDX-License-Identifier: GPL-2.0-or-later
# The host's way down and up again: guests are asked to shut down and have time for it, one that does not listen is killed, the host
# is not held up, and afterwards everything is as it was.
# LIMIT: 1200
. tests/system/lib.sh

# Order of units, as systemd has it; on the way down it is reversed.
comes_after() { # UNIT OTHER...: each of them
        local unit=$1 other after
        shift
        after=" $(systemctl show -P After "$unit") "
        for other in "$@"; do
                case $after in *" $other "*) ;; *) echo "$unit does not come after $other"; return 1 ;; esac
        done
}

case ${1:-1} in
1)
        # Where a shutdown can be followed afterwards.
        mkdir -p /var/log/journal
        systemctl restart systemd-journald
        hostctl launch agent good -s memory=512MiB -s disk=300MiB
        hostctl launch agent deaf -s memory=512MiB -s disk=300MiB -s stop_timeout=20s
        hostctl launch agent off -s memory=512MiB -s disk=300MiB
        comes_after hostd-instance@good.service nftables.service apparmor.service network.target local-fs.target var-lib-hostd.mount hostd.slice
        comes_after hostd.service hostd-instance@good.service nftables.service hostd.socket var-lib-hostd.mount
        comes_after shutdown.target hostd-instance@good.service hostd.service
        until_true 120 hostctl exec good -- test -S /run/dbus/system_bus_socket
        until_true 120 hostctl exec deaf -- test -S /run/dbus/system_bus_socket
        until_true 120 hostctl exec off -- test -S /run/dbus/system_bus_socket
        # Takes its time, and has it.
        hostctl exec good -- sh -c 'printf "[Unit]\nDescription=slow\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\nExecStop=/bin/sh -c \"sleep 5; sync; echo whole >/var/lib/slow; sync\"\n" >/etc/systemd/system/slow.service; systemctl daemon-reload; systemctl start slow'
        # Never done with it.
        hostctl exec deaf -- sh -c 'printf "[Service]\nType=oneshot\nRemainAfterExit=yes\nTimeoutStopSec=infinity\nExecStart=/bin/true\nExecStop=/bin/sleep 3600\n" >/etc/systemd/system/deaf.service; systemctl daemon-reload; systemctl start deaf'
        # Switched off from inside: its own wish, which a reboot does not change.
        hostctl exec off -- systemctl poweroff || true
        until_true 60 sh -c 'hostctl list -f csv -c name,state | tr -d "\r" | grep -x off,stopped'
        limits good deaf >/root/before
        exit 88
        ;;
2)
        until_true 180 hostctl exec good -- true
        until_true 180 hostctl exec deaf -- true
        hostctl list -f csv -c name,state | tr -d '\r' | grep -x off,stopped
        [ "$(hostctl exec good -- cat /var/lib/slow)" = whole ]
        limits good deaf >/root/after
        diff /root/before /root/after
        hostctl leaks
        hostctl audit verify
        journalctl -q -b -1 -o short-monotonic -u hostd -u 'hostd-instance@*' -u hostd.slice -u network.target >/root/way-down
        tail -n 30 /root/way-down
        # hostd goes first, and takes nothing for a guest's wish.
        first() { grep -n "$1" /root/way-down | tail -n 1 | cut -d: -f1; }
        [ "$(first 'Stopped hostd.service')" -lt "$(first 'SIGTERM: the guest is asked')" ]
        nothing "misunderstanding" "$(grep 'not through hostd' /root/way-down)"
        [ "$(grep -c 'did not shut down within 20 s and is killed' /root/way-down)" = 1 ]
        [ "$(grep -c 'did not shut down' /root/way-down)" = 1 ]
        # From the request to the last word of that boot, in seconds of the old boot's clock.
        stopping=$(sed -n 's/^\[ *\([0-9]*\)\..*Stopping hostd.service.*/\1/p' /root/way-down | tail -n 1)
        last=$(journalctl -q -b -1 -o short-monotonic -n 1 | sed -n 's/^\[ *\([0-9]*\)\..*/\1/p')
        echo "the way down took $((last - stopping)) s"
        [ $((last - stopping)) -lt 135 ]
        refused grep -q 'State .stop-sigterm. timed out' /root/way-down
        systemctl --failed --no-legend | tee failed
        [ ! -s failed ]
        ;;
esac
