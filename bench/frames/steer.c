// SPDX-License-Identifier: MIT
/*
 * What the steering engine costs: finding the rule of a frame among 10 to a million, one mask and
 * several, and making and removing the rules.
 *
 * usage: steer-bench [--quick] [--json FILE]
 *        steer-bench --only RULES    100,000 look-ups in a table of so many, for a profiler: it
 *                                    finds them in send_frames()
 *
 * A row is the median of seven repetitions, with the lowest and highest. Frames hit rules at
 * random, so that large tables are cold. Beside it: as many random loads as a look-up needs at
 * least (a slot, a rule, each where the one before says), from as much memory as the rules take.
 * Cache misses are counted where the machine lets us.
 */
#include <linux/perf_event.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/rcu.h"
#include "steer/steer.h"

enum { REPEATS = 7, LINE = 64, MASKS = 8 };

static bool quick;
static FILE *json;
static int rows, misses_fd = -1;
static uint64_t emitted;

/* --- measuring -------------------------------------------------------------------------------- */

/* Of this thread: what others do meanwhile does not count. Nothing here waits. */
static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void open_misses(void)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_HARDWARE,
					.size = sizeof(attr),
					.config = PERF_COUNT_HW_CACHE_MISSES,
					.exclude_kernel = 1 };

	misses_fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

static double count_misses(void)
{
	uint64_t n;

	return misses_fd >= 0 && read(misses_fd, &n, sizeof(n)) == sizeof(n) ? (double)n : NAN;
}

static int compare(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;

	return a < b ? -1 : a > b;
}

struct row {
	const char *what, *unit, *aim;
	uint32_t rules;
	double sample[REPEATS];
	int count;
	double limit, misses;
	bool met;
};

static void print_cell(const char *format, double value)
{
	if (isnan(value))
		printf("  %8s", "-");
	else
		printf(format, value);
}

static double print_row(struct row *row)
{
	double median;

	qsort(row->sample, (size_t)row->count, sizeof(double), compare);
	median = row->sample[row->count / 2];
	if (!rows)
		printf("%-28s %9s %9s %9s %9s %-9s  %8s  %8s  %8s  %s\n", "what", "rules", "median",
		       "lowest", "highest", "unit", "limit", "x limit", "misses", "aim");
	printf("%-28s %9u %9.2f %9.2f %9.2f %-9s", row->what, row->rules, median, row->sample[0],
	       row->sample[row->count - 1], row->unit);
	print_cell("  %8.2f", row->limit);
	print_cell("  %8.2f", median / row->limit);
	print_cell("  %8.2f", row->misses);
	printf("  %s\n", row->aim ? row->aim : "");
	if (json)
		fprintf(json,
			"%s {\"what\": \"%s\", \"rules\": %u, \"unit\": \"%s\", "
			"\"median\": %g, \"low\": %g, \"high\": %g}",
			rows ? ",\n" : "[\n", row->what, row->rules, row->unit, median,
			row->sample[0], row->sample[row->count - 1]);
	rows++;
	return median;
}

static int repeats(void)
{
	return quick ? 1 : REPEATS;
}

/* --- the machine's limit ---------------------------------------------------------------------- */

/* Two random loads, the second where the first says, out of so many lines. */
static double random_loads(uint32_t lines)
{
	uint32_t n = quick ? 1000 : 1000000, at = 1;
	uint32_t *memory;
	double begin, ns;

	lines = lines < 64 ? 64 : lines;
	memory = malloc((size_t)lines * LINE);
	if (!memory)
		return NAN;
	for (uint32_t i = 0; i < lines; i++)
		memory[(size_t)i * LINE / 4] = (uint32_t)((i * 2654435761u + 12345u) % lines);
	ns = INFINITY;
	for (int repeat = 0; repeat < 3; repeat++) {
		begin = now();
		for (uint32_t i = 0; i < n; i++) {
			uint32_t first =
				(uint32_t)(((uint64_t)(at * 2654435761u + i * 40503u) * lines) >>
					   32);

			at = memory[(size_t)first * LINE / 4];
			at = memory[(size_t)at * LINE / 4];
		}
		ns = fmin(ns, (now() - begin) / n);
	}
	emitted += at & 1;
	free(memory);
	return ns;
}

/* --- rules ------------------------------------------------------------------------------------ */

struct setup {
	struct vb_steer *steer;
	struct vb_steer_table *table;
	struct vb_steer_action *dest;
	struct vb_steer_matcher *matcher[MASKS];
	struct vb_steer_rule **rule;
	uint32_t rules;
};

static void fail(const char *what)
{
	fprintf(stderr, "steer-bench: %s failed\n", what);
	exit(1);
}

/* The MAC of rule i: spread, so that neighbours in number are none in the table. */
static void put_mac(uint8_t *to, uint32_t i)
{
	uint32_t be = htobe32(i * 2654435761u);

	to[0] = 2;
	to[1] = 0;
	memcpy(to + 2, &be, 4);
}

static void open_setup(struct setup *s, uint32_t rules)
{
	struct vb_steer_action_attr attr = { .what = VB_STEER_DO_DEST };
	uint8_t mask[64] = { 0 };

	memset(s, 0, sizeof(*s));
	s->rules = rules;
	s->rule = calloc(rules, sizeof(*s->rule));
	memset(mask + 8, 0xff, 6);
	if (!s->rule || vb_steer_create(VB_STEER_NIC_RX, &s->steer) ||
	    vb_steer_table_create(s->steer, 0, &s->table) ||
	    vb_steer_action_create(&attr, &s->dest, NULL) ||
	    vb_steer_matcher_create(s->table, 100, VB_STEER_OUTER, mask, sizeof(mask),
				    &s->matcher[0], NULL))
		fail("setup");
}

static void add_rules(struct setup *s)
{
	uint8_t value[64] = { 0 };

	for (uint32_t i = 0; i < s->rules; i++) {
		put_mac(value + 8, i);
		if (vb_steer_rule_create(s->matcher[0], value, sizeof(value), &s->dest, 1,
					 VB_STEER_UNIQUE, &s->rule[i], NULL))
			fail("vb_steer_rule_create");
	}
}

static void remove_rules(struct setup *s)
{
	for (uint32_t i = 0; i < s->rules; i++)
		vb_steer_rule_destroy(s->rule[i]);
}

static void close_setup(struct setup *s)
{
	for (int i = 0; i < MASKS; i++)
		if (s->matcher[i])
			vb_steer_matcher_destroy(s->matcher[i]);
	vb_steer_action_destroy(s->dest);
	vb_steer_table_destroy(s->table);
	if (vb_steer_destroy(s->steer))
		fail("vb_steer_destroy");
	free(s->rule);
}

/* --- frames ----------------------------------------------------------------------------------- */

static void take(void *arg, const struct vb_steer_dest *dest, const struct vb_frame *f,
		 const struct vb_steer_meta *meta)
{
	*(uint64_t *)arg += dest->to == VB_STEER_TO_OWNER;
}

static const uint8_t udp_frame[60] = {
	2, 0, 0,  0,  0, 1, 2,  0, 0, 0, 0,  2, 0x08, 0, 0x45, 0,    0, 46, 0, 0,
	0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0,    2, 0x30, 0x39, 0, 7,  0, 26,
};

/* ns for each of n frames; parse: with finding the headers, else they are known. */
static __attribute__((noinline)) double send_frames(struct setup *s, uint32_t n, bool parse,
						    bool hit, double *misses)
{
	static const struct vb_steer_meta meta;
	uint8_t data[60];
	struct vb_frame f = { .data = data, .len = sizeof(data) };
	uint64_t random = 1, hits = 0;
	double begin, before = count_misses(), ns;

	memcpy(data, udp_frame, sizeof(data));
	vb_frame_parse(&f);
	begin = now();
	for (uint32_t i = 0; i < n; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		put_mac(data, (uint32_t)((random >> 32) * s->rules >> 32));
		data[1] = !hit;
		if (parse)
			vb_frame_parse(&f);
		vb_read_lock();
		vb_steer_run(s->steer, &f, &meta, NULL, take, &hits);
		vb_read_unlock();
	}
	ns = (now() - begin) / n;
	*misses = (count_misses() - before) / n;
	if (hits != (hit ? n : 0))
		fail("a look-up");
	return ns;
}

static void measure_frames(struct setup *s, const char *what, bool parse, bool hit, const char *aim)
{
	struct row row = { .what = what, .unit = "ns/frame", .aim = aim, .rules = s->rules };

	row.limit = random_loads(s->rules);
	for (row.count = 0; row.count < repeats(); row.count++)
		row.sample[row.count] =
			send_frames(s, quick ? 1000 : 1000000, parse, hit, &row.misses);
	print_row(&row);
}

/* --- measurements ----------------------------------------------------------------------------- */

static void measure_parse(void)
{
	struct row row = {
		.what = "find headers (UDP)", .unit = "ns/frame", .limit = NAN, .misses = NAN
	};
	uint8_t data[60];
	struct vb_frame f = { .data = data, .len = sizeof(data) };
	uint32_t n = quick ? 1000 : 2000000;

	memcpy(data, udp_frame, sizeof(data));
	for (row.count = 0; row.count < repeats(); row.count++) {
		double begin = now();

		for (uint32_t i = 0; i < n; i++) {
			data[20] = (uint8_t)i;
			vb_frame_parse(&f);
			emitted += f.outer.l4;
		}
		row.sample[row.count] = (now() - begin) / n;
	}
	print_row(&row);
}

static void measure_table(uint32_t rules)
{
	struct setup s;

	open_setup(&s, rules);
	add_rules(&s);
	measure_frames(&s, "look-up, hit", false, true, rules <= 10 ? "< 60" : NULL);
	measure_frames(&s, "headers and look-up, hit", true, true, rules <= 10 ? "< 60" : NULL);
	measure_frames(&s, "look-up, miss", false, false, NULL);
	remove_rules(&s);
	close_setup(&s);
}

/* Other masks before the one that matches: each costs a look-up. */
static void measure_masks(void)
{
	struct vb_steer_rule *rule[MASKS];
	uint8_t mask[64], value[64];
	struct setup s;

	open_setup(&s, 1000);
	add_rules(&s);
	for (uint16_t i = 1; i < MASKS; i++) {
		memset(mask, 0, sizeof(mask));
		memset(value, 0, sizeof(value));
		mask[28 + i / 4] = (uint8_t)(1 << i % 4 | 0x80);
		mask[63] = 0xff;
		value[63] = 77;
		if (vb_steer_matcher_create(s.table, i, VB_STEER_OUTER, mask, sizeof(mask),
					    &s.matcher[i], NULL) ||
		    vb_steer_rule_create(s.matcher[i], value, sizeof(value), &s.dest, 1, 0,
					 &rule[i], NULL))
			fail("masks");
	}
	measure_frames(&s, "look-up in the 8th matcher", false, true, NULL);
	for (int i = 1; i < MASKS; i++)
		vb_steer_rule_destroy(rule[i]);
	remove_rules(&s);
	close_setup(&s);
}

static void measure_rules(uint32_t rules)
{
	struct row add = { .what = "create a rule",
			   .unit = "ns",
			   .rules = rules,
			   .limit = NAN,
			   .misses = NAN,
			   .aim = "< 10000 (1 M in 10 s)" };
	struct row gone = {
		.what = "destroy a rule", .unit = "ns", .rules = rules, .limit = NAN, .misses = NAN
	};
	struct vb_steer_usage usage;
	struct setup s;

	for (int i = 0; i < (quick ? 1 : 5); i++) {
		double begin;

		open_setup(&s, rules);
		begin = now();
		add_rules(&s);
		add.sample[add.count++] = (now() - begin) / rules;
		vb_steer_usage(s.steer, &usage);
		begin = now();
		remove_rules(&s);
		gone.sample[gone.count++] = (now() - begin) / rules;
		close_setup(&s);
	}
	print_row(&add);
	print_row(&gone);
	printf("%u rules of one MAC address take %.1f bytes each\n", rules,
	       (double)usage.bytes / rules);
}

static int run_only(uint32_t rules)
{
	struct setup s;
	double misses;

	open_setup(&s, rules);
	add_rules(&s);
	printf("%.1f ns/frame\n", send_frames(&s, 100000, false, true, &misses));
	remove_rules(&s);
	close_setup(&s);
	return 0;
}

int main(int argc, char **argv)
{
	static const uint32_t sizes[] = { 10, 1000, 100000, 1000000 };

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--quick"))
			quick = true;
		else if (!strcmp(argv[i], "--json") && i + 1 < argc)
			json = fopen(argv[++i], "w");
		else if (!strcmp(argv[i], "--only") && i + 1 < argc && atoi(argv[i + 1]) > 0)
			return run_only((uint32_t)atoi(argv[i + 1]));
	}
	open_misses();
	measure_parse();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (!quick || sizes[i] <= 1000)
			measure_table(sizes[i]);
	measure_masks();
	measure_rules(quick ? 1000 : 1000000);
	if (json) {
		fprintf(json, "\n]\n");
		fclose(json);
	}
	return emitted == 1; /* so that nothing is left out as unused */
}
