// SPDX-License-Identifier: GPL-2.0-or-later
// ViewLists: see view_lists.h. What is missing denies: a view may be cut in parts, and one of them too large for a frame.
#include "network/view_lists.h"

#include <stdlib.h>

static ViewList *list_find(const ViewLists *lists, uint16_t slot) {
        for (size_t i = 0; i < lists->n && slot; i++)
                if (lists->lists[i].slot == slot)
                        return &lists->lists[i];
        return NULL;
}

void view_lists_done(ViewLists *lists) {
        for (size_t i = 0; i < lists->n; i++)
                compiled_free(lists->lists[i].compiled);
        free(lists->lists);
        compiled_free(lists->none);
        *lists = (ViewLists) {0};
}

static int make_none(ViewLists *lists) {
        _cleanup_(compiled_freep) Compiled *none = NULL;
        int r = lists->none ? 0 : compiled_begin(0, &none);

        if (r < 0 || lists->none)
                return r;
        r = compiled_seal(none);
        if (r >= 0)
                lists->none = TAKE_PTR(none);
        return r;
}

static int list_put(ViewLists *lists, const ViewSlot *slot) {
        ViewList *list = list_find(lists, slot->slot);

        if (!list) {
                list = reallocarray(lists->lists, lists->n + 1, sizeof(ViewList));
                if (!list)
                        return -ENOMEM;
                lists->lists = list;
                list += lists->n++;
                *list = (ViewList) {.slot = slot->slot};
        }
        compiled_free(list->compiled);
        list->compiled = compiled_share(slot->compiled);
        list->within = slot->within;
        return 0;
}

static void lists_forget(ViewLists *lists, const View *view) {
        for (size_t i = lists->n; i > 0; i--)
                if (view_ends(view, lists->lists[i - 1].slot)) {
                        compiled_free(lists->lists[i - 1].compiled);
                        lists->lists[i - 1] = lists->lists[--lists->n];
                }
}

static void lists_bind(ViewLists *lists) {
        for (size_t i = 0; i < lists->n; i++) {
                ViewList *list = &lists->lists[i], *around = list_find(lists, list->within);
                if (list->within)
                        compiled_set_within(list->compiled, around && !around->within ? around->compiled : lists->none);
        }
}

int view_lists_apply(ViewLists *lists, View *view) {
        int r = make_none(lists);

        lists_forget(lists, view);
        for (size_t i = 0; i < view->n_slots && r >= 0; i++)
                if (!view->slots[i].profile)
                        r = list_put(lists, &view->slots[i]);
        if (r < 0)
                return r;
        lists_bind(lists);
        for (size_t i = 0; i < view->n_slots; i++) {
                ViewSlot *slot = &view->slots[i];
                const ViewList *list = list_find(lists, slot->profile);
                if (!slot->profile)
                        continue;
                slot->compiled = compiled_share(list && list->within ? list->compiled : lists->none);
                slot->around = list ? list->within : 0;
        }
        return 0;
}
