/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines for people, on standard error: "name: level: text". The level and the name are the only mutable state
 * at file scope in the project, but for the pointer to a vmm's trace (vmm/trace.h). A failure is logged once,
 * where the name of the thing is known.
 */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* name: kept by reference, must outlive every call. The level starts at LOG_LEVEL_INFO. */
void log_init(const char *name, enum log_level level);

/* Where lines go; starts as fd 2. The fd stays the caller's. */
void log_set_fd(int fd);

/* One line is one write(2), so that lines of several processes do not mix; longer than LOG_LINE_MAX is cut.
 */
enum { LOG_LINE_MAX = 1024 };
void log_at(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
