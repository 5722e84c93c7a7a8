/* How long a unit computes: from measured points, else by the roofline of the machine's rates. */
#include "plan/plan_state.h"

#include <math.h>

/* Measured seconds per element at n tokens: straight lines between the points; beyond the last, time grows with the tokens. */
static double measured_element(const ofl_compute_point *p, uint64_t count, double n)
{
    uint64_t last = count - 1;
    if (n <= p[0].tokens) return p[0].seconds_per_element;
    if (n >= p[last].tokens) return p[last].seconds_per_element * n / p[last].tokens;
    uint64_t i = 1;
    while (p[i].tokens < n) i++;
    double share = (n - p[i - 1].tokens) / (p[i].tokens - p[i - 1].tokens);
    return p[i - 1].seconds_per_element + share * (p[i].seconds_per_element - p[i - 1].seconds_per_element);
}

/* A rate that is not known costs no time; the forecast's error band says so. */
static double per(double rate) { return rate > 0 ? 1.0 / rate : 0; }

static double block_element(const ofl_plan_facts *facts, double n)
{
    if (facts->point_count != 0) return measured_element(facts->points, facts->point_count, n);
    return 2.0 * n * per(facts->figures[OFL_FIGURE_DEVICE_FLOPS]);
}

static double head_element(const ofl_plan_facts *facts, double rows)
{
    if (facts->head_point_count == 0) return block_element(facts, rows);
    return measured_element(facts->head_points, facts->head_point_count, rows);
}

/* As measured. A step has as many decoding tokens as rows of logits, the rest are of prompts; the context is shared out evenly. */
static double measured_attention(const ofl_plan_facts *facts, const ofl_step_shape *shape)
{
    double share = fmin(1, shape->logits_rows / fmax(1, shape->tokens));
    double prefill = facts->prefill_seconds > 0 ? facts->prefill_seconds : facts->attention_seconds;
    return (double)shape->kv_tokens * (share * facts->attention_seconds + (1 - share) * prefill);
}

/* Scores and sums: 2 × 2 operations per head element; the cache is read once per sequence, not once per token of a prefill chunk. */
static double attention_seconds(const ofl_plan_facts *facts, const ofl_step_shape *shape)
{
    if (facts->attention_seconds > 0) return measured_attention(facts, shape);
    const ofl_model_shape *m = &facts->shape;
    double pairs = (double)shape->kv_tokens;
    double operations = 2.0 * m->head_count * ((double)m->head_dim_k + m->head_dim_v) * m->block_count * pairs;
    double readers = fmin(1, (shape->logits_rows + 1.0) / fmax(1, shape->tokens));
    double bytes = (double)facts->kv_bytes_per_token * pairs * readers;
    return fmax(operations * per(facts->figures[OFL_FIGURE_DEVICE_FLOPS]), bytes * per(facts->figures[OFL_FIGURE_DEVICE_BANDWIDTH]));
}

void ofl_plan_rates(const ofl_plan_facts *facts, const ofl_step_shape *shape, ofl_step_rates *out)
{
    const ofl_model_shape *m = &facts->shape;
    double share = m->expert_count != 0 ? fmin(1, (double)m->expert_used_count / m->expert_count) : 1, n = shape->tokens;
    *out = (ofl_step_rates){.measured = facts->point_count != 0, .blocks_run = n > 0, .head_runs = shape->logits_rows > 0};
    out->byte = out->measured ? 0 : per(facts->figures[OFL_FIGURE_DEVICE_BANDWIDTH]);
    out->expert_share = ofl_expert_share(m->expert_count, m->expert_used_count, n);
    out->block = block_element(facts, n);
    out->head = head_element(facts, shape->logits_rows);
    out->expert = out->measured ? out->expert_share * block_element(facts, fmax(1, n * share / fmax(out->expert_share, 1e-9)))
                                : share * block_element(facts, n);
    out->attention = m->block_count != 0 ? attention_seconds(facts, shape) / m->block_count : 0;
}

double ofl_plan_unit_seconds(const ofl_step_rates *rates, const ofl_unit_load *load)
{
    if (load->head ? !rates->head_runs : !rates->blocks_run) return 0;
    double seconds = ofl_larger(load->bytes * rates->byte, load->elements * (load->head ? rates->head : rates->block));
    if (load->expert_elements > 0)
        seconds += ofl_larger(load->expert_bytes * rates->expert_share * rates->byte, load->expert_elements * rates->expert);
    return load->attention ? seconds + rates->attention : seconds;
}
