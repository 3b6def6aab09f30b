#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# How much an instance may ask of the DNS: its own keys, changed while it runs, in force with the answer.
set -u
. "$(dirname "$0")/../lib/product.sh"
. "$lib/internet.sh"
product_begin
end() { internet_remove; upstream_end; finish; }
internet_begin dns hostd-resolver

hostctl policy set pt-dns "allow *.good.example.org" "allow good.example.org" >/dev/null
launch pt-a policies=pt-dns >/dev/null || { fail launch pt-a; end; }
launch pt-b policies=pt-dns >/dev/null || { fail launch pt-b; end; }
resolves() { question "$@" | grep -q ^NOERROR; }
check "a name is resolved" wait_for 5 resolves pt-a good.example.org

check_status "records of text are refused by default" 0 "^REFUSED .*TXT are not enabled" question pt-a good.example.org TXT
check "they are enabled" hostctl set pt-a dns_types=TXT
check_status "and answered at once" 0 "^NOERROR" question pt-a good.example.org TXT
check_status "not to others" 0 "^REFUSED" question pt-b good.example.org TXT
check_not "a type that is none is refused" hostctl set pt-a dns_types=ANY

check "two names of a zone" hostctl set pt-a dns_names=2
for i in 1 2; do check_status "name $i is resolved" 0 "^NOERROR" question pt-a "n$i.good.example.org"; done
check_status "a third is not" 0 "^REFUSED .*more than 2 different names" question pt-a n3.good.example.org
check_status "but what a rule names exactly" 0 "^NOERROR" question pt-a good.example.org
check "three of them" hostctl set pt-a dns_names=3
check_status "and it is" 0 "^NOERROR" question pt-a n3.good.example.org

check "one question a second" hostctl set pt-a dns_rate=1 dns_burst=2
for _ in $(seq 6); do question pt-a good.example.org; done >"$work/many" 2>&1
check "the others are told" grep -q "^REFUSED .*more than 1 questions a second" "$work/many"
check_status "nobody else is held up" 0 "^NOERROR" question pt-b good.example.org
check "as before" hostctl unset pt-a dns_rate dns_burst dns_names dns_types
sleep 1
for _ in $(seq 6); do question pt-a good.example.org; done >"$work/many" 2>&1
check_not "again" grep -q REFUSED "$work/many"
check "an instance is deleted" hostctl delete --force pt-a pt-b
check_is "no leaks" "" no_leaks
end
