// SPDX-License-Identifier: MIT
/*
 * picolibc's locks: spin, and let other threads run meanwhile. A lock knows its owner by the
 * thread's context, so the thread that holds it can take it again.
 *
 * Threads share one lock, __libc_recursive_mutex, that guards malloc; it is held for some hundred
 * instructions.
 */
#include <stdlib.h>
#include <sys/lock.h>

#include "../dev/ecall.h"

struct __lock {
	struct vb_rtos_thread *owner; /* NULL: free. Only the owner writes depth. */
	uint32_t depth;
};

struct __lock __lock___libc_recursive_mutex;

static int try_acquire(_LOCK_T lock)
{
	struct vb_rtos_thread *self = this_thread(), *none = NULL;

	if (__atomic_load_n(&lock->owner, __ATOMIC_RELAXED) == self) {
		lock->depth++;
		return 1;
	}
	self->held++; /* before, so that the host never sees a lock held by a thread that claims none */
	if (__atomic_compare_exchange_n(&lock->owner, &none, self, 0, __ATOMIC_ACQUIRE,
					__ATOMIC_RELAXED)) {
		lock->depth = 1;
		return 1;
	}
	self->held--;
	return 0;
}

static void acquire(_LOCK_T lock)
{
	while (!try_acquire(lock))
		do
			ecall1(VB_RTOS_RELAX, 0);
		while (__atomic_load_n(&lock->owner, __ATOMIC_RELAXED));
}

static void release(_LOCK_T lock)
{
	struct vb_rtos_thread *self = lock->owner;

	if (--lock->depth)
		return;
	__atomic_store_n(&lock->owner, NULL, __ATOMIC_RELEASE); /* pairs with try_acquire */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	self->held--;
}

void __retarget_lock_init(_LOCK_T *lock)
{
	*lock = calloc(1, sizeof(**lock));
	if (!*lock)
		abort();
}

void __retarget_lock_init_recursive(_LOCK_T *lock)
{
	__retarget_lock_init(lock);
}

void __retarget_lock_close(_LOCK_T lock)
{
	free(lock);
}

void __retarget_lock_close_recursive(_LOCK_T lock)
{
	free(lock);
}

void __retarget_lock_acquire(_LOCK_T lock)
{
	acquire(lock);
}

void __retarget_lock_acquire_recursive(_LOCK_T lock)
{
	acquire(lock);
}

int __retarget_lock_try_acquire(_LOCK_T lock)
{
	return try_acquire(lock);
}

int __retarget_lock_try_acquire_recursive(_LOCK_T lock)
{
	return try_acquire(lock);
}

void __retarget_lock_release(_LOCK_T lock)
{
	release(lock);
}

void __retarget_lock_release_recursive(_LOCK_T lock)
{
	release(lock);
}
