# SPDX-License-Identifier: GPL-2.0-or-later
# The templates of what loses its power: each says which it is, and none is so small that its copy has no middle. Sourced after tiny.sh.

power_roots() { # DIR
        local name
        mkdir "$1"
        for name in one two t0 t1; do
                tiny_root "$1/$name" || return 1
                echo $name >"$1/$name/etc/which"
                echo "# of $name" >"$1/$name/home/agent/.profile"
                chown 1000:1000 "$1/$name/home/agent/.profile"
                head -c 3000000 /dev/urandom >"$1/$name/var/lib/ballast"
        done
}
