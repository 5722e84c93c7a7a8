#include "support/support.h"

#include <sys/wait.h>
#include <unistd.h>

static char folder[256];

static void remove_folder(void)
{
    char command[300];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) (void)fprintf(stderr, "left behind: %s\n", folder);
}

const char *test_folder(void)
{
    if (folder[0] == '\0') {
        const char *base = getenv("TMPDIR");
        (void)snprintf(folder, sizeof folder, "%s/ofload-test-XXXXXX", base != NULL ? base : "/tmp");
        if (mkdtemp(folder) == NULL) abort();
        (void)atexit(remove_folder);
    }
    return folder;
}

const char *test_path(const char *name)
{
    static char paths[16][512];
    static unsigned next;
    char *path = paths[next++ % 16];
    (void)snprintf(path, sizeof paths[0], "%s/%s", test_folder(), name);
    return path;
}

void test_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static char *read_all(FILE *file, size_t *bytes_out)
{
    char *data = NULL;
    size_t used = 0, capacity = 0, got;
    do {
        if (used + 65536 + 1 > capacity) {
            capacity = (used + 65536 + 1) * 2;
            data = realloc(data, capacity);
            assert_non_null(data);
        }
        got = fread(data + used, 1, 65536, file);
        used += got;
    } while (got > 0);
    data[used] = '\0';
    if (bytes_out != NULL) *bytes_out = used;
    return data;
}

char *test_read(const char *path, size_t *bytes_out)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("cannot open %s", path);
    char *data = read_all(file, bytes_out);
    (void)fclose(file);
    return data;
}

int test_run(const char *command, char **output_out)
{
    char line[4096];
    (void)snprintf(line, sizeof line, "( %s ) 2>&1", command);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    char *output = read_all(pipe, NULL);
    int status = pclose(pipe);
    if (output_out != NULL) *output_out = output;
    else free(output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

uint64_t test_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
