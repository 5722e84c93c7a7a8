/* Any bytes as a plan in JSON: refused with a sentence, or a plan that is written as the same text however often it is read back. */
#include "fuzz/fuzz.h"

#include <string.h>

void fuzz_one(const uint8_t *data, size_t bytes)
{
    ofl_plan *plan = NULL, *again = NULL;
    char *first = NULL, *second = NULL;
    ofl_status status = ofl_plan_from_json((const char *)data, bytes, &plan);
    FUZZ_REQUIRE((status == OFL_OK) == (plan != NULL));
    if (status != OFL_OK) {
        FUZZ_REQUIRE(ofl_error_message()[0] != '\0' && status != OFL_ERROR_HOST_MEMORY);
        return;
    }
    fuzz_accept();
    FUZZ_REQUIRE(ofl_plan_to_json(plan, &first) == OFL_OK);
    FUZZ_REQUIRE(ofl_plan_from_json(first, strlen(first), &again) == OFL_OK);
    FUZZ_REQUIRE(ofl_plan_to_json(again, &second) == OFL_OK && strcmp(first, second) == 0);
    ofl_string_free(first);
    ofl_string_free(second);
    ofl_plan_destroy(again);
    ofl_plan_destroy(plan);
}
