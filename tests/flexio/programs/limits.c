// SPDX-License-Identifier: MIT
/*
 * What holds for a whole program, so that each case is a process of its own: every version that programs were written
 * for may be set first, and a call that does not end is given 6 s (the log says so: no clock is asked).
 */
#include "check.h"

#include <sys/wait.h>

extern struct flexio_app *slow;
extern flexio_func_t endless;

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
static void call_until_limit(uint64_t unused)
{
	struct ibv_context *ctx;
	struct flexio_process *process;
	uint64_t result = 1;

	(void)unused;
	unsetenv("VERBATIM_RPC_TIMEOUT_MS");
	ctx = open_device();
	OK(flexio_process_create(ctx, slow, NULL, &process));
	CHECK(flexio_process_call(process, endless, &result) == FLEXIO_STATUS_TIMEOUT);
	CHECK(result == 1 && flexio_err_status_get(process) == 0);
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
	for (unsigned int i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
		apart(version_first, versions[i], NULL);
	apart(call_until_limit, 0, "longer than 6000 ms");
	return 0;
}
