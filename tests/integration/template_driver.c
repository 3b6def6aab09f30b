// SPDX-License-Identifier: GPL-2.0-or-later
// Drives the template registry for templates.sh, as hostd does, but blocking:
//   template_driver STATE RUN build PROGRAM UID GID RECIPE [SUITE] | build2 … (both suites at once) | import PROGRAM UID GID NAME < TAR
//   template_driver STATE RUN list | show T | mount T | unmount T | delete T | prune | verify DIGEST
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/io.h"
#include "base/strv.h"
#include "build/wire.h"
#include "core/template.h"

// Waits for whatever a job waits for. 0 when it is done.
static int drive_turn(TemplateJob *job, Error *err) {
        struct pollfd p[] = {{.fd = job->pidfd, .events = POLLIN}, {.fd = job->out_fd, .events = POLLIN}};
        char digest[DIGEST_TEXT_MAX];
        int k;

        if (poll(p, 2, 100) < 0)
                return 1;
        if (template_build_read(job) > 0)
                printf("%s %u %s\n", job->id, job->percent, job->text);
        (void) fflush(stdout);
        if (!p[0].revents)
                return 1;
        k = template_build_finish(job, digest, err);
        if (k == 0)
                printf("digest %s\n", digest);
        return k;
}

static int drive_jobs(TemplateRegistry *r, const TemplateBuildSpec *specs, size_t n, Error *err) {
        TemplateJob *jobs[2] = {NULL, NULL};
        bool more[2] = {false, false};
        int k = 0;

        for (size_t i = 0; i < n && k >= 0; i++) {
                k = template_build_start(r, &specs[i], &jobs[i], err);
                more[i] = k >= 0;
        }
        while (k >= 0 && (more[0] || more[1]))
                for (size_t i = 0; i < n && k >= 0; i++)
                        if (more[i]) {
                                k = drive_turn(jobs[i], err);
                                more[i] = k > 0;
                        }
        for (size_t i = 0; i < n; i++) {
                if (jobs[i] && jobs[i]->pid > 0) {
                        template_job_kill(jobs[i]);
                        (void) template_job_reap(jobs[i]);
                        jobs[i]->pid = 0;
                }
                if (jobs[i])
                        (void) template_job_scrub(jobs[i], NULL);
                jobs[i] = template_job_free(jobs[i]);
        }
        return k;
}

// What hostd does at its end of the wire, in a process of its own: it sees who asks, and refuses with a sentence.
static pid_t refuse_wire(int fd) {
        union {
                char buf[CMSG_SPACE(sizeof(struct ucred))];
                struct cmsghdr align;
        } control = {0};
        WireAnswer answer = {.error = -EACCES};
        WireQuestion question;
        struct iovec iov = {&question, sizeof(question)};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
        struct ucred from = {.uid = (uid_t) -1};
        pid_t pid = fork();
        int one = 1;

        if (pid != 0)
                return pid;
        if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) == 0 && recvmsg(fd, &msg, 0) == sizeof(question) && CMSG_FIRSTHDR(&msg))
                memcpy(&from, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(from));
        (void) snprintf(answer.text, sizeof(answer.text), "no network for uid %u", from.uid);
        _exit(send(fd, &answer, sizeof(answer), 0) != sizeof(answer));
}

static int drive_build(TemplateRegistry *r, char **argv, int argc, Error *err) {
        bool build = strcmp(argv[0], "import") != 0, both = strcmp(argv[0], "build2") == 0;
        _cleanup_free_ char *text = NULL;
        TemplateBuildSpec spec = {.input_fd = STDIN_FILENO}, specs[2];
        int wire[2];

        if (argc < 5)
                return error_set(err, ERR_INVALID, "arguments are missing");
        spec.program = argv[1];
        spec.uid = (uid_t) strtoul(argv[2], NULL, 10);
        spec.gid = (gid_t) strtoul(argv[3], NULL, 10);
        spec.suite = argc > 5 ? argv[5] : NULL;
        spec.socket = getenv("TEMPLATE_SOCKET"); // instead of PROGRAM, UID and GID: as under systemd
        if (!build)
                spec.name = argv[4];
        else if (io_read_file(AT_FDCWD, argv[4], 1 << 18, &text, NULL) < 0)
                return error_set(err, ERR_NOT_FOUND, "cannot read %s", argv[4]);
        spec.recipe_text = text;
        if (getenv("TEMPLATE_WIRE")) {
                if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, wire) < 0 || refuse_wire(wire[0]) < 0)
                        return error_set_errno(err, errno, "no wire");
                spec.wired = true;
                spec.wire = wire[1];
        }
        specs[0] = specs[1] = spec;
        if (both)
                specs[0].suite = NULL;
        return drive_jobs(r, specs, both ? 2 : 1, err);
}

static int drive_json(json_t *json) {
        (void) json_dumpf(json, stdout, JSON_INDENT(1));
        (void) printf("\n");
        json_decref(json);
        return 0;
}

static int drive_one(TemplateRegistry *r, const char *verb, const char *name, Error *err) {
        _cleanup_free_ char *path = NULL;
        Template *t = template_find(r, name);
        int k;

        if (strcmp(verb, "delete") == 0)
                return template_delete(r, name, NULL, err);
        if (strcmp(verb, "verify") == 0)
                return template_verify(r, name, err);
        if (!t)
                return error_set(err, ERR_NOT_FOUND, "there is no such template");
        if (strcmp(verb, "show") == 0)
                return drive_json(template_show_json(t));
        k = template_mount(r, t->manifest->digest, &path, err);
        if (k >= 0 && strcmp(verb, "unmount") == 0) {
                k = template_unmount(r, t->manifest->digest, err);
                template_unmount_idle(r, USEC_PER_SEC); // too early: it stays
                if (k >= 0 && !t->mounted)
                        return error_set(err, ERR_INTERNAL, "it was unmounted while it was not idle yet");
                template_unmount_idle(r, 0);
                return k;
        }
        if (k >= 0)
                printf("%s\n", path);
        return k;
}

static int drive(TemplateRegistry *r, char **argv, int argc, Error *err) {
        _cleanup_strv_ char **deleted = NULL;
        int k;

        if (strcmp(argv[0], "build") == 0 || strcmp(argv[0], "build2") == 0 || strcmp(argv[0], "import") == 0)
                return drive_build(r, argv, argc, err);
        if (strcmp(argv[0], "list") == 0)
                return drive_json(template_list_json(r));
        if (strcmp(argv[0], "prune") == 0) {
                k = template_prune(r, NULL, &deleted, err);
                for (size_t i = 0; i < strv_length(deleted); i++)
                        printf("%s\n", deleted[i]);
                return k;
        }
        return argc > 1 ? drive_one(r, argv[0], argv[1], err) : error_set(err, ERR_INVALID, "arguments are missing");
}

int main(int argc, char **argv) {
        _cleanup_(template_registry_freep) TemplateRegistry *r = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int fd = argc > 3 ? open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, k;

        if (fd < 0) {
                fprintf(stderr, "usage: template_driver STATE RUN VERB …\n");
                return 2;
        }
        k = template_registry_new(fd, argv[2], &r, &err);
        if (k >= 0)
                k = drive(r, argv + 3, argc - 3, &err);
        if (k < 0)
                printf("error %s\n", error_message(&err, k));
        return k < 0;
}
