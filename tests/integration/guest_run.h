// SPDX-License-Identifier: GPL-2.0-or-later
// One command in the instance of tests/integration/guest.c, for its tests that live in files of their own.
#pragma once

#include "core/command.h"

typedef struct Run {
        GuestRequest request;
        usec_t timeout;
        const char *input;
        size_t input_size; // 0: a string
        int tty;          // a pty's slave for all three, or 0
        int out;          // an own fd 1
        char *output;     // of 1 and 2
        bool done, started;
        CommandRecord record;
        Command *command;
} Run;

#define SHELL(text) ((char *[]) {"sh", "-c", (char *) (text), NULL})
#define CHECK(condition) check_at(__LINE__, condition, #condition)

extern sd_event *event;
extern CommandManager *manager;
extern GuestChannel *channel;
extern int box_dir; // the cgroup with one directory for each command

void check_at(int line, bool ok, const char *what);
void run(Run *run); // to its end, with its output
int run_start(Run *run, int *ret_out);
void run_done(Command *command, const CommandRecord *record, void *userdata);
void run_output(Run *run, int out); // all of it, to its end
void run_free(Run *run);
void loop_until(const bool *flag, usec_t limit);
unsigned slow(void); // how much longer everything takes here, 1 natively
void loop_wait(const bool *flag, usec_t limit); // the same, with more where everything takes longer
void loop_for(usec_t span);
bool shell_gives(const char *script, const char *user, const char *expected);

void on_ask(GuestChannel *from, const GuestAsk *ask, void *userdata);

void test_ask(void);
void test_deliver(void);
void test_files(void);
void test_range(void);
void test_lists(void);
void test_mkdir(void);
void test_modes(void);
void test_move(void);
void test_replace(void);
void test_write(void);
void test_watch(void);
void test_torn(void);
void test_owner(void);
void test_sandbox(void);
void test_tree(void);
void test_terminal(void);
void test_terminal_volume(void);
void test_terminal_ends(void);
void test_terminal_without_devpts(void);
