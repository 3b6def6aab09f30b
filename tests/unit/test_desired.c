// SPDX-License-Identifier: GPL-2.0-or-later
// The desired set: defaults and presets, files on disk, refusals with file and line, edits, differences.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/io.h"
#include "model/desired.h"

// libconfig 1.5 forgets the string it was reading when the text ends in it; that leak is not ours.
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
        return "leak:strbuf_append\nleak:libconfig_yy\n";
}

static char *top;
static int etc = -EBADF;

static int setup(void **state) {
        char template[] = "/tmp/test_desired.XXXXXX";

        top = strdup(mkdtemp(template));
        etc = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return etc < 0 ? -1 : 0;
}

static int teardown(void **state) {
        int r = io_remove_tree(AT_FDCWD, top);

        etc = close_fd(etc);
        free(top);
        return r;
}

static void put(const char *path, const char *text) {
        _cleanup_free_ char *folder = strdup(path);

        assert_non_null(folder);
        if (strchr(folder, '/')) {
                *strchr(folder, '/') = 0;
                assert_int_equal(io_mkdir_p(etc, folder, 0755), 0);
        }
        assert_int_equal(io_write_atomic(etc, path, text, strlen(text), 0644), 0);
}

static Desired *load_or_fail(void) {
        _cleanup_error_ Error err = ERROR_NULL;
        Desired *desired = NULL;

        if (desired_load(etc, &desired, &err) < 0)
                fail_msg("%s", err.message);
        return desired;
}

static size_t row_of(const char *key) {
        size_t i = 0;

        while (i < instance_schema_size() && strcmp(instance_schema_key(i), key) != 0)
                i++;
        assert_true(i < instance_schema_size());
        return i;
}

static void test_empty(void **state) {
        _cleanup_(desired_freep) Desired *desired = load_or_fail();

        assert_int_equal(desired->n_instances, 0);
        assert_int_equal(desired->n_policies, 0);
        assert_null(desired->recipes);
        assert_string_equal(desired->host.uplink, "auto");
        assert_null(desired->host.network.uplink);
        assert_string_equal(desired->host.default_template, "agent");
        assert_int_equal(desired->host.network.ipv4_prefix, 16);
        assert_int_equal(desired->host.network.ipv6_prefix, 64);
        assert_true(desired->host.network.ipv6_nat);
        assert_true(desired->host.memory_reserve_bytes == UINT64_MAX);
}

static void test_set(void **state) {
        put("hostd.conf", "uplink = \"eth0\"; default_policies = [ \"dns\" ]; memory_reserve = \"4GiB\"; allow_degraded = [ \"apparmor\" ];");
        put("policies.d/web.conf", "rules = ( { action = \"allow\"; to = \"192.0.2.0/24\"; protocol = \"tcp\"; ports = \"443\"; } );");
        put("policies.d/dns.conf", "");
        put("instances.d/b.conf", "memory = \"4GiB\"; preset = \"large\"; policies = [ \"web\", \"dns\" ]; labels = ( \"z=1\", \"a.b=c d\" );\n"
                                  "allow_degraded = [ \"quota.inodes\" ];");
        put("instances.d/a.conf", "");
        put("templates.d/mine.conf", "anything");
        put("instances.d/a.conf.bak", "not ours {");
        put("instances.d/.b.conf.12.tmp", "half {");
        _cleanup_(desired_freep) Desired *desired = load_or_fail();
        assert_int_equal(desired->n_instances, 2);
        assert_int_equal(desired->n_policies, 2);
        assert_string_equal(desired->recipes[0], "mine");
        assert_string_equal(desired->host.network.uplink, "eth0");
        InstanceConfig *a = desired_find_instance(desired, "a"), *b = desired_find_instance(desired, "b");
        assert_null(desired_find_instance(desired, "c"));
        assert_int_equal(desired_find_policy(desired, "web")->n_rules, 1);
        assert_ptr_equal(a, desired->instances[0]);
        // Defaults, the host's, the preset's, the file's.
        assert_true(a->limits.value[LIMIT_MEMORY] == 2ULL << 30 && a->limits.value[LIMIT_PIDS] == 1024);
        assert_true(a->limits.value[LIMIT_DISK] == 10ULL << 30 && a->limits.value[LIMIT_SWAP] == 0);
        assert_true(a->limits.value[LIMIT_OPEN_FILES] == 65536 && a->limits.value[LIMIT_CPU] == 1000);
        assert_true(a->stop_timeout == 90 * USEC_PER_SEC && a->boot == BOOT_LAST && !a->read_only);
        assert_true(a->dns_rate == 200 && a->dns_burst == 400 && a->dns_names == 100 && !a->dns_types);
        assert_string_equal(a->policies[0], "dns");
        assert_string_equal(a->template, "agent");
        assert_string_equal(a->allow_degraded[0], "apparmor");
        assert_true(b->limits.value[LIMIT_MEMORY] == 4ULL << 30 && b->limits.value[LIMIT_PIDS] == 8192);
        assert_int_equal(b->n_labels, 2);
        assert_string_equal(b->labels[0].key, "a.b");
        assert_string_equal(b->labels[0].value, "c d");
        assert_true(strv_contains(b->allow_degraded, "apparmor") && strv_contains(b->allow_degraded, "quota.inodes"));
        static const struct {
                const char *key;
                ValueSource a, b;
        } sources[] = {
                {"memory", SOURCE_DEFAULT, SOURCE_INSTANCE}, {"pids", SOURCE_DEFAULT, SOURCE_PRESET}, {"policies", SOURCE_HOST, SOURCE_INSTANCE},
                {"template", SOURCE_HOST, SOURCE_HOST}, {"swap", SOURCE_DEFAULT, SOURCE_DEFAULT}, {"preset", SOURCE_DEFAULT, SOURCE_INSTANCE},
        };
        for (size_t i = 0; i < ELEMENTS(sources); i++) {
                assert_int_equal(a->sources[row_of(sources[i].key)], sources[i].a);
                assert_int_equal(b->sources[row_of(sources[i].key)], sources[i].b);
        }
}

// One bad file refuses the set; the sentence begins with file and line.
static void test_refused(void **state) {
        static const struct {
                const char *path, *text, *sentence, *field;
        } cases[] = {
                {"instances.d/x.conf", "\n\nmemory = \"lots\";", "instances.d/x.conf:3: memory \"lots\"", "memory"},
                {"instances.d/x.conf", "memory = \"1KiB\";", "instances.d/x.conf:1: memory 1KiB is out of range", "memory"},
                {"instances.d/x.conf", "memory = \"max\";", "instances.d/x.conf:1: memory cannot be unlimited", "memory"},
                {"instances.d/x.conf", "memory = -1;", "instances.d/x.conf:1: memory \"-1\"", "memory"},
                {"instances.d/x.conf", "cpu = 1e999;", "instances.d/x.conf:1: cpu \"inf\"", "cpu"},
                {"instances.d/x.conf", "pids = 99999999999999999999;", "instances.d/x.conf:1:", NULL},
                {"instances.d/x.conf", "\ncolour = 1;", "instances.d/x.conf:2: colour is not a known key", "colour"},
                {"instances.d/x.conf", "pids = 100;\npids = 100;", "instances.d/x.conf:2: duplicate setting name", NULL},
                {"instances.d/x.conf", "boot = 1;", "instances.d/x.conf:1: boot must be a string", "boot"},
                {"instances.d/x.conf", "boot = \"no\";", "instances.d/x.conf:1: boot \"no\" is not valid: it must be one of last, on, off", "boot"},
                {"instances.d/x.conf", "dns_rate = 0;", "instances.d/x.conf:1: dns_rate \"0\"", "dns_rate"},
                {"instances.d/x.conf", "dns_burst = 100001;", "instances.d/x.conf:1: dns_burst \"100001\"", "dns_burst"},
                {"instances.d/x.conf", "dns_names = \"many\";", "instances.d/x.conf:1: dns_names", "dns_names"},
                {"instances.d/x.conf", "dns_types = [\"TXT\", \"ANY\"];", "instances.d/x.conf:1: dns_types \"ANY\" is not valid: it must be one of TXT", "dns_types"},
                {"instances.d/x.conf", "boot_order = 1001;", "instances.d/x.conf:1: boot_order \"1001\"", "boot_order"},
                {"instances.d/x.conf", "boot_order = 0.5;", "instances.d/x.conf:1: boot_order must be a whole number", "boot_order"},
                {"instances.d/x.conf", "stop_timeout = \"2h\";", "instances.d/x.conf:1: stop_timeout \"2h\"", "stop_timeout"},
                {"instances.d/x.conf", "read_only = \"yes\";", "instances.d/x.conf:1: read_only must be true or false", "read_only"},
                {"instances.d/x.conf", "preset = \"huge\";", "instances.d/x.conf:1: preset \"huge\"", "preset"},
                {"instances.d/x.conf", "policies = [ \"none\" ];", "instances.d/x.conf:1: policies names \"none\"", "policies"},
                {"instances.d/x.conf", "policies = [ \"p\", \"p\" ];", "instances.d/x.conf:1: policies names \"p\" twice", "policies"},
                {"instances.d/x.conf", "labels = [ \"a\" ];", "instances.d/x.conf:1: labels \"a\"", "labels"},
                {"instances.d/x.conf", "labels = [ \"a=1\", \"a=2\" ];", "instances.d/x.conf:1: labels has \"a\" twice", "labels"},
                {"instances.d/x.conf", "labels = [ \"A=1\" ];", "instances.d/x.conf:1: labels \"A\"", "labels"},
                {"instances.d/x.conf", "labels = { a = \"1\"; };", "instances.d/x.conf:1: labels must be a list", "labels"},
                {"instances.d/x.conf", "@include \"/etc/passwd\"", "instances.d/x.conf:1: @include is not supported", NULL},
                {"instances.d/x.conf", "/*\n \t@INCLUDE \"x\" */", "instances.d/x.conf:2: @include is not supported", NULL},
                {"instances.d/x.conf", "memory = \n;", "instances.d/x.conf:2: a value is missing", NULL},
                {"instances.d/x.conf", "memory \"1GiB\";", "instances.d/x.conf:1: \"=\" is missing", NULL},
                {"instances.d/x.conf", "# ok\nmemory = \"1GiB;", "instances.d/x.conf:2: a string is not closed", NULL},
                {"instances.d/x.conf", "/* open", "instances.d/x.conf:1: a comment is not closed", NULL},
                {"instances.d/x.conf", "labels = [ \"a=b\";", "instances.d/x.conf:1: ", NULL},
                {"instances.d/x.conf", "labels = (((((((((", "instances.d/x.conf:1: brackets are nested too deep", NULL},
                {"instances.d/x.conf", "description = \"\xff\";", "instances.d/x.conf:1: the text is not valid UTF-8", NULL},
                {"instances.d/X.conf", "", "instances.d/X.conf: the file's name must be", "name"},
                {"instances.d/a.b.conf", "", "instances.d/a.b.conf: the file's name must be", "name"},
                {"hostd.conf", "ipv4_pool = \"10.209.0.1/16\";", "hostd.conf:1: ipv4_pool \"10.209.0.1/16\"", "ipv4_pool"},
                {"hostd.conf", "ipv4_pool = \"127.0.0.0/16\";", "hostd.conf:1: ipv4_pool", "ipv4_pool"},
                {"hostd.conf", "ipv4_pool = \"10.0.0.0/8\";", "hostd.conf:1: ipv4_pool", "ipv4_pool"},
                {"hostd.conf", "ipv4_pool = \"fd00::/64\";", "hostd.conf:1: ipv4_pool", "ipv4_pool"},
                {"hostd.conf", "ipv6_pool = \"fe80::/64\";", "hostd.conf:1: ipv6_pool", "ipv6_pool"},
                {"hostd.conf", "ipv6_pool = \"fd00::1/64\";", "hostd.conf:1: ipv6_pool", "ipv6_pool"},
                {"hostd.conf", "default_policies = [ \"gone\" ];", "hostd.conf:1: default_policies names \"gone\"", "default_policies"},
                {"hostd.conf", "audit_keep_days = 0;", "hostd.conf:1: audit_keep_days \"0\"", "audit_keep_days"},
                {"hostd.conf", "resolver_upstream = [ \"dns.example.org\" ];", "hostd.conf:1: resolver_upstream", "resolver_upstream"},
                {"hostd.conf", "resolver_upstream = [ \"192.0.2.0/24\" ];", "hostd.conf:1: resolver_upstream \"192.0.2.0/24\" is a network", "resolver_upstream"},
                {"hostd.conf", "memory = 1;", "hostd.conf:1: memory is not a known key", "memory"},
                {"policies.d/x.conf", "rules = ( { action = \"allow\"; } );", "policies.d/x.conf:1: rules[0].to is missing", "rules[0].to"},
                {"policies.d/x.conf", "rules = (\n{ action = \"allow\"; to = \"192.0.2.1\"; },\n{ to = \"192.0.2.1\"; } );",
                 "policies.d/x.conf:3: rules[1].action is missing", "rules[1].action"},
                {"policies.d/x.conf", "rules = ( { action = \"permit\"; to = \"192.0.2.1\"; } );", "policies.d/x.conf:1: rules[0]: action \"permit\"", "rules[0].action"},
                {"policies.d/x.conf", "rules = ( { action = \"allow\"; to = \"example\"; } );", "policies.d/x.conf:1: rules[0].to \"example\" is no host name", "rules[0].to"},
                {"policies.d/x.conf", "rules = ( { action = \"allow\"; to = \"a.example.org;b\"; } );", "policies.d/x.conf:1: rules[0]: to \"a.example.org;b\"", "rules[0].to"},
                {"policies.d/x.conf", "rules = ( { action = \"allow\"; to = \"*.co.uk\"; } );", "policies.d/x.conf:1: rules[0].to \"*.co.uk\" is too wide", "rules[0].to"},
                {"policies.d/x.conf", "rules = (\n{ action = \"allow\"; to = \"@none\"; } );",
                 "policies.d/x.conf:2: rules[0].to names the category \"none\", and there is no categories.d/none.conf", "rules[0].to"},
                {"policies.d/x.conf", "rules = ( { action = \"allow\"; to = \"a.example.org\"; methods = [ \"get\" ]; } );", "policies.d/x.conf:1: rules[0]: methods", "rules[0].methods"},
                {"policies.d/x.conf", "rules = ( { action = \"allow\"; to = \"a.example.org\"; paths = [ \"x\" ]; } );", "policies.d/x.conf:1: rules[0]: paths", "rules[0].paths"},
                {"policies.d/x.conf", "rules = ( { action = \"allow\"; to = \"192.0.2.1\"; inspect = true; } );", "policies.d/x.conf:1: rules[0].inspect needs a name", "rules[0].inspect"},
                {"policies.d/x.conf", "rules = ( { action = \"allow\"; to = \"a.example.org\"; ports = \"22\"; methods = [ \"GET\" ]; } );", "policies.d/x.conf:1: rules[0].methods is for tcp 80 and 443",
                 "rules[0].methods"},
                {"policies.d/x.conf", "rules = ( { action = \"deny\"; to = \"a.example.org\"; rate = \"1MiB\"; } );", "policies.d/x.conf:1: rules[0].rate has no meaning", "rules[0].rate"},
                {"policies.d/x.conf", "rules = ( { action = \"allow\"; to = \"192.0.2.1\"; rate = \"1MiB\"; } );", "policies.d/x.conf:1: rules[0].rate needs a name in rules[0].to", "rules[0].rate"},
                {"policies.d/x.conf", "rules = ( { action = \"allow\"; to = \"a.example.org\"; ports = \"443,9000\"; budget = \"1MiB\"; } );",
                 "policies.d/x.conf:1: rules[0].budget is for tcp 80 and 443 only", "rules[0].budget"},
                {"policies.d/x.conf", "rules = ( { action = \"allow\"; to = \"a.example.org\"; protocol = \"udp\"; ports = \"123\"; rate = \"1MiB\"; } );",
                 "policies.d/x.conf:1: rules[0].rate is for tcp 80 and 443 only", "rules[0].rate"},
                {"categories.d/x.conf", "a.example.org\nb example.org", "categories.d/x.conf:2: there is more than one word", "entry"},
                {"categories.d/X.conf", "", "categories.d/X.conf: the file's name must be", "name"},
                {"policies.d/x.conf", "rules = ( { action = \"allow\"; to = \"192.0.2.1/24\"; } );", "policies.d/x.conf:1: rules[0].to", "rules[0].to"},
                {"policies.d/x.conf", "rules = ( { action = \"allow\"; to = \"192.0.2.1\"; ports = \"80\"; } );", "policies.d/x.conf:1: rules[0].ports", "rules[0].ports"},
                {"policies.d/x.conf", "rules = ( { action = \"allow\"; to = \"192.0.2.1\"; via = 1; } );", "policies.d/x.conf:1: rules[0]: via is not a known key", "rules[0].via"},
                {"policies.d/x.conf", "rules = [ \"all\" ];", "policies.d/x.conf:1: rules must be a list of groups", "rules"},
                {"policies.d/x.conf", "rules = ( 1 );", "policies.d/x.conf:1: rules must be a list of groups", "rules"},
        };

        put("policies.d/p.conf", "");
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                Desired *desired = NULL;
                put(cases[i].path, cases[i].text);
                if (desired_load(etc, &desired, &err) >= 0)
                        fail_msg("accepted: %s", cases[i].text);
                if (strncmp(err.message, cases[i].sentence, strlen(cases[i].sentence)) != 0)
                        fail_msg("%s: %s", cases[i].text, err.message);
                assert_int_equal(err.code, ERR_INVALID);
                if (cases[i].field)
                        assert_string_equal(err.field, cases[i].field);
                assert_null(desired);
                assert_int_equal(desired_load(etc, &desired, NULL), -EINVAL);
                assert_int_equal(unlinkat(etc, cases[i].path, 0), 0);
        }
}

static void test_files(void **state) {
        _cleanup_error_ Error linked = ERROR_NULL, nul = ERROR_NULL, fifo = ERROR_NULL, large = ERROR_NULL, folder = ERROR_NULL;
        _cleanup_free_ char *big = malloc((1 << 20) + 2);
        Desired *desired = NULL;

        put("instances.d/a.conf", "");
        assert_int_equal(symlinkat("/etc/hostname", etc, "hostd.conf"), 0);
        assert_true(desired_load(etc, &desired, &linked) < 0);
        assert_string_equal(linked.message, "hostd.conf is not a regular file");
        assert_int_equal(unlinkat(etc, "hostd.conf", 0), 0);
        assert_int_equal(io_write_atomic(etc, "hostd.conf", "uplink\0=", 8, 0644), 0);
        assert_true(desired_load(etc, &desired, &nul) < 0);
        assert_string_equal(nul.message, "hostd.conf contains a NUL byte");
        assert_int_equal(unlinkat(etc, "hostd.conf", 0), 0);
        assert_int_equal(mkfifoat(etc, "instances.d/f.conf", 0600), 0);
        assert_true(desired_load(etc, &desired, &fifo) < 0);
        assert_string_equal(fifo.message, "instances.d/f.conf is not a regular file");
        assert_int_equal(unlinkat(etc, "instances.d/f.conf", 0), 0);
        assert_non_null(big);
        memset(big, ' ', (1 << 20) + 1);
        assert_int_equal(io_write_atomic(etc, "hostd.conf", big, (1 << 20) + 1, 0644), 0);
        assert_true(desired_load(etc, &desired, &large) < 0);
        assert_string_equal(large.message, "hostd.conf is larger than 1 MiB");
        assert_int_equal(unlinkat(etc, "hostd.conf", 0), 0);
        assert_int_equal(renameat(etc, "instances.d", etc, "elsewhere"), 0);
        assert_int_equal(symlinkat("elsewhere", etc, "instances.d"), 0);
        assert_true(desired_load(etc, &desired, &folder) < 0);
        assert_non_null(strstr(folder.message, "cannot open instances.d"));
}

// libconfig 1.5 would make 512 MiB of the first one.
static void test_long_numbers(void **state) {
        static const struct {
                const char *text;
                uint64_t memory; // 0: refused
        } cases[] = {
                {"memory = 4831838208;", 4831838208},          {"memory = 4831838208L;", 4831838208},
                {"memory = 0x120000000;", 4831838208},         {"pids = 100; memory = 4294967296 // 4 GiB\n", 4294967296},
                {"memory = 2147483648; pids = 100", 2147483648}, {"memory = 68719476736; description = \"99999999999\";", 68719476736},
                {"memory = 99999999999999999999;", 0},         {"memory = -4294967296;", 0},
                {"boot_order = 4294967296;", 0},               {"boot_order = -8589934592;", 0},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(instance_config_freep) InstanceConfig *config = NULL;
                _cleanup_free_ char *text = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                assert_true(asprintf(&text, "template = \"x\";\n%s", cases[i].text) > 0);
                int r = instance_config_parse("a", text, NULL, &config, &err);
                if (cases[i].memory == 0) {
                        assert_int_equal(r, -EINVAL);
                        assert_null(config);
                        continue;
                }
                if (r < 0)
                        fail_msg("%s: %s", cases[i].text, err.message);
                assert_true(config->limits.value[LIMIT_MEMORY] == cases[i].memory);
        }
}

static Desired *load_edited(const char *path, const char *text, const Desired *old, Error *err) {
        DesiredEdit edit = {path, text};
        Desired *desired = NULL;

        return desired_reload(etc, old, &edit, &desired, err) < 0 ? NULL : desired;
}

// A file is looked at as it would be; nothing on disk changes by that.
static void test_edited_files(void **state) {
        _cleanup_(desired_freep) Desired *old = NULL, *more = NULL, *changed = NULL, *less = NULL, *host = NULL, *bad = NULL, *used = NULL;
        _cleanup_error_ Error err = ERROR_NULL, other = ERROR_NULL;

        put("policies.d/web.conf", "rules = ( { action = \"allow\"; to = \"192.0.2.1\"; } );\n");
        put("instances.d/a.conf", "policies = [ \"web\" ];\n");
        old = load_or_fail();
        more = load_edited("policies.d/abc.conf", "rules = ();\n", old, NULL);
        assert_int_equal(more->n_policies, 2);
        assert_string_equal(more->policies[0]->name, "abc"); // in order
        changed = load_edited("policies.d/web.conf", "rules = ();\n", old, NULL);
        assert_int_equal(changed->n_policies, 1);
        assert_int_equal(changed->policies[0]->n_rules, 0);
        less = load_edited("instances.d/a.conf", NULL, old, NULL);
        assert_int_equal(less->n_instances, 0);
        host = load_edited("hostd.conf", "audit_keep_days = 7;\n", old, NULL);
        assert_int_equal(host->host.audit_keep_days, 7);
        bad = load_edited("policies.d/web.conf", "rules = 7;\n", old, &err);
        assert_null(bad);
        assert_non_null(strstr(err.message, "policies.d/web.conf:1"));
        used = load_edited("policies.d/web.conf", NULL, old, &other);
        assert_null(used);
        assert_non_null(strstr(other.message, "instances.d/a.conf"));
        (void) desired_free(old);
        old = load_or_fail();
        assert_int_equal(old->policies[0]->n_rules, 1);
}

static void test_edit(void **state) {
        static const struct {
                const char *text, *key, *value, *wanted; // NULL: refused
        } cases[] = {
                {NULL, "memory", "4GiB", "memory = \"4GiB\";\n"},
                {"# keep\nmemory = \"1GiB\"; # why\npids = 100;\n", "memory", "4GiB", "# keep\nmemory = \"4GiB\"; # why\npids = 100;\n"},
                {"# keep\n  memory = \"1GiB\";\npids = 100;\n", "memory", NULL, "# keep\npids = 100;\n"},
                {"memory=\"1GiB\" pids=100", "pids", "200", "memory=\"1GiB\" pids = 200;"},
                {"memory=\"1GiB\" pids=100", "memory", NULL, " pids=100"},
                {"pids = 100; // end", "cpu", "2", "pids = 100; // end\ncpu = 2;\n"},
                {"/* memory = 1; */ memory = \"1GiB\"\n", "memory", "2GiB", "/* memory = 1; */ memory = \"2GiB\";\n"},
                {"description = \"memory = 1; \\\" {\" \"x\";\n", "memory", "2GiB", "description = \"memory = 1; \\\" {\" \"x\";\nmemory = \"2GiB\";\n"},
                {"", "policies", "web,dns", "policies = [ \"web\", \"dns\" ];\n"},
                {"", "policies", "", "policies = [];\n"},
                {"", "read_only", "true", "read_only = true;\n"},
                {"", "labels.team.a", "x, y", "labels = [ \"team.a=x, y\" ];\n"},
                {"labels = ( \"b=2\", \"a=1\" );\n", "labels.a", "3", "labels = [ \"a=3\", \"b=2\" ];\n"},
                {"labels = [ \"b=2\", \"a=1\" ];\n", "labels.b", NULL, "labels = [ \"a=1\" ];\n"},
                {"labels = [ \"a=1\" ];\n", "labels.a", NULL, ""},
                {"labels = [ \"a=1\" ];\npids = 100;\n", "labels", NULL, "pids = 100;\n"},
                {"pids = 100;\n", "cpu", NULL, "pids = 100;\n"},
                {"", "labels", "a=1", NULL},
                {"", "labels.A", "1", NULL},
                {"", "labels.a", "it's", NULL},
                {"", "labels.", "1", NULL},
                {"", "labels.a\nb", "1", NULL},
                {"", "color", "red", NULL},
                {"", "color", NULL, NULL},
                {"", "memory", "1\nGiB", NULL},
                {"", "memory", "", NULL},
                {"", "memory\"", "1GiB", NULL},
                {"", "cpu", "-1", NULL},
                {"color = 1;", "memory", "1GiB", NULL},
                {"memory = ", "memory", "1GiB", NULL},
                {"memory = \"bad\";\n", "memory", "1GiB", "memory = \"1GiB\";\n"},
                {"memory = \"bad\";\n", "pids", "100", NULL},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                _cleanup_free_ char *text = NULL;
                int r = instance_text_set(cases[i].text, cases[i].key, cases[i].value, &text, &err);
                if (cases[i].wanted) {
                        if (r < 0)
                                fail_msg("case %zu: %s", i, err.message);
                        assert_string_equal(text, cases[i].wanted);
                } else {
                        if (r >= 0)
                                fail_msg("case %zu: accepted", i);
                        assert_int_equal(err.code, ERR_INVALID);
                        assert_non_null(err.message);
                        assert_null(strpbrk(err.message, "\n\r"));
                        assert_null(text);
                }
        }
}

// What a category stands for is part of each policy that names it, whether or not the policy's file changes.
static void test_categories(void **state) {
        static const char text[] = "rules = ( { action = \"allow\"; to = \"@git\"; ports = \"22,443\"; } );\n";
        static const char *const wanted[] = {"category apis: added", "category git: a.example.org removed", "category git: c.example.org added"};
        _cleanup_(desired_freep) Desired *old = NULL, *new = NULL, *gone = NULL, *heavy = NULL, *other = NULL, *open = NULL, *closed = NULL;
        _cleanup_strv_ char **lines = NULL;
        _cleanup_error_ Error err = ERROR_NULL, together = ERROR_NULL, unknown = ERROR_NULL;
        char *order[] = {(char *) "q", (char *) "p", NULL}, *absent[] = {(char *) "p", (char *) "r", NULL};
        _cleanup_free_ Policy **list = NULL;
        size_t n = 0;
        PolicyAnswer answer;
        PolicyProbe probe = {.name = "c.example.org", .protocol = POLICY_TCP, .port = 22};

        put("categories.d/git.conf", "# forges\na.example.org\n*.b.example.org\n");
        put("categories.d/README", "not read");
        put("policies.d/p.conf", text);
        put("policies.d/q.conf", "rules = ();\n");
        put("instances.d/a.conf", "policies = [ \"p\" ];\n");
        old = load_or_fail();
        assert_int_equal(old->n_categories, 1);
        assert_ptr_equal(desired_find_policy(old, "p")->rules[0].category, desired_find_category(old, "git"));
        assert_int_equal(policy_explain(old->policies, 1, &probe, &answer, NULL), 0);
        assert_int_equal(answer.action, POLICY_DENY);
        new = load_edited("categories.d/git.conf", "*.b.example.org\nc.example.org\n", old, NULL);
        assert_false(policy_equal(desired_find_policy(old, "p"), desired_find_policy(new, "p")));
        assert_true(policy_equal(desired_find_policy(old, "q"), desired_find_policy(new, "q")));
        assert_int_equal(policy_explain(new->policies, 1, &probe, &answer, NULL), 0);
        assert_string_equal(answer.text, "allowed by rule 1 of policy p: c.example.org tcp 22,443");
        put("categories.d/apis.conf", "");
        put("categories.d/git.conf", "*.b.example.org\nc.example.org\n");
        (void) desired_free(new);
        assert_int_equal(desired_reload(etc, old, NULL, &new, NULL), 0);
        assert_int_equal(desired_diff(old, new, &lines), 0);
        for (size_t i = 0; i < ELEMENTS(wanted); i++)
                assert_string_equal(i < strv_length(lines) ? lines[i] : "(end)", wanted[i]);
        assert_int_equal(strv_length(lines), ELEMENTS(wanted));
        other = load_edited("categories.d/doh.conf", "dns.example\n", new, NULL);
        assert_ptr_equal(desired_find_policy(other, "q")->spared, desired_find_category(other, "doh"));
        assert_false(policy_equal(desired_find_policy(new, "q"), desired_find_policy(other, "q")));
        assert_int_equal(desired_find_policies(other, order, &list, &n, NULL), 0);
        assert_true(n == 2 && list[0] == desired_find_policy(other, "q") && list[1] == desired_find_policy(other, "p"));
        assert_int_equal(desired_find_policies(other, absent, &list, &n, &unknown), -ENOENT);
        assert_string_equal(unknown.message, "there is no policy \"r\"");
        gone = load_edited("categories.d/git.conf", NULL, new, &err);
        assert_null(gone);
        assert_string_equal(err.message, "policies.d/p.conf:1: rules[0].to names the category \"git\", and there is no categories.d/git.conf");
        // without a file: each template's own, until there is one
        put("policies.d/t.conf", "rules = ( { action = \"allow\"; to = \"@packages\"; } );\n");
        open = load_or_fail();
        assert_true(policy_is_open(desired_find_policy(open, "t")));
        closed = load_edited("categories.d/packages.conf", "m.example.org:80\n", open, NULL);
        assert_false(policy_is_open(desired_find_policy(closed, "t")));
        assert_false(policy_equal(desired_find_policy(open, "t"), desired_find_policy(closed, "t")));
        // valid each, too much together
        put("policies.d/q.conf", "rules = ( { action = \"allow\"; to = \"a.example.org\"; ports = \"1001-1016\"; } );\n");
        heavy = load_edited("instances.d/a.conf", "policies = [ \"p\", \"q\" ];\n", new, &together);
        assert_null(heavy);
        assert_string_equal(together.message, "instances.d/a.conf: policies: rules with names use more than 16 ports besides tcp 80 and 443");
}

static void test_policy_format(void **state) {
        static const char *const texts[] = {
                "", "rules = ();\n", "description = \"a \\\"b\\\" \\\\\";\nrules = ();\n",
                "description = \"web\";\nrules = (\n"
                "        { action = \"allow\"; to = \"192.0.2.0/24\"; protocol = \"tcp\"; ports = \"443,8000-8010\"; comment = \"why\"; },\n"
                "        { action = \"deny\"; to = \"2001:db8::/32\"; }\n);\n",
                "rules = (\n"
                "        { action = \"allow\"; to = \"*.example.org\"; ports = \"80,443\"; methods = [ \"GET\", \"HEAD\" ]; paths = [ \"/a\" ]; inspect = true; "
                "rate = \"1MiB\"; budget = \"10GiB\"; },\n"
                "        { action = \"deny\"; to = \"@web\"; }\n);\n",
        };

        for (size_t i = 0; i < ELEMENTS(texts); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                _cleanup_(policy_freep) Policy *a = NULL, *b = NULL;
                _cleanup_free_ char *text = NULL, *again = NULL;
                if (policy_parse("p", texts[i], &a, &err) < 0)
                        fail_msg("%s", err.message);
                text = policy_format(a);
                assert_string_equal(text, texts[i][0] ? texts[i] : "rules = ();\n");
                if (policy_parse("p", text, &b, &err) < 0)
                        fail_msg("%s", err.message);
                assert_true(policy_equal(a, b));
                again = policy_format(b);
                assert_string_equal(text, again);
        }
}

static void test_diff(void **state) {
        static const char *const wanted[] = {
                "host: memory_reserve (none) -> 4GiB",
                "policy new: added",
                "policy old: removed",
                "policy web: description (none) -> for the web",
                "policy web: rule 2 changed: deny 198.51.100.0/24 -> allow 198.51.100.0/24 tcp 80",
                "policy web: rule 3 added: deny 203.0.113.1",
                "recipe mine: added",
                "instance a: memory 1GiB -> 8GiB",
                "instance b: removed",
                "instance c: added",
                "instance d: labels (none) -> x=1",
        };
        _cleanup_strv_ char **lines = NULL, **none = NULL;

        put("policies.d/web.conf", "rules = ( { action = \"allow\"; to = \"192.0.2.1\"; }, { action = \"deny\"; to = \"198.51.100.0/24\"; } );");
        put("policies.d/old.conf", "");
        put("instances.d/a.conf", "memory = \"1GiB\";");
        put("instances.d/b.conf", "");
        put("instances.d/d.conf", "");
        _cleanup_(desired_freep) Desired *old = load_or_fail(), *same = load_or_fail();
        assert_int_equal(desired_diff(old, same, &none), 0);
        assert_int_equal(strv_length(none), 0);
        put("hostd.conf", "memory_reserve = \"4GiB\";");
        put("policies.d/web.conf", "description = \"for the web\"; rules = ( { action = \"allow\"; to = \"192.0.2.1\"; }, "
                                   "{ action = \"allow\"; to = \"198.51.100.0/24\"; protocol = \"tcp\"; ports = \"80\"; }, { action = \"deny\"; to = \"203.0.113.1\"; } );");
        put("policies.d/new.conf", "");
        put("templates.d/mine.conf", "");
        put("instances.d/a.conf", "memory = \"8GiB\";");
        put("instances.d/c.conf", "");
        put("instances.d/d.conf", "labels = [ \"x=1\" ];");
        assert_int_equal(unlinkat(etc, "policies.d/old.conf", 0), 0);
        assert_int_equal(unlinkat(etc, "instances.d/b.conf", 0), 0);
        _cleanup_(desired_freep) Desired *new = load_or_fail();
        assert_int_equal(desired_diff(old, new, &lines), 0);
        for (size_t i = 0; i < ELEMENTS(wanted); i++)
                assert_string_equal(i < strv_length(lines) ? lines[i] : "(end)", wanted[i]);
        assert_int_equal(strv_length(lines), ELEMENTS(wanted));
        assert_true(instance_config_diff(desired_find_instance(old, "a"), desired_find_instance(new, "a")) == UINT64_C(1) << row_of("memory"));
        assert_true(instance_config_diff(desired_find_instance(old, "a"), desired_find_instance(same, "a")) == 0);
}

// Texts of before: of a.conf two that are not valid and one that is, of the others none or one.
static char *earlier(void *userdata, const char *path, unsigned n) {
        static const struct {
                const char *path, *texts[3];
        } history[] = {
                {"hostd.conf", {"uplink = \"eth7\";"}},
                {"instances.d/a.conf", {"nonsense = 1;", "policies = [ \"bad\" ];", "pids = 77;"}},
                {"policies.d/web.conf", {"rules = ( { action = \"deny\"; to = \"192.0.2.1\"; } );"}},
        };

        for (size_t i = 0; i < ELEMENTS(history); i++)
                if (strcmp(history[i].path, path) == 0)
                        return n < 3 && history[i].texts[n] ? strdup(history[i].texts[n]) : NULL;
        return NULL;
}

static char *no_text(void *userdata, const char *path, unsigned n) {
        return NULL;
}

static void test_rescue(void **state) {
        static const struct {
                const char *path, *reason;
                bool replaced;
        } wanted[] = {
                {"instances.d/Bad Name.conf", "the file's name", false},  {"policies.d/bad.conf", "policies.d/bad.conf:1", false},
                {"policies.d/web.conf", "policies.d/web.conf:1", true},  {"hostd.conf", "hostd.conf:2", true},
                {"instances.d/a.conf", "instances.d/a.conf:2", true},    {"instances.d/new.conf", "not a regular file", false},
                {"instances.d/uses.conf", "instances.d/uses.conf:1", false},
        };
        _cleanup_(desired_rescue_done) DesiredRescue rescue = {.earlier = earlier};
        _cleanup_(desired_freep) Desired *desired = NULL, *again = NULL, *refused = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        char target[64];

        put("hostd.conf", "\nuplink = 3;");
        put("policies.d/web.conf", "rules = 3;");
        put("policies.d/bad.conf", "rules = 3;");
        put("instances.d/a.conf", "pids = 78;\nmemory = ;");
        put("instances.d/good.conf", "pids = 79; policies = [ \"web\" ];");
        put("instances.d/uses.conf", "policies = [ \"bad\" ];");
        put("instances.d/Bad Name.conf", "");
        snprintf(target, sizeof(target), "%s/instances.d/new.conf", top);
        assert_int_equal(symlink("/etc/passwd", target), 0);
        if (desired_load_rescue(etc, &rescue, &desired, &err) < 0)
                fail_msg("%s", err.message);
        assert_int_equal(rescue.n_problems, ELEMENTS(wanted));
        for (size_t i = 0; i < ELEMENTS(wanted); i++) {
                assert_string_equal(rescue.problems[i].path, wanted[i].path);
                assert_non_null(strstr(rescue.problems[i].reason, wanted[i].reason));
                assert_int_equal(rescue.problems[i].replaced, wanted[i].replaced);
        }
        assert_string_equal(desired->host.uplink, "eth7");
        assert_int_equal(desired->n_instances, 2);
        assert_true(desired_find_instance(desired, "a")->limits.value[LIMIT_PIDS] == 77);
        assert_true(desired_find_instance(desired, "good")->limits.value[LIMIT_PIDS] == 79);
        assert_int_equal(desired->n_policies, 1);
        assert_int_equal(desired_find_policy(desired, "web")->n_rules, 1);
        // What mended the set is not taken for the file later.
        assert_int_equal(desired_reload(etc, desired, NULL, &again, NULL), -EINVAL);
        // Without a text for the host there is nothing to go on with.
        _cleanup_(desired_rescue_done) DesiredRescue none = {.earlier = no_text};
        assert_int_equal(desired_load_rescue(etc, &none, &refused, &err), -EINVAL);
        assert_non_null(strstr(err.message, "hostd.conf:2"));
}

static void test_restart(void **state) {
        assert_true(instance_schema_needs_restart(row_of("open_files")));
        assert_true(instance_schema_needs_restart(row_of("read_only")));
        assert_false(instance_schema_needs_restart(row_of("memory")));
        assert_false(instance_schema_needs_restart(row_of("policies")));
        assert_string_equal(instance_schema_default(row_of("memory")), "2GiB");
        assert_string_equal(instance_schema_default(row_of("upload")), "");
        assert_null(instance_schema_key(instance_schema_size()));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_empty, setup, teardown),
                cmocka_unit_test_setup_teardown(test_set, setup, teardown),
                cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(test_files, setup, teardown),
                cmocka_unit_test(test_long_numbers),
                cmocka_unit_test_setup_teardown(test_edited_files, setup, teardown),
                cmocka_unit_test(test_edit),
                cmocka_unit_test(test_policy_format), cmocka_unit_test_setup_teardown(test_categories, setup, teardown),
                cmocka_unit_test_setup_teardown(test_diff, setup, teardown),
                cmocka_unit_test_setup_teardown(test_rescue, setup, teardown),
                cmocka_unit_test(test_restart),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
