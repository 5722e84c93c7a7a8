#include "plan/check_page.h"

#include <stdio.h>
#include <stdlib.h>

#include <cjson/cJSON.h>
#include <ofload/ofload.h>

#include "common/json_text.h"
#include "common/plan_file.h"

typedef struct report {
    check_format format;
    cJSON *root, *parts; /* with CHECK_JSON */
    uint32_t wrong;
    bool failed; /* out of memory */
} report;

static const char *result_of(ofl_status status) { return status == OFL_OK ? "ok" : status == OFL_NOT_READY ? "left" : "wrong"; }

static void add(report *r, const char *part, ofl_status status, const char *sentence)
{
    cJSON *row = cJSON_CreateObject();
    bool good = row != NULL && cJSON_AddStringToObject(row, "part", part) != NULL &&
                cJSON_AddStringToObject(row, "result", result_of(status)) != NULL &&
                json_add_text(row, "sentence", sentence) != NULL && cJSON_AddItemToArray(r->parts, row);
    if (good) return;
    cJSON_Delete(row);
    r->failed = true;
}

static void tell(void *context, const char *part, ofl_status status, const char *sentence)
{
    report *r = context;
    r->wrong += status != OFL_OK && status != OFL_NOT_READY;
    if (r->format == CHECK_LINES) printf("%-6s %-12s %s\n", result_of(status), part, sentence);
    else if (r->format == CHECK_JSON && !r->failed) add(r, part, status, sentence);
}

static ofl_status start(report *r, const char *plan_path, const char *model_path)
{
    if (r->format == CHECK_LINES) printf("%s, for %s\n", plan_path, model_path);
    if (r->format != CHECK_JSON) return OFL_OK;
    r->root = cJSON_CreateObject();
    r->failed = cJSON_AddStringToObject(r->root, "schema", "ofload.check/1") == NULL ||
                json_add_text(r->root, "plan", plan_path) == NULL ||
                json_add_text(r->root, "model", model_path) == NULL ||
                (r->parts = cJSON_AddArrayToObject(r->root, "parts")) == NULL;
    return r->failed ? app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory") : OFL_OK;
}

static ofl_status finish(report *r, ofl_status status)
{
    if (r->format != CHECK_JSON || status == OFL_ERROR_HOST_MEMORY) return status;
    char *text = !r->failed && cJSON_AddBoolToObject(r->root, "good", status == OFL_OK) != NULL ? cJSON_Print(r->root) : NULL;
    if (text == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    (void)puts(text);
    cJSON_free(text);
    return status;
}

/* A plan believes little of its file: what it can compute itself it does. The file must say the same, and nothing else. */
static ofl_status compare(const char *path, const char *text, const ofl_plan *plan)
{
    char *own = NULL;
    if (ofl_plan_to_json(plan, &own) != OFL_OK) return app_forward(OFL_ERROR_HOST_MEMORY);
    cJSON *said = cJSON_Parse(text), *meant = cJSON_Parse(own);
    bool same = said != NULL && meant != NULL && cJSON_Compare(said, meant, 1);
    cJSON_Delete(said);
    cJSON_Delete(meant);
    ofl_string_free(own);
    return same ? OFL_OK : app_fail(OFL_ERROR_FORMAT, "%s: it says something else than the plan that it holds; make the plan anew", path);
}

static ofl_status read_plan(const char *path, ofl_plan **out)
{
    char *text = NULL;
    ofl_status status = plan_file_read(path, &text, out);
    if (status == OFL_OK) status = compare(path, text, *out);
    free(text);
    return status;
}

/* What cannot be read as a plan is wrong as a whole, and nothing of it is looked at. */
static ofl_status look(report *r, const char *plan_path, const ofl_model *model)
{
    ofl_plan *plan = NULL;
    char found[128];
    ofl_status status = read_plan(plan_path, &plan);
    if (status != OFL_OK) {
        ofl_plan_destroy(plan);
        if (status == OFL_ERROR_FORMAT) tell(r, "file", status, app_error());
        return status;
    }
    (void)snprintf(found, sizeof found, "schema ofload.plan/1, its hash %.12s… is its own", ofl_plan_identity(plan));
    tell(r, "file", OFL_OK, found);
    status = ofl_plan_verify(plan, model, tell, r);
    if (status != OFL_OK) (void)app_fail(status, "%s: %s", plan_path, ofl_error_message());
    ofl_plan_destroy(plan);
    return status;
}

ofl_status check_page_print(const char *plan_path, const char *model_path, check_format format)
{
    report r = {.format = format};
    ofl_model *model = NULL;
    ofl_status status = ofl_model_open(model_path, &model);
    if (status != OFL_OK) return app_forward(status);
    status = start(&r, plan_path, model_path);
    if (status == OFL_OK) status = finish(&r, look(&r, plan_path, model));
    cJSON_Delete(r.root);
    ofl_model_destroy(model);
    return status;
}
