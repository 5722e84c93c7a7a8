/* Any bytes as a machine in JSON: refused with a sentence, or a machine that is written as the same text however often it is read back; and
 * a file of them is the same machine. */
#include "fuzz/fuzz.h"

#include <string.h>

static void check_file(const uint8_t *data, size_t bytes, const char *text)
{
    ofl_machine *machine = NULL;
    char *loaded = NULL;
    fuzz_write("machine.json", data, bytes, 0);
    ofl_status status = ofl_machine_load(fuzz_path("machine.json"), &machine);
    FUZZ_REQUIRE((status == OFL_OK) == (text != NULL));
    if (status != OFL_OK) return;
    FUZZ_REQUIRE(ofl_machine_to_json(machine, &loaded) == OFL_OK && strcmp(loaded, text) == 0);
    FUZZ_REQUIRE(ofl_machine_save(machine, fuzz_path("saved.json")) == OFL_OK);
    ofl_string_free(loaded);
    ofl_machine_destroy(machine);
}

void fuzz_one(const uint8_t *data, size_t bytes)
{
    ofl_machine *machine = NULL, *again = NULL;
    char *first = NULL, *second = NULL;
    ofl_status status = ofl_machine_from_json((const char *)data, bytes, &machine);
    FUZZ_REQUIRE((status == OFL_OK) == (machine != NULL));
    if (status != OFL_OK) {
        check_file(data, bytes, NULL);
        FUZZ_REQUIRE(ofl_error_message()[0] != '\0' && status != OFL_ERROR_HOST_MEMORY);
        return;
    }
    fuzz_accept();
    FUZZ_REQUIRE(ofl_machine_to_json(machine, &first) == OFL_OK);
    FUZZ_REQUIRE(ofl_machine_from_json(first, strlen(first), &again) == OFL_OK);
    FUZZ_REQUIRE(ofl_machine_to_json(again, &second) == OFL_OK && strcmp(first, second) == 0);
    check_file(data, bytes, first);
    ofl_string_free(first);
    ofl_string_free(second);
    ofl_machine_destroy(again);
    ofl_machine_destroy(machine);
}
