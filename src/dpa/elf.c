// SPDX-License-Identifier: MIT
/*
 * Owns the reading of program files. A file is hostile: libelf reads its tables, every number that
 * leaves here was checked against the file's length or the guest's limit, and nothing is mapped
 * before all of it was read.
 *
 *   vb_elf_read   header, segments, TLS, dynamic section, symbols; no guest memory yet
 *   vb_elf_load   bytes of the segments, then relocations; the caller mapped them writable
 */
#include "dpa/internal.h"

#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIE_BASE     0x10000ULL
#define SYMBOLS_MAX  (1U << 20)
#define NAME_LEN_MAX 512

#ifndef EF_RISCV_FLOAT_ABI
#define EF_RISCV_FLOAT_ABI 0x6
#endif
#ifndef EF_RISCV_RVE
#define EF_RISCV_RVE 0x8
#endif

int vb_elf_fail(struct vb_dpa_error *error, int code, const char *fmt, ...)
{
	va_list args;

	if (error) {
		va_start(args, fmt);
		vsnprintf(error->text, sizeof(error->text), fmt, args);
		va_end(args);
	}
	return code;
}

/* ---- header and segments ---- */

static int check_header(Elf *elf, GElf_Ehdr *ehdr, struct vb_dpa_error *error)
{
	if (elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, ehdr))
		return vb_elf_fail(error, -ENOEXEC, "not an ELF file");
	if (ehdr->e_ident[EI_CLASS] != ELFCLASS64 || ehdr->e_ident[EI_DATA] != ELFDATA2LSB)
		return vb_elf_fail(error, -ENOEXEC, "not a 64-bit little-endian ELF file");
	if (ehdr->e_machine != EM_RISCV)
		return vb_elf_fail(error, -ENOEXEC, "not a RISC-V program (machine %u)",
				   ehdr->e_machine);
	if (ehdr->e_type != ET_EXEC && ehdr->e_type != ET_DYN)
		return vb_elf_fail(error, -ENOEXEC, "not an executable (ELF type %u)",
				   ehdr->e_type);
	if (ehdr->e_phentsize != sizeof(Elf64_Phdr))
		return vb_elf_fail(error, -ENOEXEC, "program headers of %u bytes, not %zu",
				   ehdr->e_phentsize, sizeof(Elf64_Phdr));
	if (ehdr->e_flags & EF_RISCV_FLOAT_ABI)
		return vb_elf_fail(error, -ENOEXEC,
				   "uses the hard-float ABI; compile with -mabi=lp64");
	if (ehdr->e_flags & EF_RISCV_RVE)
		return vb_elf_fail(error, -ENOEXEC,
				   "uses the embedded ABI (RVE); compile with -mabi=lp64");
	return 0;
}

static int elf_add_segment(const GElf_Phdr *ph, size_t file_len, uint64_t limit,
			   struct elf_program *program, struct vb_dpa_error *error)
{
	uint64_t addr = ph->p_vaddr + program->bias;
	struct elf_segment *seg;

	if (!ph->p_memsz)
		return 0;
	if (ph->p_filesz > ph->p_memsz || ph->p_offset > file_len ||
	    ph->p_filesz > file_len - ph->p_offset)
		return vb_elf_fail(error, -ENOEXEC, "a segment at 0x%llx lies outside of the file",
				   (unsigned long long)ph->p_vaddr);
	if (ph->p_vaddr > limit || addr < 0x1000 || addr >= limit || ph->p_memsz > limit - addr)
		return vb_elf_fail(error, -ENOEXEC,
				   "a segment at 0x%llx does not fit guest memory [0x1000, 0x%llx)",
				   (unsigned long long)addr, (unsigned long long)limit);
	if ((ph->p_flags & (PF_W | PF_X)) == (PF_W | PF_X))
		return vb_elf_fail(error, -ENOEXEC,
				   "the segment at 0x%llx is writable and executable",
				   (unsigned long long)addr);
	if (program->nsegments == sizeof(program->segments) / sizeof(program->segments[0]))
		return vb_elf_fail(error, -ENOEXEC, "too many segments");
	/*
	 * Each byte of the file is loaded at most once: what a file costs follows from its length.
	 */
	program->loaded += ph->p_filesz;
	if (program->loaded > file_len)
		return vb_elf_fail(error, -ENOEXEC, "segments share bytes of the file");
	for (unsigned int i = 0; i < program->nsegments; i++) {
		const struct elf_segment *other = &program->segments[i];

		if (addr < other->addr + other->memsz && other->addr < addr + ph->p_memsz)
			return vb_elf_fail(error, -ENOEXEC, "two segments overlap at 0x%llx",
					   (unsigned long long)addr);
	}
	seg = &program->segments[program->nsegments++];
	*seg = (struct elf_segment){
		.addr = addr, .filesz = ph->p_filesz, .memsz = ph->p_memsz, .offset = ph->p_offset
	};
	seg->rights = (ph->p_flags & PF_R ? VB_DPA_READ : 0) |
		      (ph->p_flags & PF_W ? VB_DPA_WRITE | VB_DPA_READ : 0) |
		      (ph->p_flags & PF_X ? VB_DPA_EXEC : 0);
	return 0;
}

/*
 * Are [addr, addr + len) bytes of the file? What the loader reads must be, or zeros could be read
 * without end.
 */
static bool elf_in_file(const struct elf_program *program, uint64_t addr, uint64_t len)
{
	for (unsigned int i = 0; i < program->nsegments; i++) {
		const struct elf_segment *seg = &program->segments[i];

		if (addr >= seg->addr && addr - seg->addr <= seg->filesz &&
		    len <= seg->filesz - (addr - seg->addr))
			return true;
	}
	return false;
}

/* Does the memory of a loaded segment with these rights hold [addr, addr + len)? */
static bool in_segment(const struct elf_program *program, uint64_t addr, uint64_t len,
		       unsigned int rights)
{
	for (unsigned int i = 0; i < program->nsegments; i++) {
		const struct elf_segment *seg = &program->segments[i];

		if (addr >= seg->addr && addr - seg->addr <= seg->memsz &&
		    len <= seg->memsz - (addr - seg->addr) && (seg->rights & rights) == rights)
			return true;
	}
	return false;
}

static int elf_read_tls(const GElf_Phdr *ph, struct elf_program *program,
			struct vb_dpa_error *error)
{
	uint64_t addr = ph->p_vaddr + program->bias;
	uint64_t align = ph->p_align ? ph->p_align : 1;

	if (!ph->p_memsz)
		return 0;
	if (ph->p_memsz > 1U << 24 || ph->p_filesz > ph->p_memsz || align > 4096 ||
	    align & (align - 1))
		return vb_elf_fail(error, -ENOEXEC, "a bad TLS segment");
	if (ph->p_filesz && !in_segment(program, addr, ph->p_filesz, VB_DPA_READ))
		return vb_elf_fail(error, -ENOEXEC,
				   "the TLS segment is not part of a readable one");
	program->tls_addr = addr;
	program->tls_filesz = ph->p_filesz;
	program->tls_memsz = ph->p_memsz;
	program->tls_align = align;
	return 0;
}

static int read_segments(Elf *elf, size_t file_len, uint64_t limit, struct elf_program *program,
			 struct vb_dpa_error *error)
{
	GElf_Phdr ph;
	size_t count;
	int err = 0;

	if (elf_getphdrnum(elf, &count) || !count || count > 1024)
		return vb_elf_fail(error, -ENOEXEC, "no usable program headers");
	for (size_t i = 0; i < count && !err; i++) {
		if (!gelf_getphdr(elf, (int)i, &ph))
			return vb_elf_fail(error, -ENOEXEC, "program header %zu cannot be read", i);
		if (ph.p_type == PT_INTERP)
			return vb_elf_fail(error, -ENOEXEC,
					   "dynamically linked; link with -static or -static-pie");
		if (ph.p_type == PT_LOAD)
			err = elf_add_segment(&ph, file_len, limit, program, error);
	}
	for (size_t i = 0; i < count && !err; i++) {
		if (!gelf_getphdr(elf, (int)i, &ph))
			return vb_elf_fail(error, -ENOEXEC, "program header %zu cannot be read", i);
		if (ph.p_type == PT_TLS)
			err = elf_read_tls(&ph, program, error);
		if (ph.p_type == PT_DYNAMIC && ph.p_memsz) {
			program->dynamic = ph.p_vaddr + program->bias;
			program->dynamic_len = ph.p_memsz;
			if (!elf_in_file(program, program->dynamic, program->dynamic_len))
				err = vb_elf_fail(
					error, -ENOEXEC,
					"the dynamic section is not part of a loaded segment");
		}
	}
	if (!err && !program->nsegments)
		err = vb_elf_fail(error, -ENOEXEC, "nothing to load");
	return err;
}

/* ---- symbols ---- */

static int elf_by_address(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	/* Of two names for one address the sized one (a function, not a label) is found first. */
	return x->size > y->size ? -1 : x->size < y->size;
}

static Elf_Scn *symbol_section(Elf *elf, GElf_Shdr *shdr)
{
	Elf_Scn *scn = NULL, *dynsym = NULL;

	while ((scn = elf_nextscn(elf, scn))) {
		if (!gelf_getshdr(scn, shdr))
			continue;
		if (shdr->sh_type == SHT_SYMTAB)
			return scn;
		if (shdr->sh_type == SHT_DYNSYM)
			dynsym = scn;
	}
	return dynsym && gelf_getshdr(dynsym, shdr) ? dynsym : NULL;
}

/* Copy the strings that the symbols' names are, all of them at once. False: there are none. */
static int read_names(Elf *elf, const GElf_Shdr *shdr, struct elf_program *program, size_t *len)
{
	Elf_Scn *scn = elf_getscn(elf, shdr->sh_link);
	Elf_Data *data = scn ? elf_rawdata(scn, NULL) : NULL;

	*len = data && data->d_buf ? data->d_size : 0;
	program->names = malloc(*len + 1);
	if (!program->names)
		return -ENOMEM;
	if (*len)
		memcpy(program->names, data->d_buf, *len);
	program->names[*len] = '\0';
	return 0;
}

/* Is it one that dumps and lookups want? */
static bool symbol_wanted(const GElf_Sym *sym, const char *names, size_t len)
{
	unsigned int type = GELF_ST_TYPE(sym->st_info);
	const char *name = names + sym->st_name;

	if (sym->st_shndx == SHN_UNDEF || sym->st_name >= len ||
	    (type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE))
		return false;
	/* "$x" and ".L" are marks of the assembler. */
	return *name && *name != '$' && strncmp(name, ".L", 2) &&
	       strnlen(name, NAME_LEN_MAX) < NAME_LEN_MAX;
}

/* Symbols only serve names: a damaged table means fewer names, never a refusal. */
static int read_symbols(Elf *elf, struct elf_program *program)
{
	size_t names_len, count;
	GElf_Shdr shdr;
	GElf_Sym sym;
	Elf_Data *data;
	Elf_Scn *scn = symbol_section(elf, &shdr);

	data = scn ? elf_getdata(scn, NULL) : NULL;
	if (!data || !data->d_buf || !shdr.sh_entsize)
		return 0;
	count = data->d_size / sizeof(Elf64_Sym);
	count = count < SYMBOLS_MAX ? count : SYMBOLS_MAX;
	program->symbols = calloc(count + 1, sizeof(*program->symbols));
	if (!program->symbols || read_names(elf, &shdr, program, &names_len))
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		struct symbol *s = &program->symbols[program->nsymbols];

		if (!gelf_getsym(data, (int)i, &sym) ||
		    !symbol_wanted(&sym, program->names, names_len))
			continue;
		s->name = program->names + sym.st_name;
		s->addr = sym.st_value + (sym.st_shndx == SHN_ABS ? 0 : program->bias);
		s->size = sym.st_size;
		s->code = GELF_ST_TYPE(sym.st_info) == STT_FUNC;
		program->nsymbols++;
	}
	qsort(program->symbols, program->nsymbols, sizeof(*program->symbols), elf_by_address);
	return 0;
}

/* ---- the whole ---- */

static int read_elf(Elf *elf, size_t len, uint64_t limit, struct elf_program *program,
		    struct vb_dpa_error *error)
{
	GElf_Ehdr ehdr;
	int err;

	err = check_header(elf, &ehdr, error);
	if (err)
		return err;
	program->bias = ehdr.e_type == ET_DYN ? PIE_BASE : 0;
	program->entry = ehdr.e_entry + program->bias;
	err = read_segments(elf, len, limit, program, error);
	/* 0: a program of functions to be called, without an entry of its own. */
	if (!err && ehdr.e_entry &&
	    (program->entry & 1 || !in_segment(program, program->entry, 2, VB_DPA_EXEC)))
		err = vb_elf_fail(error, -ENOEXEC, "the entry 0x%llx is not in executable memory",
				  (unsigned long long)program->entry);
	if (!err && read_symbols(elf, program))
		err = vb_elf_fail(error, -ENOMEM, "no memory for symbols");
	return err;
}

int vb_elf_read(const void *image, size_t len, uint64_t limit, struct elf_program *program,
		struct vb_dpa_error *error)
{
	char *copy;
	Elf *elf;
	int err;

	memset(program, 0, sizeof(*program));
	if (!image || len < sizeof(Elf64_Ehdr))
		return vb_elf_fail(error, -ENOEXEC, "too short for an ELF file (%zu bytes)", len);
	elf_version(EV_CURRENT);
	/* libelf takes a writable image; it may be handed a read-only mapping. */
	copy = malloc(len);
	if (!copy)
		return vb_elf_fail(error, -ENOMEM, "no memory to read the file");
	memcpy(copy, image, len);
	elf = elf_memory(copy, len);
	err = elf ? read_elf(elf, len, limit, program, error)
		  : vb_elf_fail(error, -ENOEXEC, "not an ELF file");
	elf_end(elf);
	free(copy);
	if (err)
		vb_elf_free(program);
	return err;
}

void vb_elf_free(struct elf_program *program)
{
	free(program->symbols);
	free(program->names);
	memset(program, 0, sizeof(*program));
}

/* ---- a file by itself ---- */

struct vb_dpa_image {
	struct elf_program program;
};

int vb_dpa_image_read(const void *elf, size_t len, struct vb_dpa_image **image,
		      struct vb_dpa_error *error)
{
	struct vb_dpa_image *i = calloc(1, sizeof(*i));
	int err;

	if (!i)
		return vb_elf_fail(error, -ENOMEM, "no memory");
	err = vb_elf_read(elf, len, VB_CPU_LIMIT_MAX, &i->program, error);
	if (err) {
		free(i);
		return err;
	}
	*image = i;
	return 0;
}

void vb_dpa_image_free(struct vb_dpa_image *image)
{
	if (!image)
		return;
	vb_elf_free(&image->program);
	free(image);
}

int vb_dpa_image_symbol(const struct vb_dpa_image *image, const char *name, uint64_t *value,
			uint64_t *size)
{
	return vb_elf_symbol(&image->program, name, value, size);
}

int vb_elf_symbol(const struct elf_program *program, const char *name, uint64_t *value,
		  uint64_t *size)
{
	for (size_t i = 0; i < program->nsymbols; i++) {
		const struct symbol *s = &program->symbols[i];

		if (strcmp(s->name, name))
			continue;
		*value = s->addr;
		if (size)
			*size = s->size;
		return 0;
	}
	return -ENOENT;
}

/* ---- loading ---- */

struct dynamic {
	uint64_t rela, rela_len, jmprel, jmprel_len, symtab;
};

static int read_dynamic(const struct elf_program *program, const uint8_t *base, struct dynamic *dyn,
			struct vb_dpa_error *error)
{
	for (uint64_t at = 0; program->dynamic_len - at >= sizeof(Elf64_Dyn);
	     at += sizeof(Elf64_Dyn)) {
		Elf64_Dyn entry;

		memcpy(&entry, base + program->dynamic + at, sizeof(entry));
		switch (entry.d_tag) {
		case DT_NULL:
			return 0;
		case DT_NEEDED:
			return vb_elf_fail(error, -ENOEXEC,
					   "needs shared libraries; link with -static-pie");
		case DT_REL:
		case DT_RELR:
			return vb_elf_fail(error, -ENOEXEC,
					   "relocations of a kind that RISC-V does not use");
		case DT_RELA:
			dyn->rela = entry.d_un.d_ptr + program->bias;
			break;
		case DT_RELASZ:
			dyn->rela_len = entry.d_un.d_val;
			break;
		case DT_JMPREL:
			dyn->jmprel = entry.d_un.d_ptr + program->bias;
			break;
		case DT_PLTRELSZ:
			dyn->jmprel_len = entry.d_un.d_val;
			break;
		case DT_SYMTAB:
			dyn->symtab = entry.d_un.d_ptr + program->bias;
			break;
		default:
			break;
		}
	}
	return 0;
}

static int relocate_one(const struct elf_program *program, uint8_t *base, uint64_t symtab,
			const Elf64_Rela *rela, struct vb_dpa_error *error)
{
	uint64_t where = rela->r_offset + program->bias, value = (uint64_t)rela->r_addend;
	uint64_t at = symtab + ELF64_R_SYM(rela->r_info) * sizeof(Elf64_Sym);
	unsigned int type = ELF64_R_TYPE(rela->r_info);
	Elf64_Sym sym;

	if (type == R_RISCV_NONE)
		return 0;
	if (!in_segment(program, where, 8, 0))
		return vb_elf_fail(error, -ENOEXEC, "a relocation outside of the program (0x%llx)",
				   (unsigned long long)where);
	switch (type) {
	case R_RISCV_RELATIVE:
		value += program->bias;
		break;
	case R_RISCV_64:
	case R_RISCV_JUMP_SLOT:
		if (!symtab || !in_segment(program, at, sizeof(sym), 0))
			return vb_elf_fail(error, -ENOEXEC,
					   "a relocation names a symbol that is not there");
		memcpy(&sym, base + at, sizeof(sym));
		/* An undefined weak symbol is zero. */
		if (sym.st_shndx != SHN_UNDEF)
			value += sym.st_value + (sym.st_shndx == SHN_ABS ? 0 : program->bias);
		break;
	default:
		return vb_elf_fail(error, -ENOEXEC, "relocation type %u is not supported", type);
	}
	memcpy(base + where, &value, sizeof(value));
	return 0;
}

static int relocate_all(const struct elf_program *program, uint8_t *base, uint64_t symtab,
			uint64_t addr, uint64_t len, struct vb_dpa_error *error)
{
	if (!len)
		return 0;
	if (!elf_in_file(program, addr, len))
		return vb_elf_fail(error, -ENOEXEC,
				   "the relocations are not part of a loaded segment");
	for (uint64_t at = 0; len - at >= sizeof(Elf64_Rela); at += sizeof(Elf64_Rela)) {
		Elf64_Rela rela;
		int err;

		memcpy(&rela, base + addr + at, sizeof(rela));
		err = relocate_one(program, base, symtab, &rela, error);
		if (err)
			return err;
	}
	return 0;
}

int vb_elf_load(const void *image, const struct elf_program *program, uint8_t *base,
		struct vb_dpa_error *error)
{
	struct dynamic dyn = { 0 };
	int err = 0;

	for (unsigned int i = 0; i < program->nsegments; i++) {
		const struct elf_segment *seg = &program->segments[i];

		memcpy(base + seg->addr, (const uint8_t *)image + seg->offset, seg->filesz);
	}
	/* A fixed-address program was relocated by its linker. */
	if (!program->bias || !program->dynamic_len)
		return 0;
	err = read_dynamic(program, base, &dyn, error);
	if (!err)
		err = relocate_all(program, base, dyn.symtab, dyn.rela, dyn.rela_len, error);
	if (!err)
		err = relocate_all(program, base, dyn.symtab, dyn.jmprel, dyn.jmprel_len, error);
	return err;
}
