#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The wire as its operator handles it: cut and given back, ports that lead inwards, limits of connections and of the day's traffic, each seen by
# packets, and each after hostd died, the instance stopped, and the time was over.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
trap 'origins_remove; finish' EXIT
origins_make || { skip expose "the origins cannot be made here"; trap finish EXIT; finish; }
host=198.51.100.9 # of this host, as the allowed origin sees it
launch pt-a >/dev/null && launch pt-b >/dev/null || { fail launch "pt-a pt-b"; origins_remove; finish; }
hostctl policy set pt-net "allow $origin_allowed/32" >/dev/null
hostctl set pt-a policies=pt-net >/dev/null

fetch() { # NAME ADDRESS
        local got
        got=$(within 6 hostctl exec "$1" -- sh -c "(printf 'GET / HTTP/1.0\r\n\r\n'; sleep 0.3) | timeout 3 nc $2 8080 | tail -n 1")
        echo "$got"
        [ -n "$got" ]
}
listen() { # NAME PORT TEXT: answers each who comes
        hostctl exec --timeout 120s "$1" -- sh -c "while :; do echo $3 | nc -l -p $2; done" >/dev/null 2>&1 &
        sleep 0.5
}
from_origin() { # PORT
        within 8 ip netns exec hostd-qs-a python3 -c "
import socket
s = socket.create_connection(('$host', $1), 2)
s.settimeout(3)
print(s.recv(100).decode().strip())" 2>/dev/null
}
# --- cut and restore
check_is "before" "origin allowed" fetch pt-a $origin_allowed
check "cut" hostctl network cut pt-a
check_not "nothing passes" fetch pt-a $origin_allowed
check "show says so" sh -c "hostctl network show pt-a | grep -E 'cut: +(true|yes)'"
check "commands go on" hostctl exec pt-a -- true
check "hostd is killed and comes back" hostd_crash
check_not "still cut" fetch pt-a $origin_allowed
check "the instance is restarted" hostctl restart pt-a
check_not "and still cut" fetch pt-a $origin_allowed
check "restore" hostctl network restore pt-a
check_is "and as before" "origin allowed" fetch pt-a $origin_allowed

# --- exposed ports
listen pt-a 7100 inside
check_not "closed by default" from_origin 7100
check "expose" hostctl expose pt-a 7100 --as 17100
check_is "from outside" inside from_origin 17100
check "it is listed" sh -c "hostctl exposed | grep -E '^pt-a +tcp +7100 +17100 +everywhere'"
check_status "another instance cannot have the port" 8 'pt-a already' hostctl expose pt-b 7100 --as 17100
python3 -c 'import socket, time
s = socket.socket(); s.bind(("0.0.0.0", 17200)); s.listen(); time.sleep(60)' &
taken=$!
sleep 0.5
check_status "nor one on which the host listens" 8 'listens on tcp port 17200' hostctl expose pt-b 7100 --as 17200
kill $taken
check_not "nobody else than --from" sh -c "hostctl expose pt-a 7100 --as 17101 --from 192.0.2.0/24 >/dev/null && exit 1"
if from_origin 17101 >/dev/null; then fail "--from" "the origin was let in"; else ok "--from is kept"; fi
check_status "a network with host bits is refused, not taken for everywhere" 2 'host bits' hostctl expose pt-a 7100 --as 17103 --from 192.0.2.1/24
check "unexpose takes all of the port" hostctl unexpose pt-a 7100
check_not "closed again" from_origin 17100
check_status "twice is an error" 3 'not exposed' hostctl unexpose pt-a 7100
check "for a time" hostctl expose pt-a 7100 --as 17102 --for 12s
check_is "in its time" inside from_origin 17102
check "hostd is killed and comes back" hostd_crash
listen pt-a 7100 inside
sleep 12
check_not "after it" from_origin 17102
check_is "and it is not listed" "" sh -c "hostctl exposed pt-a | grep 17102"
hostctl policy set pt-inward "allow @preview tcp 7100-7199" >/dev/null
check "a port that leads inwards is there" hostctl expose pt-a 7200 --as 17201
check "a policy says which ports may be led to" hostctl set pt-a policies=pt-net,pt-inward
check_is "what it does not allow is closed at once" "" sh -c "hostctl exposed pt-a | grep 7200"
check_status "and is refused from then on" 5 'rules to @preview, and none allows tcp port 7200' hostctl expose pt-a 7200 --as 17201
check_is "what goes out is as before" "origin allowed" fetch pt-a $origin_allowed
check "until it is taken back" hostctl expose pt-a 7100
check "restart of the instance" hostctl restart pt-a
listen pt-a 7100 again
check_is "it leads there again" again from_origin 7100

# --- limits
check "limits are set live" hostctl set pt-a connections=5 destinations=50 traffic=1MiB download=10MiB
check "and are in the kernel" sh -c "nft list chain inet hostd i$(printf %04x "$(slot pt-a)")_take | grep -q 'ct count over 5'"
check_is "a little passes" "origin allowed" fetch pt-a $origin_allowed
for directory in /tmp/hostd-origin.*; do head -c 3000000 /dev/zero >"$directory/big"; done
total=0
for _ in 1 2 3 4 5; do # on a busy machine one download may end before the traffic does
        got=$(within 20 hostctl exec --timeout 15s pt-a -- sh -c "(printf 'GET /big HTTP/1.0\r\n\r\n'; sleep 4) | timeout 8 nc $origin_allowed 8080 | wc -c")
        total=$((total + ${got:-0}))
        fetch pt-a $origin_allowed >/dev/null || break
done
if [ $total -lt 1300000 ] && [ $total -gt 900000 ]; then ok "the day's traffic ends a download ($total bytes)"; else fail traffic "$total bytes"; fi
check_not "and then nothing passes" fetch pt-a $origin_allowed
check "hostd tells of it" wait_for 10 sh -c "hostctl warning list | grep -q 'pt-a.*traffic of the day'"
hostctl restart pt-a >/dev/null
check_not "a restart gives no new day" fetch pt-a $origin_allowed
check "raised" hostctl set pt-a traffic=1GiB
check_is "it passes again" "origin allowed" fetch pt-a $origin_allowed
check "delete" hostctl delete --force pt-a
check_is "takes its ports along" "" sh -c "hostctl exposed | grep pt-a; nft list map inet hostd expose4 | grep 7100"
check "no leaks at the end" no_leaks
origins_remove
finish
