// SPDX-License-Identifier: MIT
/* Owns the reading of a timeline's file: what a program left there, which may be anything. */
#include "tools/trace/trace.h"

#include <string.h>

bool trace_open(struct trace_file *file, const void *bytes, size_t size)
{
	const struct vb_timeline_head *head = bytes;
	uint32_t pieces;

	if (size < VB_TIMELINE_PIECE || head->magic != VB_TIMELINE_MAGIC)
		return false;
	pieces = atomic_load_explicit(&head->pieces, memory_order_acquire);
	*file = (struct trace_file){
		.head = head,
		.pieces = bytes,
		.num_pieces = pieces < size / VB_TIMELINE_PIECE
				      ? pieces
				      : (uint32_t)(size / VB_TIMELINE_PIECE),
		.lost = atomic_load_explicit(&head->lost, memory_order_relaxed),
		.bytes = size,
	};
	return true;
}

void trace_name(const struct trace_file *file, uint16_t name, char text[VB_TIMELINE_NAME_BYTES])
{
	strcpy(text, "?");
	if (!name || name > VB_TIMELINE_NAMES ||
	    !atomic_load_explicit(&file->head->name[name - 1].ready, memory_order_acquire))
		return;
	memcpy(text, file->head->name[name - 1].text, VB_TIMELINE_NAME_BYTES - 1);
	text[VB_TIMELINE_NAME_BYTES - 1] = 0;
}

void trace_each(const struct trace_file *file, trace_visit *visit, void *arg)
{
	for (uint32_t i = 1; i < file->num_pieces; i++) {
		const struct vb_timeline_piece *piece = &file->pieces[i];

		for (uint32_t n = 0; n < VB_TIMELINE_NOTES; n++) {
			/* A copy: the process may have children that write still. */
			struct vb_note note = piece->note[n];

			if (note.kind > VB_NOTE_NONE && note.kind < VB_NOTE_KINDS)
				visit(arg, file, piece, &note);
		}
	}
}
