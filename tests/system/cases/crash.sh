# SPDX-License-Identifier: GPL-2.0-or-later
# hostd-instance is killed again and again. systemd must notice each end at once: when it does not, nothing starts before TimeoutStopSec.
# LIMIT: 600
. tests/system/lib.sh
. tests/lib/tiny.sh
main_pid() { systemctl show -P MainPID hostd-instance@a; }
tiny_import
hostctl launch tiny a -s memory=64MiB -s disk=128MiB
for i in $(seq 15); do
        old=$(main_pid)
        kill -9 "$old"
        until_true 30 eval "[ $old != \$(main_pid) ]"
        begin=$SECONDS
        hostctl start a
        hostctl exec a -- true
        echo "killed $i times, runs again after $((SECONDS - begin)) s"
done
hostctl delete --force a
hostctl leaks
