// SPDX-License-Identifier: MIT
/*
 * What the commands of `verbatim cable` do alike: open a port, end on signals.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/time.h"
#include "card/card.h"
#include "tools/cable/cable.h"

static volatile sig_atomic_t stopped;
static int stop_fd = -1;

static bool has_cable(const struct vb_adapter *adapter)
{
	return adapter->config->format != VB_FORMAT_HBL;
}

static void print_ports(struct vb_adapter *const *list, unsigned int count)
{
	const char *before = "; there are: ";

	for (unsigned int i = 0; i < count; i++) {
		if (has_cable(list[i])) {
			fprintf(stderr, "%s%s", before, list[i]->config->name);
			before = ", ";
		}
	}
	fprintf(stderr, "\n");
}

int cable_open_port(const char *who, const char *config, const char *name, struct vb_dev **dev)
{
	struct vb_adapter *const *list;
	unsigned int count, i;
	int ret;

	if (tools_use_config(who, config))
		return 1;
	ret = vb_card_adapters(vb_card_program(), &list, &count);
	if (ret) {
		fprintf(stderr, "%s: %s\n", who, strerror(-ret));
		return 1;
	}
	for (i = 0; i < count && strcmp(list[i]->config->name, name); i++)
		;
	if (i == count || !has_cable(list[i])) {
		fprintf(stderr,
			i == count ? "%s: there is no adapter '%s'"
				   : "%s: '%s' has no port for raw Ethernet frames",
			who, name);
		print_ports(list, count);
		return 1;
	}
	ret = vb_dev_open(list[i], NULL, NULL, dev);
	if (ret) {
		fprintf(stderr, "%s: %s: %s\n", who, name, strerror(-ret));
		return 1;
	}
	return 0;
}

static void port_on_signal(int number)
{
	int saved = errno;

	stopped = 1;
	if (stop_fd >= 0)
		eventfd_write(stop_fd, 1);
	errno = saved;
}

bool cable_stopped(void)
{
	return stopped;
}

void cable_catch_signals(int wake_fd)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_handler = port_on_signal, .sa_flags = (int)SA_RESETHAND };
	struct sigaction old;

	stop_fd = wake_fd;
	for (unsigned int i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		/*
		 * nohup counts. SIGINT is caught all the same, as tcpdump does: scripts send it to
		 * background jobs, for which the shell has ignored it.
		 */
		if (numbers[i] != SIGHUP ||
		    (!sigaction(SIGHUP, NULL, &old) && old.sa_handler != SIG_IGN))
			sigaction(numbers[i], &action, NULL);
	}
}

uint64_t cable_wall_at(uint64_t ns)
{
	static uint64_t offset; /* measured once, so that times keep their order; 0: not yet */
	uint64_t before, wall, took, best = UINT64_MAX;

	/* The two clocks are read one after the other: the shortest time in between is the best. */
	for (int tries = offset ? 0 : 16; tries; tries--) {
		before = vb_now_ns();
		wall = cable_wall_ns();
		took = vb_now_ns() - before;
		if (took < best) {
			best = took;
			offset = wall - before - took / 2;
		}
	}
	return ns + offset;
}

uint64_t cable_wall_ns(void)
{
	return vb_wall_ns();
}
