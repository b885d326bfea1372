/* SPDX-License-Identifier: MIT */
/* What both halves of the program of frames know: a send WQE segment by segment, and what a handler of frames saw. */
#pragma once

#include "queue_work.h"

enum { FRAMES_HEADER = 128, FRAMES_PARTS = 8, FRAMES_SEEN = 16 };

struct frames_send {
	struct work_cq cq;
	struct work_qp sq;
	uint32_t type;   /* FLEXIO_CTRL_SEG_* */
	uint32_t opcode; /* not 0: modifier << 24 | opcode instead of the type's */
	uint32_t flags;  /* cs_swp_flags */
	uint32_t swp;    /* offsets */
	uint32_t mss;
	uint32_t
		inline_size; /* inline_hdr_bsz as it is: bytes of header, or bits that insert a tag */
	uint8_t header[FRAMES_HEADER];
	uint32_t parts;
	uint32_t lkey;
	struct {
		uint64_t addr;
		uint32_t len, spare;
	} part[FRAMES_PARTS];
	struct work_cqe cqe; /* of the WQE */
};

struct frames_seen {
	struct work_cq cq;
	uint64_t rq_dbr;
	uint64_t runs, frames; /* frames is written last */
	uint8_t cqe[FRAMES_SEEN][64];
	uint32_t csum_ok[FRAMES_SEEN]; /* as the library reads it */
};
