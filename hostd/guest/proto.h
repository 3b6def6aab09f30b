// SPDX-License-Identifier: GPL-2.0-or-later
// Guest protocol: fixed-layout packets between hostd and hostd-guest on one SOCK_SEQPACKET pair that hostd-instance made.
//
// hostd trusts nothing in what comes back: sizes are checked, ids must be ones it gave out, pids come from SCM_CREDENTIALS only,
// no descriptor is ever received (the receive buffer has no room for one), and the rate is limited. What the guest
// says of exit codes is recorded as its claim.
//
//   hostd                        hostd-guest                      child
//   EXEC id, argv…, 3 fds  -->   fork                        -->  (in the helper's cgroup, blocked)
//   <-- READY id (+ SCM_CREDENTIALS of the child) -------------   sends it itself
//   pidfd, checks, moves it to commands/ID
//   RELEASE id             -->   byte on the child's pipe    -->  setsid, ids, chdir, exec
//   <-- FAILED id, errno, stage (126/127) or
//   <-- EXITED id, wait status (claim); repeated after HELLO until ACK
//   DENIED text            -->   the last of them in /run/hostd/denied
//   <-- ASK id, what for, why --------------------------   from /run/hostd/ask.sock; with a number: what became of that request
//   ANSWER id or number    -->   to who asked, and who waits for that number
#pragma once

#include <stdint.h>

#define GUEST_VERSION 1
#define GUEST_MAGIC 0x68736764u // "dgsh"
#define GUEST_ID_MAX 33
#define GUEST_BODY_MAX (256 * 1024) // argv, env and paths of one request
#define GUEST_COMMANDS_MAX 1024
#define GUEST_WORKSPACE "/workspace" // of a sandbox
#define GUEST_WORD_DISK "disk"       // of what a sandbox is asked to be: bytes that it may write
#define GUEST_WORD_OPEN_FILES "open_files"
#define GUEST_WORD_PORT "port" // of GUEST_LISTENS

typedef enum GuestType {
        GUEST_HELLO = 1, // both ways; the guest answers with one LIVE per command it knows, then HELLO
        GUEST_EXEC,
        GUEST_READY,
        GUEST_RELEASE,
        GUEST_FAILED,
        GUEST_EXITED,
        GUEST_ACK,
        GUEST_SIGNAL,
        GUEST_LIVE,
        GUEST_DENIED, // to the guest only; a helper that does not know it leaves it
        GUEST_ASK,
        GUEST_ANSWER, // to the guest only
        _GUEST_TYPE_MAX,
} GuestType;

typedef enum GuestVerb { // what an EXEC starts; of a file verb, argv are KEY=VALUE words
        GUEST_RUN,    // argv
        GUEST_LOGIN,  // argv through PAM (su -l USER), or a login shell when argv is empty
        GUEST_WRITE,  // tree stream on fd 0 -> path; a file when not recursive; words: owner, group
        GUEST_READ,   // path -> stream on fd 1; words: offset, length
        GUEST_LIST,   // directory entries of path -> list on fd 1; words: depth
        GUEST_REMOVE, // path
        GUEST_DELIVER, // fd 0 -> what the instance has of hostd's, whole (GuestFile); path is for sentences only
        GUEST_ADOPT,   // the guest's own programs take up what was delivered: slow
        GUEST_PACKAGES, // what package clients would use of the package policy -> GuestPackage, one after the other, on fd 1
        GUEST_STAT,    // what path is -> list on fd 1 (guest/tree.h), as for the next
        GUEST_SEARCH,  // below path; words: pattern, max
        GUEST_REPLACE, // in path; words: old, new
        GUEST_MOVE,    // path -> another path; words: to
        GUEST_MKDIR,   // words: owner, group
        GUEST_CHMOD,
        GUEST_CHOWN,   // words: owner, group
        GUEST_WATCH,   // path, or all below it -> list of events on fd 1 until its reader goes
        GUEST_SANDBOX, // argv: runtime, id, KEY=VALUE words (GUEST_WORD_…); fd 0 is the sandbox's own channel; path: its workspace, "/" for none (guest/sandbox.h)
        GUEST_LISTENS, // words: port; ends when something listens there
        _GUEST_VERB_MAX,
} GuestVerb;

enum {
        GUEST_FLAG_TTY = 1 << 0,       // fds are one pty of the host: relayed to one of the guest's own (guest/relay.h)
        GUEST_FLAG_RECURSIVE = 1 << 1,
        GUEST_FLAG_PARENTS = 1 << 2, // directories that are missing are made
        GUEST_FLAG_FORCE = 1 << 3,   // what is in the place is replaced
        GUEST_FLAG_ROOT = 1 << 4,    // a sandbox whose user is root of its own user namespace
};

typedef enum GuestStage { GUEST_STAGE_FORK = 1, GUEST_STAGE_USER, GUEST_STAGE_CWD, GUEST_STAGE_SETUP, GUEST_STAGE_EXEC, GUEST_STAGE_FILE, GUEST_STAGE_IDS, GUEST_STAGE_TARGET /* a file: where it was to go */, _GUEST_STAGE_MAX } GuestStage;

typedef struct GuestHeader {
        uint32_t magic;
        uint16_t version, type;
        uint32_t size; // of the whole packet
        uint32_t value; // type-specific: verb, errno, wait status, signal
        uint32_t flags; // or stage
        uint32_t mode;  // of a new file
        uint32_t n_argv, n_env;
        char id[GUEST_ID_MAX + 3]; // NUL-padded [a-z0-9]
} GuestHeader; // followed by `user\0cwd\0path\0argv[0]\0…env[0]\0…` in EXEC only

#define GUEST_DENIED_TEXT 512

typedef struct GuestDenied {
        GuestHeader header;
        char text[GUEST_DENIED_TEXT]; // one line, zeros behind
} GuestDenied;

// What GUEST_DELIVER reads: one after the other, each with `size` bytes behind it, and an END last. What is there from earlier and not among them goes.
#define GUEST_FILE_MAGIC 0x68736766u
#define GUEST_FILES "/run/hostd"
#define GUEST_FILE_SECRETS GUEST_FILES "/secrets"
#define GUEST_FILE_AUTHORITY_PATH GUEST_FILES "/ca.crt"

typedef enum GuestFileKind {
        GUEST_FILE_AUTHORITY = 1, // PEM: the instance is to trust it
        GUEST_FILE_SECRET,        // secrets/NAME, for `uid` alone
        GUEST_FILE_END,
        GUEST_FILE_PACKAGES,      // no bytes; `uid` is flags: the package policy
        _GUEST_FILE_MAX,
} GuestFileKind;

enum {
        GUEST_PACKAGES_LOCKED = 1 << 0,
        GUEST_PACKAGES_NO_SCRIPTS = 1 << 1,
};

typedef struct GuestFile {
        uint32_t magic, kind;
        uint32_t size, uid;
        char name[36]; // [a-z0-9-]{1,32}, zeros behind
} GuestFile;

// What GUEST_PACKAGES writes: for root and for the agent's user, each setting of each client. A claim of the guest's; texts end with a zero.
#define GUEST_PACKAGE_MAGIC 0x68736767u

typedef enum GuestPackageClaim {
        GUEST_PACKAGE_KEPT,
        GUEST_PACKAGE_NO_SETTING, // the client has none
        GUEST_PACKAGE_NOT_INSTALLED,
        GUEST_PACKAGE_MISSING,    // the file does not have it
        GUEST_PACKAGE_UNREADABLE, // the file cannot be read
        GUEST_PACKAGE_OVERRIDDEN, // by the file
        _GUEST_PACKAGE_CLAIM_MAX,
} GuestPackageClaim;

typedef struct GuestPackage {
        uint32_t magic, flag, claim; // flag: GUEST_PACKAGES_…, 0 without a setting
        char user[36], client[16], setting[32];
        char file[256];
} GuestPackage;

#define GUEST_TO_TEXT 256
#define GUEST_REASON_TEXT 208 // VALID_REASON has at most 200 bytes

// Also what is said on /run/hostd/ask.sock, one packet each way and more answers behind; there the helper fills in id and uid.
typedef struct GuestAsk {
        GuestHeader header; // value: the uid of who asked, as the helper claims; flags: the number of a request, then the rest is zero
        uint16_t port;
        uint8_t protocol; // IPPROTO_TCP or IPPROTO_UDP
        uint8_t zero[5];
        char to[GUEST_TO_TEXT];         // zeros behind
        char reason[GUEST_REASON_TEXT]; // zeros behind
} GuestAsk;

typedef enum GuestAskState {
        GUEST_ASK_REFUSED, // not even taken: the text says why
        GUEST_ASK_PENDING,
        GUEST_ASK_APPROVED,
        GUEST_ASK_DENIED,
        GUEST_ASK_ENDED,  // it was approved
        GUEST_ASK_LAPSED, // nobody said anything for too long
        _GUEST_ASK_STATE_MAX,
} GuestAskState;

typedef struct GuestAnswer {
        GuestHeader header; // id: of the ask, or empty; value: GuestAskState
        uint32_t number;    // of the request; 0: none
        uint32_t zero;
        uint64_t until;     // approved: microseconds of the wall clock
        char text[GUEST_REASON_TEXT]; // what hostd or an operator says; zeros behind
} GuestAnswer;
