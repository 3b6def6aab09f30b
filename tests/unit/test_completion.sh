#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What Tab offers: the script that `hostctl completion` prints, in bash, with a hostctl that answers from here.
set -u
hostctl=${HOSTCTL:-./hostctl}
failed=0 tried=0
script=$("$hostctl" completion) || exit 1
eval "$script" || exit 1

hostctl() {
        case "$*" in
        "list -c name --format csv") printf 'name\r\nalpha\r\nbeta\r\n$(touch "$PWD/expanded")\r\n' ;;
        "template list -c name --format csv") printf 'name\r\nagent\r\ndebian\r\n' ;;
        "policy list -c policy --format csv") printf 'policy\r\nweb\r\n' ;;
        "command list -c id --format csv") printf 'id\r\nc1\r\n' ;;
        "config log -c rev --format csv") printf 'rev\r\nabc123\r\n' ;;
        "warning list -c kind --format csv") printf 'kind\r\nhistory\r\nhistory\r\n' ;;
        "show --expanded -- alpha") printf 'KEY     VALUE  SOURCE\npids    100    instance\nmemory  1GiB   preset\n' ;;
        *) echo "unexpected: $*" >&2; return 1 ;;
        esac
}

# Words as readline hands them over: "=" and ":" are words of their own.
tab() { # LINE: the candidates, sorted, in one line
        local line=${1//=/ = }
        line=${line//:/ : }
        read -ra COMP_WORDS <<<"hostctl $line"
        [[ $1 == *' ' || -z $1 ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        COMPREPLY=()
        _hostctl
        [ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\n' "${COMPREPLY[@]}" | sort | xargs -d '\n'
}
offers() { # LINE CANDIDATES
        local got
        tried=$((tried + 1))
        got=$(tab "$1" 2>&1)
        [ "$got" = "$2" ] && return
        failed=$((failed + 1))
        echo "hostctl $1: «$got» instead of «$2»"
}
any='$(touch "$PWD/expanded")'

offers "comm" "command"
offers "command " "--help --socket --version kept list signal start wait"
offers "start a" "alpha"
offers "start alpha b" "beta"
offers "start " "$any alpha beta"
offers "show alpha --format " "json table"
offers "list --format " "csv json table"
offers "list -f j" "json"
offers "list --format=c" "csv"
offers "list --format=" "csv json table"
offers "list --fo" "--format"
offers "set " "$any alpha beta"
offers "set alpha " "memory= pids="
offers "set alpha pids=1 m" "memory="
offers "set alpha pids=" ""
offers "set alpha pids=1" ""
offers "set beta" "beta"
offers "set --force alpha p" "pids="
offers "unset alpha " "memory pids"
offers "label alpha " ""
offers "launch " "agent debian"
offers "launch agent " ""
offers "launch agent new " ""
offers "launch agent new --preset " "large medium small"
offers "launch agent new -p l" "large"
offers "rebuild --template d" "debian"
offers "rebuild --template debian a" "alpha"
offers "stop --timeout 5s a" "alpha"
offers "--socket /x start a" "alpha"
offers "exec a" "alpha"
offers "exec alpha --us" "--user"
offers "exec alpha " ""
offers "exec alpha ls -" ""
offers "exec --user root a" "alpha"
offers "shell alpha b" ""
offers "policy show " "web"
offers "policy explain alpha --protocol " "icmp tcp udp"
offers "command signal " "c1"
offers "config rollback " "abc123"
offers "warning clear " "history"
offers "warning clear history a" "alpha"
offers "template import " ""
offers "template import x /et" ""
offers "file pull a" "alpha:"
offers "file list alpha:/e" ""
offers "nonsense " "--help --socket --version"

# No command is the beginning of another one: the first that fits is the one.
for key in "${!_hostctl_options[@]}"; do
        for other in "${!_hostctl_options[@]}"; do
                [[ $other == "$key "* ]] && { failed=$((failed + 1)); echo "$key and $other"; }
        done
done
# Each option is offered by its own command.
for key in "${!_hostctl_options[@]}"; do
        offers "$key --" "$(tr ' ' '\n' <<<"${_hostctl_options[$key]}" | sort | xargs)"
done
[ ! -e "$PWD/expanded" ] || { rm -f "$PWD/expanded"; failed=$((failed + 1)); echo "what hostd answered was run"; }
echo "$tried lines, $failed wrong"
[ $failed -eq 0 ]
