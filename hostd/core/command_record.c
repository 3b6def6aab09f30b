// SPDX-License-Identifier: GPL-2.0-or-later
// CommandRecord: how an end is told to people. The sentences are made from numbers and from the operator's own words, never from
// text of the guest.
#include "core/command_internal.h"

#include <string.h>
#include <sys/wait.h>

#include "base/valid.h"

void command_record_done(CommandRecord *record) {
        free(record->message);
        *record = (CommandRecord) {.exit = -1};
}

void command_record_exit(CommandRecord *record, int wait_status) {
        record->exit = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
        record->signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
}

static const char *const command_file_words[_GUEST_VERB_MAX] = {
        [GUEST_PACKAGES] = "look at",
        [GUEST_WRITE] = "write", [GUEST_READ] = "read", [GUEST_LIST] = "list", [GUEST_REMOVE] = "remove",
        [GUEST_STAT] = "look at", [GUEST_SEARCH] = "search", [GUEST_REPLACE] = "replace text in", [GUEST_MOVE] = "move",
        [GUEST_MKDIR] = "make", [GUEST_CHMOD] = "change the mode of", [GUEST_CHOWN] = "give away", [GUEST_WATCH] = "watch",
        [GUEST_LISTENS] = "look into", [GUEST_DELIVER] = "write", [GUEST_ADOPT] = "have certificates taken up from"};

static char *command_failure(const Command *command, GuestStage stage, int errnum) {
        const char *why = strerror(errnum), *word = command_file_words[command->verb];
        char *text = NULL;
        int n = -1;

        if (stage == GUEST_STAGE_USER && errnum == ENOENT)
                n = asprintf(&text, "there is no user \"%s\" in the instance", command->user);
        else if (stage == GUEST_STAGE_USER)
                n = asprintf(&text, "cannot become user \"%s\": %s", command->user, why);
        else if (stage == GUEST_STAGE_CWD)
                n = asprintf(&text, "cannot enter the working directory %s: %s", command->place, why);
        else if (stage == GUEST_STAGE_EXEC && errnum == ENOENT && command->verb == GUEST_LOGIN)
                n = asprintf(&text, "the instance has no /bin/su, which a login needs");
        else if (stage == GUEST_STAGE_EXEC && errnum == ENOENT)
                n = asprintf(&text, "command not found: %s", command->word);
        else if (stage == GUEST_STAGE_EXEC)
                n = asprintf(&text, "cannot run %s: %s", command->word, why);
        else if (stage == GUEST_STAGE_FILE || stage == GUEST_STAGE_TARGET)
                n = asprintf(&text, "cannot %s %s: %s", word ?: "use", command->place, why);
        else if (errnum == ESRCH)
                n = asprintf(&text, "the command was killed before it began, as when the instance is stopping");
        else
                n = asprintf(&text, "the instance could not start the command: %s", why);
        return n < 0 ? NULL : text;
}

void command_record_failed(CommandRecord *record, const Command *command, GuestStage stage, int errnum) {
        record->stage = stage;
        record->errnum = errnum;
        record->exit = stage == GUEST_STAGE_EXEC && errnum == ENOENT ? 127 : stage == GUEST_STAGE_FILE || stage == GUEST_STAGE_TARGET ? 1 : 126;
        record->message = command_failure(command, stage, errnum);
}

static char *command_printable(const char *text) {
        char *out = valid_printable(text);

        for (char *p = out; p && *p; p++)
                if (*p == '\t' || *p == '\n')
                        *p = ' ';
        return out;
}

char *command_summary(char *const *argv) {
        char line[121];
        size_t used = 0;

        line[0] = 0;
        for (; argv && *argv && used < sizeof(line) - 1; argv++) {
                int n = snprintf(line + used, sizeof(line) - used, "%s%s", used ? " " : "", *argv);
                used = n < 0 ? sizeof(line) - 1 : MIN2(used + (size_t) n, sizeof(line) - 1);
        }
        // A character that was cut in half goes whole.
        while (used > 0 && !valid_utf8(line, strlen(line)))
                line[--used] = 0;
        return command_printable(line);
}

int command_describe(Command *command, const CommandRequest *request) {
        const GuestRequest *g = &request->guest;

        command->verb = g->verb;
        command->instance = command_printable(request->instance);
        command->caller = command_printable(request->caller ?: "");
        command->user = command_printable(g->user && *g->user ? g->user : "root");
        command->text = g->verb == GUEST_RUN || g->verb == GUEST_LOGIN ? command_summary(g->argv)
                                                                       : command_printable(g->path ?: "");
        command->word = command_printable(g->argv && g->argv[0] ? g->argv[0] : "");
        command->place = command_printable(g->path && *g->path ? g->path : g->cwd ?: "");
        return command->instance && command->caller && command->user && command->text && command->word && command->place ? 0 : -ENOMEM;
}
