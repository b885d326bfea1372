// SPDX-License-Identifier: MIT
/*
 * ibv_close_device() closes async_fd last, as rdma-core does. DPDK's net_mlx4 stops waiting for it only after the call:
 * a card that takes long to close in between leaves it with a descriptor that is not open.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "../programs/common.h"

static int watched = -1;
static bool closed;
static int later;

/* In front of libc's, for the libraries too. */
__attribute__((visibility("default"))) int close(int fd)
{
	if (fd == watched)
		closed = true;
	else if (closed)
		later++;
	return (int)syscall(SYS_close, fd);
}

static void fail_case(const char *file, int line)
{
	_fail(file, line);
}

static void test_async_fd_last(void **state)
{
	struct ibv_context *ctx = device_open();

	(void)state;
	watched = ctx->async_fd;
	check_eq(ibv_close_device(ctx), 0);
	check(closed, "async_fd is still open");
	check_eq(later, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_async_fd_last) };

	test_fail_hook = fail_case;
	return cmocka_run_group_tests_name("close", tests, NULL, NULL) != 0;
}
