# SPDX-License-Identifier: GPL-2.0-or-later
# The commands of docs/storage.md on an empty disk: what doctor says of each file system, that limits hold there.
# LIMIT: 1800
# FROM: boot
. tests/system/lib.sh

documented() { sed -n "/<!-- test: $1 -->/,/^#/p" docs/storage.md | sed -n 's/^    //p'; }

row() { hostctl doctor -f csv -c protection,state,detail | tr -d '\r' | grep "^$1,"; }

# The set-uid bit counts in an instance, also where the file system is mounted nosuid.
setuid() { # DIRECTORY
        hostctl exec a -- sh -c "cp /usr/bin/id $1/id && chmod 4755 $1/id"
        [ "$(hostctl exec --user agent a -- "$1/id" -u)" = 0 ]
}

on() { # FILE SYSTEM, [SETTINGS]
        local fs=$1
        shift
        documented "$fs" | sed 's,^,+ ,'
        (DISK=/dev/vdb; eval "$(documented "$fs")") >/dev/null
        [ "$(findmnt -no FSTYPE /var/lib/hostd)" = "$fs" ]
        findmnt --verify --fstab 2>&1 | grep -q '0 errors' || findmnt --verify --fstab
        cp -a /root/templates /var/lib/hostd/
        if [ -e /usr/local/sbin/hostd ]; then systemctl start hostd.socket hostd; else hostd_up; fi
        until_true 30 hostctl info
        hostctl doctor -f csv -c protection,state,detail,fix | tr -d '\r' | grep -E '^(disk|inodes|storage),'
        hostctl launch agent a -s memory=512MiB -s pids=256 -s disk=300MiB "$@"
        refused hostctl exec --user agent a -- dd if=/dev/zero of=/home/agent/full bs=1M count=400
        hostctl exec --user agent a -- rm /home/agent/full
        setuid /var/tmp
        setuid /home/agent
}

off() {
        hostctl delete --force a
        hostctl leaks
        until_true 60 sh -c '[ -z "$(ls -A /var/lib/hostd/.trash)" ]'
        systemctl stop hostd.socket hostd
        awk '$2 ~ "^/run/hostd/" { print $2 }' /proc/mounts | xargs -r umount
        umount /var/lib/hostd
        sed -i '\, /var/lib/hostd ,d' /etc/fstab
}

cp -a /var/lib/hostd/templates /root/templates
umount /var/lib/hostd
sed -i '\, /var/lib/hostd ,d' /etc/fstab

on btrfs
row disk | grep enforced
row storage | grep 'degraded.*no inode limit'
refused grep -q reflinks <<<"$(row storage)"
refused hostctl launch agent i -s memory=512MiB -s disk=300MiB -s inodes=1000
hostctl delete --force i 2>/dev/null || true
off

on ext4 -s inodes=10000
row inodes | grep enforced
row storage | grep 'degraded.*no reflinks'
hostctl stop --force a
slot=$(cut -d ' ' -f 1 /var/lib/hostd/instances/a/slot)
find /var/lib/hostd/instances/a -xdev \( -type d -o -type f \) -exec chattr -p 0 {} +
eval "$(documented projects)"
lsattr -pd /var/lib/hostd/instances/a/data/home/agent | grep -E "^ *$slot .*P"
hostctl start a
refused hostctl exec --user agent a -- dd if=/dev/zero of=/home/agent/full bs=1M count=400
off

on xfs -s inodes=10000
for name in disk inodes storage; do row $name | grep enforced; done
off
