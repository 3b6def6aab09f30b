#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# hostd starts with files that are not valid and without a history: what was good stays in force, what is wrong is named, and nothing
# that runs is touched.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
cp "$HOSTD_ETC/hostd.conf" "$work/hostd.conf"
a=$HOSTD_ETC/instances.d/pt-a.conf
restore() {
        cp "$work/hostd.conf" "$HOSTD_ETC/hostd.conf"
        if [ -d "$work/git" ]; then rm -rf "$HOSTD_ETC/.git" && mv "$work/git" "$HOSTD_ETC/.git"; fi
        rm -f "$HOSTD_ETC"/policies.d/pt-bad.conf "$HOSTD_ETC"/instances.d/pt-new.conf "$HOSTD_ETC"/instances.d/Pt_c.conf
        [ -f "$work/a.conf" ] && cp "$work/a.conf" "$a"
        hostctl apply >/dev/null 2>&1
}
trap 'restore; finish' EXIT
enforced() { hostctl show "$1" -f json | jq -r ".enforced.$2"; }
warning() { hostctl warning list -f json | jq -r ".warnings[] | select(.kind == \"$1\" and .entity == \"$2\") | .$3"; }
doctor() { hostctl doctor -f json | jq -r ".protections[] | select(.protection == \"$1\") | .state"; }

hostctl create tiny pt-new -s memory=64MiB -s disk=64MiB >/dev/null && hostctl delete pt-new
launch pt-a pids=111 >/dev/null && launch pt-b pids=112 >/dev/null || { fail launch "$(hostctl list)"; finish; }
cp "$a" "$work/a.conf"
init=$(instance_pid pt-a)
hostd_stop

# --- each kind of file is wrong; history has a good text of some
printf 'pids = 999;\nmemory = ;\n' >"$a"
# That an instance of this name was there and was deleted makes its old text none of the new file's.
printf 'template = "tiny";\nnonsense = 1;\n' >"$HOSTD_ETC/instances.d/pt-new.conf"
printf 'rules = 3;\n' >"$HOSTD_ETC/policies.d/pt-bad.conf"
cp "$work/a.conf" "$HOSTD_ETC/instances.d/Pt_c.conf"
echo 'nonsense = 1;' >>"$HOSTD_ETC/hostd.conf"
head=$(config_head)
check "hostd starts all the same" hostd_start
check_is "the instance with the bad file runs" running state pt-a
check_is "it is the same process" "$init" instance_pid pt-a
check_is "its last good limits are in force" 111 enforced pt-a pids
check "it can be entered" ex pt-a -- true
check_is "the other is managed" running state pt-b
check "and can be stopped and started" sh -c "hostctl stop -F pt-b 2>/dev/null || hostctl stop --force pt-b; hostctl start pt-b"
check "so can the one with the bad file" sh -c "hostctl stop --force pt-a && hostctl start pt-a"
check_is "with its last good limits" 111 enforced pt-a pids
check "hostd.conf's last good text is in force too" sh -c "hostctl info >/dev/null && [ -n '$(hostctl template list -f csv)' ]"
check_is "doctor" degraded doctor configuration
check "the warning names file, line and reason" bash -c "grep -q 'pt-a.conf:2.*last valid text' <<<'$(warning configuration pt-a text)'"
check "one of a file without a good text" bash -c "grep -q 'pt-new.conf:2.*nonsense.*left out' <<<'$(warning configuration pt-new text)'"
check "and of the host's files" sh -c "[ -n '$(warning configuration host text)' ]"
check_not "what was not valid since its deletion is no instance" hostctl show pt-new
check_status "hostd --check-config says the first" 2 'Pt_c|pt-bad.conf:1|hostd.conf:[0-9]+' hostd --check-config --etc-dir "$HOSTD_ETC"
check_status "changes are refused with the reason" 2 'Pt_c|pt-bad|hostd.conf|pt-a' hostctl set pt-b pids=113
check_is "what is wrong is not in history" "$head" config_head
first=$(warning configuration pt-a first_seen)
hostd_stop && hostd_start
check_is "a second start sees the same" "$first" warning configuration pt-a first_seen
check_is "and counts" 2 warning configuration pt-a count

# --- ways out
rm "$HOSTD_ETC/instances.d/Pt_c.conf" # no name of ours: git leaves it alone
check "a rollback puts the good files in place" hostctl config rollback HEAD
check "they are as they were" cmp "$work/a.conf" "$a"
check "the wrong ones are in history" sh -c "git -C $HOSTD_ETC show HEAD~1 | grep -q '^+memory = ;'"
check_is "doctor is content" enforced doctor configuration
check_is "no warning is left" "" warning configuration pt-a text
check "changes are possible again" hostctl set pt-b pids=114

# --- without a text in history an instance is left as it runs
init=$(instance_pid pt-a)
hostd_stop
mv "$HOSTD_ETC/.git" "$work/git"
echo 'garbage' >>"$a"
check "hostd starts" hostd_start
check_is "the instance is unmanaged" unmanaged state pt-a
check_is "it runs on" "$init" sh -c "hostctl show pt-a -f json | jq -r .pid"
check_is "its limits stay in the kernel" 111 enforced pt-a pids
check_is "the other is managed" running state pt-b
check_status "it cannot be started anew" 7 'pt-a.conf' hostctl restart pt-a
cp "$work/a.conf" "$a"
sed -i 's/^pids = .*/pids = 115;/' "$a"
check "corrected and applied" hostctl apply
wait_for 20 is_state pt-a stopped || true
hostctl start pt-a >/dev/null 2>&1
check_is "it is managed" running state pt-a
check_is "with what the file says" 115 enforced pt-a pids
cp "$work/a.conf" "$work/a2.conf"

# --- a repository that git refuses
hostd_stop
rm -rf "$HOSTD_ETC/.git"
echo "no repository" >"$HOSTD_ETC/.git"
check "hostd starts without a history" hostd_start
check_is "doctor" degraded doctor history
check "the warning says why" sh -c "[ -n '$(warning history host text)' ]"
check "changes are made" hostctl set pt-b pids=116
check_is "and in force" 116 enforced pt-b pids
rm "$HOSTD_ETC/.git"
mv "$work/git" "$HOSTD_ETC/.git"
check "with the repository back" hostctl set pt-b description="history is back"
check_is "the change before is in it as well" "set pt-b;set pt-b;" sh -c "git -C $HOSTD_ETC log -2 --format=%s | tr '\n' ';'"
check_is "doctor is content" enforced doctor history
check_is "no warning is left" "" warning history host text
hostctl apply >/dev/null 2>&1
check_is "nothing is pending" "" git -C "$HOSTD_ETC" status --porcelain
rm -f "$work/a.conf"
hostctl delete --force pt-a pt-b >/dev/null 2>&1
check "no leaks" no_leaks
finish
