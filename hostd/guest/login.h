// SPDX-License-Identifier: GPL-2.0-or-later
// Login: the environment of a command, and the su command line that enters through the guest's PAM.
#pragma once

#include "guest/request.h"
#include "guest/user.h"

// Exactly PATH, HOME, USER, LOGNAME, SHELL, LANG (and TERM on a terminal), and `more` (NULL: nothing), replaced and completed by what was given.
int login_env(const User *user, const Request *request, const char *const *more, char ***ret);
// /bin/su -l … USER: a login shell, or the request's argv in one, quoted for it.
int login_argv(const User *user, const Request *request, char ***ret);
// In single quotes, as one word for sh. NULL on OOM.
char *login_quote(const char *text);
