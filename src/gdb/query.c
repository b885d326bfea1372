// SPDX-License-Identifier: MIT
/*
 * Owns general queries: what both sides can do, and documents that are read piece by piece (qXfer).
 */
#include "gdb/session.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>

/* The debugger's list: words with + behind them, between semicolons. */
static bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = list; at; at = strchr(at, ';')) {
		at += strspn(at, ";:");
		if (!strncmp(at, word, len) && (at[len] == ';' || !at[len]))
			return true;
	}
	return false;
}

static void supported(struct session *s, const char *list)
{
	s->swbreak = has_word(list, "swbreak+");
	s->hwbreak = has_word(list, "hwbreak+");
	vb_gdb_printf(s,
		      "PacketSize=%x;QStartNoAckMode+;vContSupported+;qXfer:features:read+;"
		      "qXfer:threads:read+;qXfer:exec-file:read+%s%s",
		      PACKET_MAX, s->swbreak ? ";swbreak+" : "", s->hwbreak ? ";hwbreak+" : "");
}

static int exec_file_doc(struct session *s)
{
	s->doc = strdup(s->target->elf_name);
	s->doc_len = s->doc ? strlen(s->doc) : 0;
	return s->doc ? 0 : -ENOMEM;
}

/* Made new where it is read from its beginning, so that all pieces are of one. */
static int make_doc(struct session *s, const char *object, const char *annex)
{
	free(s->doc);
	s->doc = NULL;
	s->doc_len = 0;
	if (!strcmp(object, "features"))
		return vb_gdb_features_doc(s, annex);
	if (!strcmp(object, "threads"))
		return vb_gdb_thread_doc(s);
	return exec_file_doc(s);
}

/* OBJECT:read:ANNEX:OFFSET,LENGTH. Objects that we do not have get the empty reply. */
static void transfer(struct session *s, const char *body)
{
	char object[16], annex[32];
	uint64_t offset, len;
	const char *at;
	int used = 0, err = 0;

	if (sscanf(body, "%15[a-z-]:read:%n", object, &used) != 1 || !used ||
	    (strcmp(object, "features") && strcmp(object, "threads") &&
	     strcmp(object, "exec-file")))
		return;
	at = body + used;
	used = (int)strcspn(at, ":");
	snprintf(annex, sizeof(annex), "%.*s", used, at);
	at += used;
	if (!vb_gdb_get_char(&at, ':') || !vb_gdb_get_number(&at, &offset) ||
	    !vb_gdb_get_char(&at, ',') || !vb_gdb_get_number(&at, &len) || *at)
		err = -EINVAL;
	if (!err && (!offset || !s->doc))
		err = make_doc(s, object, annex);
	if (!err && (!s->doc || offset > s->doc_len))
		err = -EINVAL;
	if (err) {
		vb_gdb_put_error(s, err);
		return;
	}
	if (len > s->doc_len - offset)
		len = s->doc_len - offset;
	vb_gdb_put(s, "m");
	len = vb_gdb_put_binary(s, s->doc + offset, len);
	if (offset + len == s->doc_len)
		s->out[0] = 'l';
}

/* How far a position-independent program was moved: its entry says it. */
static void offsets(struct session *s)
{
	const Elf64_Ehdr *head = s->target->elf;
	unsigned long long bias = 0;

	if (s->target->elf_len >= sizeof(*head))
		bias = vb_dpa_process_entry(s->target->process) - head->e_entry;
	vb_gdb_printf(s, "Text=%llx;Data=%llx;Bss=%llx", bias, bias, bias);
}

void vb_gdb_query(struct session *s, const char *body)
{
	if (!strncmp(body, "qSupported", 10))
		supported(s, body + 10);
	else if (!strncmp(body, "qXfer:", 6))
		transfer(s, body + 6);
	else if (!strncmp(body, "qAttached", 9))
		vb_gdb_put(s, s->target->kill ? "0" : "1");
	else if (!strcmp(body, "qOffsets"))
		offsets(s);
	else if (!strncmp(body, "qSymbol:", 8))
		vb_gdb_put(s, "OK");
	else
		vb_gdb_thread_query(s, body);
}

void vb_gdb_set(struct session *s, const char *body)
{
	if (strcmp(body, "QStartNoAckMode"))
		return;
	s->no_ack = true;
	vb_gdb_put(s, "OK");
}
