#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Bad input on every command: exit status 2, the field named, nothing changed. Then the socket itself: frames, descriptors, access.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
wire="$(dirname "$0")/wire.py"
launch pt-a >/dev/null || { fail launch pt-a; finish; }
hostctl policy set pt-p "allow 198.51.100.0/24" >/dev/null
sleep 0.3
marks() { # what must not change
        config_head
        find "$HOSTD_ETC" "$HOSTD_STATE/instances" "$HOSTD_STATE/templates" -maxdepth 2 ! -path '*/.git*' ! -name console.log 2>/dev/null | sort | sha256sum
        cat "$HOSTD_ETC"/instances.d/*.conf "$HOSTD_ETC"/policies.d/*.conf 2>/dev/null | sha256sum
        hostctl list -f csv -c name,state,memory,disk,template,labels,policies
}
before=$(marks)
wrong=0 tried=0
# refuse FIELD COMMAND...: status 2 (3 where the word is a good one for something that is not there is not accepted here)
refuse() {
        local field=$1 status
        shift
        tried=$((tried + 1))
        within 10 hostctl "$@" >"$work/out" 2>&1 </dev/null
        status=$?
        [ "$1" = exec ] || [ "$1" = shell ] && [ $status = 125 ] && status=2
        if [ $status -ne 2 ] || ! grep -qaiE -- "$field" "$work/out"; then
                wrong=$((wrong + 1))
                note "hostctl $(printf '%q ' "$@" | cut -c1-120): status $status: $(head -n 1 "$work/out" | cut -c1-160)"
        fi
        [ "$(wc -l <"$work/out")" -le 3 ] || { wrong=$((wrong + 1)); note "hostctl $1: more than a sentence"; }
}
group() { # NAME: closes a group of refusals
        if [ $wrong = 0 ]; then ok "$1: $tried refused with status 2 and the field"; else fail "$1" "$wrong of $tried are wrong"; fi
        wrong=0 tried=0
        if [ "$(marks)" = "$before" ]; then ok "$1: nothing changed"; else fail "$1" "something changed: $(diff <(echo "$before") <(marks) | head -n 4 | tr '\n' ';')"; before=$(marks); fi
}
names=(A Ab a_b a.b 1a -a a/b ../a .. . /etc/passwd "a b" "" a\"b "a'b" 'a;b' 'a$(id)' 'a{b}' 'a#b' 'a\b' "$(printf 'a\nb')" "$(printf 'a\rb')" "$(printf 'a\tb')" "$(printf 'a\033[1m')" "$(printf 'a\xff')" "$(printf 'a\xc0\xaf')" é "$(printf 'a%.0s' $(seq 33))" "$(printf 'a%.0s' $(seq 5000))")

# --- names, everywhere a name goes
for n in "${names[@]}"; do
        for c in "create tiny" "launch tiny" start stop restart pause resume delete rebuild show log; do refuse 'name' $c -- "$n"; done
        refuse name set -- "$n" pids=100
        refuse name unset -- "$n" pids
        refuse name label -- "$n" a=b
        refuse name exec -- "$n" true
        refuse name console -- "$n"
        refuse name network show -- "$n"
        refuse name policy explain -- "$n" 1.2.3.4
        refuse 'name|place|NAME:PATH' file list -- "$n:/etc"
        refuse policy policy show -- "$n"
        refuse policy policy set -- "$n" "allow 1.2.3.4"
        refuse policy policy delete -- "$n"
        refuse 'template' create -- "$n" pt-new
        refuse 'template' template show -- "$n"
        refuse 'template' template delete -- "$n"
        refuse 'recipe' template build -- "$n"
        refuse 'name' template import -- "$n" /nonexistent
        refuse 'name|prefix' carve --count 1 --template tiny --prefix="$n" --yes
done
group "names"
# --- digests
for d in 0 "$(printf '0%.0s' $(seq 63))" "$(printf '0%.0s' $(seq 65))" "$(printf 'A%.0s' $(seq 64))" "$(printf 'g%.0s' $(seq 64))" "../$(printf '0%.0s' $(seq 61))" "$(printf '0%.0s' $(seq 63))/"; do
        refuse template create -- "$d" pt-new
        refuse template rebuild --template="$d" pt-a
        refuse template template show -- "$d"
        refuse template template delete -- "$d"
        refuse template set pt-a template="$d"
done
group "digests"
# --- texts
for t in "$(printf 'a\nb')" "$(printf 'a\rb')" "$(printf '\033[2J')" "$(printf 'a\xffb')" "$(printf '\xed\xa0\x80')" "$(printf '\xf4\x90\x80\x80')" "$(printf '\xc2\x85')" "$(head -c 1100 /dev/zero | tr '\0' x)"; do
        refuse description create tiny pt-new --description="$t"
        refuse description set pt-a description="$t"
        refuse description policy set pt-p --description="$t" "allow 1.2.3.4"
        refuse 'label|x' label pt-a x="$t"
        refuse 'rules?' policy set pt-p "$t"
        refuse 'polic' set pt-a policies="$t"
        refuse 'user' file list --user="$t" pt-a:/
        [ ${#t} -gt 1000 ] || refuse 'path|place' file list "pt-a:/$t"
        refuse 'host' policy explain pt-a "$t"
        [ ${#t} -gt 1000 ] || refuse 'cwd' exec --cwd="/$t" pt-a -- true
        refuse 'user' exec --user="$t" pt-a -- true
done
group "texts"
# What an instance's label, environment and command may hold is more, but never more than is said.
for t in 'a"b' 'a\b' "a'b"; do refuse 'label|x' label pt-a x="$t"; done
for k in A 1a -a 'a b' 'a"' "$(printf 'a\nb')" "$(printf 'a%.0s' $(seq 70))" ""; do refuse 'label|KEY|key' label pt-a "$k=v"; done
for e in 1A=b 'A B=c' =x "$(printf 'A\nB=c')" A-B=c "$(printf 'A\xff=c')"; do refuse 'env' exec --env="$e" pt-a -- true; done
group "labels and environment"
# --- paths
for p in relative .. /.. /../etc/passwd /a/../b /a/.. /a//b //a /./a "/$(printf 'a%.0s' $(seq 4200))"; do
        for u in root agent; do
                refuse 'path|place' file list -u $u "pt-a:$p"
                refuse 'path|place' file pull -u $u "pt-a:$p" "$work/never"
                refuse 'path|place' file rm -u $u "pt-a:$p"
                refuse 'path|place' file push -u $u /etc/hostname "pt-a:$p"
        done
        refuse cwd exec --cwd="$p" pt-a -- true
done
group "paths"
check_not "no file was pulled" test -e "$work/never"
# --- settings
for k in nonsense PIDS pids.max "pids " environment.X lxc.raw raw.lxc security.privileged privileged hooks; do
        refuse "${k%% *}|setting|key" set pt-a "$k=1"
        refuse "${k%% *}|setting|key" create tiny pt-new -s "$k=1"
        refuse "${k%% *}|setting|key" unset pt-a "$k"
done
for kv in pids=x pids=-5 pids= memory=5XB memory=1e9 memory=-1 cpu=x cpu_pin=a cpu_pin=0-99999 boot=maybe read_only=perhaps stop_timeout=never policies=Bad upload=fast preset=huge inodes=1 cpu_weight=0 open_files=1 disk=0; do
        refuse "${kv%%=*}" set pt-a "$kv"
        refuse "${kv%%=*}" launch tiny pt-new -s "$kv"
        refuse "${kv%%=*}|polic" create tiny pt-new -s memory=64MiB -s "$kv"
done
group "settings"
# --- words
refuse 'unknown|option' list --nonsense
refuse 'command|unknown' nonsense
refuse 'format' list -f xml
refuse 'column' list -c nonsense
refuse 'timeout' stop --timeout=soon pt-a
refuse 'timeout' exec --timeout=-1 pt-a -- true
refuse 'mode' file push --mode=99999 /etc/hostname pt-a:/tmp/x
refuse 'mode' file push --mode=rwx /etc/hostname pt-a:/tmp/x
refuse 'lines' log -n 0 pt-a
refuse 'lines' audit tail -n -1
refuse 'result.*nonsense.*one of ok, .*Denied' audit query --result nonsense
refuse 'result' audit query --result denied
refuse 'method.*io.hostd.Instance.Start' audit query --method start
refuse 'since' audit query --since=yesterday
refuse 'host' policy explain pt-a 1.2.3.4:65536
refuse 'protocol' policy explain pt-a 1.2.3.4 --protocol gre
refuse 'max' config log -n x
refuse 'signal' command signal abc 65
refuse 'signal' command signal abc SIGNONSENSE
refuse 'count' carve --count=1000 --yes
group "words"

# --- the socket
if ! getent group hostd-view >/dev/null || ! getent group hostd >/dev/null; then
        skip "access levels" "the groups hostd and hostd-view do not exist"
fi
HOSTD_GID=$(getent group hostd | cut -d: -f3) VIEW_GID=$(getent group hostd-view | cut -d: -f3) ADMIN_GID=$(getent group hostd-admin | cut -d: -f3)
cp "$wire" "$work/wire.py"
chmod 0644 "$work/wire.py"
as() { setpriv --reuid 65534 --regid 65534 --groups "$1" --inh-caps=-all -- timeout 60 python3 "$work/wire.py" "$2"; }
lines() { # turns wire.py's lines into ours
        local word rest
        while read -r word rest; do
                case $word in ok) ok "$rest" ;; FAIL) fail "${rest%%: *}" "${rest#*: }" ;; *) note "$word $rest" ;; esac
        done
}
lines < <(timeout 100 python3 "$work/wire.py" frames 2>&1)
[ -n "$VIEW_GID" ] && lines < <(as "$VIEW_GID" view 2>&1)
[ -n "$HOSTD_GID" ] && lines < <(as "$HOSTD_GID" operate 2>&1)
[ -n "$ADMIN_GID" ] && lines < <(as "$ADMIN_GID" admin 2>&1)
lines < <(as 65534 none 2>&1)
check "hostd lives" hostd_answers
if [ "$(marks)" = "$before" ]; then ok "the socket: nothing changed"; else fail "the socket" "something changed: $(diff <(echo "$before") <(marks) | head -n 4 | tr '\n' ';')"; fi
check "a refused call is in the audit log with its caller" sh -c "hostctl audit query --user nobody -f json | jq -e '[.records[] | select(.result == \"Denied\")] | length > 0'"
# hostd-proxy asks hostd-resolver by the one, both write to hostd-flow by the other: their groups', and nobody else's.
check "no socket of the border is open to all" sh -c "[ -z \"\$(find $HOSTD_RUN -xdev -type s -perm /007 ! -name hostd.sock)\" ]"
check "no file of hostd's is open to others" sh -c "[ -z \"\$(find $HOSTD_STATE $HOSTD_RUN -xdev ! -type l -perm /022 ! -name hostd.sock ! -name resolve.sock ! -name flow-records.sock ! -path '*/instances/*/data/*' ! -path '*/upper/*' 2>/dev/null | head -n 3)\" ]"
check_is "nobody may look into its state" 1 sh -c "setpriv --reuid 65534 --regid 65534 --clear-groups ls $HOSTD_STATE >/dev/null 2>&1 || echo 1"
check "hostd has nothing open in /tmp" sh -c "! ls -l /proc/$(hostd_pid)/fd | grep -E ' (/var)?/tmp/'"
hostctl delete --force pt-a >/dev/null
hostctl policy delete pt-p >/dev/null
check "no leaks at the end" no_leaks
finish
