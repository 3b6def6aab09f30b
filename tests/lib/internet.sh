# SPDX-License-Identifier: GPL-2.0-or-later
# An Internet for the product tests: one network namespace with a name server and web servers, whose addresses are in no range that is denied by
# default and have a route to it only while a test runs. Sourced after product.sh.
#   internet_make, internet_remove     upstream_begin, upstream_end: hostd asks that name server
#   inside NAME COMMAND..., get NAME CURL..., question NAME QUESTION...: as a program of the instance, with this machine's tools
net=hostd-border-net dns=11.209.0.53 good=11.209.0.10 evil=11.209.0.20 good6=2a0a:d1d1::10
internet_needs() { # the first that is missing
        local program
        for program in dnsmasq openssl curl python3; do
                command -v $program >/dev/null || { echo "$program is not installed"; return; }
        done
}
internet_remove() {
        local pid
        for pid in $(ip netns pids $net 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
        ip link del hqbn 2>/dev/null
        ip netns del $net 2>/dev/null
        return 0
}
internet_make() {
        printf 'nameserver 169.254.0.1\noptions timeout:2 attempts:1\n' >"$work/resolv.conf"
        echo 'hosts: dns' >"$work/nsswitch"
        internet_remove
        ip netns add $net && ip link add hqbn type veth peer name eth0 netns $net || return 1
        ip addr add 11.209.0.1/32 dev hqbn
        ip link set hqbn up
        ip addr add fe80::1/64 dev hqbn nodad 2>/dev/null
        ip -n $net link set lo up
        ip -n $net link set eth0 up
        for address in $dns $good $evil; do
                ip -n $net addr add $address/32 dev eth0
                ip route add $address/32 dev hqbn src 11.209.0.1
        done
        ip -n $net addr add $good6/128 dev eth0 nodad
        ip -6 route add $good6/128 dev hqbn
        ip -n $net route add 11.209.0.1/32 dev eth0
        ip -n $net route add default via 11.209.0.1 dev eth0
        ip -n $net -6 route add default via fe80::1 dev eth0
        ip netns exec $net dnsmasq -C /dev/null --no-resolv --no-hosts --no-daemon --log-queries --pid-file --listen-address=$dns --bind-interfaces \
                --address=/good.example.org/$good --address=/good.example.org/$good6 --address=/evil.example.org/$evil --address=/rebind.example.org/10.1.2.3 --txt-record=good.example.org,text \
                >"$work/dnsmasq" 2>&1 &
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=good.example.org -addext subjectAltName=DNS:good.example.org,DNS:evil.example.org \
                -keyout "$work/key" -out "$work/cert" >/dev/null 2>&1 || return 1
        for place in "$good good" "$evil evil" "$good6 good"; do
                # shellcheck disable=SC2086
                ip netns exec $net python3 "$lib/../border/origin.py" $place "$work" >>"$work/origin" 2>&1 &
        done
        wait_for 60 ip netns exec $net curl -s -m 2 -o /dev/null --cacert "$work/cert" --resolve good.example.org:443:$good https://good.example.org/ &&
                wait_for 60 ip netns exec $net curl -s -m 2 -o /dev/null http://$evil/
}
upstream_begin() {
        cp "$HOSTD_ETC/hostd.conf" "$work/hostd.conf"
        sed -i '/^resolver_upstream/d' "$HOSTD_ETC/hostd.conf"
        echo "resolver_upstream = [ \"$dns\" ];" >>"$HOSTD_ETC/hostd.conf"
        hostctl apply >/dev/null
}
upstream_end() { [ ! -f "$work/hostd.conf" ] || { cp "$work/hostd.conf" "$HOSTD_ETC/hostd.conf"; hostctl apply >/dev/null 2>&1; }; }
# In the network of the instance and with its resolv.conf, as any of its programs, but with this machine's tools.
inside() { # NAME COMMAND...; also while no hostd is there to say which process it is
        local pid
        pid=$(cat "$work/pid-$1" 2>/dev/null)
        if [ ! -d "/proc/${pid:-none}" ]; then
                pid=$(instance_pid "$1")
                echo "$pid" >"$work/pid-$1"
        fi
        within 20 nsenter -t "$pid" -n unshare -m sh -c "mount --bind '$work/resolv.conf' /etc/resolv.conf; mount --bind '$work/nsswitch' /etc/nsswitch.conf; shift; exec \"\$@\"" sh "$@"
}
get() { local name=$1; shift; inside "$name" curl -sS -m 8 --cacert "$work/cert" "$@"; }
question() { inside "$1" python3 "$lib/../border/question.py" "${@:2}"; } # NAME QUESTION...: "RCODE ADDRESSES TEXT-OF-EDE"

internet_begin() { # NAME PROGRAM...: all of it, for a test that knows how to end(); skips it where that cannot be
        local program name=$1 missing
        shift
        for program in "$@"; do
                [ -x "${HOSTD_LIBEXEC:-/usr/local/libexec/hostd}/$program" ] || { skip "$name" "$program is not installed"; finish; }
        done
        missing=$(internet_needs)
        [ -z "$missing" ] || { skip "$name" "$missing"; finish; }
        trap end EXIT
        internet_make || { skip "$name" "the origins cannot be made here"; end; }
        upstream_begin || { fail upstream "$(hostctl apply 2>&1 | tail -n 1)"; end; }
}
