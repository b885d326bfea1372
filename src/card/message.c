// SPDX-License-Identifier: MIT
/* Owns lists of pieces of memory: cutting and copying. The rest of message.h is in line there. */
#include "card/message.h"

#include <errno.h>

#include "base/fault.h"

uint32_t vb_message_slice(const struct iovec *iov, int cnt, uint64_t offset, uint32_t len,
			  struct iovec *out)
{
	uint32_t n = 0;

	for (int i = 0; i < cnt && len; i++) {
		size_t take;

		if (offset >= iov[i].iov_len) {
			offset -= iov[i].iov_len;
			continue;
		}
		take = iov[i].iov_len - offset < len ? iov[i].iov_len - offset : len;
		out[n++] = (struct iovec){ (char *)iov[i].iov_base + offset, take };
		len -= (uint32_t)take;
		offset = 0;
	}
	return n;
}

int vb_message_copy(const struct iovec *to, int to_cnt, uint64_t offset, const struct iovec *from,
		    uint32_t from_cnt)
{
	struct iovec part[VB_WR_MAX_SGE];

	for (uint32_t i = 0; i < from_cnt; i++) {
		const char *src = from[i].iov_base;
		uint32_t n = vb_message_slice(to, to_cnt, offset, (uint32_t)from[i].iov_len, part);

		for (uint32_t k = 0; k < n; k++) {
			if (vb_fault_copy(part[k].iov_base, src, part[k].iov_len))
				return -EFAULT;
			src += part[k].iov_len;
		}
		offset += from[i].iov_len;
	}
	return 0;
}
