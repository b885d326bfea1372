// SPDX-License-Identifier: MIT
/*
 * Reads the configuration: INI text by inih, meaning and checks here.
 *
 * A file is read in two passes. The first only looks for lines that are no INI at all, because inih
 * counts the lines it is given and the second pass gives it more than the file has: behind each
 * section head a line with the key SECTION_KEY, so that the handler also hears of a section without
 * keys.
 *
 *	file ----> config_read_line() ----> inih ----> on_value() ----> struct vb_config_adapter
 *	           counts lines,               one entry of keys[] per key:
 *	           adds SECTION_KEY            parse and check
 *
 * After the last line every adapter is finished: defaults, then what its interface says. Only the
 * first error is kept. Nothing is handed out unless all of it is right.
 */
#include "base/config.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/env.h"
#include "base/log.h"

#define ARRAY_SIZE(a)  (sizeof(a) / sizeof((a)[0]))
#define SECTION_KEY    "\001"
#define SECTION_PREFIX "adapter "
#define MEMORY_SECTION "memory"
#define MAX_OBJECTS    0xffffffu /* object numbers have 24 bits */
#define MAX_KEYS       32
#define KNOWN_FORMATS  "mlx5, mlx4, hbl"

struct parser {
	FILE *file;
	const char *path;
	int line;          /* of the file, of what config_read_line() gave last */
	bool announce;     /* second pass: add SECTION_KEY behind section heads */
	bool announce_now; /* the line given last was a section head */
	bool failed;
	char *err;
	unsigned int err_len;
	struct vb_config *config;
	int section_line[VB_CONFIG_MAX_ADAPTERS];
	int key_line[VB_CONFIG_MAX_ADAPTERS][MAX_KEYS]; /* by keys[]; 0: not given */
};

static const char *const format_names[] = {
	[VB_FORMAT_MLX5] = "mlx5", [VB_FORMAT_MLX4] = "mlx4", [VB_FORMAT_HBL] = "hbl"
};

_Static_assert(ARRAY_SIZE(format_names) == VB_FORMATS, "every format has a name");

/* What mlx5 cards are sold as; card/identity.c has the rest of what such a card says of itself. */
static const struct {
	const char *name;
	uint32_t id;
} parts[] = {
	{ "connectx-4", 0x1013 },    { "connectx-4-lx", 0x1015 }, { "connectx-5", 0x1017 },
	{ "connectx-5-ex", 0x1019 }, { "connectx-6", 0x101b },    { "connectx-6-dx", 0x101d },
	{ "connectx-6-lx", 0x101f }, { "connectx-7", 0x1021 },    { "bluefield", 0xa2d2 },
	{ "bluefield-2", 0xa2d6 },   { "bluefield-3", 0xa2dc },
};

const char *vb_format_name(enum vb_format format)
{
	return format_names[format];
}

/* line 0: what is wrong is in no line. */
__attribute__((format(printf, 3, 4))) static void config_fail(struct parser *p, int line,
							      const char *fmt, ...)
{
	va_list args;
	int n;

	if (p->failed)
		return;
	p->failed = true;
	n = line ? snprintf(p->err, p->err_len, "%s:%d: ", p->path, line)
		 : snprintf(p->err, p->err_len, "%s: ", p->path);
	if (n < 0 || (unsigned int)n >= p->err_len)
		return;
	va_start(args, fmt);
	vsnprintf(p->err + n, p->err_len - (unsigned int)n, fmt, args);
	va_end(args);
}

/* ---- one function per kind of value: returns false after config_fail() ---- */

struct key;
typedef bool (*key_parse)(struct parser *p, const struct key *key, struct vb_config_adapter *a,
			  const char *value);

struct key {
	const char *name;
	key_parse parse;
	size_t offset; /* numbers: where in struct vb_config_adapter */
	bool repeats;
};

static bool find_format(const char *name, size_t len, enum vb_format *format)
{
	for (size_t i = 0; i < ARRAY_SIZE(format_names); i++) {
		if (strlen(format_names[i]) == len && !strncmp(format_names[i], name, len)) {
			*format = (enum vb_format)i;
			return true;
		}
	}
	return false;
}

static bool parse_format(struct parser *p, const struct key *key, struct vb_config_adapter *a,
			 const char *value)
{
	if (!find_format(value, strlen(value), &a->format)) {
		config_fail(p, p->line,
			    "format: '%s' is not a queue format; allowed: " KNOWN_FORMATS, value);
		return false;
	}
	return true;
}

static bool parse_interface(struct parser *p, const struct key *key, struct vb_config_adapter *a,
			    const char *value)
{
	size_t len = strlen(value);

	if (a->num_addresses) {
		config_fail(p, p->line,
			    "interface: give either an interface or addresses, not both");
		return false;
	}
	if (!len || len >= sizeof(a->interface) || strpbrk(value, "/: \t")) {
		config_fail(
			p, p->line,
			"interface: '%s' is not an interface name; allowed: 1 to %zu characters, as `ip link` lists them",
			value, sizeof(a->interface) - 1);
		return false;
	}
	memcpy(a->interface, value, len + 1);
	return true;
}

static bool parse_address(struct parser *p, const struct key *key, struct vb_config_adapter *a,
			  const char *value)
{
	struct in6_addr address = { 0 };

	if (a->interface[0]) {
		config_fail(p, p->line, "address: give either an interface or addresses, not both");
		return false;
	}
	if (a->num_addresses == VB_CONFIG_MAX_ADDRESSES) {
		config_fail(p, p->line, "address: an adapter has at most %d addresses",
			    VB_CONFIG_MAX_ADDRESSES);
		return false;
	}
	if (inet_pton(AF_INET, value, &address.s6_addr[12]) == 1) {
		address.s6_addr[10] = address.s6_addr[11] = 0xff;
	} else if (inet_pton(AF_INET6, value, &address) != 1) {
		config_fail(
			p, p->line,
			"address: '%s' is not an address; allowed: IPv4 (10.0.0.1) or IPv6 (fd00::1)",
			value);
		return false;
	}
	if (IN6_IS_ADDR_UNSPECIFIED(&address) || IN6_IS_ADDR_MULTICAST(&address) ||
	    (IN6_IS_ADDR_V4MAPPED(&address) &&
	     (!address.s6_addr32[3] || address.s6_addr[12] >= 224))) {
		config_fail(p, p->line, "address: '%s' is not the address of one host", value);
		return false;
	}
	for (unsigned int i = 0; i < a->num_addresses; i++) {
		if (IN6_ARE_ADDR_EQUAL(&a->address[i], &address)) {
			config_fail(p, p->line, "address: '%s' is given twice", value);
			return false;
		}
	}
	a->address[a->num_addresses++] = address;
	return true;
}

static bool config_parse_number(const char *value, uint32_t *number)
{
	unsigned long n;
	char *end;

	if (!isdigit((unsigned char)*value))
		return false;
	errno = 0;
	n = strtoul(value, &end, 10);
	if (errno || *end || n > UINT32_MAX)
		return false;
	*number = (uint32_t)n;
	return true;
}

static bool parse_mtu(struct parser *p, const struct key *key, struct vb_config_adapter *a,
		      const char *value)
{
	uint32_t n;

	if (!config_parse_number(value, &n) || n < 256 || n > 4096 || (n & (n - 1))) {
		config_fail(p, p->line,
			    "mtu: '%s' is not a path MTU; allowed: 256, 512, 1024, 2048, 4096",
			    value);
		return false;
	}
	a->mtu = n;
	return true;
}

static bool parse_limit(struct parser *p, const struct key *key, struct vb_config_adapter *a,
			const char *value)
{
	uint32_t n;

	if (!config_parse_number(value, &n) || n < 1 || n > MAX_OBJECTS) {
		config_fail(p, p->line, "%s: '%s' is not a limit; allowed: 1 to %u", key->name,
			    value, MAX_OBJECTS);
		return false;
	}
	memcpy((char *)a + key->offset, &n, sizeof(n));
	return true;
}

static bool parse_eus(struct parser *p, const struct key *key, struct vb_config_adapter *a,
		      const char *value)
{
	uint32_t n;

	if (!config_parse_number(value, &n) || n < 1 || n > VB_CONFIG_MAX_EUS) {
		config_fail(p, p->line,
			    "%s: '%s' is not a number of execution units; allowed: 1 to %u",
			    key->name, value, VB_CONFIG_MAX_EUS);
		return false;
	}
	a->dpa_eus = n;
	return true;
}

static bool parse_heap(struct parser *p, const struct key *key, struct vb_config_adapter *a,
		       const char *value)
{
	uint32_t n;

	if (!config_parse_number(value, &n) || n < 1 || n > VB_CONFIG_MAX_HEAP) {
		config_fail(p, p->line, "%s: '%s' is not a size in MiB; allowed: 1 to %u",
			    key->name, value, VB_CONFIG_MAX_HEAP);
		return false;
	}
	a->dpa_heap = n;
	return true;
}

static bool parse_stack(struct parser *p, const struct key *key, struct vb_config_adapter *a,
			const char *value)
{
	uint32_t n;

	if (!config_parse_number(value, &n) || n < VB_CONFIG_MIN_STACK || n > VB_CONFIG_MAX_STACK) {
		config_fail(p, p->line, "%s: '%s' is not a size in KiB; allowed: %u to %u",
			    key->name, value, VB_CONFIG_MIN_STACK, VB_CONFIG_MAX_STACK);
		return false;
	}
	a->dpa_stack = n;
	return true;
}

int vb_check_words(const char *text, uint32_t *checks, char *err, size_t size)
{
	static const struct {
		const char *word;
		uint32_t check;
	} words[] = {
		{ "heap", VB_CHECK_HEAP },
		{ "uninit", VB_CHECK_UNINIT },
		{ "continue", VB_CHECK_CONTINUE },
		{ "nothing", VB_CHECK_NOTHING },
	};
	uint32_t all = 0;

	for (size_t len; *text; text += len + (text[len] == ',')) {
		unsigned int i = 0;

		len = strcspn(text, ",");
		while (i < ARRAY_SIZE(words) &&
		       (strlen(words[i].word) != len || memcmp(words[i].word, text, len)))
			i++;
		if (i == ARRAY_SIZE(words)) {
			snprintf(err, size,
				 "'%.*s' is nothing to check; allowed: heap, uninit, continue",
				 len < 64 ? (int)len : 64, text);
			return -EINVAL;
		}
		all |= words[i].check;
	}
	*checks = all;
	return 0;
}

static bool parse_check(struct parser *p, const struct key *key, struct vb_config_adapter *a,
			const char *value)
{
	char err[160];

	if (!vb_check_words(value, &a->dpa_check, err, sizeof(err)))
		return true;
	config_fail(p, p->line, "%s: %s", key->name, err);
	return false;
}

static bool parse_cqe_size(struct parser *p, const struct key *key, struct vb_config_adapter *a,
			   const char *value)
{
	uint32_t n;

	if (!config_parse_number(value, &n) || (n != 32 && n != 64)) {
		config_fail(p, p->line,
			    "cqe_size: '%s' is not the size of an entry; allowed: 32, 64", value);
		return false;
	}
	a->cqe_size = n;
	return true;
}

static bool parse_timeout(struct parser *p, const struct key *key, struct vb_config_adapter *a,
			  const char *value)
{
	uint32_t n;

	if (!config_parse_number(value, &n) || n < 1 || n > VB_CONFIG_MAX_RPC_TIMEOUT) {
		config_fail(p, p->line, "%s: '%s' is not a time in milliseconds; allowed: 1 to %u",
			    key->name, value, VB_CONFIG_MAX_RPC_TIMEOUT);
		return false;
	}
	a->rpc_timeout = n;
	return true;
}

static bool parse_generation(struct parser *p, const struct key *key, struct vb_config_adapter *a,
			     const char *value)
{
	if (strcmp(value, "gaudi2") && strcmp(value, "gaudi3")) {
		config_fail(p, p->line, "generation: '%s' is not one; allowed: gaudi2, gaudi3",
			    value);
		return false;
	}
	a->generation = strcmp(value, "gaudi3") ? VB_GAUDI2 : VB_GAUDI3;
	return true;
}

static bool parse_ports(struct parser *p, const struct key *key, struct vb_config_adapter *a,
			const char *value)
{
	uint32_t n;

	if (!config_parse_number(value, &n) || n < 1 || n > VB_CONFIG_MAX_PORTS) {
		config_fail(p, p->line, "ports: '%s' is not a number of ports; allowed: 1 to %d",
			    value, VB_CONFIG_MAX_PORTS);
		return false;
	}
	a->ports = n;
	return true;
}

static bool is_device_name(const char *name);

static bool parse_cable(struct parser *p, const struct key *key, struct vb_config_adapter *a,
			const char *value)
{
	if (!is_device_name(value)) {
		config_fail(
			p, p->line,
			"cable: '%s' is not a name; allowed: up to %d letters, digits, '_', '-', '.'",
			value, VB_NAME_MAX - 1);
		return false;
	}
	memcpy(a->cable, value, strlen(value) + 1);
	return true;
}

static bool parse_tap(struct parser *p, const struct key *key, struct vb_config_adapter *a,
		      const char *value)
{
	size_t len = strlen(value);

	/* The kernel would take '%' for a place where it puts a number. */
	if (!len || len >= sizeof(a->tap) || strpbrk(value, "/:% \t")) {
		config_fail(
			p, p->line,
			"tap: '%s' is not an interface name; allowed: 1 to %zu characters, as `ip link` lists them",
			value, sizeof(a->tap) - 1);
		return false;
	}
	for (unsigned int i = 0; i < p->config->num_adapters; i++) {
		if (!strcmp(p->config->adapter[i].tap, value)) {
			config_fail(p, p->line, "tap: '%s' is already that of %s", value,
				    p->config->adapter[i].name);
			return false;
		}
	}
	memcpy(a->tap, value, len + 1);
	return true;
}

/* 0 in the struct: the key was not given. */
static bool parse_functions(struct parser *p, const struct key *key, struct vb_config_adapter *a,
			    const char *value)
{
	uint32_t n;

	if (!config_parse_number(value, &n) || n > VB_FUNCTIONS) {
		config_fail(
			p, p->line,
			"functions: '%s' is not a number of emulated functions; allowed: 0 to %d",
			value, VB_FUNCTIONS);
		return false;
	}
	a->functions = n ? n : VB_CONFIG_NO_FUNCTIONS;
	return true;
}

static bool parse_per_function(struct parser *p, const struct key *key, struct vb_config_adapter *a,
			       const char *value)
{
	uint32_t n;

	_Static_assert((int)VB_FUNCTION_QUEUES == (int)VB_FUNCTION_VECTORS, "one limit for both");
	if (!config_parse_number(value, &n) || n < 1 || n > VB_FUNCTION_QUEUES) {
		config_fail(p, p->line,
			    "%s: '%s' is not how many each function has; allowed: 1 to %d",
			    key->name, value, VB_FUNCTION_QUEUES);
		return false;
	}
	memcpy((char *)a + key->offset, &n, sizeof(n));
	return true;
}

/*
 * A part id is 16 bits, as in PCI configuration space. An unknown number is no mistake: it may be a
 * part that is newer than this table.
 */
static bool parse_part(struct parser *p, const struct key *key, struct vb_config_adapter *a,
		       const char *value)
{
	char known[256] = "", *end = known;
	unsigned long id = 0;

	for (size_t i = 0, n = 0; i < ARRAY_SIZE(parts) && n < sizeof(known); i++) {
		if (!strcmp(parts[i].name, value)) {
			a->part = parts[i].id;
			return true;
		}
		n += (size_t)snprintf(known + n, sizeof(known) - n, ", %s", parts[i].name);
	}
	if (isdigit((unsigned char)*value))
		id = strtoul(value, &end, strncmp(value, "0x", 2) ? 10 : 16);
	if (!id || id > UINT16_MAX || *end) {
		config_fail(p, p->line,
			    "part: '%s' is not a part; allowed: 1 to 65535, 0x1 to 0xffff%s", value,
			    known);
		return false;
	}
	a->part = (uint32_t)id;
	return true;
}

static const struct key keys[] = {
	{ .name = "format", .parse = parse_format },
	{ .name = "interface", .parse = parse_interface },
	{ .name = "address", .parse = parse_address, .repeats = true },
	{ .name = "mtu", .parse = parse_mtu },
	{ .name = "max_qp",
	  .parse = parse_limit,
	  .offset = offsetof(struct vb_config_adapter, max_qp) },
	{ .name = "max_cq",
	  .parse = parse_limit,
	  .offset = offsetof(struct vb_config_adapter, max_cq) },
	{ .name = "max_mr",
	  .parse = parse_limit,
	  .offset = offsetof(struct vb_config_adapter, max_mr) },
	{ .name = "max_srq",
	  .parse = parse_limit,
	  .offset = offsetof(struct vb_config_adapter, max_srq) },
	{ .name = "dpa_eus", .parse = parse_eus },
	{ .name = "dpa_heap", .parse = parse_heap },
	{ .name = "dpa_stack", .parse = parse_stack },
	{ .name = "dpa_check", .parse = parse_check },
	{ .name = "cqe_size", .parse = parse_cqe_size },
	{ .name = "rpc_timeout", .parse = parse_timeout },
	{ .name = "generation", .parse = parse_generation },
	{ .name = "ports", .parse = parse_ports },
	{ .name = "cable", .parse = parse_cable },
	{ .name = "tap", .parse = parse_tap },
	{ .name = "functions", .parse = parse_functions },
	{ .name = "function_queues",
	  .parse = parse_per_function,
	  .offset = offsetof(struct vb_config_adapter, function_queues) },
	{ .name = "function_vectors",
	  .parse = parse_per_function,
	  .offset = offsetof(struct vb_config_adapter, function_vectors) },
	{ .name = "part", .parse = parse_part },
};

_Static_assert(ARRAY_SIZE(keys) <= MAX_KEYS, "every key has a line");

/* ---- sections and keys as they come ---- */

static bool is_device_name(const char *name)
{
	size_t len = strlen(name);

	if (!len || len >= VB_NAME_MAX || name[0] == '.')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("_-.", name[i]))
			return false;
	return true;
}

static bool begin_section(struct parser *p, const char *section)
{
	struct vb_config *config = p->config;
	struct vb_config_adapter *a;
	const char *name;

	if (!strcmp(section, MEMORY_SECTION))
		return true;
	if (strncmp(section, SECTION_PREFIX, strlen(SECTION_PREFIX))) {
		config_fail(p, p->line, "[%s]: unknown section; allowed: [adapter NAME], [memory]",
			    section);
		return false;
	}
	name = section + strlen(SECTION_PREFIX);
	name += strspn(name, " \t");
	if (!is_device_name(name)) {
		config_fail(
			p, p->line,
			"[%s]: '%s' is not a device name; allowed: 1 to %d letters, digits, '_', '-', '.'",
			section, name, VB_NAME_MAX - 1);
		return false;
	}
	for (unsigned int i = 0; i < config->num_adapters; i++) {
		if (!strcmp(config->adapter[i].name, name)) {
			config_fail(p, p->line, "[%s]: this adapter is already defined in line %d",
				    section, p->section_line[i]);
			return false;
		}
	}
	if (config->num_adapters == VB_CONFIG_MAX_ADAPTERS) {
		config_fail(p, p->line, "[%s]: at most %d adapters are allowed", section,
			    VB_CONFIG_MAX_ADAPTERS);
		return false;
	}
	p->section_line[config->num_adapters] = p->line;
	a = &config->adapter[config->num_adapters++];
	snprintf(a->name, sizeof(a->name), "%s", name);
	return true;
}

static void fail_unknown_key(struct parser *p, const char *name)
{
	char known[512] = "";

	for (unsigned int i = 0, n = 0; i < ARRAY_SIZE(keys) && n < sizeof(known); i++)
		n += (unsigned int)snprintf(known + n, sizeof(known) - n, "%s%s", i ? ", " : "",
					    keys[i].name);
	config_fail(p, p->line, "%s: unknown key; allowed: %s", name, known);
}

static bool set_share(struct parser *p, const char *value)
{
	p->config->share_off = !strcmp(value, "off");
	if (p->config->share_off || !strcmp(value, "on"))
		return true;
	config_fail(p, p->line, "share: '%s' is neither on nor off", value);
	return false;
}

static bool set_arena(struct parser *p, const char *value)
{
	static const char *const words[] = {
		[VB_CONFIG_ARENA_ALIGNED] = "aligned",
		[VB_CONFIG_ARENA_ALL] = "all",
		[VB_CONFIG_ARENA_OFF] = "off",
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcmp(value, words[i])) {
			p->config->arena = (enum vb_config_arena)i;
			return true;
		}
	config_fail(p, p->line,
		    "arena: '%s' is not one of aligned, all, off; a size is for arena_size", value);
	return false;
}

static bool set_arena_size(struct parser *p, const char *value)
{
	if (config_parse_number(value, &p->config->arena_size) && p->config->arena_size)
		return true;
	config_fail(p, p->line, "arena_size: '%s' is not a size in MiB, 1 or more", value);
	return false;
}

static bool set_huge(struct parser *p, const char *value)
{
	p->config->huge_strict = !strcmp(value, "strict");
	if (p->config->huge_strict || !strcmp(value, "ordinary"))
		return true;
	config_fail(p, p->line, "huge: '%s' is neither ordinary nor strict", value);
	return false;
}

static bool memory_value(struct parser *p, const char *name, const char *value)
{
	static const struct {
		const char *name;
		bool (*set)(struct parser *p, const char *value);
	} known[] = {
		{ "share", set_share },
		{ "arena", set_arena },
		{ "arena_size", set_arena_size },
		{ "huge", set_huge },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(name, known[i].name))
			return known[i].set(p, value);
	config_fail(p, p->line, "%s: unknown key; allowed: share, arena, arena_size, huge", name);
	return false;
}

/* inih's handler: 0 is an error. */
static int on_value(void *user, const char *section, const char *name, const char *value)
{
	struct parser *p = user;

	if (p->failed)
		return 0;
	if (!p->announce)
		return 1;
	if (!strcmp(name, SECTION_KEY))
		return begin_section(p, section);
	if (!*section) {
		config_fail(p, p->line,
			    "%s: stands outside of any section; begin one with [adapter NAME]",
			    name);
		return 0;
	}
	if (!strcmp(section, MEMORY_SECTION))
		return memory_value(p, name, value);
	for (unsigned int i = 0; i < ARRAY_SIZE(keys); i++) {
		unsigned int adapter = p->config->num_adapters - 1;

		if (strcmp(keys[i].name, name))
			continue;
		if (!keys[i].repeats && p->key_line[adapter][i]) {
			config_fail(p, p->line, "%s: is given twice for this adapter", name);
			return 0;
		}
		p->key_line[adapter][i] = p->line;
		return keys[i].parse(p, &keys[i], &p->config->adapter[adapter], value);
	}
	fail_unknown_key(p, name);
	return 0;
}

/*
 * inih's reader. Indentation is dropped: inih would take an indented line for more of the value
 * above it.
 */
static char *config_read_line(char *str, int num, void *user)
{
	struct parser *p = user;
	size_t blanks, len;

	if (p->failed)
		return NULL;
	if (p->announce_now) {
		p->announce_now = false;
		snprintf(str, (size_t)num, SECTION_KEY "=\n");
		return str;
	}
	if (!fgets(str, num, p->file))
		return NULL;
	p->line++;
	len = strlen(str);
	if (len && str[len - 1] != '\n' && !feof(p->file)) {
		config_fail(p, p->line, "the line is longer than %d characters", num - 2);
		return NULL;
	}
	blanks = strspn(str, " \t");
	memmove(str, str + blanks, len - blanks + 1);
	p->announce_now = p->announce && str[0] == '[';
	return str;
}

/* ---- what can only be judged as a whole ---- */

/* N of "hbl_N": programs find /dev/accel/accelN by it. */
static bool hbl_number(const char *name, uint32_t *number)
{
	return !strncmp(name, "hbl_", 4) && config_parse_number(name + 4, number) &&
	       *number < VB_HBL_DEVICES && (name[4] != '0' || !name[5]);
}

/* Where a key stands in an adapter's section; 0 where it does not. */
static int line_of(const struct parser *p, unsigned int adapter, const char *name)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(keys); i++)
		if (!strcmp(keys[i].name, name))
			return p->key_line[adapter][i];
	return 0;
}

/*
 * Keys that only adapters of one format have: the first that another one was given is the mistake.
 */
static void check_keys(struct parser *p, unsigned int adapter)
{
	static const struct {
		const char *name, *refusal;
		enum vb_format format;
	} special[] = {
		{ "cqe_size", "only adapters of the format mlx4 have a choice", VB_FORMAT_MLX4 },
		{ "generation", "only adapters of the format hbl have this key", VB_FORMAT_HBL },
		{ "ports", "only adapters of the format hbl have this key", VB_FORMAT_HBL },
		{ "functions", "only adapters of the format mlx5 have this key", VB_FORMAT_MLX5 },
		{ "function_queues", "only adapters of the format mlx5 have this key",
		  VB_FORMAT_MLX5 },
		{ "function_vectors", "only adapters of the format mlx5 have this key",
		  VB_FORMAT_MLX5 },
		{ "part", "only adapters of the format mlx5 have this key", VB_FORMAT_MLX5 },
	};
	unsigned int wrong = ARRAY_SIZE(special);
	int first = 0;

	for (unsigned int i = 0; i < ARRAY_SIZE(special); i++) {
		int line = line_of(p, adapter, special[i].name);

		if (!line || special[i].format == p->config->adapter[adapter].format ||
		    (first && first < line))
			continue;
		first = line;
		wrong = i;
	}
	if (wrong < ARRAY_SIZE(special))
		config_fail(p, first, "%s: %s", special[wrong].name, special[wrong].refusal);
	if (!line_of(p, adapter, "tap"))
		return;
	if (p->config->adapter[adapter].format == VB_FORMAT_HBL)
		config_fail(p, line_of(p, adapter, "tap"),
			    "tap: only adapters of the formats mlx5 and mlx4 have this key");
	else if (line_of(p, adapter, "cable"))
		config_fail(p, line_of(p, adapter, "tap"),
			    "tap: a port ends in a cable or in a TAP, not in both");
}

/* "mlx5_0" is an mlx5 unless it says otherwise. */
static void check_formats(struct parser *p)
{
	for (unsigned int i = 0; i < p->config->num_adapters; i++) {
		struct vb_config_adapter *a = &p->config->adapter[i];

		if (!line_of(p, i, "format") &&
		    !find_format(a->name, strcspn(a->name, "_"), &a->format))
			config_fail(
				p, p->section_line[i],
				"format: the name '%s' does not tell it, so the key must; allowed: " KNOWN_FORMATS,
				a->name);
		else
			check_keys(p, i);
		if (!p->failed && a->format == VB_FORMAT_HBL &&
		    !hbl_number(a->name, &a->hbl_number))
			config_fail(
				p, p->section_line[i],
				"[adapter %s]: an adapter of the format hbl must be called hbl_0 to hbl_%d",
				a->name, VB_HBL_DEVICES - 1);
	}
}

/* ---- interface ---- */

static void config_parse(struct parser *p)
{
	int bad = ini_parse_stream(config_read_line, p, on_value, p);

	if (ferror(p->file))
		config_fail(p, p->line, "cannot be read: %s", strerror(errno));
	else if (bad > 0)
		config_fail(p, bad, "neither [section] nor key = value nor ; comment");
	if (p->failed)
		return;
	rewind(p->file);
	p->line = 0;
	p->announce = true;
	ini_parse_stream(config_read_line, p, on_value, p);
	if (!p->failed && !p->config->num_adapters)
		config_fail(p, 0, "no adapter; write at least one section [adapter NAME]");
	check_formats(p);
}

/*
 * The file is read twice here and again in every program below `verbatim run`: a pipe would be
 * empty by then, and a device may never end. NULL with errno.
 */
static FILE *open_regular(const char *path)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), err = 0;
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	struct stat st;

	if (!file || fstat(fd, &st))
		err = errno;
	else if (!S_ISREG(st.st_mode))
		err = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
	if (!err)
		return file;
	if (file)
		fclose(file);
	else if (fd >= 0)
		close(fd);
	errno = err;
	return NULL;
}

/* Closes the file. */
static int read_stream(FILE *file, const char *path, struct vb_config *config, char *err,
		       unsigned int err_len)
{
	struct parser p = { .file = file, .path = path, .err = err, .err_len = err_len };
	int ret = 0;

	p.config = calloc(1, sizeof(*p.config));
	if (!p.config) {
		ret = -ENOMEM;
		snprintf(err, err_len, "%s: %s", path, strerror(ENOMEM));
		goto close_file;
	}
	config_parse(&p);
	if (p.failed) {
		ret = -EINVAL;
		goto free_config;
	}
	vb_config_finish(p.config);
	*config = *p.config;
free_config:
	free(p.config);
close_file:
	fclose(p.file);
	return ret;
}

int vb_config_read(const char *path, struct vb_config *config, char *err, unsigned int err_len)
{
	FILE *file = open_regular(path);

	if (!file) {
		int ret = -errno;

		snprintf(err, err_len, "%s: %s", path,
			 ret == -EINVAL ? "not a regular file" : strerror(-ret));
		return ret;
	}
	return read_stream(file, path, config, err, err_len);
}

int vb_config_read_text(const char *text, struct vb_config *config, char *err, unsigned int err_len)
{
	FILE *file = fmemopen((void *)(uintptr_t)text, strlen(text), "r");

	if (!file) {
		int ret = -errno;

		snprintf(err, err_len, "the configuration: %s", strerror(-ret));
		return ret;
	}
	return read_stream(file, "the configuration", config, err, err_len);
}

void vb_config_default(struct vb_config *config)
{
	static const char *const names[] = { "mlx5_0", "mlx5_1", "mlx4_0", "hbl_0", "hbl_1" };

	memset(config, 0, sizeof(*config));
	config->num_adapters = ARRAY_SIZE(names);
	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++) {
		struct vb_config_adapter *a = &config->adapter[i];

		snprintf(a->name, VB_NAME_MAX, "%s", names[i]);
		find_format(a->name, strcspn(a->name, "_"), &a->format);
		hbl_number(a->name, &a->hbl_number);
	}
	vb_config_finish(config);
}

static struct vb_config process_config;
static int process_error;

/*
 * Switches that code elsewhere reads: a word that it does not know would be passed over in silence.
 */
static void check_switches(void)
{
	static const struct {
		const char *name, *yes, *no, *more, *old;
	} switches[] = {
		{ "VERBATIM_DIRECT", "on", "off", NULL },
		{ "VERBATIM_SHARE", "on", "off", "all", "arena" },
		{ "VERBATIM_RPC_LEND", "on", "off", NULL },
		{ "VERBATIM_DPA_PERF_MAP", "1", "0", NULL },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(switches); i++) {
		const char *value = vb_getenv(switches[i].name);

		if (value && *value && strcmp(value, switches[i].yes) &&
		    strcmp(value, switches[i].no) &&
		    (!switches[i].more || strcmp(value, switches[i].more)) &&
		    (!switches[i].old || strcmp(value, switches[i].old)))
			vb_warn("%s=%s has no effect; allowed: %s, %s%s%s", switches[i].name, value,
				switches[i].yes, switches[i].no, switches[i].more ? ", " : "",
				switches[i].more ? switches[i].more : "");
	}
}

static void read_process_config(void)
{
	const char *path = vb_getenv("VERBATIM_CONFIG");
	char err[512];

	vb_log_check_environment();
	check_switches();
	if (!path || !*path) {
		vb_config_default(&process_config);
		return;
	}
	process_error = -vb_config_read(path, &process_config, err, sizeof(err));
	if (process_error)
		vb_error("VERBATIM_CONFIG: %s", err);
}

const struct vb_config *vb_config_get(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	VB_NO_CANCEL;

	pthread_once(&once, read_process_config);
	if (process_error) {
		errno = process_error;
		return NULL;
	}
	return &process_config;
}
