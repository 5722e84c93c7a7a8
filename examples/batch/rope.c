#include "batch/rope.h"

#include <math.h>

#include "common/app_error.h"

#define PI 3.14159265358979323846

static double llama3(const ofl_model_shape *s, double frequency)
{
    double turns = s->rope_original_context * frequency / (2 * PI); /* within the context it was trained on */
    if (turns < s->rope_low_freq_factor) return frequency / s->rope_factor;
    if (turns > s->rope_high_freq_factor) return frequency;
    double kept = (turns - s->rope_low_freq_factor) / (s->rope_high_freq_factor - s->rope_low_freq_factor);
    return kept * frequency + (1 - kept) * frequency / s->rope_factor;
}

/* The pair that makes so many turns within the original context. */
static double yarn_pair(const ofl_model_shape *s, double turns)
{
    return s->rope_dim * log(s->rope_original_context / (turns * 2 * PI)) / (2 * log(s->rope_freq_base));
}

static double yarn(const ofl_model_shape *s, uint32_t pair, double frequency)
{
    double fast = s->rope_beta_fast > 0 ? s->rope_beta_fast : 32, slow = s->rope_beta_slow > 0 ? s->rope_beta_slow : 1;
    double low = fmax(floor(yarn_pair(s, fast)), 0), high = fmin(ceil(yarn_pair(s, slow)), s->rope_dim - 1.0);
    double ramp = (pair - low) / (high > low ? high - low : 0.001);
    double stretched = fmin(fmax(ramp, 0), 1);
    return frequency / s->rope_factor * stretched + frequency * (1 - stretched);
}

static ofl_status check(const ofl_model_shape *s)
{
    ofl_rope_scaling scaling = s->rope_scaling;
    if (s->rope_dim == 0 || s->rope_dim % 2 != 0 || s->rope_dim > ROPE_MAX_DIM || s->rope_dim > s->head_dim_k)
        return app_fail(OFL_ERROR_UNSUPPORTED, "rotary embedding: %u rotated elements of a head of %u; even numbers up to %u are supported",
                        s->rope_dim, s->head_dim_k, ROPE_MAX_DIM);
    if (!(s->rope_freq_base > 1))
        return app_fail(OFL_ERROR_UNSUPPORTED, "rotary embedding: a frequency base of %g is not supported", s->rope_freq_base);
    if (scaling == OFL_ROPE_NONE) return OFL_OK;
    if (scaling != OFL_ROPE_LINEAR && scaling != OFL_ROPE_LLAMA3 && scaling != OFL_ROPE_YARN)
        return app_fail(OFL_ERROR_UNSUPPORTED,
                        "rotary embedding: longrope and dynamic scaling are not supported; linear, llama3 and yarn are");
    if (!(s->rope_factor > 0)) return app_fail(OFL_ERROR_UNSUPPORTED, "rotary embedding: the scaling has no factor");
    if (scaling != OFL_ROPE_LINEAR && s->rope_original_context == 0)
        return app_fail(OFL_ERROR_UNSUPPORTED, "rotary embedding: the scaling does not say the original context");
    if (scaling == OFL_ROPE_LLAMA3 && !(s->rope_high_freq_factor > s->rope_low_freq_factor))
        return app_fail(OFL_ERROR_UNSUPPORTED, "rotary embedding: the llama3 scaling's frequency factors are out of order");
    return OFL_OK;
}

ofl_status rope_init(rope *r, const ofl_model_shape *s, const float *factors)
{
    ofl_status status = check(s);
    if (status != OFL_OK) return status;
    *r = (rope){.dim = s->rope_dim, .pairing = s->rope_pairing, .magnitude = 1};
    for (uint32_t i = 0; i < r->dim / 2; i++) {
        double frequency = pow(s->rope_freq_base, -2.0 * i / r->dim);
        if (factors != NULL)
            frequency /= (double)factors[i];
        else if (s->rope_scaling == OFL_ROPE_LINEAR)
            frequency /= s->rope_factor;
        else if (s->rope_scaling == OFL_ROPE_LLAMA3)
            frequency = llama3(s, frequency);
        else if (s->rope_scaling == OFL_ROPE_YARN)
            frequency = yarn(s, i, frequency);
        r->frequencies[i] = frequency;
    }
    if (s->rope_scaling == OFL_ROPE_YARN)
        r->magnitude = s->rope_attention_factor > 0 ? s->rope_attention_factor : s->rope_factor > 1 ? 0.1 * log(s->rope_factor) + 1 : 1;
    return OFL_OK;
}

void rope_table(const rope *r, uint32_t position, float *table)
{
    for (uint32_t i = 0; i < r->dim / 2; i++) {
        double angle = position * r->frequencies[i];
        table[i] = (float)(cos(angle) * r->magnitude);
        table[i + r->dim / 2] = (float)(sin(angle) * r->magnitude);
    }
}

void rope_turn(const rope *r, const float *table, float *row, uint32_t heads, uint32_t head_dim)
{
    uint32_t half = r->dim / 2, step = r->pairing == OFL_ROPE_HALF ? 1 : 2, other = r->pairing == OFL_ROPE_HALF ? half : 1;
    for (uint32_t h = 0; h < heads; h++, row += head_dim) {
        for (uint32_t i = 0; i < half; i++) {
            float a = row[i * step], b = row[i * step + other];
            row[i * step] = a * table[i] - b * table[i + half];
            row[i * step + other] = b * table[i] + a * table[i + half];
        }
    }
}
