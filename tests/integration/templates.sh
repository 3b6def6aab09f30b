#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Templates for real: builds `debian` without privileges, mounts it, imports trees, refuses hostile archives, and is killed
# in the middle. Run as root from the build directory; TOP is the source tree.
set -u
top=${TOP:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${BUILD:-$PWD}
driver=$build/tests/integration/template_driver
user=hostd-tmpl-test
passed=0 failed=0 skipped=0
ok() { echo "ok: $1"; passed=$((passed + 1)); }
bad() { echo "FAILED: $1"; failed=$((failed + 1)); }
skip() { echo "SKIP: $1"; skipped=$((skipped + 1)); }
# check TEXT COMMAND…: the command succeeds.
check() { local text=$1; shift; if "$@" >/dev/null 2>&1; then ok "$text"; else bad "$text"; fi; }
refute() { local text=$1; shift; if "$@" >/dev/null 2>&1; then bad "$text"; else ok "$text"; fi; }
finish() { echo "$passed passed, $failed failed, $skipped skipped"; [ "$failed" = 0 ]; exit $?; }

[ "$(id -u)" = 0 ] || { skip "needs root"; finish; }
for p in mmdebstrap mkfs.erofs newuidmap busybox python3; do
        command -v "$p" >/dev/null || { skip "$p is not installed"; finish; }
done
[ -e /dev/loop-control ] || { skip "this machine has no loop devices"; finish; }

work=$(mktemp -d /var/tmp/hostd-templates-XXXXXX)
mkdir -m 700 "$work/state" "$work/run"
cp "$build/hostd-build" "$work/hostd-build"
chmod 711 "$work"
cleanup() {
        for m in "$work"/run/templates/*; do mountpoint -q "$m" && umount "$m"; done
        rm -rf "$work"
        userdel "$user" 2>/dev/null
        sed -i "/^$user:/d" /etc/subuid /etc/subgid
}
trap cleanup EXIT

# A range that no line of either file touches.
free_range() {
        cat /etc/subuid /etc/subgid 2>/dev/null | awk -F: '{e = $2 + $3; if (e > m) m = e}
                END {s = 2100000000; if (m > s) s = m; print s}'
}
useradd -r -M -s /usr/sbin/nologin -d /nonexistent "$user" || { skip "cannot make a test user"; finish; }
sed -i "/^$user:/d" /etc/subuid /etc/subgid
start=$(free_range)
echo "$user:$start:65536" | tee -a /etc/subuid >>/etc/subgid
uid=$(id -u "$user") gid=$(id -g "$user")

drive() { "$driver" "$work/state" "$work/run" "$@"; }
import() { drive import "$work/hostd-build" "$uid" "$gid" "$@" 2>>"$work/log"; }
build_recipe() { drive build "$work/hostd-build" "$uid" "$gid" "$@" 2>>"$work/log"; }
# Processes of the user or its subids; a zombie is dead, however slow this machine's init is to collect it.
alive() { ps -eo uid=,pid=,stat=,args= | awk -v u="$uid" -v s="$start" '$3 !~ /^Z/ && ($1 == u || ($1 >= s && $1 < s + 65536))'; }
# Nothing may be left of jobs: no scratch, no process of the user or its subids, no mount of theirs.
left() {
        ls -A "$work/state/build" 2>/dev/null
        ls "$work/state/templates" 2>/dev/null | grep -v -E '^[0-9a-f]{64}\.(erofs|json)$'
        alive
        grep -F "$work/state" /proc/self/mounts
}
clean() {
        local i
        for i in 1 2 3 4 5 6 7 8 9 10; do [ -z "$(left)" ] && { ok "$1"; return; }; sleep 0.1; done
        bad "$1"; left | head -5
}

# --- import ---------------------------------------------------------------------------------------------------------
mkdir -p "$work/box/"{bin,sbin,etc,dev,proc,sys,usr,var/log,etc/ssh}
cp "$(command -v busybox)" "$work/box/bin/busybox"
ln -s ../bin/busybox "$work/box/sbin/init"
ln -s busybox "$work/box/bin/sh"
echo 0123456789abcdef0123456789abcdef >"$work/box/etc/machine-id"
echo secret >"$work/box/etc/ssh/ssh_host_rsa_key"
echo line >"$work/box/var/log/x.log"
chmod 4755 "$work/box/bin/busybox"
tar -C "$work/box" -c . >"$work/box.tar"
out=$(import box <"$work/box.tar"); digest=$(sed -n 's/^digest //p' <<<"$out")
[[ $digest =~ ^[0-9a-f]{64}$ ]] && ok "a tarball becomes a template" || bad "a tarball becomes a template: $out"
check "the digest is of the image" test "$(sha256sum <"$work/state/templates/$digest.erofs" | cut -c1-64)" = "$digest"
for z in gzip xz zstd; do
        command -v $z >/dev/null || { skip "$z is not installed"; continue; }
        $z -q -c "$work/box.tar" >"$work/box.tar.$z"
        out=$(import box <"$work/box.tar.$z")
        [ "$(sed -n 's/^digest //p' <<<"$out")" = "$digest" ] && ok "the same tree packed by $z is the same image" || bad "$z: $out"
done
out=$(import other <"$work/box.tar")
grep -q "already here as the template box" <<<"$out" && ok "one image has one name" || bad "one image has one name: $out"
out=$(import boxdir <"$work/box")
grep -q '^digest ' <<<"$out" && ok "a directory becomes a template" || { grep -q "already here" <<<"$out" && ok "a directory becomes the same image"; } || bad "a directory: $out"
# The files of an overlay come with other devices than its directories, and are of one mount all the same.
mkdir "$work/layers" "$work/merged"
if mount -t tmpfs none "$work/layers" && mkdir "$work/layers/"{upper,work} &&
        mount -t overlay -o "lowerdir=$work/box,upperdir=$work/layers/upper,workdir=$work/layers/work" none "$work/merged"; then
        echo more >"$work/merged/etc/more"
        mkdir "$work/merged/usr/elsewhere" && mount -t tmpfs none "$work/merged/usr/elsewhere" && touch "$work/merged/usr/elsewhere/not-of-it"
        out=$(import merged <"$work/merged")
        if path=$(drive mount merged) && [ -x "$path/sbin/init" ] && [ -e "$path/etc/more" ]; then ok "an overlay becomes a template with all of its files"; else bad "an overlay: $out"; fi
        refute "without what is mounted below it" test -e "$path/usr/elsewhere/not-of-it"
        drive unmount merged >/dev/null
        umount "$work/merged/usr/elsewhere" "$work/merged"
else
        skip "an overlay as a directory: no overlay can be mounted here"
fi
umount "$work/layers" 2>/dev/null
path=$(drive mount box)
check "the image is mounted" mountpoint -q "$path"
check "mounted read-only and nodev, set-uid kept" grep -q "$path erofs ro,nodev,relatime" /proc/self/mounts
check "a second hostd finds it mounted" test "$(drive mount box)" = "$path"
check "one mount, not two" test "$(grep -c "$path " /proc/self/mounts)" = 1
check "ids are 0-based and set-uid stays" test "$(stat -c %u:%a "$path/bin/busybox")" = 0:4755
check "the machine id is empty" test ! -s "$path/etc/machine-id"
refute "no SSH host keys" test -e "$path/etc/ssh/ssh_host_rsa_key"
check "no logs" test -z "$(find "$path/var/log" -type f)"
check "the resolver is the border's" grep -qx "nameserver 169.254.0.1" "$path/etc/resolv.conf"
check "verify recomputes" drive verify "$digest"
check "it unmounts" drive unmount box
refute "and is gone" mountpoint -q "$path"
clean "imports leave nothing"

# --- where its package clients fetch from ------------------------------------------------------------------------------
# Clients that say what real ones say, by the name of their own: hosts come from nowhere else.
cp -a "$work/box" "$work/shop"
mkdir -p "$work/shop/"{usr/bin,tmp,run,home/me/.cargo}
echo 'me:x:1000:1000::/home/me:/bin/sh' >"$work/shop/etc/passwd"
printf '%s\n' '# of the site' 'https_proxy="http://proxy.example.org:3128/"' 'GOPROXY=https://go.example.org' >"$work/shop/etc/environment"
printf '[source.x]\nregistry = "sparse+https://crates.example.org/index/"\n' >"$work/shop/home/me/.cargo/config.toml"
client() { { echo '#!/bin/sh'; cat; } >"$work/shop/usr/bin/$1"; chmod 755 "$work/shop/usr/bin/$1"; }
client apt-get <<'L'
echo "http://deb.example.org/debian/dists/x/Packages"
echo "mirror+https://u:word@sec.example.org:8443/x"
echo "file:/srv/packages http://10.0.0.1/ http://localhost/ http://[2001:db8::1]/ https://bad-.example.org/ http://dns.example.org:53/"
L
client npm <<'L'
echo 'registry = "https://npm.example.org/"'
echo '; registry = "https://overridden.example.org/" ; by user'
echo '@mine:registry = "https://npm.example.net/x"'
echo 'homepage = "https://help.example.org/"'
L
client go <<'L'
printf '%s,direct\nsum.example.org\n' "$GOPROXY"
L
client cargo <<'L'
[ -f Cargo.toml ] || exit 1
echo "error: failed to download from \`https://index.example.org/config.json\`" >&2
echo "help: see https://book.example.org/" >&2
mkdir -p "$CARGO_HOME/registry/index/x" && echo '{"dl": "https://files.example.org/{crate}", "api": "https://api.example.org"}' >"$CARGO_HOME/registry/index/x/config.json"
L
# Not pip, which is a program in python: what it is told to ask shows that it was asked.
client python3 <<'L'
case $2 in *pip._internal*) echo "https://pip.example.org/simple None";; esac
id -u >/tmp/uid; echo "https://uid$(id -u).example.org/"
( echo x >/root-was-written ) 2>/dev/null && echo "https://written.example.org/"
[ -e /tmp/work ] || [ -e /proc/1/root/etc/hostname ] || ls /proc/1/fd >/dev/null 2>&1 && echo "https://escaped.example.org/"
grep -q 'CapEff:.0000000000000000' /proc/self/status || echo "https://capable.example.org/"
grep -q 'NoNewPrivs:.1' /proc/self/status || echo "https://privileged.example.org/"
[ "$(tail -n +2 /proc/net/route | wc -l)" = 0 ] || echo "https://network.example.org/"
kill -9 1; kill -9 -1 2>/dev/null
L
chown -R 1000:1000 "$work/shop/home/me"; chmod 700 "$work/shop/home/me"
out=$(tar -C "$work/shop" -c . | import shop)
wanted='crates.example.org:443 deb.example.org:80 files.example.org:443 go.example.org:443 index.example.org:443 npm.example.net:443 npm.example.org:443 pip.example.org:443 proxy.example.org:3128 sec.example.org:8443 sum.example.org:443 uid1000.example.org:443'
mirrors() { drive show "$1" | python3 -c 'import json, sys; print(*sorted(json.load(sys.stdin).get("mirrors", ["NONE"])))'; }
[ "$(mirrors shop)" = "$wanted" ] && ok "clients say where they fetch from, as the first user, without rights or a network" || bad "clients: $(mirrors shop) $out"
digest=$(sed -n 's/^digest //p' <<<"$out")
python3 - "$work/state/templates/$digest.json" <<'P'
import json, sys
manifest = json.load(open(sys.argv[1]))
del manifest["mirrors"]
json.dump(manifest, open(sys.argv[1], "w"))
P
[ "$(mirrors shop)" = NONE ] && ok "a manifest of an older hostd is read" || bad "a manifest without a list: $(mirrors shop)"
out=$(tar -C "$work/shop" -c . | import shop)
[ "$(mirrors shop)" = "$wanted" ] && grep -q "^digest $digest" <<<"$out" && ok "the same image once more brings its list" || bad "the same image once more: $(mirrors shop) $out"
[ -z "$(mirrors box)" ] && ok "a template without clients has an empty list" || bad "a template without clients: $(mirrors box)"
client npm <<'L'
i=0; while [ $i -lt 200 ]; do echo "registry = \"https://m$i.example.org/\""; i=$((i + 1)); done
L
client python3 <<'L'
sleep 300 & exec yes "https://flood.example.org/ $(head -c 2000 /dev/zero | tr '\0' x)"
L
rm "$work/shop/usr/bin/"{apt-get,cargo,go} "$work/shop/etc/environment" "$work/shop/home/me/.cargo/config.toml"
begin=$(date +%s)
out=$(tar -C "$work/shop" -c . | import flood)
[ "$(mirrors flood | wc -w)" = 64 ] && ok "at most 64 hosts of one template" || bad "a flood of hosts: $(mirrors flood | wc -w) $out"
[ $(($(date +%s) - begin)) -lt 60 ] && ok "a client that never ends is ended" || bad "a client that never ends: $(($(date +%s) - begin)) s"
rm -rf "$work/shop/usr/bin" "$work/shop/home"; ln -s /etc "$work/shop/usr/bin"; ln -s / "$work/shop/home"
out=$(tar -C "$work/shop" -c . | import odd)
[ -z "$(mirrors odd)" ] && ok "links in the place of directories mislead nobody" || bad "links: $(mirrors odd) $out"
clean "clients leave nothing"

# --- hostile archives -----------------------------------------------------------------------------------------------
hostile() { # NAME EXPECTED: the archive is on stdin
        local out
        out=$(import "bad-$1")
        if grep -q "^error" <<<"$out" && grep -q -- "$2" <<<"$out"; then ok "refused: $1"; else bad "refused: $1: $out"; fi
}
mk() { python3 - "$1" <<'P'
import io, sys, tarfile
t = tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT)
def add(name, type=tarfile.REGTYPE, link="", data=b"", uid=0):
    i = tarfile.TarInfo(name); i.type = type; i.linkname = link; i.size = len(data); i.mode = 0o755; i.uid = i.gid = uid
    t.addfile(i, io.BytesIO(data))
S, D, H = tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.LNKTYPE
def base(): add("sbin/init", data=b"x")
cases = {
    "absolute": lambda: add("/etc/cron.d/x", data=b"x"),
    "dotdot": lambda: add("a/../../x", data=b"x"),
    "symlink-out": lambda: add("a", S, "../../etc"),
    "through-symlink": lambda: (add("a", S, "/tmp"), add("a/evil", data=b"x")),
    "hardlink-out": lambda: add("a", H, "../../etc/passwd"),
    "device": lambda: add("dev/sda", tarfile.BLKTYPE),
    "fifo": lambda: add("f", tarfile.FIFOTYPE),
    "rootfs-link": lambda: (add("rootfs", S, "/"), add("metadata.yaml", data=b"x")),
    "dev-link": lambda: (base(), add("dev", S, "/")),
    "proc-link": lambda: (base(), add("proc", S, "tmp")),
    "sys-file": lambda: (base(), add("sys", data=b"x")),
    "etc-link": lambda: (base(), add("etc", S, "/etc")),
    "no-init": lambda: add("etc", D),
    "twice": lambda: (add("a", S, "b"), add("a", data=b"x")),
    "big-id": lambda: add("a", uid=100000),
}
cases[sys.argv[1]]()
t.close()
P
}
while read -r name expected; do
        mk "$name" >"$work/bad.tar"
        hostile "$name" "$expected" <"$work/bad.tar"
done <<'L'
absolute absolute path
dotdot in its path
symlink-out leads out of the root
through-symlink behind a link
hardlink-out leads out of the root
device device node
fifo fifo
rootfs-link rootfs is no directory
dev-link /dev is no directory but a link
proc-link /proc is no directory but a link
sys-file /sys is no directory
etc-link /etc is no directory but a link
no-init no executable /sbin/init
twice comes twice
big-id beyond 65535
L
python3 -c 'import sys,tarfile,io,gzip
o=gzip.GzipFile(fileobj=sys.stdout.buffer,mode="wb",compresslevel=9); t=tarfile.open(fileobj=o,mode="w|")
class Z(io.RawIOBase):
    def read(self,n=-1): return bytes(n)
i=tarfile.TarInfo("big"); i.size=300<<20; t.addfile(i,Z()); t.close(); o.close()' >"$work/bomb.tar.gz"
hostile bomb "bomb" <"$work/bomb.tar.gz"
head -c 100000 /dev/urandom >"$work/bad.tar"
hostile noise "no tar archive" <"$work/bad.tar"
# Within what a library reads at once, and beyond it.
head -c 20000 "$work/box.tar.gzip" >"$work/bad.tar"
hostile cut-early "damaged" <"$work/bad.tar"
head -c 400000 "$work/box.tar.gzip" >"$work/bad.tar"
hostile cut-late "damaged" <"$work/bad.tar"
hostile empty "." </dev/null
refute "nothing of them is a template" grep -q bad- <<<"$(drive list)"
clean "refused archives leave nothing"
import "Bad Name" <"$work/box.tar" | grep -q "name" && ok "a bad name is refused" || bad "a bad name is refused"
printf 'name = "x";\nsuite = "sid";\n' >"$work/bad.conf"
build_recipe "$work/bad.conf" | grep -q "suite must be" && ok "a bad recipe is refused" || bad "a bad recipe is refused"

# --- a lying builder: what hostd adopts must be what the manifest says --------------------------------------------
cat >"$work/liar" <<'L'
#!/bin/sh
cd /proc/self/fd/3 || exit 1
echo bytes >image.erofs
printf '{"built":"2026-11-29T23:05:47.709955Z","digest":"%064d","name":"liar","packages":{},"size":6,"version":1}' 7 >manifest.json
L
printf '#!/bin/sh\nln -s /etc/shadow /proc/self/fd/3/image.erofs\nprintf "%%s" "{\\"built\\":\\"2026-11-29T23:05:47.709955Z\\",\\"digest\\":\\"%064d\\",\\"name\\":\\"liar\\",\\"packages\\":{},\\"size\\":6,\\"version\\":1}" >/proc/self/fd/3/manifest.json\n' 7 >"$work/linker"
chmod 755 "$work/liar" "$work/linker"
drive import "$work/liar" "$uid" "$gid" liar </dev/null | grep -q "not the one its manifest describes" && ok "a wrong digest is not adopted" || bad "a wrong digest is not adopted"
drive import "$work/linker" "$uid" "$gid" liar </dev/null | grep -q "^error" && ok "a link is not adopted" || bad "a link is not adopted"
drive import /bin/false "$uid" "$gid" liar </dev/null | grep -q "died without saying why" && ok "a builder that dies is reported" || bad "a builder that dies"
clean "liars leave nothing"

# --- killed in the middle ---------------------------------------------------------------------------------------------
{ cat "$work/box.tar" | head -c 65536; sleep 30; } | drive import "$work/hostd-build" "$uid" "$gid" slow >/dev/null 2>&1 &
sleep 1
inside=$(pgrep -u "$uid" -f 'hostd-build import' | head -1)
check "a job is running" test -n "$inside"
kill -9 "$(pgrep -f "template_driver $work/state .* slow" | head -1)" 2>/dev/null
for i in 1 2 3 4 5 6 7 8 9 10; do [ -z "$(alive)" ] && break; sleep 0.1; done
check "death of hostd ends every process of the job" test -z "$(alive)"
drive list >/dev/null
clean "the next hostd removes what the dead one left"

# --- a build asks for its network before it does anything, and ends with the words of whoever gives none
out=$(TEMPLATE_WIRE=1 build_recipe "$top/templates/debian.conf")
grep -qx "error no network for uid $uid" <<<"$out" && ok "a build without a network ends, and says why" || bad "a build without a network: $out"
clean "it leaves nothing"

# --- as a unit: a connection starts it, a keeper maps the ids, nothing is set-uid ----------------------------------------
if command -v systemd-socket-activate >/dev/null; then
        systemd-socket-activate --seqpacket --accept --inetd -l "$work/build.sock" setpriv --reuid="$uid" --regid="$gid" --clear-groups \
                --bounding-set=-all,+setuid,+setgid --inh-caps=-all,+setuid,+setgid --ambient-caps=-all,+setuid,+setgid --no-new-privs \
                "$work/hostd-build" served 2>>"$work/log" &
        activator=$!
        for i in $(seq 50); do [ -S "$work/build.sock" ] && break; sleep 0.1; done
        served() { TEMPLATE_SOCKET=$work/build.sock import "$@"; }
        out=$(served box <"$work/box.tar")
        [ "$(sed -n 's/^digest //p' <<<"$out")" = "$(sha256sum "$work"/state/templates/*.erofs | awk '{ print $1 }' | grep -x "$(sed -n 's/^digest //p' <<<"$out")")" ] && grep -q '^digest ' <<<"$out" && ok "a served job makes the same image" || bad "a served job: $out $(tail -n 3 "$work/log")"
        mk dotdot | served bad-served | grep -q "in its path" && ok "and refuses what it should" || bad "a served job refuses"
        out=$(TEMPLATE_WIRE=1 TEMPLATE_SOCKET=$work/build.sock build_recipe "$top/templates/debian.conf")
        grep -qx "error no network for uid $uid" <<<"$out" && ok "and asks for its network the same way" || bad "a served build without a network: $out"
        served "Bad Name" <"$work/box.tar" | grep -q name && ok "and a bad name" || bad "a served job with a bad name"
        { cat "$work/box.tar" | head -c 65536; sleep 30; } | served slow >/dev/null 2>&1 &
        for i in $(seq 50); do [ "$(pgrep -u "$uid" -fc 'hostd-build served')" -ge 3 ] && break; sleep 0.1; done
        statuses=$(for p in $(pgrep -fx "$work/hostd-build served"); do echo "$(sed -n 's/^\(CapEff\|CapBnd\|NoNewPrivs\|Seccomp\):\t/\1=/p' "/proc/$p/status" | xargs) uid=$(awk '/^Uid/ {print $2}' "/proc/$p/status")"; done)
        check "the keeper has the two capabilities and no_new_privs" grep -q "CapEff=00000000000000c0 CapBnd=00000000000000c0 NoNewPrivs=1 Seccomp=0 uid=$uid" <<<"$statuses"
        check "the job has none" grep -q "CapEff=0000000000000000 CapBnd=00000000000000c0 NoNewPrivs=1 Seccomp=0 uid=$uid" <<<"$statuses"
        check "the jail has a syscall filter" grep -q "NoNewPrivs=1 Seccomp=2" <<<"$statuses"
        refute "nobody of it can have more" grep -v "NoNewPrivs=1" <<<"$statuses"
        kill -9 "$(pgrep -f "template_driver $work/state .* slow" | head -1)" 2>/dev/null
        for i in $(seq 30); do [ -z "$(alive)" ] && break; sleep 0.1; done
        check "the end of the connection ends every process of the job" test -z "$(alive)"
        drive list >/dev/null
        kill $activator
        clean "served jobs leave nothing"
else
        skip "systemd-socket-activate is not installed: hostd-build served is not tried"
fi

# --- packages -----------------------------------------------------------------------------------------------------------
begin=$(date +%s)
# With a cargo that says which network it sees, and whose name servers.
{ cat "$top/templates/debian.conf"; cat <<'L'; } >"$work/debian.conf"
files = ( { path = "/usr/local/bin/cargo"; mode = "0755"; content = "#!/bin/sh
n=$(tail -n +2 /proc/net/route | grep -c .)
[ $n = 0 ] || n=some
mkdir -p $CARGO_HOME/registry/index/x
grep -q 169.254.0.1 /etc/resolv.conf && ours=ours
echo '{\"dl\": \"https://'$n-links-${ours:-other}-resolver.example.org'\"}' >$CARGO_HOME/registry/index/x/config.json
"; } );
L
out=$(build_recipe "$work/debian.conf")
digest=$(sed -n 's/^digest //p' <<<"$out")
if [ -z "$digest" ] && grep -q -i -E "mmdebstrap failed|names no package source" <<<"$out"; then
        skip "packages are unreachable: $(grep ^error <<<"$out" | cut -c1-150)"
        finish
fi
[ -n "$digest" ] && ok "debian was built in $(($(date +%s) - begin)) s" || bad "debian: $out"
path=$(drive mount debian)
check "machine id is empty" test -f "$path/etc/machine-id" -a ! -s "$path/etc/machine-id"
check "no SSH host keys in it" test -z "$(ls "$path"/etc/ssh/ssh_host_* 2>/dev/null)"
check "no logs in it" test -z "$(find "$path/var/log" -type f)"
check "no package lists in it" test -z "$(ls -A "$path/var/lib/apt/lists")"
refute "no host name in it" test -e "$path/etc/hostname"
check "init is systemd" test "$(readlink -f "$path/sbin/init" | xargs basename)" = systemd
check "su is root's and set-uid" test "$(stat -c %u:%a "$path/usr/bin/su")" = 0:4755
check "shadow has its group" test "$(stat -c %g "$path/etc/shadow")" = 42
check "udev is masked" test "$(readlink "$path/etc/systemd/system/systemd-udevd.service")" = /dev/null
check "no proxy and no host options" test -z "$(grep -ri proxy "$path/etc/apt")"
drive show debian | grep -q '"systemd": "' && ok "the manifest has packages and versions" || bad "the manifest has packages"
site=$(sed -n 's,^deb .*http[s]*://\([^/ ]*\)/.*,\1,p' "$path/etc/apt/sources.list" | sed -n '1s/:.*//p;1p' | tail -n 1 | cut -d: -f1)
[ "$(mirrors debian | tr ' ' '\n' | grep resolver)" = "$(printf '%s\n' 0-links-ours-resolver.example.org:443 some-links-other-resolver.example.org:443)" ] &&
        ok "cargo is asked without a network, and then with the build's" || bad "cargo and the network: $(mirrors debian)"
check "apt itself said where it fetches from" grep -q "$site" <<<"$(mirrors debian)"
check "no device nodes" test -z "$(find "$path" -xdev \( -type b -o -type c \))"
clean "a build leaves nothing"

build2=$(drive build2 "$work/hostd-build" "$uid" "$gid" "$work/debian.conf" bookworm 2>>"$work/log")
one=$(sed -n 's/^digest //p' <<<"$build2" | grep -x "$digest") two=$(sed -n 's/^digest //p' <<<"$build2" | grep -vx "$digest")
[[ $one =~ ^[0-9a-f]{64}$ && $two =~ ^[0-9a-f]{64}$ ]] && ok "two builds at once" || bad "two builds at once: $(tail -n2 <<<"$build2")"
[ "$one" = "$digest" ] && ok "the same packages give the same image" || bad "the same packages give the same image"
clean "two builds leave nothing"
names=$(drive list | grep '"name":' | sort -u | wc -l)
drive list | grep -c '"newest": true' | grep -qx "$names" && ok "one newest for each of $names names" || bad "newest: $(drive list)"

build_recipe "$work/debian.conf" >/dev/null 2>&1 &
for i in $(seq 100); do pgrep -u "$uid" -f mmdebstrap >/dev/null && break; sleep 0.1; done
sleep 6
kill -9 "$(pgrep -u "$uid" -f 'hostd-build build' | head -1)"
wait
clean "kill -9 of hostd-build in the middle of a build leaves nothing"
drive unmount debian
drive unmount debian
check "prune keeps the newest" drive prune
check "delete" drive delete debian
finish
