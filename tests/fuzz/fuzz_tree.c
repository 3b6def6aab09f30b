// SPDX-License-Identifier: GPL-2.0-or-later
// The reader of tree streams over arbitrary bytes, as a tree, as a list, as a list of changes and as what a watch says. Whatever it hands out obeys the path rules.
#include <assert.h>
#include <string.h>

#include "guest/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static TreeEntry entry;

        for (int list = 0; list < 4; list++) {
                TreeReader reader;
                tree_reader_init_memory(&reader, data, size);
                reader.list = list > 0;
                reader.changes = list == 2;
                reader.events = list == 3;
                while (tree_reader_next(&reader, &entry, NULL) > 0) {
                        const uint8_t *piece;
                        size_t n = strlen(entry.path);
                        assert(tree_path_valid(entry.path, n, true));
                        assert(list || entry.type != TREE_OTHER);
                        assert(list == 2 ? entry.change && strchr(TREE_CHANGES, entry.change) : list == 3 ? entry.change && strchr(TREE_EVENTS, entry.change) : entry.change == 0);
                        assert(reader.info || (entry.count == 0 && entry.links == 0));
                        assert(tree_name_valid(entry.owner, strlen(entry.owner)) && (list == 1 || list == 3 || (!entry.owner[0] && !entry.group[0])));
                        if (reader.entries % 2) // the other half is skipped by next()
                                while (tree_reader_data(&reader, &piece, NULL) > 0)
                                        assert(piece >= data && piece < data + size);
                }
        }
        return 0;
}
