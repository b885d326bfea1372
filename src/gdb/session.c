// SPDX-License-Identifier: MIT
/*
 * Owns a session: which packet goes where, and what is waited for.
 *
 *	            resume                     the process stops, or is held on request
 *	STOPPED ---------------> RUNNING -----------------------------------------------> STOPPED
 *	packets are answered     only an interrupt is expected                 stop reply
 *
 * The protocol is that of all-stop mode: the debugger sends a packet and waits for its reply, and the
 * reply to a resume is the stop.
 */
#include "gdb/session.h"

#include <poll.h>
#include <stdlib.h>

/* ---- packets ---- */

static void over(struct session *s, enum vb_gdb_end end)
{
	s->state = SESSION_OVER;
	s->end = end;
}

/* D, and a kill where the program is not the debugger's. */
static void session_detach(struct session *s)
{
	vb_gdb_put(s, "OK");
	vb_gdb_send(s);
	if (s->state != SESSION_OVER)
		over(s, VB_GDB_DETACHED);
}

static void kill_process(struct session *s)
{
	if (s->target->kill)
		s->target->kill(s->target->arg);
	over(s, VB_GDB_DETACHED);
}

/* Packets with a word. */
static void v_packet(struct session *s, const char *body)
{
	if (!strcmp(body, "vCont?"))
		vb_gdb_put(s, "vCont;c;C;s;S;t;r");
	else if (!strncmp(body, "vCont;", 6))
		vb_gdb_vcont(s, body + 5);
	else if (!strncmp(body, "vFile:", 6))
		vb_gdb_file(s, body + 6);
	else if (!strncmp(body, "vKill;", 6))
		vb_gdb_put(s, "OK");
}

static void session_dispatch(struct session *s)
{
	const char *body = s->body;

	switch (body[0]) {
	case '?':
		vb_gdb_stop_reply(s);
		break;
	case 'g':
		vb_gdb_read_registers(s);
		break;
	case 'G':
		vb_gdb_write_registers(s, body + 1);
		break;
	case 'p':
		vb_gdb_read_register(s, body + 1);
		break;
	case 'P':
		vb_gdb_write_register(s, body + 1);
		break;
	case 'm':
		vb_gdb_read_memory(s, body + 1);
		break;
	case 'M':
	case 'X':
		vb_gdb_write_memory(s, body + 1, body[0] == 'X');
		break;
	case 'Z':
	case 'z':
		vb_gdb_point(s, body + 1, body[0] == 'Z');
		break;
	case 'H':
	case 'T':
		vb_gdb_thread_packet(s, body);
		break;
	case 'c':
	case 'C':
	case 's':
	case 'S':
		vb_gdb_go(s, body);
		break;
	case 'v':
		v_packet(s, body);
		break;
	case 'q':
		vb_gdb_query(s, body);
		break;
	case 'Q':
		vb_gdb_set(s, body);
		break;
	}
}

static bool is_kill(const char *body)
{
	return !strcmp(body, "k") || !strncmp(body, "vKill;", 6);
}

/*
 * While the process runs the debugger waits: it may detach, kill, or ask what does not need a stopped
 * process, and everything else is refused by the accelerator.
 */
static void packet(struct session *s, bool good)
{
	enum session_state before = s->state;

	if (good && s->body[0] == 'D') {
		session_detach(s);
		return;
	}
	if (good)
		session_dispatch(s);
	else
		vb_gdb_put_error(s, -EBADMSG);
	/* A resume that was accepted is answered by the stop; k never is. */
	if (s->state == before && !(good && s->body[0] == 'k'))
		vb_gdb_send(s);
	if (good && is_kill(s->body))
		kill_process(s);
}

static void session_take(struct session *s, const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len && s->state != SESSION_OVER; i++) {
		enum packet_event event = vb_gdb_byte(s, bytes[i]);

		if (event == PACKET_INTERRUPT && s->state == SESSION_RUNNING) {
			s->asked = true;
			vb_dpa_debug_hold(s->debug);
		} else if (event == PACKET_WHOLE || event == PACKET_BAD) {
			packet(s, event == PACKET_WHOLE);
		}
	}
}

/* ---- waiting ---- */

/*
 * The process or the program ends, which a debugger that waits for a stop is told. One that has its
 * prompt may just have resumed: then this is the answer, and otherwise it finds the connection closed.
 */
static void end_by_us(struct session *s)
{
	int code = atomic_load_explicit(s->target->exit_code, memory_order_relaxed);

	s->out_len = 0;
	vb_gdb_printf(s, "W%02x", (unsigned int)code & 0xff);
	vb_gdb_send(s);
	over(s, VB_GDB_ENDED);
}

/* first: nobody waits for a stop reply yet. */
static void session_look(struct session *s, bool first)
{
	if (!vb_dpa_debug_stopped(s->debug, &s->stop))
		return;
	s->state = SESSION_STOPPED;
	free(s->doc);
	s->doc = NULL;
	vb_gdb_threads_stopped(s);
	if (first)
		return;
	vb_gdb_stop_reply(s);
	vb_gdb_send(s);
	s->asked = false;
}

/* Input waits in the socket until the process has stopped for the first time. */
static void session_serve(struct session *s)
{
	bool first = true;
	uint8_t bytes[4096];

	while (s->state != SESSION_OVER) {
		bool runs = s->state == SESSION_RUNNING;
		struct pollfd fds[] = {
			{ .fd = s->quit, .events = POLLIN },
			{ .fd = s->file.fd,
			  .events = (short)(POLLRDHUP | (runs && first ? 0 : POLLIN)) },
			{ .fd = runs ? vb_dpa_debug_fd(s->debug) : -1, .events = POLLIN },
		};

		if (poll(fds, 3, -1) < 0) {
			if (errno == EINTR)
				continue;
			over(s, VB_GDB_LOST);
		} else if (fds[0].revents) {
			end_by_us(s);
		} else if (fds[2].revents) {
			session_look(s, first);
			first = false;
		} else if (fds[1].revents & POLLIN) {
			session_take(s, bytes, vb_gdb_receive(s, bytes, sizeof(bytes)));
		} else if (fds[1].revents) {
			over(s, VB_GDB_LOST);
		}
	}
}

enum vb_gdb_end vb_gdb_serve(const struct vb_gdb_target *target, struct vb_dpa_debug *debug,
			     const struct vb_file *file, int quit)
{
	struct session *s = calloc(1, sizeof(*s));
	enum vb_gdb_end end;

	if (!s)
		return VB_GDB_LOST;
	s->target = target;
	s->debug = debug;
	s->file = *file;
	s->quit = quit;
	vb_dpa_debug_hold(debug);
	session_serve(s);
	end = s->end;
	free(s->points);
	free(s->doc);
	free(s->list);
	free(s);
	return end;
}
