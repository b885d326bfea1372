// SPDX-License-Identifier: MIT
/* Device half of messages.c: every way to say something. */
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-libc/stdio.h>

__dpa_rpc__ uint64_t say_all(int stream, uint64_t number)
{
	struct flexio_dev_thread_ctx *ctx;

	flexio_dev_get_thread_ctx(&ctx);
	flexio_dev_print("print %lu\n", number);
	flexio_dev_msg_dflt(FLEXIO_MSG_DEV_INFO, "default %s\n", "text");
	flexio_dev_msg_broadcast(FLEXIO_MSG_DEV_ERROR, "to all %d\n", -1);
	flexio_dev_msg_err(stream, "error %x\n", 0xbeef);
	flexio_dev_msg_warn(stream, "warning\n");
	flexio_dev_msg_info(stream, "info\n");
	flexio_dev_msg_dbg(stream, "debug\n");
	flexio_dev_puts(ctx, (char *)"puts\n");
	printf("printf %s", "without an end");
	return (uint64_t)flexio_dev_msg(stream, FLEXIO_MSG_DEV_ALWAYS_PRINT, "five\n");
}
