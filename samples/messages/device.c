// SPDX-License-Identifier: MIT
/* Text from the accelerator: one line per level, to one stream or to all of them. */
#include <libflexio-dev/flexio_dev.h>

__dpa_rpc__ uint64_t talk(int stream)
{
	flexio_dev_msg_err(stream, "an error, level %d\n", FLEXIO_MSG_DEV_ERROR);
	flexio_dev_msg_warn(stream, "a warning, level %d\n", FLEXIO_MSG_DEV_WARN);
	flexio_dev_msg_info(stream, "for information, level %d\n", FLEXIO_MSG_DEV_INFO);
	flexio_dev_msg_dbg(stream, "for debugging, level %d\n", FLEXIO_MSG_DEV_DEBUG);
	return 0;
}

__dpa_rpc__ uint64_t announce(uint32_t number)
{
	return flexio_dev_msg_broadcast(FLEXIO_MSG_DEV_ALWAYS_PRINT, "to all: number %u\n", number);
}
