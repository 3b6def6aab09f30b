// SPDX-License-Identifier: GPL-2.0-or-later
// Verdict: see verdict.h. In this order: what is no question for us, names that mean this machine, the policies, the type, the count of names:
// who asks for what is denied learns the rule, whatever else is wrong with the question.
#include "resolver/verdict.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <string.h>

#include "resolver/dns_wire.h"

static void verdict_refuse(Verdict *v, DnsEde ede, const char *format, ...) _printf_(3, 4);
static void verdict_refuse(Verdict *v, DnsEde ede, const char *format, ...) {
        va_list ap;

        v->rcode = DNS_REFUSED;
        v->ede = ede;
        va_start(ap, format);
        (void) vsnprintf(v->text, sizeof(v->text), format, ap);
        va_end(ap);
}

static bool text_is_at_or_below(const char *name, const char *zone) {
        return strcmp(name, zone) == 0 || name_is_below(name, zone);
}

// RFC 6761 and 7686: names that no name server may be asked for. True if the verdict is made.
static bool verdict_special(const char *name, uint16_t type, Verdict *v) {
        static const char *const nowhere[] = {"invalid", "onion"};
        Writer w = {.data = v->records, .max = sizeof(v->records)};

        for (size_t i = 0; i < ELEMENTS(nowhere); i++)
                if (text_is_at_or_below(name, nowhere[i])) {
                        v->answered = true;
                        v->rcode = DNS_NXDOMAIN;
                        return true;
                }
        if (!text_is_at_or_below(name, "localhost"))
                return false;
        // The workload's own host: nothing of ours is reached by it.
        v->answered = true;
        if (type == DNS_A || type == DNS_AAAA) {
                writer_put16(&w, type);
                writer_put16(&w, type == DNS_A ? 4 : 16);
                writer_put(&w, type == DNS_A ? (const void *) "\177\0\0\1" : &in6addr_loopback, type == DNS_A ? 4 : 16);
        }
        v->size = w.size;
        return true;
}

static bool type_is_enabled(const ViewSlot *view, uint16_t type) {
        for (char **t = view->dns.types; t && *t; t++)
                if (dns_type_from_name(*t) == type)
                        return true;
        return false;
}

// A name that is allowed because all addresses of one family are has none of the other: a client that had one would go there first, and be cut off.
static bool family_is_allowed(const ViewSlot *view, const PolicyDecision *decision, const char *name, uint16_t type) {
        if (decision->rule->kind != RULE_ADDRESS && (!decision->outer || decision->outer->kind != RULE_ADDRESS))
                return true; // by its name: whichever family it has
        PolicyQuestion question = {.name = name, .protocol = POLICY_ANY, .family = type == DNS_A ? AF_INET : AF_INET6};

        return policy_decide(view->compiled, &question).action == POLICY_ALLOW;
}

static void verdict_type(const ViewSlot *view, const char *name, uint16_t type, Verdict *v) {
        char buf[DNS_TYPE_TEXT_MAX];

        switch (type) {
        case DNS_A:
        case DNS_AAAA:
                v->pass = family_is_allowed(view, &v->decision, name, type);
                v->answered = !v->pass;
                break;
        case DNS_CNAME:
        case DNS_MX:
        case DNS_SRV:
                v->pass = true;
                break;
        case DNS_HTTPS:
        case DNS_SVCB:
                // They would have clients use QUIC, and hide the name that the proxy must see. Without them they do what always works.
                v->answered = true;
                break;
        default:
                if (dns_type_is_known(type) && type_is_enabled(view, type))
                        v->pass = true;
                else
                        verdict_refuse(v, DNS_EDE_FILTERED, "questions of type %s are not %s", dns_type_to_text(type, buf),
                                       dns_type_is_known(type) ? "enabled here" : "answered");
        }
}

// Names as policies have them: they refuse some that DNS allows, as a last label of digits, and those are denied like unknown ones.
static bool name_for_policy(const DnsName *name, char ret[NAME_TEXT_MAX]) {
        char text[DNS_TEXT_MAX];

        (void) dns_name_to_text(name, text);
        return name_normalise(text, strlen(text), ret) == 0;
}

void verdict_of(const ViewSlot *view, Zones *zones, const VerdictQuestion *question, Verdict *ret) {
        char name[NAME_TEXT_MAX];

        *ret = (Verdict) {.ede = DNS_EDE_NONE, .decision = {.action = POLICY_DENY, .index = -1}};
        if (question->class != DNS_CLASS_IN) {
                verdict_refuse(ret, DNS_EDE_FILTERED, "only questions of class IN are answered");
                return;
        }
        if (!name_for_policy(question->name, name)) {
                verdict_refuse(ret, DNS_EDE_BLOCKED, "this is no name of a host");
                return;
        }
        if (verdict_special(name, question->type, ret))
                return;
        ret->decision = policy_decide(view->compiled, &(PolicyQuestion) {.name = name, .protocol = POLICY_ANY});
        if (ret->decision.action != POLICY_ALLOW) {
                ret->rcode = DNS_REFUSED;
                ret->ede = DNS_EDE_BLOCKED;
                (void) policy_decision_text(view->compiled, &ret->decision, ret->text, sizeof(ret->text));
                return;
        }
        verdict_type(view, name, question->type, ret);
        // A rule that names this very name cannot be asked for another one.
        if (!ret->pass || (ret->decision.rule && ret->decision.rule->kind == RULE_NAME))
                return;
        if (!zones_take(zones, question->name, view->dns.names, question->now)) {
                ret->pass = false;
                verdict_refuse(ret, DNS_EDE_FILTERED, "more than %u different names of one zone in a minute", view->dns.names);
        }
}

bool verdict_of_addresses(const ViewSlot *view, const uint8_t *records, size_t size, Verdict *ret) {
        size_t offset = 0;
        DnsRecord record;

        while (dns_record_next(records, size, &offset, &record)) {
                int family = record.type == DNS_A ? AF_INET : AF_INET6;
                Cidr address;
                char text[INET6_ADDRSTRLEN] = "";
                if (record.type != DNS_A && record.type != DNS_AAAA)
                        continue;
                address = cidr_of_address(family, record.data);
                if (policy_may_answer(view->compiled, &address))
                        continue;
                ret->pass = false;
                (void) inet_ntop(family, record.data, text, sizeof(text));
                verdict_refuse(ret, DNS_EDE_FILTERED, "the answer has %s, of a range that is denied unless a rule names it", text);
                return false;
        }
        return true;
}

size_t records_cut(const uint8_t *records, size_t size, size_t max) {
        size_t offset = 0, n = 0, last = 0;
        DnsRecord record;

        while (dns_record_next(records, size, &offset, &record)) {
                if ((record.type == DNS_A || record.type == DNS_AAAA) && ++n > max)
                        return last;
                last = offset;
        }
        return size;
}
