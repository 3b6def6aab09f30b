// SPDX-License-Identifier: GPL-2.0-or-later
// What an instance asks for, part of guest.c: from the inside to hostd's end and the answer back, and who and what is turned away.
#include <stdio.h>
#include <string.h>

#include "guest/proto.h"
#include "guest_run.h"

static GuestAsk asked; // the last one
static unsigned n_asked;

void on_ask(GuestChannel *from, const GuestAsk *ask, void *userdata) {
        asked = *ask;
        n_asked++;
}

static void ask_answer(const char *id, GuestAskState state, uint32_t number, const char *text) {
        guest_channel_answer(channel, &(GuestReply) {.id = id, .state = state, .number = number, .until = 4102444799 * USEC_PER_SEC, .text = text});
}

static bool ask_wait(unsigned n) {
        for (int i = 0; i < 200 * (int) slow() && n_asked < n; i++)
                loop_for(20 * USEC_PER_MSEC);
        return n_asked >= n;
}

// One request from the inside to hostd and its answer back, by the program that the helper puts there.
static void ask_run(Run *r, const char *words, const char *user) {
        char script[256];

        (void) snprintf(script, sizeof(script), "exec /run/hostd/hostd-guest ask %s 2>&1", words);
        *r = (Run) {.request = {.verb = GUEST_RUN, .user = user, .argv = SHELL(script)}};
        int out;
        if (run_start(r, &out) >= 0)
                r->out = out; // kept for ask_end()
}

static bool ask_end(Run *r, int status, const char *expected) {
        loop_wait(&r->done, 20 * USEC_PER_SEC);
        run_output(r, r->out);
        bool ok = r->done && r->record.exit == status && strstr(r->output, expected);
        if (!ok)
                fprintf(stderr, "exit %d instead of %d, said: %s\n", r->record.exit, status, r->output);
        run_free(r);
        return ok;
}

void test_ask(void) {
        bool there = false;
        Run r, second;

        for (int i = 0; i < 100 && !there; i++) {
                loop_for(100 * USEC_PER_MSEC);
                there = shell_gives("test -x /run/hostd/hostd-guest && test -S /run/hostd/ask.sock && echo yes || echo no", "agent", "yes\n");
        }
        CHECK(there);
        CHECK(shell_gives("stat -c %a:%U /run/hostd/hostd-guest /run/hostd/ask.sock", "agent", "755:root\n666:root\n"));
        // Words that are wrong are told here.
        ask_run(&r, "net example.org", "agent");
        CHECK(ask_end(&r, 2, "say why"));
        ask_run(&r, "net example.org --reason \"$(printf 'a\\033[1m')\"", "agent");
        CHECK(ask_end(&r, 2, "control characters"));
        ask_run(&r, "net 'a b' --reason x", "agent");
        CHECK(ask_end(&r, 2, "no host"));
        ask_run(&r, "net example.org:0 --reason x", "agent");
        CHECK(ask_end(&r, 2, "port"));
        CHECK(n_asked == 0);
        // Asked, and not waited for.
        ask_run(&r, "net Example.org --reason 'for a test'", "agent");
        CHECK(ask_wait(1) && asked.header.value == 1000 && asked.port == 443 && asked.protocol == 6 && strcmp(asked.to, "example.org") == 0 && strcmp(asked.reason, "for a test") == 0);
        ask_answer(asked.header.id, GUEST_ASK_PENDING, 7, "");
        CHECK(ask_end(&r, 0, "request 7 waits for an operator"));
        // Two that wait for one number; told when it is decided, whichever of them asked.
        ask_run(&r, "net [2001:db8::1]:8443 --protocol udp --reason x --wait 20", NULL);
        CHECK(ask_wait(2) && asked.header.value == 0 && asked.port == 8443 && asked.protocol == 17 && strcmp(asked.to, "2001:db8::1") == 0);
        ask_answer(asked.header.id, GUEST_ASK_PENDING, 8, "");
        ask_run(&second, "status 8 --wait 20", "agent");
        CHECK(ask_wait(3) && asked.header.flags == 8);
        ask_answer(asked.header.id, GUEST_ASK_PENDING, 8, "");
        loop_for(200 * USEC_PER_MSEC);
        ask_answer(NULL, GUEST_ASK_DENIED, 9, "another's");
        ask_answer(NULL, GUEST_ASK_APPROVED, 8, "");
        CHECK(ask_end(&r, 0, "request 8 is approved until 2099-12-31T23:59:59Z"));
        CHECK(ask_end(&second, 0, "request 8 is approved until"));
        // An answer that was lost is asked for again; a no has its reason; what was not taken says why.
        ask_run(&r, "net 10.0.0.0/24:22 --reason x --wait 20", NULL);
        CHECK(ask_wait(4) && strcmp(asked.to, "10.0.0.0/24") == 0 && asked.port == 22);
        ask_answer(asked.header.id, GUEST_ASK_PENDING, 10, "");
        CHECK(ask_wait(5) && asked.header.flags == 10 && !asked.to[0]);
        ask_answer(asked.header.id, GUEST_ASK_DENIED, 10, "not here");
        CHECK(ask_end(&r, 1, "request 10 is denied: not here"));
        ask_run(&r, "net example.org --reason x --wait 20", NULL);
        CHECK(ask_wait(6));
        ask_answer(asked.header.id, GUEST_ASK_REFUSED, 0, "too many requests");
        CHECK(ask_end(&r, 1, "hostd-guest: too many requests"));
        ask_run(&r, "net example.org --reason x --wait 1", NULL);
        CHECK(ask_wait(7));
        ask_answer(asked.header.id, GUEST_ASK_PENDING, 11, "");
        CHECK(ask_end(&r, 3, "nobody has answered yet"));
        // Somebody else may not ask, and what is no request goes nowhere.
        unsigned before = n_asked;
        ask_run(&r, "net example.org --reason x", "lost");
        CHECK(ask_end(&r, 1, "only root and the user with the id 1000"));
        CHECK(shell_gives("python3 -c \"import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect('/run/hostd/ask.sock'); s.send(b'x' * 700); "
                          "print(b'no request' in s.recv(4096))\"", "agent", "True\n"));
        CHECK(n_asked == before);
}
