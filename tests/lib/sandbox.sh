# SPDX-License-Identifier: GPL-2.0-or-later
# For tests of sandboxes, after product.sh: a template with bwrap, and short words for an instance pt-a of it.

# Like `tiny`, with bwrap of this machine, and ids for the agent.
box_import() {
        local dir=$work/root lib
        tiny_root "$dir" && cp "$(command -v bwrap)" "$dir/bin/bwrap" && mkdir -p "$dir/usr" && ln -s ../bin "$dir/usr/bin" || return 1
        for lib in $(ldd "$(command -v bwrap)" | grep -o '/[^ ]*'); do mkdir -p "$dir$(dirname "$lib")" && cp -L "$lib" "$dir$lib" || return 1; done
        printf 'agent:100000:65536\n' | tee "$dir/etc/subuid" >"$dir/etc/subgid"
        hostctl template show pt-box >/dev/null 2>&1 || hostctl template import pt-box "$dir" >/dev/null 2>&1
}

sb() { within "${limit:-30}" hostctl sandbox "$@"; }
make() { sb create pt-a "$@"; }
shown() { hostctl sandbox show "$1" -f json 2>/dev/null | jq -r ".$2"; }
why() { hostctl sandbox why "$1" -f json 2>/dev/null | jq -r ".$2"; }
is_shown() { [ "$(shown "$1" "$2")" = "$3" ]; }
in_box() { sb exec "$@"; }
