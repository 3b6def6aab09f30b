// SPDX-License-Identifier: GPL-2.0-or-later
// hostd-build: makes template images without privileges. hostd starts it as its own user with descriptors instead of
// paths ("fd:N"), because that user cannot walk hostd's directories; a person may give paths.
//
//   hostd-build build  --recipe FILE|fd:N [--suite SUITE] --network host|fd:N --out DIR|fd:N   (fd: where hostd makes a wire, see wire.h)
//   hostd-build import --name NAME [--input FILE|DIR|fd:N] --out DIR|fd:N      (default: a tar stream on stdin)
//   hostd-build served                                                         the above by a message on stdin, see serve.h
//
// stdout: "progress PERCENT TEXT" lines, then nothing (exit 0) or one "error CODE TEXT" (exit status of the code).
#include <ctype.h>
#include <fcntl.h>
#include <getopt.h>
#include <locale.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/valid.h"
#include "build/job.h"
#include "build/recipe.h"
#include "build/serve.h"

static int main_open(const char *option, const char *value, int flags, Error *err) {
        char *end;
        int fd;

        if (strncmp(value, "fd:", 3) == 0) {
                long n = isdigit((unsigned char) value[3]) ? strtol(value + 3, &end, 10) : -1;
                if (n < 0 || n > 1023 || *end || fcntl((int) n, F_SETFD, FD_CLOEXEC) < 0)
                        return error_set_field(err, option, "%s \"%s\" is no open descriptor", option, value);
                return (int) n;
        }
        // The last component is no link: what is packed is what was named.
        fd = open(value, flags | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
        return fd < 0 ? error_set_errno(err, errno, "cannot open %s (%s)", value, option) : fd;
}

static int main_recipe(const char *value, char **ret, Error *err) {
        _cleanup_close_ int fd = main_open("--recipe", value, O_RDONLY, err);
        char path[64];
        int r;

        if (fd < 0)
                return fd;
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        _cleanup_free_ char *text = calloc(1, RECIPE_SIZE_MAX + 2);
        size_t used = 0;
        if (!text)
                return error_set_errno(err, ENOMEM, "recipe");
        for (;;) {
                ssize_t n = pread(fd, text + used, RECIPE_SIZE_MAX + 1 - used, (off_t) used);
                if (n < 0)
                        return error_set_errno(err, errno, "cannot read %s", value);
                if (n == 0)
                        break;
                used += (size_t) n;
        }
        r = used > RECIPE_SIZE_MAX || strlen(text) != used
                    ? error_set(err, ERR_INVALID, "%s is no recipe: at most 256 KiB of UTF-8 text", value)
                    : 0;
        if (r >= 0)
                *ret = TAKE_PTR(text);
        return r;
}

typedef struct Options {
        const char *recipe, *suite, *name, *input, *network, *out;
} Options;

static int main_options(int argc, char **argv, Options *o, Error *err) {
        static const struct option table[] = {
                {"recipe", required_argument, NULL, 'r'}, {"suite", required_argument, NULL, 's'},
                {"name", required_argument, NULL, 'n'},   {"input", required_argument, NULL, 'i'},
                {"out", required_argument, NULL, 'o'},    {"network", required_argument, NULL, 'w'},
                {NULL, 0, NULL, 0},
        };
        const char **slots[256] = {['r'] = &o->recipe, ['s'] = &o->suite, ['n'] = &o->name, ['i'] = &o->input, ['o'] = &o->out, ['w'] = &o->network};
        int c;

        opterr = 0;
        while ((c = getopt_long(argc, argv, "+", table, NULL)) != -1) {
                if (c < 0 || c > 255 || !slots[c])
                        return error_set(err, ERR_INVALID, "unknown option %s", argv[optind - 1]);
                *slots[c] = optarg;
        }
        if (optind != argc || !o->out)
                return error_set(err, ERR_INVALID,
                                 "usage: hostd-build build --recipe FILE [--suite SUITE] --network host --out DIR | import --name NAME "
                                 "[--input FILE|DIR] --out DIR");
        return 0;
}

// Never by itself that of the host: who builds by hand says so.
static int main_network(const char *value, JobSpec *spec, Error *err) {
        if (!value)
                return error_set_field(err, "--network", "--network is missing: \"host\" is the network of whoever calls, without the border");
        spec->network = strcmp(value, "host") == 0 ? JAIL_HOST : JAIL_WIRED;
        if (spec->network == JAIL_WIRED && strncmp(value, "fd:", 3) != 0)
                return error_set_field(err, "--network", "--network must be host or fd:N");
        spec->wire_fd = spec->network == JAIL_WIRED ? main_open("--network", value, 0, err) : -EBADF;
        return spec->network == JAIL_WIRED ? spec->wire_fd : 0;
}

static int main_run(int argc, char **argv, Error *err) {
        _cleanup_close_ int out = -EBADF, input = -EBADF;
        _cleanup_free_ char *text = NULL;
        Options o = {0};
        JobSpec spec = {.input_fd = STDIN_FILENO, .wire_fd = -EBADF};
        bool build = argc > 1 && strcmp(argv[1], "build") == 0;
        int r;

        if (!build && (argc < 2 || strcmp(argv[1], "import") != 0))
                return error_set(err, ERR_INVALID, "the first argument must be build or import");
        r = main_options(argc - 1, argv + 1, &o, err);
        if (r >= 0 && o.suite)
                r = valid_check(VALID_SUITE, "--suite", o.suite, err);
        if (r >= 0 && build)
                r = o.recipe ? main_recipe(o.recipe, &text, err) : error_set_field(err, "--recipe", "--recipe is missing");
        if (r >= 0 && build)
                r = main_network(o.network, &spec, err);
        if (r >= 0 && !build)
                r = valid_check(VALID_NAME, "--name", o.name, err);
        if (r >= 0 && o.input)
                r = spec.input_fd = input = main_open("--input", o.input, O_RDONLY, err);
        if (r >= 0)
                r = out = main_open("--out", o.out, O_RDONLY | O_DIRECTORY, err);
        if (r < 0)
                return r;
        spec.origin = o.recipe && strncmp(o.recipe, "fd:", 3) != 0 ? o.recipe : "recipe";
        spec.recipe_text = text;
        spec.suite = o.suite;
        spec.name = o.name;
        spec.out_fd = out;
        return job_run(&spec, err);
}

int main(int argc, char **argv) {
        _cleanup_error_ Error err = ERROR_NULL;
        char *words[SERVE_WORDS_MAX];
        int r = 0;

        // libarchive converts names by the locale; the environment's is not asked.
        (void) setlocale(LC_CTYPE, "C.UTF-8");
        (void) umask(0022);
        if (argc == 2 && strcmp(argv[1], "served") == 0) {
                r = serve(&argc, words, &err);
                argv = words;
        }
        if (r >= 0)
                r = main_run(argc, argv, &err);
        if (r >= 0) {
                job_progress(100, "done");
                return 0;
        }
        const ErrorInfo *info = error_code_info(err.code ?: ERR_INTERNAL);
        _cleanup_free_ char *shown = valid_printable(error_message(&err, r));
        (void) printf("error %s %s\n", info->name, shown ?: "out of memory");
        (void) fflush(stdout);
        return info->exit_status;
}
