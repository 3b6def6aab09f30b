// SPDX-License-Identifier: GPL-2.0-or-later
// Help: usage texts from the rows.
#include <string.h>

#include "cli/cli.h"

static void print_option_name(FILE *f, const Param *p) {
        char text[64];
        size_t n = (size_t) snprintf(text, sizeof(text), "--%s", p->name);

        for (char *c = text + 2; *c; c++)
                if (*c == '_')
                        *c = '-';
        if (p->type != PARAM_BOOL)
                snprintf(text + n, sizeof(text) - n, " %s", p->meta);
        if (p->letter)
                fprintf(f, "  -%c, %-22s", p->letter, text);
        else
                fprintf(f, "      %-22s", text);
}

void help_method(FILE *f, const Method *method) {
        _cleanup_free_ char *usage = args_usage(method);

        fprintf(f, "Usage: hostctl %s [OPTION...]%s%s\n\n%s.\n", method->words, usage && *usage ? " " : "", usage ?: "", method->doc);
        if (method->manual)
                fprintf(f, "\n%s\n", method->manual);
        fputs("\n", f);
        for (const Param *p = method->params; p->name; p++)
                if (p->flags & PARAM_POSITIONAL)
                        fprintf(f, "  %-26s%s\n", p->meta, p->doc);
        for (const Param *p = method->params; p->name; p++) {
                if (p->flags & PARAM_POSITIONAL)
                        continue;
                print_option_name(f, p);
                fprintf(f, "%s\n", p->doc);
        }
        if (method->flags & METHOD_ALL)
                fprintf(f, "      %-22s%s\n", "--all", "all instances");
        fprintf(f, "      %-22s%s\n  -h, %-22s%s\n", "--socket PATH", "hostd's socket", "--help", "this text");
        if (method->columns) {
                fputs("\nColumns:", f);
                for (const Column *c = method->columns; c->path; c++)
                        fprintf(f, "%s %s%s", c == method->columns ? "" : ",", c->path, c->hidden ? " (hidden)" : "");
                fputs("\n", f);
        }
        fprintf(f, "\nMethod: %s (access: %s)\n", method->name, method_access_name(method->access));
}

void help_main(FILE *f) {
        fputs("Usage: hostctl [--socket PATH] COMMAND...\n\nTurns a server into instances for agents.\n\n", f);
        for (int i = 0; i < _METHOD_MAX; i++)
                fprintf(f, "  %-18s %s\n", method_get(i)->words, method_get(i)->doc);
        fputs("\n", f);
        for (const LocalCommand *c = local_commands; c->word; c++)
                fprintf(f, "  %-18s %s\n", c->word, c->doc);
        fputs("\n`hostctl COMMAND --help` explains one of them, hostctl(1) all.\n", f);
}

static bool in_group(const Method *method, const char *word) {
        size_t n = strlen(word);

        return strncmp(method->words, word, n) == 0 && method->words[n] == ' ';
}

bool help_group(FILE *f, const char *word) {
        bool found = false;

        for (int i = 0; i < _METHOD_MAX; i++) {
                const Method *method = method_get(i);
                if (!in_group(method, word))
                        continue;
                if (f && !found)
                        fprintf(f, "Usage: hostctl %s COMMAND...\n\n", word);
                if (f)
                        fprintf(f, "  %-18s %s\n", method->words, method->doc);
                found = true;
        }
        return found;
}

int command_help(Cli *cli, char **argv) {
        _cleanup_free_ char *nearest = NULL, *typed = NULL;
        const Method *method;
        size_t used;
        bool group;

        if (!argv[0]) {
                help_main(stdout);
                return 0;
        }
        method = words_match(argv, &used);
        if (method) {
                help_method(stdout, method);
                return 0;
        }
        for (const LocalCommand *c = local_commands; c->word; c++)
                if (strcmp(c->word, argv[0]) == 0) {
                        printf("Usage: hostctl %s\n\n%s.\n", c->word, c->doc);
                        return 0;
                }
        group = help_group(NULL, argv[0]);
        if (group && (!argv[1] || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
                (void) help_group(stdout, argv[0]);
                return 0;
        }
        nearest = words_nearest(argv);
        if (asprintf(&typed, "%s%s%s", argv[0], group ? " " : "", group ? argv[1] : "") < 0)
                typed = NULL;
        // Of another group is no suggestion for who wrote this one's name.
        if (nearest && (!group || strncmp(nearest, argv[0], strlen(argv[0])) == 0))
                cli_complain("there is no command \"%s\"; did you mean \"%s\"?", typed ?: argv[0], nearest);
        else
                cli_complain("there is no command \"%s\"; `hostctl%s%s --help` lists them", typed ?: argv[0], group ? " " : "", group ? argv[0] : "");
        return CLI_EXIT_USAGE;
}

int command_version(Cli *cli, char **argv) {
        printf("hostctl %s\n", PACKAGE_VERSION);
        return 0;
}
