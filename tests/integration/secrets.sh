#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Secrets on the wire: the configuration that hostd writes, in the real HAProxy, between curl and origins that write down what reaches them. In a
# network namespace of its own; a small front stands where hostd-proxy is.
# usage: secrets.sh [BUILD_DIR or path of secret_driver]; HAPROXY: the program (default haproxy)
here=$(cd "$(dirname "$0")" && pwd)
driver=${1:-.}
[ -d "$driver" ] && driver=$driver/tests/integration/secret_driver
haproxy=${HAPROXY:-haproxy}
skip() { echo "SKIP: $*"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ -x "$driver" ] || skip "no secret_driver at $driver (make check builds it)"
[ "$(id -u)" = 0 ] || skip "needs root"
export PATH=$PATH:/usr/sbin:/sbin
for tool in "$haproxy" python3 curl openssl unshare setpriv ip git; do command -v "$tool" >/dev/null || skip "no $tool"; done
driver=$(realpath "$driver")
if [ -z "${SECRETS_INSIDE:-}" ]; then SECRETS_INSIDE=1 exec unshare -n "$0" "$driver"; fi
ip link set lo up || exit 1

user=64990 # of HAProxy; of nobody
dir=$(mktemp -d /tmp/hostd-secrets.XXXXXX) && chmod 711 "$dir" || exit 1
pids=
stop_all() { for p in $pids; do kill "$p" 2>/dev/null; done; wait 2>/dev/null; }
trap 'stop_all; rm -rf "$dir"' EXIT
passed=0 failed=0 skipped=0
ok() { passed=$((passed + 1)); echo "ok: $*"; }
bad() { failed=$((failed + 1)); echo "FAILED: $*"; }
check() { local what=$1; shift; if "$@"; then ok "$what"; else bad "$what"; fi; }
net="python3 $here/secrets_net.py"
until_true() { local i; for ((i = 0; i < $1 * 20 * ${HOSTD_TEST_SLOW:-1}; i++)); do "${@:2}" && return 0; sleep 0.05; done; return 1; }

# ---- a world: two origins with certificates of an authority, one with a false one ----
cd "$dir" || exit 1
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout world.key -out world.crt -subj "/CN=world" -days 2 2>/dev/null
issue() { # NAME FILE
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$2.key" -out "$2.csr" -subj "/CN=$1" 2>/dev/null
        openssl x509 -req -in "$2.csr" -CA world.crt -CAkey world.key -CAcreateserial -extfile <(echo "subjectAltName=DNS:$1") -out "$2.crt" -days 2 2>/dev/null
        cat "$2.crt" "$2.key" >"$2.pem"
}
issue api.example.com api && issue other.example.com other && issue wrong.example.com wrong && issue h2.example.com h2 && issue grpc.example.com grpc || exit 1
for h in read write deny; do issue $h.example.com $h || exit 1; done
chmod 644 world.crt # HAProxy reads it
start() { "$@" & pids="$pids $!"; last=$!; }
: >seen.api; : >seen.other; : >seen.wrong
start $net origin 127.0.0.1 8443 api.pem seen.api
start $net origin 127.0.0.2 8443 other.pem seen.other
start $net origin 127.0.0.3 8443 wrong.pem seen.wrong
# One that speaks HTTP/2, and a server of gRPC where there is a library for it.
cat >h2.cfg <<END
defaults
    mode http
    timeout client 10s
frontend h2
    bind 127.0.0.14:8443 ssl crt $dir/h2.pem alpn h2,http/1.1
    http-request return status 200 content-type text/plain lf-string "HTTP/%[fc_http_major] %[req.hdr(x-key)] %[req.body_size]\n"
END
start "$haproxy" -db -f h2.cfg
grpc="python3 $here/secrets_grpc.py"
if python3 -c 'import grpc' 2>/dev/null; then start $grpc server 127.0.0.15 8443 grpc.crt grpc.key; else grpc=; fi
# git, for three hosts: one repository of each, whose first commit all have.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_AUTHOR_NAME=me GIT_AUTHOR_EMAIL=me@example.org GIT_COMMITTER_NAME=me GIT_COMMITTER_EMAIL=me@example.org
git init -q -b main first && git -C first commit -q --allow-empty -m first || exit 1
a=4
for h in read write deny; do
        git clone -q --bare first "$h/repo.git" 2>/dev/null && git -C "$h/repo.git" config http.receivepack true || exit 1
        start $net git_origin 127.0.0.$a 8443 $h.pem "$dir/seen.git" "$dir/$h"
        a=$((a + 1))
done

# ---- secrets and grants ----
real=value-0-$(openssl rand -hex 12)
second='p4ss:w0rd & more "%[x]" \ #'
printf %s "$real" | "$driver" "$dir" set token || exit 1
printf %s "$second" | "$driver" "$dir" set pass || exit 1
printf %s "$real-and-more" | "$driver" "$dir" set longer || exit 1
grant() { "$driver" "$dir" grant "$@" || { echo "FAILED: grant $*"; exit 1; }; }
read -r _ ph <<<"$(grant token api.example.com 8443 header Authorization path=/v1/ path=/exact method=GET method=POST)"
read -r _ ph_key <<<"$(grant token api.example.com 8443 header X-Api-Key path=/v1)"
read -r _ ph_basic <<<"$(grant pass api.example.com 8443 basic -)"
read -r _ ph_query <<<"$(grant pass api.example.com 8443 query api.key)"
read -r _ ph_other <<<"$(grant pass other.example.com 8443 header Authorization)"
read -r _ ph_h2 <<<"$(grant token h2.example.com 8443 header X-Key)"
read -r _ ph_grpc <<<"$(grant token grpc.example.com 8443 header X-Key)"
read -r _ ph_long <<<"$(grant longer api.example.com 8443 header X-Long)"
grant token api.example.com 8443 header X-Inject inject=Bearer path=/inject >/dev/null
grant pass other.example.com 8443 header X-Plain inject=- >/dev/null
for h in read write deny; do grant pass $h.example.com 8443 basic - >/dev/null; done
cat >rules <<'END'
deny api.example.com path=/denied/ path=/it's$(it)
deny api.example.com method=PUT
allow api.example.com
allow other.example.com method=GET path=/ path=/x
allow other.example.com method=POST path=/only
allow h2.example.com
allow grpc.example.com
allow read.example.com git=read
allow write.example.com git=write
deny deny.example.com git=write
allow deny.example.com
END
"$driver" "$dir" site $user "$dir/world.crt" || exit 1
check "HAProxy takes the configuration" eval '"$haproxy" -c -q -f site/conf/haproxy.cfg'
# As in hostd's unit, which lets nobody make memory executable that was written to.
w_xor_x() { exec python3 -c 'import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])' "$@"; }
start w_xor_x setpriv --reuid $user --regid $user --clear-groups "$haproxy" -db -f site/conf/haproxy.cfg
haproxy_pid=$last
check "HAProxy listens" until_true 10 test -S site/sock/front.sock
[ $failed -eq 0 ] || { echo "$passed passed, $failed failed, 0 skipped"; exit 1; } # nothing below would tell anything
start python3 -c 'import socket,sys
s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM); s.bind("log.sock"); import os; os.chmod("log.sock",0o666)
f=open("log","ab",0)
while True: f.write(s.recv(65536).rstrip()+b"\n")'
start $net front 4001 "$dir/site/sock/front.sock" 127.0.0.1 8443
start $net front 4002 "$dir/site/sock/front.sock" 127.0.0.2 8443
start $net front 4003 "$dir/site/sock/front.sock" 127.0.0.3 8443                 # the address of one with another certificate
start $net front 4004 "$dir/site/sock/front.sock" 127.0.0.1 8443 other.example.com # hostd-proxy decided on another name
start $net front 4005 "$dir/site/sock/front.sock" 127.0.0.1 8444                 # another port than granted
start $net front 4006 "$dir/site/sock/front.sock" 127.0.0.4 8443
start $net front 4007 "$dir/site/sock/front.sock" 127.0.0.5 8443
start $net front 4008 "$dir/site/sock/front.sock" 127.0.0.6 8443
start $net front 4016 "$dir/site/sock/front.sock" 127.0.0.14 8443
start $net front 4017 "$dir/site/sock/front.sock" 127.0.0.15 8443
listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
for p in 4001 4002 4003 4004 4005 4006 4007 4008 4016 4017; do until_true 10 listening $p || bad "front $p"; done
for a in 127.0.0.1 127.0.0.2 127.0.0.3 127.0.0.4 127.0.0.5 127.0.0.6; do until_true 10 eval "(exec 3<>/dev/tcp/$a/8443) 2>/dev/null" || bad "origin $a"; done

# req PORT NAME PATH [curl's arguments]: the status; the body is in $dir/body
req() { curl -sS -m 20 -o body -w '%{http_code}' --cacert site/ca.pem --connect-to "::127.0.0.1:$1" "https://$2:8443$3" "${@:4}" 2>curl.err; }
saw() { grep -qF -- "$2" "seen.$1"; }
clear_seen() { : >seen.api; : >seen.other; : >seen.wrong; }

clear_seen
check "before the map is filled: 503, and nothing goes out" eval '[ "$(req 4001 api.example.com /v1/x -H "Authorization: Bearer $ph")" = 503 ] && [ ! -s seen.api ]'
check "the map is filled" "$driver" "$dir" fill $user

# ---- what must arrive ----
arrives() { # WHAT ORIGIN TEXT PORT NAME PATH ARGUMENTS
        local what=$1 where=$2 text=$3
        clear_seen
        local status
        status=$(req "${@:4}")
        if [ "$status" = 200 ] && saw "$where" "$text" && ! saw "$where" hostd-ph-; then ok "$what"; else bad "$what: $status $(cat curl.err) $(cat seen.$where)"; fi
}
json() { python3 -c 'import json,sys; print(json.dumps(sys.argv[1])[1:-1])' "$1"; }
for v in --http1.1 --http2; do
        arrives "bearer $v" api "Bearer $real" 4001 api.example.com /v1/x $v -H "Authorization: Bearer $ph"
        arrives "a token alone in a header $v" api "\"$real\"" 4001 api.example.com /v1/x $v -H "X-Api-Key: $ph_key"
        arrives "basic $v" api "Basic $(printf %s "me:$second" | base64 -w0)" 4001 api.example.com /any $v -u "me:$ph_basic"
        arrives "query $v" api 'a=1&api.key=p4ss%3Aw0rd%20%26%20more%20%22%25%5Bx%5D%22%20%5C%20%23&c=2 HTTP' 4001 api.example.com "/any?a=1&api.key=$ph_query&c=2" $v
        arrives "injected $v" api "Bearer $real" 4001 api.example.com /inject $v -H "X-Inject: mine"
        arrives "another host's own $v" other "Bearer $(json "$second")" 4002 other.example.com / $v -H "Authorization: Bearer $ph_other"
        arrives "a plain injected header $v" other "$(json "$second")" 4002 other.example.com /x $v
done
arrives "basic without a user" api "Basic $(printf %s ":$second" | base64 -w0)" 4001 api.example.com /any -u ":$ph_basic"
arrives "the only parameter" api '?api.key=p4ss' 4001 api.example.com "/any?api.key=$ph_query"
arrives "an exact path" api "token $real" 4001 api.example.com /exact -H "authorization: token $ph"
arrives "the last parameter" api '?a&&b=2&api.key=p4ss' 4001 api.example.com "/any?a&&b=2&api.key=$ph_query"
arrives "the first parameter" api "%23&=&x HTTP" 4001 api.example.com "/any?api.key=$ph_query&=&x"
arrives "a credential of the workload's own passes" api "Bearer mine" 4001 api.example.com /v1/x -H "Authorization: Bearer mine"
head -c 20000000 /dev/zero >big
arrives "an upload of 20 MB" api '"body": 20000000' 4001 api.example.com /v1/x -H "Authorization: Bearer $ph" -H "Expect:" --data-binary @big
arrives "an upload in chunks" api '"body": 20000000' 4001 api.example.com /v1/x --http1.1 -H "Authorization: Bearer $ph" -H "Expect:" -H "Transfer-Encoding: chunked" --data-binary @big
rm -f big

# ---- HTTP/2 as far as the origin ----
check "a client of HTTP/2 has it upstream" eval '[ "$(req 4016 h2.example.com / --http2 -H "X-Key: $ph_h2")" = 200 ] && grep -q "^HTTP/2 $real" body'
check "one of HTTP/1.1 has that" eval '[ "$(req 4016 h2.example.com / --http1.1 -H "X-Key: $ph_h2")" = 200 ] && grep -q "^HTTP/1 $real" body'
check "a placeholder that is not granted there is refused" eval '[ "$(req 4016 h2.example.com / --http2 -H "X-Key: $ph_grpc")" = 403 ]'
if [ -n "$grpc" ]; then
        until_true 10 eval "(exec 3<>/dev/tcp/127.0.0.15/8443) 2>/dev/null" || bad "the server of gRPC"
        timeout 60 $grpc client 4017 site/ca.pem grpc.example.com "$ph_grpc" >grpc.out 2>&1
        check "gRPC: a stream both ways, and its trailers" eval '[ "$(cat grpc.out)" = "$(printf "message %d $real\n" 0 1 2; echo "OK of the stream")" ] || ! cat grpc.out'
        timeout 60 $grpc client 4017 site/ca.pem grpc.example.com "$ph" >grpc.out 2>&1
        check "gRPC: a placeholder that is not granted there" eval '[ "$(tail -n 1 grpc.out)" = PERMISSION_DENIED ] || ! cat grpc.out'
else
        skipped=1
        echo "SKIP: gRPC: no python3-grpcio"
fi

# ---- what must never ----
never() { # WHAT STATUSES PORT NAME PATH ARGUMENTS: no origin sees a value, and the answer is one of the statuses
        local what=$1 wanted=$2 status
        clear_seen
        status=$(req "${@:3}")
        if grep -qF -e "$real" -e "$(json "$second")" seen.*; then
                bad "$what: a value went out: $(cat seen.*)"
        elif [[ " $wanted " != *" $status "* ]]; then
                bad "$what: status $status instead of $wanted: $(cat curl.err)"
        else ok "never: $what ($status)"; fi
}
A="Authorization: Bearer"
never "a path that the policy denies" 403 4001 api.example.com /denied/x -u "me:$ph_basic"
never "a path that the policy denies, with signs in it" 403 4001 api.example.com "/it's\$(it)/x" -u "me:$ph_basic"
never "a path that might be a denied one" 403 4001 api.example.com /%64enied/x --path-as-is -u "me:$ph_basic"
never "a method that the policy denies" 403 4001 api.example.com /any -X PUT -u "me:$ph_basic"
never "a method that no rule allows there" 403 4002 other.example.com /x -X POST -H "Authorization: Bearer $ph_other"
check "and says that it is the policy" grep -q '^hostd: the policy' body
arrives "what the policy's second rule allows" other "Bearer" 4002 other.example.com /only -X POST -H "Authorization: Bearer $ph_other"
# ---- git, read or read and write, by git itself ----
through() { GIT_SSL_CAINFO=$dir/site/ca.pem git -c "http.curloptResolve=$1.example.com:$2:127.0.0.1" "${@:3}" 2>git.err; }
clones() { rm -rf "clone.$1" && through "$1" "$2" clone -q "https://$1.example.com:$2/repo.git" "clone.$1" && git -C "clone.$1" log --format=%s | grep -qx first; }
pushes() { git -C "clone.$1" commit -q --allow-empty -m "of $1" && through "$1" "$2" -C "clone.$1" push -q origin HEAD:main; }
has() { git -C "$1/repo.git" log --format=%s main | grep -qx "of $1"; }
refused_push() { # HOST PORT: git's push fails, and the origin is never asked to take one
        : >seen.git
        if pushes "$1" "$2" || has "$1" || grep -q receive-pack seen.git; then bad "no push to $1: $(cat seen.git)"; else ok "no push to $1"; fi
}
for v in 0 2; do check "git clones where it may read (protocol $v)" eval 'export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.version GIT_CONFIG_VALUE_0=$v; clones read 4006'; done
unset GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0
git -C read/repo.git update-ref refs/heads/more main
check "and fetches" through read 4006 -C clone.read fetch -q origin more
refused_push read 4006
check "git clones where it may write" clones write 4007
check "and pushes" eval 'pushes write 4007 && has write'
check "git clones where writing is denied" clones deny 4008
refused_push deny 4008
# HOST PORT STATUS PATH…: what is no request of git's, or not exactly one
asks() { local got; : >seen.git; got=$(req "$2" "$1.example.com" "${@:4}" --http1.1); if [ "$got" = "$3" ] && { [ "$3" != 403 ] || [ ! -s seen.git ]; }; then ok "$1 ${*:4}: $3"; else bad "$1 ${*:4}: $got, not $3: $(cat seen.git)"; fi; }
asks read 4006 403 /
asks read 4006 403 /repo.git/HEAD
asks read 4006 403 /repo.git/info/refs
asks read 4006 200 "/repo.git/info/refs?service=git-upload-pack"
asks read 4006 403 "/repo.git/info/refs?service=git-receive-pack"
asks read 4006 403 "/repo.git/info/refs?service=git-upload-pack&service=git-receive-pack"
asks read 4006 403 "/repo.git/info/refs?service=git-upload-pack" -X POST -d x
asks read 4006 403 /repo.git/git-upload-pack
asks read 4006 403 "/repo.git/git-upload-pack?x" -d x
asks read 4006 403 /repo.git/git-receive-pack -d x
asks read 4006 403 "/repo.git/git-receive-pack/../git-upload-pack" --path-as-is -d x
asks read 4006 403 "/repo.git/git-receive-pack;/git-upload-pack" -d x
asks read 4006 403 "/repo.git/git-receive%2Dpack" -d x
asks write 4007 403 /repo.git/HEAD
asks write 4007 200 "/repo.git/info/refs?service=git-receive-pack"
asks deny 4008 200 /repo.git/HEAD
asks deny 4008 403 "/repo.git/info/refs?service=git-receive-pack"
asks deny 4008 403 "/repo.git/info/refs?x&service=git-receive%2Dpack"
asks deny 4008 403 /repo.git/git-receive-pack -d x
asks deny 4008 403 "/repo.git/git-receive%2Dpack" -d x

never "to another host of a grant" 403 4002 other.example.com / -H "$A $ph" -H "X-Plain: x"
never "another grant's token in this place" 403 4001 api.example.com /v1/x -H "$A $ph_other"
never "in another header" 403 4001 api.example.com /v1/x -H "X-Other: $ph"
never "in a cookie" 403 4001 api.example.com /v1/x -b "a=$ph"
never "in the path" 403 4001 api.example.com "/v1/$ph"
never "in another parameter" 403 4001 api.example.com "/v1/x?k=$ph_query"
never "in a name" 403 4001 api.example.com "/v1/x?$ph_query=1"
never "behind too many parameters" 403 4001 api.example.com "/any?$(printf 'a=%d&' {1..12})api.key=$ph_query"
never "twice in the query" 403 4001 api.example.com "/any?api.key=$ph_query&api.key=$ph_query"
never "of a header in the query" 403 4001 api.example.com "/v1/x?api.key=$ph"
never "another method" 403 4001 api.example.com /v1/x -X DELETE -H "$A $ph"
never "another path" 403 4001 api.example.com /v2/x -H "$A $ph"
never "a path that only begins alike" 403 4001 api.example.com /exactly -H "$A $ph"
for p in /v1/../admin /v1/%2e%2e/admin /v1/.%2E/admin '/v1/..;/admin' /v1//admin /v1/./x '/v1/..%2fadmin' '/v1/%5c..%5cadmin' '/v1/\..\admin' /v1/a%00; do
        never "path $p" 403 4001 api.example.com "$p" --path-as-is -H "$A $ph"
done
never "with something behind it" 403 4001 api.example.com /v1/x -H "$A ${ph}x"
never "with something before it" 403 4001 api.example.com /v1/x -H "$A x$ph"
never "with a third word" 403 4001 api.example.com /v1/x -H "$A $ph more"
never "in capitals" "403 200" 4001 api.example.com /v1/x -H "$A ${ph^^}"
never "as a user of Basic" 403 4001 api.example.com /v1/x -u "$ph_basic:x"
never "as a part of a password" 403 4001 api.example.com /v1/x -u "a:${ph_basic}x"
never "as a part of a longer password" 403 4001 api.example.com /v1/x -u "a:$ph_basic:x"
never "of Basic as a bearer" 403 4001 api.example.com /v1/x -H "$A $ph_basic"
never "of a bearer as Basic" 403 4001 api.example.com /v1/x -u "me:$ph"
never "two Authorizations" 400 4001 api.example.com /v1/x -H "$A $ph" -H "$A mine"
never "two of the header" 400 4001 api.example.com /v1/x -H "X-Api-Key: $ph_key" -H "X-Api-Key: $ph_key"
never "in a body" 200 4001 api.example.com /v1/x -d "key=$ph"
for v in --http1.1 --http2; do never "Host that is not the SNI $v" 421 4001 api.example.com /v1/x $v -H "Host: other.example.com" -H "$A $ph"; done
never "Host with a dot at its end" 421 4001 api.example.com /v1/x -H "Host: api.example.com." -H "$A $ph"
never "an upstream with another certificate" 503 4003 api.example.com /v1/x -H "$A $ph"
never "a name that hostd-proxy did not decide on" 421 4004 api.example.com /v1/x -H "$A $ph"
never "another port" "403 503" 4005 api.example.com /v1/x -H "$A $ph"
never "a name of no grant" 000 4001 wrong.example.com /v1/x -k -H "$A $ph"

raw() { # WHAT WANTED SNI BYTES
        clear_seen
        printf "$4" >bytes
        local answer
        answer=$($net raw 4001 site/ca.pem "$3" bytes 2>/dev/null || echo closed)
        if grep -qF -e "$real" seen.*; then bad "$1: a value went out"; elif [[ $answer =~ $2 ]]; then ok "never: $1 ($answer)"; else bad "$1: $answer"; fi
}
G="GET /v1/x HTTP/1.1\r\n"
raw "two Hosts" ' 400' api.example.com "${G}Host: api.example.com\r\nHost: other.example.com\r\nAuthorization: Bearer $ph\r\n\r\n"
raw "no Host" ' 400' api.example.com "GET /v1/x HTTP/1.0\r\nAuthorization: Bearer $ph\r\n\r\n"
raw "an absolute address of another host" ' 4[02]' api.example.com "GET https://other.example.com/v1/x HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer $ph\r\n\r\n"
raw "CONNECT" ' 40' api.example.com "CONNECT api.example.com:8443 HTTP/1.1\r\nHost: api.example.com:8443\r\nAuthorization: Bearer $ph\r\n\r\n"
for m in TRACE trace; do never "$m" 405 4001 api.example.com /any -X $m -u "me:$ph_basic"; done
for v in --http1.1 --http2; do never "TRACE $v" 405 4001 api.example.com /any $v -X TRACE -u "me:$ph_basic"; done
for u in h2c "websocket, h2c" "h2c, websocket" "" TLS/1.0 websocket/13; do
        raw "Upgrade: $u" ' 400' api.example.com "${G}Host: api.example.com\r\nConnection: Upgrade\r\nUpgrade: $u\r\nX-Api-Key: $ph_key\r\n\r\n"
done
raw "two Upgrades" ' 400' api.example.com "${G}Host: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\nX-Api-Key: $ph_key\r\n\r\n"
raw "the same Upgrade twice" ' 400' api.example.com "${G}Host: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: websocket\r\nX-Api-Key: $ph_key\r\n\r\n"
arrives "an upgrade to WebSocket" api "$real" 4001 api.example.com /v1/x --http1.1 -H "Connection: Upgrade" -H "Upgrade: WebSocket" -H "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==" -H "Sec-WebSocket-Version: 13" -H "X-Api-Key: $ph_key"
raw "a folded header" ' 400|closed' api.example.com "${G}Host: api.example.com\r\nX-Api-Key:\r\n $ph_key\r\nAuthorization: Bearer $ph\r\nAuthorization: x\r\n\r\n"
raw "no SNI" closed "" "${G}Host: api.example.com\r\nAuthorization: Bearer $ph\r\n\r\n"
clear_seen
check "never: plain text where TLS is" eval '! curl -sS -m 10 -H "$A $ph" --connect-to ::127.0.0.1:4001 http://api.example.com:8443/v1/x -o /dev/null 2>/dev/null && [ ! -s seen.api ]'
req 4002 other.example.com / -H "$A $ph" >/dev/null
check "a refusal says why" grep -q '^hostd: a placeholder' body
check "a placeholder in a wrong place is an alert in the log" until_true 5 grep -q '"alert":"placeholder"' log
check "the log is JSON, line by line" python3 -c 'import json; n=[json.loads(l) for l in open("log")]; assert len(n) > 50'
req 4001 api.example.com /v1/x --http1.1 -X "$(printf 'Q%.0s' {1..500})" -H "Host: $(printf 'a%.0s' {1..200}).com" >/dev/null
check "the log has no more than the beginning of what a guest wrote" python3 -c 'import json; n=[json.loads(l) for l in open("log")]; assert any(l.get("method") == 16 * "Q" for l in n) and any(l.get("host") == 64 * "a" for l in n) and all(len(l.get("host", "")) <= 64 for l in n)'

# ---- what comes back ----
# heads WHAT PORT NAME PATH ARGUMENTS…: the head of an answer of 200 is in $dir/head, and has no value
heads() {
        local what=$1 status
        status=$(req "${@:2}" -D head)
        if [ "$status" != 200 ]; then bad "$what: $status $(cat curl.err body)"
        elif grep -qiaF -e "$real" -e "$second" -e 'p4ss%3Aw0rd' -e "$(printf %s "me:$second" | base64 -w0)" head; then bad "$what: a value came back: $(cat head)"
        else ok "$what: no value comes back in a header"; fi
}
in_head() { tr -d '\r' <head | grep -qaixF -e "$1" || ! cat head; }
has_header() { check "$1" in_head "$2"; }
header_is() { has_header "$1: $2" "$2"; }
counted() { grep -F '"redacted"' log | tail -n 1 | python3 -c 'import json, sys; t = json.loads(sys.stdin.readline())["redacted"].split(); print(*sorted(int(n) for n in t[1::2]))'; }
: >log
printf 'x-odd: \xff\x80\xe9 %%41 [secret] \\ "\n' >odd
for v in --http1.1 --http2; do
        heads "a bearer $v" 4001 api.example.com "/v1/echo?api.key=$ph_query" $v -H "Authorization: Bearer $ph" -H "X-Long: $ph_long"
        header_is "$v in an address" "location: https://elsewhere.example.com/?k=[secret token]&api.key=[secret pass]"
        header_is "$v a cookie without one" "set-cookie: first=1; Path=/"
        header_is "$v in a cookie" "set-cookie: second=[secret token]; Path=/"
        header_is "$v behind a comma" "set-cookie: third=3, Bearer [secret token]"
        header_is "$v several, one of them the beginning of another" "x-both: [secret token][secret token] [secret longer][secret token]|[secret longer]"
        header_is "$v forty" "x-many:$(printf ' [secret token]%.0s' {1..40})"
        header_is "$v a header of no text" "x-empty: "
        has_header "$v a part of a value is none" "x-part: ${real%?}"
        check "$v a header with a value in its name is gone" eval '! grep -q "in the name" head'
        check "$v other bytes are as they were" eval 'LC_ALL=C grep -qaF -f odd head || ! od -c head'
        check "$v cookies are in their order" eval '[ "$(grep -ic ^set-cookie head)" = 3 ] && grep -i ^set-cookie head | head -n 1 | grep -q first'
        check "$v and all are counted" until_true 5 eval '[ "$(counted)" = "1 2 47" ]'
        heads "Basic $v" 4001 api.example.com /echo $v -u "me:$ph_basic"
        header_is "$v in base64, as it was sent" "set-cookie: second=[secret pass]; Path=/"
        heads "an injected header's host $v" 4001 api.example.com /echo $v -H "Authorization: mine"
        header_is "$v what is the workload's own comes back" "set-cookie: second=mine; Path=/"
        check "$v and nothing is counted" until_true 5 eval '[ -z "$(counted)" ]'
done
check "the words behind the status are the border's" eval 'heads status 4001 api.example.com /v1/echo --http1.1 -H "Authorization: Bearer $ph" && head -n 1 head | tr -d "\r" | grep -qx "HTTP/1.1 200 OK"'
first=$real next=rotated-$(openssl rand -hex 12)
{ sleep 0.7 && printf %s "$next" | "$driver" "$dir" rotate token && "$driver" "$dir" fill $user; } &
rotation=$!
heads "a rotation between a request and its answer" 4001 api.example.com /v1/slow/echo -H "Authorization: Bearer $ph"
wait $rotation || bad "a rotation"
real=$next
header_is "the value that was sent" "set-cookie: second=[secret token]; Path=/"
check "which was the one before" saw api "$first"
heads "the new value" 4001 api.example.com /v1/echo -H "Authorization: Bearer $ph"
header_is "the new value" "set-cookie: second=[secret token]; Path=/"
# The same with a program that fails: closed.
mkdir -p broken/sock && sed "s,$dir/site/sock,$dir/broken/sock,; s,$dir/site/conf/redact.lua,$dir/broken/redact.lua," site/conf/haproxy.cfg >broken/haproxy.cfg &&
        sed "s,txn.f:res_hdrs(),error('broken')," site/conf/redact.lua >broken/redact.lua && chown $user broken/sock && chmod -R go+rX broken
start setpriv --reuid $user --regid $user --clear-groups "$haproxy" -db -f broken/haproxy.cfg
start $net front 4020 "$dir/broken/sock/front.sock" 127.0.0.1 8443
check "one that cannot look" until_true 10 eval 'listening 4020 && test -S broken/sock/front.sock'
check "lets no answer through" eval '[ "$(req 4020 api.example.com /any -D head)" = 502 ] && grep -q "^hostd: the head" body || ! cat body head'

# ---- rotation ----
printf value-0 | "$driver" "$dir" rotate token && "$driver" "$dir" fill $user || bad "a rotation"
start $net load 4001 site/ca.pem "$ph" stop load.json
load_pid=$last
sleep 1
for i in $(seq 1 40); do printf %s "value-$i" | "$driver" "$dir" rotate token && "$driver" "$dir" fill $user || bad "rotation $i"; done
sleep 1
: >stop
wait $load_pid
check "40 rotations under load: no request fails" python3 -c 'import json; r=json.load(open("load.json")); print("   ", r["requests"], "requests,", len(r["values"]), "values,", len(r["failed"]), "failed", r["failed"][:3]); assert r["requests"] > 40 and not r["failed"] and len(r["values"]) > 2 and "Bearer value-40" in r["values"]'
arrives "the newest value" api "Bearer value-40" 4001 api.example.com /v1/x -H "Authorization: Bearer $ph"
check "HAProxy is the one that was started" kill -0 $haproxy_pid

# ---- where values must not be ----
nowhere() { # in what processes show to others
        local p
        for p in /proc/[0-9]*; do
                if cat "$p/cmdline" "$p/environ" 2>/dev/null | tr '\0' '\n' | grep -qF -f <(printf '%s\n' "$real" "$second" value-40); then
                        echo "    $p"
                        return 1
                fi
        done
}
check "no value in a command line or an environment" nowhere
check "no value in a file of the site, the log, or the store" eval '! grep -rqaF -e "$real" -e "$second" -e value-40 -e "$(printf %s "$real" | base64 -w0)" site log state.db* secret.key'
check "no key of the authority in the site" eval '[ "$(grep -rl "PRIVATE KEY" site | grep -vc /crt/)" = 0 ]'
check "leaves are HAProxy's alone to read" eval '[ -z "$(find site/conf ! -type l \( -perm /007 -o ! -user 0 -o ! -group $user \))" ]'
other() { setpriv --reuid 64991 --regid 64991 --clear-groups "$@"; }
connects() { python3 -c 'import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])' "$1" 2>/dev/null; }
check "root connects to both sockets" eval 'connects "$dir/site/sock/front.sock" && connects "$dir/site/sock/admin.sock"'
for s in front admin; do check "others do not connect to $s" eval "! other python3 -c 'import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])' '$dir/site/sock/$s.sock' 2>/dev/null"; done
check "the admin socket is its owner's alone" eval '[ "$(stat -c %a site/sock/admin.sock)" = 600 ] && [ "$(stat -c %a site/sock/front.sock)" = 660 ]'
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
