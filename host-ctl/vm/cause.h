/* SPDX-License-Identifier: Apache-2.0 */
/* The words for how a VM ended, of what the daemon knows, the vmm gave as its reason, and wrote last. */
#ifndef HOST_CTL_CAUSE_H
#define HOST_CTL_CAUSE_H

#include <stddef.h>

/* Sets the cause, a buffer of `size` bytes, to "end: reason", cut where it is full. A reason that begins with
 * the words of the end stands alone; it may be empty. */
void cause_set_end(char *cause, size_t size, const char *end, const char *reason);

/*
 * Appends " (vmm: words)" to the cause, a buffer of `size` bytes, cut where it is full. The last line of
 * words, as of tail_format, is left out when it only repeats `reason` (may be empty); nothing is appended
 * when nothing is left. words is changed.
 */
void cause_add_words(char *cause, size_t size, char *words, const char *reason);

/* Appends what is to be known of a guest's console, whose log is at path; NULL: it has none, and how to get
 * one. The last lines that fit, printable; cut where the cause, a buffer of `size` bytes, is full. */
void cause_add_console(char *cause, size_t size, const char *path);

/*
 * Replaces each "fd:N" in the text, a buffer of `size` bytes, by names[N - first], as far as there is one:
 * the vmm knows its files by number, people know them by path. What does not fit is cut; the result is
 * printable.
 */
void cause_name_files(
	char *text, size_t size, unsigned int first, const char *const *names, unsigned int count);

#endif
