// SPDX-License-Identifier: GPL-2.0-or-later
// Oom: see oom.h.
#include "quotas/oom.h"

#include <ctype.h>
#include <fcntl.h>
#include <string.h>

#include "base/valid.h"

#define OOM_RECORDS_MAX 256

// The text of a record is one line; continuation lines (" KEY=value") follow it.
static bool oom_text(const char *record, size_t size, const char **ret, size_t *ret_size) {
        const char *text = memchr(record, ';', size), *end;
        unsigned long facility;
        char prefix[16];

        if (!text)
                return false;
        // Anybody with access to /dev/kmsg may write records; those have a facility other than the kernel's 0.
        (void) snprintf(prefix, sizeof(prefix), "%.*s", (int) MIN2((size_t) (text - record), sizeof(prefix) - 1), record);
        if (!isdigit((unsigned char) prefix[0]))
                return false;
        facility = strtoul(prefix, NULL, 10) >> 3;
        if (facility != 0)
                return false;
        text++;
        end = memchr(text, '\n', size - (size_t) (text - record));
        *ret = text;
        *ret_size = end ? (size_t) (end - text) : size - (size_t) (text - record);
        return true;
}

static bool oom_starts(const char **text, size_t *size, const char *word) {
        size_t n = strlen(word);

        if (*size < n || memcmp(*text, word, n) != 0)
                return false;
        *text += n;
        *size -= n;
        return true;
}

// "oom-kill:constraint=CONSTRAINT_MEMCG,…,oom_memcg=/a,task_memcg=/a/b,task=NAME,pid=1,uid=0". The task's name is the guest's and
// comes after what is wanted; a group's name made by a guest has no comma, since the first one ends it here.
static void oom_take_cgroup(const char *text, size_t size, OomVictim *ret) {
        static const char key[] = ",task_memcg=";
        const char *at = memmem(text, size, key, sizeof(key) - 1), *end;

        ret->cgroup[0] = 0;
        if (!at)
                return;
        at += sizeof(key) - 1;
        end = memchr(at, ',', size - (size_t) (at - text));
        if (!end || (size_t) (end - at) >= sizeof(ret->cgroup) || memchr(at, 0, (size_t) (end - at)))
                return;
        memcpy(ret->cgroup, at, (size_t) (end - at));
        ret->cgroup[end - at] = 0;
        // Groups below the payload have names that the guest gave.
        if (!valid_is(VALID_TEXT, ret->cgroup))
                ret->cgroup[0] = 0;
}

int oom_parse(const char *record, size_t size, OomVictim *ret) {
        char name[OOM_COMM_MAX * 4 + 1];
        const char *text, *close = NULL;
        size_t n, length;
        unsigned long pid = 0;

        if (!oom_text(record, size, &text, &n))
                return -ENOMSG;
        if (oom_starts(&text, &n, "oom-kill:")) {
                oom_take_cgroup(text, n, ret);
                return -ENOMSG;
        }
        if (!oom_starts(&text, &n, "Memory cgroup out of memory: Killed process "))
                return -ENOMSG;
        for (; n > 0 && isdigit((unsigned char) *text) && pid < 100000000; text++, n--)
                pid = pid * 10 + (unsigned long) (*text - '0');
        if (pid == 0 || pid > 4194304 || !oom_starts(&text, &n, " ("))
                return -ENOMSG;
        // A name may hold ") total-vm:" itself: the kernel's own is the last. kmsg shows odd bytes as \xNN, four for one.
        for (size_t i = 0; i + 10 <= n && i < sizeof(name); i++)
                if (memcmp(text + i, ") total-vm", 10) == 0)
                        close = text + i;
        if (!close)
                return -ENOMSG;
        length = (size_t) (close - text);
        if (length >= sizeof(name))
                return -ENOMSG;
        memcpy(name, text, length);
        name[length] = 0;
        _cleanup_free_ char *shown = valid_printable(name);
        if (!shown)
                return -ENOMEM;
        ret->pid = (pid_t) pid;
        (void) snprintf(ret->comm, sizeof(ret->comm), "%s", shown);
        // Escapes make it longer: where it was cut, no half of a character may be left.
        while (!valid_utf8(ret->comm, strlen(ret->comm)))
                ret->comm[strlen(ret->comm) - 1] = 0;
        return 0;
}

int oom_open(int *ret_fd, Error *err) {
        int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

        if (fd < 0)
                return error_set_errno(err, errno, "opening /dev/kmsg");
        if (lseek(fd, 0, SEEK_END) < 0) {
                int r = error_set_errno(err, errno, "going to the end of /dev/kmsg");
                (void) close_fd(fd);
                return r;
        }
        *ret_fd = fd;
        return 0;
}

int oom_next(int fd, const char *cgroup, OomVictim *ret) {
        size_t n = strlen(cgroup);
        OomVictim victim = {0};
        char record[8192]; // the kernel's largest

        for (unsigned i = 0; i < OOM_RECORDS_MAX; i++) {
                ssize_t size = read(fd, record, sizeof(record));
                if (size < 0 && errno == EPIPE) // overwritten before it was read: go on with what is left
                        continue;
                if (size <= 0)
                        return size < 0 && errno != EAGAIN ? -errno : -ENOMSG;
                if (oom_parse(record, (size_t) size, &victim) < 0)
                        continue;
                if (strncmp(victim.cgroup, cgroup, n) == 0 && (victim.cgroup[n] == '/' || !victim.cgroup[n])) {
                        *ret = victim;
                        return 0;
                }
                victim = (OomVictim) {0};
        }
        return -ENOMSG;
}
