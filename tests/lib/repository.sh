# SPDX-License-Identifier: GPL-2.0-or-later
# A mirror of Debian with just the packages of one template, for hosts that build it and reach no other. Index and signature are Debian's
# own, so apt checks there what it always checks. Sourced by
# tests/system/run and tests/packages/life, and where such a mirror is used.
#
#   dists/SUITE/InRelease, dists/SUITE/main/binary-ARCH/Packages.xz and its name by hash, pool/…

repository_dir=
repository_recipe=${top:-.}/templates/debian.conf
repository_value() { sed -n "s/^$1 = \"\(.*\)\";.*/\1/p" "$repository_recipe"; }
repository_packages() { sed -n '/^packages = \[/,/^\];/{ s/^packages = \[//; s/\];//; p }' "$repository_recipe" | tr -d '",'; }

# apt of this machine with an empty root. It makes its locks beside its status file: with /dev/null for one they would be in /dev. Its lists
# stay as they were fetched, because their hashes are what is signed.
repository_apt() { # DIR ARGUMENT...
        local dir=$1
        shift
        apt-get -q -y -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferences=/dev/null \
                -o Dir::Etc::preferencesparts=/dev/null -o Dir::State="$dir/state" -o Dir::State::status="$dir/status" -o Dir::Cache="$dir/cache" \
                -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o APT::Keep-Downloaded-Packages=true -o Acquire::GzipIndexes=true \
                -o Acquire::IndexTargets::deb::Packages::KeepCompressedAs=xz -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
                -o Acquire::Languages=none -o Acquire::PDiffs=false -o APT::Architectures::="$(dpkg --print-architecture)" "$@"
}

# Sets repository_dir. Kept for a day: then Debian may have other packages.
repository_make() { # CACHE
        local suite work status mirror
        suite=$(repository_value suite)
        mirror=${HOSTD_SYSTEM_MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | head -1)}
        repository_dir=$1/repository-$suite-$(sha256sum "$repository_recipe" "$top/tests/lib/repository.sh" | sha256sum | cut -c1-16)
        [ -n "$(find "$repository_dir" -maxdepth 0 -mtime -1 2>/dev/null)" ] && return 0
        work=$repository_dir.part
        rm -rf "$work" && mkdir -p "$work"/apt/state/lists/partial "$work"/apt/cache/archives/partial && : >"$work/apt/status" || return 1
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$work/apt/sources.list"
        # shellcheck disable=SC2046
        repository_apt "$work/apt" update && repository_apt "$work/apt" install --download-only '?essential' '?priority(required)' $(repository_packages) &&
                repository_lay_out "$work" "$suite" && rm -rf "$work/apt" "$repository_dir" && mv "$work" "$repository_dir"
        status=$?
        rm -rf "$work"
        return $status
}

repository_lay_out() { # DIR SUITE
        python3 - "$1" "$2" "$(dpkg --print-architecture)" <<'PYTHON'
import glob, hashlib, lzma, os, shutil, sys, urllib.parse
top, suite, arch = sys.argv[1:]
lists = glob.glob(f"{top}/apt/state/lists/*_main_binary-{arch}_Packages.xz")
release = glob.glob(f"{top}/apt/state/lists/*_dists_{suite}_InRelease")
assert len(lists) == 1 and len(release) == 1, (lists, release)
index = f"{top}/dists/{suite}/main/binary-{arch}"
os.makedirs(f"{index}/by-hash/SHA256")
shutil.copy(release[0], f"{top}/dists/{suite}/InRelease")
shutil.copy(lists[0], f"{index}/Packages.xz")
data = open(lists[0], "rb").read()
os.link(f"{index}/Packages.xz", f"{index}/by-hash/SHA256/{hashlib.sha256(data).hexdigest()}")
paths = {}
for stanza in lzma.decompress(data).decode().split("\n\n"):
    row = dict(line.split(": ", 1) for line in stanza.split("\n") if ": " in line and line[0] != " ")
    if row:
        paths[row["Package"], row["Version"], row["Architecture"]] = row["Filename"]
for deb in glob.glob(f"{top}/apt/cache/archives/*.deb"):
    package, version, architecture = os.path.basename(deb)[:-4].split("_")
    path = f"{top}/{paths[package, urllib.parse.unquote(version), architecture]}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.move(deb, path)
PYTHON
}

# On the host that builds: apt has nothing but such a mirror, which may be older than its signature likes.
repository_use() { # URL
        rm -rf /etc/apt/sources.list.d/* &&
                echo "deb $1 $(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release) main" >/etc/apt/sources.list &&
                printf 'Acquire::Check-Valid-Until "false";\nAcquire::Languages "none";\n' >/etc/apt/apt.conf.d/90partial-mirror
}
