# SPDX-License-Identifier: GPL-2.0-or-later
# Every attempt to escape, once under the AppArmor profile and once in an unconfined instance of the same host, and what differs: that
# alone is the profile's work, the rest is held by user namespaces, seccomp and mounts already. Prints the table of docs/security-model.md.
# LIMIT: 3600
. tests/system/lib.sh
export HOSTD_TEST_SLOW=${HOSTD_TEST_SLOW:-20}

passed=0 failed=0
good() { passed=$((passed + 1)); echo "ok $*"; }
bad() { failed=$((failed + 1)); echo "FAIL $*"; }
verdict() { local what=$1; shift; if "$@" >/root/verdict 2>&1; then good "$what"; else bad "$what: $(tail -n 2 /root/verdict | tr '\n' ' ')"; fi; }
lines() { grep -c "^$1 " "$2" || true; }
count() { # LOG: takes over the result lines of a script
        passed=$((passed + $(lines ok "$1"))) failed=$((failed + $(lines FAIL "$1")))
        grep '^FAIL ' "$1" || true
}
loaded() { grep -qx "hostd-instance ($1)" /sys/kernel/security/apparmor/profiles; }
label() { tr -d '\0\n' <"/proc/$(hostctl show c -f json | jq .pid)/attr/current"; }
# attempts REPORT: its log is REPORT.log
attempts() {
        HOSTD_ESCAPE_PART=attempts HOSTD_ESCAPE_REPORT=$1 HOSTD_ESCAPE_ROWS=300 tests/product/escape.sh >"$1.log" 2>&1 || true
        tail -n 1 "$1.log"
        count "$1.log"
        verdict "$(basename "$1"): all attempts were made" grep -qE '^[0-9]+ passed, [0-9]+ failed' "$1.log"
}

# What the kernel would run as the host's root for a key that nobody has.
export HOSTD_ESCAPE_UPCALL=/run/escape-upcall
printf '#!/bin/sh\necho "$@" >>%s\nexit 1\n' $HOSTD_ESCAPE_UPCALL >/sbin/request-key
chmod 755 /sbin/request-key
python3 -c 'import ctypes; ctypes.CDLL(None).syscall(249, b"user", b"hostd-control", b"x", 0)'
verdict "control: the kernel's upcall for keys would be seen" test -s $HOSTD_ESCAPE_UPCALL
rm -f $HOSTD_ESCAPE_UPCALL

# --- hostd's start loads the profile, and nothing but a start does
verdict "the profile is loaded" loaded enforce
systemctl stop hostd.socket hostd
apparmor_parser -R /etc/apparmor.d/hostd-instance
refused loaded enforce
systemctl start hostd
verdict "hostd's start loads it where it is not" loaded enforce
verdict "the unit that does it did not fail" test "$(systemctl show -P Result hostd-apparmor.service)" = success
since=$(systemctl show -P ExecMainStartTimestampMonotonic hostd-apparmor.service)
systemctl restart hostd
verdict "and does nothing where it is" test "$since" = "$(systemctl show -P ExecMainStartTimestampMonotonic hostd-apparmor.service)"
until_true 60 hostctl info

# --- the start of an instance refuses what is not in force
bash -c '. tests/lib/tiny.sh; tiny_import'
hostctl create tiny c -s memory=128MiB -s disk=128MiB
apparmor_parser -R /etc/apparmor.d/hostd-instance
verdict "without the profile no instance starts" refused hostctl start c
mv /root/verdict /root/refusal
cat /root/refusal
verdict "and the reason is said" grep -qi apparmor /root/refusal
apparmor_parser -C -r /etc/apparmor.d/hostd-instance
verdict "nor with the profile in complain mode" refused hostctl start c
apparmor_parser -r /etc/apparmor.d/hostd-instance
hostctl start c
verdict "init is confined" test "$(label)" = "hostd-instance (enforce)"
hostctl stop --force c

# --- every attempt under it
attempts /root/confined

# --- the control: everything else is the same
sed -i '/^allow_degraded/d' /etc/hostd/hostd.conf
echo 'allow_degraded = [ "apparmor" ];' >>/etc/hostd/hostd.conf
systemctl stop hostd.socket hostd
apparmor_parser -R /etc/apparmor.d/hostd-instance
mv /etc/apparmor.d/hostd-instance /root/profile
systemctl start hostd
until_true 60 hostctl info
verdict "control: hostd starts where there is no profile to load" refused loaded enforce
hostctl start c
verdict "control: an instance without AppArmor" test "$(label)" = unconfined
attempts /root/unconfined
mv /root/profile /etc/apparmor.d/hostd-instance

# --- the difference
verdict "the same attempts in both" test "$(cut -f 1,2 /root/confined | sort | sha256sum)" = "$(cut -f 1,2 /root/unconfined | sort | sha256sum)"
verdict "they are compared" python3 tests/escape/compare.py /root/confined /root/unconfined
cp /root/verdict /root/compared
echo "attempt | who | with the profile | without"
cat /root/compared
count /root/compared >/dev/null
hostctl delete --force c
hostctl leaks
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
