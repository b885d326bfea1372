// SPDX-License-Identifier: MIT
/*
 * Owns the socket on which debuggers reach this program, its thread, and the threads of sessions.
 *
 *	listener thread: accept --> connection thread: hello --> LIST, ELF: answer, end
 *	                                                     `-> ATTACH: session until its end
 *
 * One lock for all: nothing here is on a data path. It is not held while a peer is waited for.
 */
#include "gdb/listen.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/fork.h"
#include "base/time.h"
#include "control/ask/peer.h"
#include "host/thread.h"
#include "gdb/link.h"

/* Connections at a time. A session is one, and a tool that asks is done soon. */
#define CONNECTIONS 64
/* How long a peer may take to say what it wants, and to take the answer. */
#define PATIENCE_S 10
/* How long an exit waits for sessions to say good-bye. */
#define FAREWELL_NS 2000000000u
/* How often a listener without a descriptor looks for one. */
#define FULL_NS 100000000u

struct vb_gdb_offer {
	struct vb_gdb_offer *next;
	struct vb_gdb_offer_attr attr; /* its strings point into entry */
	struct vb_gdb_entry entry;
	char elf_name[160];
	/* A pipe: the session shall end when something is in it. What the program has closed is not used. */
	struct vb_file quit, quit_in;
	atomic_int exit_code;
	bool busy;     /* a connection is attached, or about to be; under lock, as all below */
	bool attached; /* a debugger has been there */
	bool awaited;  /* somebody waits for that */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct vb_gdb_offer *offers;
static struct vb_file listener = { .fd = -1 };
static struct vb_file connections[CONNECTIONS];
static bool taken[CONNECTIONS]; /* of connections */
static uint32_t host_half;
static bool prepared; /* handlers of fork and exit are there */

/* ---- answers ---- */

static bool gdb_listen_answer(int fd, int status, const struct vb_gdb_entry *entries,
			      uint32_t count)
{
	struct vb_gdb_answer a = { VB_GDB_MAGIC, VB_GDB_VERSION, status, count };

	return vb_gdb_write_all(fd, &a, sizeof(a)) &&
	       vb_gdb_write_all(fd, entries, count * sizeof(*entries));
}

static void answer_list(int fd)
{
	struct vb_gdb_entry *entries = NULL;
	uint32_t count = 0;

	pthread_mutex_lock(&lock);
	for (struct vb_gdb_offer *o = offers; o; o = o->next)
		count++;
	entries = calloc(count + 1, sizeof(*entries));
	count = 0;
	for (struct vb_gdb_offer *o = offers; o && entries; o = o->next) {
		entries[count] = o->entry;
		entries[count].attached = o->busy;
		entries[count++].waits = o->awaited && !o->attached;
	}
	pthread_mutex_unlock(&lock);
	gdb_listen_answer(fd, entries ? 0 : -ENOMEM, entries, count);
	free(entries);
}

/* Under lock: the offer of a token, or the only one. 0 or -errno. */
static int gdb_listen_find(uint64_t token, struct vb_gdb_offer **offer)
{
	struct vb_gdb_offer *o = offers;

	if (!token && o && o->next)
		return -ENOTUNIQ;
	while (o && token && o->entry.token != token)
		o = o->next;
	*offer = o;
	return o ? 0 : -ENOENT;
}

/* The file is copied, so that no offer has to wait for a tool that reads slowly. */
static void answer_elf(int fd, uint64_t token)
{
	struct vb_gdb_entry entry = { 0 };
	struct vb_gdb_offer *offer;
	void *elf = NULL;
	int err;

	pthread_mutex_lock(&lock);
	err = gdb_listen_find(token, &offer);
	if (!err) {
		entry = offer->entry;
		elf = malloc(offer->attr.elf_len);
		if (elf)
			memcpy(elf, offer->attr.elf, offer->attr.elf_len);
		else
			err = -ENOMEM;
	}
	pthread_mutex_unlock(&lock);
	if (gdb_listen_answer(fd, err, &entry, err ? 0 : 1) && !err)
		vb_gdb_write_all(fd, elf, entry.elf_len);
	free(elf);
}

/* ---- sessions ---- */

static void kill_program(void *arg)
{
	kill(getpid(), SIGTERM);
}

static void session(const struct vb_file *file, struct vb_gdb_offer *offer,
		    struct vb_dpa_debug *debug)
{
	struct vb_gdb_target target = { .process = offer->attr.process,
					.elf_name = offer->elf_name,
					.elf = offer->attr.elf,
					.elf_len = offer->attr.elf_len,
					.name = offer->attr.thread_name,
					.arg = offer->attr.arg,
					.kill = offer->attr.started ? kill_program : NULL,
					.exit_code = &offer->exit_code };

	vb_peer_patience(file->fd, 0);
	vb_gdb_serve(&target, debug, file, offer->quit.fd);
}

/* Who waits for a debugger goes on when the process is held: not one instruction escapes. */
static void gdb_listen_attach(const struct vb_file *file, uint64_t token)
{
	struct vb_dpa_debug *debug = NULL;
	struct vb_gdb_offer *offer = NULL;
	int err;

	pthread_mutex_lock(&lock);
	err = gdb_listen_find(token, &offer);
	if (!err && offer->busy)
		err = -EBUSY;
	if (!err)
		offer->busy = true;
	pthread_mutex_unlock(&lock);
	if (err) {
		gdb_listen_answer(file->fd, err, NULL, 0);
		return;
	}
	err = vb_dpa_debug_attach(offer->attr.process, &debug);
	if (!err)
		vb_dpa_debug_hold(debug);
	if (gdb_listen_answer(file->fd, err, &offer->entry, err ? 0 : 1) && !err) {
		pthread_mutex_lock(&lock);
		offer->attached = true;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
		session(file, offer, debug);
	}
	if (!err)
		vb_dpa_debug_detach(debug);
	pthread_mutex_lock(&lock);
	offer->busy = false;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* ---- threads ---- */

static void gdb_listen_serve(const struct vb_file *file)
{
	struct vb_gdb_hello hello;
	int fd = file->fd;

	vb_peer_patience(fd, PATIENCE_S);
	if (!vb_peer_is_own(fd, NULL)) {
		gdb_listen_answer(fd, -EPERM, NULL, 0);
		return;
	}
	if (!vb_gdb_read_all(fd, &hello, sizeof(hello)) || hello.magic != VB_GDB_MAGIC)
		return;
	if (hello.version != VB_GDB_VERSION)
		gdb_listen_answer(fd, -EPROTONOSUPPORT, NULL, 0);
	else if (hello.request == VB_GDB_LIST)
		answer_list(fd);
	else if (hello.request == VB_GDB_ELF)
		answer_elf(fd, hello.token);
	else if (hello.request == VB_GDB_ATTACH)
		gdb_listen_attach(file, hello.token);
	else
		gdb_listen_answer(fd, -EINVAL, NULL, 0);
}

/* Under lock. A child of fork() has the descriptor and its place, or neither. */
static void gdb_listen_leave(unsigned int place)
{
	vb_file_close(&connections[place]);
	taken[place] = false;
}

static void *connection_main(void *arg)
{
	unsigned int place = (unsigned int)(uintptr_t)arg;
	struct vb_file file;

	prctl(PR_SET_NAME, "verbatim-gdb");
	pthread_mutex_lock(&lock);
	file = connections[place];
	pthread_mutex_unlock(&lock);
	gdb_listen_serve(&file);
	pthread_mutex_lock(&lock);
	gdb_listen_leave(place);
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Under lock: a place of its own, or CONNECTIONS; -1: it is closed. */
static unsigned int gdb_listen_find_place(int fd)
{
	unsigned int place = 0;

	while (place < CONNECTIONS && taken[place])
		place++;
	if (place < CONNECTIONS)
		taken[place] = !vb_file_keep(&connections[place], fd);
	return place < CONNECTIONS && !taken[place] ? UINT_MAX : place;
}

static void accepted(int fd)
{
	unsigned int place;

	pthread_mutex_lock(&lock);
	place = gdb_listen_find_place(fd);
	pthread_mutex_unlock(&lock);
	if (place == CONNECTIONS) {
		gdb_listen_answer(fd, -EUSERS, NULL, 0);
		close(fd);
	} else if (place < CONNECTIONS &&
		   vb_thread_start(NULL, &vb_thread_detached, connection_main,
				   (void *)(uintptr_t)place)) {
		gdb_listen_answer(connections[place].fd, -EAGAIN, NULL, 0);
		pthread_mutex_lock(&lock);
		gdb_listen_leave(place);
		pthread_mutex_unlock(&lock);
	}
}

static void *listener_main(void *arg)
{
	struct vb_file file;

	prctl(PR_SET_NAME, "verbatim-gdb");
	pthread_mutex_lock(&lock);
	file = listener;
	pthread_mutex_unlock(&lock);
	for (;;) {
		struct pollfd ready = { .fd = file.fd, .events = POLLIN };
		int client;

		if (poll(&ready, 1, -1) < 0 && errno != EINTR)
			break;
		if (!vb_file_is_open(&file))
			break;
		client = accept4(file.fd, NULL, NULL, SOCK_CLOEXEC);
		if (client >= 0)
			accepted(client);
		else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			vb_pause_ns(
				FULL_NS); /* the connection waits until the program closes a file */
		else if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK)
			break;
	}
	pthread_mutex_lock(&lock);
	listener = VB_NO_FILE; /* the next offer begins anew */
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* ---- fork and exit ---- */

static void listen_prepare(void)
{
	pthread_mutex_lock(&lock);
}

static void listen_parent(void)
{
	pthread_mutex_unlock(&lock);
}

/*
 * The sockets would keep debuggers of the parent waiting for an end that the parent's close gives, and
 * what is written into the pipes would end the parent's sessions. Tokens name one program only.
 */
static void listen_forked(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&changed, NULL);
	vb_file_close(&listener);
	for (unsigned int i = 0; i < CONNECTIONS; i++)
		if (taken[i])
			gdb_listen_leave(i);
	for (struct vb_gdb_offer *o = offers; o; o = o->next) {
		vb_file_close(&o->quit);
		vb_file_close(&o->quit_in);
		o->busy = false;
	}
	offers = NULL;
	host_half = 0;
}

VB_STAGE(GDB, .prepare = listen_prepare, .parent = listen_parent, .child = listen_forked);

static bool any_busy(void)
{
	for (struct vb_gdb_offer *o = offers; o; o = o->next)
		if (o->busy)
			return true;
	return false;
}

static void end_session(struct vb_gdb_offer *offer, int code)
{
	atomic_store_explicit(&offer->exit_code, code, memory_order_relaxed);
	if (vb_file_is_open(&offer->quit_in) && write(offer->quit_in.fd, "", 1) < 0)
		return; /* it can only be full, and then has been told */
}

/* A debugger learns how the program ended; one that does not read is not waited for. */
static void gdb_listen_at_exit(int status, void *arg)
{
	uint64_t until = vb_machine_ns() + FAREWELL_NS;

	pthread_mutex_lock(&lock);
	for (struct vb_gdb_offer *o = offers; o; o = o->next)
		end_session(o, status);
	while (any_busy() &&
	       vb_cond_wait_until(VB_MACHINE_TIME, &changed, &lock, until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&lock);
}

/* ---- offers ---- */

/* Under lock. */
static int gdb_listen_start_listening(void)
{
	struct sockaddr_un to;
	char name[96];
	socklen_t len;
	int fd, err = 0;

	if (vb_file_is_open(&listener))
		return 0;
	if (!host_half && getrandom(&host_half, sizeof(host_half), 0) != sizeof(host_half))
		return -EAGAIN;
	host_half |= !host_half;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	snprintf(name, sizeof(name), "verbatim-dpa/%u/%d/%08" PRIx32, (unsigned int)geteuid(),
		 (int)getpid(), host_half);
	len = vb_peer_address(&to, name);
	if (bind(fd, (struct sockaddr *)&to, len) || listen(fd, CONNECTIONS)) {
		err = -errno;
		close(fd);
		return err;
	}
	err = vb_file_keep(&listener, fd);
	if (!err)
		err = vb_thread_start(NULL, &vb_thread_detached, listener_main, NULL);
	if (err)
		vb_file_close(&listener);
	return err;
}

/* Handlers of exit run in the reverse order: this one before those that were there before. */
static void gdb_listen_prepare(void)
{
	if (prepared)
		return;
	prepared = true;
	on_exit(gdb_listen_at_exit, NULL);
}

/* Under lock: unlike all others, and not 0. */
static int draw_token(uint64_t *token)
{
	struct vb_gdb_offer *other;
	uint32_t half;

	do {
		if (getrandom(&half, sizeof(half), 0) != sizeof(half))
			return -EAGAIN;
		*token = (uint64_t)host_half << 32 | half;
	} while (!half || !gdb_listen_find(*token, &other));
	return 0;
}

/* Names are the program's; a path has fewer letters. */
static void name_file(struct vb_gdb_offer *offer)
{
	snprintf(offer->elf_name, sizeof(offer->elf_name), "/dpa/%d-%u/%s.elf", (int)getpid(),
		 offer->entry.id, offer->entry.app);
	for (char *at = strrchr(offer->elf_name, '/') + 1; *at; at++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+",
			    *at))
			*at = '_';
}

static void offer_free(struct vb_gdb_offer *offer)
{
	vb_file_close(&offer->quit);
	vb_file_close(&offer->quit_in);
	free(offer);
}

static struct vb_gdb_offer *offer_new(const struct vb_gdb_offer_attr *attr)
{
	struct vb_gdb_offer *o = calloc(1, sizeof(*o));
	int fds[2], err;

	if (!o)
		return NULL;
	o->attr = *attr;
	o->quit = o->quit_in = VB_NO_FILE;
	o->entry.id = attr->id;
	o->entry.elf_len = attr->elf_len;
	snprintf(o->entry.process, sizeof(o->entry.process), "%s", attr->name);
	snprintf(o->entry.app, sizeof(o->entry.app), "%s", attr->app);
	snprintf(o->entry.adapter, sizeof(o->entry.adapter), "%s", attr->adapter);
	name_file(o);
	err = pipe2(fds, O_CLOEXEC | O_NONBLOCK);
	/* Both, so that none is left where one fails. */
	if (!err)
		err = vb_file_keep(&o->quit, fds[0]) | vb_file_keep(&o->quit_in, fds[1]);
	if (!err)
		return o;
	offer_free(o);
	return NULL;
}

int vb_gdb_offer(const struct vb_gdb_offer_attr *attr, struct vb_gdb_offer **offer)
{
	struct vb_gdb_offer *o = offer_new(attr);
	int err;

	if (!o)
		return -ENOMEM;
	pthread_mutex_lock(&lock);
	gdb_listen_prepare();
	err = gdb_listen_start_listening();
	if (!err)
		err = draw_token(&o->entry.token);
	if (!err) {
		o->next = offers;
		offers = o;
	}
	pthread_mutex_unlock(&lock);
	if (!err) {
		*offer = o;
		return 0;
	}
	offer_free(o);
	return err;
}

uint64_t vb_gdb_offer_token(const struct vb_gdb_offer *offer)
{
	return offer->entry.token;
}

void vb_gdb_offer_await(struct vb_gdb_offer *offer)
{
	pthread_mutex_lock(&lock);
	offer->awaited = true;
	while (!offer->attached)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

int vb_gdb_offer_announce(struct vb_gdb_offer *offer, const char *name)
{
	struct sockaddr_un to;
	socklen_t len = vb_peer_address(&to, name);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), err = 0;
	char yes;

	if (fd < 0)
		return -errno;
	pthread_mutex_lock(&lock);
	offer->awaited = true;
	pthread_mutex_unlock(&lock);
	if (!len || connect(fd, (struct sockaddr *)&to, len))
		err = len ? -errno : -EINVAL;
	else if (!vb_peer_is_own(fd, NULL))
		err = -EPERM;
	else if (!vb_gdb_write_all(fd, &offer->entry.token, sizeof(offer->entry.token)) ||
		 !vb_gdb_read_all(fd, &yes, sizeof(yes)))
		err = -ECONNRESET;
	if (err) {
		pthread_mutex_lock(&lock);
		offer->awaited = false;
		pthread_mutex_unlock(&lock);
	}
	close(fd);
	return err;
}

void vb_gdb_offer_end(struct vb_gdb_offer *offer)
{
	struct vb_gdb_offer **at = &offers;

	if (!offer)
		return;
	pthread_mutex_lock(&lock);
	while (*at && *at != offer)
		at = &(*at)->next;
	if (*at)
		*at = offer->next;
	end_session(offer, 0);
	while (offer->busy)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	offer_free(offer);
}
