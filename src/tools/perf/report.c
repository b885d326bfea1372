// SPDX-License-Identifier: MIT
/*
 * verbatim-perf-report DIR CODE text|json FOLDED REPORT: what `verbatim perf` becomes when the program has
 * ended. Reads the profiles in DIR (dpa/observe/sample.c), names their addresses, prints, removes the folder and exits with CODE.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpa/dpa.h"
#include "tools/cmd.h"
#include "tools/json.h"
#include "tools/perf/rows.h"

enum { ADDRS = 65, LINES_SHOWN = 20, FUNCTIONS_SHOWN = 40 };

struct profile {
	uint64_t period, samples, lost;
	unsigned int processes;
	unsigned int unfinished;                /* of them: what they did last is missing */
	struct rows self, total, lines, stacks; /* lines: FILE:NUMBER, a tab, the function */
};

/* One program, loaded to name its addresses. */
struct program {
	void *elf;
	size_t len;
	struct vb_dpa *dpa;
	struct vb_dpa_process *process;
	struct vb_dpa_lines *lines;
};

static const char who[] = "verbatim perf";

/* ---- programs ---- */

static void *report_read_file(const char *path, size_t *len)
{
	FILE *f = fopen(path, "re");
	struct stat st;
	void *bytes = NULL;

	if (f && !fstat(fileno(f), &st) && st.st_size > 0) {
		bytes = malloc((size_t)st.st_size);
		*len = bytes ? fread(bytes, 1, (size_t)st.st_size, f) : 0;
	}
	if (f)
		fclose(f);
	return bytes;
}

static bool program_open(struct program *p, const char *path)
{
	struct vb_dpa_process_attr attr = { .tier = VB_DPA_TIER_INTERP };

	*p = (struct program){ 0 };
	p->elf = report_read_file(path, &p->len);
	if (!p->elf || vb_dpa_create(NULL, &p->dpa))
		return false;
	if (vb_dpa_process_create(p->dpa, p->elf, p->len, &attr, &p->process, NULL))
		p->process = NULL;
	if (p->process)
		p->lines = vb_dpa_lines_open(p->process, p->elf, p->len);
	return p->process;
}

static void program_close(struct program *p)
{
	if (p->lines)
		vb_dpa_lines_close(p->lines);
	if (p->process)
		vb_dpa_process_destroy(p->process);
	if (p->dpa)
		vb_dpa_destroy(p->dpa);
	free(p->elf);
}

static const char *report_function_of(const struct program *p, uint64_t addr, char buf[32])
{
	const char *name = vb_dpa_symbol_name(p->process, addr, NULL);

	if (name)
		return name;
	snprintf(buf, 32, "0x%" PRIx64, addr);
	return buf;
}

/* ---- samples ---- */

/* Return addresses: the call is before. */
static uint64_t code_at(const struct program *p, const uint64_t *addrs, unsigned int i)
{
	return addrs[i] + vb_dpa_process_bias(p->process) - (i ? 1 : 0);
}

static void add_line(struct profile *profile, const struct program *p, uint64_t pc, uint64_t count)
{
	char where[PATH_MAX + 16] = "?", text[PATH_MAX + 300], buf[32];

	if (p->lines && vb_dpa_lines_find(p->lines, pc, where, sizeof(where)))
		strcpy(where, "?");
	snprintf(text, sizeof(text), "%s\t%.256s", where, report_function_of(p, pc, buf));
	rows_add(&profile->lines, text, count);
}

static void add_stack(struct profile *profile, const struct program *p, const uint64_t *addrs,
		      unsigned int n, uint64_t count)
{
	char buf[32], *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	for (unsigned int i = n; f && i--;)
		fprintf(f, "%s%s", report_function_of(p, code_at(p, addrs, i), buf), i ? ";" : "");
	if (f)
		fclose(f);
	if (text)
		rows_add(&profile->stacks, text, count);
	free(text);
}

/* A function that is several times on the stack counts once. */
static void add_totals(struct profile *profile, const struct program *p, const uint64_t *addrs,
		       unsigned int n, uint64_t count)
{
	char buf[32], other[32];

	for (unsigned int i = 0; i < n; i++) {
		const char *name = report_function_of(p, code_at(p, addrs, i), buf);
		unsigned int k = 0;

		while (k < i &&
		       strcmp(name, report_function_of(p, code_at(p, addrs, k), other)) != 0)
			k++;
		if (k == i)
			rows_add(&profile->total, name, count);
	}
}

static void add_place(struct profile *profile, const struct program *p, const uint64_t *addrs,
		      unsigned int n, uint64_t count)
{
	char buf[32];
	uint64_t pc = code_at(p, addrs, 0);

	profile->samples += count;
	rows_add(&profile->self, report_function_of(p, pc, buf), count);
	add_line(profile, p, pc, count);
	add_totals(profile, p, addrs, n, count);
	add_stack(profile, p, addrs, n, count);
}

static void report_read_line(struct profile *profile, const struct program *p, char *line)
{
	uint64_t addrs[ADDRS], count;
	unsigned int n = 0;
	char *end;

	if (sscanf(line, "period %" SCNu64, &profile->period) == 1)
		return;
	if (!strcmp(line, "end\n")) {
		profile->unfinished--;
		return;
	}
	if (sscanf(line, "lost %" SCNu64, &count) == 1) {
		profile->lost += count;
		return;
	}
	count = strtoull(line, &end, 10);
	while (end != line && *end == ' ' && n < ADDRS) {
		line = end;
		addrs[n++] = strtoull(line, &end, 16);
	}
	if (n && count)
		add_place(profile, p, addrs, n, count);
}

static void read_samples(struct profile *profile, const char *path)
{
	char elf[PATH_MAX], *line = NULL;
	struct program p;
	size_t room = 0;
	FILE *f = fopen(path, "re");

	if (!f)
		return;
	snprintf(elf, sizeof(elf), "%.*s.elf", (int)(strlen(path) - strlen(".samples")), path);
	if (program_open(&p, elf)) {
		while (getline(&line, &room, f) > 0)
			report_read_line(profile, &p, line);
	} else {
		fprintf(stderr, "%s: %s: the device program cannot be read\n", who, elf);
	}
	program_close(&p);
	free(line);
	fclose(f);
}

static bool ends_with(const char *text, const char *end)
{
	return strlen(text) > strlen(end) && !strcmp(text + strlen(text) - strlen(end), end);
}

/* In the order of their names, so that the same profiles are read in the same order. */
static void report_read_all(struct profile *profile, const char *dir)
{
	struct dirent **names;
	char path[PATH_MAX];
	int n = scandir(dir, &names, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
		/* Comes first by name, and is all that there is of a process that was killed early. */
		if (ends_with(path, ".elf")) {
			profile->processes++;
			profile->unfinished++;
		}
		if (ends_with(path, ".samples"))
			read_samples(profile, path);
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	rows_merge(&profile->self);
	rows_merge(&profile->total);
	rows_merge(&profile->lines);
	rows_merge(&profile->stacks);
}

static void remove_all(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *entry;

	while (d && (entry = readdir(d)))
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(d), entry->d_name, 0);
	if (d)
		closedir(d);
	rmdir(dir);
}

/* ---- printing ---- */

static double report_share(const struct profile *profile, uint64_t count)
{
	return 100.0 * (double)count / (double)profile->samples;
}

static void print_function(const struct profile *profile, const char *name, uint64_t self,
			   uint64_t total)
{
	printf("%6.2f%% %6.2f%% %10" PRIu64 "  %s\n", report_share(profile, self),
	       report_share(profile, total), self, name);
}

/* Those with samples of their own, then those that only called others. */
static void report_print_functions(const struct profile *profile)
{
	size_t left = FUNCTIONS_SHOWN;

	printf("\n%7s %7s %10s  %s\n", "SELF", "TOTAL", "SAMPLES", "FUNCTION");
	for (size_t i = 0; i < profile->self.n && left; i++, left--) {
		const struct row *row = &profile->self.list[i];

		print_function(profile, row->text, row->count,
			       rows_find(&profile->total, row->text));
	}
	for (size_t i = 0; i < profile->total.n && left; i++) {
		const struct row *row = &profile->total.list[i];

		if (rows_find(&profile->self, row->text))
			continue;
		print_function(profile, row->text, 0, row->count);
		left--;
	}
}

static void report_print_text(const struct profile *profile)
{
	if (profile->unfinished)
		printf("The program of %u device process%s was killed or has not ended: up to two seconds are missing\n",
		       profile->unfinished, profile->unfinished == 1 ? "" : "es");
	if (!profile->samples) {
		printf("No samples: %s.\n",
		       profile->unfinished ? "none were written before the end"
		       : profile->processes
			       ? "device code ran too few instructions; try a smaller --period"
			       : "the program has run no device code");
		return;
	}
	printf("%" PRIu64 " samples of %u device process%s, one every %" PRIu64 " instructions\n",
	       profile->samples, profile->processes, profile->processes == 1 ? "" : "es",
	       profile->period);
	if (profile->lost)
		printf("%" PRIu64 " were lost: there was no memory for them\n", profile->lost);
	report_print_functions(profile);
	printf("\n%7s %10s  %s\n", "SELF", "SAMPLES", "LINE");
	for (size_t i = 0; i < profile->lines.n && i < LINES_SHOWN; i++) {
		const struct row *row = &profile->lines.list[i];
		int len = (int)strcspn(row->text, "\t");

		printf("%6.2f%% %10" PRIu64 "  %.*s  %s\n", report_share(profile, row->count),
		       row->count, len, row->text, row->text + len + 1);
	}
}

static void print_json_lines(const struct profile *profile)
{
	for (size_t i = 0; i < profile->lines.n; i++) {
		char *text = profile->lines.list[i].text, *tab = strchr(text, '\t'), *colon;
		long number = 0;

		*tab = '\0';
		colon = strrchr(text, ':');
		if (colon) {
			*colon = '\0';
			number = strtol(colon + 1, NULL, 10);
		}
		printf("%s  {\"file\": ", i ? ",\n" : "");
		if (colon)
			tools_json_string(stdout, text);
		else
			printf("null");
		printf(", \"line\": %ld, \"function\": ", number);
		tools_json_string(stdout, tab + 1);
		printf(", \"self\": %" PRIu64 "}", profile->lines.list[i].count);
	}
}

static void report_print_json(const struct profile *profile)
{
	printf("{\"period\": %" PRIu64 ", \"samples\": %" PRIu64 ", \"lost\": %" PRIu64
	       ", \"processes\": %u, \"unfinished\": %u,\n\"functions\": [\n",
	       profile->period, profile->samples, profile->lost, profile->processes,
	       profile->unfinished);
	for (size_t i = 0; i < profile->total.n; i++) {
		const struct row *row = &profile->total.list[i];

		printf("%s  {\"name\": ", i ? ",\n" : "");
		tools_json_string(stdout, row->text);
		printf(", \"self\": %" PRIu64 ", \"total\": %" PRIu64 "}",
		       rows_find(&profile->self, row->text), row->count);
	}
	printf("],\n\"lines\": [\n");
	print_json_lines(profile);
	printf("]}\n");
}

/* 0 or an exit code. */
static int write_folded(const struct profile *profile, const char *path)
{
	FILE *f = fopen(path, "we");
	bool bad;

	if (f)
		for (size_t i = 0; i < profile->stacks.n; i++)
			fprintf(f, "%s %" PRIu64 "\n", profile->stacks.list[i].text,
				profile->stacks.list[i].count);
	bad = !f || ferror(f);
	if (f && fclose(f))
		bad = true;
	if (bad)
		fprintf(stderr, "%s: %s: %s\n", who, path, strerror(errno));
	return bad ? CMD_FAILED : 0;
}

static void profile_free(struct profile *profile)
{
	rows_free(&profile->self);
	rows_free(&profile->total);
	rows_free(&profile->lines);
	rows_free(&profile->stacks);
}

int main(int argc, char **argv)
{
	struct profile profile = { 0 };
	int code = 0;

	tools_guard_stdio();
	if (argc != 6) {
		fprintf(stderr, "%s: started by itself; run verbatim perf\n", who);
		return CMD_USAGE;
	}
	/* Its own use of the accelerator is no part of the profile, and nothing to translate. */
	unsetenv("VERBATIM_DPA_PROFILE");
	unsetenv("VERBATIM_DPA_TIER");
	report_read_all(&profile, argv[1]);
	remove_all(argv[1]);
	if (*argv[4])
		code = write_folded(&profile, argv[4]);
	if (*argv[5] && !freopen(argv[5], "we", stdout)) {
		fprintf(stderr, "%s: %s: %s\n", who, argv[5], strerror(errno));
		profile_free(&profile);
		return CMD_FAILED;
	}
	if (!strcmp(argv[3], "json"))
		report_print_json(&profile);
	else
		report_print_text(&profile);
	profile_free(&profile);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "%s: %s: %s\n", who, *argv[5] ? argv[5] : "standard output",
			strerror(errno));
		_exit(CMD_FAILED); /* and not 1, as tools_guard_stdio() would have it */
	}
	return code ? code : atoi(argv[2]);
}
