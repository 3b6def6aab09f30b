// SPDX-License-Identifier: GPL-2.0-or-later
// User: see user.h.
#include "guest/user.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"

#define USER_FILE_MAX (1 << 20)
#define USER_FIELDS 7

void user_done(User *user) {
        free(user->name);
        free(user->home);
        free(user->shell);
        *user = (User) {0};
}

static int user_number(const char *text, size_t size, uint32_t *ret) {
        uint64_t n = 0;

        if (size == 0 || size > 10)
                return -EINVAL;
        for (size_t i = 0; i < size; i++) {
                if (text[i] < '0' || text[i] > '9')
                        return -EINVAL;
                n = n * 10 + (uint64_t) (text[i] - '0');
        }
        // The last one means "unchanged" to the set*id calls: it must never get through.
        if (n >= UINT32_MAX)
                return -ERANGE;
        *ret = (uint32_t) n;
        return 0;
}

typedef struct UserField {
        const char *text;
        size_t size;
} UserField;

// Splits the line at *at; moves *at behind it. Returns the number of fields (extra ones are not stored).
static size_t user_line(const char **at, UserField fields[USER_FIELDS]) {
        const char *p = *at, *end = strchrnul(p, '\n');
        size_t n = 0;

        *at = *end ? end + 1 : end;
        for (;;) {
                const char *colon = memchr(p, ':', (size_t) (end - p));
                const char *stop = colon ?: end;
                if (n < USER_FIELDS)
                        fields[n] = (UserField) {p, (size_t) (stop - p)};
                n++;
                if (!colon)
                        return n;
                p = colon + 1;
        }
}

static bool user_field_is(const UserField *field, const char *text) {
        return field->size == strlen(text) && memcmp(field->text, text, field->size) == 0;
}

static int user_fill(User *ret, const UserField *name, const UserField *home, const UserField *shell) {
        ret->name = strndup(name->text, name->size);
        ret->home = strndup(home->size ? home->text : "/", home->size ?: 1);
        ret->shell = shell->size ? strndup(shell->text, shell->size) : strdup("/bin/sh");
        if (ret->name && ret->home && ret->shell)
                return 0;
        user_done(ret);
        return -ENOMEM;
}

int user_parse_passwd(const char *text, const char *who, User *ret) {
        UserField f[USER_FIELDS];
        uint32_t wanted = 0, uid, gid;
        bool number = user_number(who, strlen(who), &wanted) == 0;

        for (const char *at = text; *at;) {
                if (user_line(&at, f) != USER_FIELDS || f[0].size == 0 || user_number(f[2].text, f[2].size, &uid) < 0 ||
                    user_number(f[3].text, f[3].size, &gid) < 0)
                        continue; // as libc does: a line it cannot read is no user
                if (!user_field_is(&f[0], who) && !(number && uid == wanted))
                        continue;
                ret->uid = uid;
                ret->gid = gid;
                return user_fill(ret, &f[0], &f[5], &f[6]);
        }
        if (!number)
                return -ENOENT;
        ret->uid = ret->gid = wanted;
        int r = user_fill(ret, &(UserField) {who, strlen(who)}, &(UserField) {"/", 1}, &(UserField) {"/bin/sh", 7});
        return r < 0 ? r : 1;
}

static bool user_listed(const UserField *members, const char *name) {
        const char *p = members->text, *end = p + members->size;

        while (p < end) {
                const char *comma = memchr(p, ',', (size_t) (end - p));
                UserField member = {p, (size_t) ((comma ?: end) - p)};
                if (user_field_is(&member, name))
                        return true;
                p = comma ? comma + 1 : end;
        }
        return false;
}

static void user_add_group(User *user, gid_t gid) {
        for (size_t i = 0; i < user->n_groups; i++)
                if (user->groups[i] == gid)
                        return;
        if (user->n_groups < USER_GROUPS_MAX)
                user->groups[user->n_groups++] = gid;
}

void user_parse_group(const char *text, User *user) {
        UserField f[USER_FIELDS];
        uint32_t gid;

        user_add_group(user, user->gid);
        for (const char *at = text; *at;)
                if (user_line(&at, f) == 4 && user_number(f[2].text, f[2].size, &gid) == 0 && user_listed(&f[3], user->name))
                        user_add_group(user, gid);
}

static int user_read(int dir, const char *name, char **ret) {
        _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        return S_ISREG(st.st_mode) ? io_read_all(fd, USER_FILE_MAX, ret, NULL) : -EBADF;
}

int user_load(const char *etc, const char *who, User *ret) {
        _cleanup_close_ int dir = open(etc, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_free_ char *passwd = NULL, *group = NULL;
        _cleanup_(user_done) User user = {0};
        // An instance without these files still has a root, and one whose files cannot be read needs root for the repair.
        bool root = !*who || strcmp(who, "root") == 0 || strcmp(who, "0") == 0;
        int r;

        if (dir >= 0) {
                r = user_read(dir, "passwd", &passwd);
                if (r < 0 && r != -ENOENT && !root)
                        return r;
                r = user_read(dir, "group", &group);
                if (r < 0 && r != -ENOENT && !root)
                        return r;
        }
        if (!*who)
                who = passwd ? "root" : "0";
        r = user_parse_passwd(passwd ?: "", who, &user);
        if (r == -ENOENT && strcmp(who, "root") == 0)
                r = user_parse_passwd("root:x:0:0::/:/bin/sh\n", who, &user);
        if (r < 0)
                return r;
        user_parse_group(group ?: "", &user);
        *ret = user;
        user = (User) {0};
        return r;
}

int user_parse_group_id(const char *text, const char *who, gid_t *ret) {
        UserField f[USER_FIELDS];
        uint32_t gid;

        for (const char *at = text; *at;)
                if (user_line(&at, f) == 4 && f[0].size > 0 && user_number(f[2].text, f[2].size, &gid) == 0 && user_field_is(&f[0], who)) {
                        *ret = gid;
                        return 0;
                }
        if (user_number(who, strlen(who), &gid) < 0)
                return -ENOENT;
        *ret = gid;
        return 0;
}

int user_find_group(const char *etc, const char *who, gid_t *ret) {
        _cleanup_close_ int dir = open(etc, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_free_ char *group = NULL;
        int r = dir < 0 ? -ENOENT : user_read(dir, "group", &group);

        return r < 0 && r != -ENOENT ? r : user_parse_group_id(group ?: "", who, ret);
}

bool user_parse_name(const char *text, UserNamesFile file, uint32_t id, char ret[USER_NAME_MAX + 1]) {
        size_t fields = file == USER_NAMES_PASSWD ? USER_FIELDS : 4;
        UserField f[USER_FIELDS];
        uint32_t number;

        for (const char *at = text; *at;) {
                if (user_line(&at, f) != fields || user_number(f[2].text, f[2].size, &number) < 0 || number != id)
                        continue;
                if (f[0].size == 0 || f[0].size > USER_NAME_MAX)
                        return false;
                for (size_t i = 0; i < f[0].size; i++)
                        if (f[0].text[i] <= ' ' || f[0].text[i] > '~')
                                return false;
                memcpy(ret, f[0].text, f[0].size);
                ret[f[0].size] = 0;
                return true;
        }
        return false;
}

void user_names_load(const char *etc, UserNames *ret) {
        static const char *const files[_USER_NAMES_FILE_MAX] = {[USER_NAMES_PASSWD] = "passwd", [USER_NAMES_GROUP] = "group"};
        _cleanup_close_ int dir = open(etc, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        *ret = (UserNames) {0};
        for (int i = 0; dir >= 0 && i < _USER_NAMES_FILE_MAX; i++)
                (void) user_read(dir, files[i], &ret->text[i]);
}

void user_names_done(UserNames *names) {
        for (int i = 0; i < _USER_NAMES_FILE_MAX; i++)
                free(names->text[i]);
        *names = (UserNames) {0};
}

const char *user_names_find(UserNames *names, UserNamesFile file, uint32_t id) {
        if (!names->text[file])
                return "";
        if (!names->last[file].known || names->last[file].id != id) {
                names->last[file].known = true;
                names->last[file].id = id;
                if (!user_parse_name(names->text[file], file, id, names->last[file].name))
                        names->last[file].name[0] = 0;
        }
        return names->last[file].name;
}

// "agent:100000:65536"
static bool user_subid_line(const char *line, size_t n, const User *user, uint32_t *ret_first, uint32_t *ret_count) {
        char copy[160], *save = NULL, *name, *first, *count, *end;
        unsigned long a, b;

        if (n >= sizeof(copy))
                return false;
        memcpy(copy, line, n);
        copy[n] = 0;
        name = strtok_r(copy, ":", &save);
        first = strtok_r(NULL, ":", &save);
        count = strtok_r(NULL, ":", &save);
        if (!name || !first || !count)
                return false;
        a = strtoul(name, &end, 10);
        if (strcmp(name, user->name) != 0 && (*end || a != user->uid))
                return false;
        a = strtoul(first, &end, 10);
        if (*end || a == 0 || a > UINT32_MAX)
                return false;
        b = strtoul(count, &end, 10);
        if (*end || b == 0 || b > UINT32_MAX - a)
                return false;
        *ret_first = (uint32_t) a;
        *ret_count = (uint32_t) b;
        return true;
}

int user_parse_subids(const char *text, const User *user, uint32_t least, uint32_t *ret) {
        for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
                uint32_t first, count;
                // The agent's own id is not among those of others.
                if (user_subid_line(line, strcspn(line, "\n"), user, &first, &count) && count >= least && (user->uid < first || user->uid - first >= count)) {
                        *ret = first;
                        return 0;
                }
        }
        return -ENOENT;
}
