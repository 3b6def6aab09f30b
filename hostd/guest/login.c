// SPDX-License-Identifier: GPL-2.0-or-later
// Login: see login.h. su and not an own PAM client: this program is static, and the guest's PAM modules are the guest's code.
#include "guest/login.h"

#include <stdbool.h>
#include <string.h>

#include "base/strv.h"

#define LOGIN_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static int login_put(char ***env, const char *assignment) {
        size_t n = strcspn(assignment, "=") + 1;

        for (char **v = *env; v && *v; v++)
                if (strncmp(*v, assignment, n) == 0) {
                        char *copy = strdup(assignment);
                        if (!copy)
                                return -ENOMEM;
                        free(*v);
                        *v = copy;
                        return 0;
                }
        return strv_append(env, assignment);
}

int login_env(const User *user, const Request *request, const char *const *more, char ***ret) {
        _cleanup_strv_ char **env = NULL;
        int r = strv_append(&env, "PATH=" LOGIN_PATH);

        if (r >= 0)
                r = strv_append_format(&env, "HOME=%s", user->home);
        if (r >= 0)
                r = strv_append_format(&env, "USER=%s", user->name);
        if (r >= 0)
                r = strv_append_format(&env, "LOGNAME=%s", user->name);
        if (r >= 0)
                r = strv_append_format(&env, "SHELL=%s", user->shell);
        if (r >= 0)
                r = strv_append(&env, "LANG=C.UTF-8");
        if (r >= 0 && (request->header.flags & GUEST_FLAG_TTY))
                r = strv_append(&env, "TERM=xterm-256color");
        for (const char *const *v = more; r >= 0 && v && *v; v++)
                r = strv_append(&env, *v);
        for (char **v = request->env; r >= 0 && *v; v++)
                r = strchr(*v, '=') ? login_put(&env, *v) : 0;
        if (r < 0)
                return r;
        *ret = TAKE_PTR(env);
        return 0;
}

char *login_quote(const char *text) {
        char *out = malloc(strlen(text) * 4 + 3), *p = out;

        if (!out)
                return NULL;
        *p++ = '\'';
        for (; *text; text++) {
                if (*text == '\'')
                        p = stpcpy(p, "'\\''");
                else
                        *p++ = *text;
        }
        *p++ = '\'';
        *p = 0;
        return out;
}

static int login_word(char ***words, const char *prefix, const char *text, const char *suffix) {
        _cleanup_free_ char *quoted = login_quote(text);

        return quoted ? strv_append_format(words, "%s%s%s", prefix, quoted, suffix) : -ENOMEM;
}

// "export A='…'; cd -- '…' || exit 126; exec 'prog' 'arg'". su -l resets the environment, hence the exports.
static char *login_command(const User *user, const Request *request) {
        _cleanup_strv_ char **words = NULL;
        int r = 0;

        for (char **v = request->env; r >= 0 && *v; v++) {
                char *equals = strchr(*v, '=');
                _cleanup_free_ char *prefix = NULL;
                if (!equals)
                        continue;
                if (asprintf(&prefix, "export %.*s=", (int) (equals - *v), *v) < 0) {
                        prefix = NULL;
                        r = -ENOMEM;
                } else
                        r = login_word(&words, prefix, equals + 1, ";");
        }
        if (r >= 0 && *request->cwd)
                r = login_word(&words, "cd -- ", request->cwd, " || exit 126;");
        if (r >= 0)
                r = strv_append(&words, "exec");
        for (char **v = request->argv; r >= 0 && *v; v++)
                r = login_word(&words, "", *v, "");
        if (r >= 0 && !request->argv[0]) {
                r = login_word(&words, "", user->shell, "");
                if (r >= 0)
                        r = strv_append(&words, "-l");
        }
        return r < 0 ? NULL : strv_join(words, " ");
}

// Shells whose quoting is not that of sh. Others, nologin among them, stay what the user's line says.
static bool login_shell_is_foreign(const char *shell) {
        size_t n = strlen(shell);

        return (n >= 3 && strcmp(shell + n - 3, "csh") == 0) || (n >= 4 && strcmp(shell + n - 4, "fish") == 0);
}

int login_argv(const User *user, const Request *request, char ***ret) {
        _cleanup_strv_ char **argv = NULL;
        bool plain = !request->argv[0] && !request->env[0] && !*request->cwd;
        int r = strv_append(&argv, "/bin/su");

        if (r >= 0)
                r = strv_append(&argv, "-l");
        if (r >= 0 && !plain && login_shell_is_foreign(user->shell))
                r = strv_append(&argv, "--shell=/bin/sh");
        if (r >= 0 && !plain) {
                _cleanup_free_ char *command = login_command(user, request);
                // Not -c: that starts a session of its own, without the terminal that was made for this command. The reason for
                // doing so, keystrokes pushed into the caller's terminal, does not exist here: the terminal is this command's.
                r = command ? strv_append_format(&argv, "--session-command=%s", command) : -ENOMEM;
        }
        if (r >= 0)
                r = strv_append(&argv, "--");
        if (r >= 0)
                r = strv_append(&argv, user->name);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(argv);
        return 0;
}
