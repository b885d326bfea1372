// SPDX-License-Identifier: MIT
/*
 * Building a program: instructions, labels, data; then sizes, addresses and bytes.
 *
 * Layout starts with every instruction that wants it in its 16-bit form and takes back those whose
 * label turns out too far away, until nothing changes; sizes only grow, so that ends.
 */
#include "rv.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *grow(void *array, size_t *room, size_t need, size_t size)
{
	if (need <= *room)
		return array;
	*room = need * 2 + 64;
	array = realloc(array, *room * size);
	if (!array) {
		fprintf(stderr, "out of memory\n");
		exit(99);
	}
	return array;
}

void rv_init(struct rv_prog *p)
{
	memset(p, 0, sizeof(*p));
}

void rv_free(struct rv_prog *p)
{
	free(p->insn);
	free(p->label);
	free(p->label_data);
	free(p->text);
	free(p->data);
	free(p->word);
	rv_init(p);
}

struct rv_insn *rv_emit(struct rv_prog *p, enum rv_op op, unsigned rd, unsigned rs1, unsigned rs2,
			i64 imm)
{
	struct rv_insn *i;

	p->insn = grow(p->insn, &p->insn_room, p->count + 1, sizeof(*p->insn));
	i = &p->insn[p->count++];
	*i = (struct rv_insn){ .op = op,
			       .rd = (uint8_t)rd,
			       .rs1 = (uint8_t)rs1,
			       .rs2 = (uint8_t)rs2,
			       .imm = imm,
			       .compress = true };
	return i;
}

static void fixed(struct rv_insn *i, enum rv_fix fix, int label)
{
	i->fix = fix;
	i->label = label;
}

void rv_branch(struct rv_prog *p, enum rv_op op, unsigned rs1, unsigned rs2, int label)
{
	fixed(rv_emit(p, op, 0, rs1, rs2, 0), RV_FIX_PC, label);
}

void rv_jump(struct rv_prog *p, unsigned rd, int label)
{
	fixed(rv_emit(p, OP_jal, rd, 0, 0, 0), RV_FIX_PC, label);
}

void rv_la(struct rv_prog *p, unsigned rd, int label)
{
	fixed(rv_emit(p, OP_auipc, rd, 0, 0, 0), RV_FIX_HI, label);
	fixed(rv_emit(p, OP_addi, rd, rd, 0, 0), RV_FIX_LO, label);
}

void rv_li(struct rv_prog *p, unsigned rd, u64 value)
{
	i64 low = (i64)(value << 52) >> 52, high = (i64)(value - (u64)low);
	unsigned shift;

	if ((i64)value == (i32)value) {
		if (!high) {
			rv_emit(p, OP_addi, rd, 0, 0, low);
			return;
		}
		rv_emit(p, OP_lui, rd, 0, 0, (i32)high);
		if (low)
			rv_emit(p, OP_addiw, rd, rd, 0, low);
		return;
	}
	high >>= 12;
	for (shift = 12; !(high & 1); shift++)
		high >>= 1;
	rv_li(p, rd, ((u64)high << shift) >> shift);
	rv_emit(p, OP_slli, rd, rd, 0, shift);
	if (low)
		rv_emit(p, OP_addi, rd, rd, 0, low);
}

int rv_label(struct rv_prog *p)
{
	size_t room = p->label_room;

	p->label = grow(p->label, &p->label_room, p->labels + 1, sizeof(*p->label));
	p->label_data = grow(p->label_data, &room, p->labels + 1, sizeof(*p->label_data));
	p->label[p->labels] = -1;
	p->label_data[p->labels] = 0;
	return (int)p->labels++;
}

void rv_place(struct rv_prog *p, int label)
{
	p->label[label] = (int)p->count;
}

size_t rv_data(struct rv_prog *p, const void *bytes, size_t size, size_t align)
{
	size_t at = (p->data_size + align - 1) / align * align;

	p->data = grow(p->data, &p->data_room, at + size, 1);
	memset(p->data + p->data_size, 0, at - p->data_size);
	if (bytes)
		memcpy(p->data + at, bytes, size);
	else
		memset(p->data + at, 0, size);
	p->data_size = at + size;
	return at;
}

int rv_data_label(struct rv_prog *p, size_t offset)
{
	int label = rv_label(p);

	p->label_data[label] = offset + 1;
	return label;
}

void rv_data_word(struct rv_prog *p, size_t offset, int label)
{
	p->word = grow(p->word, &p->word_room, p->words + 1, sizeof(*p->word));
	p->word[p->words].offset = offset;
	p->word[p->words++].label = label;
}

u64 rv_address(const struct rv_prog *p, int label)
{
	int at = p->label[label];

	if (p->label_data[label])
		return p->data_base + p->label_data[label] - 1;
	if ((size_t)at == p->count)
		return p->insn[at - 1].pc + p->insn[at - 1].size;
	return p->insn[at].pc;
}

static void resolve(const struct rv_prog *p, struct rv_insn *i)
{
	i64 distance = (i64)(rv_address(p, i->label) - i->pc);

	switch (i->fix) {
	case RV_FIX_PC:
		i->imm = distance;
		break;
	case RV_FIX_HI:
		i->imm = (distance + 0x800) & ~0xfffll;
		break;
	case RV_FIX_LO2:
	case RV_FIX_LO:
		distance = (i64)(rv_address(p, i->label) - i[i->fix == RV_FIX_LO ? -1 : -2].pc);
		i->imm = distance - ((distance + 0x800) & ~0xfffll);
		break;
	case RV_FIX_NONE:
		break;
	}
}

static void assign_addresses(struct rv_prog *p)
{
	u64 pc = RV_TEXT;

	for (size_t n = 0; n < p->count; n++) {
		p->insn[n].pc = pc;
		pc += p->insn[n].size;
	}
	p->text_size = pc - RV_TEXT;
	p->data_base = (pc + 2 * RV_PAGE - 1) & ~(RV_PAGE - 1);
}

/* One pass of fix-ups; true while a 16-bit form no longer reaches its label. */
static bool settle(struct rv_prog *p)
{
	bool again = false;

	for (size_t n = 0; n < p->count; n++) {
		struct rv_insn *i = &p->insn[n];

		if (!i->fix)
			continue;
		resolve(p, i);
		if (i->size == 2 && !rv_compress(i)) {
			i->size = 4;
			again = true;
		}
	}
	return again;
}

void rv_layout(struct rv_prog *p)
{
	for (size_t n = 0; n < p->count; n++) {
		struct rv_insn *i = &p->insn[n];

		/* The low part of an address pair is only known at the end, so it stays wide. */
		if (i->fix == RV_FIX_HI || i->fix == RV_FIX_LO || i->fix == RV_FIX_LO2)
			i->compress = false;
		i->size = i->compress && rv_compress(i) ? 2 : 4;
	}
	do
		assign_addresses(p);
	while (settle(p));
	p->text = calloc(1, p->text_size);
	for (size_t n = 0; n < p->count; n++) {
		const struct rv_insn *i = &p->insn[n];
		u32 bits = i->size == 2 ? rv_compress(i) : rv_encode(i);

		memcpy(p->text + (i->pc - RV_TEXT), &bits, i->size);
	}
	for (size_t n = 0; n < p->words; n++) {
		u64 v = rv_address(p, p->word[n].label);

		memcpy(p->data + p->word[n].offset, &v, 8);
	}
}

/*
 *   0        64      176          4096              4096 + text, page aligned
 *   | Ehdr   | Phdr | .....       | text (R E)      | data (RW)
 */
size_t rv_elf_image(const struct rv_prog *p, uint8_t **image)
{
	size_t data_at = RV_PAGE + (p->data_base - RV_TEXT), size = data_at + p->data_size;
	Elf64_Ehdr eh = { .e_type = ET_EXEC,
			  .e_machine = EM_RISCV,
			  .e_version = 1,
			  .e_entry = RV_TEXT,
			  .e_phoff = sizeof(eh),
			  .e_flags = EF_RISCV_RVC,
			  .e_ehsize = sizeof(eh),
			  .e_phentsize = sizeof(Elf64_Phdr),
			  .e_phnum = p->data_size ? 2 : 1,
			  .e_shentsize = sizeof(Elf64_Shdr) };
	Elf64_Phdr ph[2] = {
		{ .p_type = PT_LOAD,
		  .p_flags = PF_R | PF_X,
		  .p_offset = RV_PAGE,
		  .p_vaddr = RV_TEXT,
		  .p_paddr = RV_TEXT,
		  .p_filesz = p->text_size,
		  .p_memsz = p->text_size,
		  .p_align = RV_PAGE },
		{ .p_type = PT_LOAD,
		  .p_flags = PF_R | PF_W,
		  .p_offset = data_at,
		  .p_vaddr = p->data_base,
		  .p_paddr = p->data_base,
		  .p_filesz = p->data_size,
		  .p_memsz = p->data_size,
		  .p_align = RV_PAGE },
	};
	uint8_t *f = calloc(1, size);

	memcpy(eh.e_ident, ELFMAG, SELFMAG);
	eh.e_ident[EI_CLASS] = ELFCLASS64;
	eh.e_ident[EI_DATA] = ELFDATA2LSB;
	eh.e_ident[EI_VERSION] = EV_CURRENT;
	memcpy(f, &eh, sizeof(eh));
	memcpy(f + sizeof(eh), ph, sizeof(ph));
	memcpy(f + RV_PAGE, p->text, p->text_size);
	if (p->data_size)
		memcpy(f + data_at, p->data, p->data_size);
	*image = f;
	return size;
}

int rv_write_elf(const struct rv_prog *p, int fd)
{
	uint8_t *image;
	size_t size = rv_elf_image(p, &image), done = 0;

	while (done < size) {
		ssize_t n = write(fd, image + done, size - done);

		if (n <= 0)
			break;
		done += (size_t)n;
	}
	free(image);
	return done == size ? 0 : -1;
}
