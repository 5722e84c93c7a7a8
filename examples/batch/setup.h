/* The real backend: model, tokenizer, device, plan, engine and forward pass. */
#ifndef OFLOAD_BATCH_SETUP_H
#define OFLOAD_BATCH_SETUP_H

#include "batch/backend.h"
#include "batch/batch_options.h"

typedef struct setup setup;

/* Opens model and tokenizer; device and plan follow when the run asks for them. options must outlive it. */
ofl_status setup_open(const batch_options *options, int (*stop)(void), setup **out, backend *backend_out);
/* What the model makes wrong in the options. */
ofl_status setup_check(setup *s);
/* After a failure, whether an option is at fault: wrong usage. s may be NULL. */
bool setup_option_wrong(const setup *s);
void setup_close(setup *s);

#endif
