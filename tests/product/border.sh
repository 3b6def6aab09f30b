#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Names, end to end: an instance resolves and reaches what its policy names, through hostd-resolver and hostd-proxy, and nothing else; and
# what becomes of it when each of the processes dies.
set -u
. "$(dirname "$0")/../lib/product.sh"
. "$lib/internet.sh"
product_begin
libexec=${HOSTD_LIBEXEC:-/usr/local/libexec/hostd}

# finish() by itself knows nothing of these.
end() { internet_remove; upstream_end; finish; }
internet_begin border hostd-resolver hostd-proxy

state_of() { hostctl doctor -f csv -c protection,state | tr -d '\r' | sed -n "s/^$1,//p"; }
helper_pid() { pgrep -x -u "$1" "$1" 2>/dev/null | head -n 1 || true; }
came_anew() { local pid; pid=$(helper_pid "$1"); [ -n "$pid" ] && [ "$pid" != "$2" ]; }

check "hostd-resolver is there" wait_for 10 test "$(state_of resolver)" = enforced
check "hostd-proxy is there" wait_for 10 test "$(state_of proxy)" = enforced
for program in hostd-resolver hostd-proxy; do
        pid=$(helper_pid $program)
        check "$program has no capability, no new rights and a filter" sh -c "grep -q '^CapEff:[[:space:]]*0*\$' /proc/$pid/status && grep -q '^NoNewPrivs:[[:space:]]*1' /proc/$pid/status && grep -q '^Seccomp:[[:space:]]*2' /proc/$pid/status"
done

hostctl policy set pt-names "allow good.example.org tcp 443" "allow plain.good.example.org tcp 80" "allow rebind.example.org" >/dev/null
launch pt-a policies=pt-names >/dev/null || { fail launch pt-a; end; }
check "the template names the resolver" sh -c "hostctl exec pt-a -- cat /etc/resolv.conf | grep -qx 'nameserver 169.254.0.1'"

# --- names
resolves() { question "$@" | grep -q ^NOERROR; }
answers() { [ "$(get "$1" https://good.example.org/)" = good ]; }
wait_for 5 resolves pt-a good.example.org # it listens once its wire is there
check_status "an allowed name is resolved" 0 "^NOERROR $good" question pt-a good.example.org
check_status "and in IPv6" 0 "^NOERROR $good6" question pt-a good.example.org AAAA
check_status "a name that no rule has is refused, and the answer says so" 0 "^REFUSED - .*no rule allows" question pt-a evil.example.org
check_status "and how to ask for it" 0 "^REFUSED - .*hostd-guest ask net evil.example.org --reason" question pt-a evil.example.org
check_status "over TCP, too" 0 "^REFUSED - .*no rule allows" question pt-a evil.example.org A tcp
check_status "whichever name server it asks" 0 "^REFUSED" question pt-a evil.example.org A udp $dns
if [ -x "$libexec/hostd-flow" ]; then
        check "it is an event with its name" wait_for 10 sh -c "hostctl events -f json | jq -es 'any(.[]; .type == \"network-denied\" and .name == \"pt-a\" and .to == \"evil.example.org\" and .by == \"dns\")'"
fi
check_not "and nothing of it reached the name server" grep -q evil.example.org "$work/dnsmasq"
check_status "an address in a private range is no answer" 0 "^(SERVFAIL|REFUSED|NXDOMAIN|NOERROR) *(-|$)" question pt-a rebind.example.org

# --- connections
check_is "an allowed name is reached" good get pt-a https://good.example.org/
check_is "over IPv6, too" good get pt-a -6 https://good.example.org/
check_is "its name sent to another address reaches the real one" good get pt-a --resolve good.example.org:443:$evil https://good.example.org/
check_not "another name sent to its address is not" get pt-a --resolve evil.example.org:443:$good https://evil.example.org/
check_not "an address without a name is not" get pt-a -k https://$evil/
check_is "HTTP by its Host" good get pt-a http://plain.good.example.org/
check_not "and by no other" get pt-a -H "Host: evil.example.org" http://plain.good.example.org/ -f
check_not "the other origin heard of none of it" grep -q '^evil 11\.209\.0\.20 .*11\.209\.0\.1$' "$work/origin"
launch pt-b >/dev/null || fail launch pt-b
check_not "an instance without the policy does not reach it" get pt-b --resolve good.example.org:443:$good https://good.example.org/
check_status "nor its name" 0 "^REFUSED" question pt-b good.example.org

# --- packages and offline
hostctl policy set pt-packages "allow @packages" >/dev/null
check "the template's own clients say what packages are" sh -c "hostctl template show tiny -f json | jq -e '.mirrors == [\"plain.good.example.org:80\"]'"
check "an instance under it" hostctl set pt-b policies=pt-packages
check_status "a mirror is allowed with its port" 0 "allowed by rule 1 of policy pt-packages: plain.good.example.org tcp 80" hostctl policy explain pt-b plain.good.example.org:80
check_status "and no other" 0 "no rule allows it" hostctl policy explain pt-b plain.good.example.org:443
check_status "a policy by itself is none for this question" 2 "name an instance" hostctl policy explain pt-packages plain.good.example.org:80
check_is "it is reached" good get pt-b http://plain.good.example.org/
check_not "other names are not" resolves pt-b good.example.org
check "offline" hostctl set pt-b policies=pt-packages,pt-names offline=true
check_is "leaves mirrors" good get pt-b http://plain.good.example.org/
check_status "and no rule by name" 0 "^REFUSED - .*no rule allows it while the instance is offline" question pt-b good.example.org
check_status "which explain says, too" 0 "while the instance is offline" hostctl policy explain pt-b good.example.org
check "online again" hostctl unset pt-b offline
check_is "the rule by name is back" good get pt-b https://good.example.org/
printf 'good.example.org:443\n' >"$HOSTD_ETC/categories.d/packages.conf"
check "an operator's file goes before the template's list" hostctl apply
check_status "it allows what it lists" 0 "allowed by rule 1 of policy pt-packages: good.example.org tcp 443" hostctl policy explain pt-b good.example.org
check_status "and not what the template says" 0 "no rule allows it" hostctl policy explain pt-packages plain.good.example.org:80
rm "$HOSTD_ETC/categories.d/packages.conf"
check "without it" hostctl apply
check_status "the list is the template's again" 0 "policy pt-packages: plain.good.example.org tcp 80" hostctl policy explain pt-b plain.good.example.org:80
hostctl set pt-b policies= >/dev/null

# --- changes are in force with the answer
check "a name is taken away" hostctl policy set pt-names "allow plain.good.example.org tcp 80"
check_not "and the next connection is refused" get pt-a --resolve good.example.org:443:$good https://good.example.org/
check_status "and the next question" 0 "^REFUSED" question pt-a good.example.org
check "a name is given" hostctl policy set pt-names "allow good.example.org" "allow plain.good.example.org tcp 80"
check_is "and is reached" good get pt-a https://good.example.org/

# --- death closes, and comes back. hostd stands still meanwhile: it would have another one there within a tenth of a second.
# Under systemd it is systemd that brings a helper back, in 0.2 s.
hold() { if systemd_is_up; then systemctl stop "$1.socket" "$1.service"; else kill -STOP "$(hostd_pid)"; fi; } # HELPER
go_on() { if systemd_is_up; then systemctl start "$1.socket"; else kill -CONT "$(hostd_pid)"; fi; }
pid=$(helper_pid hostd-resolver)
inside pt-a true
hold hostd-resolver
kill -9 "$pid" 2>/dev/null || systemd_is_up
check_status "without the resolver nothing is answered" 0 "^(no answer|refused)" question pt-a evil.example.org
check_not "and no name is reached" get pt-a https://good.example.org/
go_on hostd-resolver
check "it comes back" wait_for 15 came_anew hostd-resolver "$pid"
check "and answers" wait_for 15 answers pt-a
pid=$(helper_pid hostd-proxy)
hold hostd-proxy
kill -9 "$pid" 2>/dev/null || systemd_is_up
check_not "without the proxy nothing is reached" get pt-a --resolve good.example.org:443:$good https://good.example.org/
check_not "and nothing that is not allowed" get pt-a -k https://$evil/
go_on hostd-proxy
check "it comes back" wait_for 15 came_anew hostd-proxy "$pid"
check "and connects" wait_for 15 answers pt-a
if [ -x "$libexec/hostd-flow" ]; then
        pid=$(helper_pid hostd-flow)
        kill -9 "$pid"
        check_is "without hostd-flow all goes on" good get pt-a https://good.example.org/
        check "it comes back, too" wait_for 15 came_anew hostd-flow "$pid"
fi

# --- one that hangs: the answer waits for it, not for ever, and what is led to it is refused until it has what changed, whatever addresses are
# allowed behind the names
evil_by_name() { get pt-a -f --resolve evil.example.org:443:$evil https://evil.example.org/; }
check "any address is allowed behind a denied name" hostctl policy set pt-names "deny nothing.example.org" "allow 0.0.0.0/0"
before=$failed
check_is "another name is reached" evil evil_by_name
[ $failed = $before ] || hostctl flows pt-a --limit 4 # what the proxy says of it
proxy=$(helper_pid hostd-proxy)
kill -STOP "$proxy"
begin=$(now_ms)
check "a name is denied while the proxy hangs" hostctl policy set pt-names "deny evil.example.org" "deny nothing.example.org" "allow 0.0.0.0/0"
took=$(($(now_ms) - begin))
if [ $took -ge 1900 ] && [ $took -lt $((5000 * slow)) ]; then ok "the answer waits 2 s for it ($took ms)"; else fail "the answer waits" "$took ms"; fi
check "with a warning that names it" sh -c "hostctl warning list | grep -q '^hostd-proxy '"
check_not "its connections are closed, to the name" evil_by_name
check_not "and to its address" get pt-a -k https://$evil/
check_not "and to others" get pt-a --resolve good.example.org:443:$good https://good.example.org/
kill -CONT "$proxy"
before=$failed
check "it goes on where it was" wait_for 15 answers pt-a
[ $failed = $before ] || { get pt-a -v https://good.example.org/; hostctl flows pt-a --limit 6; hostctl doctor | grep -i proxy; hostctl warning list; }
check_not "with the name denied" evil_by_name
check "the names are as before" hostctl policy set pt-names "allow good.example.org" "allow plain.good.example.org tcp 80" "allow other.example.org"
check "without the warning" wait_for 10 sh -c "! hostctl warning list | grep -q '^hostd-proxy '"
resolver=$(helper_pid hostd-resolver) proxy=$(helper_pid hostd-proxy)
hostd_kill
check_is "without hostd both go on" good get pt-a https://good.example.org/
check_status "with what they have" 0 "^REFUSED" question pt-a evil.example.org
check "hostd comes back" hostd_start
check_is "and takes the same ones" "$resolver $proxy" sh -c "echo \$(pgrep -x -u hostd-resolver hostd-resolver) \$(pgrep -x -u hostd-proxy hostd-proxy)"
check "both have its policies" wait_for 10 sh -c "[ \"\$(hostctl doctor -f csv -c protection,state | tr -d '\r' | grep -cE '^(resolver|proxy),enforced\$')\" = 2 ]"
check "a change reaches them" hostctl policy set pt-names "allow plain.good.example.org tcp 80"
check_status "at once" 0 "^REFUSED" question pt-a good.example.org

# --- a stop and a start have new wires
hostctl policy set pt-names "allow good.example.org" >/dev/null
check "an instance starts again" hostctl restart --force pt-a
check "and reaches what it may" wait_for 10 answers pt-a
check "deletion leaves nothing" hostctl delete --force pt-a pt-b
check_is "no leaks" "" no_leaks
end
