// SPDX-License-Identifier: MIT
/*
 * What the debugger's tools read: who is at the other end of a TCP connection over the loopback, by tables
 * as the kernel writes them, and tokens as users write them.
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "tools/gdb/gdb.h"

/* 1981 is 07BD, the peer's port 40000 is 9C40. Ours comes first, as often in the kernel's table. */
static const char head[] =
	"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	"   0: 0100007F:07BD 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 111 1 0 100\n"
	"   1: 0100007F:07BD 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 222 1 0 20 4\n";

static bool own(const char *line)
{
	char path[] = "/tmp/verbatim-peer-XXXXXX";
	FILE *f = fdopen(mkstemp(path), "w");
	bool result;

	fprintf(f, "%s%s", head, line);
	fclose(f);
	result = gdb_tcp_peer_is_own(path, 1981, 40000, 1000);
	unlink(path);
	return result;
}

static void test_table(void **state)
{
	assert_true(own(
		"  22: 0100007F:9C40 0100007F:07BD 01 00000000:00000000 00:00000000 00000000  1000        0 333 1 0 20\n"));
	/* another user; nobody */
	assert_false(own(
		"  22: 0100007F:9C40 0100007F:07BD 01 00000000:00000000 00:00000000 00000000  1001        0 333 1 0 20\n"));
	assert_false(own(""));
	/* a socket that was closed: not established, no inode, shown as root's */
	assert_false(own(
		"  22: 0100007F:9C40 0100007F:07BD 05 00000000:00000000 00:00000000 00000000  1000        0 333 1 0 20\n"));
	assert_false(own(
		"  22: 0100007F:9C40 0100007F:07BD 01 00000000:00000000 00:00000000 00000000  1000        0 0 1 0 20\n"));
	/* other connections of ours */
	assert_false(own(
		"  22: 0100007F:9C41 0100007F:07BD 01 00000000:00000000 00:00000000 00000000  1000        0 333 1 0 20\n"));
	assert_false(own(
		"  22: 0100007F:9C40 0100007F:07BE 01 00000000:00000000 00:00000000 00000000  1000        0 333 1 0 20\n"));
	assert_false(own(
		"  22: 0200007F:9C40 0100007F:07BD 01 00000000:00000000 00:00000000 00000000  1000        0 333 1 0 20\n"));
	assert_false(own("nonsense\n"));
	assert_false(gdb_tcp_peer_is_own("/no/table", 1981, 40000, 1000));
}

/* The kernel's own table. */
static void test_real_connection(void **state)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) },
			   peer;
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0),
	    fd;
	uint16_t local, remote;

	assert_int_equal(bind(listener, (struct sockaddr *)&at, len), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	assert_int_equal(connect(client, (struct sockaddr *)&at, len), 0);
	fd = accept(listener, (struct sockaddr *)&peer, &len);
	assert_true(fd >= 0);
	local = ntohs(at.sin_port);
	remote = ntohs(peer.sin_port);
	assert_true(gdb_tcp_peer_is_own("/proc/net/tcp", local, remote, geteuid()));
	assert_false(gdb_tcp_peer_is_own("/proc/net/tcp", local, remote, geteuid() + 1));
	close(client);
	assert_false(gdb_tcp_peer_is_own("/proc/net/tcp", local, remote, geteuid()));
	close(fd);
	close(listener);
}

static uint64_t token(const char *text)
{
	uint64_t value = 1;

	return gdb_parse_token(text, &value) ? value : 0;
}

static void test_tokens(void **state)
{
	assert_int_equal(token("0x5f3a90c1b2d4e678"), 0x5f3a90c1b2d4e678);
	assert_int_equal(token("5F3a90c1b2d4e678"), 0x5f3a90c1b2d4e678);
	/* digits only, as one of some thousand has */
	assert_int_equal(token("1234567890123456"), 0x1234567890123456);
	assert_int_equal(token("0123456789012345"), 0x0123456789012345);
	assert_int_equal(token("18446744073709551615"), UINT64_MAX);
	/* PIDs */
	assert_int_equal(token("4711"), 4711);
	assert_int_equal(token("0100"), 100);
	assert_int_equal(token("4194304"), 4194304);
	assert_int_equal(token("") | token("0") | token("-1") | token("0x") | token("12g") |
				 token("0x5f3a90c1b2d4e6789"),
			 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_real_connection),
		cmocka_unit_test(test_tokens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
