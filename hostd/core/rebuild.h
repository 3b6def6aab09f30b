// SPDX-License-Identifier: GPL-2.0-or-later
// Rebuild: fills a new runtime store from what the files and the running instances say.
#pragma once

#include "core/manager.h"

int rebuild_store(Manager *manager, Error *err);
