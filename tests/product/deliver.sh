#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What hostd puts into an instance that has grants, and takes away with the last of them: the authority that it has to trust, for programs as
# they are, and secrets as files. With a template `clients` (a Debian with curl, git, python3-requests, pip, node, npm, wget) or `agent` for real programs;
# their server is in the instance and shows the leaf that the border would show.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
value="pt-value-$RANDOM$RANDOM$RANDOM" rotated="pt-rotated-$RANDOM$RANDOM$RANDOM"
secrets_remove() { for s in $(within 20 hostctl secret list -f csv -c secret 2>/dev/null | tr -d '\r' | grep '^pt-'); do within 20 hostctl secret revoke "$s" >/dev/null 2>&1; done; }
end() { secrets_remove; finish; }
trap end EXIT
secrets_remove
set_secret() { printf %s "$2" | hostctl secret set "$1" >/dev/null; }
rotate_secret() { printf %s "$2" | hostctl secret rotate "$1" >/dev/null; }
grants() { hostctl secret grants "$@" -f csv -c id,secret,name,place,field,state | tr -d '\r'; }
id_of() { grants "$1" | awk -F, -v s="$2" -v p="$3" '$2 == s && $4 == p { print $1 }'; } # INSTANCE SECRET PLACE
# What commands print is looked through for values, so that they are compared by their sums.
sum() { printf "$1" | md5sum | cut -d' ' -f1; }
sum_inside() { ex "$@" | cut -d' ' -f1; }
file_is() { [ "$(sum_inside "$1" -- md5sum "/run/hostd/secrets/$2" 2>/dev/null)" = "$(sum "$3")" ]; }
no_file() { ! ex "$1" -- test -e "/run/hostd/secrets/$2"; }
nothing_left() { [ -z "$(ex "$1" -- sh -c 'cd /run/hostd 2>/dev/null && ls -d ca.crt ca-bundle.crt environment profile.sh secrets 2>/dev/null; env | grep SSL_CERT_FILE')" ]; }

set_secret pt-key "$value" && set_secret pt-line $'two\nlines' || fail "secret set" "it failed"
launch pt-a >/dev/null || { fail launch pt-a; end; }
check "without grants nothing is there" nothing_left pt-a

# --- files
check_status "a secret becomes a file" 0 '/run/hostd/secrets/pt-key' hostctl secret grant pt-key pt-a --file
check_is "its value is there when the grant is answered" "$(sum "$value")" sum_inside pt-a -- md5sum /run/hostd/secrets/pt-key
check_is "for root alone, and on a ramfs" "400 0 0 ramfs" ex pt-a -- sh -c 'cd /run/hostd/secrets; grep -q " /run/hostd/secrets .* - ramfs " /proc/self/mountinfo && fs=ramfs; stat -c "%a %u %g" pt-key | tr "\n" " "; echo $fs'
check_not "another user cannot read it" ex -u agent pt-a -- cat /run/hostd/secrets/pt-key
check_status "with an owner" 0 pt-line hostctl secret grant pt-line pt-a --file --owner 1000
check_is "who can" "$(sum 'two\nlines')" sum_inside -u agent pt-a -- md5sum /run/hostd/secrets/pt-line
check_status "the same file twice is refused" 4 "is a file in pt-a already" hostctl secret grant pt-key pt-a --file
check_status "what requests have is no part of a file" 2 "nothing that requests have" hostctl secret grant pt-key pt-a --file --host api.example.com
check_status "the list says so" 0 "pt-key,pt-a,file,/run/hostd/secrets/pt-key,delivered" grants pt-a
rotate_secret pt-key "$rotated"
check_is "a rotation is there when it is answered" "$(sum "$rotated")" sum_inside pt-a -- md5sum /run/hostd/secrets/pt-key
check_not "no certificate comes with a file" ex pt-a -- test -e /run/hostd/ca.crt
no_disk_has() { sync; ! grep -rqaF -e "$value" -e "$rotated" "$HOSTD_STATE" "$HOSTD_RUN" "$HOSTD_ETC" 2>/dev/null; }
check "no file of the host has a value" no_disk_has
check_not "and the difference of the instance has no such file" sh -c "hostctl diff pt-a | grep secrets/pt-"
hostctl restart pt-a >/dev/null
check "the first command after a start finds it" file_is pt-a pt-key "$rotated"
hostd_crash || fail hostd "it does not come back"
check "after a death of hostd it is still there" file_is pt-a pt-key "$rotated"
printf 'x' >"$work/planted" # as a hostd that died between two steps may leave it
hostctl file push "$work/planted" pt-a:/run/hostd/secrets/pt-planted >/dev/null 2>&1
check "ungrant is answered when the file is gone" hostctl secret ungrant "$(id_of pt-a pt-key file)"
check "which it is" no_file pt-a pt-key
check "with what is nobody's" no_file pt-a pt-planted
check "the other one is not" file_is pt-a pt-line 'two\nlines'
hostctl secret grant pt-key pt-a --file --for 2s >/dev/null
check "a grant with a time" file_is pt-a pt-key "$rotated"
check "ends by itself, with its file" wait_for 10 no_file pt-a pt-key
check "the secret is revoked" hostctl secret revoke pt-line
check "its file goes, and the place for it" nothing_left pt-a
check_not "no file system of its own is left" ex pt-a -- grep -q ramfs /proc/self/mountinfo

# A grant that ends while the instance is off, and one that ends while hostd is.
hostctl secret grant pt-key pt-a --file >/dev/null
hostctl stop --force pt-a >/dev/null
hostctl secret ungrant "$(id_of pt-a pt-key file)" >/dev/null
hostctl start pt-a >/dev/null
check "what ended while it was off is not there after its start" nothing_left pt-a
hostctl secret grant pt-key pt-a --file --for 2s >/dev/null
hostd_kill
sleep 3
hostd_start || fail hostd "it does not come back"
check "what ended while hostd was off goes when it comes" wait_for 10 no_file pt-a pt-key
launch pt-b >/dev/null || fail launch pt-b
hostctl secret grant pt-key pt-b --file >/dev/null
hostctl pause pt-b >/dev/null
check "a grant of a paused instance does not wait for it" within 10 hostctl secret ungrant "$(id_of pt-b pt-key file)"
hostctl resume pt-b >/dev/null
check "and is done when it is resumed" wait_for 10 no_file pt-b pt-key
hostctl delete --force pt-b >/dev/null

# --- the authority
grant_wire() { hostctl secret grant pt-key "$1" --host api.example.com --header Authorization; }
check "a grant for the wire" grant_wire pt-a
hostctl secret authority pt-a >"$work/ca.pem"
check "the authority is in the instance when the grant is answered" sh -c "hostctl exec pt-a -- cat /run/hostd/ca.crt | cmp - '$work/ca.pem'"
check_is "commands have variables" /run/hostd/ca-bundle.crt ex -u agent pt-a -- sh -c 'echo $SSL_CERT_FILE'
check_is "which the caller's own replace" mine ex -e SSL_CERT_FILE=mine pt-a -- sh -c 'echo $SSL_CERT_FILE'
hostctl restart pt-a >/dev/null
check_is "they are there after a start, for the first command" /run/hostd/ca.crt ex pt-a -- sh -c 'echo $NODE_EXTRA_CA_CERTS'
check "the last grant is taken back" hostctl secret ungrant "$(id_of pt-a pt-key header)"
check "certificate and variables are gone" nothing_left pt-a
check "no warning is left" sh -c "! hostctl warning list -f csv | grep delivery"

# --- values that are minted
mkdir -m 0755 "$work/mint" && chmod 0755 "$work"
cat >"$work/mint/good" <<SH
#!/bin/sh
[ ! -e "$work/mint/fail" ] || exit 3
read -r line && exit 4
echo "minted-\$(date +%s%N)-\$HOSTD_SECRET-\$(id -u)-\$(grep -c '^CapBnd:.0*\$' /proc/self/status)-\$(sed -n 's/^NoNewPrivs:.//p' /proc/self/status)"
SH
printf '#!/bin/sh\nexit 5\n' >"$work/mint/fails"
printf '#!/bin/sh\ntrue\n' >"$work/mint/silent"
printf '#!/bin/sh\nhead -c 20000 /dev/zero | tr "\\000" x\n' >"$work/mint/floods"
chmod 0755 "$work"/mint/*
mint() { within 30 hostctl secret set pt-mint --command "$@"; }
check_status "a path that is not absolute mints nothing" 2 "command" mint mint/good
check_status "nor a program that is not there" 9 "exited with 127" mint "$work/mint/none"
check_status "nor one that fails" 9 "exited with 5" mint "$work/mint/fails"
check_status "nor one that says nothing" 2 "printed nothing" mint "$work/mint/silent"
check_status "nor one that says too much" 2 "more than a value" mint "$work/mint/floods"
check_status "nor root" 2 "root" mint "$work/mint/good" --user root
check_status "nor for a day" 2 "for" mint "$work/mint/good" --for 24h
check_not "and nothing is left of it" sh -c "hostctl secret list -f csv | grep pt-mint"
check_status "a program mints the value" 0 pt-mint mint "$work/mint/good" --for 16s
version() { hostctl secret list -f csv -c secret,version | tr -d '\r' | sed -n 's/^pt-mint,//p'; }
version_is_over() { [ "$(version)" -gt "$1" ]; }
hostctl secret grant pt-mint pt-a --file >/dev/null
check_is "as nobody, without rights and without input" 1 ex pt-a -- grep -c '^minted-[0-9]*-pt-mint-65534-1-1$' /run/hostd/secrets/pt-mint
first=$(sum_inside pt-a -- md5sum /run/hostd/secrets/pt-mint)
check "it is minted again before it ends" wait_for 14 version_is_over 1
is_new() { [ "$(sum_inside pt-a -- md5sum /run/hostd/secrets/pt-mint)" != "$first" ]; }
check "and is there" wait_for 5 is_new
check_status "nobody else rotates it" 8 "come from" sh -c "echo other-value | hostctl secret rotate pt-mint"
touch "$work/mint/fail"
check "a failure is a warning" wait_for 25 sh -c "hostctl warning list -f csv | grep -q '^mint,pt-mint'"
check "what has ended is used no more" wait_for 25 no_file pt-a pt-mint
check_status "and its grants say so" 0 "pt-mint,pt-a,file,.*,expired" grants pt-a
hostd_crash || fail hostd "it does not come back"
check "nor by the next hostd" no_file pt-a pt-mint
rm "$work/mint/fail"
has_file() { ex pt-a -- test -e /run/hostd/secrets/pt-mint; }
check "until there is a new one" wait_for 30 has_file
check_not "then nobody warns" sh -c "hostctl warning list -f csv | grep -q '^mint,pt-mint'"
check "it is revoked" hostctl secret revoke pt-mint
check "with its file" no_file pt-a pt-mint

# --- values in what is shown
launch pt-r >/dev/null || fail launch pt-r
set_secret pt-short 1234567
redactors() { pgrep -x hostd-redact | wc -l; }
check_is "without grants nothing stands in between" "$rotated 0 " sh -c "(hostctl exec pt-r -- sh -c 'echo $rotated; sleep 1' & sleep 0.7; pgrep -x hostd-redact | wc -l; wait) | tr '\n' ' '"
hostctl secret grant pt-key pt-r --file >/dev/null
hostctl secret grant pt-short pt-r --file >/dev/null
check_is "a value in the output of a command is its name" "a [secret pt-key] b" ex pt-r -- sh -c 'echo "a $(cat /run/hostd/secrets/pt-key) b"'
check_is "and in its errors" "[secret pt-key]" sh -c "hostctl exec pt-r -- sh -c 'cat /run/hostd/secrets/pt-key >&2; echo >&2' 2>&1 >/dev/null | grep -v hostctl:"
check_status "which is counted" 0 "2 times the value of a secret was replaced" ex pt-r -- sh -c 'cat /run/hostd/secrets/pt-key /run/hostd/secrets/pt-key'
check_status "in the audit, too" 0 '"redacted": ?\{"pt-key": ?2\}' sh -c "hostctl audit tail -n 3 -f json | tr -d '\n ' | sed 's/:/: /g'"
check_status "and the exit status stays" 7 "secret pt-key" ex pt-r -- sh -c 'cat /run/hostd/secrets/pt-key; exit 7'
check_is "in pieces" "[secret pt-key]." ex pt-r -- sh -c 'v=$(cat /run/hostd/secrets/pt-key); printf %s "${v%????????}"; printf %s "${v#"${v%????????}"}"; printf .'
check_is "a beginning of one waits a moment only" "${rotated%????}" sh -c "timeout 20 hostctl exec pt-r -- sh -c 'printf %s ${rotated%????}; sleep 30' 2>/dev/null & sleep 3; kill \$! 2>/dev/null; wait"
check_is "a value that is short stays" 1234567 ex pt-r -- cat /run/hostd/secrets/pt-short
check_is "as an argument, it never was in the instance" "x[secret pt-key]x" ex pt-r -- echo "x${rotated}x"
expected=$(awk 'BEGIN { for (i = 0; i < 200000; i++) print i, "[secret pt-key]", "tail" }' | sha256sum)
check_is "everywhere in megabytes, and nothing else is changed" "$expected" sh -c "hostctl exec pt-r -- awk -v v=$rotated 'BEGIN { for (i = 0; i < 200000; i++) print i, v, \"tail\" }' 2>/dev/null | sha256sum"
check_is "input goes its own way" "$(sum "in $rotated")" sh -c "printf 'in $rotated' | hostctl exec pt-r -- md5sum | cut -d' ' -f1"
: >"$work/rounds"
for _ in $(seq 40); do ex pt-r -- sh -c 'echo x; exec >&- 2>&-' >>"$work/rounds" 2>&1; done
check_is "streams that end with the command, over and over" "40 x" sh -c "sort '$work/rounds' | uniq -c | sed 's/^ *//'"
begin=$(now_ms)
check_is "what runs on in the background is not waited for" now ex pt-r -- sh -c '(sleep 20; echo late) & echo now'
[ $(($(now_ms) - begin)) -lt 10000 ] && ok "and takes no time" || fail "and takes no time" "$(($(now_ms) - begin)) ms"
wait_for 5 sh -c '! pgrep -x hostd-redact' || fail redactors "$(redactors) are left"
ex pt-r -- sh -c 'echo begun; sleep 5; cat /run/hostd/secrets/pt-key' >"$work/survives" 2>/dev/null &
survivor=$!
wait_for 5 grep -q begun "$work/survives"
pid=$(pgrep -x hostd-redact | head -n 1)
check "it is nobody, confined, and has no capability" sh -c "grep -q '^CapEff:[[:space:]]*0*\$' /proc/$pid/status && grep -q '^NoNewPrivs:[[:space:]]*1' /proc/$pid/status && grep -q '^Seccomp:[[:space:]]*2' /proc/$pid/status && ! grep -q '^Uid:[[:space:]]*0' /proc/$pid/status"
hostd_crash || fail hostd "it does not come back"
wait $survivor
check_is "it outlives hostd" "begun
[secret pt-key]" cat "$work/survives"
ex pt-r -- sh -c 'echo first; sleep 20; echo second' >"$work/dies" 2>"$work/dies.err" &
killed=$!
wait_for 5 grep -q first "$work/dies"
pkill -9 -x -u "$(stat -c %u "/proc/$(pgrep -x hostd-redact | head -n 1)")" hostd-redact
wait $killed
check "its death ends the output" sh -c "! grep -q second '$work/dies'"
check "and is told" grep -q "hostd-redact" "$work/dies.err"
ex pt-r -- sh -c 'cat /run/hostd/secrets/pt-key >/dev/console; echo >/dev/console'
check "the console's log has the name" wait_for 10 sh -c "hostctl log pt-r | grep -q 'secret pt-key'"
check_not "and not the value" sh -c "hostctl log pt-r | grep -q $rotated"
hostctl secret ungrant "$(id_of pt-r pt-key file)" >/dev/null
check_is "a secret that is granted no more is not looked for" "$rotated" ex pt-r -- echo "$rotated"
hostctl delete --force pt-r >/dev/null

# --- real programs
template=
for t in clients agent; do [ -z "$template" ] && hostctl template show $t >/dev/null 2>&1 && template=$t; done
if [ -z "$template" ]; then
        skip "real programs" "there is no template \`clients\` and no \`agent\`"
        end
fi
launch_from $template pt-c memory=512MiB disk=1GiB >/dev/null || { fail launch pt-c; end; }
ex pt-c -- sh -c 'id agent >/dev/null 2>&1 || useradd -m -u 1000 agent'
has() { ex pt-c -- sh -c "command -v $1 >/dev/null"; }
check "a grant for an instance with systemd" grant_wire pt-c
if [ ! -x /usr/sbin/haproxy ]; then
        skip "real programs" "no haproxy, so nobody has a leaf of the authority"
        end
fi
leaf() { find "$HOSTD_RUN/haproxy/$(slot pt-c)/" -path '*/crt/*.pem' 2>/dev/null | head -n 1; }
has_leaf() { [ -n "$(leaf)" ]; }
check "hostd has issued a leaf" wait_for 30 has_leaf
store_has() { ex pt-c -- grep -qF "$(sed -n 2p <(hostctl secret authority pt-c))" /etc/ssl/certs/ca-certificates.crt; }
store_has_not() { ! store_has; }
check "its trust store has the authority, by its own update-ca-certificates" wait_for 180 store_has
check_is "systemd gives the variables to what it starts" SSL_CERT_FILE=/run/hostd/ca-bundle.crt ex pt-c -- sh -c 'until [ -d /run/systemd/system ]; do sleep 0.1; done; systemd-run -q --pipe --wait env | grep SSL_CERT_FILE'
check_is "a login shell has them" /run/hostd/ca-bundle.crt ex --login pt-c -- sh -lc 'echo $SSL_CERT_FILE'

# A server in the instance: a package index, an npm registry, a git repository.
cat >"$work/server.py" <<'PY'
import http.server, io, json, ssl, zipfile
def wheel():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("pt_pkg.py", "")
        z.writestr("pt_pkg-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: pt-pkg\nVersion: 1.0\n")
        z.writestr("pt_pkg-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: pt\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("pt_pkg-1.0.dist-info/RECORD", "")
    return out.getvalue()
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        page = {"/hello": b"hello", "/simple/pt-pkg/": b'<a href="/pt_pkg-1.0-py3-none-any.whl">pt_pkg-1.0-py3-none-any.whl</a>',
                "/pt_pkg-1.0-py3-none-any.whl": wheel(),
                "/pt-pkg": json.dumps({"name": "pt-pkg", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "pt-pkg", "version": "1.0.0", "dist": {"tarball": "https://api.example.com/x.tgz", "shasum": "0"}}}}).encode()}.get(self.path)
        if page is None:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if self.path.startswith("/simple") else "application/json" if self.path == "/pt-pkg" else "application/octet-stream")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/root/leaf.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
PY
if ! has python3; then
        skip "real programs" "$template has no python3 to serve them"
        end
fi
hostctl file push "$work/server.py" pt-c:/root/server.py >/dev/null
hostctl file push "$(leaf)" pt-c:/root/leaf.pem >/dev/null
ex pt-c -- sh -c 'echo 127.0.0.1 api.example.com >>/etc/hosts; mkdir -p /srv/www; cd /srv/www; systemd-run -q --unit=pt-server --working-directory=/srv/www python3 /root/server.py'
serves() { ex pt-c -- python3 -c 'import socket; socket.create_connection(("127.0.0.1", 443), 2)'; }
wait_for 20 serves || fail server "it does not listen"
url=https://api.example.com
# each with the variables that hostd gives, and without any: then the trust store has to do
program() { # NAME PROGRAM WORD... : prints `hello`
        local name=$1 program=$2
        shift 2
        if ! has "$program"; then skip "$name" "$template has no $program"; return; fi
        check_is "$name trusts the authority" hello ex -u agent pt-c -- "$@"
}
program curl curl curl -sS $url/hello
program "curl without variables" curl env -i PATH=/usr/bin:/bin curl -sS $url/hello
program wget wget wget -qO- $url/hello
program "python's own ssl" python3 python3 -c "import urllib.request as u; print(u.urlopen('$url/hello').read().decode())"
program "python's own ssl without variables" python3 env -i PATH=/usr/bin:/bin python3 -c "import urllib.request as u; print(u.urlopen('$url/hello').read().decode())"
if ex pt-c -- python3 -c 'import requests' 2>/dev/null; then
        program requests python3 python3 -c "import requests; print(requests.get('$url/hello').text)"
else
        skip requests "$template has no python3-requests"
fi
program pip pip3 sh -c "cd /tmp && pip3 -q download --no-deps --no-cache-dir -i $url/simple/ -d /tmp/pip pt-pkg >&2 && [ -s /tmp/pip/pt_pkg-1.0-py3-none-any.whl ] && echo hello"
program node node node -e "require('https').get('$url/hello', r => r.on('data', d => console.log(String(d)))).on('error', e => { console.error(e); process.exit(1) })"
program npm npm sh -c "cd /tmp && npm view pt-pkg version --registry $url/ --cache /tmp/npm --no-update-notifier | sed 's/^1.0.0\$/hello/'"
if has git; then
        ex pt-c -- sh -c 'cd /srv/www && git init -q --bare repo && cd repo && t=$(git mktree </dev/null) && c=$(GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com git commit-tree -m x "$t") && git update-ref refs/heads/hello "$c" && git update-server-info'
fi
program git git sh -c "git ls-remote $url/repo refs/heads/hello | sed 's|.*refs/heads/||'"
program openssl openssl sh -c "openssl s_client -connect 127.0.0.1:443 -servername api.example.com -verify_return_error </dev/null 2>&1 | sed -n 's/.*Verify return code: 0 (ok).*/hello/p' | head -n 1"

hostctl restart pt-c >/dev/null
check_is "after a start of the instance" /run/hostd/ca-bundle.crt ex pt-c -- sh -c 'echo $SSL_CERT_FILE'
check "the last grant is taken back" hostctl secret ungrant "$(id_of pt-c pt-key header)"
check "the trust store has forgotten the authority" wait_for 180 store_has_not
no_anchor() { ! ex pt-c -- test -e /etc/ssl/certs/hostd.pem -o -L /etc/ssl/certs/hostd.pem -o -e /usr/local/share/ca-certificates/hostd.crt -o -e /usr/local/share/ca-certificates/hostd.crt.removed; }
check "with its link" wait_for 180 no_anchor
check_not "nothing else is left" ex pt-c -- test -e /etc/ssl/certs/hostd.pem -o -e /usr/local/share/ca-certificates/hostd.crt -o -e /etc/profile.d/hostd.sh -o -e /run/hostd/ca.crt
check_is "systemd has, too" none ex pt-c -- sh -c 'systemd-run -q --pipe --wait env | grep SSL_CERT_FILE || echo none'
check "and other authorities are still there" ex pt-c -- sh -c '[ "$(grep -c BEGIN /etc/ssl/certs/ca-certificates.crt)" -gt 50 ]'
end
