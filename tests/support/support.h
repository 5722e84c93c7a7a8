/* Include first in every test. TEST_MAIN(tests) runs a cmocka group and exits 0, 1 or 77 (all skipped): cmocka's own value is a count and its groups of skips pass. */
#ifndef OFLOAD_TEST_SUPPORT_H
#define OFLOAD_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ofload/ofload.h>

#define TEST_MAIN(tests)                                        \
    int main(void)                                              \
    {                                                           \
        int failed = cmocka_run_group_tests(tests, NULL, NULL); \
        return failed == 0 ? 0 : 1;                             \
    }

/* Fails with the library's own sentence. */
#define assert_ok(call)                                                                                \
    do {                                                                                               \
        ofl_status assert_ok_status = (call);                                                          \
        if (assert_ok_status != OFL_OK)                                                                \
            fail_msg("%s: %s: %s", #call, ofl_status_name(assert_ok_status), ofl_error_message());     \
    } while (0)
#define assert_status(call, wanted)                                                                                                     \
    do {                                                                                                                                \
        ofl_status assert_status_got = (call);                                                                                          \
        if (assert_status_got != (wanted))                                                                                              \
            fail_msg("%s: %s instead of %s: %s", #call, ofl_status_name(assert_status_got), ofl_status_name(wanted), ofl_error_message()); \
    } while (0)

/* A fresh folder under the system's temporary one, removed at exit. Static string, one per process. */
const char *test_folder(void);
/* folder/name, in a static buffer of its own per call (16 deep). */
const char *test_path(const char *name);
/* Writes a whole file, asserts. */
void test_write(const char *path, const void *data, size_t bytes);
/* Reads a whole file, NUL appended; free() it. Asserts. */
char *test_read(const char *path, size_t *bytes_out);
/* Runs a shell command line; returns its exit status; *output_out (free()) gets stdout and stderr together when not NULL. */
int test_run(const char *command, char **output_out);
/* splitmix64: the next number of a seeded sequence. */
uint64_t test_random(uint64_t *state);

#endif
