# SPDX-License-Identifier: GPL-2.0-or-later
# An origin with names for ./quickstart: a name server and an HTTPS server in a network namespace, whose addresses have a route here only while this
# runs. They are in no range that is denied by default (hostd's proxy goes to none of these) and belong to nobody who could be meant. While it
# runs this host trusts the origin's certificate, as it trusts any other: without that HAProxy would refuse it.
# Needs openssl and update-ca-certificates, both of ca-certificates.

names_dns=11.209.0.53 names_origin=11.209.0.10 names_gateway=11.209.0.1
names_allowed=api.hostd-quickstart.example names_denied=other.hostd-quickstart.example
names_authority=/usr/local/share/ca-certificates/hostd-quickstart.crt
names_link=/etc/ssl/certs/hostd-quickstart.pem
names_dir=/run/hostd-quickstart-names

names_make() {
        local ns=hostd-qs-n address
        names_remove
        mkdir -m 0700 $names_dir || return 1
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$names_allowed" \
                -addext "subjectAltName=DNS:$names_allowed,DNS:$names_denied" -keyout $names_dir/key -out $names_dir/cert >/dev/null 2>&1 || return 1
        mkdir -p "${names_authority%/*}"
        cp $names_dir/cert $names_authority && update-ca-certificates >/dev/null 2>&1 || return 1
        ip netns add $ns && ip link add hqn type veth peer name eth0 netns $ns || return 1
        ip addr add $names_gateway/32 dev hqn
        ip link set hqn up
        ip -n $ns link set lo up
        ip -n $ns link set eth0 up
        for address in $names_dns $names_origin; do
                ip -n $ns addr add $address/32 dev eth0
                ip route add $address/32 dev hqn src $names_gateway
        done
        ip -n $ns route add $names_gateway/32 dev eth0
        ip -n $ns route add default via $names_gateway dev eth0
        ip netns exec $ns python3 "$top/tests/lib/names.py" $names_dns $names_origin $names_dir $names_allowed $names_denied >/dev/null 2>&1 &
        names_pid=$!
        for _ in $(seq 50); do
                ip netns exec $ns curl -sk -m 1 "https://$names_origin/" >/dev/null && return 0
                sleep 0.1
        done
        return 1
}

names_remove() {
        local pid
        [ -z "${names_pid:-}" ] || kill "$names_pid" 2>/dev/null
        names_pid=
        for pid in $(ip netns pids hostd-qs-n 2>/dev/null); do kill "$pid" 2>/dev/null; done
        ip link del hqn 2>/dev/null
        ip netns del hostd-qs-n 2>/dev/null
        rm -rf $names_dir
        # Links to a local certificate that is gone stay where update-ca-certificates made them.
        if [ -f $names_authority ] || [ -L $names_link ]; then
                find "${names_link%/*}" -maxdepth 1 -lname "${names_link##*/}" -delete
                rm -f $names_link $names_authority
                update-ca-certificates >/dev/null 2>&1
        fi
        return 0
}
