/* A loop to be changed by the README's diff: whole, resident, float32, its checkpoint one mapped file. Layout and names are llama2.c's,
 * which the diff is for: no tokens' text, no sampling.
 *   loop FILE write   writes a random checkpoint;   loop FILE   prints tokens and a sum over the bits of all logits */
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

typedef struct { int dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len; } Config;
typedef struct {
    float *token_embedding_table, *rms_att_weight, *wq, *wk, *wv, *wo, *rms_ffn_weight, *w1, *w2, *w3, *rms_final_weight, *wcls;
} TransformerWeights;
typedef struct { float *x, *xb, *q, *hb, *hb2, *logits, *key_cache, *value_cache; } RunState;
typedef struct {
    Config config;
    TransformerWeights weights;
    RunState state;
    int fd;
    float* data;
    ssize_t file_size;
} Transformer;

static float* take(float** from, uint64_t count) { float* at = *from; *from += count; return at; }

void read_checkpoint(char* path, Config* p, TransformerWeights* w, int* fd, float** data, ssize_t* file_size) {
    struct stat about;
    *fd = open(path, O_RDONLY);
    if (*fd == -1 || fstat(*fd, &about) != 0) { perror(path); exit(1); }
    *file_size = about.st_size;
    *data = mmap(NULL, about.st_size, PROT_READ, MAP_PRIVATE, *fd, 0);
    if (*data == MAP_FAILED) { perror(path); exit(1); }
    memcpy(p, *data, sizeof *p);
    float* at = *data + sizeof *p / sizeof **data;
    uint64_t layers = p->n_layers, dim = p->dim, hidden = p->hidden_dim, kv_dim = dim / p->n_heads * p->n_kv_heads;
    w->token_embedding_table = take(&at, p->vocab_size * dim);
    w->rms_att_weight = take(&at, layers * dim);
    w->wq = take(&at, layers * dim * dim);
    w->wk = take(&at, layers * dim * kv_dim);
    w->wv = take(&at, layers * dim * kv_dim);
    w->wo = take(&at, layers * dim * dim);
    w->rms_ffn_weight = take(&at, layers * dim);
    w->w1 = take(&at, layers * dim * hidden);
    w->w2 = take(&at, layers * dim * hidden);
    w->w3 = take(&at, layers * dim * hidden);
    w->rms_final_weight = take(&at, dim);
    w->wcls = w->token_embedding_table; /* tied */
}

void malloc_run_state(RunState* s, Config* p) {
    uint64_t kv = (uint64_t)p->n_layers * p->seq_len * (p->dim / p->n_heads * p->n_kv_heads);
    uint64_t all = 3 * p->dim + 2 * p->hidden_dim + p->vocab_size;
    float* at = calloc(all + 2 * kv, sizeof *at);
    if (at == NULL) exit(1);
    s->x = take(&at, p->dim);
    s->xb = take(&at, p->dim);
    s->q = take(&at, p->dim);
    s->hb = take(&at, p->hidden_dim);
    s->hb2 = take(&at, p->hidden_dim);
    s->logits = take(&at, p->vocab_size);
    s->key_cache = take(&at, kv);
    s->value_cache = take(&at, kv);
}

void build_transformer(Transformer *t, char* checkpoint_path) {
    // read in the weights
    read_checkpoint(checkpoint_path, &t->config, &t->weights, &t->fd, &t->data, &t->file_size);
    // allocate the RunState buffers
    malloc_run_state(&t->state, &t->config);
}

void rmsnorm(float* o, float* x, float* weight, int size) {
    float sum = 0;
    for (int i = 0; i < size; i++) sum += x[i] * x[i];
    for (int i = 0; i < size; i++) o[i] = weight[i] * x[i] / sqrtf(sum / size + 1e-5f);
}

void matmul(float* xout, float* x, float* w, int n, int d) {
    // W (d,n) @ x (n,) -> xout (d,)
    for (int i = 0; i < d; i++) {
        float sum = 0;
        for (int j = 0; j < n; j++) sum += w[(int64_t)i * n + j] * x[j];
        xout[i] = sum;
    }
}

float* forward(Transformer* transformer, int token, int pos) {
    Config* p = &transformer->config;
    TransformerWeights* w = &transformer->weights;
    RunState* s = &transformer->state;
    int dim = p->dim, hidden = p->hidden_dim, size = dim / p->n_heads, kv_dim = size * p->n_kv_heads, shared = p->n_heads / p->n_kv_heads;
    memcpy(s->x, w->token_embedding_table + token * dim, dim * sizeof(float));
    for (uint64_t l = 0; l < (uint64_t)p->n_layers; l++) {
        float *keys = s->key_cache + l * p->seq_len * kv_dim, *values = s->value_cache + l * p->seq_len * kv_dim, share[512], all;
        rmsnorm(s->xb, s->x, w->rms_att_weight + l * dim, dim);
        matmul(s->q, s->xb, w->wq + l * dim * dim, dim, dim);
        matmul(keys + pos * kv_dim, s->xb, w->wk + l * dim * kv_dim, dim, kv_dim);
        matmul(values + pos * kv_dim, s->xb, w->wv + l * dim * kv_dim, dim, kv_dim);
        memset(s->xb, 0, dim * sizeof(float));
        for (int h = 0; h < p->n_heads; h++) {
            int at = h / shared * size;
            all = 0;
            for (int t = 0; t <= pos; t++) {
                share[t] = 0;
                for (int i = 0; i < size; i++) share[t] += s->q[h * size + i] * keys[t * kv_dim + at + i];
                all += share[t] = expf(share[t] / sqrtf(size) - pos + t);
            }
            for (int t = 0; t <= pos; t++)
                for (int i = 0; i < size; i++) s->xb[h * size + i] += share[t] / all * values[t * kv_dim + at + i];
        }
        matmul(s->q, s->xb, w->wo + l * dim * dim, dim, dim);
        for (int i = 0; i < dim; i++) s->x[i] += s->q[i];
        rmsnorm(s->xb, s->x, w->rms_ffn_weight + l * dim, dim);
        matmul(s->hb, s->xb, w->w1 + l * dim * hidden, dim, hidden);
        matmul(s->hb2, s->xb, w->w3 + l * dim * hidden, dim, hidden);
        for (int i = 0; i < hidden; i++) s->hb[i] *= s->hb2[i] / (1 + expf(-s->hb[i]));
        matmul(s->xb, s->hb, w->w2 + l * dim * hidden, hidden, dim);
        for (int i = 0; i < dim; i++) s->x[i] += s->xb[i];
    }
    rmsnorm(s->x, s->x, w->rms_final_weight, dim);
    matmul(s->logits, s->x, w->wcls, dim, p->vocab_size);
    return s->logits;
}

static int write_random(const char* path) {
    Config c = {192, 512, 6, 6, 3, 300, 24};
    uint64_t kv_dim = 96, count = 300 * 192 + 192 + 6 * (2 * 192 + 2 * 192 * 192 + 2 * 192 * kv_dim + 3 * 192 * 512);
    FILE* file = fopen(path, "wb");
    if (file == NULL || fwrite(&c, sizeof c, 1, file) != 1) return 1;
    for (uint64_t i = 0; i < count; i++) {
        float value = (rand() % 2001 - 1000) * 1e-4f;
        if (fwrite(&value, sizeof value, 1, file) != 1) return 1;
    }
    return fclose(file) != 0;
}

int main(int argc, char** argv) {
    Transformer transformer;
    uint64_t sum = 0;
    if (argc > 2) return write_random(argv[1]);
    build_transformer(&transformer, argv[1]);
    int vocab = transformer.config.vocab_size, token = 1;
    for (int pos = 0; pos < transformer.config.seq_len; pos++) {
        float* logits = forward(&transformer, token, pos);
        for (int i = 0; i < vocab; i++) {
            uint32_t bits;
            memcpy(&bits, &logits[i], sizeof bits);
            sum = sum * 31 + bits;
            token = logits[i] > logits[token] ? i : token;
        }
        printf("%d ", token);
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
