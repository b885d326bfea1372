// SPDX-License-Identifier: MIT
/* Our own tree: whether it is complete, the configuration, and whether the card and the accelerator
 * really run. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/env.h"
#include "card/card.h"
#include "tools/cmd.h"
#include "tools/doctor/doctor.h"

enum { ANSWER = 42 };

static const char reinstall[] = "Install again: make && make install PREFIX=...";

/* libverbatim first: the others name it, and the loader would look for it elsewhere. */
static int try_libraries(void *arg)
{
	static const char *const names[] = {
		"libverbatim.so.1", "libibverbs.so.1", "libmlx4.so.1",
		"libmlx5.so.1",     "libhbl.so.1",     "libflexio.so.1"
	};
	char path[PATH_MAX], relative[64];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(relative, sizeof(relative), "lib/%s", names[i]);
		if (tools_path(path, relative) || access(path, R_OK)) {
			printf("%s: %s\n", path, strerror(errno));
			return 1;
		}
		if (!dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
			printf("%s\n", dlerror());
			return 1;
		}
	}
	return 0;
}

static void doctor_tree_check_files(void)
{
	static const char *const files[] = {
		"lib/libverbatim-preload.so",
		"lib/libverbatim-memory.so",
		"libexec/verbatim/verbatim-dpa-run",
		"libexec/verbatim/verbatim-cable",
		"libexec/verbatim/verbatim-perf-report",
		"bin/dpacc",
		"lib/pkgconfig/libibverbs.pc",
		"lib/pkgconfig/libflexio.pc",
		"include/libflexio/flexio.h",
	};
	char path[PATH_MAX], why[512];

	if (doctor_try(try_libraries, NULL, why, sizeof(why)))
		doctor_say(FAILS, "libraries", reinstall, "%s", why);
	else if (!tools_path(path, "lib"))
		doctor_say(WORKS, "libraries", NULL, "all load from %s", path);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (!tools_path(path, files[i]) && !access(path, R_OK))
			continue;
		doctor_say(FAILS, "installation", reinstall, "%s is missing", path);
		return;
	}
	doctor_say(WORKS, "installation", NULL, "complete");
}

static int try_config(void *arg)
{
	struct vb_adapter *const *list;
	unsigned int count;
	int ret = vb_card_adapters(vb_card_program(), &list, &count);

	if (ret) {
		if (ret != -EINVAL)
			printf("%s\n", strerror(-ret));
		return 1;
	}
	for (unsigned int i = 0; i < count; i++) {
		if (!list[i]->config->down)
			continue;
		printf("%s is DOWN: the configured %s is missing on this machine\n",
		       list[i]->config->name,
		       list[i]->config->num_addresses ? "address" : "interface");
		return 2;
	}
	printf("%u adapters\n", count);
	return 0;
}

static void ignore_event(void *arg, const struct vb_event *event)
{
}

/* An hbl device that another program has is no fault of the machine. */
static int doctor_tree_try_open(void *arg)
{
	struct vb_adapter *const *list;
	struct vb_dev *dev;
	unsigned int count;
	int ret = vb_card_adapters(vb_card_program(), &list, &count);

	for (unsigned int i = 0; !ret && i < count; i++) {
		ret = vb_dev_open(list[i], ignore_event, NULL, &dev);
		if (ret == -EBUSY && list[i]->config->format == VB_FORMAT_HBL)
			ret = 0;
		else if (!ret)
			vb_dev_close(dev);
	}
	/* the log line before says more */
	return ret ? 1 : 0;
}

static void check_card(void)
{
	const char *config = vb_getenv("VERBATIM_CONFIG");
	char why[1024];
	int ret = doctor_try(try_config, NULL, why, sizeof(why));

	if (!ret)
		doctor_say(WORKS, "configuration", NULL, "%s: %s",
			   config && *config ? config : "built in", why);
	else if (ret == 2)
		doctor_say(FALLS_BACK, "configuration",
			   "Bring the interface up, or change the configuration: man verbatim.conf",
			   "%s", why);
	else
		doctor_say(FAILS, "configuration",
			   "man verbatim.conf; VERBATIM_CONFIG names the file.", "%s", why);
	if (ret != 0 && ret != 2)
		return;
	if (!doctor_try(doctor_tree_try_open, NULL, why, sizeof(why)))
		doctor_say(WORKS, "card", NULL, "adapters open");
	else
		doctor_say(FAILS, "card", NULL, "no adapter can be opened: %s",
			   *why ? why : "no reason was given");
}

/* A program that ends with 42: li a0, 42; li a7, 93; ecall. */
static int write_program(int fd)
{
	static const uint32_t code[] = { 0x02a00513, 0x05d00893, 0x00000073 };
	const uint64_t base = 0x10000, at = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr);
	Elf64_Ehdr head = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
					 ELFDATA2LSB, EV_CURRENT },
			    .e_type = ET_EXEC,
			    .e_machine = EM_RISCV,
			    .e_version = EV_CURRENT,
			    .e_entry = base + at,
			    .e_phoff = sizeof(head),
			    .e_ehsize = sizeof(head),
			    .e_phentsize = sizeof(Elf64_Phdr),
			    .e_phnum = 1,
			    .e_shentsize = sizeof(Elf64_Shdr) };
	Elf64_Phdr part = { .p_type = PT_LOAD,
			    .p_flags = PF_R | PF_X,
			    .p_vaddr = base,
			    .p_paddr = base,
			    .p_filesz = at + sizeof(code),
			    .p_memsz = at + sizeof(code),
			    .p_align = 4096 };

	return write(fd, &head, sizeof(head)) == sizeof(head) &&
			       write(fd, &part, sizeof(part)) == sizeof(part) &&
			       write(fd, code, sizeof(code)) == sizeof(code)
		       ? 0
		       : -EIO;
}

/* A file in the folder for temporary ones; the descriptor or -1. */
static int make_program(char path[PATH_MAX])
{
	const char *dir = vb_getenv("TMPDIR");
	int fd;

	if (snprintf(path, PATH_MAX, "%s/verbatim-doctor-XXXXXX", dir && *dir ? dir : "/tmp") >=
	    PATH_MAX)
		return -1;
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0 && write_program(fd)) {
		unlink(path);
		close(fd);
		return -1;
	}
	return fd;
}

/* The program runs on the same engine as device processes of FlexIO. */
static void check_accelerator(void)
{
	char tool[PATH_MAX], file[PATH_MAX], why[512] = "";
	char stats[] = "--stats";
	char *argv[] = { tool, stats, file, NULL };
	int fd = make_program(file), ret;

	if (fd < 0) {
		doctor_say(FALLS_BACK, "accelerator", "Set TMPDIR to a folder that can be written.",
			   "not tried: no temporary file can be written");
		return;
	}
	close(fd);
	ret = tools_path(tool, "libexec/verbatim/verbatim-dpa-run");
	if (!ret)
		ret = doctor_run(argv, why, sizeof(why));
	unlink(file);
	if (ret != ANSWER)
		doctor_say(FAILS, "accelerator", NULL, "device programs do not run: %s", why);
	else if (strstr(why, "translated 0 times"))
		doctor_say(
			FALLS_BACK, "accelerator", "See the checks of processor and limits below.",
			"device programs run, but are interpreted, not translated: many times slower");
	else
		doctor_say(WORKS, "accelerator", NULL, "device programs run, translated");
}

void doctor_check_tree(void)
{
	doctor_group("Verbatim");
	doctor_tree_check_files();
	check_card();
	check_accelerator();
}
