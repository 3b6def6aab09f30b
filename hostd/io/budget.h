// SPDX-License-Identifier: GPL-2.0-or-later
// Budget: how much the output of commands may take up: of one owner (an instance, or one of its sandboxes), of an instance with all its sandboxes. What ended
// makes room for what begins, the oldest first; what runs keeps what it was given. Pure.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct BudgetFile {
        const char *owner; // borrowed
        uint64_t bytes;    // on the disk; of one that is written, all that it may become
        uint64_t time;     // of its last change
        bool live;         // written
        bool evict;        // set by budget_room()
} BudgetFile;

typedef struct Budget {
        uint64_t owner_max, total_max;
        size_t files_max;
} Budget;

// Marks what has to go, and returns how large a new one of `owner` may be: `want`, or what there is, or 0 if that is too little for any.
uint64_t budget_room(const Budget *budget, BudgetFile *files, size_t n_files, const char *owner, uint64_t want);
