#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The fence with real packets of real instances: origins in network namespaces, policies that change under a flow, neighbours, the
# host, a foreign flush, counters and forged frames.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
v6_allowed=2001:4f8:10::10 v6_denied=2001:4f8:20::20
cleanup_origins() { ip -6 route del $v6_allowed/128 2>/dev/null; ip -6 route del $v6_denied/128 2>/dev/null; origins_remove; }
trap 'cleanup_origins; finish' EXIT
origins_make || { skip network "the origins cannot be made here"; trap finish EXIT; finish; }
# The same two have an IPv6 address each.
for o in "a $v6_allowed" "d $v6_denied"; do
        set -- $o
        ip -n "hostd-qs-$1" addr add "$2/128" dev eth0 nodad
        ip -n "hostd-qs-$1" -6 route add default via fe80::1 dev eth0
        ip addr add fe80::1/64 dev "hq$1" nodad 2>/dev/null
        ip -6 route add "$2/128" dev "hq$1"
        (cd /tmp && exec ip netns exec "hostd-qs-$1" python3 -c '
import socket, threading, sys
def talk(c):
    try:
        c.sendall(b"hello\n")
        while c.recv(4096): c.sendall(b"more\n")
    except OSError: pass
s = socket.socket(socket.AF_INET6); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0); s.bind(("::", 9000)); s.listen(50)
while True: threading.Thread(target=talk, args=(s.accept()[0],), daemon=True).start()
' >/dev/null 2>&1) &
        origin_pids="$origin_pids $!"
done
wait_for 5 sh -c "ip netns exec hostd-qs-a python3 -c 'import socket; socket.create_connection((\"::1\", 9000), 1)' 2>/dev/null || ip netns exec hostd-qs-a ss -ltn | grep -q 9000"

fetch() { # NAME ADDRESS: busybox wget without a resolver is not to be trusted, so by hand
        local got
        got=$(within 6 hostctl exec "$1" -- sh -c "(printf 'GET / HTTP/1.0\r\n\r\n'; sleep 0.3) | timeout 3 nc $2 8080 | tail -n 1")
        echo "$got"
        [ -n "$got" ]
}
talk() { within 6 hostctl exec "$1" -- sh -c "echo x | timeout 2 nc $2 ${3:-9000} | head -n 1"; } # NAME ADDRESS PORT
counter() { hostctl network show "$1" | sed -n "s/^ *$2: *//p"; }
raw_counter() { nft -j list counters table inet hostd | jq -r ".nftables[] | .counter? | select(. != null and .name == \"i$(printf %04x "$(slot "$1")")_$2\") | .packets"; }

launch pt-a >/dev/null && launch pt-b >/dev/null || { fail launch "pt-a pt-b"; finish; }

# --- closed by default
check_not "nothing is allowed by default: v4" fetch pt-a $origin_allowed
check_is "nor v6" "" talk pt-a $v6_allowed
begin=$(now_ms)
fetch pt-a $origin_denied >/dev/null 2>&1
took=$(($(now_ms) - begin))
if [ $took -lt $((1500 * slow)) ]; then ok "a denial is heard at once ($took ms)"; else fail "denial" "it took $took ms"; fi
denied=$(raw_counter pt-a denied)
if [ "${denied:-0}" -gt 0 ]; then ok "and is counted ($denied packets)"; else fail "denied counter" "$denied"; fi
check "network show has it" sh -c "hostctl network show pt-a | grep -E 'denied_packets: +[1-9]'"

# --- opened by policy
hostctl policy set pt-net "allow $origin_allowed/32 tcp 8080,9000" "allow $v6_allowed/128 tcp 9000" >/dev/null
check "policies=pt-net, live" hostctl set pt-a policies=pt-net
check_is "allowed v4" "origin allowed" fetch pt-a $origin_allowed
check_not "denied v4" fetch pt-a $origin_denied
check_is "allowed v6" hello talk pt-a $v6_allowed
check_is "denied v6" "" talk pt-a $v6_denied
check_is "another port of the allowed one is denied" "" talk pt-a $origin_allowed 9001
check_not "the other instance has no such policy" fetch pt-b $origin_allowed
check "policy explain agrees: allowed" sh -c "hostctl policy explain pt-a $origin_allowed:8080 | grep -qi allow"
check "policy explain agrees: denied" sh -c "hostctl policy explain pt-a $origin_denied:8080 | grep -qi den"
check "counters grow" sh -c "hostctl network show pt-a | grep -E 'tx_packets: +[1-9]' && hostctl network show pt-a | grep -E 'rx_packets: +[1-9]'"
hostctl policy set pt-order "deny $origin_allowed/32 tcp 8080" "allow $origin_allowed/32" >/dev/null
hostctl set pt-b policies=pt-order >/dev/null
check_not "order counts: the first rule that matches decides" fetch pt-b $origin_allowed
check_is "and the second for what the first leaves" hello talk pt-b $origin_allowed
hostctl unset pt-b policies >/dev/null

# --- a change cuts exactly the flow it revokes
flow() { # NAME ADDRESS FILE: a line a fifth of a second, there and back
        hostctl exec --timeout 30s "$1" -- sh -c "(while :; do echo ping; sleep 0.2; done) | nc $2 9000; echo closed" >"$3" 2>&1 &
}
grows() { local n; n=$(wc -l <"$1"); sleep 1.2; [ "$(wc -l <"$1")" -gt "$n" ]; }
flow pt-a $origin_allowed "$work/f4"
p4=$!
flow pt-a $v6_allowed "$work/f6"
p6=$!
wait_for 5 sh -c "[ \$(wc -l <$work/f4) -ge 3 ] && [ \$(wc -l <$work/f6) -ge 3 ]"
check "two flows run" test "$(wc -l <"$work/f4")" -ge 3 -a "$(wc -l <"$work/f6")" -ge 3
hostctl policy set pt-net "allow $origin_allowed/32 tcp 8080" "allow $v6_allowed/128 tcp 9000" >/dev/null
sleep 0.5
check_not "the revoked one is cut" grows "$work/f4"
check "the other one goes on" grows "$work/f6"
hostctl policy set pt-net "deny 203.0.113.0/24" "allow $v6_allowed/128 tcp 9000" "allow $origin_allowed/32 tcp 8080,9000" >/dev/null
check "also while rules move around it" grows "$work/f6"
hostctl set pt-a pids=300 memory=80MiB >/dev/null
check "and other settings change" grows "$work/f6"
if hostd_crash; then check "and hostd dies and comes back" grows "$work/f6"; else fail "restart" "hostd"; fi
hostctl unset pt-a policies >/dev/null
sleep 0.5
check_not "without a policy it is cut, too" grows "$work/f6"
kill $p4 $p6 2>/dev/null
wait $p4 $p6 2>/dev/null
hostctl set pt-a policies=pt-net >/dev/null

# --- the same among many rules, which the kernel has as one map
many() { # how many others; "with": the flow's own as well
        local i
        for i in $(seq "$1"); do printf 'allow 192.0.2.%d/32 tcp 9000\n' "$i"; done
        [ "$2" = with ] && printf 'allow %s/32 tcp 9000\n' $origin_allowed
        printf 'allow 198.51.100.1/32 tcp 9000\n'
}
set_many() { many "$@" | xargs -d '\n' hostctl policy set pt-net >/dev/null; }
check "a policy of many rules" set_many 60 with
check "is a map" sh -c "hostctl network show pt-a | grep 'map {' | grep -q '$origin_allowed . 9000'"
flow pt-a $origin_allowed "$work/f5"
p5=$!
wait_for 5 sh -c "[ \$(wc -l <$work/f5) -ge 3 ]"
check "a flow runs by it" grows "$work/f5"
set_many 90 with
check "and goes on while others come" grows "$work/f5"
if hostd_crash; then check "and hostd dies and comes back" grows "$work/f5"; else fail "restart" "hostd"; fi
set_many 30 with
check "and others go" grows "$work/f5"

# --- a policy that cannot be kept is not in force, either
mount --bind "$HOSTD_ETC/policies.d" "$HOSTD_ETC/policies.d" && mount -o remount,bind,ro "$HOSTD_ETC/policies.d"
check_not "a policy whose file cannot be written is refused" set_many 30 without
umount "$HOSTD_ETC/policies.d"
check "and what was in force still is" grows "$work/f5"
check_is "its rules are there as before" 32 sh -c "hostctl policy show pt-net | grep -c allow"
check_is "a new flow is judged by them" hello talk pt-a $origin_allowed
set_many 30 without
sleep 0.5
check_not "its own rule is gone: cut" grows "$work/f5"
kill $p5 2>/dev/null
wait $p5 2>/dev/null
hostctl policy set pt-net "deny 203.0.113.0/24" "allow $v6_allowed/128 tcp 9000" "allow $origin_allowed/32 tcp 8080,9000" >/dev/null

# --- neighbours and the host
ip_b=$(field pt-b ipv4) ip6_b=$(field pt-b ipv6) ip_a=$(field pt-a ipv4)
hostctl policy set pt-all "allow 0.0.0.0/0" "allow ::/0" >/dev/null
hostctl set pt-a policies=pt-all >/dev/null
hostctl exec --timeout 20s pt-b -- sh -c 'while :; do echo here | nc -l -p 7000; done' >/dev/null 2>&1 &
listener=$!
sleep 0.4
check_is "instance to instance is denied: v4" "" talk pt-a "$ip_b" 7000
check_is "instance to instance is denied: v6" "" talk pt-a "$ip6_b" 7000
kill $listener 2>/dev/null
wait $listener 2>/dev/null
python3 -c '
import socket, threading
s = socket.socket(socket.AF_INET6); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0); s.bind(("::", 7999)); s.listen(50)
while True:
    c = s.accept()[0]; c.sendall(b"the host\n"); c.close()' &
server=$!
sleep 0.4
for address in 169.254.0.1 fe80::1%eth0 198.51.100.9 $(ip -4 -o addr show up scope global | sed 's/.*inet \([0-9.]*\).*/\1/' | head -n 3) 127.0.0.1; do
        got=$(talk pt-a "$address" 7999)
        if [ -z "$got" ]; then ok "the host's socket at $address is not reached"; else fail "host socket at $address" "$got"; fi
done
# The host may begin, and gets its answers.
hostctl exec --timeout 10s pt-b -- sh -c 'echo from-b | nc -l -p 7001' >/dev/null 2>&1 &
sleep 0.5
check_is "the host reaches an instance" from-b sh -c "timeout 3 python3 -c 'import socket; print(socket.create_connection((\"$ip_b\", 7001), 2).recv(100).decode().strip())'"
for range in 10.0.0.1 192.168.1.1 172.16.0.1 169.254.169.254 100.64.0.1 224.0.0.1; do
        check "a broad rule does not open $range" sh -c "hostctl policy explain pt-a $range:80 | grep -qi den"
done
check "nor port 25" sh -c "hostctl policy explain pt-a 93.184.216.34:25 | grep -qi den"
hostctl set pt-a policies=pt-net >/dev/null
check_not "origins cannot begin a connection inwards" timeout 3 ip netns exec hostd-qs-a python3 -c "import socket; socket.create_connection(('$ip_a', 7000), 2)"

# --- BR-3: a foreign firewall, then a foreign flush
# A flush takes everybody's tables: only where there are none but ours, or where it is asked for.
foreign=$(nft list tables | grep -v -e ' hostd$' -e ' pt-foreign$')
if [ -z "$foreign" ] || [ "${HOSTD_FOREIGN_FLUSH:-no}" = yes ]; then
        nft -f - <<'E'
table inet pt-foreign {
        map verdicts { type ipv4_addr . inet_service : verdict; elements = { 192.0.2.7 . 80 : drop } }
        set big { type ipv4_addr; flags interval; elements = { 203.0.113.0/25 } }
        chain dormant {
                type filter hook forward priority 10; policy accept;
                ip daddr . tcp dport vmap @verdicts
        }
}
E
        begin=$(now_ms)
        check "restart beside a foreign table" hostctl restart pt-a
        took=$(($(now_ms) - begin))
        if [ $took -lt $((1500 * slow)) ]; then ok "in $took ms"; else fail "restart beside a foreign table" "$took ms"; fi
        check_is "and the allowed origin is reached" "origin allowed" fetch pt-a $origin_allowed
        # The probe knocks at the denied origin all the time; whoever listens there counts what comes.
        ip netns exec hostd-qs-d python3 -c '
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("0.0.0.0", 9100)); n = 0
while True:
    s.recvfrom(100); n += 1; open(sys.argv[1], "w").write(str(n))' "$work/arrived" &
        counter_pid=$!
        origin_pids="$origin_pids $counter_pid"
        hostctl exec --timeout 20s pt-a -- sh -c "while :; do echo x | nc -u -w 1 $origin_denied 9100 & usleep 3000; done" >/dev/null 2>&1 &
        probe=$!
        sleep 1
        begin=$(now_ms)
        nft flush ruleset
        while ! nft list table inet hostd >/dev/null 2>&1 && [ $(($(now_ms) - begin)) -lt $((5000 * slow)) ]; do :; done
        took=$(($(now_ms) - begin))
        if [ $took -le $((1000 * slow)) ]; then ok "the table is back $took ms after a foreign flush"; else fail "flush" "back after $took ms"; fi
        sleep 1
        kill $probe 2>/dev/null
        wait $probe 2>/dev/null
        kill $counter_pid 2>/dev/null
        if [ ! -e "$work/arrived" ]; then ok "no packet came through in between"; else fail "open in between" "$(cat "$work/arrived") packets reached the denied origin"; fi
        check_is "what is allowed is reached again" "origin allowed" fetch pt-a $origin_allowed
        check_not "what is denied is not" fetch pt-a $origin_denied
        check "the netdev table is back" nft list table netdev hostd
        for i in 1 2 3; do nft delete table inet hostd; sleep 0.4; done
        check "three deletions in a row" wait_for 2 sh -c 'nft list table inet hostd && nft list chain netdev hostd i'"$(printf %04x "$(slot pt-a)")"
        # Somebody who removes it again and again: each time it comes back, but hostd does not do only that.
        lost() { hostctl warning list -f csv -c kind,count | tr -d '\r' | sed -n 's/^network-table,//p'; }
        lost_before=$(lost)
        end=$(($(now_ms) + 3000))
        while [ "$(now_ms)" -lt $end ]; do nft delete table inet hostd 2>/dev/null; done
        check "the table is back when a rival has ended" wait_for 1 nft list table inet hostd
        times=$(($(lost) - lost_before))
        if [ $times -ge 3 ] && [ $times -le 20 ]; then ok "who goes on removing it is answered five times a second ($times times in 3 s)"; else fail "rival" "restored $times times in 3 s"; fi
        sleep 0.3
        nft insert rule inet hostd "i$(printf %04x "$(slot pt-a)")_out" accept
        check "a foreign rule in our table is undone" wait_for 2 sh -c "! nft list chain inet hostd i$(printf %04x "$(slot pt-a)")_out | sed -n 4p | grep -qx '[[:space:]]*accept'"
        check_not "and opens nothing afterwards" fetch pt-a $origin_denied
        # With hostd dead the tables stay.
        pid=$(instance_pid pt-a)
        reach() { nsenter -t "$pid" -n timeout 3 python3 -c "import socket; socket.create_connection(('$1', 8080), 2)"; }
        if hostd_kill; then
                check "the tables outlive hostd" nft list table inet hostd
                check_not "what is denied stays denied without hostd" reach $origin_denied
                check "and what was allowed stays allowed" reach $origin_allowed
                nft flush ruleset
                check_not "a flush while hostd is dead closes, it does not open" reach $origin_denied
                check_not "not even the allowed one" reach $origin_allowed
                hostd_start
                check_is "hostd comes back and opens what is allowed" "origin allowed" fetch pt-a $origin_allowed
                check_not "and only that" fetch pt-a $origin_denied
        fi
else
        skip "foreign flush" "this host has other tables, which it would remove: $(tr '\n' ' ' <<<"$foreign")(HOSTD_FOREIGN_FLUSH=yes insists)"
fi

# --- forged by root of the instance
init=$(instance_pid pt-a)
spoofed=$(counter pt-a spoofed_packets)
ip netns exec hostd-qs-a timeout 12 python3 -c '
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); s.bind(("eth0", 0)); s.settimeout(0.5)
import time; end = time.time() + 6; bad = 0
while time.time() < end:
    try: d = s.recv(2000)
    except socket.timeout: continue
    if b"FORGED-BY-PT" in d: bad += 1
open(sys.argv[1], "w").write(str(bad))' "$work/forged" &
sniffer=$!
sleep 0.4
nsenter -t "$init" -U -n -S 0 -G 0 python3 - "$origin_allowed" "$ip_b" >"$work/out" 2>&1 <<'E'
import socket, struct, sys
target, neighbour = sys.argv[1:]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("eth0", 0))
mine = s.getsockname()[4]
gateway = bytes.fromhex("020000000001")
try:
    for line in open("/proc/net/arp"):
        f = line.split()
        if f[0] == "169.254.0.1" and f[3] != "00:00:00:00:00:00":
            gateway = bytes.fromhex(f[3].replace(":", ""))
except OSError:
    pass
def csum(b):
    t = sum(struct.unpack("!%dH" % (len(b) // 2), b)); t = (t >> 16) + (t & 0xffff); return ~(t + (t >> 16)) & 0xffff
def ip(src, dst):
    body = struct.pack("!HHHH", 5, 9000, 8 + 12, 0) + b"FORGED-BY-PT"
    h = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 1, 0, 64, 17, 0, socket.inet_aton(src), socket.inet_aton(dst))
    return h[:10] + struct.pack("!H", csum(h)) + h[12:] + body
for source in (neighbour, "8.8.8.8", "127.0.0.1", "169.254.0.1", "10.209.255.254"):
    for mac in (mine, bytes.fromhex("020000009999")):
        for vlan in (b"", b"\x81\x00\x00\x05"):
            s.send(gateway + mac + vlan + b"\x08\x00" + ip(source, target))
s.send(b"\xff" * 6 + mine + b"\x08\x06" + struct.pack("!HHBBH", 1, 0x800, 6, 4, 2) + mine + socket.inet_aton("169.254.0.1") + b"\xff" * 6 + socket.inet_aton("169.254.0.1"))
for source in ("2001:db8::bad", "fe80::1", "::1"):
    body = struct.pack("!HHHH", 5, 9000, 20, 1) + b"FORGED-BY-PT"
    s.send(gateway + mine + b"\x86\xdd" + struct.pack("!IHBB", 0x60000000, len(body), 17, 64) + socket.inet_pton(10, source) + socket.inet_pton(10, "2001:4f8:10::10") + body)
print("sent")
E
if grep -q sent "$work/out"; then
        wait $sniffer
        check_is "no forged frame reaches an origin" 0 cat "$work/forged"
        now=$(counter pt-a spoofed_packets)
        if [ "${now:-0}" -gt "${spoofed:-0}" ]; then ok "they are counted ($spoofed, then $now)"; else fail "spoofed counter" "$spoofed, then $now"; fi
else
        fail "forged frames" "$(tail -n 1 "$work/out")"
fi
check_not "the instance cannot move its address" sh -c "hostctl exec pt-a -- ip addr add $ip_b/32 dev eth0; hostctl exec pt-a -- sh -c 'echo x | timeout 2 nc -s $ip_b $origin_allowed 9000 | grep hello'"
hostctl delete --force pt-a pt-b >/dev/null
check "no rule is left of them" sh -c "! nft list ruleset | grep -E 'hv[0-9a-f]{4}\"' | grep -v dormant"
check "no leaks at the end" no_leaks
nft delete table inet pt-foreign 2>/dev/null
finish
