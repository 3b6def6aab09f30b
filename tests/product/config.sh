#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Desired state is text: hand edits, apply, refusals with file and line, history, two writers at once, and the audit of every change.
set -u
. "$(dirname "$0")/../lib/product.sh"
product_begin
conf=$HOSTD_ETC/instances.d/pt-a.conf
cp "$HOSTD_ETC/hostd.conf" "$work/hostd.conf"
restore() { cp "$work/hostd.conf" "$HOSTD_ETC/hostd.conf"; rm -f "$HOSTD_ETC"/instances.d/pt-*.conf.* "$HOSTD_ETC"/policies.d/pt-bad.conf; hostctl apply >/dev/null 2>&1; }
trap 'restore; finish' EXIT
commits() { git -C "$HOSTD_ETC" rev-list --count HEAD; }
# One commit for each of them, with one file in each.
commands_since() { git -C "$HOSTD_ETC" log --format=%s "$1..HEAD" | grep -cE '^(set|label) pt-[ab]$'; }
files_since() { git -C "$HOSTD_ETC" log --format= --name-only "$1..HEAD" | grep -c .; }
enforced() { hostctl show pt-a -f json | jq -r ".enforced.$1"; }

# --- every change is a commit with its author and its command
launch pt-a pids=100 >/dev/null
check "launch wrote the file" test -s "$conf"
check_is "the file's mode" 644 sh -c "stat -c %a $conf | sed 's/^600\$/644/'"
check "it is in the newest commit" sh -c "git -C $HOSTD_ETC show --name-only HEAD | grep -q instances.d/pt-a.conf"
n=$(commits)
hostctl set pt-a pids=110 >/dev/null
check_is "set is one commit" $((n + 1)) commits
check "with its command as subject" sh -c "hostctl config log -n 1 | grep -q 'set pt-a'"
check "and who asked as author" sh -c "hostctl config log -n 1 | grep -q ' root '"
check "config diff shows it" sh -c "hostctl config diff \$(git -C $HOSTD_ETC rev-parse HEAD) | grep -q '^+.*110'"
hostctl set pt-a pids=110 >/dev/null
check_is "no change is no commit" $((n + 1)) commits

# --- by hand
sed -i 's/^pids = .*/pids = 120;/' "$conf"
grep -q '120' "$conf" || fail "hand edit" "$(cat "$conf")"
check "config diff shows what is not committed" sh -c "hostctl config diff | grep -q '^+.*120'"
check "apply --dry-run says what would change" sh -c "hostctl apply --dry-run | grep -q 'pt-a.*pids\|pids.*pt-a'"
check_is "and changes nothing" 110 enforced pids
check_is "nor commits" $((n + 1)) commits
check "apply" sh -c "hostctl apply | grep -q pids"
check_is "is in force" 120 enforced pids
check_is "and committed" $((n + 2)) commits
check_is "apply again finds nothing" "" sh -c "hostctl apply -h >/dev/null; hostctl apply | grep pt-a"
cat >"$HOSTD_ETC/instances.d/pt-b.conf" <<'E'
# written by hand
template = "tiny";   // a comment
memory = "64MiB"; disk = "64MiB";
E
check "a new file makes an instance" sh -c "hostctl apply | grep -q pt-b"
check "which is there" sh -c "hostctl list -f csv -c name | grep -q '^pt-b'"
check "and starts" hostctl start pt-b
check "set keeps the comments of a file" sh -c "hostctl set pt-b pids=99 >/dev/null && grep -q '^# written by hand' $HOSTD_ETC/instances.d/pt-b.conf && grep -q '// a comment' $HOSTD_ETC/instances.d/pt-b.conf"

# --- invalid files are refused, with place and reason, and the old state stays
refused() { # NAME PATTERN: what is in $conf now
        local name=$1 pattern=$2
        cp "$conf" "$work/bad.conf"
        before=$(config_head)
        check_status "$name: apply is refused" 2 "$pattern" hostctl apply
        check_status "$name: a dry run too" 2 "$pattern" hostctl apply --dry-run
        check_is "$name: the old state is in force" 120 enforced pids
        check_is "$name: nothing was committed" "$before" config_head
        cp "$work/good.conf" "$conf"
}
cp "$conf" "$work/good.conf"
printf 'template = "tiny";\nmemory = "64MiB"\ndisk = ;\n' >"$conf"
refused "syntax" 'pt-a.conf:[23]'
printf 'template = "tiny";\nmemory = "64MiB";\nnonsense = 3;\n' >"$conf"
refused "unknown key" 'pt-a.conf:3.*nonsense'
printf 'template = "tiny";\npids = 3;\n' >"$conf"
refused "out of bounds" 'pt-a.conf:2.*pids'
printf 'template = "tiny";\npids = "many";\n' >"$conf"
refused "wrong type" 'pt-a.conf:2.*pids'
printf 'template = "tiny";\npids = 100;\npids = 200;\n' >"$conf"
refused "given twice" 'pt-a.conf:3'
printf 'template = "tiny";\n@include "/etc/passwd"\n' >"$conf"
refused "include" 'pt-a.conf:2'
printf 'template = "tiny";\ndescription = "a\\nb";\n' >"$conf"
refused "newline in a string" 'pt-a.conf:2.*description'
printf 'template = "tiny";\ndescription = "\xff\xfe";\n' >"$conf"
refused "non-UTF-8" 'pt-a.conf'
printf 'template = "tiny";\ndescription = "a\0b";\n' >"$conf"
refused "NUL" 'pt-a.conf'
printf 'template = "tiny";\npolicies = ["pt-absent"];\n' >"$conf"
refused "a policy that is not there" 'pt-absent'
head -c 1100000 /dev/zero | tr '\0' '#' >"$conf"
refused "too long" 'pt-a.conf'
rm "$conf"
ln -s /etc/passwd "$conf"
check_status "a link: apply is refused" 2 'pt-a.conf' hostctl apply
rm "$conf"
cp "$work/good.conf" "$conf"
printf 'action = 3;\n' >"$HOSTD_ETC/policies.d/pt-bad.conf"
check_status "a bad policy file is refused" 2 'pt-bad.conf:1' hostctl apply
rm "$HOSTD_ETC/policies.d/pt-bad.conf"
cp "$work/good.conf" "$HOSTD_ETC/instances.d/Bad_Name.conf"
check_status "a file with a bad name is refused" 2 'Bad_Name' hostctl apply
rm "$HOSTD_ETC/instances.d/Bad_Name.conf"
printf 'nonsense = 1;\n' >>"$HOSTD_ETC/hostd.conf"
check_status "hostd.conf too" 2 'hostd.conf:[0-9]+.*nonsense' hostctl apply
check_status "hostd --check-config says the same" 2 'hostd.conf:[0-9]+.*nonsense' hostd --check-config --etc-dir "$HOSTD_ETC"
cp "$work/hostd.conf" "$HOSTD_ETC/hostd.conf"
check "hostd --check-config of good files" hostd --check-config --etc-dir "$HOSTD_ETC"
echo 'junk' >"$HOSTD_ETC/instances.d/pt-a.conf~"
check "an editor's backup file is no instance" sh -c "hostctl apply >/dev/null; ! hostctl list | grep '~'"
rm -f "$HOSTD_ETC/instances.d/pt-a.conf~"
# While a file is bad, verbs that need no configuration still work, and none takes the bad file over.
echo 'garbage' >>"$conf"
check "exec works beside a bad file" ex pt-a -- true
check_not "set does not take a bad file over" hostctl set pt-b pids=98
cp "$work/good.conf" "$conf"
hostctl apply >/dev/null

# --- admission holds for hand-written files too
sed -i 's/memory = .*/memory = "900GiB";/' "$conf"
check_status "apply refuses what does not fit this host" 6 'GiB|bytes' hostctl apply
cp "$work/good.conf" "$conf"
hostctl apply >/dev/null 2>&1

# --- back in history
target=$(config_head)
hostctl set pt-a pids=130 description="second" >/dev/null
hostctl set pt-a pids=140 >/dev/null
check "rollback" hostctl config rollback "$target"
check_is "is in force" 120 enforced pids
check_not "the file is as it was" grep -q second "$conf"
check "rollback is a commit of its own" sh -c "hostctl config log -n 1 | grep -q rollback"
for rev in nonsense 0000000000000000000000000000000000000000 -n --help 'HEAD;id' "$(printf 'a\nb')" HEAD~999999 '' ../x; do
        hostctl config rollback -- "$rev" >"$work/out" 2>&1
        status=$?
        case $status in 2 | 3) ok "rollback to '${rev//$'\n'/?}' is refused" ;; *) fail "rollback to '$rev'" "status $status: $(head -n 2 "$work/out")" ;; esac
done
check_is "nothing changed by these" 120 enforced pids
check "the repository is whole" git -C "$HOSTD_ETC" fsck --no-progress

# --- two at once
before=$(commits) start=$(config_head)
for i in $(seq 10); do hostctl set pt-a labels.a$i=v$i >"$work/set.a$i" 2>&1 & hostctl set pt-b labels.b$i=v$i >"$work/set.b$i" 2>&1 & done
wait $(jobs -p)
check_is "20 parallel changes are all there" "10 10" sh -c "echo \$(hostctl show pt-a -f json | jq '.labels | keys | map(select(startswith(\"a\"))) | length') \$(hostctl show pt-b -f json | jq '.labels | keys | map(select(startswith(\"b\"))) | length')"
check_is "they are in the history" 20 sh -c "git -C $HOSTD_ETC show HEAD:instances.d/pt-a.conf HEAD:instances.d/pt-b.conf | grep -oE '[ab][0-9]+=v[0-9]+' | wc -l"
check_is "each is a commit with its command" "20 20" echo $(commands_since "$start") $(files_since "$start")
start=$(config_head) begin=$(now_ms)
for i in $(seq 100); do hostctl set pt-a description="burst $i" >/dev/null 2>&1 & done
wait $(jobs -p)
note "100 changes at once: $(($(now_ms) - begin)) ms until all were answered"
check_is "100 changes at once are 100 commits" "100 100" echo $(commands_since "$start") $(files_since "$start")
check_is "each text is in one of them" 100 sh -c "git -C $HOSTD_ETC log -p --format= $start..HEAD | grep -oE '^\\+description = \"burst [0-9]+\"' | sort -u | wc -l"

# --- a person edits while others change
sed -i 's/^pids = .*/pids = 97;/' "$HOSTD_ETC/instances.d/pt-b.conf"
start=$(config_head)
hostctl set pt-a description="beside a hand edit" >/dev/null
check_is "a hand edit of another file is not in somebody's commit" "instances.d/pt-a.conf" git -C "$HOSTD_ETC" log --format= --name-only "$start..HEAD"
hostctl apply >/dev/null
check_is "apply commits it by itself" "apply instances.d/pt-b.conf" sh -c "git -C $HOSTD_ETC log --format=%s --name-only -1 | xargs"
sed -i 's/^pids = .*/pids = 96;/' "$HOSTD_ETC/instances.d/pt-b.conf"
hostctl set pt-b description="over a hand edit" >/dev/null
check_is "one of the same file has its own commit before" "set pt-b; instances.d/pt-b.conf: found changed by hand;" sh -c "git -C $HOSTD_ETC log --format='%s;' -2 | xargs"
git -C "$HOSTD_ETC" -c user.name=op -c user.email=op@host commit -q --allow-empty -m "by hand"
check "a person may commit here" hostctl set pt-b description="after a commit by hand"
check_is "nothing is pending" "" git -C "$HOSTD_ETC" status --porcelain -uno

# --- hostd dies between the file and its commit: the next one finds it
git -C "$HOSTD_ETC" symbolic-ref HEAD >"$work/branch"
touch -d '+1 day' "$HOSTD_ETC/.git/$(cat "$work/branch").lock"
check_status "a change that git cannot take says so" 1 "not yet in the configuration's history" hostctl set pt-b description="not committed"
check "warning" sh -c "hostctl warning list | grep -q history"
hostd_kill
rm "$HOSTD_ETC/.git/$(cat "$work/branch").lock"
hostd_start
check "after the death of hostd it is found" wait_for 10 sh -c "git -C $HOSTD_ETC show HEAD | grep -q '^+description = .not committed' && git -C $HOSTD_ETC log -1 --format=%s | grep -q '^found when hostd started'"
(for i in $(seq 20); do sed -i "s/^pids = .*/pids = $((150 + i));/" "$conf"; hostctl apply >/dev/null 2>&1; done) &
(for i in $(seq 20); do hostctl set pt-a description="n$i" >/dev/null 2>&1; done) &
wait $(jobs -p)
check "an editor and hostctl at once: the files are valid" hostd --check-config --etc-dir "$HOSTD_ETC"
hostctl apply >/dev/null
check "files, memory and commit agree" sh -c "[ -z \"\$(hostctl apply --dry-run | grep pt-)\" ] && [ -z \"\$(git -C $HOSTD_ETC status --porcelain -uno)\" ]"

# --- policies
check "policy set" hostctl policy set pt-p "allow 198.51.100.0/24 tcp 80,443" "deny 0.0.0.0/0" -d "some"
check "policy show" sh -c "hostctl policy show pt-p | grep -q 198.51.100.0/24"
check "policy list" sh -c "hostctl policy list -f csv | grep -q '^pt-p,2'"
hostctl set pt-a policies=pt-p >/dev/null
# A template of an older hostd has no list for @packages: nothing is put in its place.
manifest=$HOSTD_STATE/templates/$(hostctl template show tiny -f json | jq -r .digest).json
cp -p "$manifest" "$work/manifest"
jq 'del(.mirrors)' "$work/manifest" >"$manifest"
check "hostd comes back with it" hostd_crash
hostctl policy set pt-mirrors "allow @packages" >/dev/null
check_status "@packages of a template without a list is refused, and what to do is said" 2 'has no list of where its package clients fetch from; build or import it anew' hostctl set pt-a policies=pt-mirrors
check "an operator's file does for it" sh -c "echo m.example.org:443 >$HOSTD_ETC/categories.d/packages.conf && hostctl apply && hostctl set pt-a policies=pt-mirrors"
rm "$HOSTD_ETC/categories.d/packages.conf"
check_status "which cannot go then" 2 'has no list of where its package clients' hostctl apply
echo m.example.org:443 >"$HOSTD_ETC/categories.d/packages.conf"
check "nobody needs it any more" hostctl set pt-a policies=pt-p
rm "$HOSTD_ETC/categories.d/packages.conf"
check "and it can go" hostctl apply
cp -p "$work/manifest" "$manifest"
check "hostd comes back with the list" hostd_crash
check "and takes the rule" hostctl set pt-a policies=pt-mirrors
hostctl set pt-a policies=pt-p >/dev/null
check "a package policy" hostctl set pt-a package_no_scripts=true package_lock_only=true
check "is settings of its clients inside" wait_for 20 hostctl exec pt-a -- sh -c 'grep -qx ignore-scripts=true /etc/npmrc && grep -q require-hashes /etc/xdg/pip/pip.conf'
# What the instance says of it. A client is there when its program is.
ex pt-a -- sh -c 'mkdir -p /usr/local/bin; for p in npm pip3; do command -v $p >/dev/null || { : >/usr/local/bin/$p && chmod 755 /usr/local/bin/$p; }; done'
claims() { hostctl network packages pt-a -f csv | tr -d '\r'; } # user,client,setting,claim,by
check "it says that they are kept" sh -c "hostctl network packages pt-a -f csv | tr -d '\r' | grep -qx root,npm,ignore-scripts,kept,/etc/npmrc"
check_is "for root and the agent's user" "agent,pip,only-binary,kept,/etc/xdg/pip/pip.conf root,pip,only-binary,kept,/etc/xdg/pip/pip.conf" sh -c "hostctl network packages pt-a -f csv | tr -d '\r' | grep ,only-binary, | sort | paste -sd' '"
ex -u agent pt-a -- sh -c 'echo ignore-scripts=false >~/.npmrc'
check_status "one that the agent has overridden" 0 'agent,npm,ignore-scripts,overridden,/home/agent/.npmrc' claims
check_status "is so for him alone" 0 'root,npm,ignore-scripts,kept' claims
ex pt-a -- sh -c 'rm -f /etc/npmrc; mkfifo /root/.npmrc'
check_status "no pipe is waited for" 0 'root,npm,ignore-scripts,unreadable,/root/.npmrc' claims
ex pt-a -- rm -f /root/.npmrc
check_status "and one that root has removed" 0 'root,npm,ignore-scripts,missing,/etc/npmrc' claims
check_status "apt has no such setting" 0 'root,apt,,no setting,' claims
check "a part of it is taken back" hostctl unset pt-a package_no_scripts
check "and gone inside" wait_for 20 hostctl exec pt-a -- sh -c '! ls /etc/npmrc && ! grep only-binary /etc/xdg/pip/pip.conf'
check_status "what nobody asked for is not judged" 0 'agent,npm,ignore-scripts,not asked for,' claims
check "all of it is taken back" hostctl unset pt-a package_lock_only
check "and gone" wait_for 20 hostctl exec pt-a -- sh -c '! ls /etc/xdg/pip/pip.conf'
check "policy explain: allowed" sh -c "hostctl policy explain pt-a 198.51.100.7:443 | grep -qi allow"
check "policy explain: denied" sh -c "hostctl policy explain pt-a 203.0.113.7:443 | grep -qi den"
check_status "delete of one in use is refused" 7 'pt-a' hostctl policy delete pt-p
hostctl unset pt-a policies >/dev/null
check "delete" hostctl policy delete pt-p
check_status "it is gone" 3 pt-p hostctl policy show pt-p
for rule in "permit 1.2.3.4" "allow" "allow 1.2.3.4/33" "allow 10.0.0.1/8" "allow ::/0 tcp 0" "allow 1.2.3.4 tcp 70000" "allow 1.2.3.4 icmp 80" "allow 1.2.3.4 tcp 9-1" "allow 1.2.3.4 sctp" 'allow 1.2.3.4" tcp' "allow example..com tcp 443" "allow *.com" "$(printf 'allow 1.2.3.4\ndeny')"; do
        check_status "rule '${rule//$'\n'/?}' is refused" 2 'rule|address|CIDR|port|protocol|action' hostctl policy set pt-p "$rule"
done
check_status "and makes no policy" 3 pt-p hostctl policy show pt-p
check_not "nor a file" test -e "$HOSTD_ETC/policies.d/pt-p.conf"

# --- the audit log has a record for each mutating call
seq_now() { hostctl audit tail -n 1 -f json | jq '.records[-1].seq'; }
audited() { # METHOD TARGET COMMAND...
        local method=$1 target=$2 from
        shift 2
        from=$(seq_now)
        "$@" >/dev/null 2>&1
        if hostctl audit tail -n 50 -f json | jq -e ".records[] | select(.seq > $from and .method == \"io.hostd.$method\" and (.target // \"\") == \"$target\" and .user == \"root\" and .uid == 0 and .pid > 0 and .result != null)" >/dev/null; then ok "audited: $method"; else fail "audited: $method" "$(hostctl audit tail -n 3)"; fi
}
audited Instance.Create pt-c hostctl create tiny pt-c -s memory=64MiB -s disk=64MiB
audited Instance.Start pt-c hostctl start pt-c
audited Instance.Pause pt-c hostctl pause pt-c
audited Instance.Resume pt-c hostctl resume pt-c
audited Instance.Restart pt-c hostctl restart pt-c
audited Instance.Set pt-c hostctl set pt-c pids=77
audited Instance.Unset pt-c hostctl unset pt-c pids
audited Instance.Label pt-c hostctl label pt-c x=y
audited Command.Exec pt-c hostctl exec pt-c -- true
audited File.Push pt-c sh -c 'echo x | hostctl file push - pt-c:/tmp/x'
audited File.Pull pt-c hostctl file pull pt-c:/tmp/x -
audited File.List pt-c hostctl file list pt-c:/tmp
audited File.Remove pt-c hostctl file rm pt-c:/tmp/x
audited Instance.Stop pt-c hostctl stop pt-c
audited Instance.Rebuild pt-c hostctl rebuild pt-c
audited Instance.Delete pt-c hostctl delete pt-c
audited Instance.Launch pt-c hostctl launch tiny pt-c -s memory=64MiB -s disk=64MiB
audited Policy.Set pt-p hostctl policy set pt-p "allow 1.2.3.4"
audited Policy.Delete pt-p hostctl policy delete pt-p
audited Config.Apply "" hostctl apply
audited Config.Rollback "$target" hostctl config rollback "$target"
audited Template.Delete absent hostctl template delete absent
audited Instance.Start pt-absent hostctl start pt-absent
check "audit query finds by method and result" sh -c "hostctl audit query --method io.hostd.Instance.Start --target pt-absent -f json | jq -e '.records | length > 0 and all(.result != \"ok\")'"
check "audit verify" hostctl audit verify
log=$(ls -t "$HOSTD_STATE"/audit/*.jsonl "$HOSTD_STATE"/audit/* 2>/dev/null | head -n 1)
check_is "the log is root's alone" 600 stat -c %a "$log"
# In place: hostd keeps it open.
poke() { python3 -c 'import os, sys; d = open(sys.argv[1], "rb").read(); f = os.open(sys.argv[1], os.O_WRONLY); os.pwrite(f, sys.argv[3].encode(), d.index(sys.argv[2].encode()))' "$log" "$1" "$2"; }
poke '"user":"root"' '"user":"toor"' || poke '"root"' '"toor"'
check_status "a changed record is found" 8 "line [0-9]+" hostctl audit verify
poke '"user":"toor"' '"user":"root"' 2>/dev/null || poke '"toor"' '"root"'
check "and put back it verifies" hostctl audit verify
hostctl delete --force pt-a pt-b pt-c >/dev/null 2>&1
check "no leaks at the end" no_leaks
finish
