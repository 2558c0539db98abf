/* SPDX-License-Identifier: Apache-2.0 */
/* The value of --net: TAP|fd:N|none[,mac=XX:XX:XX:XX:XX:XX]. */
#include "vmm/config_options.h"
#include <errno.h>
#include <string.h>

enum { MAC_TEXT = 3 * ETH_ALEN - 1, MAC_GROUP = 0x01 };

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* 0 or -EINVAL. text is not looked at behind its NUL. */
static int parse_mac(const char *text, uint8_t mac[ETH_ALEN])
{
	if (strlen(text) != MAC_TEXT)
		return -EINVAL;
	for (unsigned i = 0; i < ETH_ALEN; i++, text += 3) {
		int high = digit(text[0]), low = digit(text[1]);

		if (high < 0 || low < 0 || text[2] != (i + 1 < ETH_ALEN ? ':' : '\0'))
			return -EINVAL;
		mac[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

static int take_mac(struct config_net *net, const char *text, char *error)
{
	static const uint8_t zero[ETH_ALEN];

	if (parse_mac(text, net->mac) < 0)
		return config_refuse(error,
			"--net: " CONFIG_SHOWN
			" is not a MAC address; write six bytes in hexadecimal, such as 02:00:00:00:00:01",
			text);
	if (net->mac[0] & MAC_GROUP)
		return config_refuse(error,
			"--net: " CONFIG_SHOWN
			" is an address of many (multicast); make the first byte even, such as 02",
			text);
	if (memcmp(net->mac, zero, sizeof(zero)) == 0)
		return config_refuse(error,
			"--net: " CONFIG_SHOWN " is no station's address; give one such as 02:00:00:00:00:01",
			text);
	net->has_mac = true;
	return 0;
}

/* What Linux takes for one; '%' it takes for a template. */
static bool can_be_interface(const char *name)
{
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return false;
	return name[strcspn(name, "/:% \t\n\v\f\r")] == '\0';
}

static int take_tap(const struct config_option *option, struct config_net *net, const char *value,
	size_t length, char *error)
{
	if (length == 0)
		return config_refuse(
			error, "--net: " CONFIG_SHOWN " has no tap; write --net %s", value, option->value);
	if (length > CONFIG_TAP_MAX)
		return config_refuse(error,
			"--net: a name of %zu bytes is too long for an interface; give one of at most %d",
			length, CONFIG_TAP_MAX);
	if (length == strlen("none") && memcmp(value, "none", length) == 0)
		return 0;
	memcpy(net->tap, value, length);
	switch (config_file_number(net->tap)) {
	case -EINVAL:
		return config_refuse(error,
			"--net: " CONFIG_SHOWN " is not a file descriptor; write fd: and its number",
			net->tap);
	case -ENOENT:
		if (!can_be_interface(net->tap))
			return config_refuse(error,
				"--net: " CONFIG_SHOWN
				" cannot be the name of an interface; give a tap's, such as tap0",
				net->tap);
		return 0;
	default:
		return 0;
	}
}

int config_take_net(const struct config_option *option, struct config *config, const char *value, char *error)
{
	struct config_net *net = &config->net;
	size_t length = strcspn(value, ",");
	const char *part = value + length;

	net->wanted = true;
	if (take_tap(option, net, value, length, error) < 0)
		return -EINVAL;
	if (*part == '\0')
		return 0;
	if (strncmp(part, ",mac=", 5) == 0)
		return take_mac(net, part + 5, error);
	return config_refuse(error, "--net: \"" CONFIG_SHOWN "\" is not known; write ,mac=MAC", part + 1);
}
