// SPDX-License-Identifier: MIT
/*
 * A port that ends in a TAP interface: what queues send comes out of the kernel's interface, and what the kernel sends
 * arrives at queues, once, whichever process of the adapter carries it.
 *
 *	this process: packet socket and ping on vtap0 -- kernel -- TAP -- mlx5_0: hosts, each a process of its own
 *
 * A host answers ARP and ping for 10.9.0.2, sends numbered frames when it is told to and reports those that it gets.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "station.h"

enum { NUMBERED = 0x88b5, LEN = 64, TRIES = 3000 };

static const uint8_t mac[] = { 2, 0, 0, 0, 9, 2 }, ip[] = { 10, 9, 0, 2 };

/* --- a host ------------------------------------------------------------------------------------------ */

static void make_numbered(uint8_t *f, uint32_t number)
{
	memset(f, 0, LEN);
	put_eth(f, 0, 0xffffffffffff, 0x020000000902, NUMBERED);
	put32(f + 14, number);
}

static uint32_t number_of(const uint8_t *f)
{
	return (uint32_t)f[14] << 24 | (uint32_t)f[15] << 16 | (uint32_t)f[16] << 8 | f[17];
}

static void turn_around(uint8_t *f)
{
	memcpy(f, f + 6, 6);
	memcpy(f + 6, mac, 6);
}

/* f has room for the answer; false: it asks nothing of us. */
static bool answer(uint8_t *f, uint32_t len)
{
	static const uint8_t arp[] = { 8, 6, 0, 1, 8, 0, 6, 4, 0, 1 };

	if (len >= 42 && !memcmp(f + 12, arp, sizeof(arp)) && !memcmp(f + 38, ip, 4)) {
		turn_around(f);
		f[21] = 2;
		memcpy(f + 32, f + 22, 10); /* its addresses are now the target's */
		memcpy(f + 22, mac, 6);
		memcpy(f + 28, ip, 4);
		return true;
	}
	if (len >= 42 && f[12] == 8 && !f[13] && f[14] == 0x45 && f[23] == 1 && f[34] == 8 &&
	    !memcmp(f + 30, ip, 4)) {
		turn_around(f);
		memcpy(f + 30, f + 26, 4);
		memcpy(f + 26, ip, 4);
		f[34] = 0;
		put16(f + 36, 0);
		put16(f + 36, (uint16_t)~sum_of(f + 34, ((uint32_t)f[16] << 8 | f[17]) - 20, 0));
		return true;
	}
	return false;
}

static void take(struct station *s, const struct got *got)
{
	static _Thread_local uint8_t f[STATION_SLOT];
	uint32_t number;

	check_eq(got->status, IBV_WC_SUCCESS);
	memcpy(f, got->data, got->len);
	if (f[12] == NUMBERED >> 8 && f[13] == (NUMBERED & 0xff)) {
		number = number_of(f);
		msg_send(ROLE_FD, &number, sizeof(number));
	} else if (answer(f, got->len)) {
		station_send(s, f, got->len, 0);
	}
}

static void host(void)
{
	struct station s;
	struct ibv_flow *flow;
	struct got got;
	uint8_t f[LEN];
	uint32_t number = 0;
	ssize_t n;

	station_open(&s, "mlx5_0");
	flow = flow_all(s.qp);
	msg_send(ROLE_FD, &number, sizeof(number));
	while ((n = recv(ROLE_FD, &number, sizeof(number), MSG_DONTWAIT))) {
		if (n > 0) {
			make_numbered(f, number);
			station_send(&s, f, LEN, 0);
		}
		if (station_poll(&s, &got))
			take(&s, &got);
		else
			sched_yield();
	}
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&s);
}

/* --- the kernel's side --------------------------------------------------------------------------------- */

struct peer {
	pid_t pid;
	int fd;
};

static struct peer start(void)
{
	struct peer p;
	uint32_t ready;

	p.pid = spawn_self("host", &p.fd);
	msg_recv(p.fd, &ready, sizeof(ready));
	return p;
}

static void expect(const struct peer *p, uint32_t number)
{
	uint32_t got;

	msg_recv(p->fd, &got, sizeof(got));
	check_eq(got, number);
}

static int open_socket(void)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(NUMBERED));
	struct sockaddr_ll at = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(NUMBERED),
		.sll_ifindex = (int)if_nametoindex("vtap0"),
	};

	check(fd >= 0);
	check_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

/* The next numbered frame that the kernel received, within so many ms; UINT32_MAX: none. */
static uint32_t next_number(int socket, int ms)
{
	struct pollfd fd = { .fd = socket, .events = POLLIN };
	uint8_t f[STATION_SLOT];
	struct sockaddr_ll from;
	socklen_t len = sizeof(from);

	while (poll(&fd, 1, ms) == 1) {
		len = sizeof(from);
		if (recvfrom(socket, f, sizeof(f), 0, (struct sockaddr *)&from, &len) == LEN &&
		    from.sll_pkttype != PACKET_OUTGOING)
			return number_of(f);
	}
	return UINT32_MAX;
}

/* Somebody carries: what it sends comes out. The numbers that it used are gone afterwards. */
static void until_carried(const struct peer *p, int socket, uint32_t number)
{
	uint32_t got = UINT32_MAX, last = number;

	for (int i = 0; i < TRIES && got == UINT32_MAX; i++) {
		last = number + (uint32_t)i;
		msg_send(p->fd, &last, sizeof(last));
		got = next_number(socket, 20);
	}
	check(got != UINT32_MAX);
	while (got != last) {
		got = next_number(socket, 60000);
		check(got != UINT32_MAX);
	}
}

/*
 * What the kernel sends comes in. It opens the way out of an interface some time after there is a carrier, and drops
 * frames until then. The numbers are gone afterwards.
 */
static void until_heard(const struct peer *a, const struct peer *b, int socket, uint32_t number)
{
	struct pollfd heard = { .fd = a->fd, .events = POLLIN };
	uint32_t got = UINT32_MAX, last = number;
	uint8_t f[LEN];

	for (int i = 0; i < TRIES && !(heard.revents & POLLIN); i++) {
		last = number + (uint32_t)i;
		make_numbered(f, last);
		if (send(socket, f, LEN, 0) == LEN)
			poll(&heard, 1, 20);
	}
	while (got != last)
		msg_recv(a->fd, &got, sizeof(got));
	for (got = UINT32_MAX; got != last;)
		msg_recv(b->fd, &got, sizeof(got));
}

static void run_command(const char *command)
{
	if (system(command)) /* a test of its own namespace, constant commands */
		test_skip("'%s' failed", command);
}

static void set_up(void)
{
	run_command("ip addr add 10.9.0.1/24 dev vtap0");
	run_command("ip link set vtap0 up");
}

static void ping(void)
{
	check_eq(system("ping -c 3 -i 0.2 -W 10 10.9.0.2 >/dev/null"), 0);
}

/* Each frame once, out and in, whoever sends. */
static void once(const struct peer *a, const struct peer *b, int socket)
{
	uint8_t f[LEN];

	for (uint32_t number = 0x10000; number < 0x10020; number++) {
		msg_send(number & 1 ? a->fd : b->fd, &number, sizeof(number));
		check_eq(next_number(socket, 60000), number);
		/* Queues of the same adapter in other processes hear it, too. */
		expect(number & 1 ? b : a, number);
	}
	for (uint32_t number = 0x20000; number < 0x20020; number++) {
		make_numbered(f, number);
		check_eq(send(socket, f, LEN, 0), LEN);
		expect(a, number);
		expect(b, number);
	}
}

static void drain(const struct peer *p)
{
	uint32_t number;

	while (recv(p->fd, &number, sizeof(number), MSG_DONTWAIT) > 0)
		;
}

static void carrying(void)
{
	struct peer a, b;
	int socket, status;

	run_command(
		"ip tuntap add dev vtap0 mode tap"); /* before hosts, which would make one that ends with them */
	set_up();
	a = start();
	socket = open_socket();
	until_carried(&a, socket, 1);
	b = start();
	until_heard(&a, &b, socket, 0x30000);
	once(&a, &b, socket);
	ping();
	/* The one that carries is killed, or ends: the other takes over. */
	if (spawn_is_process()) {
		check_eq(kill(a.pid, SIGKILL), 0);
		check_eq(waitpid(a.pid, &status, 0), a.pid);
		close(a.fd);
	} else {
		close(a.fd);
		spawn_wait(a.pid);
	}
	until_carried(&b, socket, 100);
	ping();
	a = start();
	until_heard(&a, &b, socket, 0x40000);
	once(&a, &b, socket);
	close(socket);
	/* The interface goes. Hosts may make interfaces here, so one of them makes it again. */
	run_command("ip link del vtap0");
	for (int i = 0; i < TRIES && !if_nametoindex("vtap0"); i++)
		usleep(20000);
	set_up();
	socket = open_socket();
	until_carried(&a, socket, 1000);
	usleep(50000);
	drain(&b); /* what it overheard */
	until_heard(&a, &b, socket, 0x50000);
	once(&a, &b, socket);
	ping();
	close(socket);
	close(a.fd);
	close(b.fd);
	spawn_wait(a.pid);
	spawn_wait(b.pid);
}

/* --- where it is refused ---------------------------------------------------------------------------------- */

/* The program works all the same, without a wire. */
static void nobody(void)
{
	struct station s, t;
	uint8_t f[LEN];
	struct got got;
	char go;

	check_eq(setgid(65534), 0);
	check_eq(setuid(65534), 0);
	station_open(&s, "mlx5_0");
	station_open(&t, "mlx5_0");
	check(flow_all(t.qp));
	make_numbered(f, 1);
	station_send(&s, f, LEN, 0);
	station_get(&t, &got);
	msg_send(ROLE_FD, "", 1);
	msg_recv(ROLE_FD, &go, 1);
	station_close(&s); /* the other stays open */
}

/* The log says once why. */
static void refused(void)
{
	char path[] = "/tmp/verbatim-test-tap-log.XXXXXX", text[2000] = "", ready;
	int log = mkstemp(path), fd, n = 0;
	pid_t pid;

	check(log >= 0);
	check_eq(fchown(log, 65534, 65534), 0);
	setenv("VERBATIM_LOG_FILE", path, 1);
	pid = spawn_self("nobody", &fd);
	msg_recv(fd, &ready, 1);
	for (int i = 0; i < TRIES && !n; i++) {
		usleep(20000);
		n = (int)pread(log, text, sizeof(text) - 1, 0);
	}
	usleep(2500000); /* it tries again, and says no more */
	n = (int)pread(log, text, sizeof(text) - 1, 0);
	msg_send(fd, "", 1);
	spawn_wait(pid);
	unlink(path);
	check(n > 0 &&
	      strstr(text,
		     "mlx5_0: its frames go nowhere: tap vtap9: Operation not permitted; let root make it"));
	check(strchr(text, '\n') == text + n - 1);
}

/*
 * A program that closes all descriptors but the first three, as daemons do, and opens files of its own: nothing of ours gets
 * into them.
 */
static void closer(void)
{
	enum { FILES = 64, LEN = 100 };
	uint8_t f[LEN] = { 0 };
	int files[FILES];
	struct station s;

	station_open(&s, "mlx5_0");
	sleep_ms(200); /* the TAP is there; where it is not yet, this proves nothing */
	/* ThreadSanitizer does not watch this call: a close() below the card's threads is a race. */
	check_eq(close_range(3, 1023, 0), 0);
	for (int i = 0; i < FILES; i++) {
		char path[] = "/tmp/verbatim-test-tap.XXXXXX";

		files[i] = mkstemp(path);
		check(files[i] >= 0);
		unlink(path);
	}
	for (int i = 0; i < 5; i++)
		station_send(&s, f, sizeof(f), 0);
	check_eq(ibv_destroy_qp(s.qp), 0);
	for (int i = 0; i < FILES; i++) {
		struct stat st;

		check_eq(fstat(files[i], &st), 0);
		check_eq(st.st_size, 0);
	}
	_exit(0);
}

static void closed(void)
{
	pid_t pid;
	int fd;

	pid = spawn_self("closer", &fd); /* which makes the interface */
	spawn_wait(pid);
	close(fd);
}

static void write_config(char *path, const char *tap)
{
	int fd = mkstemp(path);

	check(fd >= 0);
	dprintf(fd, "[adapter mlx5_0]\ntap = %s\n[adapter mlx5_1]\n", tap);
	check_eq(fchmod(fd, 0644), 0);
	close(fd);
	setenv("VERBATIM_CONFIG", path, 1);
}

int main(int argc, char **argv)
{
	char path[] = "/tmp/verbatim-test-tap.XXXXXX";
	bool refuse = argc > 1 && !strcmp(argv[1], "refused");
	int fd;

	if (argc > 1 && !strcmp(argv[1], "host")) {
		host();
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "nobody")) {
		nobody();
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "closer"))
		closer();
	if (refuse && geteuid())
		test_skip("needs root to become another user");
	if (!enter_namespaces(CLONE_NEWNET))
		test_skip("no network namespace: %s", strerror(errno));
	fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		test_skip("/dev/net/tun: %s", strerror(errno));
	close(fd);
	write_config(path, refuse ? "vtap9" : "vtap0");
	if (refuse)
		refused();
	else if (argc > 1 && !strcmp(argv[1], "closed"))
		closed();
	else
		carrying();
	unlink(path);
	return 0;
}
