// SPDX-License-Identifier: MIT
/*
 * Owns the start and the end of threads of ours; see thread.h.
 *
 *	pthread_create()  count + 1     by whoever starts it
 *	thread_main()     count - 1     ours does not count while it runs
 *	run() returns     count + 1
 *	libc              count - 1     the last one: exit(0)
 *
 * The program's last thread may end between the first two lines, or the last two: then ours is the one
 * that brings the count to 0, and ends the process as the program's would have.
 *
 * A thread that runs is in a list, so that all can be made to act at once (vb_thread_run_in_all()): when
 * they are woken, or by a signal that they do not block, whatever they do or wait for. The one that asks holds the list's lock until
 * all have answered, so that none ends meanwhile; whoever starts one holds it until the thread is in the list.
 *
 *	IDLE ---> ASKED ---> ACTS ---> IDLE     a thread that does not come to it is taken from ASKED to IDLE
 */
#include "host/thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/time.h"
#include "host/fault.h"
#include "base/lock.h"
#include "host/rights.h"
#include "base/mask.h"

const struct vb_thread_attr vb_thread_detached = { .detached = true };

enum { IDLE, ASKED, ACTS };

static const uint64_t patience = 2000000000; /* for one that does not answer, ns */
enum { LOOK_NS = 1000000000 };

struct thread {
	void *(*run)(void *arg);
	void *arg;
	_Atomic unsigned int *count; /* of libc; NULL: it has none that we know */
	void (*wake)(void *arg);
	struct thread *next;
	_Atomic pid_t id; /* 0: it has not come so far */
	_Atomic uint32_t state;
};

static struct {
	struct vb_lock lock; /* with signals blocked */
	_Atomic(struct thread *) first;
	/* That of the process whose threads they are: a child has none of them. */
	_Atomic pid_t process;
	void (*act)(void *arg);
	void *arg;
} list;

static _Thread_local struct thread *volatile self __attribute__((tls_model("initial-exec")));

/*
 * libc's count of threads. It is not for programs, but has had its name and type since there is one:
 * libthread_db, and with it every debugger, looks for it.
 */
static _Atomic unsigned int *find_count(void)
{
	static _Atomic(_Atomic unsigned int *) found;
	_Atomic unsigned int *count = atomic_load_explicit(&found, memory_order_relaxed);

	if (!count) {
		count = dlsym(RTLD_DEFAULT, "__nptl_nthreads");
		atomic_store_explicit(&found, count, memory_order_relaxed);
	}
	return count;
}

/* --- the list --------------------------------------------------------------------------------- */

static void list_lock(sigset_t *before)
{
	vb_signal_block(before);
	vb_lock(&list.lock);
}

static void list_unlock(const sigset_t *before)
{
	vb_unlock(&list.lock);
	vb_signal_unblock(before);
}

/* The lock is held. */
static void host_thread_list_add(struct thread *thread)
{
	pid_t process = getpid();

	if (atomic_load_explicit(&list.process, memory_order_relaxed) != process)
		list.first = NULL;
	atomic_store_explicit(&list.process, process, memory_order_relaxed);
	thread->next = list.first;
	list.first = thread;
	vb_fault_on_rights(vb_rights_follow);
}

/* The lock is held. */
static void host_thread_list_remove(const struct thread *thread)
{
	struct thread *at = list.first;

	if (at == thread) {
		list.first = thread->next;
		return;
	}
	while (at && at->next != thread)
		at = at->next;
	if (at)
		at->next = thread->next;
}

bool vb_thread_reachable(void)
{
	return !self && list.first &&
	       atomic_load_explicit(&list.process, memory_order_relaxed) == getpid();
}

bool vb_thread_program_has_one(void)
{
	_Atomic unsigned int *count = find_count();

	return count && atomic_load_explicit(count, memory_order_relaxed) == 1;
}

/* A signal of which the handler knows that it is ours: no other has this value. */
static bool thread_signal(struct thread *thread)
{
	siginfo_t info = { .si_code = SI_QUEUE };

	if (!vb_fault_is_armed())
		return false; /* the handler is another one, which knows nothing of us */
	while (!atomic_load_explicit(&thread->id, memory_order_acquire))
		sched_yield();
	info.si_signo = SIGSEGV;
	info.si_pid = list.process;
	info.si_value.sival_ptr = &list;
	return !syscall(SYS_rt_tgsigqueueinfo, list.process, thread->id, SIGSEGV, &info);
}

static bool thread_ask(struct thread *thread)
{
	atomic_store_explicit(&thread->state, ASKED, memory_order_seq_cst);
	if (!thread->wake)
		return thread_signal(thread);
	thread->wake(thread->arg);
	return true;
}

static bool thread_await(struct thread *thread, uint64_t until)
{
	uint32_t state;

	while ((state = atomic_load_explicit(&thread->state, memory_order_acquire)) != IDLE) {
		uint64_t now = vb_machine_ns();

		if (now >= until && state == ASKED &&
		    atomic_compare_exchange_strong_explicit(&thread->state, &state, IDLE,
							    memory_order_acq_rel,
							    memory_order_acquire))
			return false;
		vb_futex_wait_until(VB_MACHINE_TIME, &thread->state, state, VB_FUTEX_PRIVATE,
				    now + LOOK_NS);
	}
	return true;
}

bool vb_thread_run_in_all(void (*act)(void *arg), void *arg)
{
	uint64_t until = vb_machine_ns() + patience;
	sigset_t before;
	bool all = true;

	list_lock(&before);
	list.act = act;
	list.arg = arg;
	for (struct thread *thread = list.first; thread; thread = thread->next)
		if (!thread_ask(thread)) {
			atomic_store_explicit(&thread->state, IDLE, memory_order_relaxed);
			all = false;
		}
	for (struct thread *thread = list.first; thread; thread = thread->next)
		all &= thread_await(thread, until);
	list_unlock(&before);
	return all;
}

/* Of this thread: do what is asked, unless it is too late for it. */
static void thread_act(struct thread *thread)
{
	uint32_t asked = ASKED;
	int err = errno;

	if (!atomic_compare_exchange_strong_explicit(&thread->state, &asked, ACTS,
						     memory_order_acquire, memory_order_relaxed))
		return;
	list.act(list.arg);
	atomic_store_explicit(&thread->state, IDLE, memory_order_release);
	vb_futex_wake(&thread->state, 1, VB_FUTEX_PRIVATE);
	errno = err;
}

void vb_thread_attend(void)
{
	if (__builtin_expect(atomic_load_explicit(&self->state, memory_order_relaxed) == ASKED, 0))
		thread_act(self);
}

bool vb_thread_serve(const siginfo_t *info)
{
	if (info->si_code != SI_QUEUE || info->si_value.sival_ptr != &list ||
	    info->si_pid != getpid())
		return false;
	if (self)
		thread_act(self);
	return true;
}

/* --- start and end ---------------------------------------------------------------------------- */

/*
 * libc's allocator looks at files of the system when a thread first needs it. Later the program may have
 * installed a filter that lets no file be opened.
 */
static void warm_up(void)
{
	void *volatile block = malloc(1);

	free(block);
}

static void *thread_main(void *arg)
{
	struct thread *thread = arg;
	_Atomic unsigned int *count = thread->count;
	void *result = NULL;
	sigset_t before;

	warm_up();
	self = thread;
	atomic_store_explicit(&thread->id, gettid(), memory_order_release);
	/* Relaxed, as libc: the count orders nothing. */
	if (!count || atomic_fetch_sub_explicit(count, 1, memory_order_relaxed) != 1)
		result = thread->run(thread->arg);
	list_lock(&before);
	host_thread_list_remove(thread);
	self = NULL;
	list_unlock(&before);
	free(thread);
	if (count)
		atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
	return result;
}

static void block_signals(const struct vb_thread_attr *attr, sigset_t *before)
{
	sigset_t set;

	sigfillset(&set);
	sigdelset(&set, SIGSEGV);
	sigdelset(&set, SIGBUS);
	if (attr->computes) {
		sigdelset(&set, SIGFPE);
		sigdelset(&set, SIGILL);
		sigdelset(&set, SIGTRAP);
	}
	pthread_sigmask(SIG_SETMASK, &set, before);
}

/* The thread gets the rights that this one has, and those who change all wait until it is in the list. */
static int thread_create(pthread_t *started, const pthread_attr_t *how, struct thread *thread,
			 const struct vb_thread_attr *attr)
{
	sigset_t listed, before;
	int err;

	list_lock(&listed);
	block_signals(attr, &before);
	host_thread_list_add(thread);
	err = pthread_create(started, how, thread_main, thread);
	if (err)
		host_thread_list_remove(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	list_unlock(&listed);
	return err;
}

int vb_thread_start(pthread_t *thread, const struct vb_thread_attr *attr, void *(*run)(void *arg),
		    void *arg)
{
	static const struct vb_thread_attr usual;
	struct thread *new = malloc(sizeof(*new));
	pthread_attr_t how;
	pthread_t started;
	int err;

	if (!new)
		return -ENOMEM;
	attr = attr ? attr : &usual;
	*new = (struct thread){ run, arg, find_count(), attr->wake };
	err = pthread_attr_init(&how);
	if (err)
		goto free_new;
	if (attr->stack)
		pthread_attr_setstacksize(&how, attr->stack);
	if (attr->detached)
		pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
	err = thread_create(&started, &how, new, attr);
	pthread_attr_destroy(&how);
	if (!err && thread)
		*thread = started;
free_new:
	if (err)
		free(new);
	return -err;
}
