/* SPDX-License-Identifier: Apache-2.0 */
/* The version of all programs of the project: they are built and shipped together. */
#ifndef COMMON_VERSION_H
#define COMMON_VERSION_H

#define TINDERBOX_VERSION "0.1.0"

#endif
