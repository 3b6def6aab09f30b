// SPDX-License-Identifier: GPL-2.0-or-later
// Budget: see budget.h.
#include "io/budget.h"

#include <string.h>

#include "io/ring.h"

typedef struct Used {
        uint64_t owner, total;
        size_t n;
} Used;

static Used used_by(const BudgetFile *files, size_t n_files, const char *owner) {
        Used used = {0};

        for (size_t i = 0; i < n_files; i++) {
                if (files[i].evict)
                        continue;
                used.n++;
                used.total += files[i].bytes;
                used.owner += strcmp(files[i].owner, owner) == 0 ? files[i].bytes : 0;
        }
        return used;
}

static BudgetFile *oldest(BudgetFile *files, size_t n_files, const char *owner) {
        BudgetFile *found = NULL;

        for (size_t i = 0; i < n_files; i++)
                if (!files[i].live && !files[i].evict && (!owner || strcmp(files[i].owner, owner) == 0) && (!found || files[i].time < found->time))
                        found = files + i;
        return found;
}

static uint64_t left(uint64_t max, uint64_t used) {
        return max > used ? max - used : 0;
}

uint64_t budget_room(const Budget *budget, BudgetFile *files, size_t n_files, const char *owner, uint64_t want) {
        for (;;) {
                Used used = used_by(files, n_files, owner);
                uint64_t of_owner = left(budget->owner_max, used.owner), room = MIN2(of_owner, left(budget->total_max, used.total));
                BudgetFile *victim;
                if (room >= want && used.n < budget->files_max)
                        return want;
                // Where the owner itself has too much, nobody else's goes for it.
                victim = oldest(files, n_files, of_owner < want ? owner : NULL);
                if (!victim)
                        return room >= RING_SIZE_MIN && used.n < budget->files_max ? room : 0;
                victim->evict = true;
        }
}
