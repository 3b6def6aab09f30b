#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The network of sandboxes, end to end: what their own policies and their instance's both allow is reached by the first command, and nothing else; live
# changes, cuts, hostile guests, a hostd that dies; nothing of it is left by any end.
set -u
. "$(dirname "$0")/../lib/product.sh"
. "$lib/internet.sh"
. "$lib/sandbox.sh"
product_begin
command -v bwrap >/dev/null || { skip "networks of sandboxes" "bubblewrap is not installed here"; finish; }

end() {
        hostctl delete --force pt-n >/dev/null 2>&1 # before its template and its policies
        within 20 hostctl template delete pt-box >/dev/null 2>&1
        internet_remove
        upstream_end
        finish
}
internet_begin "networks of sandboxes" hostd-resolver hostd-proxy
check "a template with bwrap" box_import
hostctl policy set pt-wide "allow good.example.org tcp 443" "allow plain.good.example.org tcp 80" "allow $good/32 tcp 8000-8100" >/dev/null
hostctl policy set pt-web "allow good.example.org tcp 443" >/dev/null
hostctl policy set pt-more "allow good.example.org tcp 443" "allow evil.example.org" "allow $evil/32" "allow 0.0.0.0/0 tcp 7000" >/dev/null
launch_from pt-box pt-n memory=512MiB pids=512 policies=pt-wide >/dev/null || { fail launch pt-n; end; }

count() { hostctl sandbox list pt-n -f json | jq '[.sandboxes[] | select(.state != "ended")] | length'; }
# Its process 1, as the host sees it: bubblewrap outside of it is in its group as well.
first_pid() {
        local p
        for p in $(cat $(cgroup_dirs | grep -E "/sandboxes/$1(/main)?\$" | sed 's,$,/cgroup.procs,') 2>/dev/null | sort -un); do
                [ "$(awk '/^NSpid:/ { print $NF }' "/proc/$p/status")" = 1 ] && echo "$p" && return
        done
}
# The id of a new one, which inside() knows, too.
make() {
        local id
        id=$(sb create pt-n "$@") || return 1
        first_pid "$id" >"$work/pid-$id"
        echo "$id"
}
wire() { ip -o route get "$1" | grep -o 'dev hvs[0-9a-fx]*' | cut -d' ' -f2; } # ADDRESS: the host's interface to it
nothing_of() { # INTERFACE: what the kernel has of it, in words
        ip -o link show "$1" 2>/dev/null
        { ip rule; ip -6 rule; } | grep -w "$1"
        nft list ruleset | grep -wF "$1"
}
is_gone() { [ -z "$(nothing_of "$1")" ]; }
resolves() { question "$@" | grep -q ^NOERROR; }
# As a program in it does, with what is in it: the template's wget cannot look up names. ID [ADDRESS HOST]
fetch() { in_box "$1" -- sh -c "(printf 'GET / HTTP/1.0\r\nHost: ${3:-plain.good.example.org}\r\n\r\n'; sleep 0.3) | nc -w 5 ${2:-$good} 80 | tail -n 1"; }
reaches() { [ "$(get "$1" -m 4 "$2" 2>/dev/null)" = good ]; } # ID URL
https=https://good.example.org/ http=http://plain.good.example.org/

# --- refused, and nothing changed
check_status "a policy that is not there" 3 'network names "pt-absent".*no policy of that name' sb create pt-n --network pt-web,pt-absent
check_status "a name that cannot be one" 2 'network.*lower-case' sb create pt-n --network 'pt-web,No'
check_status "a word among policies" 2 'network.*stands alone' sb create pt-n --network pt-web,instance
check_status "no name at all" 2 'network' sb create pt-n --network ,
check_is "none of them made one" 0 count
check_is "nor a chain" "" sh -c "nft list ruleset | grep 'i0[89a-f]..'"

# --- its instance's
own=$(make --network instance) || { fail "a sandbox with its instance's network" "$(sb create pt-n --network instance 2>&1)"; end; }
check_status "its first command resolves names" 0 "Address.*$good" in_box "$own" -- nslookup plain.good.example.org
check_is "and reaches what its instance may" good fetch "$own"
check_is "over TLS, by its name" good get "$own" $https
check "it has a chain" sh -c "nft list ruleset | grep -q 'i0[89a-f]..'"
check_is "which network it has is told" instance shown "$own" network
address=$(shown "$own" address) address6=$(shown "$own" address6)
check_is "and its address" "$address" sh -c "hostctl sandbox exec $own -- ip -o -4 addr show eth0 | grep -o '[0-9.]*/32' | cut -d/ -f1"
check_status "the list says it" 0 "$own.*instance" hostctl sandbox list pt-n
check_status "names that are denied are refused, with the reason" 0 "^REFUSED - .*no rule allows" question "$own" evil.example.org
t=$(now_ms)
check_status "for a program in it, too" 1 "REFUSED" in_box "$own" -- nslookup evil.example.org
check "at once: $(($(now_ms) - t)) ms" test $(($(now_ms) - t)) -lt $((3000 * slow))
t=$(now_ms)
check_status "and so are addresses" 1 "Connection refused" in_box "$own" -- nc -w 20 $evil 7001
check "in $(($(now_ms) - t)) ms" test $(($(now_ms) - t)) -lt $((3000 * slow))
if [ -x "${HOSTD_LIBEXEC:-/usr/local/libexec/hostd}/hostd-flow" ]; then
        check "an event has its id" wait_for 10 sh -c "hostctl events -f json | jq -es 'any(.[]; .type == \"network-denied\" and .name == \"pt-n\" and .to == \"evil.example.org\" and .sandbox == \"$own\")'"
        check "why has it" wait_for 10 sh -c "hostctl why pt-n -f json | jq -e 'any(.[]; .name == \"evil.example.org\" and .sandbox == \"$own\")'"
        check "flows have it, for what was reached, too" wait_for 10 sh -c "hostctl flows pt-n -f json | jq -e 'any(.flows[]; .verdict == \"allow\" and .sandbox == \"$own\" and .name == \"good.example.org\")'"
else
        skip "denials of sandboxes" "hostd-flow is not installed"
fi

# --- policies of its own, within its instance's
web=$(make --network pt-web) more=$(make --network pt-more,pt-web)
check_is "a policy of its own" good get "$web" $https
check_not "allows no more than it says" reaches "$web" $http
check_status "nor does it resolve it" 0 "^REFUSED - .*no rule allows" question "$web" plain.good.example.org
check_is "its instance may" good get "$own" $http
check_is "one that allows more" good get "$more" $https
check_status "allows no more than the instance's: names" 0 "^REFUSED - .*no rule of its instance allows" question "$more" evil.example.org
check_not "connections by name" get "$more" -k --resolve evil.example.org:443:$evil https://evil.example.org/
check_not "addresses" get "$more" -m 4 -f http://$evil/
check_not "the other origin heard of none of it" grep -q '^evil 11\.209\.0\.20 .*11\.209\.0\.1$' "$work/origin"
check_is "what it has is told" pt-more,pt-web shown "$more" network

# --- neighbours: who listens is reached from where it is, and from no sandbox, though a policy names the port
serve='while :; do echo hello | nc -l -p 7000; done'
talk() { in_box "$1" -- sh -c "nc -w 2 $2 7000 </dev/null"; } # ID ADDRESS
hostctl policy set pt-wide "allow good.example.org tcp 443" "allow plain.good.example.org tcp 80" "allow $good/32 tcp 8000-8100" "allow 0.0.0.0/0 tcp 7000" >/dev/null
hostctl sandbox exec "$own" -- sh -c "$serve" >/dev/null 2>&1 &
servers=$!
hostctl exec pt-n -- sh -c "$serve" >/dev/null 2>&1 &
servers="$servers $!"
python3 -m http.server 7000 --bind 0.0.0.0 --directory "$work" >/dev/null 2>&1 &
servers="$servers $!"
host_address=$(ip -o -4 addr show hqbn | grep -o '[0-9.]*/32' | cut -d/ -f1)
instance_address=$(hostctl show pt-n -f json | jq -r .ipv4)
check "somebody listens in a sandbox" wait_for 10 sh -c "[ \"\$(hostctl sandbox exec $own -- sh -c 'nc -w 2 $address 7000 </dev/null')\" = hello ]"
check "in its instance" wait_for 10 sh -c "[ \"\$(hostctl exec pt-n -- sh -c 'nc -w 2 $instance_address 7000 </dev/null')\" = hello ]"
check "and on the host" wait_for 10 sh -c "curl -s -m 2 -o /dev/null http://$host_address:7000/"
check_is "another sandbox is not reached" "" talk "$more" "$address"
check_is "nor its instance" "" talk "$more" "$instance_address"
check_is "nor the host" "" talk "$more" "$host_address"
check_is "nor at its gateway" "" talk "$more" 169.254.0.1
check_is "nor is a sandbox reached from its instance" "" sh -c "hostctl exec pt-n -- sh -c 'nc -w 2 $address 7000 </dev/null'"
check_not "nor in IPv6" in_box "$more" -- sh -c "nc -w 2 $address6 7000 </dev/null"
kill $servers 2>/dev/null

# --- live
hostctl policy set pt-web "allow good.example.org tcp 443" "allow plain.good.example.org tcp 80" >/dev/null
check "a change of its policy, which no instance has, reaches it" wait_for 5 reaches "$web" $http
hostctl policy set pt-wide "allow plain.good.example.org tcp 80" >/dev/null
check_not "what its instance may no longer it may not" reaches "$web" $https
check_not "whichever policies it has" reaches "$own" $https
hostctl policy set pt-wide "allow good.example.org tcp 443" "allow plain.good.example.org tcp 80" >/dev/null
check "until the instance may again" wait_for 5 reaches "$own" $https
check "a cut of its instance" hostctl network cut pt-n
check_not "is one of its sandboxes" reaches "$own" $https
check "given back" hostctl network restore pt-n
check "it is theirs, too" wait_for 5 reaches "$own" $https
check "pause" sb pause "$own"
check "and resume" sb resume "$own"
check_is "it goes on with its network" good fetch "$own"
hostctl policy set pt-brief "allow good.example.org tcp 443" >/dev/null
brief=$(make --network pt-brief)
check "one with a policy" reaches "$brief" $https
check "that is deleted" hostctl policy delete pt-brief
check_not "has nothing then" reaches "$brief" $https
check_status "and a warning says so" 0 'sandbox-policy.*pt-n.*pt-brief' hostctl warning list
check "it is deleted as any other" sb delete "$brief"

# --- guests that harm themselves
root=$(make --network instance --root)
check_not "root of a sandbox cannot take its interface away" in_box "$root" -- ip link del eth0
check_not "nor change it" in_box "$root" -- ip link set eth0 down
check_is "it has it still" good fetch "$root"
gone=$(wire "$(shown "$root" address)")
check "whom its namespace belongs to can" nsenter -t "$(first_pid "$root")" -U -n ip link del eth0
check "it goes" wait_for 3 sh -c "! ip link show $gone"
check_is "so that it has no network" "" fetch "$root"
check_is "others do" good fetch "$own"
check_is "it takes commands" alive in_box "$root" -- echo alive
check "and is deleted" sb delete "$root"
check_is "with all of it" "" nothing_of "$gone"

# --- hostd goes and comes back
check "kill -9 of hostd, and a new one" hostd_crash
check "a sandbox is found again" wait_for 10 is_shown "$own" state running
check_is "with its address" "$address" shown "$own" address
check "it has its network" wait_for 5 reaches "$own" $https
check "and so has one with policies of its own" wait_for 5 reaches "$web" $http
check_status "and no more" 0 "^REFUSED" question "$more" evil.example.org
hostctl policy set pt-web "allow good.example.org tcp 443" >/dev/null
check_not "a live change reaches it from the new hostd" reaches "$web" $http
check "nothing is left over" no_leaks
gone=$(wire "$(shown "$web" address)")
hostd_stop
ip link del "$gone"
check "an interface that went while no hostd was there" hostd_start
check "is made anew" wait_for 10 sh -c "hostctl sandbox exec $web -- sh -c 'ip link show eth0'"
first_pid "$web" >"$work/pid-$web"
check "and used" wait_for 5 reaches "$web" $https
hostd_stop
nft flush ruleset
check_not "no firewall and no hostd: closed" reaches "$own" $https
check "a hostd that finds none" hostd_start
check "has the sandboxes reach what they may" wait_for 10 reaches "$own" $https
check_not "and nothing else" get "$more" -m 4 -f http://$evil/
check "nothing is left over" no_leaks
for i in 1 2 3; do
        (sb create pt-n --network instance -k "crash$i" >/dev/null 2>&1 &)
        sleep "0.0$((RANDOM % 9))"
        hostd_crash || fail "hostd comes back" "round $i"
done
check "killed while some were made: nothing is left over" wait_for 10 no_leaks

# --- ends
for s in $(hostctl sandbox list pt-n -f json | jq -r '.sandboxes[].id'); do
        case $s in "$own" | "$web") ;; *) sb delete "$s" ;; esac
done
gone=$(wire "$(shown "$web" address)")
check "there is something of one" test -n "$(nothing_of "$gone")"
t=$(now_ms)
check "deleted" sb delete "$web"
took=$(($(now_ms) - t))
check_is "nothing of it is left when that is answered" "" nothing_of "$gone"
check "in $took ms" test $took -lt $((1000 * slow))
id=$(make --network instance -d 3s)
gone=$(wire "$(shown "$id" address)")
check "one that ends soon has an interface" test -n "$gone"
check "its deadline" wait_for 8 is_shown "$id" cause deadline
check "is its network's" wait_for 3 is_gone "$gone"
check_is "it has no address then" null shown "$id" address
before=$(ip -o link | grep -c hvs)
check_status "one whose probe fails" 9 'probe did not succeed' sb create pt-n --network instance --probe-command false --probe-timeout 500ms
check "leaves none" wait_for 3 sh -c "[ \"\$(ip -o link | grep -c hvs)\" = $before ]"
check "a probe has the network" sb create pt-n --network instance --probe-command "nslookup good.example.org" -k probed
check "the instance is stopped" within 60 hostctl stop pt-n --force
check "nothing of its sandboxes' networks is left" wait_for 5 sh -c "! { ip -o link; ip rule; nft list ruleset; } | grep 'hvs[0-9]'"
check "started again" hostctl start pt-n
check "it has sandboxes with a network" sh -c "id=\$(hostctl sandbox create pt-n --network pt-web) && hostctl sandbox exec \$id -- nslookup good.example.org"
hostctl delete --force pt-n >/dev/null
check "no leaks" wait_for 5 no_leaks
end
