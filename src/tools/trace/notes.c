// SPDX-License-Identifier: MIT
/* Owns the reading of a timeline's file: what a program left there, which may be anything. */
#include "tools/trace/trace.h"

#include <stdlib.h>
#include <string.h>

#include "host/fault.h"

bool trace_open(struct trace_file *file, const void *bytes, size_t size)
{
	struct vb_timeline_head *head;
	uint32_t pieces;

	if (size < VB_TIMELINE_HEAD || vb_fault_arm())
		return false;
	head = malloc(sizeof(*head));
	if (!head || vb_fault_copy(head, bytes, sizeof(*head)) ||
	    head->magic != VB_TIMELINE_MAGIC) {
		free(head);
		return false;
	}
	pieces = atomic_load_explicit(&head->pieces, memory_order_relaxed);
	*file = (struct trace_file){
		.head = head,
		.pieces = bytes,
		.num_pieces = pieces < size / VB_TIMELINE_PIECE
				      ? pieces
				      : (uint32_t)(size / VB_TIMELINE_PIECE),
		.lost = atomic_load_explicit(&head->lost, memory_order_relaxed),
	};
	return true;
}

void trace_name(const struct trace_file *file, uint16_t name, char text[VB_TIMELINE_NAME_BYTES])
{
	strcpy(text, "?");
	if (!name || name > VB_TIMELINE_NAMES ||
	    !atomic_load_explicit(&file->head->name[name - 1].ready, memory_order_relaxed))
		return;
	memcpy(text, file->head->name[name - 1].text, VB_TIMELINE_NAME_BYTES - 1);
	text[VB_TIMELINE_NAME_BYTES - 1] = 0;
}

void trace_each(const struct trace_file *file, trace_visit *visit, void *arg)
{
	static struct vb_timeline_piece piece;

	for (uint32_t i = VB_TIMELINE_FIRST; i < file->num_pieces; i++) {
		/* A copy: the process may have children that write still, or cut the file. */
		if (vb_fault_copy(&piece, &file->pieces[i], sizeof(piece)))
			return;
		for (uint32_t n = 0; n < VB_TIMELINE_NOTES; n++)
			if (piece.note[n].kind > VB_NOTE_NONE && piece.note[n].kind < VB_NOTE_KINDS)
				visit(arg, file, &piece, &piece.note[n]);
	}
}
