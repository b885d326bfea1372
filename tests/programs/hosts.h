/* SPDX-License-Identifier: MIT */
/*
 * Two hosts in one process: with VERBATIM_TEST_HOSTS=two the second side of a test, which is a second process otherwise,
 * is a thread with a host of its own. Its devices come from a card of that host (card/open.h) with the configuration that
 * a second process would have, so they have names and addresses of those that the program lists. What a process has one
 * of (environment, statics, signals, descriptors) both sides share.
 *
 *	thread of main()               thread of hosts_spawn("target")
 *	ibv_get_device_list()          devices of the second host
 *	vb_host_program                struct vb_host: slot, life, segment, card
 *	     \---------- rings, process_vm_*() between two slots ----------/
 *
 * hosts.txt says which programs run so, and why the others cannot. One that exits with 0 and has opened no second host
 * fails.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct ibv_context;
struct host;

bool hosts_wanted(void);

/* Open the device of this name (NULL: the first) on the host of the calling thread; fails the test where there is none. */
struct ibv_context *hosts_open_device(const char *name);

/* A further host. */
struct host *host_open(void);
/* Its devices are closed: fails the test where one is not. */
void host_close(struct host *host);
/* The calling thread opens devices there from now on; NULL: on the program's host. Returns where it did before. */
struct host *host_enter(struct host *host);

/* --- for common.c -------------------------------------------------------------------------------- */

/* Whether the calling thread is the first one of a second side. */
bool hosts_is_side(void);
/* As spawn_self(). What it returns is no process: kill(2) finds nothing there. */
pid_t hosts_spawn(const char *role, int *fd);
/* As spawn_wait(), and the host of the side is gone; false: it is a process. */
bool hosts_wait(pid_t side);
void hosts_exit(int status) __attribute__((noreturn));
