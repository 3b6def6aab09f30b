// SPDX-License-Identifier: GPL-2.0-or-later
// Tree: lists, what `file list`, `stat`, `search`, `replace` and `watch` answer with: records as those of trees, without data, read by the
// same reader.
#pragma once

#include "guest/tree.h"

#define TREE_LIST_MAX 250000 // of what a list shows; whoever shows it holds it

typedef struct TreeListOptions {
        TreeLimits limits;  // max_entries: of a list, and of what a search looks at
        unsigned depth;     // how many levels; 0: one
        bool self;          // only what `name` is itself, whatever it is, under the path "."
        const char *pattern; // a search: what is no directory and whose own name matches, at any depth (a file is "."); NULL: all
        uint64_t max_matches; // of a search, 0: all; the list's end says that there were more
        void (*fill)(TreeEntry *entry, void *userdata); // names of owner and group; may be NULL
        void *userdata;
} TreeListOptions;

// Lists the directory `name` (or the one file) as records without data, each directory's names in the order of their bytes and what is below one
// right behind it: path below `name`, mode with type bits, target of links. No link is followed. A directory below that cannot be read is
// counted in the end record.
int tree_list(int dirfd, const char *name, int out_fd, const TreeListOptions *options, Error *err);

// The writer below it, for other lists of the same kind. Records are gathered; tree_lister_end() says how many there were.
typedef struct TreeLister {
        int out_fd;
        uint64_t entries, unread;
        bool cut;
        size_t used;
        uint8_t *buf; // owned
        TreeEntry entry;
} TreeLister;
int tree_lister_new(int out_fd, TreeLister **ret);
TreeLister *tree_lister_free(TreeLister *lister);
DEFINE_CLEANUP(TreeLister, tree_lister_free)
int tree_lister_stat(TreeLister *lister, int dirfd, const char *name, const char *path); // fills `entry`; owner and group are empty
int tree_lister_emit(TreeLister *lister);
int tree_lister_flush(TreeLister *lister);
int tree_lister_end(TreeLister *lister);

typedef struct TreeListing {
        TreeLimits limits;
        bool events; // it is what a watch says: each entry has one of TREE_EVENTS
        TreeListFn fn;
        void *userdata;
        bool cut;        // afterwards: there were more
        uint64_t unread; // afterwards: directories that could not be read
} TreeListing;
int tree_listing_read(TreeListing *listing, int in_fd, Error *err);

