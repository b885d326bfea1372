// SPDX-License-Identifier: MIT
/*
 * Owns the question whether a site may be patched where it is, and where there is room for its
 * trampoline: what /proc says about this process.
 *
 * All of this runs in a signal handler: plain system calls, and buffers on the stack.
 */
#include "host/patch/patch.h"

#if defined(__x86_64__)

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cancel.h"
#include "host/signals.h"

enum { PAGE = 4096, LINE = 512 };

/* Room that mappings which grow are left. */
#define HEAP_ROOM  (256ul << 20)
#define STACK_ROOM (64ul << 20)
#define LOWEST     (1ul << 20)
#define HIGHEST    0x7fffffff0000ul

/* --- lines of a file -------------------------------------------------------------------------- */

struct lines {
	int fd;
	size_t from, to; /* what is read of buf and not yet given out */
	char buf[2048];
};

/* A file of this thread in /proc: the one of the process is empty when its first thread has ended. */
int vb_proc_open(const char *name, int flags)
{
	char path[96];
	int fd;

	strcpy(path, "/proc/thread-self/");
	strcat(path, name);
	fd = strncmp(name, "task/", 5) ? vb_sys_open(path, flags | O_CLOEXEC) : -1;
	if (fd >= 0)
		return fd;
	strcpy(path, "/proc/self/");
	strcat(path, name);
	return vb_sys_open(path, flags | O_CLOEXEC);
}

/* The next line without its end, cut at LINE - 1; false at the end of the file. */
static bool patch_place_next_line(struct lines *lines, char *line)
{
	size_t n = 0;

	for (;;) {
		if (lines->from == lines->to) {
			ssize_t got = vb_sys_read(lines->fd, lines->buf, sizeof(lines->buf));

			if (got < 0 && errno == EINTR)
				continue;
			if (got <= 0)
				return false;
			lines->from = 0;
			lines->to = (size_t)got;
		}
		while (lines->from < lines->to) {
			char c = lines->buf[lines->from++];

			if (c == '\n') {
				line[n] = '\0';
				return true;
			}
			if (n < LINE - 1)
				line[n++] = c;
		}
	}
}

/* The value of a line "key: value" of a status file; false where there is none. */
static bool status_value(const char *file, const char *key, char value[LINE])
{
	struct lines lines = { .fd = vb_proc_open(file, O_RDONLY) };
	size_t n = strlen(key);
	bool found = false;
	char line[LINE];

	if (lines.fd < 0)
		return false;
	while (!found && patch_place_next_line(&lines, line)) {
		found = !strncmp(line, key, n);
		if (found)
			strcpy(value, line + n + strspn(line + n, " \t"));
	}
	vb_sys_close(lines.fd);
	return found;
}

enum vb_site_reason vb_proc_tracer(void)
{
	char value[LINE];

	if (!status_value("status", "TracerPid:", value))
		return VB_SITE_REFUSED;
	return value[0] == '0' ? VB_SITE_NONE : VB_SITE_TRACED;
}

static const char *patch_place_number(const char *at, unsigned int base, uint64_t *value)
{
	for (*value = 0;; at++) {
		unsigned int digit = *at >= '0' && *at <= '9'   ? (unsigned int)(*at - '0')
				     : *at >= 'a' && *at <= 'f' ? (unsigned int)(*at - 'a') + 10
								: 99;

		if (digit >= base)
			return at;
		*value = *value * base + digit;
	}
}

/* One that has ended meanwhile blocks nothing. */
static bool blocks_faults(const char *thread)
{
	char file[64], value[LINE];
	uint64_t mask;

	if (strlen(thread) > 20)
		return true;
	strcpy(file, "task/");
	strcat(file, thread);
	strcat(file, "/status");
	if (!status_value(file, "SigBlk:", value))
		return false;
	patch_place_number(value, 16, &mask);
	return mask >> (SIGSEGV - 1) & 1;
}

/* As the kernel writes it. */
struct entry {
	uint64_t ino, off;
	uint16_t length;
	uint8_t type;
	char name[];
};

bool vb_proc_blocks_faults(void)
{
	_Alignas(struct entry) char buf[1024];
	int fd = vb_sys_open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool blocked = fd < 0;
	long got = 0;

	while (!blocked && (got = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0)
		for (long at = 0; !blocked && at < got;) {
			const struct entry *entry = (const struct entry *)(buf + at);

			blocked = entry->name[0] != '.' && blocks_faults(entry->name);
			at += entry->length;
		}
	if (fd >= 0)
		vb_sys_close(fd);
	return blocked || got < 0;
}

/* --- mappings --------------------------------------------------------------------------------- */

struct mapping {
	uintptr_t start, end;
	const char *rights; /* rwxp */
	uint64_t inode;
	const char *path; /* may be empty */
};

static const char *skip_word(const char *at)
{
	at += strcspn(at, " ");
	return at + strspn(at, " ");
}

/* 7f00-7f10 r-xp 0000 08:01 1234   /path */
static bool patch_place_parse(const char *line, struct mapping *map)
{
	const char *at = patch_place_number(line, 16, &map->start);

	if (*at != '-')
		return false;
	at = patch_place_number(at + 1, 16, &map->end);
	if (*at != ' ' || strlen(at) < 6)
		return false;
	map->rights = ++at;
	at = skip_word(skip_word(skip_word(at)));
	map->path = skip_word(patch_place_number(at, 10, &map->inode));
	return map->start < map->end;
}

static bool begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

/*
 * Text of a file, private and not writable. What a program generates may lie in a file, too: one
 * that has no name any more, or never had one.
 */
static bool is_text(const struct mapping *map)
{
	size_t n = strlen(map->path);

	return begins(map->rights, "r-xp") && map->inode && map->path[0] == '/' &&
	       !begins(map->path, "/memfd:") && !begins(map->path, "/dev/") &&
	       !begins(map->path, "/SYSV") &&
	       !(n > 10 && !strcmp(map->path + n - 10, " (deleted)"));
}

/* A mapping of trampolines. */
static bool patch_place_is_ours(const struct mapping *map)
{
	return begins(map->path, "/memfd:" VB_TRAMP_FILE) && vb_tramp_next(map->start, map->end);
}

bool vb_place_is_executable(const uintptr_t *at, unsigned int count)
{
	struct lines lines = { .fd = vb_proc_open("maps", O_RDONLY) };
	bool found = false;
	struct mapping map;
	char line[LINE];

	if (lines.fd < 0)
		return true;
	while (!found && patch_place_next_line(&lines, line)) {
		if (!patch_place_parse(line, &map) || map.rights[2] != 'x' ||
		    patch_place_is_ours(&map))
			continue;
		for (unsigned int i = 0; i < count; i++)
			found |= at[i] >= map.start && at[i] < map.end;
	}
	vb_sys_close(lines.fd);
	return found;
}

/* --- what is known from the start ----------------------------------------------------------------------------------- */

static struct {
	uintptr_t start, end;
} exempt[3];

struct object {
	uintptr_t inside, start, end;
};

static int find_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct object *object = arg;
	uintptr_t start = UINTPTR_MAX, end = 0;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type != PT_LOAD)
			continue;
		start = at < start ? at : start;
		end = at + segment->p_memsz > end ? at + segment->p_memsz : end;
	}
	if (object->inside < start || object->inside >= end)
		return 0;
	object->start = start;
	object->end = end;
	return 1;
}

static uintptr_t stack_end; /* of the first thread; 0: not known */

static void find_stack(void)
{
	struct lines lines = { .fd = vb_proc_open("maps", O_RDONLY) };
	struct mapping map;
	char line[LINE];

	while (lines.fd >= 0 && patch_place_next_line(&lines, line))
		if (patch_place_parse(line, &map) && !strcmp(map.path, "[stack]"))
			stack_end = map.end;
	if (lines.fd >= 0)
		vb_sys_close(lines.fd);
}

void vb_place_setup(void)
{
	const uintptr_t inside[] = { (uintptr_t)vb_libc_sigaction, (uintptr_t)getauxval(AT_BASE),
				     (uintptr_t)vb_patch_thunk };

	for (unsigned int i = 0; i < sizeof(exempt) / sizeof(exempt[0]); i++) {
		struct object object = { .inside = inside[i] };

		if (!inside[i] || !dl_iterate_phdr(find_object, &object))
			continue;
		exempt[i].start = object.start;
		exempt[i].end = object.end;
	}
	find_stack();
}

bool vb_place_is_exempt(uintptr_t rip)
{
	for (size_t i = 0; i < sizeof(exempt) / sizeof(exempt[0]); i++)
		if (rip >= exempt[i].start && rip < exempt[i].end)
			return true;
	return false;
}

/* --- room ------------------------------------------------------------------------------------- */

struct search {
	uintptr_t site;
	size_t size;
	const struct vb_jump_window *windows;
	unsigned int count;
	struct vb_place *place;
	uintptr_t distance; /* of the best one so far; UINTPTR_MAX: none */
	uintptr_t stack;    /* the lowest address that the first stack may grow to */
};

/* A stack without a limit grows down to what is mapped below it: see vb_place_find(). */
static uintptr_t lowest_of_stack(bool *unlimited)
{
	struct rlimit limit;
	uintptr_t room = STACK_ROOM;

	*unlimited = false;
	if (!getrlimit(RLIMIT_STACK, &limit) && limit.rlim_cur > room) {
		*unlimited = limit.rlim_cur >= stack_end;
		room = *unlimited ? room : limit.rlim_cur;
	}
	return stack_end > room ? stack_end - room : 0;
}

/* What is free from `from` to `to`: the nearest place for the code that a window allows. */
static void try_gap(struct search *s, uintptr_t from, uintptr_t to, bool shared)
{
	if (from < LOWEST)
		from = LOWEST;
	if (to > HIGHEST)
		to = HIGHEST;
	if (from < stack_end && to > s->stack)
		to = s->stack;
	if (to <= from || to - from < s->size)
		return;
	for (unsigned int i = 0; i < s->count; i++) {
		const struct vb_jump_window *w = &s->windows[i];
		uintptr_t low = w->low > from ? w->low : from, distance, at;
		uintptr_t high = w->high - 1 < to - s->size ? w->high - 1 : to - s->size;

		if (w->low >= w->high || low > high)
			continue;
		at = s->site < low ? low : s->site > high ? high : s->site;
		if ((at & ~(uintptr_t)(PAGE - 1)) >= low)
			at &= ~(uintptr_t)(PAGE - 1);
		distance = at > s->site ? at - s->site : s->site - at;
		if (distance < s->distance) {
			s->distance = distance;
			s->place->entry = at;
			s->place->window = i;
			s->place->shared = shared;
		}
	}
}

/* Between the trampolines of a mapping of ours; one may have begun on the page before. */
static void try_page(struct search *s, uintptr_t from, uintptr_t to)
{
	const struct vb_tramp *next;

	while ((next = vb_tramp_next(from, to))) {
		if (next->code_start > from)
			try_gap(s, from, next->code_start, true);
		from = next->code_start + next->code_size;
	}
	try_gap(s, from, to, true);
}

enum vb_site_reason vb_place_find(uintptr_t site, size_t bytes, size_t size,
				  const struct vb_jump_window *windows, unsigned int count,
				  struct vb_place *place)
{
	struct lines lines = { .fd = vb_proc_open("maps", O_RDONLY) };
	struct search search = {
		.site = site,
		.size = size,
		.windows = windows,
		.count = count,
		.place = place,
		.distance = UINTPTR_MAX,
	};
	uintptr_t free_from = 0;
	bool text = false, unlimited;
	char line[LINE];
	struct mapping map;

	if (lines.fd < 0)
		return VB_SITE_REFUSED;
	search.stack = lowest_of_stack(&unlimited);
	while (patch_place_next_line(&lines, line)) {
		if (!patch_place_parse(line, &map))
			continue;
		if (site >= map.start && site < map.end)
			text = is_text(&map) && map.end - site >= bytes;
		if (!unlimited || strcmp(map.path, "[stack]"))
			try_gap(&search, free_from, map.start, false);
		if (patch_place_is_ours(&map))
			try_page(&search, map.start, map.end);
		free_from = map.end + (!strcmp(map.path, "[heap]") ? HEAP_ROOM : 0);
	}
	vb_sys_close(lines.fd);
	if (!text)
		return VB_SITE_TEXT;
	return search.distance == UINTPTR_MAX ? VB_SITE_PLACE : VB_SITE_NONE;
}

#endif
