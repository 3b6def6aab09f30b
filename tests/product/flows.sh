#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The evidence as an operator and as somebody inside meet it: flows, why, events, /run/hostd/denied; through a restart of hostd and a death of
# hostd-flow.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
if ! getent passwd hostd-flow >/dev/null; then skip flows "there is no user hostd-flow"; finish; fi
trap 'origins_remove; finish' EXIT
origins_make || { skip flows "the origins cannot be made here"; trap finish EXIT; finish; }

fetch() { within 6 hostctl exec "$1" -- sh -c "(printf 'GET / HTTP/1.0\r\n\r\n'; sleep 0.3) | timeout 3 nc $2 8080 | tail -n 1"; } # NAME ADDRESS
knock() { within 6 hostctl exec pt-f -- sh -c "timeout 2 nc $origin_allowed $1 </dev/null" >/dev/null 2>&1; true; } # PORT
flows() { within 20 hostctl flows "$@" -f json; }
# how many flows of pt-f are as the jq expression says
count() { flows pt-f "${@:2}" | jq "[.flows[] | select($1)] | length"; }
is_there() { [ "$(count "$@")" -gt 0 ]; }

launch pt-f >/dev/null || { fail launch pt-f; origins_remove; finish; }
hostctl policy set pt-flows "deny $origin_denied/32" "allow $origin_allowed/32 tcp 8080" >/dev/null
check "policies=pt-flows" hostctl set pt-f policies=pt-flows
wait_for 20 hostctl flows pt-f # hostd-flow may still be starting

# --- denied
fetch pt-f $origin_denied >/dev/null 2>&1
knock 9001
check "a denial by a rule is there, with policy and rule" wait_for 10 is_there \
        ".verdict == \"deny\" and .kind == \"kernel\" and .address == \"$origin_denied\" and .port == 8080 and .policy == \"pt-flows\" and .rule == 1"
check "a denial by default, too" wait_for 10 is_there '.port == 9001 and .protocol == "tcp" and .rule == null and .reason == "denied: no rule allows it"' --denied
check_is "--denied shows nothing else" 0 count '.verdict != "deny"' --denied
check_is "nor does --kind" 0 count '.kind != "kernel"' --kind kernel
check "--since takes a time of day" test "$(count true --since "$(date -d '-2 min' +%H:%M)")" -gt 0
check "and one of a date, as it is shown" test "$(count true --since "$(date -u -d '-2 min' +%FT%TZ)")" -gt 0
check_status "but none that is still to come" 2 "still to come" hostctl flows pt-f --since "$(date -d '+1 day' +%F)"
check_is "--limit" 1 count true --limit 1
check_status "the table" 0 "deny +kernel +$origin_denied:8080 +tcp .* pt-flows rule 1 +denied by rule 1 of policy pt-flows" hostctl flows pt-f
check_status "why: which rule" 0 "kernel +$origin_denied:8080 +tcp +denied by rule 1 of policy pt-flows: $origin_denied/32 any +- +allow $origin_denied/32 tcp 8080" hostctl why pt-f
check_status "why: what to type" 0 "hostctl set pt-f policies=pt-f-more,pt-flows" hostctl why pt-f
check "an event" sh -c "hostctl events -f json | jq -es 'any(.[]; .type == \"network-denied\" and .name == \"pt-f\")'"
check "the file inside" wait_for 10 sh -c "hostctl exec pt-f -u agent -- grep -q 'kernel $origin_denied port 8080: denied by rule 1 of policy pt-flows' /run/hostd/denied"

# --- what why says is true
rule=$(hostctl why pt-f -f json | jq -r "[.[] | select(.address == \"$origin_denied\")][0].allow")
hostctl policy set pt-f-more "$rule" >/dev/null
check "its command is accepted" hostctl set pt-f policies=pt-f-more,pt-flows
check_is "and allows it" "origin denied" fetch pt-f $origin_denied

# --- allowed
check_is "an allowed connection" "origin allowed" fetch pt-f $origin_allowed
mark=$(printf '0x%x/0xffff0000' $(($(slot pt-f) << 16)))
if command -v conntrack >/dev/null; then
        wait_for 10 sh -c "conntrack -L -m $mark 2>/dev/null | grep -q 'dst=$origin_allowed '"
        conntrack -D -m "$mark" >/dev/null 2>&1 # or the kernel remembers it for two minutes
        check "is there when the kernel forgets it, with its bytes and its rule" wait_for 10 is_there \
                ".verdict == \"allow\" and .address == \"$origin_allowed\" and .policy == \"pt-flows\" and .rule == 2 and .sent > 100 and .received > 100"
else
        skip "the end of a connection" "no conntrack"
fi

# --- restarts
before=$(count true)
hostd_crash || fail "restart" "hostd does not come back"
check "a new hostd asks the same hostd-flow" wait_for 20 is_there true
[ "$(count true)" -ge "$before" ] && ok "nothing is lost with hostd" || fail "restart" "$before flows before, $(count true) now"
pid=$(pgrep -u hostd-flow -x hostd-flow -o)
kill -9 "$pid"
check "a hostd-flow that died is started again" wait_for 30 sh -c "hostctl flows pt-f >/dev/null"
check "without rights" sh -c "p=\$(pgrep -u hostd-flow -x hostd-flow -o); grep -qx 'CapPrm:	0000000000000000' /proc/\$p/status && grep -qx 'Seccomp:	2' /proc/\$p/status"
knocked() { knock 9002; is_there '.port == 9002'; }
check "and records on" wait_for 20 knocked

# --- who asks
check_status "an instance that never was" 3 "nothing was ever recorded" hostctl flows pt-never
within 60 hostctl delete --force pt-f >/dev/null 2>&1
check "the evidence outlives its instance" is_there "true"
origins_remove
finish
