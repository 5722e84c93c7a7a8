/* Text of others in JSON. */
#ifndef OFLOAD_JSON_TEXT_H
#define OFLOAD_JSON_TEXT_H

#include <cjson/cJSON.h>

/* As cJSON_AddStringToObject; bytes that are no UTF-8, as paths may hold, become U+FFFD, so that the JSON can be read back. */
cJSON *json_add_text(cJSON *object, const char *key, const char *text);

#endif
