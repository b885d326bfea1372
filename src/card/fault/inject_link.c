// SPDX-License-Identifier: MIT
/*
 * Owns how faults come in: from a script, and from other processes of the user. Debuggers of device code
 * come by the same way.
 *
 *	tool                                     this program
 *	vb_fabric_ask()  --- a word of the segment, a wake-up --> background thread: vb_inject_asked()
 *	                                                          starts a thread that listens
 *	connect, line    --- abstract socket -------------------> vb_inject_apply()
 *	words            <--------------------------------------- answer
 *
 * Nobody listens before somebody asks, and no more some seconds after the last one: a program that
 * nobody asks pays for the look at a word whenever its background thread wakes up. The kernel says who is at the other end:
 * another user is refused on either side. A line is parsed as one of a file is; nothing else is read.
 */
#include "card/fault/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/time.h"
#include "base/env.h"
#include "base/log.h"
#include "control/ask/peer.h"
#include "host/thread.h"

enum {
	IDLE_MS = 2000,  /* nobody asks: stop listening */
	PATIENCE_S = 2,  /* for a peer that has connected and says nothing */
	TOOL_MS = 10000, /* for a program that does not answer */
	RETRY_MS = 5,
	FULL_MS = 50, /* until a program without descriptors may have one again */
	ASK_AGAIN_MS = 200,
	TRIES = 3,
	ANSWER = 256,
};

struct answer {
	int32_t status; /* 0 or -errno */
	char words[ANSWER];
};

/* --- both sides ------------------------------------------------------------------------------- */

/*
 * The name of a process's socket. It stays while the process closes its devices and opens others. PID
 * namespaces that share a network are kept apart.
 */
static socklen_t inject_link_address(struct sockaddr_un *to, pid_t pid)
{
	struct stat st = { 0 };
	char name[96];

	if (stat("/proc/thread-self/ns/pid", &st))
		st.st_ino = 0;
	snprintf(name, sizeof(name), "verbatim-inject/%u/%llu/%d", (unsigned int)geteuid(),
		 (unsigned long long)st.st_ino, (int)pid);
	return vb_peer_address(to, name);
}

/* A process that was stopped finds its call interrupted when it goes on. */
static ssize_t inject_link_receive(int fd, void *to, size_t size)
{
	ssize_t len;

	do
		len = recv(fd, to, size, 0);
	while (len < 0 && errno == EINTR);
	return len;
}

/* --- a program that is asked ------------------------------------------------------------------ */

void vb_inject_serve_debug(struct vb_card *card, int (*serve)(void))
{
	atomic_store_explicit(&card->inject.serve_debug, serve, memory_order_release);
}

static int let_debug(struct vb_card *card)
{
	int (*serve)(void) = atomic_load_explicit(&card->inject.serve_debug, memory_order_acquire);

	return serve ? serve() : -ENOENT;
}

static int apply_line(struct vb_card *card, const char *line, char *words, size_t size)
{
	struct vb_inject fault;
	int ret = vb_inject_parse(line, &fault, words, size);

	if (!ret)
		return vb_inject_apply(card, &fault, false, words, size);
	return ret > 0 ? -EINVAL : ret;
}

static void answer_line(struct vb_card *card, int fd, const char *line)
{
	struct answer answer = { 0 };
	ssize_t sent;

	answer.status = strcmp(line, VB_INJECT_DEBUG)
				? apply_line(card, line, answer.words, sizeof(answer.words))
				: let_debug(card);
	sent = send(fd, &answer, sizeof(answer), MSG_NOSIGNAL);
	(void)sent; /* who does not want to know it has gone */
}

/* A command that has given up has said so: what it asked for is not done behind its back. */
static bool has_gone(int fd)
{
	struct pollfd peer = { .fd = fd, .events = POLLRDHUP };

	return poll(&peer, 1, 0) > 0;
}

static void serve(struct vb_card *card, int fd)
{
	char line[VB_INJECT_LINE + 2];
	ssize_t len;

	vb_peer_patience(fd, PATIENCE_S);
	if (!vb_peer_is_own(fd, NULL))
		return;
	while ((len = inject_link_receive(fd, line, sizeof(line) - 1)) > 0 && !has_gone(fd)) {
		line[len] = '\0';
		answer_line(card, fd, line);
	}
}

/* Under the lock: whether somebody has asked since. If not, this was all. */
static bool stop_listening(struct vb_card *card)
{
	bool stop;

	pthread_mutex_lock(&card->inject.lock);
	stop = !card->inject.asked || !vb_file_is_open(&card->inject.listener);
	card->inject.asked = false;
	if (stop) {
		vb_file_close(&card->inject.listener);
		card->inject.listens = false;
	}
	pthread_mutex_unlock(&card->inject.lock);
	return stop;
}

/* The program may have no descriptor left: the peer then stays, and poll() would not wait. */
static int take_peer(const struct vb_file *file, int *waited_ms)
{
	int fd = vb_file_above_stdio(accept4(file->fd, NULL, NULL, SOCK_CLOEXEC));

	*waited_ms = fd < 0 ? *waited_ms + FULL_MS : 0;
	if (fd < 0)
		vb_pause_ns(FULL_MS * 1000000ull);
	return fd;
}

static void *listen_main(void *arg)
{
	struct vb_card *card = arg;
	struct vb_file file;
	int waited_ms = 0;

	prctl(PR_SET_NAME, "verbatim-inject");
	pthread_mutex_lock(&card->inject.lock);
	file = card->inject.listener;
	pthread_mutex_unlock(&card->inject.lock);
	for (;;) {
		struct pollfd ready = { .fd = file.fd, .events = POLLIN };
		int n = vb_poll_until(VB_MACHINE_TIME, &ready, 1,
				      vb_machine_ns() + IDLE_MS * 1000000ull, NULL);
		int fd;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || waited_ms >= IDLE_MS || !vb_file_is_open(&file)) {
			if (stop_listening(card))
				return NULL;
			waited_ms = 0;
			continue;
		}
		fd = take_peer(&file, &waited_ms);
		if (fd < 0)
			continue;
		serve(card, fd);
		close(fd);
	}
}

/* Under the lock. */
static int inject_link_start_listening(struct vb_card *card)
{
	struct sockaddr_un to;
	socklen_t len;
	int fd, ret;

	fd = vb_file_above_stdio(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	if (fd < 0)
		return -errno;
	len = inject_link_address(&to, getpid());
	if (bind(fd, (struct sockaddr *)&to, len) || listen(fd, 8)) {
		ret = -errno;
		close(fd);
		return ret;
	}
	ret = vb_file_keep(&card->inject.listener, fd);
	if (!ret)
		ret = vb_thread_start(NULL, &vb_thread_detached, listen_main, card);
	if (ret)
		vb_file_close(&card->inject.listener);
	return ret;
}

/*
 * By the background thread, which must not wait: a fault that is being carried out may wait for a peer
 * that is stopped in the middle of a copy. Whoever asks does so again (ASK_AGAIN_MS).
 */
void vb_inject_asked(struct vb_card *card)
{
	int ret = 0;

	if (pthread_mutex_trylock(&card->inject.lock))
		return;
	card->inject.asked = true;
	if (!card->inject.listens) {
		ret = inject_link_start_listening(card);
		card->inject.listens = !ret;
	}
	pthread_mutex_unlock(&card->inject.lock);
	if (ret)
		vb_warn("inject: nobody can ask this program for faults: %s", strerror(-ret));
}

/* --- scripts ---------------------------------------------------------------------------------- */

struct script {
	struct vb_card *card;
	struct vb_inject *faults;
	int count, next;
	uint64_t start; /* ns */
	pid_t pid;
};

static void run_due(struct script *script, uint64_t elapsed)
{
	char words[ANSWER];

	for (; script->next < script->count && script->faults[script->next].at_ns <= elapsed;
	     script->next++) {
		const struct vb_inject *fault = &script->faults[script->next];

		if (vb_inject_apply(script->card, fault, true, words, sizeof(words)))
			vb_warn("VERBATIM_INJECT: at %" PRIu64 " us: %s", fault->at_ns / 1000,
				words);
	}
}

static void script_free(struct script *script)
{
	free(script->faults);
	free(script);
}

static void *script_main(void *arg)
{
	struct script *script = arg;

	prctl(PR_SET_NAME, "verbatim-inject");
	while (script->next < script->count) {
		vb_sleep_until(vb_time_card(), script->start + script->faults[script->next].at_ns);
		run_due(script, vb_now_ns() - script->start);
	}
	script_free(script);
	return NULL;
}

/* Nothing is left to do for it, or a thread does it. */
static int begin_script(struct vb_card *card, const char *file)
{
	struct script *script = calloc(1, sizeof(*script));
	char words[512];
	int ret;

	if (!script)
		return -ENOMEM;
	ret = vb_inject_read(file, &script->faults, words, sizeof(words));
	if (ret < 0) {
		vb_error("VERBATIM_INJECT: %s", words);
		free(script);
		return -EINVAL;
	}
	script->card = card;
	script->count = ret;
	script->start = vb_now_ns();
	run_due(script, 0);
	ret = 0;
	if (script->next < script->count) {
		ret = vb_thread_start(NULL, &vb_thread_detached, script_main, script);
		if (!ret)
			return 0; /* it is the thread's now */
	}
	script_free(script);
	return ret;
}

/*
 * What holds from the start is carried out before anybody sees the card: who opens one meanwhile waits.
 * After a failure the next one tries again.
 */
int vb_inject_begin(struct vb_card *card)
{
	const char *file = vb_getenv("VERBATIM_INJECT");
	int ret = 0;

	if (!file || !*file)
		return 0;
	pthread_mutex_lock(&card->inject.script_lock);
	if (!card->inject.scripted)
		ret = begin_script(card, file);
	if (!ret)
		card->inject.scripted = true;
	pthread_mutex_unlock(&card->inject.script_lock);
	return ret;
}

/* --- a tool that asks ------------------------------------------------------------------------- */

struct target {
	pid_t pid;
	int fd; /* or -errno */
};

/* Nobody listens before the program has heard that somebody asks. */
static int connect_to(const struct vb_slot_info *info)
{
	struct sockaddr_un to;
	socklen_t len = inject_link_address(&to, info->pid);
	pid_t pid;
	/* Where many wait already, connect() would wait for a program that may be stopped. */
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int ret = -ETIMEDOUT;

	if (fd < 0)
		return -errno;
	for (int ms = 0; ms < TOOL_MS; ms += RETRY_MS) {
		if (ms % ASK_AGAIN_MS == 0)
			ret = kill(info->pid, 0) && errno == ESRCH ? -ESRCH : vb_fabric_ask(info);
		if (ret)
			break;
		if (!connect(fd, (struct sockaddr *)&to, len)) {
			if (vb_peer_is_own(fd, &pid) && pid == info->pid && !fcntl(fd, F_SETFL, 0))
				return fd;
			ret = -EPERM; /* somebody else has taken the name */
			break;
		}
		vb_pause_ns(RETRY_MS * 1000000ull);
	}
	close(fd);
	return ret ? ret : -ETIMEDOUT;
}

static void inject_link_find(void *arg, const struct vb_slot_info *info)
{
	struct target *target = arg;

	if (info->pid == target->pid && target->fd < 0)
		target->fd = connect_to(info);
}

/*
 * 0 and the answer, or -errno and words. -EAGAIN: the program ended, or stopped listening before it read
 * the line, because nobody had asked for a while.
 */
static int ask_once(pid_t pid, const char *line, struct answer *answer, char *words, size_t size)
{
	struct target target = { .pid = pid, .fd = -ESRCH };
	ssize_t len;
	int fd, ret;

	ret = vb_registry_list(inject_link_find, &target);
	fd = ret < 0 ? ret : target.fd;
	if (fd < 0) {
		snprintf(words, size, "%s",
			 fd == -ESRCH       ? "has no card open"
			 : fd == -ETIMEDOUT ? "does not answer"
					    : strerror(-fd));
		return fd;
	}
	vb_peer_patience(fd, TOOL_MS / 1000);
	len = send(fd, line, strlen(line), MSG_NOSIGNAL);
	if (len >= 0)
		len = inject_link_receive(fd, answer, sizeof(*answer));
	ret = len == sizeof(*answer)                                         ? 0
	      : !len || (len < 0 && (errno == ECONNRESET || errno == EPIPE)) ? -EAGAIN
									     : -ETIMEDOUT;
	close(fd);
	if (ret)
		snprintf(words, size, "does not answer");
	return ret;
}

int vb_inject_ask(pid_t pid, const char *line, char *words, size_t size)
{
	struct answer answer;
	int ret = -EAGAIN;

	for (int i = 0; ret == -EAGAIN && i < TRIES; i++)
		ret = ask_once(pid, line, &answer, words, size);
	if (ret)
		return ret == -EAGAIN ? -ETIMEDOUT : ret;
	answer.words[ANSWER - 1] = '\0';
	snprintf(words, size, "%s", answer.words);
	return answer.status > 0 ? -EPROTO : answer.status;
}
