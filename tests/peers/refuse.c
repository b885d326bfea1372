// SPDX-License-Identifier: MIT
/*
 * Run a program in a sandbox that refuses system calls, with EPERM:
 *
 *	refuse NAME[,NAME...] PROGRAM [ARGUMENT...]
 *
 * exec is mprotect() with PROT_EXEC: the loader maps text with mmap(), so programs start.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	const char *name;
	unsigned int number;
} calls[] = {
	{ "process_vm_readv", SYS_process_vm_readv },
	{ "memfd_create", SYS_memfd_create },
	{ "membarrier", SYS_membarrier },
	{ "unshare", SYS_unshare },
	{ "ptrace", SYS_ptrace },
	{ "perf_event_open", SYS_perf_event_open },
};

enum { NUM_CALLS = sizeof(calls) / sizeof(calls[0]), MOST = 8 + 2 * NUM_CALLS };

static struct sock_filter filter[MOST];
static unsigned short count;

static void add(struct sock_filter insn)
{
	filter[count++] = insn;
}

static void refuse_exec(void)
{
	add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3));
	add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					 offsetof(struct seccomp_data, args[2])));
	add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1));
	add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
	add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					 offsetof(struct seccomp_data, nr)));
}

int main(int argc, char **argv)
{
	struct sock_fprog program = { 0, filter };

	if (argc < 3)
		return 2;
	add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					 offsetof(struct seccomp_data, nr)));
	for (char *name = strtok(argv[1], ","); name; name = strtok(NULL, ",")) {
		if (!strcmp(name, "exec"))
			refuse_exec();
		for (unsigned int i = 0; i < NUM_CALLS; i++) {
			if (strcmp(name, calls[i].name))
				continue;
			add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number,
							 0, 1));
			add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
							 SECCOMP_RET_ERRNO | EPERM));
		}
	}
	add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	program.len = count;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		printf("no seccomp: %s\n", strerror(errno));
		return 77;
	}
	execv(argv[2], argv + 2);
	printf("%s: %s\n", argv[2], strerror(errno));
	return 2;
}
