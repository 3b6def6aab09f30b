#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# HAProxies of instances as their operator meets them: there with the grant, a user of the slot's own, the same one with the next hostd, back after a death,
# gone with the instance. What one does with requests is proved elsewhere (tests/integration/secrets.sh, interceptor.sh).
set -u
. "$(dirname "$0")/../lib/product.sh"
. "$lib/internet.sh"
product_begin
[ -x /usr/sbin/haproxy ] || { skip intercept "haproxy is not installed"; finish; }
secrets_remove() { within 20 hostctl secret revoke pt-intercept >/dev/null 2>&1; }
end() { secrets_remove; internet_remove; upstream_end; finish; }
secrets_remove
internet_begin intercept

base=$(sed -n 's/^hostd-haproxy:\([0-9]*\):.*/\1/p' /etc/subuid | head -n 1)
# Of the slot's user, here: another hostd in namespaces of its own may have the same.
haproxies() {
        local pid
        for pid in $(ps -eo pid=,uid=,stat= | awk -v uid="$user" '$2 == uid && $3 !~ /Z/ { print $1 }'); do
                [ "$(readlink "/proc/$pid/ns/net")" != "$(readlink /proc/self/ns/net)" ] || echo "$pid"
        done
}
ready() { hostctl secret grants pt-a -f csv -c state | tr -d '\r' | grep -qx ready; }
none() { [ -z "$(haproxies)" ]; }

check "there is a range of users for them" test -n "$base"
printf %s pt-value-1 | hostctl secret set pt-intercept >/dev/null || fail "secret set" "it failed"
echo 'rules = ( { action = "allow"; to = "good.example.org"; protocol = "tcp"; ports = "443"; inspect = true; } );' >"$HOSTD_ETC/policies.d/pt-inspect.conf"
hostctl apply >/dev/null || fail policy "refused"
launch pt-a policies=pt-inspect >/dev/null || { fail launch pt-a; end; }
user=$((base + $(slot pt-a)))
check "no grant, no HAProxy" none
placeholder=$(hostctl secret grant pt-intercept pt-a --host good.example.org --header X-Key | grep -o 'hostd-ph-[0-9a-f]*')
check "a grant has a placeholder" test -n "$placeholder"
check "and makes a HAProxy, which gets the value" wait_for 20 ready
pid=$(haproxies)
check "one process, of the slot's own user" test "$(wc -w <<<"$pid")" = 1
check_is "it is HAProxy" /usr/sbin/haproxy readlink "/proc/$pid/exe"
check "without a capability, new rights or another group" sh -c "grep -q '^CapPrm:[[:space:]]*0*\$' /proc/$pid/status && grep -q '^NoNewPrivs:[[:space:]]*1' /proc/$pid/status && grep -q '^Groups:[[:space:]]*\$' /proc/$pid/status"
check "which the firewall knows" sh -c "nft list chain inet hostd helpers | grep -q '$base-$((base + 1023))'"
(cd "$work" && exec python3 -m http.server --bind 127.0.0.1 18001) >/dev/null 2>&1 &
check "what the host serves itself" wait_for 10 curl -sS -m 3 -f -o /dev/null http://127.0.0.1:18001/
check_not "is not for HAProxy" setpriv --reuid "$user" --clear-groups curl -sS -m 3 -f -o /dev/null http://127.0.0.1:18001/
check "nor kept from others" setpriv --reuid 65533 --clear-groups curl -sS -m 3 -f -o /dev/null http://127.0.0.1:18001/
hostctl secret authority pt-a >"$work/ca" || fail authority "it failed"
intercepted() { inside pt-a curl -sS -m 8 -o /dev/null -w '%{http_code}' --cacert "$work/ca" "$@" https://good.example.org/; }
check "a connection by name reaches it" wait_for 10 test "$(intercepted -H "X-Key: $placeholder")" = 503 # the origin's certificate is of nobody whom this host trusts
check_not "which sends nothing to an origin that it cannot verify" grep -q pt-value "$work/origin"
check_is "a placeholder where it does not belong is refused" 403 intercepted -H "X-Other: $placeholder"
check "and is an event" wait_for 10 sh -c "hostctl events -f json | jq -es 'any(.[]; .type == \"secret-alert\" and .name == \"pt-a\" and .host == \"good.example.org\")'"
check "a flow" wait_for 10 sh -c "hostctl flows pt-a --denied -f json | grep -q 'a placeholder of grant'"
check "and audited" sh -c "hostctl audit tail -n 20 -f json | grep -q io.hostd.Secret.Alert"

hostd_crash || fail "hostd" "it does not come back"
check "after kill -9 of hostd" wait_for 20 ready
check_is "the same HAProxy serves" "$pid" haproxies
check_is "the same way" 503 intercepted -H "X-Key: $placeholder"
kill -9 "$pid"
came_anew() { ready && [ -n "$(haproxies)" ] && [ "$(haproxies)" != "$pid" ]; }
check "one that is killed comes anew" wait_for 30 came_anew
check_is "and serves" 503 intercepted -H "X-Key: $placeholder"
hostctl stop pt-a >/dev/null
check "the instance stops: it is gone" wait_for 10 none
hostctl start pt-a >/dev/null
check "and there with it" wait_for 20 ready
pid=$(haproxies)
check "hostd stops" hostd_stop
check_is "it goes on" "$pid" haproxies
hostd_start
check "hostd starts" wait_for 20 ready
check_is "with the same" "$pid" haproxies
hostctl secret revoke pt-intercept >/dev/null
check "without a grant there is none" wait_for 10 none
check "nothing is left" sh -c "! ls -d $HOSTD_RUN/haproxy/[0-9]* 2>/dev/null"
end
