/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the verbs of host-ctl share: option parsing from a table, and words for people on standard error
 * beside JSON on standard output.
 */
#ifndef HOST_CTL_CLI_H
#define HOST_CTL_CLI_H

#include "host-ctl/cli/client.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Exit status of every failure that is host-ctl's own: usage, no daemon, refused, no result. */
enum { CLI_FAILURE = 125 };

/* Lines of usage texts, which all have one form: usage, what it does, options, notes, exit status. */
#define CLI_USAGE_JSON "  --json               the answer, or the error, as a JSON object\n"
#define CLI_USAGE_SOCKET                                                                                     \
	"  --socket PATH        the daemon's socket ($TINDERBOX_SOCKET, " CLIENT_SOCKET_DEFAULT ")\n"
#define CLI_USAGE_STATUS "exit status: 0 done; 125 it could not be done, the cause on standard error.\n"

/* Of an operand that is one too many, for a usage error. */
#define CLI_UNEXPECTED "'%s' is not expected here"

enum { CLI_TEXT_MAX = 1024, CLI_OPTIONS_MAX = 64, CLI_NAME_MAX = 64, CLI_TIME_MAX = 32 };

struct cli_option {
	const char *name; /* without the two dashes */
	char letter;	  /* its short form, or '\0' */
	bool has_value;
	bool repeats;	/* may be given more than once */
	bool not_empty; /* its value has at least one byte */
};

/*
 * Walks the options of one verb. They end at "--" (which is skipped) or at the first argument that does not
 * begin with '-'; a lone "-" is such an argument. Values are given as "--name=value" or "--name value";
 * letters of options without one may stand together, as in "-it". Where options may follow operands, the
 * caller takes each operand with cli_parser_operand, and goes on.
 */
struct cli_parser {
	const struct cli_option *options;
	size_t count; /* at most CLI_OPTIONS_MAX */
	char **argv;  /* argv[0] is the verb */
	int argc;
	int next;	     /* first argument not read yet; after CLI_END the first operand */
	const char *cluster; /* letters of one argument that are still to come */
	uint64_t given;	     /* bit i: options[i] was given */
	bool ended;	     /* "--" has come */
	char error[CLI_TEXT_MAX];
};

enum { CLI_END = -1, CLI_BAD = -2 };

void cli_parser_init(
	struct cli_parser *parser, const struct cli_option *options, size_t count, int argc, char **argv);
/*
 * The index of the next option, with *value set (NULL when it has none); CLI_END after the last; CLI_BAD with
 * parser->error set: unknown, given twice, without its value, or with one that it does not take.
 */
int cli_parser_next(struct cli_parser *parser, const char **value);
/* After CLI_END: the operand there, or NULL after the last. Then cli_parser_next looks behind it. */
char *cli_parser_operand(struct cli_parser *parser);
/* Was options[index] given? */
bool cli_parser_given(const struct cli_parser *parser, int index);

/* "10s", "500ms", "2m", "1h", "7d", or whole seconds without a unit. 0, -EINVAL, -ERANGE (not 1..maximum ms).
 */
int cli_parse_duration(const char *text, uint64_t maximum_ms, uint64_t *milliseconds);

/* The options of the verbs that only ask something: --json, --socket PATH, --help. */
struct cli_query {
	bool json;
	const char *socket;
};
/*
 * 0, or 1 when all is done already (--help was given), or CLI_FAILURE after a usage error (said).
 */
int cli_query_parse(struct cli_query *query, int argc, char **argv);

/* --socket, else $TINDERBOX_SOCKET, else CLIENT_SOCKET_DEFAULT. option: NULL when not given. */
const char *cli_socket_path(const char *option);

/* One line "host-ctl: ..." on standard error, control characters replaced. Returns CLI_FAILURE. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A sentence into error (CLI_TEXT_MAX bytes), for cli_fail_usage later. Returns -1. */
int cli_refuse(char *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* As cli_fail, for a wrong command line: ends with where the help is. */
int cli_fail_usage(const char *verb, const char *error);
/* As cli_fail_usage, for an operand that is one too many. */
int cli_fail_unexpected(const char *verb, const char *operand);
/* Says an error of the client; with json the error object goes to standard output too. CLI_FAILURE. */
int cli_fail_client(const struct client_error *error, bool json);

/*
 * One request on a connection of its own. socket: that of --socket, or NULL. 0 with *answer a new reference;
 * otherwise it is NULL, *error is set, and as client_call returns.
 */
int cli_ask(const char *socket, const char *method, const char *path, const json_t *body, json_t **answer,
	struct client_error *error);
/* A string of an object's; "-" when there is none, or it is empty. */
const char *cli_text(const json_t *object, const char *name);

/* One JSON value and a newline on standard output. 0, or CLI_FAILURE (said). The value stays the caller's. */
int cli_print_json(const json_t *value);
/* Flushes standard output. 0, or CLI_FAILURE (said) when something of it could not be written. */
int cli_finish_output(void);

/* Can it be a name or an id, and so a part of a path? 1 to CLI_NAME_MAX of A-Z, a-z, 0-9, '.', '_' and '-'.
 */
bool cli_is_name(const char *text);

/* Copies text, each control character (and each byte of a C1 one) replaced by '?'. Always terminated. */
void cli_clean_text(char *to, size_t size, const char *from);

/* Appends to a query, percent-encoded where a byte does not stand for itself there; what does not fit is left
 * out. */
void cli_append_escaped(char *to, size_t size, const char *text, size_t length);

/* A time as "12s", "3m", "5h" or "2d"; what is below 0 is "0s". */
void cli_format_span(long long ms, char to[CLI_TIME_MAX]);

/* Milliseconds since 1970, by the local clock to the minute; "-": 0. */
void cli_format_time(long long ms, char to[CLI_TIME_MAX]);

/* Escape sequences for a terminal, or empty strings where colours are not wanted. */
struct cli_colours {
	const char *good, *warn, *bad, *dim, *bold, *reset;
};
/* Colours when the stream is a terminal, TERM is not "dumb" and NO_COLOR is not set. */
struct cli_colours cli_colours_for(FILE *stream);

#endif
