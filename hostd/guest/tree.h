// SPDX-License-Identifier: GPL-2.0-or-later
// Tree: files and directories as one byte stream, for `file push`, `file pull` and `diff`; lists of them are in tree_list.h.
//
// Both ends mistrust the stream: it comes from a guest on the way out, and on the way in it is unpacked as a guest's user. Packing
// follows no link and opens nothing but regular files and directories. Unpacking resolves each path below the given directory
// without links (openat2), so that neither the stream nor somebody who renames meanwhile leads it elsewhere.
//
//   stream: "hostdtr1", then records; a record: 48 bytes little-endian (see tree.c), path, link target, in lists the names of owner and
//   group, and for a file its data in chunks (u32 length, bytes; length 0 ends). The root is ".", all others are relative to it. The last record is
//   TREE_END, whose size is the number of entries: a stream without it was cut off.
//   Lists (stat, list, search, replace, watch) begin with "hostdin1", and each of their records has 24 bytes more behind its 48 (TreeMore). Older
//   helpers list with "hostdtr1" and without these; the reader takes both.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define TREE_PATH_MAX 4095
#define TREE_NAME_MAX 64 // of users and groups
#define TREE_CHUNK_MAX (128u * 1024)
#define TREE_MAGIC "hostdtr1"
#define TREE_MAGIC_INFO "hostdin1"
#define TREE_MAGIC_SIZE 8
#define TREE_RECORD_SIZE 48
#define TREE_MORE_SIZE 24
#define TREE_WIRE_MAX (TREE_RECORD_SIZE + TREE_MORE_SIZE + 2 * TREE_PATH_MAX + 2 * TREE_NAME_MAX) // a record with its strings

typedef enum TreeType { TREE_DIR = 1, TREE_FILE, TREE_LINK, TREE_OTHER /* in lists only */, TREE_END, _TREE_TYPE_MAX } TreeType;

typedef struct TreeEntry {
        TreeType type;
        uint32_t mode, uid, gid; // mode with the file type bits in lists, permissions only in trees
        int64_t mtime_sec;
        uint32_t mtime_nsec;
        uint64_t size;                 // of a file: what stat said; only the chunks count
        char path[TREE_PATH_MAX + 1];  // NUL-terminated, no NUL inside
        char target[TREE_PATH_MAX + 1]; // of a link
        char owner[TREE_NAME_MAX + 1], group[TREE_NAME_MAX + 1]; // in lists, "" when nobody has the number
        char change;                   // one of TREE_CHANGES in lists of changes, of TREE_EVENTS in what a watch says, 0 elsewhere
        int64_t btime_sec;             // in lists: when it was made; 0 where the file system does not say
        uint32_t btime_nsec;
        uint32_t links;                // in lists
        uint64_t count;                // in lists: pieces of text that were replaced
} TreeEntry;

typedef struct TreeLimits {
        uint64_t max_bytes, max_entries; // 0: the defaults, 64 GiB and 1 million
        unsigned max_depth;              // 0: 64
} TreeLimits;

// Writes `name` below `dirfd` (one component, or "." for dirfd itself) and all below it. Sockets, fifos and devices are left
// out; returns how many were. `limits` may be NULL. Blocks as long as out_fd does.
int tree_pack(int dirfd, const char *name, int out_fd, const TreeLimits *limits, Error *err);
// The same of one file that may be a pipe: what `in_fd` gives until its end, called `name` in errors.
int tree_pack_stream(int in_fd, const char *name, int out_fd, Error *err);

typedef struct TreeOptions {
        const char *name; // what the root becomes below dirfd: one component, or "." to unpack into dirfd itself
        TreeLimits limits;
        bool keep_owner;   // a file that is replaced keeps its owner and group, where we may give it away
        bool drop_special; // set-uid, set-gid and sticky bits are not taken over: for unpacking on the host
} TreeOptions;

// One file into `fd`, as tree_pack_stream() sends it. Succeeds only when the stream was complete.
int tree_unpack_stream(int in_fd, int fd, Error *err);
// Existing directories are merged into, files are replaced by rename, a file never replaces a link or a directory. What was
// unpacked before an error stays. On success the stream was complete.
int tree_unpack(int dirfd, int in_fd, const TreeOptions *options, Error *err);

typedef int (*TreeListFn)(const TreeEntry *entry, void *userdata); // negative stops

// A list of changes: records without data whose paths are whole and which say what happened: added, modified, deleted, opaque
// (a directory that hides the one below it), or '?': something there could not be read. The end record's letter is TREE_CHANGES_CUT
// when the list had to stop early.
#define TREE_CHANGES "AMDO?"
#define TREE_CHANGES_CUT 'T'
#define TREE_CHANGES_DEPTH_MAX 200
int tree_changes_read(int in_fd, TreeListFn fn, void *userdata, bool *ret_cut, Error *err);

// What a watch says: Created, Written, Attributes changed, Deleted, moved From and To, '!': events were lost, or what is below here is not watched,
// Gone: what was watched is no more, and nothing follows.
#define TREE_EVENTS "CWADFT!G"

// The reader below them; on its own for tests and the fuzz target. With in_fd < 0 it reads `data` only.
typedef struct TreeReader {
        int fd;
        uint8_t *buf; // owned when fd >= 0
        size_t at, used, room;
        uint64_t bytes, entries;
        TreeLimits limits;
        bool list, started, in_data, ended;
        bool changes, events; // either also sets list
        bool info, cut;       // info: records have more behind them
        uint64_t unread;
} TreeReader;
int tree_reader_init(TreeReader *reader, int in_fd, const TreeLimits *limits);
void tree_reader_init_memory(TreeReader *reader, const void *data, size_t size);
void tree_reader_done(TreeReader *reader);
// 1: an entry; 0: the end record was read; data that was not read is skipped. -EBADMSG for what breaks the format.
int tree_reader_next(TreeReader *reader, TreeEntry *ret, Error *err);
// The next piece of the current file's data, valid until the next call; 0 at its end.
ssize_t tree_reader_data(TreeReader *reader, const uint8_t **ret, Error *err);

// Waits until there is something to read, or nobody who reads the stream (false): what comes, if anything ever does, would be for nobody.
bool tree_stream_is_read(int in_fd, int out_fd);
// For the writers: a record with its strings (not the data) to out_fd, or to a buffer of TREE_WIRE_MAX bytes.
int tree_write_entry(int out_fd, const TreeEntry *entry);
size_t tree_encode_entry(const TreeEntry *entry, bool info, uint8_t *ret);
// Relative, no "", ".", ".." or empty component, no control of its own; "." only if `root`.
bool tree_path_valid(const char *path, size_t size, bool root);
bool tree_name_valid(const char *name, size_t size); // visible ASCII, or ""
void tree_limits_default(TreeLimits *limits);
