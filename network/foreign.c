// SPDX-License-Identifier: GPL-2.0-or-later
// Foreign: firewall chains of other programs that stop instances' traffic. hostd never touches them: it names them and what to add.
//
// A chain on the way of what is forwarded closes if its policy is to drop, or if a rule of it drops or rejects whatever comes there,
// itself or in a chain that everything passes. Instances get through if before that a rule accepts what comes from "hv*", and one what
// goes there: that by name, or because it belongs to a connection.
#include <netinet/in.h>

#include <linux/netfilter.h> // after netinet/in.h, which it would contradict
#include <stdio.h>
#include <string.h>

#include "network/network.h"
#include "network/nft.h"
#include "network/ruleset.h"

#define DEPTH_MAX 8 // jumps; the kernel allows 16

typedef struct Found {
        int family;
        char *table, *name; // owned
        bool base, drops;   // drops: by policy
} Found;

typedef struct Survey {
        Found *chains; // of foreign tables
        size_t n;
} Survey;

static void survey_done(Survey *survey) {
        for (size_t i = 0; i < survey->n; i++) {
                free(survey->chains[i].table);
                free(survey->chains[i].name);
        }
        free(survey->chains);
}

// Of the type "nat" only the first packet of a connection comes by, and it is not the place to drop.
static bool is_on_the_way(const NftChain *chain) {
        return chain->type && strcmp(chain->type, "nat") != 0 &&
               (chain->hook == NF_INET_PRE_ROUTING || chain->hook == NF_INET_FORWARD || chain->hook == NF_INET_POST_ROUTING);
}

static int survey_chain(const NftChain *chain, void *userdata) {
        Survey *survey = userdata;
        Found *grown, *found;

        if (strcmp(chain->table, "hostd") == 0 ||
            (chain->family != NFPROTO_INET && chain->family != NFPROTO_IPV4 && chain->family != NFPROTO_IPV6))
                return 0;
        grown = reallocarray(survey->chains, survey->n + 1, sizeof(*grown));
        if (!grown)
                return -ENOMEM;
        survey->chains = grown;
        found = &grown[survey->n++];
        *found = (Found) {chain->family, strdup(chain->table), strdup(chain->name), is_on_the_way(chain), false};
        found->drops = found->base && chain->policy == NF_DROP;
        return found->table && found->name ? 0 : -ENOMEM;
}

typedef struct Rules {
        NftRule *rules; // their `chain` is owned
        size_t n;
} Rules;

static void rules_done(Rules *rules) {
        for (size_t i = 0; i < rules->n; i++)
                free((char *) rules->rules[i].chain);
        free(rules->rules);
}

static int rules_add(const NftRule *rule, void *userdata) {
        Rules *rules = userdata;
        NftRule *grown = reallocarray(rules->rules, rules->n + 1, sizeof(*grown));

        if (!grown)
                return -ENOMEM;
        rules->rules = grown;
        grown[rules->n] = *rule;
        grown[rules->n].chain = rule->chain ? strdup(rule->chain) : NULL;
        if (rule->chain && !grown[rules->n].chain)
                return -ENOMEM;
        rules->n++;
        return 0;
}

// What a packet of an instance meets from the beginning of a base chain on.
typedef struct Walk {
        const Found *base;
        bool from, to;     // instances' packets pass, that way
        NftVerdict closed; // DROP or REJECT once nothing gets further
        unsigned depth;
} Walk;

static bool is_ours(const char *name) {
        return *name && strncmp(name, HOST_PREFIX, strlen(name)) == 0; // "hv*" or a wider one
}

static int walk_chain(Walk *walk, const char *chain);

static int walk_rule(Walk *walk, const NftRule *rule) {
        if (rule->verdict == NFT_VERDICT_ACCEPT) {
                walk->from |= rule->always || (rule->interfaces && is_ours(rule->iif));
                walk->to |= rule->always || rule->states || (rule->interfaces && is_ours(rule->oif));
        } else if (rule->always && (rule->verdict == NFT_VERDICT_DROP || rule->verdict == NFT_VERDICT_REJECT))
                walk->closed = rule->verdict;
        else if (rule->always && rule->verdict == NFT_VERDICT_CHAIN && walk->depth < DEPTH_MAX)
                return walk_chain(walk, rule->chain);
        return 0;
}

static int walk_chain(Walk *walk, const char *chain) {
        _cleanup_(rules_done) Rules rules = {0};
        NftPlace place = {walk->base->family, walk->base->table, chain};
        int r = nft_rules(&place, rules_add, &rules);

        if (r == -ENOENT) // it went meanwhile
                return 0;
        walk->depth++;
        for (size_t i = 0; r >= 0 && i < rules.n && walk->closed == NFT_VERDICT_OTHER; i++)
                r = walk_rule(walk, &rules.rules[i]);
        walk->depth--;
        return r;
}

static bool survey_has(const Survey *survey, const Found *like, const char *name) {
        for (size_t i = 0; i < survey->n; i++)
                if (survey->chains[i].family == like->family && strcmp(survey->chains[i].table, like->table) == 0 &&
                    strcmp(survey->chains[i].name, name) == 0)
                        return true;
        return false;
}

static const char *family_name(int family) {
        return family == NFPROTO_IPV4 ? "ip" : family == NFPROTO_IPV6 ? "ip6" : "inet";
}

// In the words of whoever made the chain: iptables does not read what nft added to its chains.
static int fix_text(const Survey *survey, const Found *base, char **ret) {
        const char *tool = base->family == NFPROTO_IPV4 ? "iptables" : "ip6tables";
        const char *chain = survey_has(survey, base, "DOCKER-USER") ? "DOCKER-USER" : base->name;
        bool iptables = base->family != NFPROTO_INET && strcmp(base->table, "filter") == 0 && strcmp(base->name, "FORWARD") == 0;

        if (iptables)
                return asprintf(ret, "%s -I %s -i hv+ -j ACCEPT; %s -I %s -o hv+ -j ACCEPT; and in that firewall's own configuration", tool, chain, tool, chain);
        return asprintf(ret, "nft 'insert rule %s %s %s iifname \"hv*\" accept; insert rule %s %s %s oifname \"hv*\" accept'; and in that firewall's own configuration",
                        family_name(base->family), base->table, chain, family_name(base->family), base->table, chain);
}

static int obstacle_add(NetworkObstacles *list, const Survey *survey, const Walk *walk) {
        NetworkObstacle *grown = reallocarray(list->obstacles, list->n + 1, sizeof(*grown)), *o;

        if (!grown)
                return -ENOMEM;
        list->obstacles = grown;
        o = &grown[list->n++];
        *o = (NetworkObstacle) {0};
        if (asprintf(&o->what, "chain %s of table %s %s %s what it does not know, and so what policies allow instances", walk->base->name,
                     family_name(walk->base->family), walk->base->table, walk->closed == NFT_VERDICT_REJECT ? "rejects" : "drops") < 0) {
                o->what = NULL;
                return -ENOMEM;
        }
        if (fix_text(survey, walk->base, &o->fix) < 0) {
                o->fix = NULL;
                return -ENOMEM;
        }
        return 0;
}

void network_obstacles_done(NetworkObstacles *list) {
        for (size_t i = 0; i < list->n; i++) {
                free(list->obstacles[i].what);
                free(list->obstacles[i].fix);
        }
        free(list->obstacles);
        *list = (NetworkObstacles) {0};
}

int network_obstacles(NetworkObstacles *ret, Error *err) {
        _cleanup_(network_obstacles_done) NetworkObstacles list = {0};
        _cleanup_(survey_done) Survey survey = {0};
        int r = nft_chains(survey_chain, &survey);

        for (size_t i = 0; i < survey.n && r >= 0; i++) {
                Walk walk = {.base = &survey.chains[i]};
                if (!survey.chains[i].base)
                        continue;
                r = walk_chain(&walk, survey.chains[i].name);
                if (walk.closed == NFT_VERDICT_OTHER && survey.chains[i].drops)
                        walk.closed = NFT_VERDICT_DROP;
                if (r >= 0 && walk.closed != NFT_VERDICT_OTHER && !(walk.from && walk.to))
                        r = obstacle_add(&list, &survey, &walk);
        }
        if (r < 0)
                return error_set_errno(err, r, "looking for other firewalls");
        *ret = list;
        list = (NetworkObstacles) {0};
        return 0;
}
