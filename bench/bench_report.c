/* What every subcommand prints: rows as a table, or as JSON. Kept as JSON until the end; the table's columns are all that any row has. */
#include "bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

struct bench_report {
    cJSON *root, *rows, *row;
    bench_output output;
    int simulated;
};

ofl_status bench_report_open(const char *name, const ofl_device *device, bench_output output, bench_report **out)
{
    bench_report *report = calloc(1, sizeof *report);
    if (report == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    ofl_device_info info = {.struct_size = sizeof info};
    int known = device != NULL && ofl_device_info_get(device, &info) == OFL_OK;
    report->output = output;
    report->simulated = known && info.simulated;
    report->root = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(report->root, "schema", "ofload.bench/1");
    (void)cJSON_AddStringToObject(report->root, "name", name);
    (void)cJSON_AddStringToObject(report->root, "device", known ? info.name : "none");
    (void)cJSON_AddBoolToObject(report->root, "simulated", report->simulated);
    (void)cJSON_AddStringToObject(report->root, "clock", known && info.virtual_clock ? "virtual" : "wall");
    report->rows = cJSON_AddArrayToObject(report->root, "rows");
    *out = report;
    return OFL_OK;
}

void bench_report_row(bench_report *report, const char *label)
{
    report->row = cJSON_CreateObject();
    (void)cJSON_AddItemToArray(report->rows, report->row);
    (void)cJSON_AddStringToObject(report->row, "label", label);
}

void bench_report_number(bench_report *report, const char *key, double value) { (void)cJSON_AddNumberToObject(report->row, key, value); }
void bench_report_text(bench_report *report, const char *key, const char *value) { (void)cJSON_AddStringToObject(report->row, key, value); }

static int column_width(const cJSON *column)
{
    int width = (int)strlen(column->string);
    return width < 10 ? 10 : width;
}

/* Of the first column. */
static int label_width(const cJSON *rows)
{
    int width = 28;
    const cJSON *row;
    cJSON_ArrayForEach(row, rows)
    {
        int length = (int)strlen(cJSON_GetObjectItem(row, "label")->valuestring);
        width = length > width ? length : width;
    }
    return width;
}

static void print_cells(const cJSON *columns, const cJSON *row, int first_width)
{
    for (const cJSON *column = columns->child; column != NULL; column = column->next) {
        const cJSON *cell = row != NULL ? cJSON_GetObjectItem(row, column->string) : NULL;
        int width = column == columns->child ? first_width : column_width(column);
        if (row == NULL) printf(column == columns->child ? "%-*s" : "  %*s", width, column->string);
        else if (cell == NULL) printf("  %*s", width, "");
        else if (cJSON_IsNumber(cell)) printf("  %*.5g", width, cell->valuedouble);
        else printf(column == columns->child ? "%-*s" : "  %*s", width, cell->valuestring);
    }
    printf("\n");
}

/* Every key of every row once, in the order in which they appear. */
static cJSON *all_columns(const cJSON *rows)
{
    cJSON *columns = cJSON_CreateObject();
    const cJSON *row, *cell;
    cJSON_ArrayForEach(row, rows)
    {
        cJSON_ArrayForEach(cell, row)
        {
            if (!cJSON_HasObjectItem(columns, cell->string)) (void)cJSON_AddNullToObject(columns, cell->string);
        }
    }
    return columns;
}

static void print_table(const bench_report *report)
{
    const cJSON *row;
    cJSON *columns = all_columns(report->rows);
    int width = label_width(report->rows);
    if (!report->output.quiet)
        printf("%s on %s, %s clock%s\n", cJSON_GetObjectItem(report->root, "name")->valuestring,
               cJSON_GetObjectItem(report->root, "device")->valuestring, cJSON_GetObjectItem(report->root, "clock")->valuestring,
               report->simulated ? " (the link is simulated)" : "");
    if (cJSON_GetArraySize(columns) > 0) print_cells(columns, NULL, width);
    cJSON_ArrayForEach(row, report->rows) print_cells(columns, row, width);
    cJSON_Delete(columns);
}

static ofl_status print_report(const bench_report *report)
{
    char *text = report->output.json ? cJSON_Print(report->root) : NULL;
    if (report->output.json && text == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    if (report->output.json) (void)puts(text);
    else print_table(report);
    cJSON_free(text);
    if (fflush(stdout) == 0 && !ferror(stdout)) return OFL_OK;
    return app_fail(OFL_ERROR_IO, "standard output cannot be written: %s", strerror(errno));
}

int bench_report_close(bench_report *report, const cli_program *program, ofl_status status)
{
    if (status == OFL_OK) status = print_report(report);
    if (report != NULL) cJSON_Delete(report->root);
    free(report);
    return status == OFL_OK ? EXIT_DONE : cli_complain(program, status);
}
