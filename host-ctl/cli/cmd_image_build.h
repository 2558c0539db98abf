/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `host-ctl image build`: has the builder (rootfs/build-image) make an image in a folder of the store, and
 * puts it there under its content's name.
 *
 * The builder is a process group of its own. SIGINT, SIGTERM and SIGHUP end it, and what it has made goes; a
 * second one kills it. When host-ctl is killed the builder is ended (PR_SET_PDEATHSIG), and the next build
 * removes what is left.
 */
#ifndef HOST_CTL_CMD_IMAGE_BUILD_H
#define HOST_CTL_CMD_IMAGE_BUILD_H

#include "host-ctl/image/image_store.h"
#include <jansson.h>

struct image_order {
	const char *builder, *name;
	const char *kind;   /* "dir", "tar", "debian" or "image" */
	const char *source; /* as the builder takes it */
	const char *limit;  /* NULL: the builder's own */
};

/*
 * *answer: the image as image_store_describe tells it, with "collected", the ids of images that lost their
 * last name by it and were removed. 0; -1 with *error set: as of image_store_put; build_failed: the builder
 * has said why on standard error; or the number of the signal that ended it, with nothing left.
 */
int cmd_image_build(const struct image_store *store, const struct image_order *order, json_t **answer,
	struct error *error);

/*
 * Of the builder's facts, the text of a file: its lines, of which the last may lack its end, are `sha256 HEX`
 * and `package NAME VERSION ARCHITECTURE`. id is set and *packages is the caller's, an array of {"name",
 * "version", "architecture"}. 0, or -1: it is not so, or there is no memory.
 */
int cmd_image_read_facts(const char *text, char id[IMAGE_ID_SIZE], json_t **packages);

#endif
