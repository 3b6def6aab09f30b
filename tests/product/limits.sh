#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Limits: changed live and read back from the kernel, refused when they cannot be, felt inside, kept from the neighbours; admission and carving.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
cg() { # FILE...: of the instance's box, whichever hierarchy has it
        local f d
        for f in "$@"; do
                d=$(find /sys/fs/cgroup \( -path "*/i$(printf %04x "$(slot pt-a)")-g*/box/$f" -o -path "*/hostd-instance@pt-a.service/box/$f" \) 2>/dev/null | head -n 1)
                [ -n "$d" ] && cat "$d" && return
        done
        return 1
}
enforced() { hostctl show pt-a -f json | jq -r ".enforced.$1"; }
cpu_quota() { local q p; if q=$(cg cpu.max); then set -- $q; p=$2 q=$1; else q=$(cg cpu.cfs_quota_us) p=$(cg cpu.cfs_period_us); fi; [ "$q" = max ] || [ "$q" = -1 ] && echo max || echo $((q * 1000 / p)); }
median_ms() { # NAME COUNT: of exec true
        local i t
        for i in $(seq "$2"); do t=$(date +%s%N); hostctl exec "$1" -- true; echo $((($(date +%s%N) - t) / 1000000)); done | sort -n | sed -n "$((($2 + 1) / 2))p"
}

launch pt-a cpu=1 memory=128MiB pids=200 disk=256MiB >/dev/null || { fail launch pt-a; finish; }
launch pt-b >/dev/null

# --- live, and read back
for v in 96 160 256; do
        check "memory=${v}MiB" hostctl set pt-a memory=${v}MiB
        check_is "the kernel has $v MiB" $((v << 20)) cg memory.max memory.limit_in_bytes
        check_is "hostd says so" "${v}MiB" enforced memory
done
for v in 100 300; do
        check "pids=$v" hostctl set pt-a pids=$v
        check_is "the kernel has $v processes" $v cg pids.max
done
for v in 0.25 1.5 2; do
        check "cpu=$v" hostctl set pt-a cpu=$v
        check_is "the kernel has $v CPUs" "$(awk "BEGIN { print $v * 1000 }")" cpu_quota
done
check "cpu=max" hostctl set pt-a cpu=max
check_is "the kernel has no bound" max cpu_quota
check "cpu_weight=300" hostctl set pt-a cpu_weight=300
if cg cpu.weight >/dev/null; then check_is "the kernel has the weight" 300 cg cpu.weight; else check_is "the kernel has the weight as shares" 3072 cg cpu.shares; fi
check_is "hostd says so" 300 enforced cpu_weight
hostctl unset pt-a cpu_weight >/dev/null
check_is "without one, hostd says what the kernel has" 100 enforced cpu_weight
if hostctl doctor -f csv | tr -d '\r' | grep '^limit swap,enforced' >/dev/null; then
        check "swap=64MiB" hostctl set pt-a swap=64MiB
        if cg memory.swap.max >/dev/null; then check_is "the kernel has it" $((64 << 20)) cg memory.swap.max; else check_is "the kernel has both" $(((256 + 64) << 20)) cg memory.memsw.limit_in_bytes; fi
        hostctl set pt-a swap=0 >/dev/null
else
        skip "swap" "this host cannot limit it"
fi
for key in io_read io_write cpu_pin; do
        case $key in cpu_pin) value=0 ;; *) value=10MiB ;; esac
        if hostctl doctor -f csv | tr -d '\r' | grep -q "^limit $key,enforced"; then
                check "$key=$value" hostctl set pt-a $key=$value
                check_is "hostd read it back" "$value" sh -c "hostctl show pt-a -f json | jq -r .enforced.$key | sed 's,/s,,'"
                hostctl unset pt-a $key >/dev/null
        else
                check_status "$key cannot be enforced here: refused, by name" 10 "$key" hostctl set pt-a $key=$value
                check_is "and not kept" "" sh -c "hostctl show pt-a --expanded -f json | jq -r '.settings[] | select(.key == \"$key\" and .source == \"instance\") | .value'"
                hostctl unset pt-a $key >/dev/null 2>&1
        fi
done
check "disk=512MiB" hostctl set pt-a disk=512MiB
check_is "shown" $((512 << 20)) field pt-a disk
check "unset goes back to the default" sh -c "hostctl set pt-a memory=64MiB && hostctl unset pt-a cpu_weight && hostctl show pt-a -f json | jq -e '.memory == 67108864'"
check_status "a bad value: nothing changes" 2 memory hostctl set pt-a pids=111 memory=lots
check_is "not even the good one beside it" 300 cg pids.max
for kv in memory=1 memory=31MiB pids=63 pids=4194305 cpu=0 cpu=0.001 cpu=8193 cpu=1.2345 cpu=-1 disk=1 memory=max pids=max disk=max open_files=63 swap=-1 upload=1 memory=99999999999999999999 pids=1e3 pids=0x40 stop_timeout=0 boot=maybe boot_order=1001; do
        check_status "$kv is refused" 2 "${kv%%=*}" hostctl set pt-a "$kv"
done

# --- below what is in use
hostctl set pt-a memory=256MiB >/dev/null
# Files of a memory file system: nothing can take them back, and they stay when their writer has gone.
check "100 MB are in use" hostctl exec pt-a -- sh -c 'mkdir -p /m && mount -t tmpfs tmpfs /m && head -c 100000000 /dev/zero >/m/x'
hostctl set pt-a memory=48MiB >"$work/out" 2>&1
status=$?
if [ $status -ne 0 ] && grep -qi -e 'in use' "$work/out"; then ok "memory below what is used is refused, and says how much is"; else fail "memory below use" "status $status: $(cat "$work/out")"; fi
check_is "the limit stays" $((256 << 20)) cg memory.max memory.limit_in_bytes
check_is "also in the file" 268435456 field pt-a memory
hostctl exec pt-a -- umount /m
check "afterwards it is accepted" hostctl set pt-a memory=64MiB

# --- processor time
hostctl set pt-a cpu=0.2 >/dev/null
used() { hostctl show pt-a -f json | jq .cpu_used; }
begin=$(used)
timeout 10 hostctl exec --timeout 3s pt-a -- sh -c 'while :; do :; done' >/dev/null 2>&1
spent=$((($(used) - begin) / 1000))
if [ $spent -ge 350 ] && [ $spent -le 800 ]; then ok "0.2 CPUs for 3 s gave $spent ms"; else fail "cpu" "$spent ms in 3 s at 0.2 CPUs"; fi
hostctl set pt-a cpu=1 >/dev/null

# --- shares of contended processors: four loops in each, on however many there are
hostctl set pt-a cpu=max cpu_weight=100 >/dev/null
hostctl set pt-b cpu=max cpu_weight=400 >/dev/null
used_by() { hostctl show "$1" -f json | jq .cpu_used; }
for name in pt-a pt-b; do
        for i in $(seq $((2 * $(nproc)))); do timeout 20 hostctl exec --timeout 6s $name -- sh -c 'while :; do :; done' >/dev/null 2>&1 & done
done
sleep 1.5
light=$(used_by pt-a) heavy=$(used_by pt-b)
sleep 3
light=$(($(used_by pt-a) - light)) heavy=$(($(used_by pt-b) - heavy))
wait $(jobs -p) 2>/dev/null
if [ $heavy -ge $((light * 2)) ]; then ok "a fourfold weight gave $((heavy * 10 / (light + 1)))/10 of the other's time"; else fail "cpu_weight" "$((heavy / 1000)) ms with weight 400, $((light / 1000)) ms with 100"; fi
hostctl set pt-a cpu=1 >/dev/null
hostctl unset pt-b cpu cpu_weight >/dev/null

# --- a full disk
hostctl set pt-a disk=64MiB memory=128MiB >/dev/null
free_before=$(df --output=avail -k "$HOSTD_STATE" | tail -n 1)
for place in /home/agent /var/tmp; do
        ex pt-a -- dd if=/dev/zero of=$place/fill bs=1M count=300 >"$work/out" 2>&1
        status=$?
        size=$(ex pt-a -- stat -c %s $place/fill)
        if [ $status -ne 0 ] && grep -qiE 'quota|space' "$work/out" && [ "${size:-0}" -le $((66 << 20)) ]; then ok "$place is full after $size bytes, said inside"; else fail "full $place" "status $status, $size bytes, $(tail -n 1 "$work/out")"; fi
        ex pt-a -- rm -f $place/fill
        wait_for 10 sh -c "hostctl exec pt-a -- dd if=/dev/zero of=$place/again bs=1M count=8; s=\$?; hostctl exec pt-a -- rm -f $place/again; exit \$s"
        check "room again after rm in $place" sh -c "hostctl exec pt-a -- dd if=/dev/zero of=$place/again bs=1M count=8; s=\$?; hostctl exec pt-a -- rm -f $place/again; exit \$s"
done
ex pt-a -- sh -c 'i=0; while [ $i -lt 400 ]; do head -c 300000 /dev/zero >/home/agent/f$i || exit 9; i=$((i+1)); done' >/dev/null 2>&1
check "many files meet the same limit" test $? -ne 0
check "the neighbour can write" ex pt-b -- dd if=/dev/zero of=/home/agent/x bs=1M count=20
p50=$(median_ms pt-b 9)
if [ "$p50" -le $((60 * slow)) ]; then ok "the neighbour answers in $p50 ms beside a full disk"; else fail "neighbour" "$p50 ms"; fi
free_after=$(df --output=avail -k "$HOSTD_STATE" | tail -n 1)
if [ $((free_before - free_after)) -le $((160 << 10)) ]; then ok "the host lost no more than the limits"; else fail "host space" "$((free_before - free_after)) KiB"; fi
check "an instance with a full disk can be entered" ex pt-a -- true
check "stopped and started" hostctl restart pt-a
check "and given more" sh -c "hostctl set pt-a disk=256MiB && hostctl exec pt-a -- dd if=/dev/zero of=/home/agent/more bs=1M count=32"
ex pt-a -- sh -c 'rm -f /home/agent/*'
ex pt-a -- sh -c 'dd if=/dev/zero of=/home/agent/sparse bs=1 count=1 seek=10G' >/dev/null 2>&1
check "a sparse file costs nothing" ex pt-a -- dd if=/dev/zero of=/home/agent/y bs=1M count=20

# --- open files
check_is "open files as set" 1000 sh -c "hostctl set pt-a open_files=1000 >/dev/null && hostctl restart pt-a >/dev/null && hostctl exec pt-a -- sh -c 'ulimit -n'"

# --- admission
total=$(hostctl info -f json 2>/dev/null | jq .memory 2>/dev/null)
check_status "more memory than the host has is refused" 6 'GiB|MiB|bytes' hostctl create tiny pt-big -s memory=900GiB -s disk=64MiB
cp "$work/out" "$work/sentence"
check "the sentence has the exact shortfall" grep -qE '[0-9.]+ ?(GiB|MiB|bytes)' "$work/sentence"
check "and nothing is made" absent pt-big
check_not "no file either" test -e "$HOSTD_ETC/instances.d/pt-big.conf"
check_status "more disk than the host has is refused" 6 'disk|space' hostctl create tiny pt-big -s memory=64MiB -s disk=900TiB
check_status "set is admitted by the same rule" 6 memory hostctl set pt-a memory=900GiB
check_status "launch too" 6 memory hostctl launch tiny pt-big -s memory=900GiB
info() { hostctl info | sed -n "s/^$1: *//p"; }
bytes() { python3 -c 'import re, sys; n, u = re.match(r"([0-9.]+)\s*([KMGT]iB|B|)", sys.argv[1]).groups(); print(int(float(n) * 1024 ** "BKMGT".index((u or "B")[0])))' "$1"; }
capacity=$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) * 1024))
reserve=$(bytes "$(info memory_reserve)") promised=$(bytes "$(info memory_promised)")
left=$((capacity - reserve - promised))
check_status "one MiB too much is refused" 6 . hostctl create tiny pt-edge -s memory=$((left + (64 << 20))) -s disk=64MiB
short=$(grep -oE '[0-9]+(\.[0-9]+)? ?[KMG]iB' "$work/out" | tr '\n' ' ')
note "asked for 64 MiB more than is left; the refusal names: $short"
check "what fits is admitted" hostctl create tiny pt-edge -s memory=$((left - (64 << 20))) -s disk=64MiB
check_status "then the next is refused" 6 . hostctl create tiny pt-edge2 -s memory=$((65 << 20)) -s disk=64MiB
check "delete gives it back" sh -c "hostctl delete pt-edge && hostctl create tiny pt-edge2 -s memory=$((65 << 20)) -s disk=64MiB && hostctl delete pt-edge2"
for i in 1 2 3 4 5 6; do hostctl create tiny pt-p$i -s memory=$((left / 3)) -s disk=64MiB >"$work/par.$i" 2>&1 & done
wait $(jobs -p)
n=$(csv name | grep -c '^pt-p[1-6]')
if [ "$n" -ge 2 ] && [ "$n" -le 3 ]; then ok "parallel creates never promise more than there is ($n of 6 admitted)"; else fail "parallel admission" "$n were admitted"; fi
for i in 1 2 3 4 5 6; do hostctl delete pt-p$i >/dev/null 2>&1; done

# --- carve
plan=$(hostctl carve --count 3 --template tiny --prefix pt-c -f csv --columns name,cpu,memory,disk,pids </dev/null 2>/dev/null | tr -d '\r' | grep '^pt-c')
if [ "$(wc -l <<<"$plan")" = 3 ]; then ok "carve shows a plan"; else fail "carve plan" "$(hostctl carve --count 3 --template tiny --prefix pt-c </dev/null 2>&1 | head -n 5)"; fi
check_is "and writes nothing without a yes" 0 sh -c "hostctl list -f csv -c name | grep -c '^pt-c'"
check "carve --yes" hostctl carve --count 3 --template tiny --prefix pt-c --yes
made=$(hostctl list -f csv -c name,cpu,memory,disk | tr -d '\r' | grep '^pt-c' | sort)
check_is "what is made is what was planned" "$(cut -d, -f1-4 <<<"$plan" | sort)" echo "$made"
check_is "they are equal" 1 sh -c "hostctl list -f csv -c name,cpu,memory,disk,pids_used | grep '^pt-c' | cut -d, -f2-4 | sort -u | wc -l"
check_status "a second carve has no room" 6 . hostctl carve --count 3 --template tiny --prefix pt-d --yes
check_is "and makes none, not even some" 0 sh -c "hostctl list -f csv -c name | grep -c '^pt-d'"
for n in 0 65 -1 x; do check_status "carve --count $n is refused" 2 count hostctl carve --count "$n" --template tiny --prefix pt-d; done
hostctl delete --force pt-c1 pt-c2 pt-c3 pt-a pt-b >/dev/null 2>&1
check "no leaks at the end" no_leaks
finish
