// SPDX-License-Identifier: MIT
/*
 * Owns the way of a library's rows into the table of fork.h: its one constructor and its one
 * destructor. Each library, and each tool that has rows of its own, has a copy of this file; a row
 * refers to it, so that the linker takes it from an archive.
 */
#include "base/fork.h"

const char vb_stage_image;

/* The linker's: the pointers that VB_STAGE() left, of this library. */
extern const struct vb_stage_row *const __start_vb_stages[] __attribute__((visibility("hidden")));
extern const struct vb_stage_row *const __stop_vb_stages[] __attribute__((visibility("hidden")));

static size_t num_rows(void)
{
	return (size_t)(__stop_vb_stages - __start_vb_stages);
}

__attribute__((constructor)) static void rows_join(void)
{
	vb_stages_join(__start_vb_stages, num_rows());
}

__attribute__((destructor)) static void rows_leave(void)
{
	vb_stages_leave(__start_vb_stages, num_rows());
}
