# SPDX-License-Identifier: GPL-2.0-or-later
# A web server with what repository.sh made, in a network namespace of its own, as another host would serve it: a build behind the border does not
# reach the one that it runs on. Sourced by tests/system/cases/build.sh; tests/packages/life
# makes its own, and takes the address from here.

mirror_address=198.51.100.30
mirror_url=http://$mirror_address:8099
mirror_serve() { # DIR LOG; kill $mirror_server ends it, mirror_unserve removes the rest
        mirror_unserve
        ip netns add hostd-mirror && ip link add hqmirror type veth peer name eth0 netns hostd-mirror || return 1
        ip addr add 198.51.100.29/32 dev hqmirror
        ip link set hqmirror up
        ip route add $mirror_address/32 dev hqmirror src 198.51.100.29
        ip -n hostd-mirror link set lo up
        ip -n hostd-mirror link set eth0 up
        ip -n hostd-mirror addr add $mirror_address/32 dev eth0
        ip -n hostd-mirror route add 198.51.100.29/32 dev eth0
        ip -n hostd-mirror route add default via 198.51.100.29 dev eth0
        ip netns exec hostd-mirror python3 -m http.server 8099 --bind $mirror_address --directory "$1" >"$2" 2>&1 &
        mirror_server=$!
}
mirror_unserve() {
        ip link del hqmirror 2>/dev/null || : # sourced where a failure ends the case
        ip netns del hostd-mirror 2>/dev/null || :
}
