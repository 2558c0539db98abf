/* SPDX-License-Identifier: Apache-2.0 */
/* A hostile driver before the entropy device. */
#include "tests/fuzz/support/driver.h"
#include "vmm/virtio/rng.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	struct virtio_device *device;
	struct driver driver;

	fuzz_begin();
	driver_init(&driver, &input);
	FUZZ_ASSERT(rng_create(&device) == 0);
	driver_attach(&driver, device);
	while (driver_goes_on(&driver))
		driver_step(&driver);
	driver_settle(&driver);
	driver_finish(&driver);
	fuzz_end();
	return 0;
}
