# SPDX-License-Identifier: GPL-2.0-or-later
# What runs in the machine: bash inside.sh work|verify DEVICE ARGUMENTS...
mode=$1 device=$2
shift 2
cd /srv/power || exit 1
# The first start of all writes this; later ones find it.
if [ ! -s /etc/hostd/hostd.conf ]; then
        printf 'default_template = "one";\nallow_degraded = [ "apparmor", "disk", "inodes", "seccomp" ];\n' >/etc/hostd/hostd.conf
        sync /etc/hostd/hostd.conf /etc/hostd
fi
log=/srv/work/hostd.log
hostd >"$log" 2>&1 &
for _ in $(seq 600); do
        hostctl info >/dev/null 2>&1 && break
        kill -0 $! 2>/dev/null || { echo "hostd ended: $(tail -n 1 $log)"; exit 1; }
        sleep 0.1
done
python3 power.py "$mode" "$device" "$@"
status=$?
[ "$mode" = work ] && exit $status
kill $!
wait $!
python3 - <<'P' || status=1
import sqlite3
print("store:", sqlite3.connect("/var/lib/hostd/state.db").execute("PRAGMA integrity_check").fetchone()[0])
P
exit $status
