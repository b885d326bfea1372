/* SPDX-License-Identifier: MIT */
/*
 * What holds for a whole program, so that each case is a process of its own: which version may be set first, where the
 * time limit of calls comes from (the log says which one it was: no clock is asked), and that the error descriptor
 * wakes an epoll that waits for it.
 */
#include "check.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/wait.h>

extern struct flexio_app *slow;
extern flexio_func_t endless, fault;

static const uint64_t versions[] = {
	0,
	FLEXIO_VER(24, 1, 0),
	FLEXIO_VER(24, 7, 0),
	FLEXIO_VER(24, 10, 0),
	FLEXIO_VER(25, 1, 0),
	FLEXIO_VER(25, 4, 0),
	FLEXIO_VER(25, 7, 0),
	FLEXIO_VER(25, 10, 0),
	FLEXIO_VER(26, 1, 0),
	FLEXIO_VER(26, 4, 0),
};

static void version_first(uint64_t version)
{
	CHECK(flexio_version_set(FLEXIO_CURRENT_VERSION + 1) == FLEXIO_STATUS_FAILED);
	OK(flexio_version_set(version));
	OK(flexio_version_set(version));
	CHECK(flexio_version_set(version + 1) == FLEXIO_STATUS_FAILED);
}

/* Its log line goes to the parent, which knows what to expect. */
static void call_until_limit(uint64_t config)
{
	struct ibv_context *ctx;
	struct flexio_process *process;
	uint64_t result = 1;

	unsetenv("VERBATIM_RPC_TIMEOUT_MS");
	if (config)
		setenv("VERBATIM_CONFIG", "limits.conf", 1);
	ctx = open_device();
	OK(flexio_process_create(ctx, slow, NULL, &process));
	CHECK(flexio_process_call(process, endless, &result) == FLEXIO_STATUS_TIMEOUT);
	CHECK(result == 1 && flexio_err_status_get(process) == 0);
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
}

static void *call_fault(void *process)
{
	uint64_t result;

	usleep(20000); /* most likely the other one waits by now; it works either way */
	CHECK(flexio_process_call(process, fault, &result, (uint64_t)8) == FLEXIO_STATUS_FATAL_ERR);
	return NULL;
}

static void wait_for_error(uint64_t unused)
{
	struct ibv_context *ctx = open_device();
	struct epoll_event event = { .events = EPOLLIN }, got;
	struct flexio_process *process;
	int epoll = epoll_create1(0);
	pthread_t thread;

	(void)unused;
	OK(flexio_process_create(ctx, slow, NULL, &process));
	CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, flexio_err_handler_fd(process), &event));
	CHECK(epoll_wait(epoll, &got, 1, 0) == 0);
	CHECK(!pthread_create(&thread, NULL, call_fault, process));
	CHECK(epoll_wait(epoll, &got, 1, 60000) == 1 && got.events == EPOLLIN);
	CHECK(flexio_err_status_get(process) != 0);
	CHECK(!pthread_join(thread, NULL));
	close(epoll);
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
}

/* Run it in a process of its own; says (or NULL) must be on its standard error. */
static void apart(void (*function)(uint64_t), uint64_t arg, const char *says)
{
	char text[4096];
	size_t len = 0;
	ssize_t n;
	int fds[2], status;
	pid_t pid;

	CHECK(!pipe(fds));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		close(fds[1]);
		function(arg);
		_exit(0);
	}
	close(fds[1]);
	while (len < sizeof(text) - 1 && (n = read(fds[0], text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = 0;
	close(fds[0]);
	CHECK(waitpid(pid, &status, 0) == pid);
	if (status || (says && !strstr(text, says))) {
		fprintf(stderr, "status %d, not '%s' but: %s\n", status, says ? says : "", text);
		CHECK(!"the process of its own");
	}
}

int main(void)
{
	FILE *config = fopen("limits.conf", "w");

	CHECK(config);
	fputs("[adapter mlx5_0]\nrpc_timeout = 250\n", config);
	fclose(config);
	for (unsigned int i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
		apart(version_first, versions[i], NULL);
	apart(call_until_limit, 1, "longer than 250 ms");
	apart(call_until_limit, 0, "longer than 6000 ms");
	apart(wait_for_error, 0, NULL);
	return 0;
}
