// SPDX-License-Identifier: GPL-2.0-or-later
// Cargo says nothing of its registry when it is asked; it does when it needs one. See client_root.h and clients.h.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "build/client_root.h"
#include "build/clients.h"

#define SMALL_MAX ((size_t) 64 << 10)

static char *read_small(const char *path) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        _cleanup_free_ char *text = calloc(1, SMALL_MAX + 1);
        struct stat st;
        ssize_t n;

        if (fd < 0 || !text || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (n = read(fd, text, SMALL_MAX)) < 0)
                return NULL;
        return memchr(text, 0, (size_t) n) ? NULL : TAKE_PTR(text);
}

static int write_small(const char *path, const char *text) {
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);

        return fd < 0 ? -errno : io_write_all(fd, text, strlen(text));
}

// A project of nothing that wants one crate. cargo's home is where it can write, so what its own home says comes in beside the project.
int client_project(char *const *env, char ***mirrors) {
        static const char *const names[] = {"config.toml", "config"};
        const char *home = client_variable(env, "ASK_CARGO_HOME");
        int r = mkdir(CLIENT_PROJECT, 0755) < 0 || mkdir(CLIENT_PROJECT "/.cargo", 0755) < 0 ? -errno : 0;

        if (r >= 0)
                r = write_small(CLIENT_PROJECT "/Cargo.toml", "[package]\nname = \"ask\"\nversion = \"0.1.0\"\n[lib]\npath = \"lib.rs\"\n[dependencies]\na = \"*\"\n");
        if (r >= 0)
                r = write_small(CLIENT_PROJECT "/lib.rs", "");
        for (size_t i = 0; i < ELEMENTS(names) && r >= 0 && home; i++) {
                _cleanup_free_ char *path = NULL, *text = NULL;
                if (asprintf(&path, "%s/%s", home, names[i]) < 0) {
                        path = NULL;
                        return -ENOMEM;
                }
                if (!(text = read_small(path)))
                        continue;
                r = clients_scan(SCAN_SETTINGS, text, mirrors);
                if (r >= 0)
                        r = write_small(CLIENT_PROJECT "/.cargo/config.toml", text);
                break;
        }
        return r;
}

// Where there is a network cargo has the index's configuration now.
int client_indices(char ***mirrors) {
        static const char folder[] = CLIENT_PROJECT "/own/registry/index";
        struct dirent **names = NULL;
        int n = scandir(folder, &names, NULL, alphasort), r = 0;

        for (int i = 0; i < n; i++) {
                _cleanup_free_ char *path = NULL, *text = NULL;
                if (asprintf(&path, "%s/%s/config.json", folder, names[i]->d_name) < 0)
                        path = NULL;
                free(names[i]);
                text = path ? read_small(path) : NULL;
                if (text && r >= 0)
                        r = clients_scan(SCAN_INDEX, text, mirrors);
        }
        free(names);
        return r;
}
