# SPDX-License-Identifier: GPL-2.0-or-later
# The template "agent" for the guests' disks, built here: under emulation it would take half an hour, and the guest has no network.
# Sourced by run, after image.sh. Kept under a hash of its recipe.

template_user=hostd-system-test

# Sets template_dir: {DIGEST.erofs, DIGEST.json}.
template_make() {
        local work status hash
        hash=$(sha256sum "$top/templates/agent.conf" | cut -c1-16)
        template_dir=${HOSTD_SYSTEM_TEMPLATE:-$image_cache/template-$hash}
        [ -n "$(ls "$template_dir"/*.erofs 2>/dev/null)" ] && return 0
        work=$(mktemp -d /var/tmp/hostd-system-template.XXXXXX) && chmod 0711 "$work" || return 1
        template_build "$work" && mkdir -p "$template_dir" && cp "$work"/state/templates/*.json "$work"/state/templates/*.erofs "$template_dir/"
        status=$?
        userdel "$template_user" 2>/dev/null
        sed -i "/^$template_user:/d" /etc/subuid /etc/subgid
        rm -rf "$work"
        return $status
}

# As hostd does it, through the same code; only the user is another.
template_build() { # WORK
        local start
        mkdir "$1/native" && mkdir -m 0700 "$1/state" "$1/run" || return 1
        (cd "$top" && { [ -x configure ] || ./autogen.sh; }) &&
                (cd "$1/native" && "$top/configure" -q && make -j"$(nproc)" hostd-build tests/integration/template_driver) || return 1
        install -m 0755 "$1/native/hostd-build" "$1/hostd-build"
        useradd -r -M -s /usr/sbin/nologin -d /nonexistent "$template_user" || return 1
        sed -i "/^$template_user:/d" /etc/subuid /etc/subgid
        start=$(cat /etc/subuid /etc/subgid | awk -F: '{ e = $2 + $3; if (e > m) m = e } END { s = 2100000000; if (m > s) s = m; print s }')
        echo "$template_user:$start:65536" | tee -a /etc/subuid >>/etc/subgid
        "$1/native/tests/integration/template_driver" "$1/state" "$1/run" build "$1/hostd-build" \
                "$(id -u "$template_user")" "$(id -g "$template_user")" "$top/templates/agent.conf"
}
