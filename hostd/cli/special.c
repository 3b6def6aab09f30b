// SPDX-License-Identifier: GPL-2.0-or-later
// Special: which commands have code of their own. A test holds the list against the rows' METHOD_SPECIAL.
#include <string.h>

#include "cli/cli.h"

static const struct {
        MethodId method;
        SpecialFn run;
} special_table[] = {
        {METHOD_INSTANCE_SHOW, command_show},       {METHOD_INSTANCE_CONSOLE, command_console},
        {METHOD_INSTANCE_LOG, command_text},        {METHOD_INSTANCE_DIFF, command_diff},
        {METHOD_INSTANCE_FLOWS, command_flows},     {METHOD_INSTANCE_WHY, command_why},
        {METHOD_COMMAND_EXEC, command_exec},        {METHOD_COMMAND_SHELL, command_shell},
        {METHOD_COMMAND_ATTACH, command_wait},      {METHOD_COMMAND_LOGS, command_logs},
        {METHOD_COMMAND_START, command_start},
        {METHOD_FILE_PUSH, command_file_push},      {METHOD_FILE_PULL, command_file_pull},
        {METHOD_FILE_LIST, command_file_list},      {METHOD_FILE_REMOVE, command_file_remove},
        {METHOD_FILE_STAT, command_file_stat},      {METHOD_FILE_SEARCH, command_file_search},
        {METHOD_FILE_REPLACE, command_file_replace}, {METHOD_FILE_MOVE, command_file_move},
        {METHOD_FILE_MKDIR, command_file_mkdir},    {METHOD_FILE_CHMOD, command_file_chmod},
        {METHOD_FILE_CHOWN, command_file_chown},    {METHOD_FILE_WATCH, command_file_watch},
        {METHOD_SANDBOX_CREATE, command_sandbox_create}, {METHOD_SANDBOX_EXEC, command_exec},
        {METHOD_TEMPLATE_BUILD, command_template_build}, {METHOD_TEMPLATE_IMPORT, command_template_import},
        {METHOD_CONFIG_DIFF, command_text},         {METHOD_POLICY_SHOW, command_show},
        {METHOD_NETWORK_SHOW, command_show},        {METHOD_NETWORK_PACKAGES, command_packages},
        {METHOD_HOST_CARVE, command_carve},
        {METHOD_HOST_DOCTOR, command_doctor},       {METHOD_HOST_LEAKS, command_leaks},
        {METHOD_EVENTS_FOLLOW, command_events},     {METHOD_SECRET_SET, command_secret_value},
        {METHOD_SECRET_ROTATE, command_secret_value}, {METHOD_SECRET_AUTHORITY, command_text},
};

SpecialFn special_find(const Method *method) {
        for (size_t i = 0; i < ELEMENTS(special_table); i++)
                if (method_get(special_table[i].method) == method)
                        return special_table[i].run;
        return NULL;
}

const LocalCommand local_commands[] = {
        {"help", "Explain a command", command_help},
        {"completion", "Print the completion script for bash", command_completion},
        {"manual", "Print the manual of all commands and methods", command_manual},
        {"stdio", "Relay standard input and output to hostd's socket", command_stdio},
        {"version", "Print the version", command_version},
        {NULL},
};
