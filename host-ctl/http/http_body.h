/* SPDX-License-Identifier: Apache-2.0 */
/* What the bodies of several resources have in common. Each: 0, or -1 with *error set, ERROR_INVALID. */
#ifndef HOST_CTL_HTTP_BODY_H
#define HOST_CTL_HTTP_BODY_H

#include "host-ctl/http/http.h"

/* An object, or one within the body, has no other fields than these, ended by NULL. */
int http_body_check_fields(json_t *body, const char *const *fields, struct error *error);
/* The body as an object of no other fields than these (ended by NULL), the caller's; NULL with *error set. A
 * key that is there twice and a NUL in a string are refused. */
json_t *http_body_load(const char *text, size_t length, const char *const *fields, struct error *error);
json_t *http_body_parse(const struct http_request *request, const char *const *fields, struct error *error);
int http_body_number(json_t *body, const char *field, uint64_t minimum, uint64_t maximum,
	unsigned int *number, struct error *error);

#endif
