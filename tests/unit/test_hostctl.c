// SPDX-License-Identifier: GPL-2.0-or-later
// hostctl from end to end against a fake hostd: what commands print and how they exit, files, lists. Its streams are test_session.c's.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/io.h"
#include "run_hostctl.h"

static void test_list(void **state) {
        expect("list -c name,state,memory", 0,
               "NAME  STATE         MEMORY\none   running       8.00GiB\nbad   \\x1b[2J\\x0ax  -\n", NULL);
}

static void test_formats(void **state) {
        _cleanup_outcome_ Outcome json = run("list -f json");
        json_t *reply = json_loads(json.out, 0, NULL);

        assert_int_equal(json_array_size(json_object_get(reply, "instances")), 2);
        json_decref(reply);
        expect("list --format=csv --columns description,memory", 0,
               "description,memory\r\n\"a,\"\"b\"\"\",8589934592\r\n,\r\n", NULL);
        expect("list -c nosuch", 2, "", "unknown column \"nosuch\"; there are: name, state");
        expect("list -f yaml", 2, "", "format");
        expect("show one", 0, "name: one\nusage:\n  pids: 3\n\nsettings:\nKEY     VALUE  SOURCE\nmemory  8GiB   preset\n", NULL);
        expect("show --expanded one", 0, "KEY     VALUE  SOURCE\nmemory  8GiB   preset\n", NULL);
        expect("show one -f csv", 2, "", "not one of table and json");
        expect("events -f csv", 2, "", "not one of table and json");
        expect("log one", 0, "line 1\n\\x1b[31mline 2\n", NULL);
}

static void test_many_and_all(void **state) {
        _cleanup_free_ char *calls = NULL, *all = NULL;

        unlinkat(AT_FDCWD, strcat(strcpy((char[160]) {0}, fake_dir), "/calls"), 0);
        expect("start a bad b", 7, "", "bad is being deleted");
        calls = content("calls", NULL);
        assert_string_equal(calls, "a\nbad\nb\n");
        expect("start --all", 7, "", "bad is being deleted");
        all = content("calls", NULL);
        assert_string_equal(all, "a\nbad\nb\none\nbad\n");
        expect("start --all a", 2, "", "not both");
        expect("start A", 2, "", "name \"A\" is not valid");
}

static void test_exit_codes(void **state) {
        static const struct {
                const char *record;
                int status;
                const char *err;
        } cases[] = {
                {"{\"exit\":0}", 0, ""},
                {"{\"exit\":42}", 42, ""},
                {"{\"exit\":127,\"stage\":\"exec\",\"message\":\"no\"}", 127, "hostctl: no"},
                {"{\"signal\":9,\"oom\":true}", 137, "out of memory"},
                {"{\"signal\":9,\"timed_out\":true}", 124, "time was over"},
                {"{}", 125, "neither"},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_free_ char *words = NULL;
                assert_true(asprintf(&words, "exec one record %s", cases[i].record) > 0);
                expect(words, cases[i].status, "", cases[i].err);
        }
        expect("exec one refuse", 125, "", "there is no instance \\x1b[31mone");
        expect("exec one", 2, "", "COMMAND is missing");
        expect("exec one -- sh -c exit", 0, "", NULL);
        expect("exec one false --help -x", 1, "", NULL); // options after the command are the command's
        expect("--socket /nonexistent/s list", 9, "", "is hostd running?");
}

static void test_exit_status_is_the_answer(void **state) {
        expect("leaks", 0, "", NULL);
        expect("doctor", 1, NULL, NULL);
        expect("template build agent", 0, "digest: abc\n", " 40% unpacking");
        expect("carve -n 1", 0, NULL, "only the plan");
        expect("carve -n 1 -y", 0, NULL, "Created 1");
        wait_for("calls", "carved");
}

static void test_files(void **state) {
        _cleanup_free_ char *a = NULL, *b = NULL, *c = NULL, *path = NULL;

        assert_true(asprintf(&path, "%s/guest", fake_dir) > 0);
        mkdir(path, 0700);
        script("local", "hello\n");
        run_ok("file push %s/local one:/x", fake_dir);
        a = content("guest/x", NULL);
        assert_string_equal(a, "hello\n");
        run_ok("file pull one:/x %s/back", fake_dir);
        b = content("back", NULL);
        assert_string_equal(b, "hello\n");
        expect("file pull one:/x -", 0, "hello\n", NULL);
        // What is no file stays what it is: a rename would have replaced /dev/null.
        _cleanup_free_ char *pipe_path = NULL;
        char got[8] = "";
        struct stat st;
        assert_true(asprintf(&pipe_path, "%s/pipe", fake_dir) > 0 && mkfifo(pipe_path, 0600) == 0);
        _cleanup_close_ int reader = open(pipe_path, O_RDWR | O_CLOEXEC);
        run_ok("file pull one:/x %s", pipe_path);
        assert_int_equal(read(reader, got, sizeof(got)), 6);
        assert_string_equal(got, "hello\n");
        assert_true(stat(pipe_path, &st) == 0 && S_ISFIFO(st.st_mode));
        free(path);
        assert_true(asprintf(&path, "%s/tree", fake_dir) > 0);
        mkdir(path, 0700);
        script("tree/leaf", "leaf\n");
        run_ok("file push -r %s/tree one:/t", fake_dir);
        run_ok("file pull -r one:/t %s/tree2", fake_dir);
        c = content("tree2/leaf", NULL);
        assert_string_equal(c, "leaf\n");
        _cleanup_outcome_ Outcome list = run("file list one:/t -c mode,size,path");
        assert_int_equal(list.status, 0);
        assert_non_null(strstr(list.out, "-rw-------  5B    leaf"));
        // The same tree as a tar on our side.
        _cleanup_free_ char *d = NULL;
        run_ok("file pull --tar one:/t %s/t.tar", fake_dir);
        run_ok("file push --tar %s/t.tar one:/t3", fake_dir);
        run_ok("file pull -r one:/t3 %s/tree3", fake_dir);
        d = content("tree3/leaf", NULL);
        assert_string_equal(d, "leaf\n");
        expect("file push --tar /etc/passwd one:/t4", 2, "", "it is no tar");
        expect("file push --tar /etc one:/t4", 2, "", "no tar");
        expect("file pull --tar one:/t one:/t3 /tmp", 2, "", "a tar has one tree");
        expect("file pull -r one:/t -", 2, "", "add --tar");
        expect("file push nosuch one:/x", 3, "", "cannot open nosuch");
        expect("file push /tmp one:/x", 2, "", "add --recursive");
        expect("file push /etc/hostname one:../x", 2, "", "path");
        expect("file pull one", 2, "", "usage");
}

static void test_file_changes(void **state) {
        expect("file mkdir -p -m 700 -o agent -g 5 one:/a/b", 8, "", "asked {\"group\":\"5\",\"mode\":448,\"name\":\"one\",\"owner\":\"agent\",\"parents\":true,\"path\":\"/a/b\"}");
        expect("file mkdir one:/a/", 8, "", "asked {\"name\":\"one\",\"path\":\"/a\"}");
        expect("file chmod 4755 one:/a", 8, "", "asked {\"mode\":2541,\"name\":\"one\",\"path\":\"/a\"}");
        expect("file chmod 0 -r one:/a", 8, "", "asked {\"mode\":0,\"name\":\"one\",\"path\":\"/a\",\"recursive\":true}");
        expect("file chmod 888 one:/a", 2, "", "not an octal number");
        expect("file chmod 10000 one:/a", 2, "", "not an octal number");
        expect("file chmod -u agent one:/a", 2, "", "usage: hostctl file chmod MODE");
        expect("file chown agent:users one:/a", 8, "", "asked {\"group\":\"users\",\"name\":\"one\",\"owner\":\"agent\",\"path\":\"/a\"}");
        expect("file chown :users one:/a", 8, "", "asked {\"group\":\"users\",\"name\":\"one\",\"path\":\"/a\"}");
        expect("file chown -o agent one:/a", 8, "", "asked {\"name\":\"one\",\"owner\":\"agent\",\"path\":\"/a\"}");
        expect("file chown a/b one:/a", 2, "", "owner");
        expect("file mv one:/a one:/b", 8, "", "asked {\"name\":\"one\",\"path\":\"/a\",\"to\":\"/b\"}");
        expect("file mv -F one:/d/a one:/b/", 8, "", "asked {\"force\":true,\"name\":\"one\",\"path\":\"/d/a\",\"to\":\"/b/a\"}");
        expect("file mv one:/a one:/c one:/b", 8, "", "\"path\":\"/c\",\"to\":\"/b/c\"");
        expect("file mv one:/a two:/b", 2, "", "not in one instance");
        expect("file mv one:/a", 2, "", "usage");
        expect("file rm -r one:/a one:/b", 8, "", "\"path\":\"/b\",\"recursive\":true");
        expect("file replace --old x one:/a", 2, "", "new");
        expect("file stat -f csv -c path,type,permissions one:/t", 0, NULL, NULL);
}

static void test_watch(void **state) {
        expect("file watch one:/t", 0, "created     /t/a\\x0ab\ndeleted     /t/d/\\x1b[1m\nmoved-from  /t/\\xff\nlost        /t\ngone        /t\n", NULL);
        _cleanup_outcome_ Outcome json = run("file watch -f json one:/t");
        assert_int_equal(json.status, 0);
        assert_non_null(strstr(json.out, "{\"event\":\"deleted\",\"path\":\"/t/d/\\u001B[1m\"}\n"));
        assert_non_null(strstr(json.out, "\"event\":\"created\""));
        assert_non_null(strstr(json.out, "\"path\":\"/t/a\\nb\",\"permissions\":\"0644\""));
        expect("file watch one:/t one:/u", 2, "", "usage");
}

static void test_diff(void **state) {
        expect("diff one", 0, "A /etc/a\\x0ab\nD /var\n", NULL);
        expect("diff cut", 0, "A /etc/a\\x0ab\nD /var\n", "only the first 2 changes");
        expect("diff torn", 2, "", "ends too early");
        expect("diff one -f csv", 2, "", "table and json");
        _cleanup_outcome_ Outcome o = run("diff cut --format json");
        json_t *reply = json_loads(o.out, 0, NULL), *first = json_array_get(json_object_get(reply, "changes"), 0);
        assert_int_equal(o.status, 0);
        assert_true(json_is_false(json_object_get(reply, "complete")));
        assert_string_equal(json_string_value(json_object_get(first, "path")), "/etc/a\nb");
        assert_string_equal(json_string_value(json_object_get(first, "target")), "t");
        assert_string_equal(json_string_value(json_object_get(first, "type")), "link");
        json_decref(reply);
}

static void test_flows(void **state) {
        expect("flows one -c time,verdict,to,by,sent,received,duration,reason", 0,
               "TIME  VERDICT  TO                BY          SENT     RECEIVED  DURATION  REASON\n"
               "T1    allow    192.0.2.1:22      web rule 1  2.00KiB  3B        1s 500ms  a\\x1bb\n"
               "T2    deny     [2001:db8::1]:53  web rule 2  -        -         -         denied by rule 2 of policy web: ::/0 any\n"
               "T3    deny     evil.example:443  -           -        -         -         denied: no rule allows it\n",
               "2 lines of the log could not be read");
        expect("flows cut", 1, "", "not whole");
        expect("flows one --kind nosuch", 2, "", "dns, tls, http, connect");
        _cleanup_outcome_ Outcome o = run("flows one --denied --since 1h --format json");
        json_t *reply = json_loads(o.out, 0, NULL), *first = json_array_get(json_object_get(reply, "flows"), 0);
        assert_int_equal(o.status, 0);
        assert_int_equal(json_array_size(json_object_get(reply, "flows")), 4);
        assert_int_equal(json_integer_value(json_object_get(reply, "unreadable")), 1);
        assert_string_equal(json_string_value(json_object_get(first, "time")), "T0"); // the oldest
        assert_null(json_object_get(first, "to"));
        json_decref(reply);
}

static void test_why(void **state) {
        expect("why one -c last,first,count,to,reason,allow", 0,
               "LAST  FIRST  COUNT  TO                REASON                                    ALLOWED BY\n"
               "T5    T5     1      $(id).example:80  denied: no rule allows it                 -\n"
               "T4    T4     1      192.0.2.1;id      denied: no rule allows it                 -\n"
               "T3    T1     2      evil.example:443  denied: no rule allows it                 allow evil.example tcp 443\n"
               "T2    T2     1      [2001:db8::1]:53  denied by rule 2 of policy web: ::/0 any  allow 2001:db8::1/128 udp 53\n"
               "T0    T0     1      192.0.2.9         over budget                               -\n"
               "\nTo allow the newest of these, with a policy of its own in front of the others:\n"
               "  hostctl policy set one-more 'allow evil.example tcp 443'\n  hostctl set one policies=one-more\n"
               "For a time only, if it is asked for inside:\n  /run/hostd/hostd-guest ask net evil.example:443 --reason WHY\n"
               "and then here, with the number that \"hostctl approvals one\" shows:\n  hostctl approve ID --for 10m\n",
               "1 lines of the log");
}

static void test_events_network(void **state) {
        expect("events", 0, "T1  started  one  pid=5\n", NULL);
        expect("events --follow", 0, "T1  started  one  pid=5\nT2  odd\\x1b\n", NULL);
        expect("network show one", 0, "name: one\ncounters:\n  tx_bytes: 2.00KiB\n\nrules:\na\nb\n", NULL);
        expect("network show one -f csv", 2, "", "not one of table and json");
        _cleanup_outcome_ Outcome o = run("network show one -f json");
        json_t *reply = json_loads(o.out, 0, NULL);
        assert_string_equal(json_string_value(json_object_get(reply, "name")), "one");
        json_decref(reply);
        expect("help events", 0, NULL, NULL);
        expect("--version", 0, NULL, NULL);
        expect("", 2, "", "Usage");
        expect("lsit", 2, "", "did you mean \"list\"?");
        expect("audit", 2, "", "audit verify       Check");
        expect("audit nonsense", 2, "", "no command \"audit nonsense\"; `hostctl audit --help` lists them");
        expect("templete", 2, "", "there is no command \"templete\"");
        static const char *const groups[] = {"audit --help", "audit -h", "help audit"};
        for (size_t i = 0; i < ELEMENTS(groups); i++)
                expect(groups[i], 0, "Usage: hostctl audit COMMAND...\n\n"
                       "  audit verify       Check the audit log's hash chain\n"
                       "  audit tail         Show the newest audit records\n"
                       "  audit query        Search the audit log\n", NULL);
        expect("completion -h", 0, NULL, NULL);
}

static void test_stdio(void **state) {
        static const char call[] = "{\"method\":\"org.varlink.service.GetInfo\"}";
        _cleanup_close_ int fd = scratch("ask", O_WRONLY | O_CREAT | O_TRUNC);

        assert_int_equal(io_write_all(fd, call, sizeof(call)), 0);
        _cleanup_outcome_ Outcome o = run_input("ask", "stdio");
        assert_int_equal(o.status, 0);
        assert_non_null(strstr(o.out, "io.hostd.Instance"));
        assert_int_equal(o.out[o.out_size - 1], 0);
}

static void test_secret_values(void **state) {
        static const struct {
                const char *words, *value, *shown;
                int size, status;
        } cases[] = {
                {"secret set one", "abc\n", "abc", 3, 0},        {"secret rotate one", "abc", "abc", 3, 0},     {"secret set one", "abc\n\n", NULL, 4, 0},
                {"secret set one --exact", "abc\n", NULL, 4, 0}, {"secret set one", "\n", NULL, 0, 2},          {"secret set one", "", NULL, 0, 2},
                {"secret set one", NULL, "", 16384, 0},          {"secret set one --exact", NULL, NULL, 0, 2},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_close_ int fd = scratch("value", O_WRONLY | O_CREAT | O_TRUNC);
                _cleanup_free_ char *size = NULL, *big = malloc(16386);
                memset(big, 'a', 16385);
                big[16384] = '\n'; // of which 16384 are the value, or one too many
                big[16385] = 0;
                assert_int_equal(io_write_all(fd, cases[i].value ?: big, strlen(cases[i].value ?: big)), 0);
                _cleanup_outcome_ Outcome o = run_input("value", cases[i].words);
                if (o.status != cases[i].status)
                        fail_msg("case %zu: %d: %s", i, o.status, o.err);
                assert_true(asprintf(&size, "%d", cases[i].size) > 0);
                if (cases[i].status == 0)
                        assert_non_null(strstr(o.out, size));
                if (cases[i].shown)
                        assert_non_null(strstr(o.out, cases[i].shown));
        }
}

int main(void) {
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_list),       cmocka_unit_test(test_formats), cmocka_unit_test(test_many_and_all),
                cmocka_unit_test(test_exit_codes), cmocka_unit_test(test_exit_status_is_the_answer), cmocka_unit_test(test_files),
                cmocka_unit_test(test_file_changes), cmocka_unit_test(test_watch), cmocka_unit_test(test_diff),       cmocka_unit_test(test_flows),     cmocka_unit_test(test_why), cmocka_unit_test(test_events_network), cmocka_unit_test(test_stdio),
                cmocka_unit_test(test_secret_values),
        };

        return cmocka_run_group_tests_name("hostctl", tests, fake_hostd_setup, fake_hostd_teardown);
}
