/* replay FOLDER…: runs a target over each file of its corpus, without a fuzzer. */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static void replay(const char *path)
{
    struct stat about;
    FILE *file = fopen(path, "rb");
    FUZZ_REQUIRE(file != NULL && fstat(fileno(file), &about) == 0);
    size_t bytes = (size_t)about.st_size;
    uint8_t *data = malloc(bytes > 0 ? bytes : 1); /* exactly as long as the input: a sanitizer sees a byte too many */
    FUZZ_REQUIRE(data != NULL && fread(data, 1, bytes, file) == bytes);
    (void)fclose(file);
    fuzz_one(data, bytes);
    free(data);
}

static uint64_t replay_folder(const char *folder)
{
    uint64_t count = 0;
    DIR *directory = opendir(folder);
    if (directory == NULL) return 0;
    for (const struct dirent *item = readdir(directory); item != NULL; item = readdir(directory)) {
        char path[4096];
        if (item->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, item->d_name);
        replay(path);
        count++;
    }
    (void)closedir(directory);
    return count;
}

int main(int argc, char **argv)
{
    uint64_t count = 0;
    for (int i = 1; i < argc; i++) count += replay_folder(argv[i]);
    (void)printf("%llu inputs, %llu accepted\n", (unsigned long long)count, (unsigned long long)fuzz_accepted());
    if (count > 0 && fuzz_accepted() > 0) return 0;
    (void)fprintf(stderr, "A corpus of which nothing is accepted tests little: run fuzz_seeds tests/fuzz/corpus to write new seeds.\n");
    return 1;
}
