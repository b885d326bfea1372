// SPDX-License-Identifier: MIT
/*
 * dpa-gdbserver: a TCP port for gdb in front of a device process, by its token, with the options of the
 * vendor's. It passes bytes on; the protocol is spoken by the host program. After a detach it waits for the
 * next gdb, until the process is gone.
 */
#include <argp.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/gdb/gdb.h"

#define PORT_DEFAULT 1981

struct arguments {
	const char *device;
	uint64_t token;
	unsigned int port;
};

static unsigned int server_parse_number(struct argp_state *state, const char *text,
					unsigned long max, const char *what)
{
	unsigned long value;
	char *end;

	errno = 0;
	value = strtoul(text, &end, 0);
	if (errno || *end || end == text || *text == '-' || value > max)
		argp_error(state, "'%s' is not %s; allowed: 0 to %lu", text, what, max);
	return (unsigned int)value;
}

static error_t server_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	switch (key) {
	case 'T':
		if (!gdb_parse_token(arg, &args->token))
			argp_error(state,
				   "'%s' is not a token: flexio_process_udbg_token_get() gives one",
				   arg);
		return 0;
	case 's':
		args->port = server_parse_number(state, arg, UINT16_MAX, "a port");
		return 0;
	case 'E':
		server_parse_number(state, arg, UINT16_MAX, "an EU");
		return 0;
	case ARGP_KEY_ARG:
		if (args->device)
			argp_error(state, "'%s': which of the two devices?", arg);
		args->device = arg;
		return 0;
	case ARGP_KEY_END:
		if (!args->token)
			argp_error(state, "which process? Its token is given with -T");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static int listen_on(unsigned int port, uint16_t *got)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, err;
	socklen_t len = sizeof(at);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (!bind(fd, (struct sockaddr *)&at, sizeof(at)) && !listen(fd, 8) &&
	    !getsockname(fd, (struct sockaddr *)&at, &len)) {
		*got = ntohs(at.sin_port);
		return fd;
	}
	err = -errno;
	close(fd);
	return err;
}

/* False: it was refused. */
static bool is_allowed(int fd, uint16_t port)
{
	struct sockaddr_in peer = { 0 };
	socklen_t len = sizeof(peer);

	if (!getpeername(fd, (struct sockaddr *)&peer, &len) && peer.sin_family == AF_INET &&
	    gdb_tcp_peer_is_own("/proc/net/tcp", port, ntohs(peer.sin_port), geteuid()))
		return true;
	fprintf(stderr, "dpa-gdbserver: refused a connection that is not of user %u\n",
		(unsigned int)geteuid());
	return false;
}

/*
 * Whether a peer begins as debuggers do. A page in the user's browser can send requests of HTTP here, with
 * packets in them, and is the user to the kernel.
 */
static bool speaks_protocol(int fd, int listener)
{
	struct pollfd fds[] = { { .fd = fd, .events = POLLIN },
				{ .fd = listener, .events = POLLIN } };
	char first;

	for (;;) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return false;
		if (fds[1].revents)
			gdb_send_away(listener);
		if (fds[0].revents)
			break;
	}
	if (recv(fd, &first, 1, MSG_PEEK) != 1)
		return false;
	if (strchr("+-$\3", first) && first)
		return true;
	fprintf(stderr, "dpa-gdbserver: refused a connection that is not of a debugger\n");
	return false;
}

/* One debugger. False: the process is gone. */
static bool server_serve(const struct arguments *args, int fd, int listener, uint16_t port)
{
	struct vb_gdb_entry entry;
	int program, one = 1;

	if (!is_allowed(fd, port) || !speaks_protocol(fd, listener))
		return true;
	program = gdb_attach(args->token);
	if (program < 0) {
		fprintf(stderr, "dpa-gdbserver: %s\n", gdb_reason(program));
		return program == -EBUSY;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	printf("GDB is connected\n");
	fflush(stdout);
	gdb_relay(fd, fd, program, listener);
	close(program);
	printf("GDB is disconnected\n");
	fflush(stdout);
	return !gdb_look(args->token, &entry, NULL);
}

static int check_token(const struct arguments *args, struct vb_gdb_entry *entry, pid_t *pid)
{
	int err = gdb_look(args->token, entry, pid);

	if (err) {
		fprintf(stderr, "dpa-gdbserver: %s\n", gdb_reason(err));
		return err;
	}
	if (args->device && strcmp(args->device, entry->adapter)) {
		fprintf(stderr,
			"dpa-gdbserver: the process with this token runs on %s, not on %s\n",
			entry->adapter, args->device);
		return -EINVAL;
	}
	return 0;
}

/* The next connection: false where the program has ended before one came. */
static bool await_debugger(int listener, int program)
{
	struct pollfd fds[] = { { .fd = listener, .events = POLLIN },
				{ .fd = program, .events = POLLIN } };

	while (poll(fds, 2, -1) < 0)
		;
	return !fds[1].revents;
}

static const struct argp_option options[] = {
	{ NULL, 'T', "TOKEN", 0, "Debug the device process with this token", 0 },
	{ NULL, 's', "PORT", 0, "Listen on this TCP port of 127.0.0.1; default 1981, 0: any", 0 },
	{ NULL, 'E', "EU", 0, "Accepted and not needed: the debugger occupies no execution unit",
	  0 },
	{ 0 },
};

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = server_parse_opt,
		.args_doc = "[DEVICE]",
		.doc = "Let gdb debug a device process of a FlexIO program, on DEVICE, over TCP."
		       "\vThe program gets the token from flexio_process_udbg_token_get(). "
		       "gdb-multiarch attaches with 'target remote :1981'.\n\n"
		       "Example: dpa-gdbserver mlx5_0 -T 0x5f3a90c1b2d4e678",
	};
	struct arguments args = { .port = PORT_DEFAULT };
	struct vb_gdb_entry entry;
	bool there = true;
	uint16_t port = 0;
	int listener, program;
	pid_t pid = 0;

	tools_guard_stdio();
	argp_err_exit_status = CMD_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &args);
	signal(SIGPIPE, SIG_IGN);
	if (check_token(&args, &entry, &pid))
		return 1;
	/* Of a program in another PID namespace nothing is known: then the next gdb finds it gone. */
	program = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	listener = listen_on(args.port, &port);
	if (listener < 0) {
		fprintf(stderr, "dpa-gdbserver: port %u of 127.0.0.1: %s; -s takes another one\n",
			args.port, strerror(-listener));
		return 1;
	}
	printf("Registered on device %s\nListening for GDB on port %u\n", entry.adapter, port);
	fflush(stdout);
	while (there && await_debugger(listener, program)) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			continue;
		there = server_serve(&args, fd, listener, port);
		close(fd);
	}
	printf("Process %s is gone\n", entry.process);
	return 0;
}
