// SPDX-License-Identifier: GPL-2.0-or-later
// Recipes, manifests and the rewriting of the host's package sources.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/io.h"
#include "build/apt.h"
#include "base/strv.h"
#include "build/clients.h"
#include "build/manifest.h"
#include "build/recipe.h"

static void test_recipe_refused(void **state) {
        static const struct {
                const char *text, *message; // a part of the sentence
        } rows[] = {
                {"", "name is missing"},
                {"name = \"a\"; nmae = 3;", "r:1: nmae is not a key"},
                {"name = \"A b\";", "r:1: name \"A b\" is not valid"},
                {"name = 3;", "r:1: name must be a string"},
                {"name = \"a\";\nsuite = \"sid\";", "suite must be trixie or bookworm"},
                {"name = \"a\";\nvariant = \"custom\";", "variant must be"},
                {"name = \"a\";\n\npackages = [\"ok\", \"Not\"];", "r:3: packages \"Not\" is not valid"},
                {"name = \"a\"; packages = \"systemd\";", "packages must be a list"},
                {"name = \"a\"; packages = [\"a,b\"];", "packages \"a,b\" is not valid"},
                {"name = \"a\"; packages = [\"--x\"];", "packages \"--x\" is not valid"},
                {"name = \"a\"; mask_units = [\"../x.service\"];", "mask_units"},
                {"name = \"a\"; cleanup = [\"/a/../b\"];", "cleanup"},
                {"name = \"a\"; users = ( { name = \"u\"; } );", "users[0].uid is missing"},
                {"name = \"a\"; users = ( { name = \"u\"; uid = 0; } );", "users[0].uid must be between 1 and"},
                {"name = \"a\"; users = ( { name = \"u\"; uid = 70000; } );", "users[0].uid must be between"},
                {"name = \"a\"; users = ( { name = \"7\"; uid = 7; } );", "must be a name"},
                {"name = \"a\"; users = ( { name = \"u\"; uid = 7; shell = \"/a:b\"; } );", "colon"},
                {"name = \"a\"; users = ( { name = \"u\"; uid = 7; subids = \"5:10\"; } );", "subids must be"},
                {"name = \"a\"; users = ( { name = \"u\"; uid = 7; subids = \"1000000:65536\"; } );", "subids must be"},
                {"name = \"a\"; users = ( { name = \"u\"; uid = 7; subids = \"100000:99x\"; } );", "subids must be"},
                {"name = \"a\"; users = ( { name = \"u\"; uid = 7; }, { name = \"v\"; uid = 7; } );", "same name or uid"},
                {"name = \"a\"; users = ( { name = \"u\"; uid = 7; subids = \"100000:9\"; }, "
                 "{ name = \"v\"; uid = 8; subids = \"100008:9\"; } );", "share subids"},
                {"name = \"a\"; users = [1];", "users must be a list"},
                {"name = \"a\"; files = ( { path = \"etc/x\"; content = \"\"; } );", "files[0].path"},
                {"name = \"a\"; files = ( { path = \"/x\"; mode = \"0999\"; content = \"\"; } );", "octal"},
                {"name = \"a\"; files = ( { path = \"/x\"; mode = \"77777\"; content = \"\"; } );", "octal"},
                {"name = \"a\"; files = ( { path = \"/x\"; } );", "files[0].content is missing"},
                {"name = \"a\"; files = ( { path = \"/\"; content = \"\"; } );", "must name a file"},
                {"name = \"a\";\n  @include \"/etc/passwd\"\n", "@include is not allowed"},
                {"name = \"a\"\nx", "r:"},
        };

        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                _cleanup_(recipe_freep) Recipe *recipe = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                int r = recipe_parse("r", rows[i].text, NULL, &recipe, &err);
                if (r >= 0 || !strstr(error_message(&err, r), rows[i].message))
                        fail_msg("row %zu: %d \"%s\"", i, r, error_message(&err, r));
        }
}

static void test_recipe_shipped(void **state) {
        static const char *const names[] = {"agent", "debian"}, *const suites[] = {NULL, "bookworm"};

        for (size_t i = 0; i < 4; i++) {
                _cleanup_(recipe_freep) Recipe *recipe = NULL;
                _cleanup_free_ char *path = NULL, *text = NULL;
                _cleanup_strv_ char **packages = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                assert_true(asprintf(&path, "%s/templates/%s.conf", getenv("srcdir") ?: ".", names[i / 2]) > 0);
                assert_int_equal(io_read_file(AT_FDCWD, path, RECIPE_SIZE_MAX, &text, NULL), 0);
                int r = recipe_parse(names[i / 2], text, suites[i % 2], &recipe, &err);
                if (r < 0)
                        fail_msg("%s", error_message(&err, r));
                assert_string_equal(recipe->suite, i % 2 ? "bookworm" : "trixie");
                packages = recipe_packages(recipe);
                assert_true(strv_contains(packages, "systemd-sysv"));
                if (i < 2) {
                        assert_true(strv_contains(packages, i % 2 ? "slirp4netns" : "passt"));
                        assert_int_equal(recipe->users[0].uid, 1000);
                        assert_true(recipe->users[0].linger);
                }
        }
}

static void write_file(const char *root, const char *path, const char *text) {
        _cleanup_free_ char *full = NULL;
        assert_true(asprintf(&full, "%s/%s", root, path) > 0);
        assert_int_equal(io_write_atomic(AT_FDCWD, full, text, strlen(text), 0644), 0);
}

static void test_apt_sources(void **state) {
        char root[] = "/tmp/hostd-test-apt-XXXXXX";
        _cleanup_free_ char *sources = NULL, *image = NULL;
        _cleanup_error_ Error err = ERROR_NULL;

        assert_non_null(mkdtemp(root));
        int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(io_mkdir_p(fd, "etc/apt/sources.list.d", 0755), 0);
        assert_int_equal(io_mkdir_p(fd, "usr/lib", 0755), 0);
        write_file(root, "usr/lib/os-release", "ID=debian\nVERSION_CODENAME=bookworm\n");
        write_file(root, "etc/apt/sources.list", "# deb http://no.example/ bookworm main\n"
                   "deb [arch=amd64 signed-by=/k.gpg] http://u:p@a.example/debian bookworm main contrib\n"
                   "deb-src http://a.example/debian bookworm main\n"
                   "deb http://b.example/debian bookworm-backports main\n");
        write_file(root, "etc/apt/sources.list.d/x.sources",
                   "Types: deb\nURIs: http://s.example/sec\nSuites: bookworm-security other\nComponents: main\n\n"
                   "Types: deb\nEnabled: no\nURIs: http://off.example/\nSuites: bookworm\n");
        write_file(root, "etc/apt/sources.list.d/junk.txt", "deb http://junk.example/ bookworm main\n");
        assert_int_equal(apt_sources(root, "trixie", &sources, &image, &err), 0);
        assert_string_equal(sources, "deb [signed-by=/k.gpg] http://u:p@a.example/debian trixie main\n"
                                     "deb http://s.example/sec trixie-security main\n");
        assert_string_equal(image, "deb [signed-by=/k.gpg] http://a.example/debian trixie main\n"
                                   "deb http://s.example/sec trixie-security main\n");
        (void) close_fd(fd);
        assert_int_equal(io_remove_tree(AT_FDCWD, root), 0);
}

static void test_apt_options(void **state) {
        _cleanup_free_ char *build = NULL, *image = NULL;

        assert_int_equal(apt_options("APT \"\";\nAcquire::http::Proxy \"http://p.example:1\";\nDPkg::Post-Invoke:: \"rm\";\n"
                                     "Acquire::Check-Valid-Until \"false\";\n", &build, &image, NULL), 0);
        assert_string_equal(build, "Acquire::http::Proxy \"http://p.example:1\";\nAcquire::Check-Valid-Until \"false\";\n");
        assert_string_equal(image, "Acquire::Check-Valid-Until \"false\";\n");
}

static void test_manifest_packages(void **state) {
        Manifest *m = calloc(1, sizeof(*m));
        _cleanup_error_ Error err = ERROR_NULL;

        m->packages = json_object();
        assert_int_equal(manifest_add_packages(m,
                                               "Package: dpkg\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.22\n"
                                               "Description: x\n Version: 9\n\nPackage: gone\n"
                                               "Status: deinstall ok config-files\nVersion: 1\n\n"
                                               "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2\n\n"
                                               "Package: libc6\nStatus: install ok installed\nArchitecture: i386\nVersion: 2",
                                               &err), 0);
        assert_int_equal(json_object_size(m->packages), 3);
        assert_string_equal(json_string_value(json_object_get(m->packages, "dpkg")), "1.22");
        assert_string_equal(json_string_value(json_object_get(m->packages, "libc6:i386")), "2");
        assert_string_equal(m->architecture, "amd64");
        assert_true(manifest_add_packages(m, "Package: ../x\nStatus: install ok installed\nVersion: 1\n", NULL) < 0);
        assert_true(manifest_add_packages(m, "Package: xx\nStatus: install ok installed\nVersion: 1\x1b[m\n", NULL) < 0);
        manifest_free(m);
}

static const char manifest_head[] = "{\"built\":\"2026-11-29T23:05:47.709955Z\",\"digest\":\"0000000000000000000000000000000000000000000000000000000000000007\","
                                    "\"name\":\"x\",\"packages\":{},\"size\":6,\"version\":1";

static void test_manifest_mirrors(void **state) {
        static const struct { const char *mirrors; int n; } cases[] = { // -1: refused
                {"[]", 0}, {"[\"m.example.org:80\"]", 1}, {"[\"m.example.org:80\", \"m.example.org:443\"]", 2},
                {"[\"m.example.org\"]", -1}, {"[\"M.example.org:80\"]", -1}, {"[\"10.0.0.1:80\"]", -1}, {"[\"[2001:db8::1]:80\"]", -1},
                {"[\"*.example.org:80\"]", -1}, {"[\"mirror:80\"]", -1}, {"[\"m.example.org:0\"]", -1}, {"[\"m.example.org:65536\"]", -1},
                {"[\"m.example.org:080\"]", -1}, {"[\"m.example.org:53\"]", -1}, {"[\"m.example.org:80\\n\"]", -1}, {"[\"m.example.org:80\\u0000\"]", -1},
                {"[\"m.example.org:80\", \"m.example.org:80\"]", -1}, {"[1]", -1}, {"{}", -1}, {"null", -1},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(manifest_freep) Manifest *m = NULL, *again = NULL;
                _cleanup_free_ char *text = NULL, *written = NULL;
                assert_true(asprintf(&text, "%s,\"mirrors\":%s}", manifest_head, cases[i].mirrors) > 0);
                int r = manifest_parse(text, strlen(text), &m, NULL);
                if ((r < 0) != (cases[i].n < 0))
                        fail_msg("%s: %d", cases[i].mirrors, r);
                if (r < 0)
                        continue;
                assert_int_equal(strv_length(m->mirrors), cases[i].n);
                assert_true(m->asked);
                written = manifest_format(m);
                assert_int_equal(manifest_parse(written, strlen(written), &again, NULL), 0);
                assert_true(again->asked && strv_equal(m->mirrors, again->mirrors));
        }
        _cleanup_(manifest_freep) Manifest *old = NULL;
        _cleanup_free_ char *text = NULL;
        assert_true(asprintf(&text, "%s}", manifest_head) > 0);
        assert_int_equal(manifest_parse(text, strlen(text), &old, NULL), 0);
        assert_false(old->asked);
}

static void test_clients_scan(void **state) {
        static const struct { ClientScan how; const char *text, *wanted; } cases[] = {
                {SCAN_URLS, "http://A.example.org/x https://b.example.org:8443/y", "a.example.org:80 b.example.org:8443"},
                {SCAN_URLS, "mirror+http://c.example.org sparse+https://d.example.org/i/ cdrom://e.example.org ftp://f.example.org file:///x", "c.example.org:80 d.example.org:443"},
                {SCAN_URLS, "https://u:p@g.example.org:1/;https://h.example.org/?x@i.example.org", "g.example.org:1 h.example.org:443"},
                {SCAN_URLS, "https://10.0.0.1/ https://[2001:db8::1]:80/ https://localhost/ https:// https://j.example.org:99999/ https://k.example.org:x/", ""},
                {SCAN_URLS, "A='http://p.example.org:3128'\nB=''", "p.example.org:3128"},
                {SCAN_QUOTED, "failed to download from `https://a.example.org/config.json`\nsee https://help.example.org/", "a.example.org:443"},
                {SCAN_SETTINGS, "registry = \"https://a.example.org/\"\n@s:registry = \"https://b.example.org/\"\nhomepage = \"https://c.example.org/\"\n"
                 "; registry = \"https://d.example.org/\"\nhttps-proxy = \"http://e.example.org:3128/\"\nreplace-registry-host = \"npmjs\"\nindex = 'https://f.example.org/git'\n",
                 "a.example.org:443 b.example.org:443 e.example.org:3128 f.example.org:443"},
                {SCAN_WORDS, "https://a.example.org/,direct\nsum.example.org+0123abc+AbC/dEf== https://s.example.org", "a.example.org:443 s.example.org:443 sum.example.org:443"},
                {SCAN_WORDS, "off\noff", ""},
                {SCAN_INDEX, "{\"api\": \"https://a.example.org\", \"dl\" : \"https://b.example.org/{crate}/{version}\"}", "b.example.org:443"},
                {SCAN_INDEX, "{\"dl\"", ""}, {SCAN_INDEX, "\"dl\":\"", ""},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_strv_ char **mirrors = NULL;
                assert_int_equal(clients_scan(cases[i].how, cases[i].text, &mirrors), 0);
                _cleanup_free_ char *joined = strv_join(mirrors, " ");
                assert_string_equal(joined, cases[i].wanted);
        }
}

// Lines of a stage that a template's programs ran in.
static void test_clients_take(void **state) {
        static const char text[] = "a.example.org:80\na.example.org:80\nno host\n\nb.example.org:443\n.\nc.example.org:1";
        _cleanup_strv_ char **mirrors = NULL, **flood = NULL;
        _cleanup_free_ char *joined = NULL;
        bool whole = false;
        int p[2];

        assert_int_equal(pipe(p), 0);
        assert_int_equal(write(p[1], text, strlen(text)), strlen(text));
        close(p[1]);
        assert_int_equal(clients_take(p[0], &mirrors, &whole), 0);
        close(p[0]);
        joined = strv_join(mirrors, " ");
        assert_string_equal(joined, "a.example.org:80 b.example.org:443");
        assert_true(whole);
        assert_int_equal(pipe(p), 0);
        for (unsigned i = 0; i < 100; i++)
                assert_true(dprintf(p[1], "m%u.example.org:80%0*d\n", i, i % 7 == 0 ? 400 : 1, 0) > 0);
        close(p[1]);
        assert_int_equal(clients_take(p[0], &flood, &whole), 0);
        close(p[0]);
        assert_int_equal(strv_length(flood), MANIFEST_MIRRORS_MAX);
        assert_false(whole);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_recipe_refused), cmocka_unit_test(test_recipe_shipped),
                cmocka_unit_test(test_apt_sources),    cmocka_unit_test(test_apt_options),
                cmocka_unit_test(test_manifest_packages), cmocka_unit_test(test_manifest_mirrors), cmocka_unit_test(test_clients_scan), cmocka_unit_test(test_clients_take),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
