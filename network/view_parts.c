// SPDX-License-Identifier: GPL-2.0-or-later
// View, in parts: a text for what fits into one frame, and several for what does not.
//
// Whoever reads them applies each as it comes. Only the last says that all were there, so that a slot which was not sent, because it is
// gone or larger than a frame by itself, is forgotten by the reader, and closed, rather than left with what it had.
#include <string.h>

#include "base/strv.h"
#include "network/view.h"

typedef struct Parts {
        const View *view;
        size_t max;
        char **texts;
        size_t n;
        bool *large;
} Parts;

static int parts_add(Parts *parts, char *text) {
        char **more = reallocarray(parts->texts, parts->n + 2, sizeof(char *));

        if (!more) {
                free(text);
                return -ENOMEM;
        }
        parts->texts = more;
        more[parts->n++] = text;
        more[parts->n] = NULL;
        return 0;
}

// 0: it does not fit.
static int parts_try(Parts *parts, const View *view) {
        char *text;
        size_t size;
        int r = view_format(view, &text, &size);

        if (r < 0)
                return r;
        if (size > parts->max) {
                free(text);
                return 0;
        }
        r = parts_add(parts, text);
        return r < 0 ? r : 1;
}

// Halves of halves: as deep as the number of slots has bits.
static int parts_slots(Parts *parts, size_t first, size_t n) {
        View view = {.generation = parts->view->generation, .upstreams = parts->view->upstreams, .slots = parts->view->slots + first, .n_slots = n};
        int r = n > 0 ? parts_try(parts, &view) : 1;

        if (r != 0)
                return r;
        if (n == 1) {
                parts->large[first] = true;
                return 0;
        }
        r = parts_slots(parts, first, n / 2);
        return r < 0 ? r : parts_slots(parts, first + n / 2, n - n / 2);
}

static int parts_last(Parts *parts) {
        const View *view = parts->view;
        _cleanup_free_ uint16_t *kept = calloc(view->n_slots + 1, sizeof(uint16_t)), *gone = calloc(view->n_gone + view->n_slots + 1, sizeof(uint16_t));
        View last = {.generation = view->generation, .whole = view->whole, .upstreams = view->upstreams, .kept = kept, .gone = gone, .n_gone = view->n_gone};
        int r;

        if (!kept || !gone)
                return -ENOMEM;
        if (view->n_gone > 0)
                memcpy(gone, view->gone, view->n_gone * sizeof(uint16_t));
        for (size_t i = 0; i < view->n_slots; i++)
                if (parts->large[i])
                        gone[last.n_gone++] = view->slots[i].slot;
                else
                        kept[last.n_kept++] = view->slots[i].slot;
        r = parts_try(parts, &last);
        return r == 0 ? -EMSGSIZE : r;
}

int view_format_parts(const View *view, size_t max, char ***ret, bool *ret_large) {
        Parts parts = {.view = view, .max = max, .large = ret_large};
        int r;

        memset(ret_large, 0, view->n_slots * sizeof(bool));
        r = parts_try(&parts, view);
        if (r == 0) {
                r = parts_slots(&parts, 0, view->n_slots);
                if (r >= 0)
                        r = parts_last(&parts);
        }
        if (r < 0) {
                strv_free(parts.texts);
                return r;
        }
        *ret = parts.texts;
        return 0;
}
