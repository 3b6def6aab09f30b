// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox: see sandbox.h.
#include "guest/sandbox.h"

#include <string.h>
#include <sys/resource.h>

#include "base/io.h"
#include "guest/files_internal.h"

#define SUBIDS_MAX (1024 * 1024) // bytes of the file

static const struct {
        const char *name, *program;
        int (*run)(const SandboxSpec *spec, GuestStage *ret_stage);
} sandbox_runtimes[] = {
        {"bwrap", "/usr/bin/bwrap", sandbox_bwrap},
};

static int sandbox_ids(SandboxSpec *spec) {
        const struct {
                const char *path;
                uint32_t *ret;
        } files[] = {{"/etc/subuid", &spec->subuid}, {"/etc/subgid", &spec->subgid}};
        int r = 0;

        for (size_t i = 0; i < ELEMENTS(files) && r == 0; i++) {
                _cleanup_free_ char *text = NULL;
                r = io_read_file(AT_FDCWD, files[i].path, SUBIDS_MAX, &text, NULL);
                if (r >= 0)
                        r = user_parse_subids(text, &spec->agent, SANDBOX_IDS - 1, files[i].ret);
        }
        return r;
}

// The soft limit is what process 1 gives to all in it as both (helper.c); its own stays the instance's.
static int sandbox_open_files(const Request *request) {
        struct rlimit files;
        uint64_t most;
        int r;

        if (getrlimit(RLIMIT_NOFILE, &files) < 0)
                return -errno;
        most = files.rlim_max;
        r = files_number(request, GUEST_WORD_OPEN_FILES, &most);
        files.rlim_cur = MIN2(most, files.rlim_max);
        return r >= 0 && setrlimit(RLIMIT_NOFILE, &files) < 0 ? -errno : r;
}

// argv: the runtime, the sandbox's id, and words
int sandbox_run(const Request *request, GuestStage *ret_stage) {
        SandboxSpec spec = {.root = request->header.flags & GUEST_FLAG_ROOT};
        size_t i = 0;
        int r;

        *ret_stage = GUEST_STAGE_SETUP;
        if (request->header.n_argv < 2)
                return -EBADMSG;
        while (i < ELEMENTS(sandbox_runtimes) && strcmp(sandbox_runtimes[i].name, request->argv[0]) != 0)
                i++;
        if (i == ELEMENTS(sandbox_runtimes))
                return -EOPNOTSUPP;
        if (access(sandbox_runtimes[i].program, X_OK) < 0) {
                *ret_stage = GUEST_STAGE_EXEC;
                return -errno;
        }
        spec.id = request->argv[1];
        spec.workspace = strcmp(request->path, "/") == 0 ? NULL : request->path;
        r = files_number(request, GUEST_WORD_DISK, &spec.bytes);
        if (r >= 0)
                r = sandbox_open_files(request);
        if (r < 0)
                return r;
        r = user_load("/etc", "1000", &spec.agent);
        if (r != 0) {
                *ret_stage = GUEST_STAGE_USER;
                return r < 0 ? r : -ENOENT;
        }
        r = sandbox_ids(&spec);
        if (r < 0) {
                *ret_stage = GUEST_STAGE_IDS;
                return r;
        }
        return sandbox_runtimes[i].run(&spec, ret_stage);
}
