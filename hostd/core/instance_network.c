// SPDX-License-Identifier: GPL-2.0-or-later
// Instance, network: the limits of its wire, the traffic of the day, and the operator's switch.
//
// The kernel counts and stops; hostd looks once a minute, writes down what was used, so that neither a stop of the instance nor a
// reboot gives it the day's traffic anew, and tells at 80 and at 100 percent. At most the last minute before a crash of the host is forgotten.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/approvals.h"
#include "core/border_link.h"
#include "core/expose.h"

#define DAY (24 * 3600 * USEC_PER_SEC)
#define HIGH 80
#define SPENT 100

typedef char Key[64];

static const char *key_of(const Instance *instance, const char *what, Key buf) {
        (void) snprintf(buf, sizeof(Key), "network.%s/%s", what, instance->record.name);
        return buf;
}

static int64_t today(void) {
        return (int64_t) (clock_realtime() / DAY);
}

static bool has_traffic(const Instance *instance) {
        return instance->config && instance->config->limits.value[LIMIT_TRAFFIC] != LIMIT_UNSET;
}

static void traffic_write(Instance *instance, uint64_t used) {
        char text[64];
        Key key;

        (void) snprintf(text, sizeof(text), "%lld %llu %u", (long long) instance->traffic_day, (unsigned long long) used, instance->traffic_told);
        (void) store_value_set(instance->manager->store, key_of(instance, "traffic", key), text, NULL); // the next minute tries again
}

static bool traffic_read(Instance *instance, int64_t *ret_day, uint64_t *ret_used, unsigned *ret_told) {
        _cleanup_free_ char *text = NULL;
        long long day;
        unsigned long long used;
        Key key;

        if (store_value_get(instance->manager->store, key_of(instance, "traffic", key), &text, NULL) < 0 || sscanf(text, "%lld %llu %u", &day, &used, ret_told) != 3)
                return false;
        *ret_day = day;
        *ret_used = used;
        return true;
}

// The first time in the life of this hostd or of this start.
static int traffic_resume(Instance *instance, Error *err) {
        Network *network = instance->manager->network;
        uint16_t slot = instance->record.slot;
        uint64_t used = 0;
        unsigned told = 0;
        int64_t day = 0;

        if (!has_traffic(instance) || instance->traffic_day)
                return 0;
        instance->traffic_day = today();
        instance->traffic_told = 0;
        if (!traffic_read(instance, &day, &used, &told) || day != instance->traffic_day)
                return network_traffic_begin(network, slot, err);
        instance->traffic_told = told;
        return network_traffic_resume(network, slot, used, err);
}

int instance_network_lead(Instance *instance, Error *err) {
        return border_link_lead(instance->manager, instance->record.slot, err);
}

int instance_network_apply(Instance *instance, Error *err) {
        const uint64_t *value = instance->config->limits.value;
        const NetworkLimits limits = {value[LIMIT_UPLOAD], value[LIMIT_DOWNLOAD], value[LIMIT_CONNECTIONS], value[LIMIT_CONNECTION_RATE],
                                      value[LIMIT_DESTINATIONS], value[LIMIT_TRAFFIC]};
        Network *network = instance->manager->network;
        int r = network_set_cut(network, instance->record.slot, instance_network_is_cut(instance), err);

        if (r >= 0)
                r = traffic_resume(instance, err);
        if (r >= 0)
                r = network_set_limits(network, instance->record.slot, &limits, err);
        if (r >= 0)
                r = instance_network_lead(instance, err);
        if (r >= 0 && !instance->exposed)
                r = expose_resume(instance, err);
        return r;
}

bool instance_network_is_cut(const Instance *instance) {
        _cleanup_free_ char *text = NULL;
        Key key;

        return store_value_get(instance->manager->store, key_of(instance, "cut", key), &text, NULL) >= 0;
}

// The kernel first: what is to be stopped does not wait for the disk. Given back only when the disk knows.
int instance_network_cut(Instance *instance, bool cut, Error *err) {
        Manager *m = instance->manager;
        Key key;
        int r = 0;

        if (cut && instance_is_live(instance))
                r = network_set_cut(m->network, instance->record.slot, true, err);
        if (r >= 0)
                r = store_value_set(m->store, key_of(instance, "cut", key), cut ? "1" : NULL, err);
        if (r >= 0 && !cut && instance_is_live(instance))
                r = network_set_cut(m->network, instance->record.slot, false, err);
        if (instance_is_live(instance))
                border_link_changed(m, instance->record.slot);
        if (r >= 0)
                instance_event(instance, cut ? "network-cut" : "network-given-back", NULL);
        return r;
}

static void traffic_tell(Instance *instance, uint64_t used) {
        uint64_t limit = instance->config->limits.value[LIMIT_TRAFFIC];
        unsigned percent = used >= limit ? SPENT : used >= limit / 100 * HIGH ? HIGH : 0;

        if (percent < SPENT && instance->traffic_told == SPENT) // the limit was raised
                manager_unwarn(instance->manager, "traffic", instance->record.name);
        if (percent > instance->traffic_told)
                instance_event(instance, percent == SPENT ? "traffic-spent" : "traffic-high",
                               json_pack("{s:I, s:I}", "used", (json_int_t) used, "limit", (json_int_t) limit));
        if (percent == SPENT && instance->traffic_told < SPENT)
                manager_warn(instance->manager, "traffic", instance->record.name,
                             "the traffic of the day is used up, nothing passes until midnight UTC: raise \"traffic\" or wait");
        instance->traffic_told = percent;
}

static void traffic_look(Instance *instance) {
        Manager *m = instance->manager;
        _cleanup_error_ Error err = ERROR_NULL;
        uint64_t used = 0;
        int r;

        if (instance->traffic_day != today()) {
                instance->traffic_day = today();
                r = network_traffic_begin(m->network, instance->record.slot, &err);
                if (r >= 0)
                        manager_unwarn(m, "traffic", instance->record.name);
                instance->traffic_told = 0;
        } else {
                r = network_traffic(m->network, instance->record.slot, &used, &err);
        }
        if (r < 0) {
                log_event(LOG_WARNING, NULL, instance->record.name, "%s", error_message(&err, r));
                return;
        }
        traffic_tell(instance, used);
        traffic_write(instance, used);
}

void instance_network_look(Manager *m) {
        for (Instance *i = m->instances.first; i; i = i->next)
                if (instance_is_live(i) && has_traffic(i) && i->traffic_day)
                        traffic_look(i);
        expose_expire(m);
}

void instance_network_pause(Instance *instance) {
        uint64_t used = 0;

        if (instance->traffic_day && instance->traffic_day == today() && network_traffic(instance->manager->network, instance->record.slot, &used, NULL) >= 0)
                traffic_write(instance, used);
        instance->traffic_day = 0;
        instance->exposed = false;
}

int instance_network_forget(Instance *instance, Error *err) {
        static const char *const kinds[] = {"traffic", "cut"};
        int r = expose_forget(instance, err);
        Key key;

        if (r >= 0)
                r = approvals_forget_instance(instance->manager, instance->record.name, err);
        for (size_t i = 0; i < ELEMENTS(kinds) && r >= 0; i++)
                r = store_value_set(instance->manager->store, key_of(instance, kinds[i], key), NULL, err); // absent, mostly
        return r;
}
