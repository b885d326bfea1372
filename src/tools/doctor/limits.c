// SPDX-License-Identifier: MIT
/*
 * How much there is: shared memory, address space, files. Little of it is no failure here: tree.c
 * opens the card, and so knows whether it is enough for one process.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "meet/registry_dir.h"
#include "tools/doctor/doctor.h"

#define MIB ((uint64_t)1 << 20)

enum {
	/* README and the documents promise 64 processes in the 64 MiB that containers give */
	SHM_MANY = 64,
	INODES = 128, /* of 64 processes: a segment each, and rings */
	FILES = 256,
};

/* What one device process reserves: the 32 bits that translated code can name, and its guards. */
#define DEVICE_SPAN (4096 * MIB + 16 * MIB)

static void check_shm(void)
{
	const char *dir = vb_dir_root_path();
	struct statvfs st;
	uint64_t room;

	if (statvfs(dir, &st)) {
		doctor_say(FAILS, "shared memory",
			   "Mount a tmpfs on /dev/shm, or set VERBATIM_SHM_DIR.",
			   "%s: %s: no adapter can be opened", dir, strerror(errno));
		return;
	}
	room = (uint64_t)st.f_bavail * st.f_frsize;
	if (access(dir, R_OK | W_OK | X_OK))
		doctor_say(FAILS, "shared memory",
			   "chmod 1777 it, or set VERBATIM_SHM_DIR to a directory of yours.",
			   "%s: %s: no adapter can be opened", dir, strerror(errno));
	else if (room < SHM_MANY * MIB)
		doctor_say(
			FALLS_BACK, "shared memory",
			"Mount it larger; in a container: --shm-size=256m",
			"%s has %" PRIu64
			" KiB left: a process with peers needs about a MiB, one with many regions more",
			dir, room >> 10);
	else
		doctor_say(WORKS, "shared memory", NULL, "%s has %" PRIu64 " MiB left", dir,
			   room / MIB);
	/* File systems without a table of inodes say 0 of both. */
	if (st.f_files && st.f_favail < INODES)
		doctor_say(FALLS_BACK, "inodes",
			   "Remove files there, or mount it with more (nr_inodes=).",
			   "%s has room for %" PRIu64 " files more; a process needs two", dir,
			   (uint64_t)st.f_favail);
	else
		doctor_say(WORKS, "inodes", NULL, "%s has room for files", dir);
}

static rlim_t limit_of(__rlimit_resource_t resource)
{
	struct rlimit limit;

	return getrlimit(resource, &limit) ? RLIM_INFINITY : limit.rlim_cur;
}

static void check_address_space(void)
{
	rlim_t limit = limit_of(RLIMIT_AS);

	if (limit == RLIM_INFINITY)
		doctor_say(WORKS, "address space", NULL, "not limited");
	else if (limit >= 2 * DEVICE_SPAN)
		doctor_say(WORKS, "address space", NULL,
			   "%" PRIu64 " MiB: room for %" PRIu64 " device processes in a program",
			   (uint64_t)limit / MIB, (uint64_t)limit / DEVICE_SPAN - 1);
	else
		doctor_say(
			FALLS_BACK, "address space", "ulimit -v unlimited",
			"ulimit -v is %" PRIu64
			" MiB: a device process reserves 4 GiB of addresses (not memory); without, it is interpreted and has as much as fits",
			(uint64_t)limit / MIB);
}

static void limits_check_files(void)
{
	rlim_t files = limit_of(RLIMIT_NOFILE), size = limit_of(RLIMIT_FSIZE);

	if (files == RLIM_INFINITY || files >= FILES)
		doctor_say(WORKS, "open files", NULL, "enough descriptors");
	else
		doctor_say(FALLS_BACK, "open files", "ulimit -n 1024",
			   "ulimit -n is %" PRIu64
			   ": a context, a completion channel and a peer take descriptors",
			   (uint64_t)files);
	if (size == RLIM_INFINITY || size >= SHM_MANY * MIB)
		doctor_say(WORKS, "file size", NULL, "shared memory can grow");
	else
		doctor_say(
			FALLS_BACK, "file size", "ulimit -f unlimited",
			"ulimit -f is %" PRIu64
			" KiB: shared memory consists of files, and programs with many regions or peers need more",
			(uint64_t)size >> 10);
}

/* A number of /proc/meminfo; 0 where it is not there. */
static unsigned long read_meminfo(const char *key)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long value = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, key, strlen(key)))
			value = strtoul(line + strlen(key), NULL, 10);
	if (file)
		fclose(file);
	return value;
}

/* No loss where there are none: programs that do not ask whether they got some run, too. */
static void check_huge(void)
{
	unsigned long pages = read_meminfo("HugePages_Free:"), size = read_meminfo("Hugepagesize:");

	if (!pages)
		doctor_say(
			WORKS, "huge pages", NULL,
			"none are free: under verbatim run programs with a card get ordinary pages");
	else
		doctor_say(WORKS, "huge pages", NULL, "%lu of %lu KiB are free", pages, size);
}

void doctor_check_limits(void)
{
	doctor_group("Limits");
	check_shm();
	check_address_space();
	limits_check_files();
	check_huge();
}
