#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Files in and out of instances: content, modes, owners, names, trees, races by the guest, and what must never happen to the host.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
launch pt-a disk=1GiB memory=128MiB >/dev/null || { fail launch pt-a; finish; }
t=$work/t
mkdir "$t"
cd "$t" || exit 1
quiet() { within 30 hostctl "$@" >/dev/null; }
sum() { sha256sum | cut -c1-64; }

# --- one file
head -c 5000000 /dev/urandom >one
check "push" quiet file push one pt-a:/home/agent/one
check_is "it arrives whole" "$(sum <one)" sh -c 'hostctl exec pt-a -- sha256sum /home/agent/one | cut -c1-64'
check "pull" quiet file pull pt-a:/home/agent/one back
check "it comes back whole" cmp one back
check_is "push from standard input" hello sh -c 'printf hello | hostctl file push - pt-a:/tmp/stdin && hostctl exec pt-a -- cat /tmp/stdin'
check_is "pull to standard output" hello sh -c 'hostctl file pull pt-a:/tmp/stdin -'
ex pt-a -- sh -c 'dd if=/dev/zero of=/tmp/eight bs=1048576 count=8 2>/dev/null'
check_is "a reader that goes away ends it" "1 over" sh -c "timeout 20 sh -c 'hostctl file pull pt-a:/tmp/eight - 2>\"$work/pull\" | head -c 10 >/dev/null' && echo \$(grep -c 'standard output' \"$work/pull\") over"
ex pt-a -- sh -c 'mkdir -p /opt/way && ln -sfn /opt/way /opt/own'
hostctl exec -u agent pt-a -- ln -sfn /opt/way /home/agent/way
check_status "root is not led by somebody else's link" 2 'root does not follow' hostctl file push --owner agent one pt-a:/home/agent/way/one
check_status "nor does it give away what is behind one" 2 'root does not follow' hostctl file mkdir --parents --owner agent pt-a:/home/agent/way/deep/er
check_is "nothing is there" "" sh -c 'hostctl exec pt-a -- ls /opt/way'
check "but by its own" quiet file push one pt-a:/opt/own/one
check_is "an empty file" 0 sh -c ': >empty; hostctl file push empty pt-a:/tmp/ && hostctl exec pt-a -- stat -c %s /tmp/empty'
chmod 0750 one
check_is "the mode of a file" 750 sh -c 'hostctl file push one pt-a:/tmp/m && hostctl exec pt-a -- stat -c %a /tmp/m'
check_is "--mode" 4711 sh -c 'hostctl file push --mode 4711 one pt-a:/tmp/m2 && hostctl exec pt-a -- stat -c %a /tmp/m2'
check_is "as root it is root's" "0:0" sh -c 'hostctl exec pt-a -- stat -c %u:%g /tmp/m'
check_is "as agent it is agent's" "1000:1000" sh -c 'hostctl file push -u agent one pt-a:/home/agent/mine && hostctl exec pt-a -- stat -c %u:%g /home/agent/mine'
check_status "agent may not write where it may not" 5 'ermission' hostctl file push -u agent one pt-a:/etc/of-agent
check_not "and nothing is there" ex pt-a -- test -e /etc/of-agent
ex pt-a -- sh -c 'echo s >/root/secret; chmod 600 /root/secret; chmod 700 /root'
check_status "agent may not read what it may not" 5 'ermission' hostctl file pull -u agent pt-a:/root/secret -
check_status "a file that is not there" 3 'no such|No such' hostctl file pull pt-a:/no/such -
check_is "push replaces a file whole" short sh -c 'printf short | hostctl file push - pt-a:/tmp/m && hostctl exec pt-a -- cat /tmp/m'
check "several files into a directory" sh -c 'echo a >fa; echo b >fb; hostctl exec pt-a -- mkdir /tmp/d && hostctl file push fa fb pt-a:/tmp/d/ && [ "$(hostctl exec pt-a -- cat /tmp/d/fa /tmp/d/fb | tr -d "\n")" = ab ]'
check_is "rm" gone sh -c 'hostctl file rm pt-a:/tmp/d/fa && hostctl exec pt-a -- test -e /tmp/d/fa || echo gone'
check_not "rm of a directory needs -r" quiet file rm pt-a:/tmp/d
check_is "rm -r" gone sh -c 'hostctl file rm -r pt-a:/tmp/d && hostctl exec pt-a -- test -e /tmp/d || echo gone'

# --- trees
mkdir -p tree/sub/deep tree/empty
echo f >tree/f
echo x >"tree/sub/a b"
printf 'n' >"tree/sub/$(printf 'new\nline')"
echo u >"tree/sub/ünï"
echo d >tree/sub/-rf
chmod 0640 tree/f
chmod 0711 tree/sub
ln -s /etc/shadow tree/link
ln -s ../../.. tree/up
ln -s f tree/inside
mkfifo tree/fifo
echo s >tree/setuid
chmod 4755 tree/setuid
listing() { find . -printf '%y %m %P %l\n' | grep -v fifo | sed 's/^l [0-9]* /l /' | LC_ALL=C sort; }
here=$(cd tree && listing)
check "push -r" quiet file push -r tree pt-a:/home/agent/
check "pull -r" sh -c 'mkdir out && hostctl file pull -r pt-a:/home/agent/tree out/ >/dev/null'
there=$(cd out/tree 2>/dev/null && listing)
check_is "setuid goes in, but never comes out to the host" "4755 755" sh -c 'echo $(hostctl exec pt-a -- stat -c %a /home/agent/tree/setuid) $(stat -c %a out/tree/setuid)'
here=${here/f 4755 setuid/f 755 setuid}
if [ "$(sort <<<"$here")" = "$(sort <<<"$there")" ]; then ok "a tree comes back with names, modes and links"; else fail "tree" "$(diff <(echo "$here") <(echo "$there") | head -n 6 | tr '\n' ';')"; fi
check_not "pipes were left out" ex pt-a -- test -e /home/agent/tree/fifo
check_is "links are links" /etc/shadow ex pt-a -- readlink /home/agent/tree/link
check_is "list shows names, modes and owners" yes sh -c 'hostctl file list pt-a:/home/agent/tree -f json | jq -e ".files | length >= 7" >/dev/null && echo yes'
check_not "a name in a list cannot steer the terminal" sh -c 'hostctl exec pt-a -- touch "$(printf "/tmp/\033[31mred")"; hostctl file list pt-a:/tmp | grep "$(printf "\033")"'
check "push -r as agent makes agent's files" sh -c 'hostctl file push -r -u agent tree pt-a:/home/agent/t2 >/dev/null && [ -z "$(hostctl exec pt-a -- find /home/agent/t2 ! -user agent)" ]'
mkdir many
for i in $(seq 3000); do echo "$i"; done | (cd many && split -l 1 -a 4 -)
check_is "3000 files in and out" 3000 sh -c 'hostctl file push -r many pt-a:/tmp/ >/dev/null && mkdir o2 && hostctl file pull -r pt-a:/tmp/many o2/ >/dev/null && find o2 -type f | wc -l'

# --- words that are wrong
for p in relative /etc/../etc/passwd /a//b "" '/a/./b' "$(printf '/a\nb')" "$(printf '/a\xff')"; do
        hostctl file pull "pt-a:$p" "$t/never" >"$work/out" 2>&1
        status=$?
        if [ $status = 2 ] && [ ! -e "$t/never" ]; then ok "path '${p//[$'\n'$'\xff']/?}' is refused"; else fail "path '$p'" "status $status: $(head -n 1 "$work/out")"; fi
done

# --- what the guest's names and links may do to us
ex pt-a -- sh -c 'mkdir -p /tmp/evil/d; ln -s /var/tmp/pt-pwned /tmp/evil/abs; ln -s ../../../../../../tmp/pt-pwned /tmp/evil/rel; ln -s / /tmp/evil/root; echo x >"/tmp/evil/..x"; mkdir "/tmp/evil/..."'
check "a tree of bad links is pulled as links" sh -c 'mkdir ev && hostctl file pull -r pt-a:/tmp/evil ev/ >/dev/null && [ -L ev/evil/root ] && [ -L ev/evil/abs ] && [ ! -e /tmp/pt-pwned ]'
mkdir dst
ln -s "$t/outside" dst/evil
mkdir outside
within 20 hostctl file pull -r pt-a:/tmp/evil dst/ >"$work/out" 2>&1
if [ -z "$(ls -A outside)" ]; then ok "a link in our directory is not followed"; else fail "link in our directory" "$(ls outside)"; fi
ex pt-a -- sh -c 'ln -s /etc/hostname /tmp/hn; echo guest >/etc/hostname'
got=$(hostctl file pull pt-a:/tmp/hn - 2>/dev/null)
if [ "$got" = guest ] || [ -z "$got" ]; then ok "a link is followed inside or not at all"; else fail "link" "$got"; fi
ex pt-a -- sh -c 'rm -rf /tmp/w; ln -s /etc /tmp/w'
printf 'from host' | within 10 hostctl file push - pt-a:/tmp/w/pt-mark >/dev/null 2>&1
[ ! -e /etc/pt-mark ] && ok "push through a link of the guest's stays inside" || { fail "push through a link" "/etc/pt-mark is on the host"; rm -f /etc/pt-mark; }
for p in /proc/self/root/etc/hostname /proc/1/root/etc/hostname /proc/self/cwd/etc/hostname /dev/fd/0 /proc/self/fd/0; do
        got=$(within 10 hostctl file pull "pt-a:$p" - 2>/dev/null)
        if [ "$got" = "$(cat /etc/hostname)" ] && [ "$got" != guest ]; then fail "$p" "the host's file came"; else ok "$p gives nothing of the host's"; fi
done

# --- things that are no files
ex pt-a -- sh -c 'mkfifo /tmp/fifo; mkdir /tmp/with; mkfifo /tmp/with/fifo; ln -s /dev/zero /tmp/with/zero; echo y >/tmp/with/y'
check_not "pull of a pipe does not hang" within 10 hostctl file pull pt-a:/tmp/fifo "$t/p"
[ -e "$t/p" ] && fail "pull of a pipe" "it left a file" || ok "and leaves no file"
check "push into a pipe does not hang" sh -c 'echo x | timeout 10 hostctl file push - pt-a:/tmp/fifo; [ $? -ne 124 ]'
check_not "pull of a device ends" sh -c 'timeout 10 hostctl file pull pt-a:/dev/zero - | head -c 1 | grep -q . '
check "list of it does not hang" within 10 hostctl file list pt-a:/tmp/with
check "pull -r with a pipe in it does not hang" sh -c 'mkdir w && timeout 10 hostctl file pull -r pt-a:/tmp/with w/ >/dev/null && [ -f w/with/y ]'

# --- a guest that exchanges directory and link all the time
ex pt-a -- sh -c 'mkdir -p /tmp/race/d /tmp/race/x; echo guest >/tmp/race/d/passwd; echo guest >/tmp/race/x/passwd; cat >/tmp/racer; chmod 755 /tmp/racer' <<'E'
#!/bin/sh
cd /tmp/race
while :; do mv d e 2>/dev/null; ln -s /etc d 2>/dev/null; rm -f d 2>/dev/null; ln -s /proc/self/root/etc d; rm -f d; mv e d 2>/dev/null; done
E
hostctl exec --timeout 60s pt-a -- /tmp/racer >/dev/null 2>&1 &
disown
racer=$!
before=$(cat /etc/passwd /etc/group /etc/hostname | sum)
names=$(ls -A /etc | sum)
hostsum=$(sum </etc/passwd)
taken=0 rounds=0
end=$(($(now_ms) + 12000))
while [ "$(now_ms)" -lt $end ]; do
        rounds=$((rounds + 1))
        within 10 hostctl file pull pt-a:/tmp/race/d/passwd "$t/r" >/dev/null 2>&1 && [ "$(sum <"$t/r")" = "$hostsum" ] && taken=$((taken + 1))
        echo mark | within 10 hostctl file push - pt-a:/tmp/race/d/pt-race >/dev/null 2>&1
        rm -rf "$t/rr"
        mkdir "$t/rr"
        within 10 hostctl file pull -r pt-a:/tmp/race "$t/rr/" >/dev/null 2>&1
        [ ! -L "$t/rr/race/d" ] && [ "$(sum 2>/dev/null <"$t/rr/race/d/passwd")" = "$hostsum" ] && taken=$((taken + 1))
        within 10 hostctl file rm pt-a:/tmp/race/d/pt-race >/dev/null 2>&1
done
kill -9 $racer 2>/dev/null
wait $racer 2>/dev/null
after=$(cat /etc/passwd /etc/group /etc/hostname | sum)
if [ "$before" = "$after" ] && [ "$names" = "$(ls -A /etc | sum)" ] && [ ! -e /etc/pt-race ]; then ok "$rounds rounds against a racer: no file of the host was touched"; else fail "racer" "/etc of the host changed"; fi
if [ $taken = 0 ]; then ok "and none was read"; else fail "racer" "the host's passwd came out $taken times"; fi

# --- a transfer that is cut
head -c 60000000 /dev/urandom >large
hostctl file push large pt-a:/tmp/cut/large >/dev/null 2>&1
ex pt-a -- mkdir -p /tmp/cut
(cat large; sleep 20) | hostctl file push - pt-a:/tmp/cut/large >/dev/null 2>&1 &
sleep 1.5
pkill -9 -f "hostctl file push - pt-a:/tmp/cut/large"
wait 2>/dev/null
check_is "a killed push leaves no file under the name" "" sh -c 'sleep 1; hostctl exec pt-a -- ls -A /tmp/cut'
ex pt-a -- sh -c 'echo old >/tmp/cut/old'
(cat large; sleep 20) | hostctl file push - pt-a:/tmp/cut/old >/dev/null 2>&1 &
sleep 1
pkill -9 -f "hostctl file push - pt-a:/tmp/cut/old"
wait 2>/dev/null
check_is "nor touches what was there" "old" sh -c 'sleep 1; hostctl exec pt-a -- sh -c "cat /tmp/cut/old; ls -A /tmp/cut | grep -v ^old"'
hostctl file push large pt-a:/tmp/cut/l2 >/dev/null
hostctl file pull pt-a:/tmp/cut/l2 "$t/l2" >/dev/null 2>&1 &
p=$!
sleep 0.05
kill -9 $p
wait $p 2>/dev/null
if [ ! -e "$t/l2" ] || cmp -s large "$t/l2"; then ok "a killed pull leaves no part under the name"; else fail "killed pull" "$(stat -c %s "$t/l2") bytes"; fi
check "a push that is killed leaves no control group" wait_for 5 no_command_groups
hostctl set pt-a disk=96MiB >/dev/null 2>&1
hostctl delete --force pt-a >/dev/null
launch pt-a disk=32MiB >/dev/null
within 30 hostctl file push large pt-a:/tmp/large >"$work/out" 2>&1
status=$?
if [ $status -ne 0 ] && grep -qiE 'space|quota' "$work/out"; then ok "a push that does not fit says so"; else fail "full disk" "status $status: $(cat "$work/out")"; fi
check_not "and leaves nothing" ex pt-a -- test -e /tmp/large
cd /
hostctl delete --force pt-a >/dev/null
check "no leaks at the end" no_leaks
finish
