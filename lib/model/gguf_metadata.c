#include "model/model.h"
void ofl_gguf_metadata_destroy(ofl_gguf_metadata *metadata) { (void)metadata; }
