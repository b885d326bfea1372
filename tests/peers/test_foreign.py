#!/usr/bin/env python3
"""Programs that are particular about what is loaded with them: built with AddressSanitizer, which wants to be the first
library, with ThreadSanitizer, which has to see every signal handler, and linked with musl, which knows only a part of glibc's
symbols. They start, by themselves and as children."""
import os
import re
import shutil
import subprocess
import tempfile

import peers

VERBATIM = os.path.join(peers.stage(), 'bin', 'verbatim')

VERBS = r'''
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
OPTIONS
/* Makes what a program has, and destroys it; with an argument one byte too many is written first, with LEAK blocks leak. */
int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	char *data = malloc(64);
	struct ibv_mr *mr = ibv_reg_mr(pd, data, 64, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	memset(data, 1, 64 + (argc > 1));
	if (!mr || !qp || ibv_destroy_qp(qp) || ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd))
		return 1;
	for (int i = 0; getenv("LEAK") && i < 10; i++)
		data[0] += !malloc(48);
	free(data);
	ibv_close_device(context);
	ibv_free_device_list(list);
	puts("verbs work");
	return 7;
}
'''
OWN_OPTIONS = 'const char *__asan_default_options(void) { return "detect_leaks=1"; }'

FILES = r'''
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
static volatile int caught;
static void handler(int sig) { caught = sig; }
int main(void)
{
	struct stat st;
	char text[64] = "";
	DIR *dir = opendir("/sys/class/infiniband");
	FILE *file = fopen("/sys/class/infiniband/mlx5_0/ports/1/state", "r");

	signal(SIGUSR1, handler);
	raise(SIGUSR1);
	if (caught != SIGUSR1 || stat("/dev/infiniband/uverbs0", &st) || !S_ISCHR(st.st_mode) || !dir || !file ||
	    !fgets(text, sizeof(text), file) || fork() == -1)
		return 1;
	printf("state %s", text);
	return 7;
}
'''

# Threads that ring doorbells by stores, and a handler that does so, too. Says whose handler the kernel has: ThreadSanitizer
# puts its own there, which calls the program's when its own state is whole.
THREADS = r'''
#include <infiniband/mlx4dv.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 3, RINGS = 4000, SIGNALS = 300 };
static struct mlx4dv_qp qps[THREADS];
static pthread_t threads[THREADS];
static atomic_int handled, ended;
static _Thread_local struct mlx4dv_qp *volatile mine;
static int shadow[1024];

static void ring(struct mlx4dv_qp *qp)
{
	__atomic_store_n(qp->sdb, qp->doorbell_qpn, __ATOMIC_RELAXED); /* all threads have one page */
}

static void handler(int sig)
{
	handled++;
	if (mine)
		ring(mine);
}

/* The doorbell of a queue without work: the card looks, and finds nothing. */
static void *work(void *arg)
{
	long me = (long)arg;

	mine = &qps[me];
	for (int i = 0; i < RINGS; i++) {
		ring(&qps[me]);
		for (int n = 0; n < 64; n++)
			shadow[me * 256 + n] += n;
	}
	mine = NULL;
	ended++;
	return NULL;
}

static struct ibv_context *open_card(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "mlx4_0"))
			return ibv_open_device(list[i]);
	return NULL;
}

static int make_queues(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);

	for (int i = 0; i < THREADS; i++) {
		struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
		struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1 }, .qp_type = IBV_QPT_RC };
		struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
		struct ibv_qp *qp = ibv_create_qp(pd, &attr);
		struct mlx4dv_obj obj = { .qp = { .in = qp, .out = &qps[i] } };

		if (!qp || ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ||
		    mlx4dv_init_obj(&obj, MLX4DV_OBJ_QP))
			return -1;
	}
	return 0;
}

int main(void)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = SA_RESTART };
	struct ibv_context *context = open_card();
	struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } real;
	struct timespec pause = { .tv_nsec = 200000 };

	if (!context || make_queues(context) || sigaction(SIGUSR1, &act, NULL) || syscall(SYS_rt_sigaction, SIGUSR1, NULL, &real, 8))
		return 1;
	printf("kernel has %s\n", real.handler == (void *)handler ? "the program's handler" : "another handler");
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	for (int i = 0; i < SIGNALS && ended < THREADS; i++) {
		pthread_kill(threads[i % THREADS], SIGUSR1);
		nanosleep(&pause, NULL);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("threads ended\n");
	return handled ? 7 : 1;
}
'''


def call(*args, env=None):
    environment = {**peers.bare_env(), **(env or {})}
    return subprocess.run([VERBATIM, 'run', '--', *args], env=environment, capture_output=True, text=True, timeout=120,
                          check=False)


def expect(done, code, stdout='', stderr=''):
    what = ' '.join(done.args[2:])
    if done.returncode != code or not re.search(stdout, done.stdout) or not re.search(stderr, done.stderr):
        raise peers.Failure(f'{what}: exit code {done.returncode}\n{done.stdout}{done.stderr}')
    if not stderr and done.stderr:
        raise peers.Failure(f'{what}: {done.stderr}')


def build(folder, name, source, *command):
    path = os.path.join(folder, name)
    with open(path + '.c', 'w', encoding='ascii') as text:
        text.write(source)
    subprocess.run([*command[:1], '-o', path, path + '.c', *command[1:]], check=True)
    return path


def check_address_sanitizer(folder):
    if peers.sanitizer(peers.stage()):
        return  # then everything else here runs with one
    plain = build(folder, 'plain', VERBS.replace('OPTIONS', ''), 'gcc', '-fsanitize=address', '-g', '-libverbs')
    own = build(folder, 'own', VERBS.replace('OPTIONS', OWN_OPTIONS), 'gcc', '-fsanitize=address', '-g', '-libverbs')
    for program in (plain, own):
        expect(call(program), 7, 'verbs work')
        expect(call('sh', '-c', f'{program}; exit $?'), 7, 'verbs work')
        expect(call(program, env={'ASAN_OPTIONS': 'detect_leaks=0'}), 7, 'verbs work')
        # It is at work: what it is there for is found.
        expect(call(program, 'bad'), 1, '', 'AddressSanitizer: heap-buffer-overflow')
        expect(call(program, env={'LEAK': '1'}), 1, '', 'LeakSanitizer: detected memory leaks')
    # A script that sets options of its own does not know of ours.
    expect(call('sh', '-c', f'ASAN_OPTIONS=detect_leaks=0 {plain}; exit $?'), 7, 'verbs work')


def check_thread_sanitizer(folder):
    if peers.sanitizer(peers.stage()):
        return
    libraries = ['-L' + os.path.join(peers.stage(), 'lib'), '-lmlx4', '-libverbs']
    for compiler in ('gcc', 'clang'):
        program = build(folder, 'threads-' + compiler, THREADS, compiler, '-fsanitize=thread', '-D_GNU_SOURCE', '-g', *libraries)
        for patch in ('first', 'off'):
            expect(call(program, env={'VERBATIM_PATCH': patch}), 7, 'kernel has another handler\nthreads ended')


def check_musl(folder):
    if not shutil.which('musl-gcc'):
        raise peers.Skip('musl-gcc is not installed')
    program = build(folder, 'musl', FILES, 'musl-gcc')
    expect(call(program), 7, 'state 4: ACTIVE', 'linked with musl.*sees the files of the card, but not libibverbs')
    expect(call('sh', '-c', f'{program}; exit $?'), 7, 'state 4: ACTIVE')


def run():
    with tempfile.TemporaryDirectory() as folder:
        check_address_sanitizer(folder)
        check_thread_sanitizer(folder)
        check_musl(folder)


peers.main(run)
