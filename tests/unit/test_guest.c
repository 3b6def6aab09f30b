// SPDX-License-Identifier: GPL-2.0-or-later
// The packets both ways, the guest's user files, and what becomes of an environment and of words on their way through su.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/process.h"
#include "base/strv.h"
#include "core/guest.h"
#include "guest/deliver.h"
#include "guest/packages.h"
#include "guest/packages_check.h"
#include "guest/denied.h"
#include "guest/listen.h"
#include "guest/login.h"

static const GuestHeader good = {
        .magic = GUEST_MAGIC, .version = GUEST_VERSION, .size = sizeof(GuestHeader), .type = GUEST_EXITED, .id = "abc123"};

static void test_decode(void **state) {
        static const struct {
                uint16_t type;
                uint32_t value, flags;
                const char *id;
                bool ok;
        } cases[] = {
                {GUEST_HELLO, 1, 0, "", true},          {GUEST_HELLO, 1, 0, "a", false},   {GUEST_READY, 0, 0, "a", true},
                {GUEST_READY, 0, 0, "", false},         {GUEST_LIVE, 0, 0, "a", true},     {GUEST_FAILED, 2, 1, "a", true},
                {GUEST_FAILED, 2, 0, "a", false},       {GUEST_FAILED, 2, _GUEST_STAGE_MAX, "a", false},  {GUEST_FAILED, 4096, 1, "a", false},
                {GUEST_EXITED, 0xff00, 0, "a", true},   {GUEST_EXITED, 9, 0, "a", true},   {GUEST_EXITED, 0x8b, 0, "a", true},
                {GUEST_EXITED, 0x7f, 0, "a", false},    {GUEST_EXITED, 0x109, 0, "a", false}, {GUEST_EXITED, 0x10000, 0, "a", false},
                {GUEST_EXEC, 0, 0, "a", false},         {GUEST_RELEASE, 0, 0, "a", false}, {GUEST_ACK, 0, 0, "a", false},
                {GUEST_SIGNAL, 9, 0, "a", false},       {0, 0, 0, "a", false},             {999, 0, 0, "a", false},
                {GUEST_LIVE, 0, 0, "A", false},         {GUEST_LIVE, 0, 0, "a/b", false},  {GUEST_LIVE, 0, 0, "../x", false},
                {GUEST_LIVE, 0, 0, "abcdefghijklmnopqrstuvwxyz012345", true},
                {GUEST_LIVE, 0, 0, "abcdefghijklmnopqrstuvwxyz0123456", false},
        };
        GuestHeader h, out;

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                h = good;
                h.type = cases[i].type;
                h.value = cases[i].value;
                h.flags = cases[i].flags;
                memset(h.id, 0, sizeof(h.id));
                memcpy(h.id, cases[i].id, strlen(cases[i].id));
                if ((guest_message_decode(&h, sizeof(h), &out) == 0) != cases[i].ok)
                        fail_msg("case %zu", i);
        }
        assert_int_equal(guest_message_decode(&good, sizeof(good), &out), 0);
        assert_int_equal(guest_message_decode(&good, sizeof(good) - 1, &out), -EBADMSG);
        assert_int_equal(guest_message_decode(&good, 0, &out), -EBADMSG);
        h = good;
        h.id[20] = 'x'; // behind the NUL
        assert_int_equal(guest_message_decode(&h, sizeof(h), &out), -EBADMSG);
        memset(h.id, 'a', sizeof(h.id));
        assert_int_equal(guest_message_decode(&h, sizeof(h), &out), -EBADMSG);
        h = good;
        h.magic++;
        assert_int_equal(guest_message_decode(&h, sizeof(h), &out), -EBADMSG);
        h = good;
        h.version++;
        assert_int_equal(guest_message_decode(&h, sizeof(h), &out), -EBADMSG);
        h = good;
        h.size++;
        assert_int_equal(guest_message_decode(&h, sizeof(h), &out), -EBADMSG);
}

static void test_request(void **state) {
        char *argv[] = {"sh", "", "a\nb", NULL}, *env[] = {"A=1", NULL};
        GuestRequest request = {.id = "x1", .verb = GUEST_RUN, .flags = GUEST_FLAG_TTY, .user = "agent", .cwd = "/c", .argv = argv, .env = env};
        _cleanup_free_ void *packet = NULL;
        _cleanup_(request_done) Request got = {0};
        size_t size;

        assert_int_equal(guest_message_encode(&request, &packet, &size, NULL), 0);
        assert_int_equal(request_decode(packet, size, &got), 0);
        assert_string_equal(got.user, "agent");
        assert_string_equal(got.cwd, "/c");
        assert_string_equal(got.path, "");
        assert_true(strv_equal(got.argv, argv));
        assert_true(strv_equal(got.env, env));
        // Any cut, and any wrong count, is refused.
        for (size_t n = 0; n < size; n++) {
                Request bad;
                GuestHeader *h = packet;
                h->size = (uint32_t) n;
                assert_int_equal(request_decode(packet, n, &bad), -EBADMSG);
                h->size = (uint32_t) size;
        }
        for (uint32_t n = 0; n < 20; n++) {
                Request bad;
                ((GuestHeader *) packet)->n_argv = n;
                if (n != 3)
                        assert_int_equal(request_decode(packet, size, &bad), -EBADMSG);
        }
        // What hostd refuses to send.
        char *huge = calloc(1, GUEST_BODY_MAX + 1);
        memset(huge, 'a', GUEST_BODY_MAX);
        char *big[] = {huge, NULL};
        void *none = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        request.argv = big;
        assert_int_equal(guest_message_encode(&request, &none, &size, &err), -EINVAL);
        assert_string_equal(err.field, "command");
        request.argv = argv;
        request.id = "../x";
        assert_int_equal(guest_message_encode(&request, &none, &size, NULL), -EINVAL);
        free(huge);
}

static const char passwd[] =
        "root:x:0:0:root:/root:/bin/bash\n"
        "#comment\n"
        "short:x:1\n"
        "long:x:5:5:a:b:c:d\n"
        ":x:7:7::/:/bin/sh\n"
        "neg:x:-1:5::/:/bin/sh\n"
        "max:x:4294967295:5::/:/bin/sh\n"
        "huge:x:99999999999:5::/:/bin/sh\n"
        "agent:x:1000:1001:Agent,,,:/home/agent:/bin/zsh\n"
        "agent:x:0:0::/root:/bin/sh\n"
        "1000:x:0:0::/root:/bin/sh\n"
        "bare:x:1002:1002:::";

static void test_passwd(void **state) {
        static const struct {
                const char *who;
                int r;
                uid_t uid;
                gid_t gid;
                const char *name, *home, *shell;
        } cases[] = {
                {"root", 0, 0, 0, "root", "/root", "/bin/bash"},   {"0", 0, 0, 0, "root", "/root", "/bin/bash"},
                {"agent", 0, 1000, 1001, "agent", "/home/agent", "/bin/zsh"},
                {"1000", 0, 1000, 1001, "agent", "/home/agent", "/bin/zsh"},
                {"bare", 0, 1002, 1002, "bare", "/", "/bin/sh"},   {"77", 1, 77, 77, "77", "/", "/bin/sh"},
                {"short", -ENOENT}, {"long", -ENOENT}, {"neg", -ENOENT}, {"max", -ENOENT}, {"huge", -ENOENT}, {"", -ENOENT},
                {"4294967295", -ENOENT}, {"99999999999", -ENOENT}, {"-1", -ENOENT}, {"agen", -ENOENT}, {"agent:x", -ENOENT},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(user_done) User user = {0};
                int r = user_parse_passwd(passwd, cases[i].who, &user);
                if (r != cases[i].r)
                        fail_msg("\"%s\" gives %d", cases[i].who, r);
                if (r < 0)
                        continue;
                assert_int_equal(user.uid, cases[i].uid);
                assert_int_equal(user.gid, cases[i].gid);
                assert_string_equal(user.name, cases[i].name);
                assert_string_equal(user.home, cases[i].home);
                assert_string_equal(user.shell, cases[i].shell);
        }
}

static void test_group(void **state) {
        User user = {.name = (char *) "agent", .gid = 1001};

        user_parse_group("a:x:1:agent\nb:x:2:other,agent\nc:x:3:agents,agen\nd:x:4:\ne:x:5:agent,\nf:x:bad:agent\ng:x:1001:agent\nh:x:6", &user);
        assert_int_equal(user.n_groups, 4);
        assert_int_equal(user.groups[0], 1001);
        assert_int_equal(user.groups[1], 1);
        assert_int_equal(user.groups[2], 2);
        assert_int_equal(user.groups[3], 5);
        user.n_groups = 0;
        char *many = NULL;
        for (int i = 0; i < 500; i++) {
                char *grown = NULL;
                assert_true(asprintf(&grown, "%sg%d:x:%d:agent\n", many ?: "", i, 5000 + i) > 0);
                free(many);
                many = grown;
        }
        user_parse_group(many, &user);
        assert_int_equal(user.n_groups, USER_GROUPS_MAX);
        free(many);
}

static void test_names(void **state) {
        static const struct {
                UserNamesFile file;
                uint32_t id;
                const char *name;
        } cases[] = {
                {USER_NAMES_PASSWD, 0, "root"}, {USER_NAMES_PASSWD, 1, "one"}, {USER_NAMES_PASSWD, 2, NULL}, {USER_NAMES_PASSWD, 3, NULL},
                {USER_NAMES_PASSWD, 9, NULL},   {USER_NAMES_GROUP, 4, "four"}, {USER_NAMES_GROUP, 0, NULL},
        };
        static const char users[] = "root:x:0:0::/:/bin/sh\nbroken:x:1\none:x:1:1::/:\nsecond:x:1:1::/:\nt\033o:x:2:2::/:\n:x:3:3::/:\n";
        static const char some[] = "four:x:4:\nroot:x:0:0::/:/bin/sh\n";
        char name[USER_NAME_MAX + 1];
        UserNames names = {0};

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                bool found = user_parse_name(cases[i].file == USER_NAMES_PASSWD ? users : some, cases[i].file, cases[i].id, name);
                assert_int_equal(found, cases[i].name != NULL);
                if (found)
                        assert_string_equal(name, cases[i].name);
        }
        assert_string_equal(user_names_find(&names, USER_NAMES_PASSWD, 0), "");
        names.text[USER_NAMES_PASSWD] = strdup(users);
        assert_string_equal(user_names_find(&names, USER_NAMES_PASSWD, 1), "one");
        assert_string_equal(user_names_find(&names, USER_NAMES_PASSWD, 2), "");
        assert_string_equal(user_names_find(&names, USER_NAMES_PASSWD, 0), "root");
        user_names_done(&names);
}

static void test_user_files(void **state) {
        char dir[] = "/tmp/hostd-user.XXXXXX";
        _cleanup_close_ int fd = -EBADF;
        _cleanup_(user_done) User user = {0};
        char *big = malloc(2 << 20);

        assert_non_null(mkdtemp(dir));
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(user_load(dir, "", &user), 1); // no files: root all the same
        assert_int_equal(user.uid, 0);
        user_done(&user);
        assert_int_equal(io_write_atomic(fd, "passwd", passwd, strlen(passwd), 0644), 0);
        assert_int_equal(user_load(dir, "agent", &user), 0);
        assert_int_equal(user.n_groups, 1);
        user_done(&user);
        assert_int_equal(unlinkat(fd, "passwd", 0), 0);
        assert_int_equal(symlinkat("/etc/passwd", fd, "passwd"), 0);
        assert_int_equal(user_load(dir, "agent", &user), -ELOOP);
        assert_int_equal(user_load(dir, "", &user), 1); // the repair needs root
        assert_int_equal(user.uid, 0);
        user_done(&user);
        assert_int_equal(unlinkat(fd, "passwd", 0), 0);
        assert_int_equal(mkfifoat(fd, "passwd", 0644), 0);
        assert_int_equal(user_load(dir, "agent", &user), -EBADF);
        assert_int_equal(unlinkat(fd, "passwd", 0), 0);
        memset(big, 'a', 2 << 20);
        assert_int_equal(io_write_atomic(fd, "passwd", big, 2 << 20, 0644), 0);
        assert_int_equal(user_load(dir, "agent", &user), -EFBIG);
        free(big);
        assert_int_equal(io_remove_tree(AT_FDCWD, dir), 0);
}

static void test_env(void **state) {
        User user = {.name = (char *) "agent", .home = (char *) "/h", .shell = (char *) "/bin/zsh"};
        char *given[] = {"HOME=/other", "X=1", "X=2", "novalue", "E=", NULL}, *none[] = {NULL};
        Request request = {.env = given, .header.flags = GUEST_FLAG_TTY};
        char *expected[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/other", "USER=agent", "LOGNAME=agent",
                            "SHELL=/bin/zsh", "LANG=C.UTF-8", "TERM=xterm-256color", "X=2", "E=", NULL};
        char **env = NULL;

        assert_int_equal(login_env(&user, &request, NULL, &env), 0);
        assert_true(strv_equal(env, expected));
        strv_free(env);
        request = (Request) {.env = none};
        assert_int_equal(login_env(&user, &request, NULL, &env), 0);
        assert_int_equal(strv_length(env), 6);
        strv_free(env);
}

static void put(char *bytes, size_t *n, GuestFileKind kind, const char *name, const char *data) {
        GuestFile file = {.magic = GUEST_FILE_MAGIC, .kind = kind, .size = (uint32_t) strlen(data)};

        memcpy(file.name, name, strlen(name));
        memcpy(bytes + *n, &file, sizeof(file));
        memcpy(bytes + *n + sizeof(file), data, file.size);
        *n += sizeof(file) + file.size;
}

static void test_deliver_check(void **state) {
        static const char *const bad[] = {"", "a/b", "..", "A", "a b", "a.b", "abcdefghijklmnopqrstuvwxyz0123456"};
        char bytes[1024];
        size_t n = 0;

        put(bytes, &n, GUEST_FILE_AUTHORITY, "", "pem");
        put(bytes, &n, GUEST_FILE_SECRET, "abcdefghijklmnopqrstuvwxyz012345", "value");
        put(bytes, &n, GUEST_FILE_END, "", "");
        assert_int_equal(deliver_check(bytes, n), 0);
        for (size_t i = 0; i < n; i++)
                assert_int_equal(deliver_check(bytes, i), -EBADMSG);
        bytes[n] = 0;
        assert_int_equal(deliver_check(bytes, n + 1), -EBADMSG);
        for (size_t i = 0; i < ELEMENTS(bad); i++) {
                n = 0;
                put(bytes, &n, GUEST_FILE_SECRET, bad[i], "value");
                put(bytes, &n, GUEST_FILE_END, "", "");
                assert_int_equal(deliver_check(bytes, n), -EBADMSG);
        }
        n = 0;
        put(bytes, &n, 4, "", "");
        assert_int_equal(deliver_check(bytes, n), -EBADMSG);
        n = 0;
        put(bytes, &n, GUEST_FILE_END, "", "");
        bytes[0]++;
        assert_int_equal(deliver_check(bytes, n), -EBADMSG);
}

static void file_is(int root, const char *path, const char *text) {
        _cleanup_free_ char *found = NULL;

        assert_int_equal(io_read_file(root, path, 65536, &found, NULL), 0);
        assert_string_equal(found, text);
}

static void test_deliver_authority(void **state) {
        static const char *const ours[] = {"run/hostd/ca.crt", "run/hostd/ca-bundle.crt", "run/hostd/environment", "run/hostd/profile.sh", "etc/profile.d/hostd.sh",
                                           "run/systemd/user.conf.d/hostd.conf"};
        char dir[] = "/tmp/hostd-test-deliver.XXXXXX", script[256];
        _cleanup_close_ int root = -EBADF;
        _cleanup_free_ char *output = NULL, *text = NULL;

        assert_non_null(mkdtemp(dir));
        root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(io_mkdir_p(root, "etc/ssl/certs", 0755), 0);
        assert_int_equal(io_mkdir_p(root, "etc/profile.d", 0755), 0);
        assert_int_equal(io_mkdir_p(root, "run/systemd/system", 0755), 0);
        assert_int_equal(io_write_atomic(root, "etc/ssl/certs/ca-certificates.crt", "theirs", 6, 0644), 0);
        for (int i = 0; i < 2; i++) { // again is the same
                assert_int_equal(deliver_authority(root, "ours\n", 5, NULL), 0);
                file_is(root, ours[0], "ours\n");
                file_is(root, ours[1], "theirs\nours\n");
        }
        // One word for each variable, for whatever reads them.
        snprintf(script, sizeof(script), "set -a; . %s/run/hostd/environment; echo $PIP_CERT $NODE_EXTRA_CA_CERTS; grep -c ^export.*=/run/hostd/ %s/run/hostd/profile.sh", dir, dir);
        char *argv[] = {"/bin/sh", "-c", script, NULL};
        assert_int_equal(process_run(argv, &output, NULL), 0);
        assert_string_equal(output, "/run/hostd/ca-bundle.crt /run/hostd/ca.crt\n8\n");
        assert_int_equal(io_read_file(root, ours[5], 65536, &text, NULL), 0);
        assert_int_equal(strncmp(text, "[Manager]\nDefaultEnvironment=SSL_CERT_FILE=/run/hostd/ca-bundle.crt CURL_CA_BUNDLE=", 83), 0);
        assert_int_equal(deliver_authority(root, NULL, 0, NULL), 0);
        for (size_t i = 0; i < ELEMENTS(ours); i++)
                assert_true(faccessat(root, ours[i], F_OK, AT_SYMLINK_NOFOLLOW) < 0);
        file_is(root, "etc/ssl/certs/ca-certificates.crt", "theirs");
        assert_int_equal(deliver_authority(root, NULL, 0, NULL), 0);
        assert_int_equal(io_remove_tree(AT_FDCWD, dir), 0);
}

static bool is_there(int root, const char *path) {
        return faccessat(root, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

// Settings for package clients; what somebody else wrote, or a link, is left alone, and what is ours goes with the policy.
static void test_packages(void **state) {
        char dir[] = "/tmp/hostd-test-packages.XXXXXX";
        _cleanup_close_ int root = -EBADF;
        _cleanup_free_ char *npm = NULL, *pip = NULL, *less = NULL;

        assert_non_null(mkdtemp(dir));
        root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(packages_apply(root, 0, NULL), 0);
        assert_false(is_there(root, "etc"));
        assert_int_equal(io_mkdir_p(root, "usr/etc", 0755), 0);
        assert_int_equal(io_mkdir_p(root, "usr/local/etc", 0755), 0);
        assert_int_equal(io_write_atomic(root, "usr/etc/npmrc", "mine\n", 5, 0644), 0);
        assert_int_equal(symlinkat("/nowhere/npmrc", root, "usr/local/etc/npmrc"), 0);
        assert_int_equal(packages_apply(root, GUEST_PACKAGES_LOCKED | GUEST_PACKAGES_NO_SCRIPTS, NULL), 0);
        assert_int_equal(packages_apply(root, GUEST_PACKAGES_LOCKED | GUEST_PACKAGES_NO_SCRIPTS, NULL), 0);
        assert_int_equal(io_read_file(root, "etc/npmrc", 4096, &npm, NULL), 0);
        assert_non_null(strstr(npm, "\nignore-scripts=true\n"));
        assert_int_equal(io_read_file(root, "etc/xdg/pip/pip.conf", 4096, &pip, NULL), 0);
        assert_non_null(strstr(pip, "\n[install]\nrequire-hashes = true\nonly-binary = :all:\n"));
        file_is(root, "usr/etc/npmrc", "mine\n");
        assert_int_equal(packages_apply(root, GUEST_PACKAGES_LOCKED, NULL), 0);
        assert_false(is_there(root, "etc/npmrc"));
        assert_int_equal(io_read_file(root, "etc/xdg/pip/pip.conf", 4096, &less, NULL), 0);
        assert_null(strstr(less, "only-binary"));
        assert_int_equal(packages_apply(root, 0, NULL), 0);
        assert_false(is_there(root, "etc/xdg/pip/pip.conf"));
        file_is(root, "usr/etc/npmrc", "mine\n");
        assert_true(is_there(root, "usr/local/etc/npmrc"));
        assert_int_equal(unlinkat(root, "usr/etc/npmrc", 0), 0);
        assert_int_equal(io_remove_tree(root, "usr/etc"), 0);
        assert_int_equal(symlinkat("npmrc", root, "usr/etc"), 0); // no directory
        assert_true(packages_apply(root, GUEST_PACKAGES_NO_SCRIPTS, NULL) < 0);
        assert_true(is_there(root, "etc/npmrc")); // the others are done all the same
        assert_int_equal(io_remove_tree(AT_FDCWD, dir), 0);
}

// What a client would make of a text.
static void test_packages_texts(void **state) {
        static const struct {
                const char *client, *setting, *text;
                PackagesFound found;
                bool profile;
        } cases[] = {
                {"npm", "ignore-scripts", "", PACKAGES_FOUND_NOTHING, false},
                {"npm", "ignore-scripts", "ignore-scripts=true", PACKAGES_FOUND_SAME, false},
                {"npm", "ignore-scripts", " ignore_scripts = \"true\" \r\n", PACKAGES_FOUND_SAME, false},
                {"npm", "ignore-scripts", "ignore-scripts\n", PACKAGES_FOUND_SAME, false},
                {"npm", "ignore-scripts", "ignore-scripts=\n", PACKAGES_FOUND_OTHER, false},
                {"npm", "ignore-scripts", "ignore-scripts=true\nignore-scripts=false\n", PACKAGES_FOUND_OTHER, false},
                {"npm", "ignore-scripts", "ignore-scripts=false\nignore-scripts=true\n", PACKAGES_FOUND_SAME, false},
                {"npm", "ignore-scripts", "#ignore-scripts=false\n; ignore-scripts=false\nregistry=x\n", PACKAGES_FOUND_NOTHING, false},
                {"npm", "ignore-scripts", "globalconfig=/tmp/x\n", PACKAGES_FOUND_OTHER, false},
                {"npm", "ignore-scripts", "//host/:_authToken=ignore-scripts=false\n", PACKAGES_FOUND_NOTHING, false},
                {"pip", "require-hashes", "[global]\nrequire-hashes = no\n", PACKAGES_FOUND_NOTHING, false}, // a command's own section goes before it
                {"pip", "require-hashes", "[install]\nrequire_hashes: no\n", PACKAGES_FOUND_OTHER, false},
                {"pip", "require-hashes", "[Install]\nrequire-hashes = True\n[download]\nrequire-hashes = no\n", PACKAGES_FOUND_SAME, false},
                {"pip", "require-hashes", "require-hashes = no\n", PACKAGES_FOUND_NOTHING, false},
                {"pip", "only-binary", "[install]\nno-binary =\n  one\n", PACKAGES_FOUND_OTHER, false},
                {"pip", "only-binary", "[install]\nonly-binary = one\n", PACKAGES_FOUND_OTHER, false},
                {"pip", "only-binary", "[install]\nonly-binary = :all:\n", PACKAGES_FOUND_SAME, false},
                {"npm", "ignore-scripts", "export npm_config_ignore_scripts=false\n", PACKAGES_FOUND_OTHER, true},
                {"npm", "ignore-scripts", "NPM_CONFIG_IGNORE_SCRIPTS='true'; export X\n", PACKAGES_FOUND_SAME, true},
                {"npm", "ignore-scripts", "npm_config_ignore_scripts=\n", PACKAGES_FOUND_NOTHING, true},
                {"npm", "ignore-scripts", "# export npm_config_ignore_scripts=false\necho npm_config_ignore_scripts\n", PACKAGES_FOUND_NOTHING, true},
                {"npm", "ignore-scripts", "my_npm_config_ignore_scripts=false\nnpm_config_ignore_scripts_=false\n", PACKAGES_FOUND_NOTHING, true},
                {"npm", "ignore-scripts", "set -gx npm_config_ignore_scripts false\n", PACKAGES_FOUND_OTHER, true},
                {"npm", "ignore-scripts", "A=1 npm_config_userconfig=/tmp/x B=2\n", PACKAGES_FOUND_OTHER, true},
                {"pip", "require-hashes", "PIP_CONFIG_FILE=/dev/null\n", PACKAGES_FOUND_OTHER, true},
                {"pip", "require-hashes", "PIP_NO_BINARY=:all:\n", PACKAGES_FOUND_NOTHING, true},
                {"pip", "only-binary", "  export PIP_NO_BINARY=:all:\n", PACKAGES_FOUND_OTHER, true},
                {"pip", "only-binary", "PIP_ONLY_BINARY=:none:\nPIP_ONLY_BINARY=:all:\n", PACKAGES_FOUND_SAME, true},
        };

        assert_null(packages_setting("npm", "x"));
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                const PackagesSetting *s = packages_setting(cases[i].client, cases[i].setting);
                assert_non_null(s);
                PackagesFound found = (cases[i].profile ? packages_found_in_profile : packages_found_in_file)(s, cases[i].text);
                if (found != cases[i].found)
                        fail_msg("%s %s: %d, not %d, in\n%s", cases[i].client, cases[i].setting, found, cases[i].found, cases[i].text);
        }
}

static int say_row(const GuestPackage *row, void *userdata) {
        assert_int_equal(row->magic, GUEST_PACKAGE_MAGIC);
        assert_string_equal(row->user, "agent");
        fprintf(userdata, "%s %s %u %s\n", row->client, row->setting, row->claim, row->file);
        return 0;
}

static void claims_are(int root, const char *npm, const char *hashes, const char *binary) {
        _cleanup_free_ char *said = NULL, *wanted = NULL;
        size_t size;
        FILE *f = open_memstream(&said, &size);

        assert_int_equal(packages_check(root, "agent", "/home/agent", say_row, f), 0);
        assert_int_equal(fclose(f), 0);
        assert_true(asprintf(&wanted, "npm ignore-scripts %s\npip require-hashes %s\npip only-binary %s\napt  %d \ncargo  %d \ngo  %d \n", npm, hashes, binary, GUEST_PACKAGE_NO_SETTING,
                             GUEST_PACKAGE_NOT_INSTALLED, GUEST_PACKAGE_NOT_INSTALLED) > 0);
        assert_string_equal(said, wanted);
}

static void put_file(int root, const char *folder, const char *name, const char *text) {
        _cleanup_close_ int dir = -EBADF;

        assert_int_equal(io_mkdir_p(root, folder, 0755), 0);
        dir = openat(root, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(io_write_atomic(dir, name, text, strlen(text), 0755), 0);
}

#define IN_PIP "0 /etc/xdg/pip/pip.conf"

// Which file decides, for clients that are there.
static void test_packages_check(void **state) {
        char dir[] = "/tmp/hostd-test-packages.XXXXXX";
        _cleanup_close_ int root = -EBADF;

        assert_non_null(mkdtemp(dir));
        root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        put_file(root, "usr/bin", "apt-get", "");
        claims_are(root, "2 ", "2 ", "2 "); // not installed
        put_file(root, "home/agent/.local/bin", "npm", "");
        put_file(root, "usr/bin", "pip3", "");
        claims_are(root, "3 /etc/npmrc", "3 /etc/xdg/pip/pip.conf", "3 /etc/xdg/pip/pip.conf"); // missing
        assert_int_equal(packages_apply(root, GUEST_PACKAGES_LOCKED | GUEST_PACKAGES_NO_SCRIPTS, NULL), 0);
        claims_are(root, "0 /etc/npmrc", IN_PIP, IN_PIP);
        put_file(root, "home/agent", ".npmrc", "ignore-scripts=false\n");
        put_file(root, "home/agent/.config/pip", "pip.conf", "[install]\nno-binary = one\n");
        claims_are(root, "5 /home/agent/.npmrc", IN_PIP, "5 /home/agent/.config/pip/pip.conf");
        put_file(root, "etc/profile.d", "a.sh", "export npm_config_ignore_scripts=false\nexport PIP_CONFIG_FILE=/x\n");
        put_file(root, "etc/profile.d", "b.sh", "export npm_config_ignore_scripts=true\n");
        claims_are(root, "0 /etc/profile.d/b.sh", "5 /etc/profile.d/a.sh", "5 /etc/profile.d/a.sh");
        assert_int_equal(io_remove_tree(root, "etc/profile.d"), 0);
        put_file(root, "usr/local/etc", "npmrc", "registry=x\n"); // somebody else's, and nothing of it in there
        put_file(root, "home/agent", ".npmrc", "");
        claims_are(root, "3 /usr/local/etc/npmrc", IN_PIP, "5 /home/agent/.config/pip/pip.conf");
        assert_int_equal(unlinkat(root, "home/agent/.npmrc", 0), 0);
        assert_int_equal(mkfifoat(root, "home/agent/.npmrc", 0644), 0); // nobody waits for it
        claims_are(root, "4 /home/agent/.npmrc", IN_PIP, "5 /home/agent/.config/pip/pip.conf");
        assert_int_equal(io_remove_tree(AT_FDCWD, dir), 0);
}

static void test_quote(void **state) {
        static const char *const words[] = {"", "plain", "it's", "''", "$(id) `id` $HOME", "a\nb", "\\", "\"", "*", "!x", "-n", "\xc3\xa4", ";|&<>"};

        for (size_t i = 0; i < ELEMENTS(words); i++) {
                _cleanup_free_ char *quoted = login_quote(words[i]), *script = NULL, *output = NULL;
                assert_true(asprintf(&script, "printf %%s %s", quoted) > 0);
                char *argv[] = {"/bin/sh", "-c", script, NULL};
                assert_int_equal(process_run(argv, &output, NULL), 0);
                assert_string_equal(output, words[i]);
        }
}

static void test_login_argv(void **state) {
        User user = {.name = (char *) "agent", .home = (char *) "/h", .shell = (char *) "/bin/bash"};
        char *none[] = {NULL}, *words[] = {"echo", "it's", NULL}, *env[] = {"A=b c", NULL};
        Request request = {.argv = none, .env = none, .cwd = ""};
        char *plain[] = {"/bin/su", "-l", "--", "agent", NULL};
        char *full[] = {"/bin/su", "-l", "--session-command=export A='b c'; cd -- '/d' || exit 126; exec 'echo' 'it'\\''s'", "--", "agent", NULL};
        char *shell[] = {"/bin/su", "-l", "--shell=/bin/sh", "--session-command=cd -- '/d' || exit 126; exec '/usr/bin/fish' -l", "--", "agent", NULL};
        char **argv = NULL;

        assert_int_equal(login_argv(&user, &request, &argv), 0);
        assert_true(strv_equal(argv, plain));
        strv_free(argv);
        request = (Request) {.argv = words, .env = env, .cwd = "/d"};
        assert_int_equal(login_argv(&user, &request, &argv), 0);
        assert_true(strv_equal(argv, full));
        strv_free(argv);
        user.shell = (char *) "/usr/bin/fish";
        request = (Request) {.argv = none, .env = none, .cwd = "/d"};
        assert_int_equal(login_argv(&user, &request, &argv), 0);
        assert_true(strv_equal(argv, shell));
        strv_free(argv);
}

// The last fifty lines, the oldest first; of anything but a line of printable characters nothing is taken.
static void test_denied(void **state) {
        static DeniedList list;
        char dir[] = "test_guest.XXXXXX", here[512], path[600], text[GUEST_DENIED_TEXT + 8];
        _cleanup_free_ char *read = NULL;

        assert_non_null(mkdtemp(dir));
        assert_non_null(getcwd(here, sizeof(here)));
        (void) snprintf(path, sizeof(path), "%s/%s/new/denied", here, dir);
        for (int i = 0; i < 53; i++) {
                int n = snprintf(text, sizeof(text), "line %d", i);
                denied_add(&list, text, (size_t) n);
        }
        list.due = false;
        denied_add(&list, "a\x1b[31m", 6);
        denied_add(&list, "two\nlines", 9);
        denied_add(&list, "", 0);
        memset(text, 'x', sizeof(text));
        denied_add(&list, text, sizeof(text)); // too long
        assert_false(list.due);
        if (strlen(path) < 250) { // longer than any place of the file's
                assert_int_equal(denied_write(&list, path), 0);
                assert_int_equal(denied_write(&list, path), 0); // over the old one
                assert_int_equal(io_read_file(AT_FDCWD, path, 65536, &read, NULL), 0);
                assert_memory_equal(read, "line 3\nline 4\n", 14);
                assert_string_equal(read + strlen(read) - 16, "line 51\nline 52\n");
        }
        list.writer = 7;
        assert_false(denied_reaped(&list, 8));
        assert_true(denied_reaped(&list, 7));
        assert_false(denied_reaped(&list, 7));
        assert_int_equal(io_remove_tree(AT_FDCWD, dir), 0);
}

static void test_group_id(void **state) {
        static const char text[] = "root:x:0:\nbad:x:nine:\nusers:x:100:agent\n100:x:7:\nshort:x:1\n:x:2:\n";
        static const struct {
                const char *who;
                int r;
                gid_t gid;
        } cases[] = {{"root", 0, 0}, {"users", 0, 100}, {"bad", -ENOENT, 0}, {"short", -ENOENT, 0}, {"none", -ENOENT, 0}, {"5", 0, 5}, {"100", 0, 7}, {"", -ENOENT, 0}, {"4294967295", -ENOENT, 0}};

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                gid_t gid = 0;
                assert_int_equal(user_parse_group_id(text, cases[i].who, &gid), cases[i].r);
                assert_int_equal(gid, cases[i].gid);
        }
}

static void test_subids(void **state) {
        static const struct {
                const char *text;
                uint32_t least, expected; // 0: none
        } cases[] = {
                {"agent:100000:65536\n", 65535, 100000},
                {"root:1:5\nagent:100000:65536", 65535, 100000},
                {"1000:200000:65536\n", 65535, 200000},
                {"agent:100000:100\nagent:300000:65536\n", 65535, 300000},
                {"agent:100000:65534\n", 65535, 0},
                {"agents:100000:65536\nagen:1:99999\n", 65535, 0},
                {"agent:500:65536\n", 65535, 0}, // with the user's own among them
                {"agent:100000:65536:x\nagent:0:70000\nagent:4294967295:65536\n", 65536, 100000},
                {"agent:-5:65536\nagent:1e5:65536\nagent::65536\nagent:100000:\nagent\n::\n\n", 1, 0},
                {"agent:100000:99999999999999999999\n", 1, 0},
                {"", 1, 0},
        };
        const User user = {.name = (char *) "agent", .uid = 1000};

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                uint32_t first = 0;
                int r = user_parse_subids(cases[i].text, &user, cases[i].least, &first);
                if (r != (cases[i].expected ? 0 : -ENOENT) || first != cases[i].expected)
                        fail_msg("case %zu: %d, %u", i, r, first);
        }
}

static void test_listen_line(void **state) {
        static const struct {
                const char *line;
                unsigned port;
                bool listens;
        } cases[] = {
                {"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0000000000000000 100 0 0 10 0\n", 8080, true},
                {"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0000000000000000 100 0 0 10 0\n", 8081, false},
                {"1234: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000\n", 80, true},
                {"  12: 0100007F:1F90 0100007F:A0F2 01 00000000:00000000 00:00000000\n", 8080, false},
                {"  12: 0100007F:A0F2 0100007F:1F90 0A 00000000:00000000 00:00000000\n", 8080, false},
                {"   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000\n", 8080, true},
                {"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n", 0, false},
                {"", 0, false},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++)
                if (listen_line(cases[i].line, cases[i].port) != cases[i].listens)
                        fail_msg("%u: %s", cases[i].port, cases[i].line);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_deliver_check), cmocka_unit_test(test_deliver_authority), cmocka_unit_test(test_packages), cmocka_unit_test(test_denied), cmocka_unit_test(test_decode),     cmocka_unit_test(test_group_id), cmocka_unit_test(test_request), cmocka_unit_test(test_passwd),
                cmocka_unit_test(test_subids), cmocka_unit_test(test_group),      cmocka_unit_test(test_user_files), cmocka_unit_test(test_env),
                cmocka_unit_test(test_quote),      cmocka_unit_test(test_login_argv), cmocka_unit_test(test_names),
                cmocka_unit_test(test_packages_texts), cmocka_unit_test(test_packages_check), cmocka_unit_test(test_listen_line),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
