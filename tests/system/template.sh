# SPDX-License-Identifier: GPL-2.0-or-later
# Templates for the guests, built here: under emulation it would take half an hour, and the guest has no network. "agent" is the one that
# ships and lies on every guest's disk. "probe" is the same with what tests/product/nested.sh runs; it is made, and copied into the guest,
# for cases with "# NEEDS: probe" alone. Sourced by run, after image.sh. Each is kept under a hash of its recipe.

template_user=hostd-system-test
template_probe="postgresql redis-server redis-tools runc libvirt-daemon-driver-qemu qemu-system-x86 seabios netavark aardvark-dns nftables
 busybox-static iputils-ping libcap2-bin"

template_recipe() { # agent|probe
        local quoted
        quoted=$(printf '"%s", ' $template_probe)
        case $1 in
        agent) cat "$top/templates/agent.conf" ;;
        probe) sed -e 's/^name = .*/name = "probe";/' -e "s/^packages = \[/&$quoted/" "$top/templates/agent.conf" ;;
        esac
}

# Sets template_dir: {DIGEST.erofs, DIGEST.json}.
template_name() { # agent|probe
        template_dir=$image_cache/template-$(template_recipe "$1" | sha256sum | cut -c1-16)
        [ "$1" != agent ] || template_dir=${HOSTD_SYSTEM_TEMPLATE:-$template_dir}
}

template_make() { # agent|probe
        local work status
        template_name "$1"
        [ -n "$(ls "$template_dir"/*.erofs 2>/dev/null)" ] && return 0
        work=$(mktemp -d /var/tmp/hostd-system-template.XXXXXX) && chmod 0711 "$work" || return 1
        template_build "$work" "$1" && mkdir -p "$template_dir" && cp "$work"/state/templates/*.json "$work"/state/templates/*.erofs "$template_dir/"
        status=$?
        userdel "$template_user" 2>/dev/null
        sed -i "/^$template_user:/d" /etc/subuid /etc/subgid
        rm -rf "$work"
        return $status
}

# As hostd does it, through the same code; only the user is another.
template_build() { # WORK agent|probe
        local start
        template_recipe "$2" >"$1/recipe" || return 1
        mkdir "$1/native" && mkdir -m 0700 "$1/state" "$1/run" || return 1
        (cd "$top" && { [ -x configure ] || ./autogen.sh; }) &&
                (cd "$1/native" && "$top/configure" -q && make -j"$(nproc)" hostd-build tests/integration/template_driver) || return 1
        install -m 0755 "$1/native/hostd-build" "$1/hostd-build"
        userdel "$template_user" 2>/dev/null # of a run that was killed
        useradd -r -M -s /usr/sbin/nologin -d /nonexistent "$template_user" || return 1
        sed -i "/^$template_user:/d" /etc/subuid /etc/subgid
        start=$(cat /etc/subuid /etc/subgid | awk -F: '{ e = $2 + $3; if (e > m) m = e } END { s = 2100000000; if (m > s) s = m; print s }')
        echo "$template_user:$start:65536" | tee -a /etc/subuid >>/etc/subgid
        "$1/native/tests/integration/template_driver" "$1/state" "$1/run" build "$1/hostd-build" \
                "$(id -u "$template_user")" "$(id -g "$template_user")" "$1/recipe"
}

# Into the guest at hand, where hostd runs. One that has it keeps it.
template_push() { # agent|probe
        local template_dir
        made template_make "$image_cache/template.lock" "$logs/template.log" "$1" || return 1
        limited 60 guest_ssh "hostctl template show $1" </dev/null >/dev/null 2>&1 && return 0
        tar c -C "$template_dir" . | limited 600 guest_ssh 'tar x --no-same-owner -C /var/lib/hostd/templates && systemctl restart hostd' &&
                limited 60 guest_ssh "hostctl template show $1" </dev/null >/dev/null
}
