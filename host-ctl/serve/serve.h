/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon: `host-ctl serve`. */
#ifndef HOST_CTL_SERVE_H
#define HOST_CTL_SERVE_H

/*
 * Runs the daemon until SIGTERM, SIGINT, SIGHUP or SIGQUIT, then tears everything down. argv[0] is "serve".
 * Returns the exit status: 0 stopped as asked, 1 could not start or failed (logged), 2 bad command line
 * (said on standard error).
 */
int serve_main(int argc, char **argv);

#endif
