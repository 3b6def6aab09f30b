// SPDX-License-Identifier: GPL-2.0-or-later
// ServiceUnit: a start of a unit of ours, asked for through the bus. Whether it came up is seen by its socket, and that it ended by its process; systemd's answer
// is only looked at to say why there is none.
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"

typedef struct ServiceUnit ServiceUnit;
int service_unit_start(sd_event *event, const char *name, ServiceUnit **ret, Error *err); // "hostd-io@1.service"
ServiceUnit *service_unit_free(ServiceUnit *unit);
void service_unit_stop(const char *name); // what was asked for and has not come yet
