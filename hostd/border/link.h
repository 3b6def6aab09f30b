// SPDX-License-Identifier: GPL-2.0-or-later
// Link: one connection of control frames on an event loop, the same code at both ends.
//
// Never waits: what the other end does not take is queued, up to a bound; a peer that lets the queue run full, breaks the rules or goes
// away ends the link, which is told once by `gone`, from the loop. From then on sending is -ENOTCONN; the owner frees the link, and
// may do so in `gone` and in `frame`. Of what comes the loop has its turn after some frames, however many were read.
#pragma once

#include <systemd/sd-event.h>

#include "border/control.h"

typedef struct ControlLink ControlLink;
typedef void (*ControlFrameHandler)(ControlLink *link, const ControlFrame *frame, void *userdata);
typedef void (*ControlGoneHandler)(ControlLink *link, int r, void *userdata); // r: -ECONNRESET, -EPROTO, -ENOBUFS, …

typedef struct ControlLinkConfig {
        sd_event *event;
        int fd; // a connected SOCK_STREAM; the link's, in any case
        ControlSide side; // that this end is
        ControlFrameHandler frame;
        ControlGoneHandler gone;
        void *userdata;
} ControlLinkConfig;

#define CONTROL_QUEUE_MAX (6 * (size_t) CONTROL_TEXT_MAX) // several parts of a whole wait at once

int control_link_new(const ControlLinkConfig *config, ControlLink **ret);
ControlLink *control_link_free(ControlLink *link); // says nothing to anybody
DEFINE_CLEANUP(ControlLink, control_link_free)
int control_link_send(ControlLink *link, BorderType type, uint64_t cookie, const void *payload, size_t length);
// The same with a descriptor, which stays the caller's. hostd's end only. -EAGAIN: the other end is behind with reading.
int control_link_send_fd(ControlLink *link, BorderType type, uint64_t cookie, const void *payload, size_t length, int fd);
// hostd's end, of a socket with SO_PASSCRED: the process that sent last, by the kernel's word. 0: nothing came yet.
pid_t control_link_peer(const ControlLink *link);
// A helper's end: the descriptor of the frame that is being handled, or -ENOENT. One that is not taken is closed after it.
int control_link_take_fd(ControlLink *link);
