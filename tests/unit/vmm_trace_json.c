/* SPDX-License-Identifier: Apache-2.0 */
/* The trace as text, byte for byte. */
#include "tests/unit/vmm_trace_fixture.h"

#include "common/io.h"
#include "vmm/json.h"
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TEXT_MAX = 16384 };

static const char *name_reason(unsigned reason)
{
	return reason == KVM_EXIT_MMIO ? "mmio" : reason == KVM_EXIT_IO ? "port" : NULL;
}

static const char *name_window(void *context, bool port, uint64_t address, unsigned size)
{
	(void)context;
	(void)size;
	return !port && address == 0xd0000050 ? "blk" : NULL;
}

static const char *name_pin(void *context, unsigned pin)
{
	(void)context;
	return pin == 0 ? "blk" : NULL;
}

static const char *name_device(void *context, const void *device, unsigned *number)
{
	(void)context;
	*number = 3;
	return device == &page ? "blk" : NULL;
}

static const struct trace_names names = {
	.reason = name_reason, .window = name_window, .pin = name_pin, .device = name_device};

/* Both parts, as lines; the pid is 0. */
static const char *write_out(char text[TEXT_MAX])
{
	static struct json json;
	int fd = memfd_create("trace", MFD_CLOEXEC);
	char pid[32], *at;
	ssize_t n;

	json_init(&json, fd);
	json_open(&json, '{');
	trace_put_events(trace_active, &names, &json);
	trace_put_totals(trace_active, &names, &json);
	json_close(&json, '}');
	assert_int_equal(json_finish(&json), 0);
	n = io_pread_full(fd, text, TEXT_MAX - 1, 0);
	assert_true(n > 0 && n < TEXT_MAX - 1);
	text[n] = '\0';
	close(fd);
	snprintf(pid, sizeof(pid), "\"pid\":%d,", (int)getpid());
	while ((at = strstr(text, pid)))
		memmove(at, at + strlen(pid), strlen(at + strlen(pid)) + 1);
	return text;
}

static void one_of_each_kind(void)
{
	uint64_t began = trace_begin(); /* 1 µs */

	trace_phase(began, "load");
	trace_ioctl(trace_begin(), KVM_CHECK_EXTENSION, 25, 1);
	trace_ioctl(trace_begin(), 0xae99, 25, -EPERM);
	trace_entry(0, &page.run);
	return_mmio(0xd0000050, true, 1);
	trace_entry(0, &page.run);
	return_port(0x80, KVM_EXIT_IO_OUT, 0xff, 2);
	trace_entry(0, &page.run);
	page.run.exit_reason = KVM_EXIT_HLT;
	trace_return(0, &page.run, 0);
	trace_add_guest_mark(trace_active, 1);
	trace_stand(0, &page.run);
	trace_add_guest_mark(trace_active, 200);
	trace_notify(trace_begin(), &page, 1);
	trace_add_irq(trace_active, 0, 33);
	trace_add_irq(trace_active, 9, -1);
	trace_add_hello(trace_active);
	send("initcall q\"\xff returned -5 after 1 usecs\n");
	trace_close(trace_active);
}

static const char events_text[] =
	"{\"traceEvents\":[\n"
	"{\"name\":\"process_name\",\"ph\":\"M\",\"tid\":0,\"args\":{\"name\":\"vmm\"}},\n"
	"{\"name\":\"thread_name\",\"ph\":\"M\",\"tid\":0,\"args\":{\"name\":\"vmm\"}},\n"
	"{\"name\":\"thread_name\",\"ph\":\"M\",\"tid\":1,\"args\":{\"name\":\"cpu0\"}},\n"
	"{\"name\":\"thread_name\",\"ph\":\"M\",\"tid\":100,\"args\":{\"name\":\"initcalls\"}},\n"
	"{\"name\":\"load\",\"cat\":\"phase\",\"ph\":\"X\",\"ts\":1.000,\"dur\":1.000,\"tid\":0},\n"
	"{\"name\":\"KVM_CHECK_EXTENSION\",\"cat\":\"ioctl\",\"ph\":\"X\",\"ts\":3.000,\"dur\":1.000,\"tid\":"
	"0,"
	"\"args\":{\"result\":1,\"argument\":25}},\n"
	"{\"name\":\"0xae99\",\"cat\":\"ioctl\",\"ph\":\"X\",\"ts\":5.000,\"dur\":1.000,\"tid\":0,"
	"\"args\":{\"result\":-1}},\n"
	"{\"name\":\"kernel\",\"cat\":\"mark\",\"ph\":\"i\",\"ts\":7.000,\"s\":\"p\",\"tid\":1,\"args\":{}},"
	"\n"
	"{\"name\":\"mmio\",\"cat\":\"exit\",\"ph\":\"X\",\"ts\":9.000,\"dur\":1.000,\"tid\":1,"
	"\"args\":{\"guest_us\":1.000,\"address\":\"0xd0000050\",\"write\":true,\"size\":4,\"value\":\"0x1\","
	"\"device\":\"blk\"}},\n"
	"{\"name\":\"port\",\"cat\":\"exit\",\"ph\":\"X\",\"ts\":12.000,\"dur\":1.000,\"tid\":1,"
	"\"args\":{\"guest_us\":1.000,\"port\":\"0x80\",\"write\":true,\"size\":1,\"value\":\"0xff\","
	"\"count\":2}},\n"
	"{\"name\":\"init\",\"cat\":\"mark\",\"ph\":\"i\",\"ts\":16.000,\"s\":\"p\",\"tid\":1,"
	"\"args\":{\"value\":1}},\n"
	"{\"name\":\"reason 5\",\"cat\":\"exit\",\"ph\":\"X\",\"ts\":15.000,\"dur\":2.000,\"tid\":1,"
	"\"args\":{\"guest_us\":1.000}},\n"
	"{\"name\":\"mark 200\",\"cat\":\"mark\",\"ph\":\"i\",\"ts\":18.000,\"s\":\"p\",\"tid\":1,"
	"\"args\":{\"value\":200}},\n"
	"{\"name\":\"blk\",\"cat\":\"notify\",\"ph\":\"X\",\"ts\":19.000,\"dur\":1.000,\"tid\":0,"
	"\"args\":{\"number\":3,\"queue\":1}},\n"
	"{\"name\":\"blk\",\"cat\":\"irq\",\"ph\":\"i\",\"ts\":21.000,\"s\":\"t\",\"tid\":1,"
	"\"args\":{\"pin\":0,\"vector\":33}},\n"
	"{\"name\":\"pin 9\",\"cat\":\"irq\",\"ph\":\"i\",\"ts\":22.000,\"s\":\"t\",\"tid\":1,"
	"\"args\":{\"pin\":9,\"vector\":-1}},\n"
	"{\"name\":\"hello\",\"cat\":\"mark\",\"ph\":\"i\",\"ts\":23.000,\"s\":\"p\",\"tid\":1,\"args\":{}},"
	"\n"
	"{\"name\":\"q\\\"\\u00ff\",\"cat\":\"initcall\",\"ph\":\"X\",\"ts\":61.000,\"dur\":1.000,\"tid\":"
	"100,"
	"\"args\":{\"returned\":-5}}],";

static const char totals_text[] =
	"\"start_ns\":5000,\"cpu_before_main_us\":7.000,\"hello_us\":23.000,"
	"\"bounds\":{\"events\":131072,\"rows\":512,\"marks\":64,\"strings\":65536},"
	"\"events\":14,\"dropped\":0,\n"
	"\"marks\":[{\"name\":\"kernel\",\"us\":7.000,\"value\":null},"
	"{\"name\":\"init\",\"us\":16.000,\"value\":1},{\"name\":\"mark 200\",\"us\":18.000,\"value\":200},"
	"{\"name\":\"hello\",\"us\":23.000,\"value\":null}],\"marks_dropped\":0,\n"
	"\"exits\":[\n";

static void the_text_is_what_the_page_says(void **state)
{
	static const char *const rows[] = {
		"{\"reason\":\"mmio\",\"address\":\"0xd0000050\",\"write\":true,\"size\":4,\"device\":"
		"\"blk\",\"boot_"
		"count\":1,"
		"\"boot_handle_ns\":1000,\"boot_guest_ns\":1000,\"count\":1,\"handle_ns\":1000,"
		"\"guest_ns\":1000,\"accesses\":1}",
		"{\"reason\":\"port\",\"port\":\"0x80\",\"write\":true,\"size\":1,\"device\":null,\"boot_"
		"count\":1,"
		"\"boot_handle_ns\":1000,\"boot_guest_ns\":1000,\"count\":1,\"handle_ns\":1000,"
		"\"guest_ns\":1000,\"accesses\":2}",
		"{\"reason\":\"reason 5\",\"device\":null,\"boot_count\":1,\"boot_handle_ns\":2000,"
		"\"boot_guest_ns\":1000,\"count\":1,\"handle_ns\":2000,\"guest_ns\":1000,\"accesses\":0}",
		"\"returns\":{\"boot\":3,\"total\":3},\n"
		"\"ioctls\":[\n"
		"{\"name\":\"KVM_RUN\",\"boot_count\":3,\"boot_ns\":3000,\"count\":3,\"ns\":3000,"
		"\"before_run\":0},\n"
		"{\"name\":\"KVM_CHECK_EXTENSION\",\"boot_count\":1,\"boot_ns\":1000,\"count\":1,\"ns\":1000,"
		"\"before_run\":1},\n"
		"{\"name\":\"0xae99\",\"boot_count\":1,\"boot_ns\":1000,\"count\":1,\"ns\":1000,"
		"\"before_run\":1}],\n"
		"\"irqs\":[{\"device\":\"blk\",\"pin\":0,\"boot_count\":1,\"count\":1},"
		"{\"device\":\"pin 9\",\"pin\":9,\"boot_count\":1,\"count\":1}],\n"
		"\"notifications\":[{\"device\":\"blk\",\"number\":3,\"queue\":1,\"boot_count\":1,"
		"\"boot_ns\":1000,\"count\":1,\"ns\":1000}]}",
	};
	static char text[TEXT_MAX];

	(void)state;
	one_of_each_kind();
	write_out(text);
	assert_memory_equal(text, events_text, strlen(events_text));
	assert_memory_equal(text + strlen(events_text), totals_text, strlen(totals_text));
	/* Rows come in the order of their hashes. */
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strstr(text, rows[i]))
			fail_msg("not there: %s\nin: %s", rows[i], text);
}

static void rows_of_others_have_no_address(void **state)
{
	static char text[TEXT_MAX];

	(void)state;
	trace_entry(0, &page.run);
	trace_active->row_count = TRACE_ROWS_MAX;
	return_mmio(0xd0000050, true, 0);
	trace_stand(0, &page.run);
	trace_close(trace_active);
	assert_non_null(strstr(write_out(text), "{\"reason\":\"mmio\",\"address\":null,\"write\":null,"
						"\"size\":null,\"device\":null,\"boot_count\":0,"));
}

static void without_a_hello_boot_is_nothing(void **state)
{
	static char text[TEXT_MAX];

	(void)state;
	trace_name_entry(trace_active, "resume");
	trace_entry(0, &page.run);
	return_mmio(0xd0000050, true, 0);
	trace_stand(0, &page.run);
	trace_close(trace_active);
	assert_non_null(strstr(write_out(text), "\"hello_us\":null,"));
	assert_non_null(strstr(text, "\"returns\":{\"boot\":0,\"total\":1}"));
	assert_non_null(strstr(text, "\"marks\":[{\"name\":\"resume\",\"us\":1.000,\"value\":null}]"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_text_is_what_the_page_says),
		TEST(rows_of_others_have_no_address),
		TEST(without_a_hello_boot_is_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
