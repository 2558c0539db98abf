/* SPDX-License-Identifier: Apache-2.0 */
/* The steps at which a command fails to start (enum agent_start_step), by the names the API gives them. */
#ifndef HOST_CTL_START_STEP_H
#define HOST_CTL_START_STEP_H

/* A constant; NULL: there is no such step. */
const char *start_step_name(unsigned int step);

#endif
