// SPDX-License-Identifier: MIT
/*
 * Owns the answers of `verbatim stats --listen`: one request at a time, GET /metrics (or /), then the connection is closed. Who
 * connects may be anybody who reaches the address: a request has 4 KiB and two seconds.
 */
#include "tools/look/serve.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/time.h"
#include "tools/cmd.h"

enum { REQUEST_BYTES = 4096, REQUEST_MS = 2000, BACKLOG = 16, PAUSE_NS = 100000000 };

static volatile sig_atomic_t ended;

static void serve_end(int sig)
{
	ended = 1;
}

/* "9400", "127.0.0.1:9400", "[::1]:9400". */
static int serve_split(const char *where, char host[256], const char **port)
{
	const char *colon = strrchr(where, ':');
	size_t len = colon ? (size_t)(colon - where) : 0;

	*port = colon ? colon + 1 : where;
	if (len >= 256 || !**port)
		return -EINVAL;
	snprintf(host, 256, "%.*s", (int)len, where);
	if (len > 1 && host[0] == '[' && host[len - 1] == ']') {
		memmove(host, host + 1, len - 2);
		host[len - 2] = '\0';
	}
	if (!host[0])
		strcpy(host, "127.0.0.1");
	return 0;
}

static int open_socket(const char *who, const char *where)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *at;
	char host[256];
	const char *port;
	int fd, err = serve_split(where, host, &port) ? EAI_NONAME
						      : getaddrinfo(host, port, &hints, &at);
	const int on = 1;

	if (err) {
		fprintf(stderr, "%s: --listen %s: %s; [ADDRESS:]PORT is wanted\n", who, where,
			gai_strerror(err));
		return -1;
	}
	fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (fd < 0 || bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, BACKLOG)) {
		fprintf(stderr, "%s: %s: %s\n", who, where, strerror(errno));
		if (fd >= 0)
			close(fd);
		fd = -1;
	}
	freeaddrinfo(at);
	return fd;
}

/* The request's head; false where it does not come. */
static bool read_request(int fd, char request[REQUEST_BYTES])
{
	uint64_t until = vb_machine_ns() + REQUEST_MS * 1000000ull;
	size_t got = 0;

	while (got < REQUEST_BYTES - 1) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (vb_machine_ns() >= until ||
		    vb_poll_until(VB_MACHINE_TIME, &p, 1, until, NULL) <= 0)
			return false;
		n = recv(fd, request + got, REQUEST_BYTES - 1 - got, MSG_DONTWAIT);
		if (n <= 0)
			return false;
		got += (size_t)n;
		request[got] = '\0';
		if (strstr(request, "\r\n\r\n") || strstr(request, "\n\n"))
			return true;
	}
	return false;
}

static void serve_write_all(int fd, const char *text, size_t len)
{
	uint64_t until = vb_machine_ns() + REQUEST_MS * 1000000ull;

	while (len) {
		struct pollfd p = { .fd = fd, .events = POLLOUT };
		ssize_t n;

		if (vb_machine_ns() >= until ||
		    vb_poll_until(VB_MACHINE_TIME, &p, 1, until, NULL) <= 0)
			return;
		n = send(fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN)
			return;
		text += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
}

static void serve_answer(int fd, const char *status, const char *type, const char *body, size_t len)
{
	char head[256];
	int n = snprintf(head, sizeof(head),
			 "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
			 "Connection: close\r\n\r\n",
			 status, type, len);

	serve_write_all(fd, head, (size_t)n);
	serve_write_all(fd, body, len);
}

static bool asks_for_page(const char *request)
{
	return !strncmp(request, "GET /metrics ", 13) || !strncmp(request, "GET /metrics?", 13) ||
	       !strncmp(request, "GET / ", 6);
}

static void serve_one(int fd, look_page *page, void *arg)
{
	static const char plain[] = "text/plain; charset=utf-8";
	static const char metrics[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";
	char request[REQUEST_BYTES], *body = NULL;
	size_t len = 0;
	FILE *out;
	int ret;

	if (!read_request(fd, request))
		return;
	if (strncmp(request, "GET ", 4)) {
		serve_answer(fd, "405 Method Not Allowed", plain, "GET /metrics\n", 13);
		return;
	}
	if (!asks_for_page(request)) {
		serve_answer(fd, "404 Not Found", plain, "GET /metrics\n", 13);
		return;
	}
	out = open_memstream(&body, &len);
	ret = out ? page(out, arg) : -ENOMEM;
	if (out && fclose(out))
		ret = -ENOMEM;
	if (ret)
		serve_answer(fd, "500 Internal Server Error", plain, "", 0);
	else
		serve_answer(fd, "200 OK", metrics, body, len);
	free(body);
}

int look_serve(const char *who, const char *where, look_page *page, void *arg)
{
	struct sigaction act = { .sa_handler = serve_end };
	int listener = open_socket(who, where), fd;
	struct pollfd p = { .fd = listener, .events = POLLIN };
	sigset_t ends, before;

	if (listener < 0)
		return 1;
	/* They come while it waits, and at no other time: none is missed. */
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigprocmask(SIG_BLOCK, &ends, &before);
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "%s: http://%s%s/metrics\n", who,
			strchr(where, ':') ? "" : "127.0.0.1:", where);
	while (!ended) {
		if (vb_poll_until(VB_MACHINE_TIME, &p, 1, VB_NEVER, &before) <= 0)
			continue;
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			/* Who has gone again; or else there is no descriptor or memory, and poll() says so at once. */
			if (errno != ECONNABORTED && errno != EAGAIN)
				vb_poll_until(VB_MACHINE_TIME, NULL, 0, vb_machine_ns() + PAUSE_NS,
					      &before);
			continue;
		}
		serve_one(fd, page, arg);
		close(fd);
	}
	close(listener);
	return 0;
}
