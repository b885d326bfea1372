// SPDX-License-Identifier: MIT
/*
 * Owns the framing of the remote serial protocol: bytes to packets, replies to bytes, and the numbers
 * in them.
 */
#include "gdb/session.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

/* ---- input ---- */

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static void put_raw(struct session *s, const char *bytes, size_t len);

/* '-' of a debugger that acknowledges: the last frame was damaged. */
static void again(struct session *s)
{
	if (!s->no_ack && s->frame_len)
		put_raw(s, s->frame, s->frame_len);
}

static enum packet_event packet_between(struct session *s, uint8_t byte)
{
	switch (byte) {
	case '$':
		s->packet = PACKET_BODY;
		s->body_len = s->sum = 0;
		s->overlong = false;
		return PACKET_MORE;
	case 3:
		return PACKET_INTERRUPT;
	case '-':
		again(s);
		return PACKET_MORE;
	default: /* '+', and noise on the line */
		return PACKET_MORE;
	}
}

static enum packet_event packet_finish(struct session *s, uint8_t byte)
{
	int low = digit((char)byte);
	bool good = s->sent_sum != UINT8_MAX && low >= 0 &&
		    (uint8_t)(s->sent_sum << 4 | low) == s->sum && !s->overlong;

	s->packet = PACKET_NONE;
	s->body[s->body_len] = '\0';
	/* Whoever is told that it was damaged sends it again: one that is too long is only refused. */
	if (!s->no_ack)
		put_raw(s, good || s->overlong ? "+" : "-", 1);
	if (!good && !s->overlong && !s->no_ack)
		return PACKET_MORE;
	return good ? PACKET_WHOLE : PACKET_BAD;
}

enum packet_event vb_gdb_byte(struct session *s, uint8_t byte)
{
	int high;

	switch (s->packet) {
	case PACKET_NONE:
		return packet_between(s, byte);
	case PACKET_BODY:
		if (byte == '#') {
			s->packet = PACKET_SUM1;
		} else if (byte == '$') { /* the rest of the one before was lost */
			return packet_between(s, byte);
		} else if (s->body_len == PACKET_MAX) {
			s->overlong = true;
		} else {
			s->body[s->body_len++] = (char)byte;
			s->sum = (uint8_t)(s->sum + byte);
		}
		return PACKET_MORE;
	case PACKET_SUM1:
		high = digit((char)byte);
		s->sent_sum = high < 0 ? UINT8_MAX : (uint8_t)high;
		s->packet = PACKET_SUM2;
		return PACKET_MORE;
	case PACKET_SUM2:
		return packet_finish(s, byte);
	}
	return PACKET_MORE;
}

static void packet_lose(struct session *s)
{
	if (s->state != SESSION_OVER)
		s->end = VB_GDB_LOST;
	s->state = SESSION_OVER;
}

size_t vb_gdb_receive(struct session *s, uint8_t *to, size_t max)
{
	ssize_t got = vb_file_is_open(&s->file) ? recv(s->file.fd, to, max, MSG_DONTWAIT) : 0;

	if (got > 0)
		return (size_t)got;
	if (!got || (errno != EAGAIN && errno != EINTR))
		packet_lose(s);
	return 0;
}

/* ---- output ---- */

/* A debugger that does not read keeps this thread, until it hangs up or the process ends. */
static void put_raw(struct session *s, const char *bytes, size_t len)
{
	while (len && s->state != SESSION_OVER) {
		struct pollfd fds[2] = { { .fd = s->file.fd, .events = POLLOUT },
					 { .fd = s->quit, .events = POLLIN } };
		ssize_t sent;

		if (!vb_file_is_open(&s->file)) {
			packet_lose(s);
			return;
		}
		sent = send(s->file.fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent > 0) {
			bytes += sent;
			len -= (size_t)sent;
		} else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
			packet_lose(s);
		} else if (poll(fds, 2, -1) > 0 && fds[1].revents) {
			s->end = VB_GDB_ENDED;
			s->state = SESSION_OVER;
		}
	}
}

void vb_gdb_send(struct session *s)
{
	uint8_t sum = 0;

	if (s->out_full) { /* of a handler that does not divide its answer: half of it would lie */
		s->out_len = 0;
		s->out_full = false;
		vb_gdb_put_error(s, -E2BIG);
	}
	for (size_t i = 0; i < s->out_len; i++)
		sum = (uint8_t)(sum + (uint8_t)s->out[i]);
	s->frame[0] = '$';
	memcpy(s->frame + 1, s->out, s->out_len);
	s->frame[1 + s->out_len] = '#';
	s->frame[2 + s->out_len] = "0123456789abcdef"[sum >> 4];
	s->frame[3 + s->out_len] = "0123456789abcdef"[sum & 15];
	s->frame_len = s->out_len + 4;
	s->out_len = 0;
	put_raw(s, s->frame, s->frame_len);
}

static void put_char(struct session *s, char c)
{
	if (s->out_len == sizeof(s->out))
		s->out_full = true;
	else
		s->out[s->out_len++] = c;
}

void vb_gdb_put(struct session *s, const char *text)
{
	while (*text)
		put_char(s, *text++);
}

void vb_gdb_printf(struct session *s, const char *fmt, ...)
{
	char text[512];
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (len < 0 || (size_t)len >= sizeof(text))
		s->out_full = true;
	else
		vb_gdb_put(s, text);
}

void vb_gdb_put_hex(struct session *s, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < len; i++) {
		put_char(s, "0123456789abcdef"[at[i] >> 4]);
		put_char(s, "0123456789abcdef"[at[i] & 15]);
	}
}

size_t vb_gdb_put_binary(struct session *s, const void *bytes, size_t len)
{
	const char *at = bytes;

	for (size_t i = 0; i < len; i++) {
		bool escape = at[i] == '$' || at[i] == '#' || at[i] == '}' || at[i] == '*';

		if (s->out_len + 1 + escape > sizeof(s->out))
			return i;
		if (escape)
			put_char(s, '}');
		put_char(s, escape ? (char)(at[i] ^ 0x20) : at[i]);
	}
	return len;
}

void vb_gdb_put_error(struct session *s, int err)
{
	vb_gdb_printf(s, "E%02x", (unsigned int)-err & 0xff);
}

void vb_gdb_put_result(struct session *s, int err)
{
	if (err < 0)
		vb_gdb_put_error(s, err);
	else
		vb_gdb_put(s, "OK");
}

/* ---- what is in a packet ---- */

bool vb_gdb_get_number(const char **at, uint64_t *value)
{
	uint64_t sum = 0;
	unsigned int digits = 0;

	for (; digit(**at) >= 0; (*at)++) {
		if (sum >> 60)
			return false;
		sum = sum << 4 | (uint64_t)digit(**at);
		digits++;
	}
	*value = sum;
	return digits;
}

bool vb_gdb_get_char(const char **at, char c)
{
	if (**at != c)
		return false;
	(*at)++;
	return true;
}

bool vb_gdb_get_hex(const char **at, void *to, size_t len)
{
	uint8_t *bytes = to;

	for (size_t i = 0; i < len; i++) {
		int high = digit((*at)[0]), low = high < 0 ? -1 : digit((*at)[1]);

		if (low < 0)
			return false;
		bytes[i] = (uint8_t)(high << 4 | low);
		*at += 2;
	}
	return true;
}

size_t vb_gdb_unescape(char *text, size_t len)
{
	size_t to = 0;

	for (size_t from = 0; from < len; from++) {
		bool escape = text[from] == '}' && from + 1 < len;

		from += escape;
		text[to++] = escape ? (char)(text[from] ^ 0x20) : text[from];
	}
	return to;
}
