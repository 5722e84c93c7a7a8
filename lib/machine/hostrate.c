#include "machine/hostrate.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#define ARRAY_BYTES (UINT64_C(256) << 20) /* caches hold tens of MiB, a few of the largest more than this: there the rate is too good */
#define PASSES 4u
#define MOST_THREADS 64u

typedef struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t ready; /* threads whose part is written */
    bool open;
} gate;

typedef struct reader {
    pthread_t thread;
    gate *gate;
    uint64_t *words;
    uint64_t count;
    uint64_t sum; /* so that the reads count for something */
    double seconds;
} reader;

static double seconds_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Eight sums, so that the adds do not wait for each other. */
static uint64_t read_all(const uint64_t *words, uint64_t count)
{
    uint64_t sums[8] = {0}, sum = 0;
    for (uint64_t i = 0; i + 8 <= count; i += 8) {
        for (uint64_t j = 0; j < 8; j++) sums[j] += words[i + j];
    }
    for (int j = 0; j < 8; j++) sum += sums[j];
    return sum;
}

static void wait_at(gate *g)
{
    (void)pthread_mutex_lock(&g->mutex);
    g->ready++;
    (void)pthread_cond_broadcast(&g->changed);
    while (!g->open) (void)pthread_cond_wait(&g->changed, &g->mutex);
    (void)pthread_mutex_unlock(&g->mutex);
}

/* Writes its part first, so that the pages are there and near. */
static void *read_part(void *argument)
{
    reader *r = argument;
    memset(r->words, 1, r->count * sizeof *r->words);
    wait_at(r->gate);
    double start = seconds_now();
    for (uint32_t pass = 0; pass < PASSES; pass++) r->sum += read_all(r->words, r->count);
    r->seconds = seconds_now() - start;
    return NULL;
}

static uint32_t thread_count(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < 1 ? 1 : count > (int)MOST_THREADS ? MOST_THREADS : (uint32_t)count;
}

static void open_when_ready(gate *g, uint32_t threads)
{
    (void)pthread_mutex_lock(&g->mutex);
    while (g->ready < threads) (void)pthread_cond_wait(&g->changed, &g->mutex);
    g->open = true;
    (void)pthread_cond_broadcast(&g->changed);
    (void)pthread_mutex_unlock(&g->mutex);
}

/* A thread that cannot be had is missing from the sum; without any there is no rate. */
static double sum_of_rates(gate *g, uint64_t *words, uint64_t count)
{
    reader readers[MOST_THREADS];
    uint32_t wanted = thread_count(), started = 0;
    double rate = 0;
    for (uint32_t i = 0; i < wanted; i++) {
        readers[i] = (reader){.gate = g, .words = words + count / wanted * i, .count = count / wanted};
        if (pthread_create(&readers[i].thread, NULL, read_part, &readers[i]) != 0) break;
        started++;
    }
    open_when_ready(g, started);
    for (uint32_t i = 0; i < started; i++) {
        (void)pthread_join(readers[i].thread, NULL);
        if (readers[i].seconds > 0 && readers[i].sum != 0) rate += (double)(readers[i].count * sizeof *words * PASSES) / readers[i].seconds;
    }
    return rate;
}

ofl_status ofl_host_rate_measure(uint64_t room_bytes, double *bytes_per_second_out)
{
    gate g = {.ready = 0};
    *bytes_per_second_out = 0;
    if (room_bytes / 4 < ARRAY_BYTES) return OFL_OK;
    uint64_t *words = ofl_alloc(ARRAY_BYTES / sizeof *words, sizeof *words);
    if (words == NULL)
        return ofl_fail(OFL_ERROR_HOST_MEMORY, "probe: no host memory for %s to read; free some", ofl_bytes_text(ARRAY_BYTES).text);
    if (pthread_mutex_init(&g.mutex, NULL) == 0) {
        if (pthread_cond_init(&g.changed, NULL) == 0) {
            *bytes_per_second_out = sum_of_rates(&g, words, ARRAY_BYTES / sizeof *words);
            (void)pthread_cond_destroy(&g.changed);
        }
        (void)pthread_mutex_destroy(&g.mutex);
    }
    ofl_free(words);
    return OFL_OK;
}
