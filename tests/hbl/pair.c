// SPDX-License-Identifier: MIT
/* Two processes: one on hbl_0, one on hbl_1. They talk through a socket, as programs do over TCP. */
#include "hbl.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void tell(int fd, const void *data, size_t len)
{
	CHECK(write(fd, data, len) == (ssize_t)len);
}

void hear(int fd, void *data, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = read(fd, (char *)data + done, len - done);

		CHECK(n > 0);
		done += (size_t)n;
	}
}

void meet(int fd)
{
	char byte = 0;

	tell(fd, &byte, 1);
	hear(fd, &byte, 1);
}

int run_pair(void (*side)(int number, int fd))
{
	int fd[2], status, result = 0;
	pid_t pid[2];

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
	for (int i = 0; i < 2; i++) {
		pid[i] = fork();
		CHECK(pid[i] >= 0);
		if (pid[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fd[!i]);
		side(i, fd[i]);
		exit(0);
	}
	close(fd[0]);
	close(fd[1]);
	for (int i = 0; i < 2; i++) {
		CHECK(waitpid(pid[i], &status, 0) == pid[i]);
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			fprintf(stderr, "side %d ended with status 0x%x\n", i, status);
			result = 1;
		}
	}
	return result;
}
