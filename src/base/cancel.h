/* SPDX-License-Identifier: MIT */
/*
 * Threads that the program cancels (pthread_cancel) while they are in a call of ours.
 *
 * No function of the verbs is a cancellation point, but many functions of libc inside of them are:
 * open, read, write, close. A thread that ended there would take its locks and half-made objects
 * with it. VB_NO_CANCEL at the head of a block puts the cancellation off until its end. It costs
 * nothing beside a system call, and stands where one is made.
 *
 * A thread that may be cancelled anywhere (PTHREAD_CANCEL_ASYNCHRONOUS) must call nothing of ours, but
 * it may store to a doorbell: there VB_DEFER_CANCEL makes it one that may be cancelled at those
 * functions only. For all other threads that is a look at their state. Not by the state above: libc
 * 2.36 forgets the result of a thread that ends when it is given back.
 */
#pragma once

#include <pthread.h>

static inline int vb_cancel_hold(void)
{
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void vb_cancel_release(const int *before)
{
	pthread_setcancelstate(*before, NULL);
}

#define VB_NO_CANCEL                                                                     \
	__attribute__((cleanup(vb_cancel_release), unused)) const int vb_cancel_before = \
		vb_cancel_hold()

static inline int vb_cancel_defer(void)
{
	int before;

	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before);
	return before;
}

static inline void vb_cancel_undefer(const int *before)
{
	pthread_setcanceltype(*before, NULL);
}

#define VB_DEFER_CANCEL                                                                       \
	__attribute__((cleanup(vb_cancel_undefer), unused)) const int vb_cancel_type_before = \
		vb_cancel_defer()
