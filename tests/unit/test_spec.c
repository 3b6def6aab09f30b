// SPDX-License-Identifier: GPL-2.0-or-later
// Spec: what was saved loads again; every bad field is refused by name.
#include "instance/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"

static char path[] = "/tmp/test_spec.XXXXXX";

static InstanceSpec sample(void) {
        return (InstanceSpec) {
                .name = (char *) "a1", .slot = 7, .id_base = 1048576, .id_count = 1048576,
                .run_dir = (char *) "/run/hostd/instances/i0007", .template_dir = (char *) "/t", .root_dir = (char *) "/r",
                .cgroup_prefix = (char *) "hostd/i0007-g1", .log_file = (char *) "/l", .network = true,
                .open_files = UINT64_MAX, .read_only = true,
        };
}

static void test_round_trip(void **state) {
        _cleanup_error_ Error err = ERROR_NULL;
        InstanceSpec spec = sample(), back = {0};

        assert_int_equal(instance_spec_save(&spec, path, &err), 0);
        assert_int_equal(instance_spec_load(path, &back, &err), 0);
        assert_string_equal(back.name, "a1");
        assert_int_equal(back.slot, 7);
        assert_int_equal(back.id_base, 1048576);
        assert_string_equal(back.cgroup_prefix, spec.cgroup_prefix);
        assert_true(back.network);
        assert_null(back.apparmor_profile);
        assert_true(back.open_files == UINT64_MAX);
        assert_true(back.read_only);
        assert_false(back.unified_cgroup);
        instance_spec_done(&back);
}

static void test_refused(void **state) {
        static const struct {
                const char *field, *from, *to;
        } cases[] = {
                {"name", "\"a1\"", "\"A1\""},
                {"name", "\"a1\"", "\"a1\\nlxc.x = y\""},
                {"name", "\"a1\"", "\"a1\\u0000b\""},
                {"name", "\"a1\"", "12"},
                {"slot", "\"slot\": 7", "\"slot\": 65536"},
                {"slot", "\"slot\": 7", "\"slot\": -1"},
                {"id_base", "\"id_base\": 1048576", "\"id_base\": 0"},
                {"id_base", "\"id_base\": 1048576", "\"id_base\": 4293918720"},
                {"root_dir", "\"/r\"", "\"/r/../x\""},
                {"root_dir", "\"/r\"", "\"r\""},
                {"cgroup_prefix", "i0007-g1", "../x"},
                {"cgroup_prefix", "i0007-g1", "a b"},
                {"network", "\"network\": true", "\"network\": \"eth0\""},
                {"read_only", "\"read_only\": true", "\"read_only\": 1"},
                {"surprise", "\"read_only\": true", "\"read_only\": true, \"surprise\": 1"},
                {"log_file", "\"log_file\"", "\"log_fil\""},
        };
        InstanceSpec spec = sample();

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                _cleanup_free_ char *text = NULL;
                char changed[4096];
                InstanceSpec back = {0};

                assert_int_equal(instance_spec_save(&spec, path, NULL), 0);
                assert_int_equal(io_read_file(AT_FDCWD, path, 4000, &text, NULL), 0);
                char *at = strstr(text, cases[i].from);
                assert_non_null(at);
                assert_true((size_t) snprintf(changed, sizeof(changed), "%.*s%s%s", (int) (at - text), text, cases[i].to,
                                              at + strlen(cases[i].from)) < sizeof(changed));
                assert_int_equal(io_write_atomic(AT_FDCWD, path, changed, strlen(changed), 0600), 0);
                assert_true(instance_spec_load(path, &back, &err) < 0);
                if (strcmp(cases[i].field, "log_file") != 0) {
                        assert_non_null(err.field);
                        assert_string_equal(err.field, cases[i].field);
                }
                assert_null(back.name);
        }
}

static void test_save_checks(void **state) {
        InstanceSpec spec = sample();

        spec.name = (char *) "x\n";
        assert_true(instance_spec_save(&spec, path, NULL) < 0);
        spec = sample();
        spec.template_dir = NULL;
        assert_true(instance_spec_save(&spec, path, NULL) < 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_round_trip),
                cmocka_unit_test(test_refused),
                cmocka_unit_test(test_save_checks),
        };
        int fd = mkstemp(path);
        close_fd(fd);
        int r = cmocka_run_group_tests(tests, NULL, NULL);
        (void) unlink(path);
        return r;
}
