#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Whether what hostd-guest says of the package policy is what the real npm and pip do: each case changes a file or a variable, and asks both. In a mount
# namespace with a copy of /etc, and with a home of its own; nothing is fetched.
# usage: packages.sh [BUILD_DIR or path of packages_driver]
driver=${1:-.}
[ -d "$driver" ] && driver=$driver/tests/integration/packages_driver
skip() { echo "SKIP: $*"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ -x "$driver" ] || skip "no packages_driver at $driver (make check builds it)"
[ "$(id -u)" = 0 ] || skip "needs root"
driver=$(realpath "$driver")
export PATH=/usr/local/bin:/usr/bin:/bin
[ -x /usr/bin/npm ] || [ -x /usr/bin/pip3 ] || skip "neither npm nor pip3 in /usr/bin"
if [ -z "${PACKAGES_INSIDE:-}" ]; then PACKAGES_INSIDE=1 exec unshare -m -n --propagation private "$0" "$driver"; fi
# What is mounted on must not be removed meanwhile: copies of the directories, not of files.
for d in /etc /usr/etc /usr/local/etc; do
        [ -d $d ] || continue
        copy=$(mktemp -d) && mount -t tmpfs none "$copy" && cp -a $d/. "$copy" && mount --move "$copy" $d && rmdir "$copy" || exit 1
done
mount -t tmpfs none /mnt && mkdir -p /mnt/home /mnt/here /mnt/wheels /mnt/usr-etc && cd /mnt/here || exit 1
[ -d /usr/etc ] || { mkdir -p /mnt/lower && mount -t overlay -o "lowerdir=/usr,upperdir=/mnt/lower,workdir=/mnt/usr-etc" none /usr || skip "/usr/etc cannot be made here"; }
rm -f /etc/npmrc /etc/pip.conf /etc/xdg/pip/pip.conf /usr/local/etc/npmrc /usr/etc/npmrc
export HOME=/mnt/home npm_config_cache=/mnt/cache npm_config_update_notifier=false
unset XDG_CONFIG_HOME XDG_CONFIG_DIRS PIP_CONFIG_FILE NPM_CONFIG_PREFIX VIRTUAL_ENV
python3 - <<'END'
import zipfile
with zipfile.ZipFile("/mnt/wheels/one-1-py3-none-any.whl", "w") as z:
    z.writestr("one-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: one\nVersion: 1\n")
    z.writestr("one-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("one-1.dist-info/RECORD", "one-1.dist-info/METADATA,,\none-1.dist-info/WHEEL,,\none-1.dist-info/RECORD,,\n")
END
tar czf /mnt/wheels/two-1.tar.gz -T /dev/null
passed=0 failed=0 skipped=0
ok() { passed=$((passed + 1)); echo "ok: $*"; }
bad() { failed=$((failed + 1)); echo "FAILED: $*"; }
# By a login shell, which is where a session has its variables from.
does() {
        case $1 in
        ignore-scripts) [ "$(bash -lc 'npm config get ignore-scripts' 2>/dev/null)" = true ] ;;
        require-hashes) bash -lc '/usr/bin/pip3 install --no-index --find-links /mnt/wheels --dry-run --break-system-packages --target /mnt/t one' 2>&1 | grep -q 'require-hashes mode' ;;
        only-binary) bash -lc 'PIP_REQUIRE_HASHES=0 /usr/bin/pip3 install --no-index --find-links /mnt/wheels --dry-run --break-system-packages --target /mnt/t two' 2>&1 | grep -q 'No matching distribution' ;;
        esac
}
# agree WHAT SETTING CLAIM [FILE]: hostd-guest says that, and the client does what it means
agree() {
        local line claim file truth=no
        line=$("$driver" check "$HOME" | grep " $2 ")
        read -r _ _ claim file <<<"$line"
        does "$2" && truth=yes
        if [ "$claim" != "$3" ] || [ "${4:-$file}" != "$file" ] || [ $truth != "$([ "$claim" = 0 ] && echo yes || echo no)" ]; then
                bad "$1: it says \"$line\", the client keeps to it: $truth"
        else
                ok "$1: $line"
        fi
}
clean() { find "$HOME" -mindepth 1 -delete; rm -f /etc/profile.d/hostd-test.sh /etc/pip.conf; }
"$driver" apply 3 || exit 1
if [ -x /usr/bin/npm ]; then
        agree "npm as it was set" ignore-scripts 0
        echo 'ignore-scripts=false' >"$HOME/.npmrc"
        agree "a user's own file" ignore-scripts 5 "$HOME/.npmrc"
        printf '# ignore-scripts=false\nregistry=x\n' >"$HOME/.npmrc"
        agree "one with a comment" ignore-scripts 0
        printf 'ignore-scripts=false\nignore-scripts = "true"\n' >"$HOME/.npmrc"
        agree "the last word" ignore-scripts 0 "$HOME/.npmrc"
        echo 'globalconfig=/mnt/here/other' >"$HOME/.npmrc"
        agree "another global file" ignore-scripts 5 "$HOME/.npmrc"
        clean
        echo 'export npm_config_ignore_scripts=false' >"$HOME/.profile"
        agree "a variable in a profile" ignore-scripts 5 "$HOME/.profile"
        echo 'export NPM_CONFIG_IGNORE_SCRIPTS=false' >"$HOME/.profile"
        agree "in capitals" ignore-scripts 5 "$HOME/.profile"
        clean
        echo 'export npm_config_ignore_scripts=true' >/etc/profile.d/hostd-test.sh
        echo 'ignore-scripts=false' >"$HOME/.npmrc"
        agree "a variable that says the same goes before a file that does not" ignore-scripts 0 /etc/profile.d/hostd-test.sh
        clean
        for f in /etc /usr/etc /usr/local/etc; do mv $f/npmrc $f/npmrc.away; done
        agree "hostd's files are gone" ignore-scripts 3
        for f in /etc /usr/etc /usr/local/etc; do mv $f/npmrc.away $f/npmrc; done
else
        skipped=$((skipped + 1))
        echo "SKIP: no npm"
fi
if [ -x /usr/bin/pip3 ]; then
        agree "pip as it was set" require-hashes 0
        agree "and no programs of packages" only-binary 0
        mkdir -p "$HOME/.config/pip"
        printf '[install]\nrequire-hashes = false\nno-binary = two\n' >"$HOME/.config/pip/pip.conf"
        agree "a user's own file" require-hashes 5 "$HOME/.config/pip/pip.conf"
        agree "and what it says of one package" only-binary 5 "$HOME/.config/pip/pip.conf"
        printf '[global]\nrequire-hashes = false\n' >"$HOME/.config/pip/pip.conf"
        agree "a section for all commands goes before none of one" require-hashes 0
        clean
        printf '[install]\nrequire-hashes = no\nonly-binary = other\n' >/etc/pip.conf
        agree "a file of the system's" require-hashes 5 /etc/pip.conf
        agree "and another list" only-binary 5 /etc/pip.conf
        clean
        echo 'export PIP_CONFIG_FILE=/dev/null' >"$HOME/.profile"
        agree "no file at all" require-hashes 5 "$HOME/.profile"
        agree "for either" only-binary 5 "$HOME/.profile"
        clean
        echo 'export PIP_NO_BINARY=two' >"$HOME/.profile"
        agree "a variable against it" only-binary 5 "$HOME/.profile"
        agree "which is not the other's" require-hashes 0
        clean
        rm /etc/xdg/pip/pip.conf
        agree "hostd's file is gone" require-hashes 3 /etc/xdg/pip/pip.conf
else
        skipped=$((skipped + 1))
        echo "SKIP: no pip3"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
