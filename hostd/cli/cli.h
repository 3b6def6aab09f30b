// SPDX-License-Identifier: GPL-2.0-or-later
// Cli: hostctl's frame: one connection, one command, one exit status.
#pragma once

#include "base/error.h"
#include "cli/args.h"
#include "wire/client.h"

#define CLI_EXIT_USAGE 2
#define CLI_SOCKET "/run/hostd/hostd.sock"

typedef struct Cli {
        const char *socket;
        Client *client; // cli_connect()
} Cli;

int cli_connect(Cli *cli, Error *err); // once; kept for further calls
// One call on the connection.
int cli_call(Cli *cli, const Method *method, json_t *parameters, json_t **ret, Error *err);
// Sends a call with one end of a new pipe, ours is the one that `writes` says; cli_receive() has the answer.
int cli_send_pipe(Cli *cli, const Method *method, json_t *parameters, bool writes, int *ret_fd, Error *err);
// `local`: what became of our side of the pipe. hostd's sentence is better than ours where both failed. `ret` may be NULL.
int cli_receive(Cli *cli, int local, Error *local_err, json_t **ret, Error *err);
// "hostctl: sentence" on stderr; returns the exit status of the error.
int cli_fail(const Error *err, int r);
void cli_complain(const char *format, ...) _printf_(1, 2);

// A command that has code of its own. Returns the exit status.
typedef int (*SpecialFn)(Cli *cli, Args *args);
SpecialFn special_find(const Method *method); // NULL: cli_run_method()
int cli_run_method(Cli *cli, Args *args);

// Commands of hostctl alone, which have no row.
typedef struct LocalCommand {
        const char *word, *doc;
        int (*run)(Cli *cli, char **argv);
} LocalCommand;
extern const LocalCommand local_commands[]; // ends with a NULL word

int command_exec(Cli *cli, Args *args);
int command_shell(Cli *cli, Args *args);
int command_console(Cli *cli, Args *args);
int command_start(Cli *cli, Args *args);
int command_wait(Cli *cli, Args *args);
int command_logs(Cli *cli, Args *args);
int command_file_push(Cli *cli, Args *args);
int command_file_pull(Cli *cli, Args *args);
int command_file_list(Cli *cli, Args *args);
int command_file_remove(Cli *cli, Args *args);
int command_file_stat(Cli *cli, Args *args);
int command_file_search(Cli *cli, Args *args);
int command_file_replace(Cli *cli, Args *args);
int command_file_move(Cli *cli, Args *args);
int command_file_mkdir(Cli *cli, Args *args);
int command_file_chmod(Cli *cli, Args *args);
int command_file_chown(Cli *cli, Args *args);
int command_file_watch(Cli *cli, Args *args);
int command_sandbox_create(Cli *cli, Args *args);
int command_diff(Cli *cli, Args *args);
int command_flows(Cli *cli, Args *args);
int command_why(Cli *cli, Args *args);
int command_packages(Cli *cli, Args *args);
int command_template_build(Cli *cli, Args *args);
int command_template_import(Cli *cli, Args *args);
int command_secret_value(Cli *cli, Args *args);
int command_carve(Cli *cli, Args *args);
int command_events(Cli *cli, Args *args);
int command_show(Cli *cli, Args *args);
int command_text(Cli *cli, Args *args);
int command_doctor(Cli *cli, Args *args);
int command_leaks(Cli *cli, Args *args);
int command_stdio(Cli *cli, char **argv);
int command_help(Cli *cli, char **argv);
int command_completion(Cli *cli, char **argv);
int command_manual(Cli *cli, char **argv);
int command_version(Cli *cli, char **argv);

void help_main(FILE *f);
void help_method(FILE *f, const Method *method);
bool help_group(FILE *f, const char *word); // false: no command begins with that word and another; f may be NULL
