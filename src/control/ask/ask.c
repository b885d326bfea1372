// SPDX-License-Identifier: MIT
/*
 * Owns the socket at which tools ask this program, its thread, the connections and the threads that serve
 * them.
 *
 *	       accept        request complete          a thread is free
 *	FREE ---------> READING ------------> WAITING ----------------> SERVED
 *	  ^                | refused, silent,                              |
 *	  '----------------'-----------------------------------------------' serve() has returned
 *
 * One lock for all: nothing here is on a data path. It is not held while a peer or a service is waited for.
 * Only the listening thread moves a place out of FREE and READING.
 *
 * A peer can do no more than hold places: the listening thread waits for no peer, a request has one size,
 * and where all places are taken a new peer gets that of the one that has been silent for longest.
 */
#include "control/ask/ask.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/time.h"
#include "host/fault.h"
#include "host/signals.h"
#include "host/thread.h"

enum {
	PLACES = 64,        /* a session of a debugger is one; other tools are done soon */
	QUIET_MS = 2000,    /* without a question: stop listening */
	PATIENCE_TURNS = 5, /* of QUIET_MS, for a peer that says nothing */
	PATIENCE_S = 10,    /* for one that is served, and does not read or write */
	FULL_MS = 50,       /* until a program without descriptors may have one again */
};

struct place {
	enum { FREE, READING, WAITING, SERVED } state;
	struct vb_file file;
	uint64_t number;    /* connections are counted */
	unsigned int quiet; /* turns in which it said nothing */
	size_t got;         /* bytes of the request */
	struct vb_ask_request request;
	struct vb_ask_service *service; /* WAITING, SERVED */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t stopped;
	struct vb_ask_service *_Atomic services; /* the table; it only grows */
	struct vb_file listener;
	bool listens;      /* there is a thread at it */
	bool asked;        /* since that thread last found nothing to do */
	bool exits;        /* call us */
	pid_t pid;         /* whose connections these are; 0: there were none yet */
	unsigned int held; /* vb_ask_hold() */
	uint32_t key;      /* 0: not drawn yet */
	uint64_t connections;
	struct place places[PLACES];
} ask = { .lock = PTHREAD_MUTEX_INITIALIZER,
	  .stopped = PTHREAD_COND_INITIALIZER,
	  .listener = { .fd = -1 } };

/* Pairs with vb_ask_serve(). */
static struct vb_ask_service *table_first(void)
{
	return atomic_load_explicit(&ask.services, memory_order_acquire);
}

/* ---- answers --------------------------------------------------------------------------------- */

static struct vb_ask_answer answer_make(int status, uint32_t count, const char *words)
{
	struct vb_ask_answer answer = { .magic = VB_ASK_MAGIC, .status = status, .count = count };

	snprintf(answer.words, sizeof(answer.words), "%s", words ? words : "");
	return answer;
}

bool vb_ask_write(const struct vb_file *file, const void *from, size_t len)
{
	char *at = (char *)from;

	/* A peer may take its time, and the program have a file of its own under the number by then. */
	while (len)
		if (!vb_file_is_open(file) ||
		    !vb_peer_advance(send(file->fd, at, len, MSG_NOSIGNAL), &at, &len))
			return false;
	return true;
}

bool vb_ask_answer(const struct vb_file *file, int status, uint32_t count, const char *words)
{
	struct vb_ask_answer answer = answer_make(status, count, words);

	return vb_ask_write(file, &answer, sizeof(answer));
}

/* By the listening thread: an answer fits into an empty socket. */
static void answer_at_once(int fd, int status)
{
	struct vb_ask_answer answer = answer_make(status, 0, NULL);

	if (send(fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return; /* the peer has gone */
}

/* ---- places: under lock ---------------------------------------------------------------------- */

static void place_leave(struct place *place)
{
	vb_file_close(&place->file);
	place->state = FREE;
}

/* The one that has been in this state, and of this service (NULL: any), for longest; NULL: none. */
static struct place *place_oldest(int state, const struct vb_ask_service *service)
{
	struct place *oldest = NULL;

	for (struct place *p = ask.places; p < ask.places + PLACES; p++)
		if ((int)p->state == state && (!service || p->service == service) &&
		    (!oldest || p->number < oldest->number))
			oldest = p;
	return oldest;
}

/* ---- threads of services --------------------------------------------------------------------- */

/* A tool that gave up has said so: what it asked for is not done behind its back. */
static bool peer_has_gone(int fd)
{
	struct pollfd peer = { .fd = fd, .events = POLLRDHUP };

	return poll(&peer, 1, 0) > 0;
}

/* This connection is over: the service's next one, or NULL, and then the thread is. */
static struct place *place_next(struct place *place)
{
	struct vb_ask_service *service = place->service;

	pthread_mutex_lock(&ask.lock);
	place_leave(place);
	place = place_oldest(WAITING, service);
	if (place)
		place->state = SERVED;
	else
		service->serving--;
	pthread_mutex_unlock(&ask.lock);
	return place;
}

static void *service_main(void *arg)
{
	struct place *place = arg;
	char name[16];

	snprintf(name, sizeof(name), "verbatim-%s", place->service->name);
	prctl(PR_SET_NAME, name);
	for (; place; place = place_next(place)) {
		if (!vb_file_is_open(&place->file))
			continue;
		vb_peer_patience(place->file.fd, PATIENCE_S);
		if (!peer_has_gone(place->file.fd))
			place->service->serve(&place->file, place->request.words);
	}
	return NULL;
}

/* ---- the listening thread -------------------------------------------------------------------- */

/* Under lock: the service of a request, or NULL and why. */
static struct vb_ask_service *request_judge(const struct vb_ask_request *request, int *why)
{
	struct vb_ask_service *service = table_first();

	*why = -EPROTONOSUPPORT;
	if (request->magic != VB_ASK_MAGIC ||
	    !memchr(request->service, 0, sizeof(request->service)))
		return NULL;
	while (service && strcmp(service->name, request->service))
		service = service->next;
	if (!service || memchr(request->words, 0, sizeof(request->words)))
		return service;
	*why = -EINVAL;
	return NULL;
}

/* Its request is complete. */
static void place_begin(struct place *place)
{
	int why = 0;

	pthread_mutex_lock(&ask.lock);
	place->service = request_judge(&place->request, &why);
	if (place->service && place->service->serving >= place->service->at_once) {
		place->state = WAITING;
	} else if (place->service) {
		place->state = SERVED;
		why = vb_thread_start(NULL, &vb_thread_detached, service_main, place);
		place->service->serving += !why;
	}
	if (!place->service || (place->state == SERVED && why)) {
		answer_at_once(place->file.fd, why);
		place_leave(place);
	}
	pthread_mutex_unlock(&ask.lock);
}

static void place_drop(struct place *place)
{
	pthread_mutex_lock(&ask.lock);
	place_leave(place);
	pthread_mutex_unlock(&ask.lock);
}

static void place_read(struct place *place)
{
	ssize_t n = -1;

	errno = EBADF;
	if (vb_file_is_open(&place->file))
		n = recv(place->file.fd, (char *)&place->request + place->got,
			 sizeof(place->request) - place->got, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	place->got += n > 0 ? (size_t)n : 0;
	place->quiet = 0;
	if (n <= 0)
		place_drop(place);
	else if (place->got == sizeof(place->request))
		place_begin(place);
}

/* Under lock: of one that has just connected; NULL after its end. */
static struct place *place_take(int fd)
{
	struct place *place = place_oldest(FREE, NULL);

	if (!place) {
		place = place_oldest(READING, NULL);
		if (place)
			place_leave(place);
	}
	if (!place) {
		answer_at_once(fd, -EUSERS);
		close(fd);
	} else if (vb_file_keep(&place->file, fd)) {
		place = NULL;
	} else {
		place->state = READING;
		place->number = ++ask.connections;
		place->quiet = 0;
		place->got = 0;
	}
	return place;
}

/* 0, or -errno: of a program without descriptors the peer stays, and poll() would not wait. */
static int peer_accept(const struct vb_file *file)
{
	struct place *place = NULL;
	int fd, ret = 0;

	/* A fork waits for the lock: its child closes the connections that have a place, and there are no others. */
	pthread_mutex_lock(&ask.lock);
	fd = vb_file_above_stdio(accept4(file->fd, NULL, NULL, SOCK_CLOEXEC));
	if (fd < 0) {
		ret = -errno;
	} else if (!vb_peer_is_own(fd, NULL)) {
		answer_at_once(fd, -EPERM);
		close(fd);
	} else {
		place = place_take(fd);
	}
	pthread_mutex_unlock(&ask.lock);
	if (place)
		place_read(place);
	return ret;
}

/* Nothing came for QUIET_MS, or could be taken: false where the thread has nothing left to do. */
static bool listening_goes_on(const struct vb_file *file)
{
	bool on;

	pthread_mutex_lock(&ask.lock);
	on = ask.held || ask.asked;
	ask.asked = false;
	for (struct place *p = ask.places; p < ask.places + PLACES; p++) {
		if (p->state == READING && ++p->quiet >= PATIENCE_TURNS)
			place_leave(p);
		on |= p->state == READING;
	}
	on &= vb_file_is_open(file);
	if (!on) {
		for (struct place *p = ask.places; p < ask.places + PLACES; p++)
			if (p->state == READING)
				place_leave(p);
		vb_file_close(&ask.listener);
		ask.listens = false;
		pthread_cond_broadcast(&ask.stopped);
	}
	pthread_mutex_unlock(&ask.lock);
	return on;
}

static int listening_wait(const struct vb_file *file, struct pollfd fds[1 + PLACES])
{
	fds[0] = (struct pollfd){ .fd = file->fd, .events = POLLIN };
	pthread_mutex_lock(&ask.lock);
	for (unsigned int i = 0; i < PLACES; i++) {
		const struct place *p = &ask.places[i];

		fds[1 + i] = (struct pollfd){ .fd = p->state == READING ? p->file.fd : -1,
					      .events = POLLIN };
	}
	pthread_mutex_unlock(&ask.lock);
	return vb_poll_until(VB_MACHINE_TIME, fds, 1 + PLACES,
			     vb_machine_ns() + QUIET_MS * 1000000ull, NULL);
}

static void *listening_main(void *arg)
{
	struct pollfd fds[1 + PLACES];
	struct vb_file file;
	int full_ms = 0, ret;

	prctl(PR_SET_NAME, "verbatim-ask");
	pthread_mutex_lock(&ask.lock);
	file = ask.listener;
	pthread_mutex_unlock(&ask.lock);
	for (;;) {
		ret = listening_wait(&file, fds);
		if (ret < 0 && errno == EINTR)
			continue;
		if (ret <= 0 || full_ms >= QUIET_MS || !vb_file_is_open(&file)) {
			if (!listening_goes_on(&file))
				return NULL;
			full_ms = 0;
			continue;
		}
		for (unsigned int i = 0; i < PLACES; i++)
			if (fds[1 + i].revents)
				place_read(&ask.places[i]);
		ret = fds[0].revents ? peer_accept(&file) : 0;
		full_ms = ret && ret != -EAGAIN ? full_ms + FULL_MS : 0;
		if (full_ms)
			vb_pause_ns(FULL_MS * 1000000ull);
	}
}

/* ---- fork and exit --------------------------------------------------------------------------- */

static void ask_prepare(void)
{
	pthread_mutex_lock(&ask.lock);
}

static void ask_parent(void)
{
	pthread_mutex_unlock(&ask.lock);
}

/* Copies of the sockets would keep tools waiting for an end that the parent's close gives. */
static void ask_forked(void)
{
	pthread_mutex_init(&ask.lock, NULL);
	pthread_cond_init(&ask.stopped, NULL);
	vb_file_close(&ask.listener);
	for (struct place *p = ask.places; p < ask.places + PLACES; p++)
		if (p->state != FREE)
			place_leave(p);
	for (struct vb_ask_service *s = table_first(); s; s = s->next)
		s->serving = 0;
	ask.listens = ask.asked = false;
	ask.held = 0;
	ask.key = 0;
	ask.pid = getpid();
}

VB_STAGE(ASK, .prepare = ask_prepare, .parent = ask_parent, .child = ask_forked);

/*
 * No lock, which the thread that exits in a signal handler may have. Children of _Fork() and clone() exit, too, and
 * have the connections of their parent.
 */
static void ask_at_exit(int status, void *arg)
{
	if (ask.pid != getpid())
		return;
	for (struct vb_ask_service *s = table_first(); s; s = s->next)
		if (s->leave)
			s->leave(status);
}

/* ---- the table, start and stop --------------------------------------------------------------- */

void vb_ask_serve(struct vb_ask_service *service)
{
	if (atomic_exchange_explicit(&service->listed, true, memory_order_relaxed))
		return;
	service->next = table_first();
	while (!atomic_compare_exchange_weak_explicit(&ask.services, &service->next, service,
						      memory_order_release, memory_order_relaxed))
		;
}

static int listener_open(void)
{
	struct sockaddr_un to;
	char name[96];
	socklen_t len;
	int fd, err;

	fd = vb_file_above_stdio(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0)
		return -errno;
	snprintf(name, sizeof(name), "verbatim/%u/%llu/%d/%08" PRIx32, (unsigned int)geteuid(),
		 vb_peer_namespace(), (int)getpid(), ask.key);
	len = vb_peer_address(&to, name);
	if (!bind(fd, (struct sockaddr *)&to, len) && !listen(fd, PLACES))
		return vb_file_keep(&ask.listener, fd);
	err = -errno;
	close(fd);
	return err;
}

/* Under lock. */
static int listening_start(void)
{
	int err;

	if (ask.listens)
		return 0;
	/* After a filter of system calls, to open a socket may end the program. */
	if (vb_fault_is_closing_in())
		return -EPERM;
	while (!ask.key)
		if (getrandom(&ask.key, sizeof(ask.key), 0) != sizeof(ask.key))
			return -EAGAIN;
	err = listener_open();
	if (err)
		return err;
	err = vb_thread_start(NULL, &vb_thread_detached, listening_main, NULL);
	ask.listens = !err;
	ask.pid = getpid();
	if (err)
		vb_file_close(&ask.listener);
	return err;
}

int vb_ask_hold(uint32_t *key)
{
	sigset_t before;
	int err;

	/* A handler of the program may exit or fork: both would wait for this lock. */
	vb_signal_block(&before);
	pthread_mutex_lock(&ask.lock);
	/* The program has closed our socket: its thread will see that, and end. */
	while (ask.listens && !vb_file_is_open(&ask.listener))
		pthread_cond_wait(&ask.stopped, &ask.lock);
	/* Handlers of exit run in the reverse order: this one before those that were there before. */
	if (!ask.exits)
		on_exit(ask_at_exit, NULL);
	ask.exits = true;
	err = listening_start();
	if (!err) {
		ask.held++;
		*key = ask.key;
	}
	pthread_mutex_unlock(&ask.lock);
	vb_signal_unblock(&before);
	return err;
}

void vb_ask_release(void)
{
	sigset_t before;

	vb_signal_block(&before);
	pthread_mutex_lock(&ask.lock);
	ask.held--;
	pthread_mutex_unlock(&ask.lock);
	vb_signal_unblock(&before);
}

void vb_ask_asked(void)
{
	int err;

	if (vb_fault_is_closing_in() || pthread_mutex_trylock(&ask.lock))
		return;
	ask.asked = true;
	err = listening_start();
	pthread_mutex_unlock(&ask.lock);
	if (err)
		vb_warn("tools cannot ask this program: %s", strerror(-err));
}
