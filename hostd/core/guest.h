// SPDX-License-Identifier: GPL-2.0-or-later
// GuestChannel: hostd's end of the socket to one instance's hostd-guest (guest/proto.h).
//
// Everything that comes in is hostile: packets have a fixed size, ids must be ones this channel gave out, a pid is believed only as
// SCM_CREDENTIALS and then only when it is in the instance's box and user namespace, the receive buffer has no room for a
// descriptor, and a flood is read in portions. Never blocks.
#pragma once

#include <systemd/sd-event.h>

#include "guest/proto.h"
#include "quotas/cgroup.h"

typedef struct GuestChannel GuestChannel;

typedef struct GuestChannelHandlers GuestChannelHandlers;

// Who takes what comes for one id, instead of the channel's own handlers: a sandbox, whose process goes to its own group. Of the handlers ready, started,
// failed and exited are used. Borrowed until the id has failed, has exited or was forgotten.
typedef struct GuestOwner {
        CgroupBox *sandbox;
        const GuestChannelHandlers *handlers;
        void *userdata;
} GuestOwner;

typedef struct GuestRequest {
        const char *id; // [a-z0-9]{1,32}, of a command whose cgroup exists already (but for GUEST_LOGIN)
        GuestVerb verb;
        unsigned flags; // GUEST_FLAG_*
        mode_t mode;    // GUEST_WRITE of one file; 0: keep, or 0644
        const char *user, *cwd, *path; // NULL or "": root, the user's home, none
        char *const *argv, *const *env;
        bool held; // made ready, but not let go before guest_channel_permit()
        const GuestOwner *owner; // NULL: the channel's handlers
} GuestRequest;

struct GuestChannelHandlers { // all may be NULL; a handler must not free the channel, `gone` apart
        // The child is in its cgroup, and waits. `pidfd` belongs to the handler.
        void (*ready)(GuestChannel *channel, const char *id, pid_t pid, int pidfd, void *userdata);
        void (*started)(GuestChannel *channel, const char *id, void *userdata); // it is about to be told to go on
        void (*failed)(GuestChannel *channel, const char *id, GuestStage stage, int errnum, void *userdata);
        void (*exited)(GuestChannel *channel, const char *id, int wait_status, void *userdata); // the guest's claim
        void (*live)(GuestChannel *channel, const char *id, void *userdata); // after HELLO: still running
        void (*synced)(GuestChannel *channel, void *userdata);               // after HELLO: that was all
        void (*ask)(GuestChannel *channel, const GuestAsk *ask, void *userdata); // guest_ask_decode()d
        void (*gone)(GuestChannel *channel, void *userdata);                 // closed, or it broke the protocol
};

typedef struct GuestChannelConfig {
        sd_event *event;
        int fd;         // owned by the channel, also when guest_channel_new() fails
        CgroupBox *box; // borrowed; outlives the channel
        uint64_t userns_dev, userns_ino; // st_dev and st_ino of /proc/INIT/ns/user; ino 0: not checked (tests)
        const GuestChannelHandlers *handlers;
        void *userdata;
} GuestChannelConfig;

int guest_channel_new(const GuestChannelConfig *config, GuestChannel **ret, Error *err); // says HELLO
GuestChannel *guest_channel_free(GuestChannel *channel); // calls no handler
DEFINE_CLEANUP(GuestChannel, guest_channel_free)
// Who sent the last HELLO, as the kernel says; 0: nobody yet.
pid_t guest_channel_helper(const GuestChannel *channel);
// From now on what is ready must be in the user namespace of this process.
int guest_channel_expect(GuestChannel *channel, pid_t pid, Error *err);
// A copy of the descriptor, for who keeps it for the next hostd.
int guest_channel_fd(const GuestChannel *channel);
// Reads the user namespace of `init_pid` into the config.
int guest_channel_config_init(GuestChannelConfig *config, pid_t init_pid, Error *err);

// Sends the request with its three descriptors (borrowed). ERR_BUSY when the helper does not keep up, ERR_UNAVAILABLE when gone.
int guest_channel_exec(GuestChannel *channel, const GuestRequest *request, const int fds[3], Error *err);
// A command that was sent as `held` may run: at once, or as soon as its child is ready.
void guest_channel_permit(GuestChannel *channel, const char *id);
// An id that an earlier hostd gave out; after it, events for it are passed on. Call before the loop runs again.
int guest_channel_adopt(GuestChannel *channel, const char *id, bool login);
int guest_channel_adopt_for(GuestChannel *channel, const char *id, const GuestOwner *owner); // the same, of an owner's
// To the command's process group, inside.
int guest_channel_signal(GuestChannel *channel, const char *id, int signal);
// A line about a denied packet or name, for people inside. Dropped when the helper does not keep up: it is in the log all the same.
void guest_channel_denied(GuestChannel *channel, const char *text);
// `text` may be NULL. Dropped when the helper does not keep up: it asks again for those who wait.
typedef struct GuestReply {
        const char *id; // of the ask; NULL: to all who wait for the number
        GuestAskState state;
        uint32_t number;
        uint64_t until;
        const char *text;
} GuestReply;
void guest_channel_answer(GuestChannel *channel, const GuestReply *reply);
void guest_channel_forget(GuestChannel *channel, const char *id); // whatever comes for it later is answered and dropped
CgroupBox *guest_channel_box(GuestChannel *channel);
uint64_t guest_channel_ignored(const GuestChannel *channel); // packets that were dropped: malformed, unknown id, wrong pid

// Pure: one packet from the guest. -EBADMSG unless its size, version, type, id and value are ones a guest may send.
int guest_message_decode(const void *data, size_t size, GuestHeader *ret);
// The same of an ASK. What it asks for is a destination and a port by their bytes only, and its reason is VALID_REASON.
int guest_ask_decode(const void *data, size_t size, GuestAsk *ret);
// Pure: an EXEC packet, to be freed. ERR_INVALID names the field that is too long or malformed.
int guest_message_encode(const GuestRequest *request, void **ret, size_t *ret_size, Error *err);
bool guest_id_valid(const char *id);
