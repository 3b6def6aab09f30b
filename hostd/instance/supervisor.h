// SPDX-License-Identifier: GPL-2.0-or-later
// Supervisor: the life of one start of one instance, and the control socket that hostd talks to meanwhile.
#pragma once

#include "base/clock.h"
#include "instance/spec.h"

#define CLIENTS_MAX 8
#define CONSOLES_MAX 8

typedef struct Client {
        int fd; // -EBADF: free
        bool greeted;
} Client;

typedef struct Console {
        pid_t pid; // 0: free
        int client_fd;
        uint64_t cookie;
} Console;

#define KEPT_MAX 1024

typedef struct Kept { // the channel of a sandbox
        char id[36]; // "": free
        int fd;
} Kept;

typedef struct Supervisor {
        InstanceSpec spec;
        int run_fd, listen_fd, signal_fd;
        pid_t monitor, init;
        int init_pidfd;
        int plug_fd;    // end of the pipe that init waits for; -EBADF: it does not, or not any more
        pid_t plug_pid; // who is to become init; hostd was told
        bool plugged;
        ControlState state;
        ControlTarget target;
        usec_t started;
        bool stopping;     // somebody asked; whatever ends init now is a halt
        bool terminated;   // by a signal, and hostd did not
        usec_t kill_at;    // then: nobody else keeps that clock
        usec_t next_halt;  // when to ask init again
        usec_t next_blind; // when to try a signal that it may not know
        unsigned blind;
        int binary;        // hostd-guest
        pid_t guest;       // 0: does not run
        int guest_channel; // the host's end
        usec_t guest_started, guest_retry, guest_backoff;
        Client clients[CLIENTS_MAX];
        Console consoles[CONSOLES_MAX];
        Kept kept[KEPT_MAX];
        size_t n_kept; // the first so many
        char failure[sizeof(((ControlMessage *) 0)->text)]; // why the start failed
} Supervisor;

#define SUPERVISOR_NULL                                                                                                  \
        ((Supervisor) {.run_fd = -EBADF, .listen_fd = -EBADF, .signal_fd = -EBADF, .init_pidfd = -EBADF, .plug_fd = -EBADF, .binary = -EBADF, \
                       .guest_channel = -EBADF, .guest_retry = USEC_INFINITY, .next_halt = USEC_INFINITY, .kill_at = USEC_INFINITY})

// Returns the exit status of the program.
int supervisor_run(const char *run_dir);
void supervisor_request_stop(Supervisor *s);
void supervisor_plugged(Supervisor *s);

// control.c
int control_listen(Supervisor *s, Error *err);
void control_accept(Supervisor *s);
void control_receive(Supervisor *s, Client *client);
void control_send_state(Supervisor *s, Client *client); // NULL: to all that said HELLO
void control_send_guest(Supervisor *s, Client *client);
void control_send_plug(Supervisor *s, Client *client);
void control_send_error(Supervisor *s, Client *client);
void control_console_ended(Supervisor *s, pid_t pid);
bool control_has_client(const Supervisor *s);
void control_notify(const char *format, ...) _printf_(1, 2); // what `systemctl status` shows; see sd_notify(3)

// halt.c
#define HALT_SIGNAL_SYSTEMD 37 // SIGRTMIN+3 as glibc counts it, independent of the C library
// The signal by which to ask init to shut down at this moment; `attempt` counts the blind ones from 0. 0: it is gone.
int halt_signal(const char *proc, pid_t init, unsigned attempt);
