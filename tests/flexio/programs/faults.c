// SPDX-License-Identifier: MIT
/* Errors of device code as programs meet them: error handlers, the error fd with poll and epoll, codes. */
#include "check.h"

#include <poll.h>
#include <sys/epoll.h>

extern struct flexio_app *brave;
extern flexio_func_t on_error, on_error_short, on_error_back, get_seen, store, fail_with, finish,
	stumble, store_event, kick;

static struct ibv_context *ctx;

static struct flexio_process *make(flexio_func_t *handler)
{
	struct flexio_process *process;

	OK(flexio_process_create(ctx, brave, NULL, &process));
	if (handler)
		OK(flexio_process_error_handler_set(process, handler));
	return process;
}

static uint64_t seen(struct flexio_process *process, uint64_t index)
{
	uint64_t value;

	OK(flexio_process_call(process, &get_seen, &value, index));
	return value;
}

static int wait_fd(struct flexio_process *process, int ms)
{
	struct pollfd fd = { .fd = flexio_err_handler_fd(process), .events = POLLIN };
	struct epoll_event event = { .events = EPOLLIN }, got;
	int ep = epoll_create1(EPOLL_CLOEXEC), n;

	CHECK(ep >= 0 && !epoll_ctl(ep, EPOLL_CTL_ADD, fd.fd, &event));
	n = poll(&fd, 1, ms);
	CHECK(epoll_wait(ep, &got, 1, 0) == n);
	close(ep);
	return n;
}

static void recover(void)
{
	flexio_msg_stream_attr_t attr = { .data_bsize = 4096, .level = FLEXIO_MSG_DEV_INFO };
	struct flexio_process *process = make(on_error);
	struct flexio_event_handler_attr eh = { .host_stub_func = store_event };
	struct flexio_event_handler *handler;
	struct flexio_msg_stream *stream;
	FILE *out = tmpfile();
	flexio_uintptr_t data;
	char line[100];

	CHECK(out);
	OK(flexio_msg_stream_create(process, &attr, out, NULL, &stream));
	CHECK(flexio_process_call(process, &store, NULL, (uint64_t)8) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_err_status_get(process) == 0 && wait_fd(process, 0) == 0);
	CHECK(seen(process, 0) == 1 && seen(process, 1) == 8 && seen(process, 2) == 8);

	OK(flexio_copy_from_host(process, (uint64_t[]){ 16, 0 }, 16, &data));
	OK(flexio_event_handler_create(process, &eh, &handler));
	OK(flexio_event_handler_run(handler, data));
	for (uint64_t i = 1; i <= 20; i++) {
		OK(flexio_process_call(process, &kick, NULL,
				       flexio_event_handler_get_activation_id(handler)));
		dev_await(process, data + 8, i);
		while (seen(process, 0) < 1 + i)
			usleep(500);
		CHECK(seen(process, 3) == flexio_event_handler_get_id(handler));
	}
	CHECK(flexio_process_error_handler_set(process, on_error) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_err_status_get(process) == 0 && wait_fd(process, 0) == 0);
	OK(flexio_event_handler_destroy(handler));
	OK(flexio_msg_stream_destroy(stream));
	rewind(out);
	CHECK(fgets(line, sizeof(line), out) && strstr(line, "DPA error handler: 8"));
	fclose(out);
	OK(flexio_process_destroy(process));

	process = make(on_error_short);
	CHECK(flexio_process_call(process, &store, NULL, (uint64_t)8) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_err_status_get(process) == 0 && seen(process, 0) == 1);
	OK(flexio_process_destroy(process));
}

static void end_with(flexio_func_t *handler, flexio_func_t *func, uint64_t arg, int status)
{
	struct flexio_process *process = make(handler);

	CHECK(flexio_err_status_get(process) == 0 && wait_fd(process, 0) == 0);
	CHECK(flexio_process_call(process, func, NULL, arg) == FLEXIO_STATUS_FATAL_ERR);
	CHECK(wait_fd(process, -1) == 1);
	CHECK(flexio_err_status_get(process) == status);
	CHECK(flexio_process_call(process, &get_seen, NULL, (uint64_t)0) ==
	      FLEXIO_STATUS_FATAL_ERR);
	OK(flexio_process_destroy(process));
}

int main(void)
{
	struct flexio_process *process;
	uint64_t value;

	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1); /* a busy machine may be slow */
	ctx = open_device();
	CHECK(flexio_err_status_get(NULL) == 0);
	recover();
	end_with(NULL, &store, 8, 8);
	end_with(on_error_back, &store, 8, 8);
	end_with(on_error, &fail_with, 0x80, 0x80);
	end_with(on_error, &fail_with, 0xff, 0xff);
	end_with(NULL, &fail_with, 0x7f, 0x42); /* FLEXIO_DEV_ERROR_ILLEGAL_ERR */
	end_with(NULL, &fail_with, 0, 0x42);
	end_with(on_error, &finish, 0, 0x40);

	process = make(NULL);
	OK(flexio_process_call(process, &stumble, &value));
	CHECK(value == (22 | 22 << 16)); /* EINVAL, and nothing after the reset */
	CHECK(flexio_err_status_get(process) == 0);
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
