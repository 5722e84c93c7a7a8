/* Killed at any call that touches a file, at random moments, or out of disk: every line stays whole, and a second run finishes the rest, each
 * request once. The calls are counted by standing in for the C library's. */
#include "support/stub_model.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "batch/signals.h"

enum { REQUESTS = 24, MANY_REQUESTS = 200, RANDOM_DEATHS = 200 };

/* ---- the calls ---- */

typedef enum kill_when { KILL_NEVER, KILL_BEFORE, KILL_HALF, KILL_AFTER } kill_when;
static struct { kill_when when; uint32_t at, calls; uint64_t disk_left; } faults = {KILL_NEVER, 0, 0, UINT64_MAX};

static bool due(void) { return faults.when != KILL_NEVER && ++faults.calls == faults.at; }
static void die(void) { (void)kill(getpid(), SIGKILL); }

ssize_t write(int fd, const void *data, size_t bytes)
{
    bool now = fd > 2 && due();
    if (now && faults.when == KILL_BEFORE) die();
    if (now && faults.when == KILL_HALF) (void)syscall(SYS_write, fd, data, bytes / 2), die();
    if (fd > 2 && bytes > faults.disk_left) {
        bytes = (size_t)faults.disk_left;
        if (bytes == 0) {
            errno = ENOSPC;
            return -1;
        }
    }
    ssize_t done = syscall(SYS_write, fd, data, bytes);
    if (fd > 2 && done > 0 && faults.disk_left != UINT64_MAX) faults.disk_left -= (uint64_t)done;
    if (now) die();
    return done;
}

#define COUNTED(result)                                          \
    bool now = due();                                            \
    if (now && faults.when != KILL_AFTER) die();                 \
    int done = (int)(result);                                    \
    if (now) die();                                              \
    return done

int fdatasync(int fd) { COUNTED(syscall(SYS_fdatasync, fd)); }
int fsync(int fd) { COUNTED(syscall(SYS_fsync, fd)); }
int ftruncate(int fd, off_t bytes) { COUNTED(syscall(SYS_ftruncate, fd, bytes)); }
int rename(const char *from, const char *to) { COUNTED(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0)); }

/* ---- a job in a process of its own ---- */

static char in_path[512], out_path[512];
static int requests = REQUESTS;

/* A step that never ends, and says that it has begun by a file beside the output; 0: none. */
static uint32_t stuck_at;

static void stay_stuck(void)
{
    char mark[600];
    (void)snprintf(mark, sizeof mark, "%s.stuck", out_path);
    (void)close(open(mark, O_WRONLY | O_CREAT, 0666));
    for (;;) (void)pause();
}

static ofl_status slow_step(void *context, const ofl_step *step, const int32_t *tokens, row_choice *rows)
{
    if (stuck_at != 0 && the_stub.steps + 1 == stuck_at) stay_stuck();
    (void)usleep(the_stub.sleep_us);
    return stub_step(context, step, tokens, rows);
}

static int run_job(bool ordered, uint32_t sleep_us)
{
    backend model = stub_backend();
    run_settings settings = stub_settings(in_path, out_path);
    int exit_status = EXIT_FAILED;
    the_stub.sleep_us = sleep_us;
    model.step = slow_step;
    settings.ordered = ordered;
    settings.stop = signals_stop;
    signals_install();
    return batch_run(&settings, &model, &exit_status) == OFL_OK ? exit_status : EXIT_FAILED;
}

static pid_t start_job(bool ordered, uint32_t sleep_us, kill_when when, uint32_t at, uint64_t disk)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child != 0) return child;
    faults.when = when;
    faults.at = at;
    faults.calls = 0;
    faults.disk_left = disk;
    _exit(run_job(ordered, sleep_us));
}

/* The exit status, or 128 + the signal. */
static int wait_job(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void write_jobs(void)
{
    FILE *file = fopen(in_path, "w");
    for (int i = 0; i < requests; i++) {
        if (i == 7) (void)fputs("not a request\n", file);
        (void)fprintf(file, "{\"custom_id\":\"r%d\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"%*s#answer \xE2\x82\xAC %d\"}}\n", i,
                      i * 5 % 40, "", i);
    }
    assert_int_equal(fclose(file), 0);
}

static void fresh(void)
{
    static int number;
    char name[40];
    (void)snprintf(name, sizeof name, "crash-in%d.jsonl", ++number);
    (void)snprintf(in_path, sizeof in_path, "%s", test_path(name));
    (void)snprintf(name, sizeof name, "crash-out%d.jsonl", number);
    (void)snprintf(out_path, sizeof out_path, "%s", test_path(name));
    write_jobs();
}

/* Whole lines, each request at most once; all of them when `all`. Returns how many. */
static int check_output(bool all, bool torn_allowed)
{
    char *text = access(out_path, F_OK) == 0 ? test_read(out_path, NULL) : strdup("");
    int seen[MANY_REQUESTS + 1] = {0}, count = 0;
    for (char *at = text; *at != '\0'; count++) {
        char *end = strchr(at, '\n');
        if (end == NULL && torn_allowed) break;
        assert_non_null(end);
        cJSON *tree = cJSON_ParseWithLength(at, (size_t)(end - at));
        if (tree == NULL) fail_msg("no whole line: %.*s", (int)(end - at), at);
        const cJSON *id = cJSON_GetObjectItem(tree, "custom_id");
        seen[cJSON_IsString(id) ? atoi(id->valuestring + 1) : requests]++;
        cJSON_Delete(tree);
        at = end + 1;
    }
    for (int i = 0; i <= requests; i++) assert_true(seen[i] <= 1 && (!all || seen[i] == 1));
    free(text);
    return count;
}

static void finish_and_check(bool ordered)
{
    int status = wait_job(start_job(ordered, 0, KILL_NEVER, 0, UINT64_MAX));
    assert_int_equal(status, EXIT_ERROR_LINES);
    (void)check_output(true, false);
}

static void killed_at_every_call(kill_when when, bool ordered)
{
    for (uint32_t at = 1;; at++) {
        fresh();
        int status = wait_job(start_job(ordered, 0, when, at, UINT64_MAX));
        if (status == EXIT_ERROR_LINES) {
            assert_true(at > REQUESTS); /* every record was one of the calls */
            finish_and_check(ordered);
            return;
        }
        assert_int_equal(status, 128 + SIGKILL);
        int before = check_output(false, true);
        /* A second death, in the run that goes on. */
        status = wait_job(start_job(ordered, 0, when, 2 + at % 5, UINT64_MAX));
        assert_true(check_output(false, true) >= before);
        finish_and_check(ordered);
    }
}

static void test_killed_before_every_call(void **state)
{
    (void)state;
    killed_at_every_call(KILL_BEFORE, false);
}

static void test_killed_in_the_middle_of_every_write(void **state)
{
    (void)state;
    killed_at_every_call(KILL_HALF, false);
}

static void test_killed_after_every_call(void **state)
{
    (void)state;
    killed_at_every_call(KILL_AFTER, true);
}

static void test_killed_at_random_moments(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int round = 0, deaths = 0; deaths < RANDOM_DEATHS; round++) {
        fresh();
        for (int i = 0; i < 4; i++) {
            pid_t child = start_job(round % 2, 200, KILL_NEVER, 0, UINT64_MAX);
            (void)usleep((useconds_t)(test_random(&seed) % 12000));
            (void)kill(child, SIGKILL);
            deaths += wait_job(child) == 128 + SIGKILL;
            (void)check_output(false, true);
        }
        finish_and_check(round % 2);
        assert_true(round < RANDOM_DEATHS);
    }
}

static void test_disk_full(void **state)
{
    (void)state;
    for (uint64_t room = 1; room < 9000; room += 311) {
        fresh();
        int status = wait_job(start_job(false, 0, KILL_NEVER, 0, room));
        assert_int_equal(status, EXIT_FAILED);
        (void)check_output(false, false);
        finish_and_check(false);
    }
}

/* A file system of 64 KiB, in a mount namespace of this process's own. NULL: may not be made. */
static const char *small_disk(void)
{
    const char *folder = test_path("small");
    if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return NULL;
    assert_int_equal(mkdir(folder, 0777), 0);
    return mount("small", folder, "tmpfs", 0, "size=64k") == 0 ? folder : NULL;
}

static void test_small_disk(void **state)
{
    (void)state;
    const char *folder = small_disk();
    if (folder == NULL) {
        print_message("a small file system can only be mounted by root\n");
        skip();
    }
    requests = MANY_REQUESTS;
    fresh();
    (void)snprintf(out_path, sizeof out_path, "%s/out.jsonl", folder);
    for (int before = 0, round = 0; round < 3; round++) { /* the second and third time it is full from the start */
        assert_int_equal(wait_job(start_job(false, 0, KILL_NEVER, 0, UINT64_MAX)), EXIT_FAILED);
        int lines = check_output(false, false);
        assert_true(lines >= before && lines < MANY_REQUESTS);
        before = lines;
        assert_true(before > 100);
    }
    assert_int_equal(mount("small", folder, "tmpfs", MS_REMOUNT, "size=1m"), 0);
    finish_and_check(false);
    assert_int_equal(umount2(folder, MNT_DETACH), 0);
    requests = REQUESTS;
}

static void test_file_size_limit(void **state)
{
    (void)state;
    fresh();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {1000, 1000};
        (void)setrlimit(RLIMIT_FSIZE, &limit);
        _exit(run_job(false, 0));
    }
    assert_int_equal(wait_job(child), EXIT_FAILED);
    (void)check_output(false, false);
    finish_and_check(false);
}

/* Waits until this file has more bytes than that. */
static void wait_for_file(const char *path, int64_t bytes)
{
    struct stat about;
    for (int i = 0; i < 20000; i++) {
        if (stat(path, &about) == 0 && about.st_size > bytes) return;
        (void)usleep(1000);
    }
    fail_msg("%s: not written", path);
}

static void test_signals(void **state)
{
    (void)state;
    static const struct { int number, times, wanted; } cases[] = {
        {SIGINT, 1, EXIT_INTERRUPTED}, {SIGINT, 2, EXIT_INTERRUPTED}, {SIGTERM, 1, EXIT_STOPPED}, {SIGUSR1, 1, EXIT_STOPPED}, {SIGTERM, 3, EXIT_STOPPED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fresh();
        pid_t child = start_job(false, 3000, KILL_NEVER, 0, UINT64_MAX);
        wait_for_file(out_path, 0); /* under way */
        for (int n = 0; n < cases[i].times; n++) {
            (void)kill(child, cases[i].number);
            (void)usleep(300);
        }
        (void)kill(child, SIGPIPE);
        assert_int_equal(wait_job(child), cases[i].wanted);
        assert_true(check_output(false, false) < REQUESTS);
        finish_and_check(false);
    }
}

/* A second SIGINT does not wait for the step. */
static void test_second_interrupt_ends_it_at_once(void **state)
{
    (void)state;
    int status;
    char mark[600];
    fresh();
    (void)snprintf(mark, sizeof mark, "%s.stuck", out_path);
    stuck_at = 40;
    pid_t child = start_job(false, 0, KILL_NEVER, 0, UINT64_MAX);
    stuck_at = 0;
    wait_for_file(mark, -1);
    (void)kill(child, SIGINT);
    (void)usleep(100000);
    assert_int_equal(waitpid(child, &status, WNOHANG), 0); /* in its step, for ever */
    (void)kill(child, SIGINT);
    assert_int_equal(wait_job(child), EXIT_INTERRUPTED);
    int lines = check_output(false, false);
    assert_true(lines > 0 && lines < REQUESTS);
    finish_and_check(false);
}

/* What had been written when the process was killed is there afterwards: nothing waits in memory for the end. */
static void test_results_outlive_the_process(void **state)
{
    (void)state;
    requests = 100;
    fresh();
    stuck_at = 200;
    pid_t child = start_job(false, 0, KILL_NEVER, 0, UINT64_MAX);
    stuck_at = 0;
    char mark[600];
    (void)snprintf(mark, sizeof mark, "%s.stuck", out_path);
    wait_for_file(mark, -1);
    int seen = check_output(false, false);
    assert_true(seen > 30);
    (void)kill(child, SIGKILL);
    assert_int_equal(wait_job(child), 128 + SIGKILL);
    assert_int_equal(check_output(false, false), seen);
    finish_and_check(false);
    requests = REQUESTS;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_killed_before_every_call),
    cmocka_unit_test(test_killed_in_the_middle_of_every_write),
    cmocka_unit_test(test_killed_after_every_call),
    cmocka_unit_test(test_killed_at_random_moments),
    cmocka_unit_test(test_disk_full),
    cmocka_unit_test(test_small_disk),
    cmocka_unit_test(test_file_size_limit),
    cmocka_unit_test(test_signals),
    cmocka_unit_test(test_second_interrupt_ends_it_at_once),
    cmocka_unit_test(test_results_outlive_the_process),
};
TEST_MAIN(tests)
