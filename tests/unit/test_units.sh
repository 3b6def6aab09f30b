#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# The units and the profile, as far as a machine without systemd can tell: they parse, name programs that get installed, and agree with
# what the source says about them. Runs in the build directory.
set -eu
srcdir=${srcdir:-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
# What a name of the source stands for: a user, or a descriptor.
row_user() {
        [ "$1" != NULL ] || { echo NULL; return; }
        sed -n "s/^#define $1 \"\(.*\)\".*/\1/p" "$srcdir/hostd/border/border.h"
}
bad() { echo "FAILED: $*"; failed=1; }

make -s install-systemunitDATA install-apparmorDATA install-sysusersDATA install-tmpfilesDATA install-protectsystemDATA \
        install-protectuserDATA install-protectsshDATA DESTDIR="$work" >/dev/null
units=$(find "$work" -name 'hostd.service' -printf '%h\n')
[ -n "$units" ] || { bad "nothing was installed"; exit 1; }
border="hostd-resolver.service hostd-resolver.socket hostd-resolve.socket hostd-proxy.service hostd-proxy.socket hostd-flow.service hostd-flow.socket hostd-flow-records.socket hostd-haproxy@.service hostd-io@.service"
for unit in hostd.service hostd.socket hostd-instance@.service hostd.slice hostd-build.socket hostd-build@.service hostd-apparmor.service $border; do
        [ -f "$units/$unit" ] || bad "$unit is not installed"
        ! grep -n '@[a-z]*dir@' "$units/$unit" || bad "$unit has a path that was not filled in"
done
profile=$(find "$work" -path '*/apparmor.d/hostd-instance')
[ -f "$profile" ] || bad "the AppArmor profile is not installed"

# Names that two places must agree about.
grep -q '^#define APPARMOR_PROFILE "hostd-instance"$' "$srcdir/hostd/core/doctor.c" || bad "doctor looks for another profile"
grep -q '^profile hostd-instance ' "$profile" || bad "the profile has another name"
grep -q '"hostd.slice/hostd-instance@%s.service"' "$srcdir/hostd/core/instance.c" || bad "the control group of a unit is elsewhere"
grep -q '^Slice=hostd.slice$' "$units/hostd-instance@.service" || bad "the unit's slice is elsewhere"
grep -q '"%s/by-name"' "$srcdir/hostd/core/instance_start.c" || bad "hostd names run directories otherwise"
grep -q '/run/hostd/by-name/%i$' "$units/hostd-instance@.service" || bad "the unit is given another run directory"

# The helpers of the border get their sockets from systemd or from hostd: both must make the same. And nobody else may connect to one.
while read -r fd file type user group mode service; do
        unit=$(grep -l "/run/hostd/$file\$" "$units"/*.socket) || { bad "no unit has $file"; continue; }
        grep -q "{$fd, \"$file\", $type, $user, $group, $mode}" "$srcdir/hostd/core/border_start.c" || bad "hostd makes $file otherwise"
        for line in "Service=$service.service" "SocketMode=$mode" "SocketUser=$(row_user "$user")" "SocketGroup=$(row_user "$group")" "FileDescriptorName=$(row_user "$fd")"; do
                case $line in *=NULL) ! grep -q "^${line%NULL}" "$unit" || bad "$unit has another ${line%=NULL}" ;; *) grep -qx "$line" "$unit" || bad "$unit has not $line" ;; esac
        done
        case $type in SOCK_STREAM) listen=Stream ;; SOCK_SEQPACKET) listen=SequentialPacket ;; *) listen=Datagram ;; esac
        grep -qx "Listen$listen=/run/hostd/$file" "$unit" || bad "$unit is of another type"
        grep -q "^Sockets=.*$(basename "$unit")" "$units/$service.service" || bad "$service does not get $(basename "$unit")"
done <<EOF
BORDER_FD_CONTROL resolver.sock SOCK_STREAM NULL NULL 0600 hostd-resolver
BORDER_FD_RESOLVE resolve.sock SOCK_SEQPACKET BORDER_PROXY NULL 0600 hostd-resolver
BORDER_FD_CONTROL proxy.sock SOCK_STREAM NULL NULL 0600 hostd-proxy
BORDER_FD_CONTROL flow.sock SOCK_STREAM NULL NULL 0600 hostd-flow
BORDER_FD_RECORDS flow-records.sock SOCK_DGRAM BORDER_PROXY BORDER_RESOLVER 0660 hostd-flow
EOF
[ "$(grep -c '{BORDER_FD_' "$srcdir/hostd/core/border_start.c")" = 5 ] || bad "hostd makes sockets that no unit has"
for line in MemorySwapMax=0 LimitCORE=0; do # they hold the values of secrets
        for unit in hostd.service hostd-haproxy@.service hostd-io@.service; do grep -qx "$line" "$units/$unit" || bad "$unit has not $line"; done
done
# The instance in the unit's name is the directory that hostd makes, and what it may do to become its slot's user is all that it may.
grep -q '^ExecStart=.*/hostd-haproxy /run/hostd/haproxy/%I$' "$units/hostd-haproxy@.service" || bad "hostd-haproxy@.service is given another directory"
grep -q '"hostd-haproxy@%u-%u.service", g->interceptor->slot, g->number' "$srcdir/hostd/core/generation.c" || bad "hostd names the unit of a HAProxy otherwise"
for line in "CapabilityBoundingSet=CAP_SETUID CAP_SETGID" User=hostd-haproxy Restart=no NoNewPrivileges=yes ProtectSystem=strict LimitMEMLOCK=0 SystemCallArchitectures=native \
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6" MemoryDenyWriteExecute=yes; do
        grep -qx "$line" "$units/hostd-haproxy@.service" || bad "hostd-haproxy@.service has not $line"
done
grep -q '^MemoryMax=' "$units/hostd-haproxy@.service" || bad "hostd-haproxy@.service may have all memory"
# The same of what keeps the output of commands, which may do nothing at all.
grep -q '^ExecStart=.*/hostd-io /run/hostd/io/%I$' "$units/hostd-io@.service" || bad "hostd-io@.service is given another directory"
grep -q '"hostd-io@%u.service", slot' "$srcdir/hostd/core/io_start.c" || bad "hostd names the unit of a hostd-io otherwise"
grep -q '"%s/io/%u", manager->paths.run, slot' "$srcdir/hostd/core/io_start.c" || bad "hostd makes another directory for hostd-io"
for line in CapabilityBoundingSet= User=hostd-io Restart=no NoNewPrivileges=yes ProtectSystem=strict PrivateNetwork=yes RestrictAddressFamilies=AF_UNIX MemoryDenyWriteExecute=yes \
        "InaccessiblePaths=-/var/lib/hostd -/var/log/hostd -/etc/hostd" SystemCallArchitectures=native; do
        grep -qx "$line" "$units/hostd-io@.service" || bad "hostd-io@.service has not $line"
done
grep -q '^MemoryMax=' "$units/hostd-io@.service" || bad "hostd-io@.service may have all memory"
for unit in hostd-resolver hostd-proxy hostd-flow; do
        for line in MemorySwapMax=0 LimitCORE=0 Restart=always "User=$unit" NoNewPrivileges=yes ProtectSystem=strict SystemCallArchitectures=native; do
                grep -qx "$line" "$units/$unit.service" || bad "$unit.service has not $line"
        done
        grep -q '^MemoryMax=' "$units/$unit.service" || bad "$unit.service may have all memory"
        case $unit in hostd-flow) caps=CAP_NET_ADMIN ;; *) caps= ;; esac
        grep -qx "CapabilityBoundingSet=$caps" "$units/$unit.service" || bad "$unit.service has other capabilities"
done

# Accounts and directories: made in a root of their own, and the ones that the source asks for. It is read-only where there is no root.
sysusers=$(find "$work" -path '*/sysusers.d/hostd.conf') tmpfiles=$(find "$work" -path '*/tmpfiles.d/hostd.conf')
[ -f "$sysusers" ] && [ -f "$tmpfiles" ] || bad "sysusers.d or tmpfiles.d is not installed"
accounts=$work/accounts
mkdir -p "$accounts/etc" "$accounts/run" "$accounts/var/lib"
if command -v systemd-sysusers >/dev/null && [ "$(id -u)" = 0 ]; then
        systemd-sysusers --root="$accounts" - <"$sysusers" 2>"$work/said" || { cat "$work/said"; bad "the accounts cannot be made"; }
        [ "$(cut -d: -f1 "$accounts/etc/passwd" | sort | xargs)" = "hostd-build hostd-flow hostd-haproxy hostd-io hostd-proxy hostd-resolver" ] ||
                bad "other users than hostd's own: $(cat "$accounts/etc/passwd")"
        for group in $(sed -n 's/.*\[ACCESS_[A-Z]*\] = {"[a-z]*", "\([a-z-]*\)"},.*/\1/p' "$srcdir/hostd/wire/peer.c"); do
                grep -q "^$group:" "$accounts/etc/group" || bad "no group $group"
        done
        ! grep -v ':/nonexistent:/usr/sbin/nologin$' "$accounts/etc/passwd" || bad "a user of hostd could log in"
else
        echo "SKIP: accounts are not made: no systemd-sysusers, or not root"
fi
if command -v systemd-tmpfiles >/dev/null && [ "$(id -u)" = 0 ]; then
        mkdir -m 0777 "$accounts/var/lib/hostd"
        systemd-tmpfiles --root="$accounts" --create - <"$tmpfiles" 2>"$work/said" || { cat "$work/said"; bad "the directories cannot be made"; }
        [ "$(stat -c %a "$accounts/var/lib/hostd")" = 700 ] || bad "/var/lib/hostd can be walked by others"
        [ "$(stat -c %a "$accounts/run/hostd")" = 755 ] || bad "the socket cannot be reached by others"
else
        echo "SKIP: directories are not made: no systemd-tmpfiles, or not root"
fi
! grep -vE '^(#|$)' "$tmpfiles" | grep -vE ' -$' || bad "something below a directory of hostd has an age"

# What protects units of others is set by drop-ins that any of the administrator's come after, and says nothing but how much.
for unit in system.slice user.slice ssh.service; do
        file=$units/$unit.d/10-hostd.conf
        [ -f "$file" ] || bad "nothing protects $unit"
        ! grep -vE '^(#.*|\[(Slice|Service)\]|MemoryMin=.*|MemoryLow=.*|CPUWeight=.*|)$' "$file" || bad "the drop-in of $unit says more than it should"
done

# systemd-analyze wants the programs to exist: they are put below a root of their own.
if command -v systemd-analyze >/dev/null; then
        for program in $(sed -n 's/^Exec[A-Za-z]*=[-+!@:]*\([^ ]*\).*/\1/p' "$units"/*.service); do
                mkdir -p "$work$(dirname "$program")"
                [ -e "$work$program" ] || { printf '#!/bin/sh\n' >"$work$program"; chmod 0755 "$work$program"; }
        done
        mkdir -p "$work/etc/systemd/system" "$work/lib/systemd/system"
        cp "$units"/hostd* "$work/etc/systemd/system/"
        for unit in local-fs.target network.target sockets.target multi-user.target slices.target shutdown.target sysinit.target basic.target umount.target; do
                printf '[Unit]\nDescription=%s\n' $unit >"$work/etc/systemd/system/$unit"
        done
        printf '[Socket]\nListenStream=/run/dbus/system_bus_socket\n' >"$work/etc/systemd/system/dbus.socket"
        printf '[Service]\nExecStart=/bin/kill\n' >"$work/etc/systemd/system/dbus.service"
        cp "$work/etc/systemd/system/hostd-instance@.service" "$work/etc/systemd/system/hostd-instance@a-b.service"
        cp "$work/etc/systemd/system/hostd-build@.service" "$work/etc/systemd/system/hostd-build@1.service"
        cp "$work/etc/systemd/system/hostd-haproxy@.service" "$work/etc/systemd/system/hostd-haproxy@7-1.service"
        cp "$work/etc/systemd/system/hostd-io@.service" "$work/etc/systemd/system/hostd-io@7-1.service"
        for unit in hostd.service hostd.socket hostd-instance@a-b.service hostd.slice hostd-build.socket hostd-build@1.service hostd-apparmor.service $(echo "$border" | sed "s/@.service/@7-1.service/g"); do
                systemd-analyze verify --root="$work" --man=no "$unit" >"$work/said" 2>&1 || true
                # Only what is said about our files: the rest of the root is not there.
                if grep -E "(hostd[^/:]*\.(service|socket|slice)):" "$work/said" | grep -vE 'Failed to (create|open)|Cannot add dependency|documentation'; then bad "$unit"; fi
        done
        # How much of the host each could reach if it were taken over, as systemd counts it. A row that is lost shows here.
        for bound in hostd.service=63 hostd-instance@a-b.service=72 hostd-build@1.service=55 hostd-apparmor.service=30 \
                hostd-resolver.service=20 hostd-proxy.service=20 hostd-flow.service=20 hostd-haproxy@7-1.service=20 hostd-io@7-1.service=15; do
                exposure=$(systemd-analyze security --offline=yes --root="$work" "${bound%=*}" 2>/dev/null | sed -n 's/.*Overall exposure level for .*: \([0-9]*\)\.\([0-9]\) .*/\1\2/p')
                echo "${bound%=*}: exposure ${exposure:-unknown} of 100, bound ${bound#*=}"
                [ "${exposure:-1000}" -le "${bound#*=}" ] || bad "${bound%=*} is more exposed than it was"
        done
else
        echo "SKIP: units are not looked at: no systemd-analyze"
fi
if command -v apparmor_parser >/dev/null; then
        apparmor_parser -Q -K "$profile" >"$work/said" 2>&1 || { cat "$work/said"; bad "the profile does not parse"; }
fi
exit $failed
