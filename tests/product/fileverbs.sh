#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What files in an instance are, where they are, and parts of them: file stat, list, search, and pull of a range. What is hostile about names, file systems
# and sizes is here, too; content, trees and races are in files.sh.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
launch pt-v disk=3GiB memory=256MiB >/dev/null || { fail launch pt-v; finish; }
cd "$work" || exit 1
f() { within 60 hostctl file "$@"; }
rows() { f "$@" -f json | jq -r '.files[] | [.path, .type, .permissions, .owner, (.size | tostring), .target] | join("|")'; } # of a list

# --- what they are
ex pt-v -- sh -c 'chmod 700 /root; mkdir -p /tmp/l/sub/deep; cd /tmp/l; printf 12345 >one; chmod 640 one; ln -s /etc/shadow link; mkfifo pipe; touch sub/two.c sub/deep/three.c; chown 1000:1000 sub/two.c'
check_is "stat of a file" "/tmp/l/one|file|0640|root|5|" rows stat pt-v:/tmp/l/one
check_is "of a link itself" "/tmp/l/link|symlink|0777|root|11|/etc/shadow" rows stat pt-v:/tmp/l/link
check_is "of a pipe, which is not opened" "other" sh -c 'timeout 10 hostctl file stat pt-v:/tmp/l/pipe -f json | jq -r ".files[0].type"'
check_is "of several" "/tmp/l/one /tmp/l/sub" sh -c 'hostctl file stat pt-v:/tmp/l/one pt-v:/tmp/l/sub -f json | jq -r ".files[].path" | xargs'
check_status "one that is not there" 3 'o such' f stat pt-v:/tmp/l/one pt-v:/tmp/l/none
check_is "and the others are told" /tmp/l/one sh -c 'hostctl file stat pt-v:/tmp/l/one pt-v:/tmp/l/none -f json 2>/dev/null | jq -r ".files[].path"'
check_status "as the agent, below what it may not enter" 5 'ermission' f stat -u agent pt-v:/root/x
check_is "list of one level" "link one pipe sub" sh -c 'hostctl file list pt-v:/tmp/l -f json | jq -r ".files[].path" | xargs'
check_is "list with depth" "link one pipe sub sub/deep sub/two.c" sh -c 'hostctl file list --depth 2 pt-v:/tmp/l -f json | jq -r ".files[].path" | xargs'
check_is "search" "/tmp/l/sub/deep/three.c /tmp/l/sub/two.c" sh -c 'hostctl file search --pattern "*.c" pt-v:/tmp/l -f json | jq -r ".files[].path" | xargs'
check_status "a search that is cut says so" 0 'more than these' f search --max 1 pt-v:/tmp/l
check_status "a depth of nothing is refused" 2 'depth' f list --depth 0 pt-v:/tmp/l

# --- parts
check_is "a part" 234 f pull --offset 1 --length 3 pt-v:/tmp/l/one -
check_is "to the end" 45 f pull --offset 3 pt-v:/tmp/l/one -
check_is "behind the end there is nothing" "" f pull --offset 1GiB pt-v:/tmp/l/one -
check_not "a tree has no parts" f pull -r --offset 1 pt-v:/tmp/l "$work/never"

# --- names
ex pt-v -- sh -c 'mkdir /tmp/n; cd /tmp/n; touch "$(printf "new\nline")" "$(printf "\033[31mred\a")" "$(printf "no\377utf8")" "a -> b" -- "-rf"'
check_is "names with newlines, escapes and bytes that are no text are one row each" 5 sh -c 'hostctl file list pt-v:/tmp/n | tail -n +2 | wc -l'
for verb in list search; do
        check_not "and none steers the terminal: $verb" sh -c 'hostctl file '$verb' pt-v:/tmp/n | LC_ALL=C grep -q "$(printf "[\033\a\377]")"'
done
check_is "JSON holds them whole where they are text" "new
line" sh -c 'hostctl file list pt-v:/tmp/n -f json | jq -r ".files[].path | select(startswith(\"new\"))"'

# --- many
ex pt-v -- sh -c 'mkdir /tmp/many; cd /tmp/many; seq -w 1 100000 | xargs touch'
began=$(now_ms)
check_is "a directory of 100 000" 100000 sh -c 'hostctl file list pt-v:/tmp/many -f csv -c path | tail -n +2 | wc -l'
note "list of 100 000: $(($(now_ms) - began)) ms"
check_is "a search in it" /tmp/many/077777 sh -c 'hostctl file search -p "07777[7]" pt-v:/tmp/many -f json | jq -r ".files[].path"'

check "no group of a command is left" wait_for 5 no_command_groups
cd /
hostctl delete --force pt-v >/dev/null
check "no leaks at the end" no_leaks
finish
