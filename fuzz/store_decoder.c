// SPDX-License-Identifier: MIT
/*
 * Random bytes as instruction and registers of a store to a doorbell page, or of a load: the decoder never reads outside
 * of what it is given, and what it says it has found makes sense.
 *
 *	16 * 8 bytes   general registers
 *	8 bytes        instruction pointer
 *	1 byte         how much of the vector registers' image there is
 *	the rest       the instruction, up to 15 bytes; what is left fills the image
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "host/patch/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = VB_STORE_GPRS * 8 + 9, IMAGE = 4096 };

static void check(const struct vb_store *store, const struct vb_store_regs *regs, size_t len)
{
	if (!store->length || store->length > len || !store->size || store->size > VB_STORE_MAX)
		abort();
	switch (store->kind) {
	case VB_STORE_EXCHANGE:
		if (store->reg >= VB_STORE_GPRS || store->size > 8)
			abort();
		break;
	case VB_STORE_FILL:
	case VB_STORE_COPY:
		if (store->size > 8 || (uint32_t)store->addr != (uint32_t)regs->gpr[VB_GPR_DI])
			abort();
		break;
	case VB_STORE_BLOCK:
		if (store->size != VB_STORE_MAX)
			abort();
		break;
	case VB_STORE_PLAIN:
		break;
	default:
		abort();
	}
}

static void check_load(const struct vb_load *load, struct vb_store_regs *regs, size_t len)
{
	uint64_t before[VB_STORE_GPRS];

	if (!load->length || load->length > len || load->reg >= VB_STORE_GPRS || load->size > 8 ||
	    load->size & (load->size - 1) || load->width < load->size)
		abort();
	memcpy(before, regs->gpr, sizeof(before));
	vb_load_finish(load, regs->rip, regs);
	for (unsigned int i = 0; i < VB_STORE_GPRS; i++)
		if (i != load->reg && regs->gpr[i] != before[i])
			abort();
	if (load->width < 4 && (regs->gpr[load->reg] ^ before[load->reg]) >> 16)
		abort();
}

static uint64_t segment_base(bool gs)
{
	return gs ? 0x1234 : 0x5678;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const size_t sizes[] = { 0, 512, 576, 832, 2048, IMAGE };
	struct vb_store_regs regs = { 0 };
	struct vb_store store;
	struct vb_load load;
	uint8_t *code, *image;
	size_t len;

	if (size <= HEADER)
		return 0;
	memcpy(regs.gpr, data, sizeof(regs.gpr));
	regs.segment_base = segment_base;
	memcpy(&regs.rip, data + sizeof(regs.gpr), 8);
	regs.fpstate_size = sizes[data[HEADER - 1] % 6];
	data += HEADER;
	size -= HEADER;
	len = size < VB_STORE_CODE_MAX ? size : VB_STORE_CODE_MAX;
	/* Heap blocks of exactly that size: reading beyond them is seen. */
	code = malloc(len);
	image = regs.fpstate_size ? calloc(1, regs.fpstate_size) : NULL;
	memcpy(code, data, len);
	if (image) {
		memcpy(image, data, size < regs.fpstate_size ? size : regs.fpstate_size);
		if (regs.fpstate_size > 512)
			memcpy(image + 464, "SXPF", 4); /* the kernel's mark of an XSAVE image */
		regs.fpstate = image;
	}
	if (!vb_store_decode(code, len, &regs, &store))
		check(&store, &regs, len);
	if (!vb_load_decode(code, len, &regs, &load))
		check_load(&load, &regs, len);
	free(code);
	free(image);
	return 0;
}
