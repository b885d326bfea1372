// SPDX-License-Identifier: MIT
/*
 * Owns memory packets: device memory and windows as the selected thread sees them. A process without
 * threads still has memory, but no windows.
 */
#include "gdb/session.h"

/* Small enough that most of them lie in one mapping. */
#define STEP 64

/* Part by part, so that what is there up to a hole is shown. */
static int copy_process(struct session *s, uint64_t addr, char *bytes, uint64_t len, bool write,
			uint64_t *done)
{
	int err = s->state == SESSION_STOPPED ? 0 : -EINVAL;

	for (*done = 0; !err && *done < len;) {
		uint64_t at = addr + *done, n = STEP - at % STEP;

		if (n > len - *done)
			n = len - *done;
		err = write ? vb_dpa_mem_write(s->target->process, at, bytes + *done, n)
			    : vb_dpa_mem_read(s->target->process, at, bytes + *done, n);
		if (!err)
			*done += n;
	}
	return err;
}

int vb_gdb_copy(struct session *s, uint64_t addr, char *bytes, uint64_t len, bool write,
		uint64_t *done)
{
	int err = -ESRCH;

	*done = 0;
	if (addr + len < addr)
		return -EFAULT;
	if (s->thread != NO_THREAD)
		err = write ? vb_dpa_debug_write(s->debug, s->thread, addr, bytes, len, done)
			    : vb_dpa_debug_read(s->debug, s->thread, addr, bytes, len, done);
	if (!err)
		*done = len;
	return err == -ESRCH ? copy_process(s, addr, bytes, len, write, done) : err;
}

void vb_gdb_read_memory(struct session *s, const char *at)
{
	char bytes[PACKET_MAX / 2 - 1];
	uint64_t addr, len, done;
	int err;

	if (!vb_gdb_get_number(&at, &addr) || !vb_gdb_get_char(&at, ',') ||
	    !vb_gdb_get_number(&at, &len) || *at) {
		vb_gdb_put_error(s, -EINVAL);
		return;
	}
	/* Less than was asked for is an answer, too. */
	if (len > sizeof(bytes))
		len = sizeof(bytes);
	err = vb_gdb_copy(s, addr, bytes, len, false, &done);
	if (err && !done)
		vb_gdb_put_error(s, err);
	else
		vb_gdb_put_hex(s, bytes, done);
}

void vb_gdb_write_memory(struct session *s, const char *at, bool binary)
{
	char bytes[PACKET_MAX / 2], *data = bytes;
	uint64_t addr, len, done;
	int err = 0;

	if (!vb_gdb_get_number(&at, &addr) || !vb_gdb_get_char(&at, ',') ||
	    !vb_gdb_get_number(&at, &len) || !vb_gdb_get_char(&at, ':')) {
		vb_gdb_put_error(s, -EINVAL);
		return;
	}
	if (binary) {
		data = s->body + (at - s->body);
		if (vb_gdb_unescape(data, s->body_len - (size_t)(at - s->body)) != len)
			err = -EINVAL;
	} else if (len > sizeof(bytes) || !vb_gdb_get_hex(&at, bytes, len) || *at) {
		err = -EINVAL;
	}
	/* gdb asks with no bytes whether X is known. */
	if (!err && len)
		err = vb_gdb_copy(s, addr, data, len, true, &done);
	vb_gdb_put_result(s, err);
}
