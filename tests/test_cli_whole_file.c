/* Files of the programs that are there whole or not at all. */
#include "support/support.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/whole_file.h"
#include "support/safetensors_writer.h"

static bool there(const char *path) { return access(path, F_OK) == 0; }

static void assert_holds(const char *path, const char *wanted)
{
    char *text = test_read(path, NULL);
    assert_string_equal(text, wanted);
    free(text);
}

static void a_file_is_replaced_whole(void **state)
{
    (void)state;
    char path[512], beside[520];
    (void)snprintf(path, sizeof path, "%s", test_path("whole.txt"));
    (void)snprintf(beside, sizeof beside, "%s.new", path);
    assert_int_equal(whole_file_write(path, "first and long", 14), OFL_OK);
    assert_holds(path, "first and long");
    test_write_text(test_folder(), "whole.txt.new", "left behind by a run that was killed");
    assert_int_equal(whole_file_write(path, "second", 6), OFL_OK);
    assert_holds(path, "second");
    assert_false(there(beside));
}

static void what_is_there_stays_until_the_end(void **state)
{
    (void)state;
    char path[512];
    whole_file file;
    (void)snprintf(path, sizeof path, "%s", test_path("kept.txt"));
    assert_int_equal(whole_file_write(path, "old", 3), OFL_OK);
    for (int finish = 0; finish < 2; finish++) {
        assert_int_equal(whole_file_begin(path, &file), OFL_OK);
        test_write_text(test_folder(), "kept.txt.new", "new");
        assert_holds(path, "old");
        if (finish) assert_int_equal(whole_file_finish(&file), OFL_OK);
        whole_file_cancel(&file); /* nothing, where it has ended */
        assert_holds(path, finish ? "new" : "old");
        assert_false(there(test_path("kept.txt.new")));
    }
}

static void a_failure_is_told_and_leaves_nothing(void **state)
{
    (void)state;
    char folder[512];
    assert_int_equal(whole_file_write("/nonexistent/a.txt", "x", 1), OFL_ERROR_IO);
    assert_non_null(strstr(app_error(), "/nonexistent/a.txt cannot be written"));
    (void)snprintf(folder, sizeof folder, "%s", test_make_folder("folder.txt"));
    assert_int_equal(whole_file_write(folder, "x", 1), OFL_ERROR_IO);
    assert_non_null(strstr(app_error(), "folder.txt is there and no regular file"));
    assert_true(there(folder));
    assert_false(there(test_path("folder.txt.new")));
}

static void a_link_stays_a_link_and_a_pipe_a_pipe(void **state)
{
    (void)state;
    char link[512], behind[512], pipe[512];
    struct stat about;
    (void)snprintf(link, sizeof link, "%s", test_path("link.txt"));
    (void)snprintf(behind, sizeof behind, "%s", test_path("behind.txt"));
    (void)snprintf(pipe, sizeof pipe, "%s", test_path("pipe"));
    test_write_text(test_folder(), "behind.txt", "old");
    assert_int_equal(symlink("behind.txt", link), 0);
    assert_int_equal(whole_file_write(link, "new", 3), OFL_OK);
    assert_int_equal(lstat(link, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_holds(behind, "new");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(whole_file_write(pipe, "x", 1), OFL_ERROR_IO);
    assert_int_equal(lstat(pipe, &about), 0);
    assert_true(S_ISFIFO(about.st_mode));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_file_is_replaced_whole),
    cmocka_unit_test(what_is_there_stays_until_the_end),
    cmocka_unit_test(a_failure_is_told_and_leaves_nothing),
    cmocka_unit_test(a_link_stays_a_link_and_a_pipe_a_pipe),
};

TEST_MAIN(tests)
