// SPDX-License-Identifier: GPL-2.0-or-later
// Method: the table.
#include "api/method.h"

static const char *const choices_list[] = {"table", "json", "csv", NULL};
static const char *const choices_object[] = {"table", "json", NULL};
static const char *const choices_preset[] = {"small", "medium", "large", NULL};
// What a record of the audit log may say of a call (request.c, guest_link.c): a test holds it against the table of errors.
static const char *const choices_result[] = {"ok", "started", "ended", "Internal", "Invalid", "NotFound", "Exists", "Denied", "Quota",
                                             "Busy", "Conflict", "Unavailable", "Degraded", "Timeout", "Cancelled", NULL};
static const char *const choices_flow[] = {"dns", "tls", "http", "connect", "kernel", NULL};
static const char *const choices_protocol[] = {"tcp", "udp", "icmp", NULL};
static const char *const choices_exposed[] = {"tcp", "udp", NULL};

#define NAME_PARAM {"name", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_NAME, .meta = "NAME", .doc = "the instance"}
#define PLACE_PARAM {"name", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_NAME, .meta = "NAME", .doc = "the instance, or a sandbox by its id"}
#define NAMES_PARAM \
        {"name", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL | PARAM_MANY, VALID_NAME, .meta = "NAME", .doc = "the instance"}
#define FORMAT_PARAMS \
        {"format", 'f', PARAM_STRING, PARAM_LOCAL, VALID_NAME, .meta = "FORMAT", .doc = "table, json or csv", .choices = choices_list}, \
        {"columns", 'c', PARAM_STRING, PARAM_LOCAL, VALID_TEXT, .meta = "LIST", .doc = "columns to show, separated by commas"}
#define FORMAT_PARAM {"format", 'f', PARAM_STRING, PARAM_LOCAL, VALID_NAME, .meta = "FORMAT", .doc = "table or json", .choices = choices_object}
#define SETTINGS_PARAM \
        {"settings", 's', PARAM_PAIRS, 0, VALID_LABEL_VALUE, .meta = "KEY=VALUE", .doc = "a setting of hostd-instance.conf(5); may be repeated"}
#define ENTER_PARAMS \
        {"user", 'u', PARAM_STRING, 0, VALID_USER, .meta = "USER", .doc = "user inside (default root; in a sandbox the one that it is for)"}, \
        {"cwd", 'w', PARAM_STRING, 0, VALID_PATH, .meta = "DIR", .doc = "working directory (default the user's home; in a sandbox /workspace)"}, \
        {"env", 'e', PARAM_PAIRS, 0, VALID_ARGUMENT, .meta = "NAME=VALUE", .doc = "environment variable; may be repeated"}, \
        {"timeout", 't', PARAM_SPAN, 0, .meta = "SPAN", .doc = "kill the command after this time"}
#define COMMAND_PARAMS \
        ENTER_PARAMS, \
        {"tty", 'T', PARAM_BOOL, 0, .doc = "the descriptors are one pty; the command gets a terminal of its own that is joined to it"}
#define END {NULL}

static const Param params_none[] = {END};
static const Param params_name[] = {NAME_PARAM, END};
static const Param params_object[] = {FORMAT_PARAM, END};
static const Param params_named_object[] = {NAME_PARAM, FORMAT_PARAM, END};
static const Param params_instance_list[] = {NAME_PARAM, FORMAT_PARAMS, END};
static const Param params_names[] = {NAMES_PARAM, END};

static const Param params_create[] = {
        {"template", 0, PARAM_STRING, PARAM_POSITIONAL | PARAM_REQUIRED, VALID_TEMPLATE, .meta = "TEMPLATE", .doc = "template name or digest"},
        {"name", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL | PARAM_MANY | PARAM_NEW, VALID_NAME, .meta = "NAME", .doc = "the instance"},
        {"preset", 'p', PARAM_STRING, 0, VALID_NAME, .meta = "PRESET", .doc = "small, medium or large", .choices = choices_preset},
        {"description", 'd', PARAM_STRING, 0, VALID_TEXT, .meta = "TEXT", .doc = "what the instance is for"},
        SETTINGS_PARAM,
        {"labels", 'l', PARAM_PAIRS, 0, VALID_LABEL_VALUE, .meta = "KEY=VALUE", .doc = "a label; may be repeated"},
        END,
};
static const Param params_stop[] = {
        NAMES_PARAM,
        {"force", 'F', PARAM_BOOL, 0, .doc = "kill at once instead of asking the guest to shut down"},
        {"timeout", 't', PARAM_SPAN, 0, .meta = "SPAN", .doc = "how long to wait before killing (default: stop_timeout)"},
        END,
};
static const Param params_delete[] = {
        NAMES_PARAM,
        {"force", 'F', PARAM_BOOL, 0, .doc = "also when it is running"},
        END,
};
static const Param params_rebuild[] = {
        NAMES_PARAM,
        {"template", 0, PARAM_STRING, 0, VALID_TEMPLATE, .meta = "TEMPLATE", .doc = "another template (default: the newest of the same name)"},
        {"force", 'F', PARAM_BOOL, 0, .doc = "stop it first when it is running"},
        END,
};
static const Param params_list[] = {FORMAT_PARAMS, END};
static const Param params_show[] = {
        NAMES_PARAM,
        {"expanded", 0, PARAM_BOOL, 0, .doc = "every setting with where its value comes from"},
        FORMAT_PARAM,
        END,
};
static const Param params_set[] = {
        NAME_PARAM,
        {"settings", 0, PARAM_PAIRS, PARAM_REQUIRED | PARAM_POSITIONAL | PARAM_REST, VALID_LABEL_VALUE, .meta = "KEY=VALUE", .doc = "settings to change"},
        {"force", 'F', PARAM_BOOL, 0, .doc = "also lower memory below what is in use"},
        END,
};
static const Param params_unset[] = {
        NAME_PARAM,
        {"keys", 0, PARAM_STRINGS, PARAM_REQUIRED | PARAM_POSITIONAL | PARAM_REST, VALID_LABEL_KEY, .meta = "KEY", .doc = "settings to put back to preset or default"},
        END,
};
static const Param params_label[] = {
        NAME_PARAM,
        {"labels", 0, PARAM_PAIRS, PARAM_REQUIRED | PARAM_POSITIONAL | PARAM_REST, VALID_LABEL_VALUE, .meta = "KEY=VALUE", .doc = "labels to set; an empty value removes one"},
        END,
};
static const Param params_log[] = {
        NAME_PARAM,
        {"lines", 'n', PARAM_INT, 0, .min = 1, .max = 100000, .meta = "N", .doc = "only the last lines (default 1000)"},
        END,
};
static const Param params_diff[] = {
        NAME_PARAM,
        {"format", 'f', PARAM_STRING, PARAM_LOCAL, VALID_NAME, .meta = "FORMAT", .doc = "table (one line each) or json", .choices = choices_object},
        END,
};
static const Param params_flows[] = {
        NAME_PARAM,
        {"denied", 'D', PARAM_BOOL, 0, .doc = "only what was denied"},
        {"since", 0, PARAM_SPAN, PARAM_SINCE, .min = 1, .max = INT64_MAX, .meta = "SPAN|TIME", .doc = "only this far back, or since then: 2h, 14:30, \"2026-01-31 14:30\""},
        {"kind", 'k', PARAM_STRING, 0, VALID_NAME, .meta = "KIND", .doc = "who says so: dns, tls, http, connect (resolver and proxy) or kernel", .choices = choices_flow},
        {"limit", 'n', PARAM_INT, 0, .min = 1, .max = 1000000, .meta = "N", .doc = "only the newest (default 1000)"},
        FORMAT_PARAMS,
        END,
};
static const Param params_why[] = {
        NAME_PARAM,
        {"since", 0, PARAM_SPAN, PARAM_SINCE, .min = 1, .max = INT64_MAX, .meta = "SPAN|TIME", .doc = "only this far back, or since then (default 1d)"},
        FORMAT_PARAMS,
        END,
};
static const Param params_exec[] = {
        PLACE_PARAM,
        {"command", 0, PARAM_STRINGS, PARAM_REQUIRED | PARAM_POSITIONAL | PARAM_REST, VALID_ARGUMENT, .meta = "COMMAND", .doc = "program and arguments"},
        COMMAND_PARAMS,
        {"login", 0, PARAM_BOOL, 0, .doc = "enter through the guest's PAM session"},
        {"detach", 'd', PARAM_BOOL, PARAM_LOCAL, .doc = "in the background: prints its id and does not wait (command start)"},
        END,
};
static const Param params_start_command[] = {
        PLACE_PARAM,
        {"command", 0, PARAM_STRINGS, PARAM_REQUIRED | PARAM_POSITIONAL | PARAM_REST, VALID_ARGUMENT, .meta = "COMMAND", .doc = "program and arguments"},
        ENTER_PARAMS,
        {"keep", 'k', PARAM_SIZE, 0, .min = 131072, .max = 67108864, .meta = "SIZE", .doc = "how much of its output may be kept, 128KiB to 64MiB (default 8MiB; in a sandbox 1MiB, and 16MiB at most)"},
        END,
};
static const Param params_logs[] = {
        PLACE_PARAM,
        {"id", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_ID, .meta = "ID", .doc = "the command"},
        {"follow", 'f', PARAM_BOOL, 0, .doc = "go on with what it is still to write, until it ends"},
        {"offset", 'o', PARAM_INT, 0, .meta = "N", .doc = "leave out the first N bytes that it wrote"},
        END,
};
static const Param params_shell[] = {NAME_PARAM, COMMAND_PARAMS, END};
static const Param params_command_id[] = {
        {"id", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_ID, .meta = "ID", .doc = "the command"},
        END,
};
static const Param params_command_signal[] = {
        {"id", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_ID, .meta = "ID", .doc = "the command"},
        {"signal", 0, PARAM_INT, PARAM_REQUIRED | PARAM_POSITIONAL, .min = 1, .max = 64, .meta = "SIGNAL", .doc = "signal number"},
        END,
};
static const Param params_sandbox_create[] = {
        NAME_PARAM,
        {"runtime", 0, PARAM_STRING, 0, VALID_NAME, .meta = "RUNTIME", .doc = "bwrap (the default)"},
        {"memory", 'm', PARAM_SIZE, 0, .min = 16 << 20, .max = INT64_MAX, .meta = "SIZE", .doc = "memory at most, and what is written with it (default 512MiB)"},
        {"pids", 'p', PARAM_INT, 0, .min = 4, .max = 4194304, .meta = "N", .doc = "processes and threads at most (default 128)"},
        {"cpu", 'C', PARAM_STRING, 0, VALID_LABEL_VALUE, .meta = "CPUS", .doc = "CPUs at most, for example 0.5 (default: its instance's)"},
        {"disk", 0, PARAM_SIZE, 0, .min = 1 << 20, .max = INT64_MAX, .meta = "SIZE", .doc = "written at most, all together (default: what its memory holds)"},
        {"open_files", 0, PARAM_INT, 0, .min = 16, .max = 1048576, .meta = "N", .doc = "open files of one process at most (default: its instance's)"},
        {"io_read", 0, PARAM_STRING, 0, VALID_LABEL_VALUE, .meta = "RATE", .doc = "bytes per second read from the disk, for example 10MiB (default: its instance's)"},
        {"io_write", 0, PARAM_STRING, 0, VALID_LABEL_VALUE, .meta = "RATE", .doc = "bytes per second written to the disk"},
        {"io_read_ops", 0, PARAM_STRING, 0, VALID_LABEL_VALUE, .meta = "N", .doc = "read operations per second"},
        {"io_write_ops", 0, PARAM_STRING, 0, VALID_LABEL_VALUE, .meta = "N", .doc = "write operations per second"},
        {"run_time", 0, PARAM_SPAN, 0, .min = 1000, .max = INT64_MAX / 4, .meta = "SPAN", .doc = "each command in it is killed after this time, or an earlier one of its own (default: none)"},
        {"deadline", 'd', PARAM_SPAN, 0, .min = 1000, .max = INT64_MAX / 4, .meta = "SPAN", .doc = "it ends after this time"},
        {"idle", 'i', PARAM_SPAN, 0, .min = 1000, .max = INT64_MAX / 4, .meta = "SPAN", .doc = "it ends when no command has run for this time"},
        {"grace", 0, PARAM_SPAN, 0, .min = 0, .max = INT64_MAX / 4, .meta = "SPAN", .doc = "how long its end can be asked for (default 10min)"},
        {"root", 'R', PARAM_BOOL, 0, .doc = "its commands are root of its own user namespace"},
        {"workspace", 'w', PARAM_STRING, 0, VALID_PATH, .meta = "DIR", .doc = "directory of the instance's user 1000 that is /workspace (default: a new one, which goes with it)"},
        {"labels", 'l', PARAM_PAIRS, 0, VALID_LABEL_VALUE, .meta = "KEY=VALUE", .doc = "a label; may be repeated"},
        {"key", 'k', PARAM_STRING, 0, VALID_LABEL_VALUE, .meta = "KEY", .doc = "the same sandbox is given to all that ask with the same key, while it lives"},
        {"entry", 0, PARAM_STRING, 0, VALID_ARGUMENT, .meta = "COMMAND", .doc = "a command for sh that is started with it and runs on, before any probe"},
        {"probe_command", 0, PARAM_STRING, 0, VALID_ARGUMENT, .meta = "COMMAND", .doc = "it is ready when this command for sh succeeds in it; until then nobody enters"},
        {"probe_port", 0, PARAM_INT, 0, .min = 1, .max = 65535, .meta = "PORT", .doc = "it is ready when something in it listens on this TCP port"},
        {"probe_timeout", 0, PARAM_SPAN, 0, .min = 1000, .max = INT64_MAX / 4, .meta = "SPAN", .doc = "it fails when the probe has not succeeded by then (default 30s)"},
        {"network", 'n', PARAM_STRING, 0, VALID_LABEL_VALUE, .meta = "NETWORK", .doc = "none (the default), instance (what its instance may), or policies with commas between them: what these and its instance allow"},
        {"write", 0, PARAM_STRING, 0, VALID_NAME, .meta = "HOW", .doc = "where writes go: tmpfs (the default)"},
        {"template", 0, PARAM_STRING, 0, VALID_TEMPLATE, .meta = "TEMPLATE", .doc = "another root than its instance's: not there yet, and refused"},
        END,
};
#define SANDBOX_PARAM {"id", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_ID, .meta = "ID", .doc = "the sandbox"}
static const Param params_sandbox[] = {SANDBOX_PARAM, END};
static const Param params_sandbox_object[] = {SANDBOX_PARAM, FORMAT_PARAM, END};
static const Param params_sandbox_list[] = {
        {"name", 0, PARAM_STRING, PARAM_POSITIONAL, VALID_NAME, .meta = "NAME", .doc = "only of this instance"},
        FORMAT_PARAMS,
        END,
};
static const Param params_sandbox_renew[] = {
        SANDBOX_PARAM,
        {"deadline", 'd', PARAM_SPAN, PARAM_REQUIRED | PARAM_POSITIONAL, .min = 1000, .max = INT64_MAX / 4, .meta = "SPAN", .doc = "it ends after this time, from now"},
        END,
};
static const Param params_sandbox_exec[] = {
        SANDBOX_PARAM,
        {"command", 0, PARAM_STRINGS, PARAM_REQUIRED | PARAM_POSITIONAL | PARAM_REST, VALID_ARGUMENT, .meta = "COMMAND", .doc = "program and arguments"},
        {"user", 'u', PARAM_STRING, 0, VALID_USER, .meta = "USER", .doc = "user inside (default: root if it was made with --root, else the instance's user 1000, and nobody else)"},
        {"cwd", 'w', PARAM_STRING, 0, VALID_PATH, .meta = "DIR", .doc = "working directory (default /workspace)"},
        {"env", 'e', PARAM_PAIRS, 0, VALID_ARGUMENT, .meta = "NAME=VALUE", .doc = "environment variable; may be repeated"},
        {"timeout", 't', PARAM_SPAN, 0, .meta = "SPAN", .doc = "kill the command after this time"},
        {"tty", 'T', PARAM_BOOL, 0, .doc = "the descriptors are one pty; the command gets a terminal of its own that is joined to it"},
        {"detach", 'd', PARAM_BOOL, PARAM_LOCAL, .doc = "in the background: prints its id and does not wait (command start)"},
        END,
};
static const Param params_command_list[] = {
        {"name", 0, PARAM_STRING, PARAM_POSITIONAL, VALID_NAME, .meta = "NAME", .doc = "only of this instance and its sandboxes, or of this sandbox"},
        FORMAT_PARAMS,
        END,
};
#define FILE_PARAMS \
        PLACE_PARAM, \
        {"path", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_PATH, .meta = "PATH", .doc = "path inside"}, \
        {"user", 'u', PARAM_STRING, 0, VALID_USER, .meta = "USER", .doc = "as which user (default root; in a sandbox the one that it is for)"}, \
        {"timeout", 't', PARAM_SPAN, 0, .meta = "SPAN", .doc = "give up after this time"}
#define OWNER_PARAMS \
        {"owner", 'o', PARAM_STRING, 0, VALID_USER, .meta = "USER", .doc = "whose it becomes: a user inside, or a number"}, \
        {"group", 'g', PARAM_STRING, 0, VALID_USER, .meta = "GROUP", .doc = "its group: one inside, or a number"}
#define TAR_PARAM {"tar", 'T', PARAM_BOOL, PARAM_LOCAL, .doc = "the tree is a tar on this side"}
#define PARENTS_PARAM {"parents", 'p', PARAM_BOOL, 0, .doc = "make directories above it that are missing"}
static const Param params_push[] = {
        FILE_PARAMS,
        {"recursive", 'r', PARAM_BOOL, 0, .doc = "a whole tree"},
        {"mode", 'm', PARAM_INT, 0, .min = 0, .max = 07777, .meta = "MODE", .doc = "permissions of a single new file, octal"},
        PARENTS_PARAM,
        OWNER_PARAMS,
        TAR_PARAM,
        END,
};
static const Param params_pull[] = {
        FILE_PARAMS,
        {"recursive", 'r', PARAM_BOOL, 0, .doc = "a whole tree"},
        TAR_PARAM,
        {"offset", 'o', PARAM_SIZE, 0, .meta = "SIZE", .doc = "of a single file: from there on"},
        {"length", 'n', PARAM_SIZE, 0, .meta = "SIZE", .doc = "of a single file: at most so much"},
        END,
};
static const Param params_file_list[] = {
        FILE_PARAMS,
        {"depth", 'd', PARAM_INT, 0, .min = 1, .max = 64, .meta = "N", .doc = "how many levels (default 1)"},
        FORMAT_PARAMS,
        END,
};
static const Param params_file_stat[] = {FILE_PARAMS, FORMAT_PARAMS, END};
static const Param params_file_search[] = {
        FILE_PARAMS,
        {"pattern", 'p', PARAM_STRING, 0, VALID_TEXT, .meta = "GLOB", .doc = "what names must match (default *)"},
        {"max", 'm', PARAM_INT, 0, .min = 1, .max = 100000, .meta = "N", .doc = "only the first (default 100000)"},
        FORMAT_PARAMS,
        END,
};
static const Param params_file_remove[] = {FILE_PARAMS, {"recursive", 'r', PARAM_BOOL, 0, .doc = "a whole tree"}, END};
static const Param params_file_replace[] = {
        FILE_PARAMS,
        {"old", 0, PARAM_STRING, PARAM_REQUIRED, VALID_ARGUMENT, .meta = "TEXT", .doc = "what is replaced, as it stands"},
        {"new", 0, PARAM_STRING, PARAM_REQUIRED, VALID_ARGUMENT, .meta = "TEXT", .doc = "what comes in its place"},
        FORMAT_PARAMS,
        END,
};
static const Param params_file_move[] = {
        FILE_PARAMS,
        {"to", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_PATH, .meta = "PATH", .doc = "its new path"},
        {"force", 'F', PARAM_BOOL, 0, .doc = "replace what is there"},
        PARENTS_PARAM,
        END,
};
static const Param params_file_mkdir[] = {
        FILE_PARAMS,
        PARENTS_PARAM,
        {"mode", 'm', PARAM_INT, 0, .min = 1, .max = 07777, .meta = "MODE", .doc = "its permissions, octal (default 755)"},
        OWNER_PARAMS,
        END,
};
static const Param params_file_chmod[] = {
        FILE_PARAMS,
        {"mode", 0, PARAM_INT, PARAM_REQUIRED | PARAM_POSITIONAL, .min = 0, .max = 07777, .meta = "MODE", .doc = "permissions, octal"},
        {"recursive", 'r', PARAM_BOOL, 0, .doc = "a whole tree; links in it are left alone"},
        END,
};
static const Param params_file_chown[] = {FILE_PARAMS, OWNER_PARAMS, {"recursive", 'r', PARAM_BOOL, 0, .doc = "a whole tree"}, END};
static const Param params_file_watch[] = {FILE_PARAMS, {"recursive", 'r', PARAM_BOOL, 0, .doc = "all below it, too"}, FORMAT_PARAM, END};
static const Param params_template_build[] = {
        {"recipe", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_NAME, .meta = "RECIPE", .doc = "name of a recipe in templates.d or of one that ships"},
        {"suite", 0, PARAM_STRING, 0, VALID_SUITE, .meta = "SUITE", .doc = "another suite than the recipe's"},
        END,
};
static const Param params_template_import[] = {
        {"name", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL | PARAM_NEW, VALID_NAME, .meta = "NAME", .doc = "name of the new template"},
        {"path", 0, PARAM_STRING, PARAM_LOCAL | PARAM_POSITIONAL | PARAM_REQUIRED, VALID_TEXT, .meta = "PATH", .doc = "tarball or directory, or - for standard input"},
        END,
};
static const Param params_template[] = {
        {"template", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_TEMPLATE, .meta = "TEMPLATE", .doc = "template name or digest"},
        END,
};
static const Param params_template_show[] = {
        {"template", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_TEMPLATE, .meta = "TEMPLATE", .doc = "template name or digest"},
        FORMAT_PARAM,
        END,
};
static const Param params_template_list[] = {FORMAT_PARAMS, END};
static const Param params_config_log[] = {
        {"max", 'n', PARAM_INT, 0, .min = 1, .max = 10000, .meta = "N", .doc = "only the newest (default 50)"},
        FORMAT_PARAMS,
        END,
};
static const Param params_config_diff[] = {
        {"rev", 0, PARAM_STRING, PARAM_POSITIONAL, VALID_TEXT, .meta = "REVISION", .doc = "what this commit changed (default: what is not committed)"},
        END,
};
static const Param params_config_rollback[] = {
        {"rev", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_TEXT, .meta = "REVISION", .doc = "put this revision's files in place and apply them"},
        FORMAT_PARAMS,
        END,
};
static const Param params_apply[] = {
        {"dry_run", 'n', PARAM_BOOL, 0, .doc = "only say what would change"},
        FORMAT_PARAMS,
        END,
};
static const Param params_policy[] = {
        {"policy", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_NAME, .meta = "POLICY", .doc = "name of a policy"},
        END,
};
static const Param params_policy_show[] = {
        {"policy", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_NAME, .meta = "POLICY", .doc = "name of a policy"},
        FORMAT_PARAM,
        END,
};
static const Param params_policy_set[] = {
        {"policy", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_NAME, .meta = "POLICY", .doc = "name of a policy"},
        {"rules", 0, PARAM_STRINGS, PARAM_POSITIONAL | PARAM_REST, VALID_LABEL_VALUE, .meta = "RULE",
         .doc = "rules in order: \"allow|deny CIDR|HOST|*.SUFFIX|*|@CATEGORY [tcp|udp|icmp [PORTS]]\""},
        {"description", 'd', PARAM_STRING, 0, VALID_TEXT, .meta = "TEXT", .doc = "what the policy is for"},
        END,
};
static const Param params_policy_explain[] = {
        {"name", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_NAME, .meta = "NAME", .doc = "an instance, or a policy by itself"},
        {"host", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_LABEL_VALUE, .meta = "HOST[:PORT]",
         .doc = "a name or an address ([ADDRESS]:PORT of IPv6); port 443 if there is none"},
        {"protocol", 0, PARAM_STRING, 0, VALID_NAME, .meta = "PROTOCOL", .doc = "tcp (default), udp or icmp", .choices = choices_protocol},
        {"method", 0, PARAM_STRING, 0, VALID_METHOD, .meta = "METHOD", .doc = "an HTTP request's method"},
        {"path", 0, PARAM_STRING, 0, VALID_TEXT, .meta = "PATH", .doc = "an HTTP request's path"},
        FORMAT_PARAM,
        END,
};
#define EXPOSED_PARAMS \
        NAME_PARAM, \
        {"port", 0, PARAM_INT, PARAM_REQUIRED | PARAM_POSITIONAL, .min = 1, .max = 65535, .meta = "PORT", .doc = "port of the instance"}, \
        {"protocol", 0, PARAM_STRING, 0, VALID_NAME, .meta = "PROTOCOL", .doc = "tcp (default) or udp", .choices = choices_exposed}
static const Param params_expose[] = {
        EXPOSED_PARAMS,
        {"as", 0, PARAM_INT, 0, .min = 1, .max = 65535, .meta = "PORT", .doc = "port of the host (default: the same)"},
        {"for", 0, PARAM_SPAN, 0, .min = 1000000, .max = 366LL * 24 * 3600 * 1000000, .meta = "SPAN", .doc = "how long (default: until unexpose)"},
        {"from", 0, PARAM_STRING, 0, VALID_CIDR, .meta = "CIDR", .doc = "only for this network (default: everywhere)"},
        END,
};
static const Param params_unexpose[] = {EXPOSED_PARAMS, END};
static const Param params_exposed[] = {
        {"name", 0, PARAM_STRING, PARAM_POSITIONAL, VALID_NAME, .meta = "NAME", .doc = "only of this instance"},
        FORMAT_PARAMS,
        END,
};
static const Param params_approvals[] = {
        {"name", 0, PARAM_STRING, PARAM_POSITIONAL, VALID_NAME, .meta = "NAME", .doc = "only of this instance"},
        {"all", 'a', PARAM_BOOL, 0, .doc = "also what was answered: grants, denials, what has ended"},
        FORMAT_PARAMS,
        END,
};
#define APPROVAL_PARAM {"id", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_ID, .meta = "ID", .doc = "the number of a request"}
static const Param params_approve[] = {
        APPROVAL_PARAM,
        {"for", 0, PARAM_SPAN, 0, .min = 1000000, .max = 366LL * 24 * 3600 * 1000000, .meta = "SPAN", .doc = "how long (default 1h)"},
        {"to", 0, PARAM_STRING, 0, VALID_DESTINATION, .meta = "HOST", .doc = "what was asked for, once more: needed for what is closed under any policy that does not name it"},
        FORMAT_PARAM,
        END,
};
static const Param params_deny[] = {
        APPROVAL_PARAM,
        {"reason", 'r', PARAM_STRING, 0, VALID_REASON, .meta = "TEXT", .doc = "what the asker is told"},
        END,
};
static const Param params_carve[] = {
        {"count", 'n', PARAM_INT, PARAM_REQUIRED, .min = 1, .max = 64, .meta = "N", .doc = "how many equal instances"},
        {"template", 0, PARAM_STRING, 0, VALID_TEMPLATE, .meta = "TEMPLATE", .doc = "template of each (default: the host's default)"},
        {"prefix", 0, PARAM_STRING, 0, VALID_NAME, .meta = "PREFIX", .doc = "names are PREFIX1, PREFIX2, … (default agent)"},
        {"yes", 'y', PARAM_BOOL, PARAM_LOCAL, .doc = "write without asking"},
        {"write", 0, PARAM_BOOL, 0, .doc = "create the instances; without it only the plan is made"},
        FORMAT_PARAMS,
        END,
};
static const Param params_events[] = {
        {"follow", 0, PARAM_BOOL, PARAM_LOCAL, .doc = "keep waiting for new events"},
        {"name", 0, PARAM_STRING, PARAM_POSITIONAL, VALID_NAME, .meta = "NAME", .doc = "only of this instance"},
        FORMAT_PARAM,
        END,
};
static const Param params_audit_tail[] = {
        {"lines", 'n', PARAM_INT, 0, .min = 1, .max = 10000, .meta = "N", .doc = "how many (default 20)"},
        FORMAT_PARAMS,
        END,
};
static const Param params_audit_query[] = {
        {"since", 0, PARAM_SPAN, PARAM_SINCE, .meta = "SPAN|TIME", .doc = "only this far back, or since then"},
        {"method", 0, PARAM_STRING, 0, VALID_TEXT, .meta = "METHOD", .doc = "only this method"},
        {"target", 0, PARAM_STRING, 0, VALID_TEXT, .meta = "NAME", .doc = "only of this instance, policy or template"},
        {"user", 'u', PARAM_STRING, 0, VALID_TEXT, .meta = "USER", .doc = "only of this caller"},
        {"result", 0, PARAM_STRING, 0, VALID_TEXT, .meta = "RESULT", .doc = "ok, started, ended, or an error's name such as Denied", .choices = choices_result},
        FORMAT_PARAMS,
        END,
};
static const Param params_warning_clear[] = {
        {"kind", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_LABEL_KEY, .meta = "KIND", .doc = "kind of warning"},
        {"name", 0, PARAM_STRING, PARAM_POSITIONAL, VALID_NAME, .meta = "NAME", .doc = "only of this instance"},
        END,
};

#define SECRET_PARAM {"secret", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_NAME, .meta = "SECRET", .doc = "name of a secret"}
static const Param params_secret[] = {SECRET_PARAM, END};
static const Param params_secret_value[] = {
        {"secret", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_NAME, .meta = "SECRET", .doc = "name of the secret"},
        {"exact", 0, PARAM_BOOL, PARAM_LOCAL, .doc = "keep a line break at the end of the value"},
        END,
};
static const Param params_secret_set[] = {
        {"secret", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_NAME, .meta = "SECRET", .doc = "name of the secret"},
        {"exact", 0, PARAM_BOOL, PARAM_LOCAL, .doc = "keep a line break at the end of the value"},
        {"command", 0, PARAM_STRING, 0, VALID_PATH, .meta = "PATH", .doc = "a program of this host that prints the value, now and again before it ends"},
        {"for", 0, PARAM_SPAN, 0, .min = 1, .max = 43200000000, .meta = "SPAN", .doc = "with command: how long what it prints is good for, 10 s to 12 h (default 1h)"},
        {"user", 'u', PARAM_STRING, 0, VALID_USER, .meta = "USER", .doc = "with command: whom it runs as (default nobody)"},
        END,
};
static const Param params_secret_grant[] = {
        SECRET_PARAM,
        NAME_PARAM,
        {"host", 0, PARAM_STRING, 0, VALID_HOST, .meta = "HOST", .doc = "exact name of the host that may get the value"},
        {"port", 'p', PARAM_INT, 0, .min = 1, .max = 65535, .meta = "PORT", .doc = "its TCP port (default 443)"},
        {"header", 0, PARAM_STRING, 0, VALID_HEADER, .meta = "HEADER", .doc = "the value's place: this header, alone or after one word"},
        {"basic", 0, PARAM_BOOL, 0, .doc = "the value's place: the password of Authorization: Basic"},
        {"query", 0, PARAM_STRING, 0, VALID_QUERY, .meta = "PARAMETER", .doc = "the value's place: this parameter of the query"},
        {"file", 0, PARAM_BOOL, 0, .doc = "the value itself, as the file /run/hostd/secrets/SECRET in the instance, without a host"},
        {"owner", 0, PARAM_INT, 0, .min = 0, .max = 1048575, .meta = "UID", .doc = "with file: the uid in the instance that may read it (default 0)"},
        {"inject", 0, PARAM_BOOL, 0, .doc = "write the whole header, without a placeholder"},
        {"word", 0, PARAM_STRING, 0, VALID_HEADER, .meta = "WORD", .doc = "with inject: what stands before the value, such as Bearer"},
        {"login", 0, PARAM_STRING, 0, VALID_LOGIN, .meta = "USER", .doc = "with inject and basic: the user"},
        {"methods", 0, PARAM_STRINGS, 0, VALID_METHOD, .meta = "METHOD", .doc = "only requests of this method; may be repeated"},
        {"paths", 0, PARAM_STRINGS, 0, VALID_URL_PATH, .meta = "PATH", .doc = "only requests at or below this path; may be repeated"},
        {"for", 0, PARAM_SPAN, 0, .min = 1, .max = 315360000000000, .meta = "SPAN", .doc = "the grant ends by itself after this time"},
        FORMAT_PARAM,
        END,
};
static const Param params_secret_grants[] = {
        {"name", 0, PARAM_STRING, PARAM_POSITIONAL, VALID_NAME, .meta = "NAME", .doc = "only of this instance"},
        FORMAT_PARAMS,
        END,
};
static const Param params_grant_id[] = {
        {"id", 0, PARAM_STRING, PARAM_REQUIRED | PARAM_POSITIONAL, VALID_ID, .meta = "ID", .doc = "the grant"},
        END,
};

static const Column columns_instance[] = {
        {"name", "NAME"}, {"state", "STATE"}, {"ipv4", "IPV4"}, {"ipv6", "IPV6"},
        {"cpu", "CPU"}, {"memory", "MEMORY", .type = PARAM_SIZE}, {"memory_used", "USED", .type = PARAM_SIZE},
        {"pids_used", "PIDS", .type = PARAM_INT}, {"disk", "DISK", .type = PARAM_SIZE}, {"template", "TEMPLATE"},
        {"slot", "SLOT", true, PARAM_INT}, {"boot", "BOOT", true}, {"preset", "PRESET", true}, {"policies", "POLICIES", true},
        {"digest", "DIGEST", true}, {"created", "CREATED", true}, {"started", "STARTED", true}, {"description", "DESCRIPTION", true},
        {"cpu_used", "CPU-TIME", true, PARAM_SPAN}, {"disk_used", "DISK-USED", true, PARAM_SIZE}, {"labels", "LABELS", true},
        {"pid", "PID", true, PARAM_INT}, {NULL},
};
static const Column columns_kept[] = {
        {"id", "ID"}, {"name", "INSTANCE"}, {"user", "USER"}, {"command", "COMMAND"}, {"started", "STARTED"}, {"state", "STATE"}, {"exit", "EXIT"},
        {"ended", "ENDED", true}, {"caller", "CALLER", true}, {"message", "MESSAGE", true}, {NULL},
};
static const Column columns_command[] = {
        {"id", "ID"}, {"name", "INSTANCE"}, {"user", "USER"}, {"command", "COMMAND"}, {"started", "STARTED"}, {"caller", "CALLER"},
        {"pid", "PID", true, PARAM_INT}, {NULL},
};
static const Column columns_sandbox[] = {
        {"id", "ID"}, {"instance", "INSTANCE"}, {"state", "STATE"}, {"commands", "COMMANDS", .type = PARAM_INT}, {"memory_used", "MEMORY", .type = PARAM_SIZE},
        {"memory", "LIMIT", .type = PARAM_SIZE}, {"deadline", "DEADLINE"}, {"cause", "CAUSE"}, {"runtime", "RUNTIME", true}, {"root", "ROOT", true},
        {"network", "NETWORK"}, {"address", "ADDRESS", true}, {"address6", "ADDRESS6", true}, {"pids_used", "PIDS", true, PARAM_INT}, {"memory_peak", "PEAK", true, PARAM_SIZE}, {"idle", "IDLE", true, PARAM_SPAN},
        {"created", "CREATED", true}, {"ended", "ENDED", true}, {"caller", "CALLER", true}, {"key", "KEY", true}, {"labels", "LABELS", true}, {NULL},
};
static const Column columns_file[] = {
        {"mode", "MODE"}, {"owner", "OWNER"}, {"group", "GROUP"}, {"size", "SIZE", .type = PARAM_SIZE}, {"modified", "MODIFIED"}, {"path", "PATH"},
        {"target", "LINK-TO"}, {"type", "TYPE", true}, {"permissions", "PERMISSIONS", true}, {"uid", "UID", true, PARAM_INT}, {"gid", "GID", true, PARAM_INT},
        {"links", "LINKS", true, PARAM_INT}, {"created", "CREATED", true}, {NULL},
};
static const Column columns_replaced[] = {{"path", "PATH"}, {"replaced", "REPLACED", .type = PARAM_INT}, {NULL}};
static const Column columns_template[] = {
        {"name", "NAME"}, {"digest", "DIGEST"}, {"suite", "SUITE"}, {"size", "SIZE", .type = PARAM_SIZE}, {"packages", "PACKAGES", .type = PARAM_INT},
        {"built", "BUILT"}, {"used_by", "USED-BY", .type = PARAM_INT}, {"recipe", "RECIPE", true}, {NULL},
};
static const Column columns_policy[] = {
        {"policy", "POLICY"}, {"rules", "RULES", .type = PARAM_INT}, {"used_by", "USED-BY"}, {"description", "DESCRIPTION"}, {NULL},
};
static const Column columns_exposed[] = {
        {"name", "NAME"}, {"protocol", "PROTOCOL"}, {"port", "PORT", .type = PARAM_INT}, {"as", "AS", .type = PARAM_INT}, {"from", "FROM"},
        {"left", "LEFT", .type = PARAM_SPAN}, {NULL},
};
static const Column columns_approval[] = {
        {"id", "ID"}, {"name", "INSTANCE"}, {"state", "STATE"}, {"to", "TO"}, {"protocol", "PROTOCOL"}, {"port", "PORT", .type = PARAM_INT}, {"until", "UNTIL"},
        {"reason", "REASON"}, {"asked", "ASKED"}, {"by", "BY", true}, {"decided", "DECIDED", true}, {"answer", "ANSWER", true}, {"uid", "UID", true, PARAM_INT}, {NULL},
};
static const Column columns_carve[] = {
        {"name", "NAME"}, {"cpu", "CPU"}, {"memory", "MEMORY", .type = PARAM_SIZE}, {"disk", "DISK", .type = PARAM_SIZE}, {"pids", "PIDS", .type = PARAM_INT},
        {"template", "TEMPLATE"}, {NULL},
};
static const Column columns_doctor[] = {{"protection", "PROTECTION"}, {"state", "STATE"}, {"allowed", "ALLOWED", .type = PARAM_BOOL}, {"detail", "DETAIL"}, {"fix", "FIX"}, {NULL}};
static const Column columns_leak[] = {{"kind", "KIND"}, {"object", "OBJECT"}, {NULL}};
static const Column columns_audit[] = {
        {"time", "TIME"}, {"user", "USER"}, {"method", "METHOD"}, {"target", "TARGET"}, {"result", "RESULT"}, {"seq", "SEQ", true, PARAM_INT},
        {"uid", "UID", true, PARAM_INT}, {"pid", "PID", true, PARAM_INT}, {"detail", "DETAIL", true}, {NULL},
};
static const Column columns_flow[] = {
        {"time", "TIME"}, {"verdict", "VERDICT"}, {"kind", "KIND"}, {"to", "TO"}, {"protocol", "PROTOCOL"}, {"sent", "SENT", .type = PARAM_SIZE},
        {"received", "RECEIVED", .type = PARAM_SIZE}, {"duration", "DURATION", .type = PARAM_SPAN}, {"by", "BY"}, {"reason", "REASON"},
        {"name", "NAME", true}, {"address", "ADDRESS", true}, {"port", "PORT", true, PARAM_INT}, {"policy", "POLICY", true}, {"rule", "RULE", true, PARAM_INT},
        {"sandbox", "SANDBOX", true}, {"start", "START", true}, {"open", "OPEN", true}, {"inbound", "INBOUND", true}, {"count", "COUNT", true, PARAM_INT}, {NULL},
};
static const Column columns_why[] = {
        {"last", "LAST"}, {"count", "COUNT", .type = PARAM_INT}, {"kind", "KIND"}, {"to", "TO"}, {"protocol", "PROTOCOL"}, {"reason", "REASON"},
        {"sandbox", "SANDBOX"}, {"allow", "ALLOWED BY"}, {"first", "FIRST", true}, {"name", "NAME", true}, {"address", "ADDRESS", true}, {"port", "PORT", true, PARAM_INT},
        {"policy", "POLICY", true}, {"rule", "RULE", true, PARAM_INT}, {NULL},
};
static const Column columns_warning[] = {
        {"kind", "KIND"}, {"entity", "OF"}, {"count", "COUNT", .type = PARAM_INT}, {"first_seen", "FIRST"}, {"last_seen", "LAST"}, {"text", "TEXT"}, {NULL},
};
static const Column columns_commit[] = {{"rev", "REVISION"}, {"date", "DATE"}, {"author", "AUTHOR"}, {"subject", "CHANGE"}, {NULL}};
static const Column columns_secret[] = {
        {"secret", "SECRET"}, {"version", "VERSION", .type = PARAM_INT}, {"created", "CREATED"}, {"rotated", "ROTATED"}, {"grants", "GRANTS", .type = PARAM_INT}, {"ends", "ENDS"},
        {"command", "COMMAND", true}, {"user", "USER", true}, {NULL},
};
static const Column columns_package[] = {
        {"user", "USER"}, {"client", "CLIENT"}, {"setting", "SETTING"}, {"claim", "CLAIM"}, {"by", "BY"}, {NULL},
};
static const Column columns_grant[] = {
        {"id", "ID"}, {"secret", "SECRET"}, {"name", "INSTANCE"}, {"host", "HOST"}, {"port", "PORT", .type = PARAM_INT}, {"place", "PLACE"}, {"field", "FIELD"},
        {"until", "UNTIL"}, {"state", "STATE"}, {"placeholder", "PLACEHOLDER"}, {"owner", "OWNER", true, PARAM_INT}, {"inject", "INJECT", true, PARAM_BOOL}, {"word", "WORD", true}, {"login", "LOGIN", true},
        {"methods", "METHODS", true}, {"paths", "PATHS", true}, {"created", "CREATED", true}, {NULL},
};
static const Column columns_change[] = {{"text", "CHANGE"}, {NULL}};

#define I "io.hostd.Instance."
#define OPERATE ACCESS_OPERATE
#define ADMIN ACCESS_ADMIN
#define VIEW ACCESS_VIEW
#define MUTATES METHOD_MUTATES
#define MORE METHOD_MORE
#define SPECIAL METHOD_SPECIAL

static const Method method_table[_METHOD_MAX] = {
        [METHOD_INSTANCE_CREATE] = {I "Create", "create", ADMIN, MUTATES, 0, params_create, .doc = "Create an instance from a template"},
        [METHOD_INSTANCE_LAUNCH] = {I "Launch", "launch", ADMIN, MUTATES, 0, params_create, .doc = "Create an instance and start it"},
        [METHOD_INSTANCE_START] = {I "Start", "start", OPERATE, MUTATES | METHOD_ALL, 0, params_names, .doc = "Start instances"},
        [METHOD_INSTANCE_STOP] = {I "Stop", "stop", OPERATE, MUTATES | METHOD_ALL, 0, params_stop, .doc = "Stop instances"},
        [METHOD_INSTANCE_RESTART] = {I "Restart", "restart", OPERATE, MUTATES | METHOD_ALL, 0, params_stop, .doc = "Stop and start instances"},
        [METHOD_INSTANCE_PAUSE] = {I "Pause", "pause", OPERATE, MUTATES | METHOD_ALL, 0, params_names, .doc = "Freeze all processes of instances"},
        [METHOD_INSTANCE_RESUME] = {I "Resume", "resume", OPERATE, MUTATES | METHOD_ALL, 0, params_names, .doc = "Thaw paused instances"},
        [METHOD_INSTANCE_DELETE] = {I "Delete", "delete", ADMIN, MUTATES | METHOD_ALL, 0, params_delete, .doc = "Delete instances and their data"},
        [METHOD_INSTANCE_REBUILD] = {I "Rebuild", "rebuild", ADMIN, MUTATES, 0, params_rebuild, .doc = "Give an instance a fresh root; its data volume stays"},
        [METHOD_INSTANCE_LIST] = {I "List", "list", VIEW, 0, 0, params_list, "instances", columns_instance, "List instances"},
        [METHOD_INSTANCE_SHOW] = {I "Show", "show", VIEW, SPECIAL, 0, params_show, .doc = "Show everything about an instance",
                .manual = "With expanded the reply has settings: an array of {key, value, source}."},
        [METHOD_INSTANCE_SET] = {I "Set", "set", ADMIN, MUTATES, 0, params_set, .doc = "Change settings, live where the setting allows it"},
        [METHOD_INSTANCE_UNSET] = {I "Unset", "unset", ADMIN, MUTATES, 0, params_unset, .doc = "Put settings back to preset or default"},
        [METHOD_INSTANCE_LABEL] = {I "Label", "label", ADMIN, MUTATES, 0, params_label, .doc = "Set or remove labels"},
        [METHOD_INSTANCE_CONSOLE] = {I "Console", "console", OPERATE, MUTATES | MORE | SPECIAL, 3, params_name, .doc = "Attach to the console of an instance",
                .manual = "The console of the instance on a pty; ^] or the end of input ends the session and leaves the instance alone."},
        [METHOD_INSTANCE_LOG] = {I "Log", "log", VIEW, SPECIAL, 0, params_log, .doc = "Show the console log of an instance",
                .manual = "Values of secrets that were granted to the instance are replaced by their names. Reply: {lines, redacted}."},
        [METHOD_INSTANCE_DIFF] = {I "Diff", "diff", OPERATE, MUTATES | SPECIAL, 1, params_diff, .doc = "List what an instance changed against its template",
                .manual = "One line for each change of the root, by path: A added, M written or changed in mode or owner, D deleted, O a directory that replaces the template's with all that was below, ? something that could not be read. A file counts as written even if its content is what it was. What is in the data volume (/home, /var/lib/containers) is not compared. Works while the instance runs; then the list is as stale as its tree is busy. The descriptor is a pipe for the list."},
        [METHOD_INSTANCE_FLOWS] = {I "Flows", "flows", VIEW, SPECIAL, 1, params_flows, "flows", columns_flow, "Show what an instance reached for",
                .manual = "Lookups, connections and denials, the newest last: what resolver and proxy say of names, and the kernel of addresses. BY is the rule of which policy; without one the default denied it. A connection that the kernel forwards is told when the kernel forgets it, some time after its end, and while it lives when it is one minute old, two, four and so on. VERDICT error with KIND lost says that records are missing here. The log of an instance outlives it: hostd(8). The descriptor is a pipe for lines of JSON, the newest first, and a last one {end, torn}. A list that is not read within a minute is cut; a user has three at a time, root any number."},
        [METHOD_INSTANCE_WHY] = {I "Why", "why", VIEW, SPECIAL, 1, params_why, "denials", columns_why, "Say what an instance was denied, and which rule would allow it",
                .manual = "The newest 20000 denials in groups, the newest first. SANDBOX is who it was in, and not the instance itself. ALLOWED BY is a rule that would let it pass, in the policies whose lack of it the reason names: the sandbox's own, or its instance's; there is none where no rule decided, as for a limit, or where what was asked for is no name that a rule may have. The descriptor is as that of flows."},
        [METHOD_COMMAND_EXEC] = {"io.hostd.Command.Exec", "exec", OPERATE, MUTATES | MORE | SPECIAL, 3, params_exec, .doc = "Run a command in an instance or sandbox",
                .manual = "The first word after NAME ends the options. With standard input and output on a terminal, or with --tty, the command gets a pty; otherwise three pipes. Once EXTPROC is set on the caller's pty, TIOCSIG with SIGQUIT says that its input has ended. Exit status: the command's own; 128+N for signal N; 124 when its time was over; 126 or 127 when it could not be run; 125 when hostctl or hostd failed. Answers: {id}, then the record {exit, signal, oom, timed_out, cpu_usec, memory_peak, stage, message, redacted}; redacted counts the values of secrets that were replaced in the output."},
        [METHOD_COMMAND_SHELL] = {"io.hostd.Command.Shell", "shell", OPERATE, MUTATES | MORE | SPECIAL, 3, params_shell, .doc = "Open a login shell in an instance",
                .manual = "A login shell with a pty, through PAM; root unless --user says otherwise. Answers as Exec."},
        [METHOD_COMMAND_START] = {"io.hostd.Command.Start", "command start", OPERATE, MUTATES | SPECIAL, 0, params_start_command, .doc = "Run a command in the background",
                .manual = "It has no input, and needs no client: it goes on until it ends, its time is over or its instance or sandbox ends, also through a restart of hostd. The answer, {id}, comes when it runs. What it writes is kept: the begin and the end of it, up to keep; what does not fit is dropped and counted, and never makes it wait. Values of secrets that the instance has grants of are replaced. The output is there until that of later commands needs the room (64 MiB for an instance with its sandboxes, 16 MiB for one of these), or the instance is deleted, or the sandbox forgotten."},
        [METHOD_COMMAND_LOGS] = {"io.hostd.Command.Logs", "logs", OPERATE, MUTATES | SPECIAL, 1, params_logs, .doc = "Show the output of a command in the background",
                .manual = "Standard output and errors of the command, in the order in which they were read, each to hostctl's own. An offset counts the bytes of both, also those that were dropped; where some are missing, standard error says how many, and with --follow also why the command ended if that was no end of its own. On the wire, frames of a magic number, a kind (0 output, 1 errors, 2 dropped bytes; at the end 3 ended, 4 cut off since hostd-io died, 5 as of now, 6 removed with its sandbox), an offset and a length, of 4, 4, 8 and 8 bytes in the host's order, go into the pipe, and bytes behind the first two kinds."},
        [METHOD_COMMAND_KEPT] = {"io.hostd.Command.Kept", "command kept", VIEW, 0, 0, params_command_list, "commands", columns_kept, "List commands in the background whose output is kept",
                .manual = "STATE is running, ended, or lost: hostd was not there when it ended. MESSAGE says why it ended, where that was no end of its own."},
        [METHOD_COMMAND_ATTACH] = {"io.hostd.Command.Attach", "command wait", OPERATE, MUTATES | MORE | SPECIAL, 0, params_command_id, .doc = "Wait for a running command",
                .manual = "Answers with the record of a command that runs, also after a restart of hostd; of one in the background also when it has ended, as long as its output is kept."},
        [METHOD_COMMAND_SIGNAL] = {"io.hostd.Command.Signal", "command signal", OPERATE, MUTATES, 0, params_command_signal, .doc = "Send a signal to a running command"},
        [METHOD_COMMAND_LIST] = {"io.hostd.Command.List", "command list", VIEW, 0, 0, params_command_list, "commands", columns_command, "List running commands"},
        [METHOD_FILE_PUSH] = {"io.hostd.File.Push", "file push", OPERATE, MUTATES | SPECIAL, 1, params_push, .doc = "Copy a file or tree into an instance or sandbox",
                .manual = "LOCAL may be - for standard input. Several files, or a place that ends with a slash: each goes below it by its own name. With --recursive a tree; links are copied as links, sockets, pipes and devices are left out. A file appears whole and on the disk under its name or not at all, and keeps the owner of the one that it replaces when root writes it. Directories that --parents makes belong to the user, or to --owner, which goes for a single file. With --tar LOCAL is a tar (not compressed, without hard links) that is unpacked into PATH. The descriptor is a pipe with a tree stream (hostd/guest/tree.h), also for a single file: its end record tells a whole one from one that was cut off."},
        [METHOD_FILE_PULL] = {"io.hostd.File.Pull", "file pull", OPERATE, MUTATES | SPECIAL, 1, params_pull, .doc = "Copy a file or tree out of an instance or sandbox",
                .manual = "LOCAL may be - for standard output, or a directory. A file appears whole under its name or not at all. With --recursive a tree, which is unpacked below one directory and nowhere else. A range that begins behind the end is empty. With --tar LOCAL becomes a tar of the tree, with names below PATH; a file that changes while it is read makes the call fail at its end."},
        [METHOD_FILE_LIST] = {"io.hostd.File.List", "file list", OPERATE, MUTATES | SPECIAL, 1, params_file_list, "files", columns_file, "List files in an instance or sandbox",
                .manual = "Sorted by name, what is below a directory right behind it. Owners and groups by the names that they have inside, or by number. No link below PATH is followed. At most 250,000 entries."},
        [METHOD_FILE_REMOVE] = {"io.hostd.File.Remove", "file rm", OPERATE, MUTATES | SPECIAL, 0, params_file_remove, .doc = "Remove a file or tree in an instance or sandbox"},
        [METHOD_FILE_STAT] = {"io.hostd.File.Stat", "file stat", OPERATE, MUTATES | SPECIAL, 1, params_file_stat, "files", columns_file, "Show what files in an instance or sandbox are",
                .manual = "Of a link itself. The descriptor is a pipe for the list."},
        [METHOD_FILE_SEARCH] = {"io.hostd.File.Search", "file search", OPERATE, MUTATES | SPECIAL, 1, params_file_search, "files", columns_file, "Find files in an instance or sandbox by their names",
                .manual = "What is no directory below PATH and whose own name matches, as the shell's *, ? and [...] do. No link is followed; at most 64 levels and a million names are looked at, and what could not be is said. The descriptor is a pipe for the list."},
        [METHOD_FILE_REPLACE] = {"io.hostd.File.Replace", "file replace", OPERATE, MUTATES | SPECIAL, 1, params_file_replace, "files", columns_replaced, "Replace text in files in an instance or sandbox",
                .manual = "Every place where the text stands, to the letter. A file of at most 1 GiB, whole or not at all; mode and owner stay as when it is pushed. One that does not have the text is not written, and that is no error. If somebody else writes to it meanwhile, the call fails. The descriptor is a pipe for a list with the number of places; the audit log does not keep the texts."},
        [METHOD_FILE_MOVE] = {"io.hostd.File.Move", "file mv", OPERATE, MUTATES | SPECIAL, 0, params_file_move, .doc = "Move or rename a file or tree in an instance or sandbox",
                .manual = "Within one file system: the data volume (/home, /var/lib/containers) is another one than the root. What is in the place is not replaced without --force."},
        [METHOD_FILE_MKDIR] = {"io.hostd.File.Mkdir", "file mkdir", OPERATE, MUTATES | SPECIAL, 0, params_file_mkdir, .doc = "Make a directory in an instance or sandbox",
                .manual = "With --parents one that is there is no error, and stays as it is."},
        [METHOD_FILE_CHMOD] = {"io.hostd.File.Chmod", "file chmod", OPERATE, MUTATES | SPECIAL, 0, params_file_chmod, .doc = "Change permissions of files in an instance or sandbox",
                .manual = "A link is refused, not followed."},
        [METHOD_FILE_CHOWN] = {"io.hostd.File.Chown", "file chown", OPERATE, MUTATES | SPECIAL, 0, params_file_chown, .doc = "Change owner and group of files in an instance or sandbox",
                .manual = "Of a link itself."},
        [METHOD_FILE_WATCH] = {"io.hostd.File.Watch", "file watch", OPERATE, MUTATES | SPECIAL, 1, params_file_watch, .doc = "Show what happens to files in an instance or sandbox",
                .manual = "A line for each event until the client goes, or what is watched does: created, written, attributes, deleted, moved-from, moved-to; lost: events were dropped because nobody read them in time, or what is below that path is not watched (at most 8192 directories, 64 levels, and what the user may read); gone: it was removed or moved away, and nothing follows. With --format json an object a line. The descriptor is a pipe for the list, whose first bytes come when all is being watched."},
        [METHOD_SANDBOX_CREATE] = {"io.hostd.Sandbox.Create", "sandbox create", OPERATE, MUTATES | SPECIAL, 0, params_sandbox_create, .doc = "Make a sandbox in an instance",
                .manual = "A place for untrusted work, within the instance and with limits of its own; see hostctl-sandbox(1). Answers when it runs. hostctl prints its id. Reply: {id, instance, state, existed}; existed says that the key was taken."},
        [METHOD_SANDBOX_LIST] = {"io.hostd.Sandbox.List", "sandbox list", VIEW, 0, 0, params_sandbox_list, "sandboxes", columns_sandbox, "List sandboxes"},
        [METHOD_SANDBOX_SHOW] = {"io.hostd.Sandbox.Show", "sandbox show", VIEW, 0, 0, params_sandbox_object, .doc = "Show everything about a sandbox"},
        [METHOD_SANDBOX_WHY] = {"io.hostd.Sandbox.Why", "sandbox why", VIEW, 0, 0, params_sandbox_object, .doc = "Say why a sandbox ended",
                .manual = "cause is none while it lives, then deadline, idle, oom, oom-outside (it had not reached its own limit: its instance or the host had no more memory), exited (its first process ended), instance (that was stopped), failed (it never ran), lost (a restart of hostd did not find it again). Known for its grace."},
        [METHOD_SANDBOX_EXEC] = {"io.hostd.Sandbox.Exec", "sandbox exec", OPERATE, MUTATES | MORE | SPECIAL, 3, params_sandbox_exec, .doc = "Run a command in a sandbox",
                .manual = "As exec, in a sandbox: the first word after ID ends the options; streams, exit status and answers are the same. With --detach it is command start in the sandbox. What that writes is shown by logs; the file commands, too, take the id of a sandbox for NAME."},
        [METHOD_SANDBOX_DELETE] = {"io.hostd.Sandbox.Delete", "sandbox delete", OPERATE, MUTATES, 0, params_sandbox, .doc = "End a sandbox, whatever it does, and forget it",
                .manual = "In any state. Answers when nothing of it is left."},
        [METHOD_SANDBOX_RENEW] = {"io.hostd.Sandbox.Renew", "sandbox renew", OPERATE, MUTATES, 0, params_sandbox_renew, .doc = "Give a sandbox another deadline",
                .manual = "From now on; it may be earlier than before. Reply: {id, deadline}."},
        [METHOD_SANDBOX_PAUSE] = {"io.hostd.Sandbox.Pause", "sandbox pause", OPERATE, MUTATES, 0, params_sandbox, .doc = "Stop all processes of a sandbox until it is resumed",
                .manual = "Answers when the last of them stands still. Its deadline goes on, its idle time does not."},
        [METHOD_SANDBOX_RESUME] = {"io.hostd.Sandbox.Resume", "sandbox resume", OPERATE, MUTATES, 0, params_sandbox, .doc = "Let a paused sandbox go on"},
        [METHOD_TEMPLATE_BUILD] = {"io.hostd.Template.Build", "template build", ADMIN, MUTATES | MORE | SPECIAL, 0, params_template_build, .doc = "Build a template from a recipe",
                .manual = "Answers: {percent, line} while it goes on, then {digest}."},
        [METHOD_TEMPLATE_IMPORT] = {"io.hostd.Template.Import", "template import", ADMIN, MUTATES | MORE | SPECIAL, 1, params_template_import, .doc = "Make a template of a tarball or directory",
                .manual = "The descriptor is the tarball or directory. Answers as Build."},
        [METHOD_TEMPLATE_LIST] = {"io.hostd.Template.List", "template list", VIEW, 0, 0, params_template_list, "templates", columns_template, "List templates"},
        [METHOD_TEMPLATE_SHOW] = {"io.hostd.Template.Show", "template show", VIEW, 0, 0, params_template_show, .doc = "Show a template's manifest"},
        [METHOD_TEMPLATE_DELETE] = {"io.hostd.Template.Delete", "template delete", ADMIN, MUTATES, 0, params_template, .doc = "Delete a template that no instance uses"},
        [METHOD_TEMPLATE_PRUNE] = {"io.hostd.Template.Prune", "template prune", ADMIN, MUTATES, 0, params_none, .doc = "Delete all unused templates but the newest of each name"},
        [METHOD_CONFIG_LOG] = {"io.hostd.Config.Log", "config log", VIEW, 0, 0, params_config_log, "commits", columns_commit, "List changes of the configuration"},
        [METHOD_CONFIG_DIFF] = {"io.hostd.Config.Diff", "config diff", VIEW, SPECIAL, 0, params_config_diff, .doc = "Show what a commit changed",
                .manual = "Reply: {text}."},
        [METHOD_CONFIG_ROLLBACK] = {"io.hostd.Config.Rollback", "config rollback", ADMIN, MUTATES, 0, params_config_rollback, "changes", columns_change, "Go back to an earlier configuration"},
        [METHOD_CONFIG_APPLY] = {"io.hostd.Config.Apply", "apply", ADMIN, MUTATES, 0, params_apply, "changes", columns_change, "Apply files that were edited by hand"},
        [METHOD_POLICY_LIST] = {"io.hostd.Policy.List", "policy list", VIEW, 0, 0, params_list, "policies", columns_policy, "List policies"},
        [METHOD_POLICY_SHOW] = {"io.hostd.Policy.Show", "policy show", VIEW, SPECIAL, 0, params_policy_show, .doc = "Show a policy's rules",
                .manual = "Reply: {policy, description, used_by, rules}; rules is an array of objects, shown as a table."},
        [METHOD_POLICY_SET] = {"io.hostd.Policy.Set", "policy set", ADMIN, MUTATES, 0, params_policy_set, .doc = "Create or replace a policy, live"},
        [METHOD_POLICY_DELETE] = {"io.hostd.Policy.Delete", "policy delete", ADMIN, MUTATES, 0, params_policy, .doc = "Delete a policy that no instance uses"},
        [METHOD_POLICY_EXPLAIN] = {"io.hostd.Policy.Explain", "policy explain", VIEW, 0, 0, params_policy_explain, .doc = "Say what would happen to a connection, and by which rule",
                .manual = "Reply: {of, action, text, by}; of says whose policies were asked, an instance's if there is one of that name; by is {policy, index, rule}, or the word default. A name is judged by rules with names only, and an address by rules with addresses only; a connection by name that the proxy carries meets both, in order."},
        [METHOD_NETWORK_SHOW] = {"io.hostd.Network.Show", "network show", VIEW, SPECIAL, 0, params_named_object, .doc = "Show addresses, counters and rules of an instance",
                .manual = "Reply: {name, state, interface, ipv4, ipv6, policies, cut, counters, rules}; rules is the text of what is in force."},
        [METHOD_NETWORK_PACKAGES] = {"io.hostd.Network.Packages", "network packages", OPERATE, MUTATES | SPECIAL, 1, params_instance_list, "packages", columns_package,
                "Say whether package clients in an instance would keep to its package policy",
                .manual = "For root and for the agent's user, by the configuration files that the clients document and the files in which sessions find variables. CLAIM is the guest's word: kept, overridden, missing (hostd's file is gone, or says something else), unreadable, not installed, no setting (the client has none), not asked for (the instance's policy does not want it). BY is the file that decides. Projects' own files, options and variables of running programs are not looked at. Reply: {lock_only, no_scripts}; the descriptor is the writing end of a pipe that gets the rows."},
        [METHOD_NETWORK_CUT] = {"io.hostd.Network.Cut", "network cut", OPERATE, MUTATES, 0, params_names, .doc = "Stop all traffic of an instance, established connections too",
                .manual = "It stays so until restore, also when the instance, hostd or the host is started again. Commands and files go on: they do not use the network."},
        [METHOD_NETWORK_RESTORE] = {"io.hostd.Network.Restore", "network restore", OPERATE, MUTATES, 0, params_names, .doc = "Give an instance its network back",
                .manual = "Connections from before the cut do not come back."},
        [METHOD_NETWORK_EXPOSE] = {"io.hostd.Network.Expose", "expose", ADMIN, MUTATES, 0, params_expose, .doc = "Let a port of the host lead to one of an instance",
                .manual = "On every address of the host, IPv4 and IPv6; the instance sees who comes. At its end its connections end as well, also when no hostd runs then. A port on which the host itself listens is refused."},
        [METHOD_NETWORK_UNEXPOSE] = {"io.hostd.Network.Unexpose", "unexpose", ADMIN, MUTATES, 0, params_unexpose, .doc = "Close what leads to a port of an instance",
                .manual = "Established connections end."},
        [METHOD_NETWORK_EXPOSED] = {"io.hostd.Network.Exposed", "exposed", VIEW, 0, 0, params_exposed, "ports", columns_exposed, "List ports that lead to instances",
                .manual = "left is null for a port without an end."},
        [METHOD_APPROVAL_LIST] = {"io.hostd.Approval.List", "approvals", VIEW, 0, 0, params_approvals, "approvals", columns_approval, "List what instances ask for",
                .manual = "What waits for an answer; with --all also grants in force, denials and what has ended. Reasons are what somebody in the instance wrote, and uid is who that says it was. A request that nobody answers lapses after a day."},
        [METHOD_APPROVAL_APPROVE] = {"io.hostd.Approval.Approve", "approve", ADMIN, MUTATES, 0, params_approve, .doc = "Grant what an instance asks for, for a time",
                .manual = "The grant is a rule in front of the instance's policies. It ends by itself, with its connections, also when no hostd runs then; approved once more it gets a new end. Private and other ranges that are denied by default, mail (tcp 25) and known servers of DNS over HTTPS need --to with what was asked for. Reply: {name, to, until}."},
        [METHOD_APPROVAL_DENY] = {"io.hostd.Approval.Deny", "deny", OPERATE, MUTATES, 0, params_deny, .doc = "Refuse what an instance asks for, or end what was granted",
                .manual = "Established connections that only the grant allowed end."},
        [METHOD_HOST_CARVE] = {"io.hostd.Host.Carve", "carve", ADMIN, MUTATES | SPECIAL, 0, params_carve, "plan", columns_carve, "Divide this host into equal instances",
                .manual = "Without write only the plan is made. hostctl prints it and asks before it calls again with write; --yes does not ask."},
        [METHOD_HOST_DOCTOR] = {"io.hostd.Host.Doctor", "doctor", VIEW, SPECIAL, 0, params_list, "protections", columns_doctor, "Say which protections this host enforces",
                .manual = "hostctl exits with 1 if a protection is missing."},
        [METHOD_HOST_LEAKS] = {"io.hostd.Host.Leaks", "leaks", VIEW, SPECIAL, 0, params_list, "leaks", columns_leak, "List kernel objects that should not exist",
                .manual = "hostctl prints nothing and exits with 0 if there are none, with 1 otherwise."},
        [METHOD_HOST_INFO] = {"io.hostd.Host.Info", "info", VIEW, 0, 0, params_object, .doc = "Show version, capacity and what is promised"},
        [METHOD_EVENTS_FOLLOW] = {"io.hostd.Events.Follow", "events", VIEW, MORE | METHOD_ONCE | SPECIAL, 0, params_events, .doc = "Show events as they happen",
                .manual = "The first answer is {events}, those that hostd still remembers; with more, each further one is {event}. hostctl follows with --follow."},
        [METHOD_AUDIT_VERIFY] = {"io.hostd.Audit.Verify", "audit verify", VIEW, 0, 0, params_object, .doc = "Check the audit log's hash chain"},
        [METHOD_AUDIT_TAIL] = {"io.hostd.Audit.Tail", "audit tail", VIEW, 0, 0, params_audit_tail, "records", columns_audit, "Show the newest audit records"},
        [METHOD_AUDIT_QUERY] = {"io.hostd.Audit.Query", "audit query", VIEW, 0, 0, params_audit_query, "records", columns_audit, "Search the audit log"},
        [METHOD_WARNING_LIST] = {"io.hostd.Warning.List", "warning list", VIEW, 0, 0, params_list, "warnings", columns_warning, "List warnings"},
        [METHOD_WARNING_CLEAR] = {"io.hostd.Warning.Clear", "warning clear", OPERATE, MUTATES, 0, params_warning_clear, .doc = "Forget a warning that was dealt with"},
        [METHOD_SECRET_SET] = {"io.hostd.Secret.Set", "secret set", ADMIN, MUTATES | SPECIAL, 1, params_secret_set, .doc = "Keep a new secret",
                .manual = "With command nothing is read; the answer waits for the first value that it prints, and the descriptor is not looked at. Otherwise the value is read from standard input, on a terminal as one line that is not shown. One line break at its end is left out unless --exact. The descriptor is a pipe that holds the whole value (at most 16 KiB) and whose other end is closed."},
        [METHOD_SECRET_ROTATE] = {"io.hostd.Secret.Rotate", "secret rotate", ADMIN, MUTATES | SPECIAL, 1, params_secret_value, .doc = "Put a new value in the place of a secret's old one",
                .manual = "As set. Refused when a place that was granted cannot take the new value."},
        [METHOD_SECRET_REVOKE] = {"io.hostd.Secret.Revoke", "secret revoke", ADMIN, MUTATES, 0, params_secret, .doc = "Forget a secret and end all its grants"},
        [METHOD_SECRET_LIST] = {"io.hostd.Secret.List", "secret list", VIEW, 0, 0, params_list, "secrets", columns_secret, "List secrets, without their values"},
        [METHOD_SECRET_GRANT] = {"io.hostd.Secret.Grant", "secret grant", ADMIN, MUTATES, 0, params_secret_grant, .doc = "Bind a secret to an instance, a host and a place in requests",
                .manual = "Exactly one of header, basic, query and file; all but file need a host. Reply: {id, placeholder}; the placeholder is what the workload writes where the value belongs. With file: {id, path}."},
        [METHOD_SECRET_UNGRANT] = {"io.hostd.Secret.Ungrant", "secret ungrant", ADMIN, MUTATES, 0, params_grant_id, .doc = "End a grant"},
        [METHOD_SECRET_GRANTS] = {"io.hostd.Secret.Grants", "secret grants", VIEW, 0, 0, params_secret_grants, "grants", columns_grant, "List what secrets are granted to"},
        [METHOD_SECRET_AUTHORITY] = {"io.hostd.Secret.Authority", "secret authority", OPERATE, MUTATES | SPECIAL, 0, params_name, .doc = "Show the certificate that an instance has to trust",
                .manual = "The authority of this instance, in PEM: leaves for the hosts of its grants are of it. Reply: {text}."},
};

const Method *method_get(MethodId id) {
        return &method_table[id];
}
