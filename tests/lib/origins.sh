# SPDX-License-Identifier: GPL-2.0-or-later
# Two little web servers in network namespaces of their own, for showing an allowed and a denied connection. They use addresses
# that are reserved for documentation, on veths that end in this machine.

origin_allowed=198.51.100.10
origin_denied=198.51.100.20
origin_pids=

origin_make() { # NAME ADDRESS GATEWAY TEXT
        local ns=hostd-qs-$1 dir
        ip netns add "$ns" || return 1
        ip link add "hq$1" type veth peer name eth0 netns "$ns" || return 1
        ip addr add "$3/32" dev "hq$1"
        ip link set "hq$1" up
        ip route add "$2/32" dev "hq$1" src "$3"
        ip -n "$ns" addr add "$2/32" dev eth0
        ip -n "$ns" link set lo up
        ip -n "$ns" link set eth0 up
        ip -n "$ns" route add "$3/32" dev eth0
        ip -n "$ns" route add default via "$3"
        dir=$(mktemp -d /tmp/hostd-origin.XXXXXX)
        printf '%s' "$4" >"$dir/index.html"
        (cd "$dir" && exec ip netns exec "$ns" python3 -m http.server 8080 >/dev/null 2>&1) &
        origin_pids="$origin_pids $!"
        for _ in $(seq 50); do
                ip netns exec "$ns" curl -s -m 1 "http://$2:8080/" >/dev/null && return 0
                sleep 0.1
        done
        return 1
}

origins_make() {
        origins_remove
        origin_make a $origin_allowed 198.51.100.9 "origin allowed" && origin_make d $origin_denied 198.51.100.19 "origin denied"
}

origins_remove() {
        local ns pid
        for pid in $origin_pids; do kill "$pid" 2>/dev/null; done
        origin_pids=
        for ns in a d; do
                for pid in $(ip netns pids hostd-qs-$ns 2>/dev/null); do kill "$pid" 2>/dev/null; done
                ip link del "hq$ns" 2>/dev/null
                ip netns del hostd-qs-$ns 2>/dev/null
        done
        rm -rf /tmp/hostd-origin.*
        return 0
}
