# SPDX-License-Identifier: GPL-2.0-or-later
# What the cases share. They run as root in a guest, from the top of the tree, and end at the first thing that is not as it should be.
set -eu
export PATH=/usr/local/sbin:/usr/local/bin:$PATH LC_ALL=C.UTF-8
set -E
trap 'echo "FAILED at line $LINENO: $BASH_COMMAND"' ERR

# until_true SECONDS COMMAND...
until_true() {
        local end=$((SECONDS + $1))
        shift
        while ! "$@" >/dev/null 2>&1; do
                if [ $SECONDS -ge $end ]; then
                        echo "not in time: $*"
                        return 1
                fi
                sleep 0.5
        done
}
