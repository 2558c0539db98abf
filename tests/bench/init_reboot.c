/* SPDX-License-Identifier: Apache-2.0 */
/* The shortest init: asks for a restart at once, so that a VMM's time from exec to exit is that of a boot to
 * init. */
#include <sys/reboot.h>

int main(void)
{
	return reboot(RB_AUTOBOOT);
}
