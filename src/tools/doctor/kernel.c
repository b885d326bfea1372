// SPDX-License-Identifier: MIT
/* What the kernel, or the sandbox around us, lets an ordinary user do. */
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/env.h"
#include "tools/doctor/doctor.h"

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return 1;
}

/* '0' to '3' of Yama, '-' where the kernel has none. */
static char yama_scope(void)
{
	char scope = '-';
	int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && read(fd, &scope, 1) != 1)
		scope = '-';
	if (fd >= 0)
		close(fd);
	return scope;
}

/*
 * Two processes of which neither is the other's parent, as two programs are. The one whose memory is
 * touched allows it in the way that fabric/tracer.c does.
 */
static int try_direct(void *arg)
{
	static volatile uint64_t word = 1;
	uint64_t mine = 0;
	struct iovec local = { &mine, sizeof(mine) };
	struct iovec remote = { (void *)(uintptr_t)&word, sizeof(word) };
	int ready[2], ret = 0;
	pid_t target, sibling;
	char byte;

	if (pipe(ready))
		return failed("pipe");
	target = fork();
	if (!target) {
		/* Whoever ends us after a minute ends it, too. */
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		close(ready[0]);
		word = 2;
		if (yama_scope() == '1')
			prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
		if (write(ready[1], "", 1) == 1)
			pause();
		_exit(0);
	}
	if (target < 0)
		return failed("fork");
	sibling = fork();
	if (sibling < 0) {
		ret = failed("fork");
		kill(target, SIGKILL);
		waitpid(target, NULL, 0);
		return ret;
	}
	if (!sibling) {
		close(ready[1]);
		if (read(ready[0], &byte, 1) != 1)
			_exit(1);
		if (process_vm_readv(target, &local, 1, &remote, 1, 0) != sizeof(mine))
			_exit(failed("process_vm_readv"));
		mine++;
		if (process_vm_writev(target, &local, 1, &remote, 1, 0) != sizeof(mine))
			_exit(failed("process_vm_writev"));
		_exit(mine == 3 ? 0 : 1);
	}
	close(ready[0]);
	close(ready[1]);
	for (int status, left = 2; left; left--) {
		pid_t ended = wait(&status);

		if (ended != target && (!WIFEXITED(status) || WEXITSTATUS(status)))
			ret = 1;
		if (ended != target)
			kill(target, SIGKILL);
	}
	return ret;
}

static void kernel_check_direct(void)
{
	static const char packets[] =
		"processes cannot touch each other's memory: large messages and one-sided work between them go in packets, which is slower";
	const char *direct = vb_getenv("VERBATIM_DIRECT");
	char why[256], scope = yama_scope();
	int ret = doctor_try(try_direct, NULL, why, sizeof(why));

	if (direct && !strcmp(direct, "off"))
		doctor_say(FALLS_BACK, "direct copies", "Unset VERBATIM_DIRECT.",
			   "VERBATIM_DIRECT=off: %s", packets);
	else if (!ret)
		doctor_say(WORKS, "direct copies", NULL,
			   "your processes can copy into each other's memory%s",
			   scope == '1' ? " (Yama is on; the card allows its peers)" : "");
	else if (scope == '2' || scope == '3')
		doctor_say(FALLS_BACK, "direct copies",
			   "As root: sysctl kernel.yama.ptrace_scope=1",
			   "kernel.yama.ptrace_scope is %c: %s", scope, packets);
	else
		doctor_say(
			FALLS_BACK, "direct copies",
			"In a container: --security-opt seccomp=unconfined, or a profile with process_vm_readv and process_vm_writev.",
			"%s: %s", why, packets);
}

static int try_memfd(void *arg)
{
	int fd = memfd_create("verbatim-doctor", MFD_CLOEXEC);

	if (fd < 0)
		return failed("memfd_create");
	if (ftruncate(fd, 4096))
		return failed("ftruncate");
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED
		       ? failed("mmap")
		       : 0;
}

static void check_memfd(void)
{
	char why[256];

	if (!doctor_try(try_memfd, NULL, why, sizeof(why)))
		doctor_say(WORKS, "memory files", NULL, "memfd_create works");
	else
		doctor_say(FAILS, "memory files", "A seccomp profile with memfd_create.",
			   "%s: hbl devices (Gaudi) cannot be opened", why);
}

static int try_membarrier(void *arg)
{
	static const struct {
		int command;
		const char *name;
	} commands[] = {
		{ MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, "global barriers" },
		{ MEMBARRIER_CMD_GLOBAL_EXPEDITED, "global barriers" },
		{ MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, "private barriers" },
		{ MEMBARRIER_CMD_PRIVATE_EXPEDITED, "private barriers" },
		{ MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, "barriers for code" },
	};

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (syscall(SYS_membarrier, commands[i].command, 0, 0)) {
			fprintf(stderr, "membarrier (%s): %s\n", commands[i].name, strerror(errno));
			return 1;
		}
	}
	return 0;
}

static void check_membarrier(void)
{
	char why[256];

	if (!doctor_try(try_membarrier, NULL, why, sizeof(why)))
		doctor_say(WORKS, "membarrier", NULL, "barriers cost only the side that sleeps");
	else
		doctor_say(FALLS_BACK, "membarrier",
			   "Linux 4.16 or later, and a seccomp profile with membarrier.",
			   "%s: every message pays for a fence, and doorbells by store for a trap",
			   why);
}

static int try_namespaces(void *arg)
{
	int others = *(int *)arg;

	if (geteuid() && unshare(CLONE_NEWUSER))
		return failed("user namespaces");
	return unshare(others)
		       ? failed(others == CLONE_NEWNS ? "mount namespaces" : "network namespaces")
		       : 0;
}

static void check_namespaces(void)
{
	int mounts = CLONE_NEWNS, network = CLONE_NEWNET;
	const char *help =
		"As root: sysctl user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1, and with AppArmor sysctl kernel.apparmor_restrict_unprivileged_userns=0.";
	char why[256];

	if (!doctor_try(try_namespaces, &mounts, why, sizeof(why)))
		doctor_say(WORKS, "namespaces", NULL, "verbatim sdk can show the vendor's paths");
	else if (!access("/opt/mellanox/doca/tools/dpacc", X_OK))
		doctor_say(WORKS, "namespaces", NULL,
			   "refused, but the vendor's paths are installed");
	else
		doctor_say(
			FALLS_BACK, "namespaces",
			"Let root make the links in /opt/mellanox once: make install-vendor-paths",
			"%s: verbatim sdk does not work", why);
	if (!doctor_try(try_namespaces, &network, why, sizeof(why)))
		doctor_say(WORKS, "own networks", NULL, "two network namespaces can be two hosts");
	else
		doctor_say(FALLS_BACK, "own networks", help,
			   "%s: no several hosts on one machine, for tests", why);
}

static int try_tun(void *arg)
{
	return open("/dev/net/tun", O_RDWR | O_CLOEXEC) < 0 ? failed("/dev/net/tun") : 0;
}

static void check_tun(void)
{
	char why[256];

	if (!doctor_try(try_tun, NULL, why, sizeof(why)))
		doctor_say(WORKS, "TAP", NULL,
			   "a port can end in a TAP interface that root made for you");
	else
		doctor_say(FALLS_BACK, "TAP",
			   "As root: modprobe tun; in a container: --device /dev/net/tun",
			   "%s: no port can end in a TAP interface; all other cables work", why);
}

static int try_ptrace(void *arg)
{
	pid_t child = fork();
	int status;

	if (!child) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(failed("ptrace"));
		raise(SIGSTOP);
		_exit(0);
	}
	if (child < 0)
		return failed("fork");
	if (waitpid(child, &status, 0) != child)
		return failed("waitpid");
	if (!WIFSTOPPED(status))
		return 1;
	ptrace(PTRACE_KILL, child, NULL, NULL);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return 0;
}

static int try_perf(void *arg)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE,
					.size = sizeof(attr),
					.config = PERF_COUNT_SW_TASK_CLOCK,
					.exclude_kernel = 1,
					.disabled = 1 };

	return syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0) < 0 ? failed("perf_event_open")
								     : 0;
}

static void check_observers(void)
{
	char why[256];

	if (!doctor_try(try_ptrace, NULL, why, sizeof(why)))
		doctor_say(WORKS, "ptrace", NULL, "debuggers can hold the host program");
	else
		doctor_say(FALLS_BACK, "ptrace", "In a container: --cap-add=SYS_PTRACE",
			   "%s: device code can be debugged, the host program beside it cannot",
			   why);
	if (!doctor_try(try_perf, NULL, why, sizeof(why)))
		doctor_say(WORKS, "perf", NULL,
			   "perf(1) can sample, VERBATIM_DPA_PERF_MAP=1 has names");
	else
		doctor_say(FALLS_BACK, "perf", "As root: sysctl kernel.perf_event_paranoid=2",
			   "%s: perf(1) cannot sample; verbatim perf needs no such right", why);
}

void doctor_check_kernel(void)
{
	doctor_group("Kernel");
	kernel_check_direct();
	check_memfd();
	check_membarrier();
	check_namespaces();
	check_tun();
	check_observers();
}
