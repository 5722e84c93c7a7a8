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

static void say(cJSON *root, const char *key, cJSON *value) { (void)cJSON_ReplaceItemInObject(root, key, value); }

void bench_report_simulated(bench_report *report, const char *device, int virtual_clock)
{
    report->simulated = 1;
    say(report->root, "device", cJSON_CreateString(device));
    say(report->root, "simulated", cJSON_CreateTrue());
    say(report->root, "clock", cJSON_CreateString(virtual_clock ? "virtual" : "wall"));
}

void bench_report_row(bench_report *report, const char *label)
{
    report->row = cJSON_CreateObject();
    (void)cJSON_AddItemToArray(report->rows, report->row);
    (void)cJSON_AddStringToObject(report->row, "label", label);
}

void bench_report_number(bench_report *report, const char *key, double value) { (void)cJSON_AddNumberToObject(report->row, key, value); }
void bench_report_text(bench_report *report, const char *key, const char *value) { (void)cJSON_AddStringToObject(report->row, key, value); }

static int ends_in(const char *text, const char *end)
{
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

/* As people read it; what a number is stands at the end of its key. */
static const char *cell_text(const cJSON *cell, char *buffer, size_t bytes)
{
    const char *key = cell->string;
    double value = cell->valuedouble;
    if (!cJSON_IsNumber(cell)) return cell->valuestring;
    if (ends_in(key, "bytes_per_second")) return cli_show_rate(buffer, value);
    if (ends_in(key, "bytes") && value >= 0) return cli_show_bytes(buffer, (uint64_t)(value + 0.5), 0);
    if (ends_in(key, "seconds") && value >= 0) return cli_show_seconds(buffer, value);
    if (ends_in(key, "tokens_per_second")) return cli_show_tokens(buffer, value);
    (void)snprintf(buffer, bytes, ends_in(key, "percent") ? "%+.1f %%" : "%.5g", value);
    return buffer;
}

/* Cells that a text takes: its characters. */
static size_t cells(const char *text)
{
    size_t count = 0;
    for (; *text != '\0'; text++) count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

/* Of a column: its key, or the widest cell. */
static size_t column_width(const cJSON *rows, const char *key)
{
    size_t width = cells(key);
    const cJSON *row;
    char buffer[64];
    cJSON_ArrayForEach(row, rows)
    {
        const cJSON *cell = cJSON_GetObjectItem(row, key);
        size_t taken = cell != NULL ? cells(cell_text(cell, buffer, sizeof buffer)) : 0;
        width = taken > width ? taken : width;
    }
    return width;
}

/* row NULL: the keys. Each column's width is its value in `columns`; the first one stands at the left. */
static void print_cells(const cJSON *columns, const cJSON *row)
{
    for (const cJSON *column = columns->child; column != NULL; column = column->next) {
        const cJSON *cell = row != NULL ? cJSON_GetObjectItem(row, column->string) : NULL;
        char buffer[64];
        const char *text = row == NULL ? column->string : cell != NULL ? cell_text(cell, buffer, sizeof buffer) : "";
        if (column != columns->child) printf("  %*s%s", column->valueint - (int)cells(text), "", text);
        else printf("%s%*s", text, column->valueint - (int)cells(text), "");
    }
    printf("\n");
}

/* Every key of every row once, in the order in which they appear, with the width of its column. */
static cJSON *all_columns(const cJSON *rows)
{
    cJSON *columns = cJSON_CreateObject();
    const cJSON *row, *cell;
    cJSON_ArrayForEach(row, rows)
    {
        cJSON_ArrayForEach(cell, row)
        {
            if (!cJSON_HasObjectItem(columns, cell->string))
                (void)cJSON_AddNumberToObject(columns, cell->string, (double)column_width(rows, cell->string));
        }
    }
    return columns;
}

static void print_table(const bench_report *report)
{
    const cJSON *row;
    cJSON *columns = all_columns(report->rows);
    if (!report->output.quiet)
        printf("%s on %s, %s clock%s\n", cJSON_GetObjectItem(report->root, "name")->valuestring,
               cJSON_GetObjectItem(report->root, "device")->valuestring, cJSON_GetObjectItem(report->root, "clock")->valuestring,
               report->simulated ? " (the link is simulated)" : "");
    if (cJSON_GetArraySize(columns) > 0) print_cells(columns, NULL);
    cJSON_ArrayForEach(row, report->rows) print_cells(columns, row);
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
