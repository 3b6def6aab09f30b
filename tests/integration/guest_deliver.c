// SPDX-License-Identifier: GPL-2.0-or-later
// What hostd hands into the instance of guest.c: the authority's certificate with its variables, secrets as files; each delivery is the whole, and what
// is broken changes nothing.
#include <string.h>
#include <unistd.h>

#include "guest/proto.h"
#include "guest_run.h"

#define CERTIFICATE "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"

typedef struct Packet {
        char bytes[8192];
        size_t n;
} Packet;

static void add(Packet *p, GuestFileKind kind, const char *name, uint32_t uid, const char *data) {
        GuestFile file = {.magic = GUEST_FILE_MAGIC, .kind = kind, .uid = uid, .size = (uint32_t) strlen(data)};

        memcpy(file.name, name, strlen(name));
        memcpy(p->bytes + p->n, &file, sizeof(file));
        memcpy(p->bytes + p->n + sizeof(file), data, file.size);
        p->n += sizeof(file) + file.size;
}

static bool gives(const Packet *p, int errnum) {
        _cleanup_(run_free) Run r = {.input = p->bytes, .input_size = p->n, .request = {.verb = GUEST_DELIVER, .path = GUEST_FILES}};

        run(&r);
        if (r.record.errnum != errnum)
                fprintf(stderr, "delivery: exit %d errno %d: %s %s\n", r.record.exit, r.record.errnum, r.record.message ?: "", r.output ?: "");
        return r.record.errnum == errnum && (r.record.exit == 0) == (errnum == 0);
}

static void test_deliver_secrets(void) {
        Packet p = {.n = 0};

        add(&p, GUEST_FILE_SECRET, "for-root", 0, "one\ntwo");
        add(&p, GUEST_FILE_SECRET, "for-agent", 1000, "three");
        add(&p, GUEST_FILE_END, "", 0, "");
        CHECK(gives(&p, 0));
        CHECK(shell_gives("cd /run/hostd/secrets; stat -c '%n %a %u %s' *; stat -f -c %T .; cat for-root", NULL,
                          "for-agent 400 1000 5\nfor-root 400 0 7\nramfs\none\ntwo"));
        CHECK(shell_gives("cd /run/hostd/secrets 2>/dev/null; cat for-agent; cat for-root 2>/dev/null; ls 2>/dev/null; true", "agent", "three"));
        CHECK(shell_gives("touch /run/hostd/secrets/mine 2>/dev/null || echo no", "agent", "no\n"));
        // A rotation, and an end while somebody has it open: he reads nothing any more.
        _cleanup_(run_free) Run reader = {.request = {.verb = GUEST_RUN, .argv = SHELL("exec 3</run/hostd/secrets/for-root; echo x >/run/hostd/secrets/left; touch /mnt/opened; sleep 1; wc -c <&3")}};
        int out;
        CHECK(run_start(&reader, &out) == 0);
        CHECK(shell_gives("until [ -e /mnt/opened ]; do sleep 0.05; done", NULL, ""));
        p.n = 0;
        add(&p, GUEST_FILE_SECRET, "for-agent", 1001, "four");
        add(&p, GUEST_FILE_END, "", 0, "");
        CHECK(gives(&p, 0));
        CHECK(shell_gives("cd /run/hostd/secrets; ls -A; stat -c %u *; cat *", NULL, "for-agent\n1001\nfour"));
        char text[8] = "";
        loop_wait(&reader.done, 30 * USEC_PER_SEC);
        CHECK(read(out, text, sizeof(text) - 1) > 0 && strcmp(text, "0\n") == 0);
        (void) close(out);
        p.n = 0;
        add(&p, GUEST_FILE_END, "", 0, "");
        CHECK(gives(&p, 0));
        CHECK(shell_gives("ls -A /run/hostd | grep -vxE 'ask.sock|hostd-guest'; grep ' - ramfs secrets' /proc/self/mountinfo || echo none", NULL, "none\n"));
}

static void test_deliver_authority(void) {
        Packet p = {.n = 0}, none = {.n = 0};

        add(&p, GUEST_FILE_AUTHORITY, "", 0, CERTIFICATE);
        add(&p, GUEST_FILE_END, "", 0, "");
        add(&none, GUEST_FILE_END, "", 0, "");
        CHECK(shell_gives("env | grep -c -e SSL -e CERT -e CA_ || true", "agent", "0\n"));
        CHECK(gives(&p, 0));
        CHECK(shell_gives("cat /run/hostd/ca.crt; stat -c %a /run/hostd/ca.crt /run/hostd/ca-bundle.crt", "agent", CERTIFICATE "644\n644\n"));
        CHECK(shell_gives("cat /etc/ssl/certs/ca-certificates.crt /run/hostd/ca.crt 2>/dev/null | cmp - \"$SSL_CERT_FILE\" && echo same", "agent", "same\n"));
        CHECK(shell_gives("echo $NODE_EXTRA_CA_CERTS $PIP_CERT $GIT_SSL_CAINFO", "agent", "/run/hostd/ca.crt /run/hostd/ca-bundle.crt /run/hostd/ca-bundle.crt\n"));
        CHECK(shell_gives("env -i sh -c '. /run/hostd/profile.sh; echo $REQUESTS_CA_BUNDLE $CARGO_HTTP_CAINFO'", "agent", "/run/hostd/ca-bundle.crt /run/hostd/ca-bundle.crt\n"));
        _cleanup_(run_free) Run own = {.request = {.verb = GUEST_RUN, .argv = SHELL("echo $SSL_CERT_FILE"), .env = (char *[]) {(char *) "SSL_CERT_FILE=/mine", NULL}}};
        run(&own);
        CHECK(strcmp(own.output, "/mine\n") == 0);
        CHECK(gives(&none, 0));
        CHECK(shell_gives("ls -A /run/hostd | grep -vxE 'ask.sock|hostd-guest'; echo ${SSL_CERT_FILE-none}", "agent", "none\n"));
}

static void test_deliver_broken(void) {
        Packet good = {.n = 0}, bad = {.n = 0}, none = {.n = 0};

        add(&good, GUEST_FILE_SECRET, "kept", 0, "value");
        add(&good, GUEST_FILE_END, "", 0, "");
        add(&none, GUEST_FILE_END, "", 0, "");
        CHECK(gives(&good, 0));
        for (size_t n = 0; n < good.n; n += 5) { // cut short: nothing of it is done
                Packet cut = good;
                cut.n = n;
                if (n > 0)
                        CHECK(gives(&cut, EBADMSG));
        }
        add(&bad, GUEST_FILE_SECRET, "../up", 0, "value");
        add(&bad, GUEST_FILE_END, "", 0, "");
        CHECK(gives(&bad, EBADMSG));
        bad = good;
        bad.n++;
        CHECK(gives(&bad, EBADMSG)); // something behind the end
        CHECK(shell_gives("cat /run/hostd/secrets/*", NULL, "value"));
        // A directory that is no ramfs gets no value: here one is laid over it, a link is refused, and the file there is not touched.
        CHECK(gives(&none, 0));
        CHECK(shell_gives("mkdir /mnt/elsewhere; ln -s /mnt/elsewhere /run/hostd/secrets", NULL, ""));
        CHECK(gives(&good, ENOTDIR));
        CHECK(shell_gives("ls -A /mnt/elsewhere; rm /run/hostd/secrets; mkdir /run/hostd/secrets; echo old >/run/hostd/secrets/kept", NULL, ""));
        CHECK(gives(&good, 0));
        CHECK(shell_gives("stat -f -c %T /run/hostd/secrets; umount /run/hostd/secrets; cat /run/hostd/secrets/kept; rm -r /run/hostd/secrets", NULL, "ramfs\nold\n"));
        CHECK(gives(&none, 0));
}

void test_deliver(void) {
        test_deliver_secrets();
        test_deliver_authority();
        test_deliver_broken();
}
