/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/http/http_head.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CODING_CHUNKED "chunked"
#define OPTION_UPGRADE "upgrade"

struct lengths {
	unsigned int count;
	const char *unknown; /* the coding that is not chunked, or NULL */
};

/* Whether a list as "a, b" (RFC 9110, 5.6.1) has the token. */
static bool list_has(const char *list, const char *token)
{
	size_t length;

	for (; *list; list += length) {
		list += strspn(list, ", \t");
		length = strcspn(list, ", \t");
		if (length == strlen(token) && !strncasecmp(list, token, length))
			return true;
	}
	return false;
}

static enum MHD_Result find_option(
	void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
	bool *found = context;

	(void)kind;
	if (!strcasecmp(name, MHD_HTTP_HEADER_CONNECTION) && value && list_has(value, OPTION_UPGRADE))
		*found = true;
	return MHD_YES;
}

/* Without the option `upgrade` the header is for a proxy that forgot to take it out (RFC 9110, 7.8). */
static bool wants_upgrade(struct MHD_Connection *connection)
{
	const char *value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_UPGRADE);
	bool found = false;

	if (!value || strcasecmp(value, HTTP_UPGRADE_PROTOCOL) != 0)
		return false;
	MHD_get_connection_values(connection, MHD_HEADER_KIND, find_option, &found);
	return found;
}

const char *http_head_path(const char *target)
{
	static const char scheme[] = "http://";
	const char *path;

	if (strncasecmp(target, scheme, sizeof scheme - 1) != 0)
		return target;
	path = strchr(target + sizeof scheme - 1, '/');
	return path ? path : "/";
}

static enum MHD_Result note_key(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct http_request *request = context;

	(void)kind;
	if (!strcasecmp(name, "Idempotency-Key") && ++request->keys)
		request->key = value ? value : "";
	return MHD_YES;
}

void http_head_read(struct http_request *request)
{
	request->wants_upgrade =
		strcmp(request->method, MHD_HTTP_METHOD_HEAD) != 0 && wants_upgrade(request->connection);
	MHD_get_connection_values(request->connection, MHD_HEADER_KIND, note_key, request);
}

static enum MHD_Result note_length(
	void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct lengths *lengths = context;
	bool coded = !strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING);

	(void)kind;
	lengths->count += coded || !strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH);
	if (coded && (!value || strcasecmp(value, CODING_CHUNKED) != 0))
		lengths->unknown = value ? value : "";
	return MHD_YES;
}

int http_head_check_length(const struct http_request *request, struct error *error)
{
	struct lengths lengths = {0};

	MHD_get_connection_values(request->connection, MHD_HEADER_KIND, note_length, &lengths);
	if (lengths.count > 1)
		return error_set(error, ERROR_INVALID,
			"the request tells the length of its body more than once: send one Content-Length, "
			"or chunks");
	if (lengths.unknown)
		return error_set(error, ERROR_INVALID,
			"the Transfer-Encoding \"%.64s\" is not known: send chunked, or a Content-Length",
			lengths.unknown);
	return 0;
}

int http_head_check_upgrade(const struct http_request *request, const char *version, struct error *error)
{
	if (!request->wants_upgrade || !strcmp(version, MHD_HTTP_VERSION_1_1))
		return 0;
	return error_set(error, ERROR_INVALID, "%.16s has no upgrade: ask in HTTP/1.1", version);
}

unsigned long long http_head_announced(const struct http_request *request)
{
	const char *value = MHD_lookup_connection_value(
		request->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);

	return value ? strtoull(value, NULL, 10) : 0;
}
