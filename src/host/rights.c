// SPDX-License-Identifier: MIT
/* Owns what our threads take over of the rights of a program's thread; see rights.h. */
#include "host/rights.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/fault.h"
#include "base/log.h"
#include "host/signals.h"
#include "host/thread.h"

/* By system calls: libc's functions lead here. */
#define PRCTL(option, value) syscall(SYS_prctl, option, (unsigned long)(value), 0ul, 0ul, 0ul)

struct rights {
	long secure; /* SECBIT_ */
	long no_new; /* PR_SET_NO_NEW_PRIVS */
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];
	bool known;
};

struct request {
	struct rights rights;
	const struct vb_rights_call *call; /* NULL: none */
	_Atomic int failed;                /* errno of a thread that could not do it */
};

static struct rights rights_read(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct rights rights = { .secure = PRCTL(PR_GET_SECUREBITS, 0),
				 .no_new = PRCTL(PR_GET_NO_NEW_PRIVS, 0) };

	rights.known = rights.secure >= 0 && !syscall(SYS_capget, &header, rights.caps);
	return rights;
}

/*
 * The flags first: changing them may need a capability that is given up. Where they are refused, the
 * one that needs none counts.
 */
static void rights_take(const struct rights *want)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };

	if (!want->known)
		return;
	if (PRCTL(PR_GET_SECUREBITS, 0) != want->secure && PRCTL(PR_SET_SECUREBITS, want->secure))
		PRCTL(PR_SET_KEEPCAPS, !!(want->secure & SECBIT_KEEP_CAPS));
	if (want->no_new == 1)
		PRCTL(PR_SET_NO_NEW_PRIVS, 1);
	syscall(SYS_capset, &header, want->caps);
}

static long call_make(const struct vb_rights_call *call)
{
	return syscall(call->number, call->arg[0], call->arg[1], call->arg[2], call->arg[3],
		       call->arg[4]);
}

/* In each thread of ours, perhaps in a signal handler. */
static void request_serve(void *arg)
{
	struct request *request = arg;

	rights_take(&request->rights);
	if (request->call && request->call->number && call_make(request->call))
		atomic_store_explicit(&request->failed, errno, memory_order_relaxed);
}

static void request_send(struct request *request)
{
	if (!vb_thread_run_in_all(request_serve, request))
		atomic_store_explicit(&request->failed, EAGAIN, memory_order_relaxed);
	if (request->call && atomic_load_explicit(&request->failed, memory_order_relaxed))
		vb_warn("a thread of the card did not follow the program's change of rights "
			"(system call %ld, errno %d)",
			request->call->number,
			atomic_load_explicit(&request->failed, memory_order_relaxed));
}

/*
 * A filter may refuse, or end the process for, what is done here. Only a program that has said that
 * it would install one is asked whether it has.
 */
static bool is_filtered(void)
{
	return vb_fault_is_closing_in() && PRCTL(PR_GET_SECCOMP, 0) != 0;
}

bool vb_rights_follow(enum vb_rights_when when, const struct vb_rights_call *call, int *ret)
{
	struct request request = { .call = when == VB_RIGHTS_BEFORE ? NULL : call };
	bool alone = vb_thread_program_has_one();
	int err = errno;

	if (!vb_thread_reachable() || is_filtered()) {
		errno = err;
		return false;
	}
	/* Several threads of the program may differ in such rights: whose count is seen later. */
	if (when == VB_RIGHTS_AFTER && !alone)
		return false;
	request.rights = rights_read();
	if (when == VB_RIGHTS_CHANGE && alone) {
		errno = err;
		*ret = (int)call_make(call);
		err = errno;
	}
	if (when == VB_RIGHTS_CHANGE && (!alone || *ret))
		request.call = NULL;
	request_send(&request);
	errno = err;
	return when == VB_RIGHTS_CHANGE && alone;
}
