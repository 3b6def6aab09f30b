#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Ask, approve, deny: an instance asks for what it is denied, an operator says yes for a time or no, and a grant ends by itself, with its
# connections, whether a hostd runs or not.
set -u
. "$(dirname "$0")/../lib/product.sh"
. "$lib/internet.sh"
product_begin
libexec=${HOSTD_LIBEXEC:-/usr/local/libexec/hostd}
end() { internet_remove; upstream_end; finish; }
internet_begin ask hostd-resolver hostd-proxy

hostctl policy set pt-ask "allow other.example.org" >/dev/null
launch pt-a policies=pt-ask >/dev/null || { fail launch pt-a; end; }
ask() { ex pt-a -- /run/hostd/hostd-guest ask "$@"; }
asked() { ask net "$@" | sed -n 's/^request \([0-9]*\) .*/\1/p'; } # its number
approval() { hostctl approvals pt-a --all -f csv -c id,state,to | tr -d '\r' | grep "^$1,"; }
is_approval() { approval "$1" | grep -q "^$1,$2,"; } # NUMBER STATE
answers() { [ "$(get pt-a https://good.example.org/)" = good ]; }
event() { hostctl events -f json | jq -es "any(.[]; .type == \"$1\" and .name == \"pt-a\" and .id == $2)"; } # TYPE NUMBER

# --- asking
check "people inside find the program to ask with" wait_for 20 ex pt-a -- test -x /run/hostd/hostd-guest -a -S /run/hostd/ask.sock
check_not "a name that no rule has is not reached" get pt-a https://good.example.org/
check_status "a request without a reason is none" 2 "say why" ask net good.example.org
n=$(asked good.example.org --reason "to read the page")
check_is "a request waits" "$n,pending,good.example.org" approval "$n"
check_is "asked again it is the same" "$n" asked good.example.org:443 --reason "once more"
check_status "an operator sees it" 0 "^$n +pt-a +pending +good.example.org +tcp +443 .*to read the page" hostctl approvals
check "it is an event" event approval-asked "$n"
check "and in the audit log" sh -c "hostctl audit query --target pt-a -f json | jq -e '[.. | objects | select(.method? == \"io.hostd.Approval.Ask\" and .detail.reason == \"to read the page\")] | length > 0'"
check_not "which opens nothing" get pt-a https://good.example.org/
check "it is there after a crash of hostd" hostd_crash
check "waiting" is_approval "$n" pending
check_status "what may not be granted is refused at once" 1 "too wide" ask net '*.com' --reason x
check_status "and so is what is allowed already" 1 "allowed by rule 1 of policy pt-ask" ask net other.example.org --reason x

# --- a yes, for a time
ask net good.example.org --reason "once more" --wait 30 >"$work/asker" 2>&1 &
asker=$!
sleep 1
check "it is approved" hostctl approve "$n" --for 20s
began=$(now_ms)
check_is "and reached with the answer" good get pt-a https://good.example.org/
wait $asker
check_is "who waits is told" 0 sh -c "grep -q 'request $n is approved until' '$work/asker'; echo \$?"
check_status "explain names the grant" 0 "allowed by grant $n until 2" hostctl policy explain pt-a good.example.org
check_status "what the policy says goes on" 0 "allowed by rule 1 of policy pt-ask" hostctl policy explain pt-a other.example.org
check_status "another name is as closed as before" 0 "no rule allows" hostctl policy explain pt-a evil.example.org
if [ -x "$libexec/hostd-flow" ]; then
        check "the evidence names it" wait_for 10 sh -c "hostctl flows pt-a -f json | grep -q '\"grant-$n\"'"
fi
check "it survives a crash of hostd" hostd_crash
check_is "and is in force after it" good get pt-a https://good.example.org/
check "it ends by itself" wait_for 25 is_approval "$n" ended
took=$(($(now_ms) - began))
if [ $took -ge 18000 ]; then ok "at its time ($took ms)"; else fail "at its time" "$took ms"; fi
check_not "and with it the way" get pt-a https://good.example.org/
check "which is an event" event approval-ended "$n"

# --- by address, with its connection, while no hostd is there
cat >"$work/talk.py" <<'P'
import socket, sys, time
s = socket.create_connection((sys.argv[1], 80), float(sys.argv[2]))
s.settimeout(float(sys.argv[2]))
print("up", flush=True)
try:
    while True:
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        if not s.recv(4096):
            break
        time.sleep(0.1)
except OSError:
    pass
print("cut", time.time(), flush=True)
P
talk() { inside pt-a timeout 60 python3 "$work/talk.py" $evil $((slow > 1 ? 20 : 5)) >"$work/talk" 2>&1 & }
n=$(asked $evil:80 --reason "by address")
brief=$((slow > 1 ? 40 : 6)) # until the first connection is there
check "an address is approved" hostctl approve "$n" --for ${brief}s
until=$(($(date +%s) + brief))
inside pt-a true
talk
check "it is reached" wait_for 5 grep -q up "$work/talk"
hostd_kill || fail kill hostd
check "without hostd its connection is cut" wait_for $((slow > 1 ? brief + 15 : 15)) grep -q cut "$work/talk"
at=$(sed -n 's/^cut \([0-9]*\).*/\1/p' "$work/talk")
if [ "${at:-0}" -ge $((until - 1)) ] && [ "${at:-0}" -le $((until + 3 * slow)) ]; then ok "at its time"; else fail "at its time" "$at, not $until"; fi
check_not "and nothing new is let through" inside pt-a curl -s -m 3 -o /dev/null http://$evil/
check "hostd comes back" hostd_start
check "and knows that it has ended" wait_for 5 is_approval "$n" ended

# --- a no, and a yes taken back
n=$(asked $evil:80 --reason "once more")
(ask net $evil:80 --reason "once more" --wait 30; echo "status $?") >"$work/asker" 2>&1 &
asker=$!
sleep 1
check "it is denied" hostctl deny "$n" --reason "not today"
wait $asker
check_is "who waits is told why" "1 1" sh -c "echo \$(grep -c 'request $n is denied: not today' '$work/asker') \$(grep -c '^status 1' '$work/asker')"
check_not "a no is final" hostctl deny "$n"
n=$(asked $evil:80 --reason "please")
check "another request is approved" hostctl approve "$n" --for 1h
talk
check "it is reached" wait_for 5 grep -q up "$work/talk"
check "the grant is taken back" hostctl deny "$n"
check "and its connection is cut" wait_for 3 grep -q cut "$work/talk"
check_not "with the way" inside pt-a curl -s -m 3 -o /dev/null http://$evil/

# --- what is closed by default
n=$(asked 10.1.2.3:22 --reason "the database")
check_status "a private address is not approved by the way" 1 "approve $n --to 10.1.2.3" sh -c "hostctl approve $n 2>&1; [ \$? != 0 ] && exit 1"
check_not "nor by another's name" hostctl approve "$n" --to 10.1.2.4
check "but by its own" hostctl approve "$n" --to 10.1.2.3 --for 60s
check_status "which says so" 0 "allowed by grant $n" hostctl policy explain pt-a 10.1.2.3:22
check_status "and opens no more" 0 "no rule allows" hostctl policy explain pt-a 10.1.2.4:22

# --- offline means offline
n=$(asked good.example.org --reason "once more")
check "a grant" hostctl approve "$n" --for 1h
check_is "is in force" good get pt-a https://good.example.org/
check "an instance is put offline" hostctl set pt-a offline=true
check_not "and the grant is not any more" get pt-a https://good.example.org/
check_status "nor can there be another" 0 "pt-a is offline" sh -c "hostctl approve $n 2>&1; [ \$? != 0 ]"
check "it is back" hostctl set pt-a offline=false
check_is "with its grant" good get pt-a https://good.example.org/

# --- bounds
for i in $(seq 30); do ask net "h$i.example.org" --reason x; done >"$work/many" 2>&1
check "who asks too often is told to wait" grep -q "too many requests" "$work/many"
pending=$(hostctl approvals pt-a -f csv -c id | tail -n +2 | wc -l)
if [ "$pending" -le 16 ]; then ok "$pending requests wait at most"; else fail "too many requests wait" "$pending"; fi
check "an instance is deleted" hostctl delete --force pt-a
check_is "with all it asked for" 0 sh -c "hostctl approvals --all -f csv -c name | grep -c '^pt-a' || true"
check_is "no leaks" "" no_leaks
end
