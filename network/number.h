// SPDX-License-Identifier: GPL-2.0-or-later
// Number: whose a 16-bit number is that marks, chains, addresses and records have.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// One space of numbers, so that marks, chains, addresses and records need one field: instances and builds, profiles (what sandboxes of one
// instance with the same policies share: chains, sets and marks, no wire), and sandboxes (a wire, no chains).
#define NETWORK_PROFILE_FIRST 0x0800
#define NETWORK_PROFILE_LAST 0x0fff
#define NETWORK_SANDBOX_FIRST 0x1000
#define NETWORK_SANDBOX_LAST 0x1fff
static inline bool network_is_profile(uint16_t number) { return number >= NETWORK_PROFILE_FIRST && number <= NETWORK_PROFILE_LAST; }
static inline bool network_is_sandbox(uint16_t number) { return number >= NETWORK_SANDBOX_FIRST && number <= NETWORK_SANDBOX_LAST; }
