#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Files into an instance and out of it: whole or not at all whoever dies, owners and their names, what is no file.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin

in_dir() { ex pt-a -- sh -c "cd /root/d && $1"; }
list_of() { hostctl file list "pt-a:$1" -f csv -c owner,group,size,path | tr -d '\r' | tail -n +2; }
sum() { sha256sum "$1" | cut -c1-64; }

launch pt-a memory=256MiB disk=1GiB >/dev/null || { fail "launch" "pt-a"; finish; }
head -c 100000000 /dev/urandom >"$work/big"
ex pt-a -- mkdir -p /root/d
in_dir 'echo old >f'

# --- a sender that dies: never a part of the file under its name, and nothing beside it
for after in 0.02 0.05 0.1; do
        { timeout -s KILL $after hostctl file push "$work/big" pt-a:/root/d/f; } >/dev/null 2>&1
        [ $? -eq 137 ] || { note "the push was over before it could be killed"; in_dir 'echo old >f'; continue; }
        check "hostctl killed after $after s: nothing but the old file" wait_for 5 sh -c '[ "$(hostctl exec pt-a -- ls -A /root/d)" = f ]'
        check_is "hostctl killed after $after s: the old content" old in_dir 'head -c 20 f'
done
{ (echo part; sleep 3) | timeout -s KILL 0.3 hostctl file push - pt-a:/root/d/f; } >/dev/null 2>&1
check_is "a killed push of standard input" "f old" in_dir 'echo $(ls -A) $(cat f)'
check "push of 100 MB" hostctl file push "$work/big" pt-a:/root/d/f
check_is "it is the same" "$(sum "$work/big")" in_dir 'sha256sum f | cut -c1-64'
check "pull" hostctl file pull pt-a:/root/d/f "$work/back"
check "it is the same again" cmp "$work/big" "$work/back"
check "push of a stream whose size nobody knows" sh -c "(head -c 70000 '$work/big'; sleep 0.2; tail -c 70000 '$work/big') | hostctl file push - pt-a:/root/d/g"
check_is "all of it" 140000 in_dir 'stat -c %s g'
check "push of nothing" sh -c "hostctl file push - pt-a:/root/d/empty </dev/null"
check_is "an empty file" 0 in_dir 'stat -c %s empty'
check_status "push onto a directory" 1 'directory' hostctl file push "$work/back" pt-a:/root

# --- owners
ex pt-a --user agent -- sh -c 'echo mine >own; chmod 640 own'
check "root replaces a file of agent" sh -c 'echo new | hostctl file push - pt-a:/home/agent/own'
check_is "which stays agent's" "agent agent 640 new" ex pt-a -- sh -c 'cd /home/agent; echo $(stat -c "%U %G %a" own) $(cat own)'
mkdir "$work/tree"
echo tree >"$work/tree/own"
check "a tree over it" hostctl file push -r "$work/tree" pt-a:/home/agent
check_is "it stays agent's here too" "agent agent tree" ex pt-a -- sh -c 'cd /home/agent; echo $(stat -c "%U %G" own) $(cat own)'
check_is "list shows names" "agent,agent,5,own" list_of /home/agent/own
ex pt-a -- chown 4242:4343 /home/agent/own
check_is "and numbers that have none" "4242,4343,5,own" list_of /home/agent/own

# --- what is no file on this side
mkfifo "$work/pipe"
(cat "$work/pipe" >"$work/read") &
check "pull into a pipe" hostctl file pull pt-a:/home/agent/own "$work/pipe"
wait $!
check_is "arrives" tree cat "$work/read"
check "it is still a pipe" test -p "$work/pipe"
check "no leaks" no_leaks
finish
