#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# hostd-diff over an upper directory and a template made by hand, with everything a hostile guest could leave there.
# usage: diff.sh BUILD_DIR; needs root.
set -u
build=$(cd "${1:-.}" && pwd)
passed=0 failed=0 skipped=0 slow=${HOSTD_TEST_SLOW:-1}
ok() { passed=$((passed + 1)); echo "ok: $*"; }
bad() { failed=$((failed + 1)); echo "FAILED: $*"; }
skip() { skipped=$((skipped + 1)); echo "SKIP: $*"; }
check() { local what=$1; shift; if "$@" >"$top/out" 2>&1; then ok "$what"; else bad "$what: $(tail -n 5 "$top/out")"; fi; }
finish() { echo "$passed passed, $failed failed, $skipped skipped"; [ "$failed" = 0 ]; exit; }

[ "$(id -u)" = 0 ] || { skip "needs root"; finish; }
top=$(mktemp -d /var/tmp/hostd-test-diff.XXXXXX)
trap 'rm -rf --one-file-system "$top"' EXIT
base=524288000 count=1048576
upper=$top/upper lower=$top/lower
mkdir "$upper" "$lower"
chmod 0700 "$top" # as /var/lib/hostd is

# Prints "LETTER TYPE MODE UID GID SIZE PATH-AS-JSON [TARGET]" by path, then "end" or "cut": a second reader of the format.
cat >"$top/read.py" <<'EOF'
import json, struct, sys
data = sys.stdin.buffer.read()
assert data[:8] == b"hostdtr1", data[:20]
at, rows, end = 8, [], None
while at < len(data):
    magic, kind, n, mode, uid, gid, nsec, sec, size, m, change, zero = struct.unpack_from("<IHHIIIIqQHHI", data, at)
    assert magic == 0x63657274 and zero == 0
    path, target = data[at + 48:at + 48 + n], data[at + 48 + n:at + 48 + n + m]
    at += 48 + n + m
    if kind == 5:
        assert at == len(data) and size == len(rows)
        end = "cut" if change == ord("T") else "end"
    else:
        text = [json.dumps(s.decode("utf-8", "backslashreplace")) for s in (path, target) if s or s is path]
        rows.append((path, chr(change), kind, oct(mode), uid, gid, size, *text))
for row in sorted(rows):
    print(*row[1:])
print(end)
EOF
run() { timeout $((100 * slow)) "$build/hostd-diff" "$upper" "${1:-$lower}" $base $count; }
list() { run "$@" | python3 "$top/read.py"; }
expect() { # WHAT LINE: the last list has it
        if grep -qxF -- "$2" "$top/list"; then ok "$1"; else bad "$1: no line «$2» in: $(head -c 1500 "$top/list")"; fi
}
refuse() { if grep -qE -- "$2" "$top/list"; then bad "$1: $(grep -E -- "$2" "$top/list" | head -3)"; else ok "$1"; fi; }

list >"$top/list" 2>"$top/err" || { bad "an empty upper directory: $(cat "$top/err")"; finish; }
expect "nothing changed, nothing listed" end

# The template
mkdir -p "$lower"/{etc/cron.d,usr/bin,var/gone,opt/replaced/below,root}
for f in etc/passwd etc/shadow usr/bin/tool var/gone/a opt/replaced/below/x root/secret; do echo "$f" >"$lower/$f"; done
chmod 0600 "$lower/etc/shadow"; chmod 0700 "$lower/root"; chown -R 1000:1000 "$lower/opt"
# What the guest left
mkdir -p "$upper"/{etc/cron.d,usr/bin,opt/replaced,root,home/me/.private,dev,deep}
cp -a "$lower/etc/passwd" "$upper/etc/passwd"              # opened for writing, content as it was
echo more >"$upper/etc/cron.d/job"
mknod "$upper/usr/bin/tool" c 0 0                          # whiteouts: of a file, of a tree, of nothing
mknod "$upper/etc/never-was" c 0 0
mkdir -p "$upper/var"; mknod "$upper/var/gone" c 0 0
chown -R 1000:1000 "$upper/opt"
setfattr -n trusted.overlay.opaque -v y "$upper/opt/replaced" 2>/dev/null && opaque=yes || opaque=no
echo new >"$upper/opt/replaced/new"
chmod 0700 "$upper/root"; echo x >"$upper/root/added"
chmod 0500 "$upper/etc/cron.d"                             # a directory whose mode changed
chown -R 1000:1000 "$upper/home/me"; chmod 0700 "$upper/home/me/.private"
echo s >"$upper/home/me/.private/file"; chown 1000:1000 "$upper/home/me/.private/file"
chmod 0 "$upper/home/me/.private/file"; chmod 0100 "$upper/home/me/.private"
ln -s /etc/shadow "$upper/etc/link"
ln -s ../../../../../../../../etc "$upper/outside"
ln -s / "$upper/home/me/root"
mkfifo "$upper/home/me/fifo"
mknod "$upper/dev/disk" b 8 0; mknod "$upper/dev/mem" c 1 1
python3 - "$upper" <<'EOF'
import os, socket, sys
top = os.fsencode(sys.argv[1])
for name in (b"new\nline", b"\x1b[2J", b"not\xffutf8", b"-rf", b"a b\"c'", b"x" * 255, b"..."):
    open(os.path.join(top, b"etc", name), "w").close()
s = socket.socket(socket.AF_UNIX); os.chdir(top + b"/home/me"); s.bind("socket")
os.chdir(top + b"/deep")
for i in range(400):                      # deeper than any list goes, and longer than any path
    os.mkdir("d" * 20); os.chdir("d" * 20)
EOF
chown 3000000:3000000 "$upper/etc/link" -h                 # an id outside of the instance's range

list >"$top/list" 2>"$top/err"; status=$?
check "the walk ends well: $(cat "$top/err")" [ $status = 0 ]
expect "the list is whole" end
expect "an added file" 'A 2 0o100644 0 0 5 "etc/cron.d/job"'
expect "a copied-up file" 'M 2 0o100644 0 0 11 "etc/passwd"'
expect "a directory with another mode" 'M 1 0o40500 0 0 0 "etc/cron.d"'
expect "a deleted file, as it was" 'D 2 0o100644 0 0 13 "usr/bin/tool"'
expect "a deleted tree, once" 'D 1 0o40755 0 0 0 "var/gone"'
refuse "a whiteout over nothing is nothing" never-was
refuse "directories on the way are not changes" '"(etc|usr|usr/bin|var|opt|root)"$'
refuse "what did not change is not listed" ' "(etc/shadow|root/secret)"( |$)'
expect "a file in a 0700 directory" 'A 2 0o100644 0 0 2 "root/added"'
expect "a file that its owner cannot read, in one that cannot be listed" 'A 2 0o100000 1000 1000 2 "home/me/.private/file"'
expect "a link to a secret is a link, and its owner is nobody" 'A 3 0o120777 65534 65534 0 "etc/link" "/etc/shadow"'
expect "a link upwards is a link" 'A 3 0o120777 0 0 0 "outside" "../../../../../../../../etc"'
refuse "nothing behind a link is listed" '"(outside|home/me/root)/'
expect "a pipe is not opened" 'A 4 0o10644 0 0 0 "home/me/fifo"'
expect "a socket" 'A 4 0o140755 0 0 0 "home/me/socket"'
expect "a disk" 'A 4 0o60644 0 0 0 "dev/disk"'
expect "memory" 'A 4 0o20644 0 0 0 "dev/mem"'
expect "a name with a newline" 'A 2 0o100644 0 0 0 "etc/new\nline"'
expect "a name with an escape" 'A 2 0o100644 0 0 0 "etc/\u001b[2J"'
expect "a name that is no UTF-8" 'A 2 0o100644 0 0 0 "etc/not\\xffutf8"'
expect "a name of three dots" 'A 2 0o100644 0 0 0 "etc/..."'
expect "a name of 255 bytes" "A 2 0o100644 0 0 0 \"etc/$(printf 'x%.0s' {1..255})\""
check "what is too deep is said, once" [ "$(grep -c '^? ' "$top/list")" = 1 ]
if [ $opaque = yes ]; then
        expect "an opaque directory" 'O 1 0o40755 1000 1000 0 "opt/replaced"'
        expect "what is in it" 'A 2 0o100644 0 0 4 "opt/replaced/new"'
else
        skip "trusted.overlay.opaque cannot be set here"
fi
list - >"$top/list"
expect "without a template everything was added" 'A 1 0o40755 0 0 0 "etc"'
expect "without a template a whiteout is a deletion" 'D 4 0o20644 0 0 0 "etc/never-was"'

# A real overlay: what the kernel writes is what is understood.
mkdir "$top"/{u2,w2,m2}
if mount -t overlay -o "lowerdir=$lower,upperdir=$top/u2,workdir=$top/w2,metacopy=off" overlay "$top/m2" 2>/dev/null; then
        rm -rf "$top/m2/opt/replaced"; mkdir "$top/m2/opt/replaced"; rm "$top/m2/usr/bin/tool"; echo y >>"$top/m2/etc/passwd"; rm -rf "$top/m2/var"
        umount "$top/m2"
        upper=$top/u2
        list >"$top/list"
        expect "overlay: replaced" 'O 1 0o40755 0 0 0 "opt/replaced"'
        expect "overlay: deleted" 'D 2 0o100644 0 0 13 "usr/bin/tool"'
        expect "overlay: deleted tree" 'D 1 0o40755 0 0 0 "var"'
        expect "overlay: modified" 'M 2 0o100644 0 0 13 "etc/passwd"'
        check "overlay: nothing else" [ "$(wc -l <"$top/list")" = 5 ]
        upper=$top/upper
else
        skip "overlay: cannot be mounted on $top"
fi

# A guest that swaps directories and links under the walk leads it nowhere.
mkdir -p "$upper/race"/{a,b}; echo outside >"$top/outside-file"
python3 - "$upper/race" "$top" <<'EOF' &
import os, sys, time
os.chdir(sys.argv[1]); end = time.time() + 3
os.symlink(sys.argv[2], "l")
while time.time() < end:
    for x, y in (("a", "t"), ("l", "a"), ("a", "l"), ("t", "a")):
        os.rename(x, y)
EOF
racer=$!
for i in $(seq 60); do list >>"$top/raced" 2>&1; done
wait $racer
check "a racing guest: lists come out whole" [ "$(grep -c '^end$' "$top/raced")" = 60 ]
check "a racing guest: nothing of the host is listed" sh -c "! grep -q outside-file '$top/raced'"
rm -rf "$upper/race"

# Privileges: as the walk blocks on a full pipe that nobody reads
mkdir "$upper/many"; (cd "$upper/many" && seq 4000 | xargs touch)
mkfifo "$top/pipe"
run >"$top/pipe" & keeper=$!
exec 7<"$top/pipe"
# The filter is what it takes last; timeout(1) is not ours.
find_walker() {
        for pid in $(pgrep -f "^$build/hostd-diff"); do
                case $(awk '/^(Uid|Seccomp):/ { print $2 }' "/proc/$pid/status" 2>/dev/null | xargs) in "$base 2") walker=$pid; return 0 ;; esac
        done
        return 1
}
for i in $(seq $((50 * slow))); do find_walker && break; sleep 0.1; done
if [ -n "${walker:-}" ]; then
        # A walker is not dumpable, so /proc is root's, but readable to us.
        check "the walker has the instance's ids" grep -qE "^Gid:	$base	$base	$base	$base" "/proc/$walker/status"
        check "the walker has one capability, in its namespace" grep -qx "CapEff:	0000000000000004" "/proc/$walker/status"
        check "the walker can gain none" grep -qx "CapBnd:	0000000000000000" "/proc/$walker/status"
        check "the walker has no new privileges" grep -qx "NoNewPrivs:	1" "/proc/$walker/status"
        check "the walker is filtered" grep -qx "Seccomp:	2" "/proc/$walker/status"
        check "the walker is in another user namespace" [ "$(readlink "/proc/$walker/ns/user")" != "$(readlink /proc/self/ns/user)" ]
        parent=$(awk '/^PPid/ { print $2 }' "/proc/$walker/status")
        check "the keeper has one capability" grep -qx "CapEff:	0000000000200000" "/proc/$parent/status"
        kill -9 "$parent"
        for i in $(seq $((30 * slow))); do grep -s '^State:' "/proc/$walker/status" | grep -qv Z || break; sleep 0.1; done
        check "the walker dies with its keeper" sh -c "! grep -s '^State:' /proc/$walker/status | grep -v Z"
else
        bad "no walker to look at"
fi
exec 7<&-
wait $keeper 2>/dev/null
run | head -c 100 >/dev/null
check "a reader that goes away ends it" [ "${PIPESTATUS[0]}" != 124 ]
rm -rf "$upper/many"

check "a million entries and no more" python3 - "$upper" <<'EOF'
import os, sys
os.mkdir(sys.argv[1] + "/million"); os.chdir(sys.argv[1] + "/million")
for i in range(101):
    os.mkdir(str(i))
    first = f"{i}/0"
    open(first, "w").close()
    for k in range(1, 10000):
        os.link(first, f"{i}/{k}")
EOF
start=$(date +%s%N)
list >"$top/list"
check "then the list says that it was cut" [ "$(tail -1 "$top/list")" = cut ]
check "and has a million" [ "$(wc -l <"$top/list")" = 1000001 ]
echo "a million changes listed in $((($(date +%s%N) - start) / 1000000)) ms"
rm -rf "$upper/million"

check "base 0, which would be root of the host, is refused" sh -c "'$build/hostd-diff' '$upper' '$lower' 0 65536; [ \$? = 2 ]"
check "a link as upper directory is refused" sh -c "ln -s / '$top/l'; ! '$build/hostd-diff' '$top/l' - $base $count >/dev/null"
finish
