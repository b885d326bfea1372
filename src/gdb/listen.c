// SPDX-License-Identifier: MIT
/*
 * Owns which device processes debuggers can attach to, and the service "gdb" by which tools do so
 * (control/ask/ask.h has the socket and its threads; link.h what is said there).
 *
 * One lock for all: nothing here is on a data path. It is not held while a peer is waited for.
 */
#include "gdb/listen.h"

#include <fcntl.h>
#include <limits.h>
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
#include "control/ask/ask.h"
#include "gdb/link.h"
#include "host/signals.h"

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
static int (*_Atomic offer_all)(void); /* see vb_gdb_serve_tools() */

/* ---- answers ---- */

static bool gdb_listen_answer(const struct vb_file *file, int status,
			      const struct vb_gdb_entry *entries, uint32_t count)
{
	return vb_ask_answer(file, status, count, NULL) &&
	       vb_ask_write(file, entries, count * sizeof(*entries));
}

static void answer_list(const struct vb_file *file)
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
	gdb_listen_answer(file, entries ? 0 : -ENOMEM, entries, count);
	free(entries);
}

/*
 * By a thread of the program, whose handlers may exit or fork: both take the lock, so none runs while this thread
 * has it.
 */
static void listen_take(sigset_t *before)
{
	vb_signal_block(before);
	pthread_mutex_lock(&lock);
}

static void listen_give(const sigset_t *before)
{
	pthread_mutex_unlock(&lock);
	vb_signal_unblock(before);
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
static void answer_elf(const struct vb_file *file, uint64_t token)
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
	if (gdb_listen_answer(file, err, &entry, err ? 0 : 1) && !err)
		vb_ask_write(file, elf, entry.elf_len);
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
		gdb_listen_answer(file, err, NULL, 0);
		return;
	}
	err = vb_dpa_debug_attach(offer->attr.process, &debug);
	if (!err)
		vb_dpa_debug_hold(debug);
	if (gdb_listen_answer(file, err, &offer->entry, err ? 0 : 1) && !err) {
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

/* ---- the service ---- */

static void tool_serve(const struct vb_file *file, const char *words)
{
	int (*all)(void) = atomic_load_explicit(&offer_all, memory_order_acquire);
	unsigned long long token = 0;
	char request[8] = "";

	/* Device memory of a program whose own memory its user may not read: with no more rights than a debugger of it. */
	if (prctl(PR_GET_DUMPABLE) != 1) {
		gdb_listen_answer(file, -EACCES, NULL, 0);
		return;
	}
	sscanf(words, "%7s %llx", request, &token);
	if (!strcmp(request, VB_GDB_OFFER) && all)
		all(); /* what can be attached to afterwards is in the list */
	if (!strcmp(request, VB_GDB_LIST) || !strcmp(request, VB_GDB_OFFER))
		answer_list(file);
	else if (!strcmp(request, VB_GDB_ELF))
		answer_elf(file, token);
	else if (!strcmp(request, VB_GDB_ATTACH))
		gdb_listen_attach(file, token);
	else
		gdb_listen_answer(file, -EINVAL, NULL, 0);
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

/* What is written into the pipes would end the parent's sessions. Tokens name one program only. */
static void listen_forked(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&changed, NULL);
	for (struct vb_gdb_offer *o = offers; o; o = o->next) {
		vb_file_close(&o->quit);
		vb_file_close(&o->quit_in);
		o->busy = false;
	}
	offers = NULL;
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
static void tool_leave(int status)
{
	uint64_t until = vb_machine_ns() + FAREWELL_NS;

	/* A handler of the program, or one of its fork handlers, exits in a thread that may have it. */
	while (pthread_mutex_trylock(&lock)) {
		if (vb_machine_ns() >= until)
			return;
		vb_pause_ns(FAREWELL_NS / 100);
	}
	for (struct vb_gdb_offer *o = offers; o; o = o->next)
		end_session(o, status);
	while (any_busy() &&
	       vb_cond_wait_until(VB_MACHINE_TIME, &changed, &lock, until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&lock);
}

/* ---- offers ---- */

static struct vb_ask_service service = {
	.name = VB_GDB_SERVICE,
	.at_once = UINT_MAX,
	.serve = tool_serve,
	.leave = tool_leave,
};

void vb_gdb_serve_tools(int (*all)(void))
{
	if (all)
		atomic_store_explicit(&offer_all, all, memory_order_release);
	vb_ask_serve(&service);
}

/* Under lock: unlike all others, and not 0. */
static int draw_token(uint32_t key, uint64_t *token)
{
	struct vb_gdb_offer *other;
	uint32_t half;

	do {
		if (getrandom(&half, sizeof(half), 0) != sizeof(half))
			return -EAGAIN;
		*token = (uint64_t)key << 32 | half;
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
	sigset_t before;
	uint32_t key;
	int err;

	if (!o)
		return -ENOMEM;
	vb_gdb_serve_tools(NULL);
	err = vb_ask_hold(&key);
	if (err)
		goto free_offer;
	listen_take(&before);
	err = draw_token(key, &o->entry.token);
	if (!err) {
		o->next = offers;
		offers = o;
		*offer = o;
	}
	listen_give(&before);
	if (!err)
		return 0;
	vb_ask_release();
free_offer:
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
	sigset_t before;
	socklen_t len = vb_peer_address(&to, name);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), err = 0;
	char yes;

	if (fd < 0)
		return -errno;
	listen_take(&before);
	offer->awaited = true;
	listen_give(&before);
	if (!len || connect(fd, (struct sockaddr *)&to, len))
		err = len ? -errno : -EINVAL;
	else if (!vb_peer_is_own(fd, NULL))
		err = -EPERM;
	else if (!vb_peer_write(fd, &offer->entry.token, sizeof(offer->entry.token)) ||
		 !vb_peer_read(fd, &yes, sizeof(yes)))
		err = -ECONNRESET;
	if (err) {
		listen_take(&before);
		offer->awaited = false;
		listen_give(&before);
	}
	close(fd);
	return err;
}

void vb_gdb_offer_end(struct vb_gdb_offer *offer)
{
	struct vb_gdb_offer **at = &offers;
	sigset_t before;
	bool own; /* and not the parent's */

	if (!offer)
		return;
	listen_take(&before);
	while (*at && *at != offer)
		at = &(*at)->next;
	own = *at;
	if (own)
		*at = offer->next;
	end_session(offer, 0);
	while (offer->busy)
		pthread_cond_wait(&changed, &lock);
	listen_give(&before);
	if (own)
		vb_ask_release();
	offer_free(offer);
}
