/* SPDX-License-Identifier: Apache-2.0 */
/* The value of --net: what is taken, and the sentence for each that is not. */
#include "tests/support/unit.h"

#include "vmm/config.h"
#include <errno.h>
#include <string.h>

static int parse(const char *value, struct config *config, char *error)
{
	char *words[] = {"vmm", "--kernel", "k", "--net", (char *)value, NULL};

	return config_parse(5, words, config, error);
}

static void values_are_taken(void **state)
{
	static const uint8_t mac[ETH_ALEN] = {0x02, 0xab, 0xcd, 0xef, 0x00, 0xff};
	static const struct {
		const char *value, *tap;
		bool has_mac;
	} rows[] = {
		{"tap0", "tap0", false},
		{"fifteen-letters", "fifteen-letters", false},
		{"fd:2147483647", "fd:2147483647", false},
		{"none", "", false},
		{"nonesuch", "nonesuch", false},
		{"tap0,mac=02:ab:cd:ef:00:ff", "tap0", true},
		{"none,mac=02:AB:CD:EF:00:FF", "", true},
		{"fd:7,mac=02:aB:cD:Ef:00:fF", "fd:7", true},
	};
	char error[CONFIG_ERROR_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct config config;

		assert_int_equal(parse(rows[i].value, &config, error), 0);
		assert_true(config.net.wanted);
		assert_string_equal(config.net.tap, rows[i].tap);
		assert_int_equal(config.net.has_mac, rows[i].has_mac);
		if (rows[i].has_mac)
			assert_memory_equal(config.net.mac, mac, sizeof(mac));
	}
}

static void there_is_no_network_by_default(void **state)
{
	char *words[] = {"vmm", "--kernel", "k", NULL}, error[CONFIG_ERROR_MAX];
	struct config config;

	(void)state;
	assert_int_equal(config_parse(3, words, &config, error), 0);
	assert_false(config.net.wanted);
	assert_string_equal(config.net.tap, "");
}

#define NOT_A_MAC " is not a MAC address; write six bytes in hexadecimal, such as 02:00:00:00:00:01"
#define NOT_A_NAME " cannot be the name of an interface; give a tap's, such as tap0"

static const struct {
	const char *value, *error;
} refusals[] = {
	{"", "--net needs a value; write --net TAP|fd:N|none[,mac=MAC]"},
	{",mac=02:00:00:00:00:01", "--net: ,mac=02:00:00:00:00:01 has no tap; write --net "
				   "TAP|fd:N|none[,mac=MAC]"},
	{"sixteen-letters-",
		"--net: a name of 16 bytes is too long for an interface; give one of at most 15"},
	{"a/b", "--net: a/b" NOT_A_NAME},
	{"/dev/net/tun", "--net: /dev/net/tun" NOT_A_NAME},
	{"..", "--net: .." NOT_A_NAME},
	{"tap%d", "--net: tap%d" NOT_A_NAME},
	{"FD:3", "--net: FD:3" NOT_A_NAME},
	{"tap 0", "--net: tap 0" NOT_A_NAME},
	{"tap\n,mac=02:00:00:00:00:01", "--net: tap\n" NOT_A_NAME},
	{"fd:", "--net: fd: is not a file descriptor; write fd: and its number"},
	{"fd:x", "--net: fd:x is not a file descriptor; write fd: and its number"},
	{"fd:-1", "--net: fd:-1 is not a file descriptor; write fd: and its number"},
	{"fd:2147483648", "--net: fd:2147483648 is not a file descriptor; write fd: and its number"},
	{"tap0,", "--net: \"\" is not known; write ,mac=MAC"},
	{"tap0,up", "--net: \"up\" is not known; write ,mac=MAC"},
	{"tap0,MAC=02:00:00:00:00:01", "--net: \"MAC=02:00:00:00:00:01\" is not known; write ,mac=MAC"},
	{"tap0,mac=", "--net: " NOT_A_MAC},
	{"tap0,mac=02:00:00:00:00", "--net: 02:00:00:00:00" NOT_A_MAC},
	{"tap0,mac=02:00:00:00:00:1", "--net: 02:00:00:00:00:1" NOT_A_MAC},
	{"tap0,mac=02:00:00:00:00:011", "--net: 02:00:00:00:00:011" NOT_A_MAC},
	{"tap0,mac=02:00:00:00:00:01:02", "--net: 02:00:00:00:00:01:02" NOT_A_MAC},
	{"tap0,mac=02-00-00-00-00-01", "--net: 02-00-00-00-00-01" NOT_A_MAC},
	{"tap0,mac=02:00:00:00:00:0g", "--net: 02:00:00:00:00:0g" NOT_A_MAC},
	{"tap0,mac=0x:00:00:00:00:01", "--net: 0x:00:00:00:00:01" NOT_A_MAC},
	{"tap0,mac= 2:00:00:00:00:01", "--net:  2:00:00:00:00:01" NOT_A_MAC},
	{"tap0,mac=02:00:00:00:00:01,mac=02:00:00:00:00:01",
		"--net: 02:00:00:00:00:01,mac=02:00:00:00:00:01" NOT_A_MAC},
	{"tap0,mac=01:00:5e:00:00:01", "--net: 01:00:5e:00:00:01 is an address of many (multicast); make the "
				       "first byte even, such as 02"},
	{"tap0,mac=ff:ff:ff:ff:ff:ff", "--net: ff:ff:ff:ff:ff:ff is an address of many (multicast); make the "
				       "first byte even, such as 02"},
	{"tap0,mac=00:00:00:00:00:00",
		"--net: 00:00:00:00:00:00 is no station's address; give one such as 02:00:00:00:00:01"},
};

static void refusals_say_what_and_how(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		char error[CONFIG_ERROR_MAX];
		struct config config;

		assert_int_equal(parse(refusals[i].value, &config, error), -EINVAL);
		assert_string_equal(error, refusals[i].error);
	}
}

static void it_is_given_once_and_shares_no_descriptor(void **state)
{
	char *twice[] = {"vmm", "--kernel", "k", "--net", "none", "--net", "tap0", NULL};
	char *shared[] = {"vmm", "--kernel", "fd:7", "--net", "fd:7", NULL};
	char error[CONFIG_ERROR_MAX];
	struct config config;

	(void)state;
	assert_int_equal(config_parse(7, twice, &config, error), -EINVAL);
	assert_string_equal(error, "--net is given twice; give it once");
	assert_int_equal(config_parse(5, shared, &config, error), -EINVAL);
	assert_string_equal(error, "fd:7 is given to both --kernel and --net; open one for each");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_are_taken),
		cmocka_unit_test(there_is_no_network_by_default),
		cmocka_unit_test(refusals_say_what_and_how),
		cmocka_unit_test(it_is_given_once_and_shares_no_descriptor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
