/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/http/http_head.h"

#include <ctype.h>
#include <microhttpd.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CODING_CHUNKED "chunked"
#define OPTION_UPGRADE "upgrade"

enum { ESCAPE = 3, DELETE = 0x7f, LINE_END_MIN = 1, LINE_END_MAX = 2 };

/* Of a head, in the order of its lines. libmicrohttpd takes it apart where it was read: what it has put NULs
 * in place of is a colon and the ends of lines, so whatever else stands between two texts was lost to a NUL.
 */
struct form {
	const char *end;     /* of the line before */
	const char *no_name; /* a header's name that is none, or NULL */
	bool torn;
	unsigned int hosts;
};

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

/* -1: it is no hexadecimal digit. */
static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The character that stands first, escaped or not, and how many bytes that takes. */
static int read_character(const char *text, size_t *length, struct error *error)
{
	int high = text[0] == '%' ? digit_of(text[1]) : 0;
	int low = text[0] == '%' && high >= 0 ? digit_of(text[2]) : 0;

	*length = text[0] == '%' ? ESCAPE : 1;
	if (high >= 0 && low >= 0)
		return text[0] == '%' ? high << 4 | low : (unsigned char)text[0];
	return error_set(error, ERROR_INVALID,
		"the path has a %% without two hexadecimal digits after it: a %% itself is %%25");
}

/* The same, when a path may have it; else -1 with *error set. */
static int take_character(const char *text, size_t *length, struct error *error)
{
	int character = read_character(text, length, error);

	if (character < 0)
		return -1;
	if (character == '/' && *length == ESCAPE)
		return error_set(
			error, ERROR_INVALID, "the path has an escaped / (%.3s), which no name has", text);
	if (!character)
		return error_set(error, ERROR_INVALID, "the path has a NUL (%.3s), which no name has", text);
	if (character < ' ' || character == DELETE)
		return error_set(error, ERROR_INVALID,
			"the path has a control character (%%%02X), which no name has", (unsigned)character);
	return character;
}

int http_head_decode_path(const char *path, char **decoded, struct error *error)
{
	size_t length, to = 0;
	char *text = strchr(path, '%') ? malloc(strlen(path) + 1) : NULL;

	*decoded = NULL;
	if (!text && strchr(path, '%'))
		return error_set(error, ERROR_INTERNAL, "out of memory for the request");
	for (; *path; path += length) {
		int character = take_character(path, &length, error);

		if (character < 0) {
			free(text);
			return -1;
		}
		if (text)
			text[to++] = (char)character;
	}
	if (text)
		text[to] = '\0';
	*decoded = text;
	return 0;
}

static bool is_token(const char *text)
{
	const char *at = text;

	while (*at && (isalnum((unsigned char)*at) || strchr("!#$%&'*+-.^_`|~", *at)))
		at++;
	return at > text && !*at;
}

static enum MHD_Result note_form(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct form *form = context;
	ptrdiff_t gap = name - form->end;

	(void)kind;
	if (!value || gap < LINE_END_MIN || gap > LINE_END_MAX || strchr(value, '\r')) {
		form->torn = true;
		return MHD_NO;
	}
	if (!is_token(name))
		form->no_name = name;
	form->hosts += !strcasecmp(name, MHD_HTTP_HEADER_HOST);
	form->end = value + strlen(value);
	return MHD_YES;
}

/* Whether the empty line comes next, and the head ends with it. */
static bool is_whole(const struct form *form, const struct http_request *request)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	ptrdiff_t rest = info ? request->method + info->header_size - form->end : 0;

	return !form->torn && rest >= 2 * LINE_END_MIN && rest <= 2 * LINE_END_MAX;
}

const char *http_head_find_end(const char *target)
{
	return target + strcspn(target, " ");
}

int http_head_check_form(const struct http_request *request, const char *target, const char *target_end,
	const char *version, struct error *error)
{
	struct form form = {.end = version + strlen(version)};

	if (target != request->method + strlen(request->method) + 1 || version != target_end + 1)
		return error_set(error, ERROR_INVALID,
			"the request line has a NUL, or not one space between its parts");
	MHD_get_connection_values(request->connection, MHD_HEADER_KIND, note_form, &form);
	if (!is_whole(&form, request))
		return error_set(error, ERROR_INVALID,
			"a header has a NUL, a carriage return or no name, or goes on in a second line");
	if (form.no_name)
		return error_set(error, ERROR_INVALID,
			"\"%.64s\" is no name of a header: no space stands before the colon", form.no_name);
	if (form.hosts == 1 || (!form.hosts && !strcmp(version, MHD_HTTP_VERSION_1_0)))
		return 0;
	return error_set(error, ERROR_INVALID, "the request has %u Host headers: send one", form.hosts);
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
