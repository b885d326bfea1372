// SPDX-License-Identifier: MIT
/*
 * What a tool sends to a program's socket, in pieces. Whatever it is: a service is called with the words of a
 * whole request and no other, each whole request is answered, and the next tool is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/ask/ask.h"
#include "control/ask/client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static uint32_t key;
static struct sockaddr_un address;
static socklen_t address_len;

static void serve(const struct vb_file *file, const char *words)
{
	vb_ask_answer(file,
		      strlen(words) < sizeof(((struct vb_ask_request *)0)->words) ? -EXDEV : 0, 0,
		      words);
}

static struct vb_ask_service services[] = {
	{ .name = "a", .at_once = 1, .serve = serve },
	{ .name = "many", .at_once = 64, .serve = serve },
};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char name[96];

	for (size_t i = 0; i < sizeof(services) / sizeof(services[0]); i++)
		vb_ask_serve(&services[i]);
	if (vb_ask_hold(&key))
		abort();
	snprintf(name, sizeof(name), "verbatim/%u/%llu/%d/%08x", geteuid(), vb_peer_namespace(),
		 (int)getpid(), key);
	address_len = vb_peer_address(&address, name);
	return 0;
}

/* Mutations seldom find the number: the first byte says whether it is right, the second how long pieces are. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_ask_request request = { .magic = VB_ASK_MAGIC };
	size_t skip = sizeof(request.magic), step, whole;
	struct vb_ask_answer answer = { 0 };
	int fd;

	if (size < 2)
		return 0;
	if (data[0] & 1)
		skip = 0;
	step = data[1] ? data[1] : sizeof(request);
	whole = size - 2 < sizeof(request) - skip ? size - 2 : sizeof(request) - skip;
	memcpy((char *)&request + skip, data + 2, whole);
	whole = data[0] & 2 ? whole + skip : sizeof(request);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, address_len))
		abort();
	for (size_t at = 0; at < whole; at += step)
		if (!vb_peer_write(fd, (char *)&request + at,
				   step < whole - at ? step : whole - at))
			abort();
	if (whole == sizeof(request)) {
		if (!vb_peer_read(fd, &answer, sizeof(answer)) || answer.magic != VB_ASK_MAGIC ||
		    (answer.status != -EPROTONOSUPPORT && answer.status != -EINVAL &&
		     answer.status != -EXDEV) ||
		    (answer.status == -EXDEV && strncmp(answer.words, request.words, 255)))
			abort();
	}
	close(fd);
	return 0;
}
