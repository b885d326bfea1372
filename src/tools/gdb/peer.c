// SPDX-License-Identifier: MIT
/*
 * Owns the answer to: who is at the other end of a TCP connection over the loopback? The kernel's table
 * of sockets has both ends of it, each with the user that opened it.
 */
#include "tools/gdb/gdb.h"

#include <arpa/inet.h>
#include <stdio.h>

bool gdb_tcp_peer_is_own(const char *table, uint16_t local, uint16_t peer, uid_t uid)
{
	const uint32_t loopback = htonl(INADDR_LOOPBACK);
	FILE *f = fopen(table, "re");
	bool own = false;
	char line[512];

	if (!f)
		return false;
	while (!own && fgets(line, sizeof(line), f)) {
		unsigned int from, from_port, to, to_port, state, user;
		unsigned long inode;

		/* sl local remote st tx:rx tr:when retransmits uid timeout inode */
		if (sscanf(line, "%*u: %x:%x %x:%x %x %*x:%*x %*x:%*x %*x %u %*d %lu", &from,
			   &from_port, &to, &to_port, &state, &user, &inode) != 7)
			continue;
		/*
		 * The peer's line is the one that it is the local side of. A socket that its owner has
		 * closed is not established any more, has no inode, and is shown as root's.
		 */
		own = from == loopback && to == loopback && from_port == peer && to_port == local &&
		      state == 1 && inode && user == uid;
	}
	fclose(f);
	return own;
}
