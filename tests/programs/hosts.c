// SPDX-License-Identifier: MIT
/* Owns the hosts that a test opens besides the program's, and the threads that are second sides; see hosts.h. */
#include "hosts.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>

#include "common.h"

#include "api/ibverbs/accessors.h"
#include "card/open.h"

struct host {
	struct vb_card *card;
	unsigned int count;
	struct vb_verbs_device devices[];
};

enum { MAX_SIDES = 64, FIRST_SIDE = 1 << 30 }; /* above all numbers of processes */

static struct side {
	pthread_t thread;
	struct host *host;
	char *role;
	int fd;
	bool running;
} sides[MAX_SIDES]; /* changed by the thread that starts and awaits sides */

static atomic_bool opened;              /* a second host, ever */
static _Thread_local struct host *here; /* NULL: the program's */
static _Thread_local struct side *self;

bool hosts_wanted(void)
{
	const char *wish = getenv("VERBATIM_TEST_HOSTS");

	return wish && !strcmp(wish, "two");
}

/* A program that passes without a second host has shown nothing of what this mode is for. */
static void hosts_look_back(int status, void *arg)
{
	(void)arg;
	if (status || atomic_load(&opened))
		return;
	fprintf(stderr, "# no second host was opened\n");
	_exit(1);
}

__attribute__((constructor)) static void hosts_begin(void)
{
	if (hosts_wanted())
		on_exit(hosts_look_back, NULL);
}

/* --- hosts --------------------------------------------------------------------------------------- */

/* As in kinds.c: programs are linked with libibverbs alone. */
static void *hosts_find(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	check(found, "%s", dlerror());
	return found;
}

/* The text of the file that VERBATIM_CONFIG names now, which is what a new process would read; NULL: it names none. */
static char *hosts_read_config(void)
{
	const char *path = getenv("VERBATIM_CONFIG");
	FILE *file = path ? fopen(path, "r") : NULL;
	char *text = NULL;
	size_t size = 0;

	if (!file)
		return NULL;
	check(getdelim(&text, &size, '\0', file) > 0, "%s: %s", path, strerror(errno));
	fclose(file);
	return text;
}

struct host *host_open(void)
{
	typeof(&vb_card_open) open_card = (typeof(open_card))hosts_find("vb_card_open");
	typeof(&vb_card_adapters) adapters = (typeof(adapters))hosts_find("vb_card_adapters");
	struct vb_adapter *const *list;
	struct vb_card *card;
	struct host *host;
	unsigned int count;
	char words[256] = "", *config = hosts_read_config();

	check(open_card(config, &card, words, sizeof(words)) == 0, "%s", words);
	free(config);
	check_eq(adapters(card, &list, &count), 0);
	host = calloc(1, sizeof(*host) + count * sizeof(host->devices[0]));
	check(host);
	host->card = card;
	host->count = count;
	for (unsigned int i = 0; i < count; i++)
		vb_verbs_device_init(&host->devices[i], list[i]);
	atomic_store(&opened, true);
	return host;
}

void host_close(struct host *host)
{
	typeof(&vb_card_close) close_card = (typeof(close_card))hosts_find("vb_card_close");

	check(close_card(host->card) == 0, "a device of the second host is still open");
	free(host);
}

struct host *host_enter(struct host *host)
{
	struct host *before = here;

	here = host;
	return before;
}

static struct ibv_context *hosts_try_device(struct ibv_device *device, const char *name)
{
	struct ibv_context *ctx;

	if (name && strcmp(ibv_get_device_name(device), name))
		return NULL;
	ctx = ibv_open_device(device);
	check(ctx, "open %s: %s", ibv_get_device_name(device), strerror(errno));
	return ctx;
}

struct ibv_context *hosts_open_device(const char *name)
{
	struct ibv_context *ctx = NULL;
	struct ibv_device **list;
	int n = 0;

	if (here) {
		for (unsigned int i = 0; i < here->count && !ctx; i++)
			ctx = hosts_try_device(&here->devices[i].ibv, name);
	} else {
		list = ibv_get_device_list(&n);
		check(list && n > 0, "no device: %s", strerror(errno));
		for (int i = 0; i < n && !ctx; i++)
			ctx = hosts_try_device(list[i], name);
		ibv_free_device_list(list);
	}
	check(ctx, "no device %s", name ? name : "");
	return ctx;
}

/* --- second sides -------------------------------------------------------------------------------- */

__attribute__((weak)) int main(int argc, char **argv); /* a plug-in has none, and no second side */

bool hosts_is_side(void)
{
	return self;
}

void hosts_exit(int status)
{
	close(self->fd); /* as the end of a process does: the other side sees it */
	pthread_exit((void *)(intptr_t)status);
}

static void *side_run(void *arg)
{
	char name[] = "side";
	struct side *side = arg;
	char *argv[] = { name, side->role, NULL };

	self = side;
	role_fd = side->fd;
	host_enter(side->host);
	hosts_exit(main(2, argv));
}

pid_t hosts_spawn(const char *role, int *fd)
{
	struct side *side = sides;
	int pair[2];

	while (side < &sides[MAX_SIDES] && side->running)
		side++;
	check(side < &sides[MAX_SIDES], "more than %d sides", MAX_SIDES);
	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "%s",
	      strerror(errno));
	*side = (struct side){
		.host = host_open(), .role = strdup(role), .fd = pair[1], .running = true
	};
	check_eq(pthread_create(&side->thread, NULL, side_run, side), 0);
	*fd = pair[0];
	return (pid_t)(FIRST_SIDE + (side - sides));
}

bool hosts_wait(pid_t pid)
{
	struct side *side;
	void *status;

	if (pid < FIRST_SIDE)
		return false;
	side = &sides[pid - FIRST_SIDE];
	check_eq(pthread_join(side->thread, &status), 0);
	check((intptr_t)status == 0, "second side: status %d", (int)(intptr_t)status);
	host_close(side->host);
	free(side->role);
	side->running = false;
	return true;
}
