# SPDX-License-Identifier: GPL-2.0-or-later
# A machine whose only file system has no project quotas: quickstart gives hostd an image with xfs, which is back after a reboot.
# LIMIT: 600
# FROM: boot
. tests/system/lib.sh
case ${1:-1} in
1)
        cp -a /var/lib/hostd/templates /root/templates
        umount /var/lib/hostd
        sed -i '/^.dev.vdb /d' /etc/fstab
        systemctl daemon-reload
        bash -c '. <(grep -v "^main " quickstart); make_storage' quickstart
        [ "$(findmnt -no FSTYPE,SOURCE /var/lib/hostd | grep -c 'xfs */dev/loop')" -eq 1 ]
        mv /root/templates /var/lib/hostd/
        hostd_up
        hostctl create agent a -s memory=512MiB -s pids=256 -s disk=300MiB -s inodes=10000
        hostctl create agent b -s memory=512MiB -s pids=256 -s disk=300MiB -s inodes=10000
        hostctl start a
        hostctl start b
        disk
        exit 88
        ;;
2)
        until_true 120 hostctl exec a -- test -e /var/tmp/fits
        [ "$(hostctl exec a -- df -m --output=size / | tail -n 1 | tr -d ' ')" -le 300 ]
        ./quickstart --clean
        refused grep -q hostd /etc/fstab
        nothing_left
        [ ! -e /var/lib/hostd.img ]
        [ ! -e /var/lib/hostd ]
        ;;
esac
