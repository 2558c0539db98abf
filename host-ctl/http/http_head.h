/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What http.c reads of a request's head, and what it refuses there: libmicrohttpd takes the first of several
 * Content-Length, Transfer-Encoding before any, waits for the end of the connection after a coding that it
 * does not know, and closes without an answer where an HTTP/1.0 client is to be upgraded.
 */
#ifndef HOST_CTL_HTTP_HEAD_H
#define HOST_CTL_HTTP_HEAD_H

#include "host-ctl/http/http.h"

/* The path of a target, which may have the absolute form (RFC 9112, 3.2.2): scheme and authority do not
 * matter here. */
const char *http_head_path(const char *target);
/*
 * The path with its escapes decoded (RFC 3986, 2.1), from malloc; *decoded NULL: it has none. Its parts are
 * what stands between two '/' before that, so that none comes of an escape. 0; or -1 with *error set:
 * ERROR_INVALID: a '%' without two hexadecimal digits after it, or an escaped '/', or a control character or
 * NUL, escaped or not; or ERROR_INTERNAL without memory.
 */
int http_head_decode_path(const char *path, char **decoded, struct error *error);
/*
 * 0; or -1 with *error set, ERROR_INVALID: the head is none of HTTP/1.x (RFC 9112, 2 to 5, and 3.2), though
 * libmicrohttpd takes it: a request line that is not three parts with one space between them; a NUL anywhere,
 * after which libmicrohttpd forgets the rest of the line; a line that goes on in the next; a name that is no
 * token; an HTTP/1.1 request without its one Host. From target to target_end: as http_head_find_end has it.
 */
int http_head_check_form(const struct http_request *request, const char *target, const char *target_end,
	const char *version, struct error *error);
/* Where a target ends that has not been taken apart yet. */
const char *http_head_find_end(const char *target);
/* Fills wants_upgrade, keys and key. The texts live as long as the request. A HEAD wants no upgrade. */
void http_head_read(struct http_request *request);
/* 0; or -1 with *error set, ERROR_INVALID: where the body ends is not known (RFC 9112, 6.1 and 6.3), so
 * neither is where the next request begins. */
int http_head_check_length(const struct http_request *request, struct error *error);
/* 0; or -1 with *error set, ERROR_INVALID: an upgrade in another version than HTTP/1.1. */
int http_head_check_upgrade(const struct http_request *request, const char *version, struct error *error);
/* What Content-Length says, or 0. */
unsigned long long http_head_announced(const struct http_request *request);

#endif
