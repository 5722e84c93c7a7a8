/* Whole layers that the device cannot hold are computed by the host's processor, where they lie. */
#include <math.h>
#include <stdio.h>

#include "common/app_error.h"
#include "plan/ways.h"

typedef struct hosting {
    const ways_job *job;
    const layers *l;
    double bandwidth, flops; /* of the host; 0: not known */
} hosting;

/* What is on the host when the device is filled with output and whole layers, first layers first. */
typedef struct host_part {
    bool fits;
    uint32_t layers;
    uint64_t device_bytes, host_bytes; /* with KV */
    uint64_t weights, expert_bytes;    /* host layers */
    uint64_t kv_read;                  /* by one sequence's step, host layers */
    double elements, expert_elements;
    double device_share; /* of all weights */
} host_part;

static ofl_status fixed_bytes(const hosting *h, uint32_t sequences, uint64_t *out)
{
    uint64_t hidden = 0, logits = 0;
    ofl_status status = ways_activations(h->job, sequences, &hidden, &logits);
    *out = h->job->base.budget.runtime_bytes + hidden + logits + h->job->all.budget.workspace_bytes;
    return status;
}

static void put_on_host(host_part *p, const layer *row, uint32_t sequences)
{
    p->layers++;
    p->weights += row->bytes;
    p->expert_bytes += row->expert_bytes;
    p->elements += row->elements;
    p->expert_elements += row->expert_elements;
    p->kv_read += row->kv_read;
    p->host_bytes += row->bytes + row->kv_bytes * sequences;
}

static ofl_status divide(const hosting *h, uint32_t sequences, host_part *out)
{
    const layers *l = h->l;
    const layer *output = &l->rows[l->count - 1];
    uint64_t fixed = 0, most = h->job->base.budget.vram_bytes - h->job->base.budget.headroom_bytes;
    host_part p = {.host_bytes = l->lookup_bytes};
    ofl_status status = fixed_bytes(h, sequences, &fixed);
    p.device_bytes = fixed + output->bytes;
    p.fits = p.device_bytes <= most;
    for (uint32_t i = 0; i + 1 < l->count; i++) {
        uint64_t bytes = l->rows[i].bytes + l->rows[i].kv_bytes * sequences;
        if (p.fits && p.layers == 0 && bytes <= most - p.device_bytes) p.device_bytes += bytes;
        else put_on_host(&p, &l->rows[i], sequences);
    }
    if ((double)p.host_bytes > ofl_machine_get(h->job->given.machine, OFL_FIGURE_HOST, NULL)) p.fits = false;
    p.device_share = 1 - (double)p.weights / (double)l->bytes;
    *out = p;
    return status;
}

/* The device's layers, then the host's: the slower of reading and of multiplying. */
static ofl_status step_of(const hosting *h, const host_part *p, uint32_t sequences, way_rate *out, double *host_out)
{
    const ofl_model_shape *shape = &h->job->shape;
    double compute = 0, n = sequences, share = ofl_expert_share(shape->expert_count, shape->expert_used_count, n),
           used = shape->expert_count > 0 ? (double)shape->expert_used_count / shape->expert_count : 1;
    ofl_status status = ways_compute_seconds(h->job, sequences, &compute);
    double bytes = (double)(p->weights - p->expert_bytes) + (double)p->expert_bytes * share + (double)p->kv_read * n;
    double host = fmax(bytes / h->bandwidth, 2 * n * (p->elements + p->expert_elements * used) / h->flops);
    double link = 2 * (ways_hidden_bytes(h->job) * n / ofl_machine_get(h->job->given.machine, OFL_FIGURE_LINK, NULL) +
                       ofl_machine_get(h->job->given.machine, OFL_FIGURE_COPY_START, NULL));
    *out = (way_rate){sequences, compute * p->device_share + host + link, 0};
    out->tokens_per_second = n / out->step_seconds;
    *host_out = host;
    return status;
}

static ofl_status rate_of(const void *context, uint32_t sequences, bool *fits_out, way_rate *out)
{
    const hosting *h = context;
    host_part p;
    double host = 0;
    ofl_status status = divide(h, sequences, &p);
    *fits_out = status == OFL_OK && p.fits;
    return *fits_out ? step_of(h, &p, sequences, out, &host) : status;
}

static ofl_status forecast(const hosting *h, const host_part *p, way *w)
{
    double host = 0;
    static const ofl_figure figures[] = {OFL_FIGURE_HOST_BANDWIDTH, OFL_FIGURE_HOST_FLOPS, OFL_FIGURE_LINK, OFL_FIGURE_COPY_START};
    ofl_status status = step_of(h, p, h->job->base.settings.sequences, &w->job, &host);
    if (status == OFL_OK) status = ways_queue(h->job, rate_of, h, &w->queue);
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) (void)ways_rate(h->job, figures[i], &w->sources[figures[i]]);
    ways_note_compute(h->job, w);
    double rates =
        fmax(ofl_source_error_percent(w->sources[OFL_FIGURE_HOST_BANDWIDTH]), ofl_source_error_percent(w->sources[OFL_FIGURE_HOST_FLOPS]));
    w->error_percent =
        ways_error(host, rates + 10 /* a roofline is a bound */, w->job.step_seconds - host, h->job->all.forecast.error_band_percent);
    return status;
}

static ofl_status add_host(ways *list, const hosting *h)
{
    host_part p;
    char title[48], bytes[32];
    ofl_status status = divide(h, h->job->base.settings.sequences, &p);
    if (status != OFL_OK) return status;
    (void)snprintf(title, sizeof title, "%u of %u layers on the CPU", p.layers, h->l->count - 1);
    way *w = ways_add(list, "host", title);
    w->fits = p.fits;
    w->device_bytes = p.device_bytes;
    w->host_bytes = p.host_bytes;
    (void)snprintf(w->needs, sizeof w->needs, "a program that computes layers on the CPU, such as llama.cpp");
    (void)snprintf(w->costs, sizeof w->costs, "the CPU reads %s in every step; many sequences at once are as slow as its products",
                   cli_show_bytes(bytes, p.weights, 0));
    w->details = cJSON_CreateObject();
    (void)cJSON_AddNumberToObject(w->details, "host_layers", p.layers);
    (void)cJSON_AddNumberToObject(w->details, "host_weight_bytes", (double)p.weights);
    if (!p.fits) (void)snprintf(w->why, sizeof w->why, "the output does not fit the device, or the rest the host");
    else if (!(h->bandwidth > 0) || !(h->flops > 0))
        (void)snprintf(w->why, sizeof w->why, "no rate of the CPU is known: give%s%s%s", h->bandwidth > 0 ? "" : " --host-bandwidth RATE",
                       h->bandwidth > 0 || h->flops > 0 ? "" : " and", h->flops > 0 ? "" : " --host-flops RATE");
    return w->why[0] == '\0' ? forecast(h, &p, w) : OFL_OK;
}

ofl_status ways_add_host(ways *list, const ways_job *job)
{
    layers l = {0};
    ofl_source source;
    hosting h = {.job = job, .l = &l, .bandwidth = ways_rate(job, OFL_FIGURE_HOST_BANDWIDTH, &source)};
    h.flops = ways_rate(job, OFL_FIGURE_HOST_FLOPS, &source);
    ofl_status status = layers_read(job, &l);
    if (status == OFL_OK) status = add_host(list, &h);
    layers_free(&l);
    return status;
}
