// SPDX-License-Identifier: MIT
/*
 * Functions that change users, groups and rights, in front of libc's: host/rights.h says why.
 *
 * This file is part of libibverbs.so.1 and of the preload of `verbatim run`, as signal_wrappers.c is.
 */
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/real.h"
#include "host/rights.h"
#include "host/signals.h"

/* No header of libc declares it. */
VB_PUBLIC int capset(cap_user_header_t header, const cap_user_data_t data);

static bool rights_wrappers_follow(enum vb_rights_when when, const struct vb_rights_call *call,
				   int *ret)
{
	vb_rights_hook *hook = vb_signal_rights_hook();

	return hook && !vb_signal_is_borrowed() && hook(when, call, ret);
}

/* --- users and groups ------------------------------------------------------------------------- */

/* The result of the system call, or of libc's function where that has to do it. */
#define CHANGE(libc, ...)                                                             \
	({                                                                            \
		const struct vb_rights_call call = { __VA_ARGS__ };                   \
		int ret;                                                              \
                                                                                      \
		rights_wrappers_follow(VB_RIGHTS_CHANGE, &call, &ret) ? ret : (libc); \
	})

VB_PUBLIC int setuid(uid_t user)
{
	return CHANGE(REAL(setuid)(user), SYS_setuid, { user });
}

VB_PUBLIC int setgid(gid_t group)
{
	return CHANGE(REAL(setgid)(group), SYS_setgid, { group });
}

/* -1 is no user, and libc's own refuses it. */
VB_PUBLIC int seteuid(uid_t user)
{
	if (user == (uid_t)-1)
		return REAL(seteuid)(user);
	return CHANGE(REAL(seteuid)(user), SYS_setresuid, { -1, user, -1 });
}

VB_PUBLIC int setegid(gid_t group)
{
	if (group == (gid_t)-1)
		return REAL(setegid)(group);
	return CHANGE(REAL(setegid)(group), SYS_setresgid, { -1, group, -1 });
}

VB_PUBLIC int setreuid(uid_t real, uid_t effective)
{
	return CHANGE(REAL(setreuid)(real, effective), SYS_setreuid, { real, effective });
}

VB_PUBLIC int setregid(gid_t real, gid_t effective)
{
	return CHANGE(REAL(setregid)(real, effective), SYS_setregid, { real, effective });
}

VB_PUBLIC int setresuid(uid_t real, uid_t effective, uid_t saved)
{
	return CHANGE(REAL(setresuid)(real, effective, saved), SYS_setresuid,
		      { real, effective, saved });
}

VB_PUBLIC int setresgid(gid_t real, gid_t effective, gid_t saved)
{
	return CHANGE(REAL(setresgid)(real, effective, saved), SYS_setresgid,
		      { real, effective, saved });
}

VB_PUBLIC int setgroups(size_t count, const gid_t *groups)
{
	return CHANGE(REAL(setgroups)(count, groups), SYS_setgroups, { (long)count, (long)groups });
}

/* libc's calls its own setgroups(). */
VB_PUBLIC int initgroups(const char *user, gid_t group)
{
	rights_wrappers_follow(VB_RIGHTS_BEFORE, NULL, NULL);
	return REAL(initgroups)(user, group);
}

/* --- rights of a thread ----------------------------------------------------------------------- */

/* What libc's own does is the system call. */
VB_PUBLIC int capset(cap_user_header_t header, const cap_user_data_t data)
{
	const struct vb_rights_call call = { 0 };
	int ret = (int)syscall(SYS_capset, header, data);

	if (!ret)
		rights_wrappers_follow(VB_RIGHTS_AFTER, &call, NULL);
	return ret;
}

static bool changes_rights(int option)
{
	switch (option) {
	case PR_SET_KEEPCAPS:
	case PR_SET_SECUREBITS:
	case PR_SET_NO_NEW_PRIVS:
	case PR_CAPBSET_DROP:
	case PR_CAP_AMBIENT:
		return true;
	default:
		return false;
	}
}

/* Allowed in signal handlers. What libc's own does is the system call. */
VB_PUBLIC int prctl(int option, ...)
{
	struct vb_rights_call call = { SYS_prctl, { option } };
	va_list args;
	int ret;

	va_start(args, option);
	for (int i = 1; i < 5; i++)
		call.arg[i] = va_arg(args, long);
	va_end(args);
	vb_signal_note_prctl(option);
	ret = (int)syscall(SYS_prctl, option, call.arg[1], call.arg[2], call.arg[3], call.arg[4]);
	if (!ret && changes_rights(option))
		rights_wrappers_follow(VB_RIGHTS_AFTER, &call, NULL);
	return ret;
}
