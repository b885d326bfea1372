// SPDX-License-Identifier: MIT
/*
 * Random bytes as what a debugger sends: packets, damaged ones and noise. The session ends when the bytes do, and
 * nothing but the fake process (tests/unit/gdb_fake.h) was touched. Bytes 0xf0 and up frame what follows: the lower
 * half is an index of a known packet's beginning, so that the fuzzer need not find the words.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gdb/gdb.h"
#include "gdb_fake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);

/* Replies go nowhere: nobody has to read them. All of their bytes are there. */
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
	volatile uint8_t sum = 0;

	for (size_t i = 0; i < len; i++)
		sum = (uint8_t)(sum + ((const uint8_t *)bytes)[i]);
	return (ssize_t)len;
}

static const char *const words[16] = { "qXfer:features:read:target.xml:",
				       "qXfer:threads:read::",
				       "vCont;",
				       "vFile:open:2f66,",
				       "vFile:pread:3,",
				       "Z2,1900,",
				       "Z0,1010,",
				       "m1000,",
				       "X1900,4:",
				       "Hga",
				       "qThreadExtraInfo,",
				       "G",
				       "P20=",
				       "qSupported:swbreak+;",
				       "vFile:fstat:",
				       "c" };

/* As a frame with its right sum, up to the next byte that begins one. */
static size_t frame(char *to, size_t room, const uint8_t *data, size_t size, size_t *used)
{
	const char *word = words[data[0] & 15];
	size_t len = strlen(word), n = 1;
	uint8_t sum = 0;

	while (n < size && data[n] < 0xf0)
		n++;
	*used = n;
	if (len + n + 8 > room)
		return 0;
	to[0] = '$';
	memcpy(to + 1, word, len);
	memcpy(to + 1 + len, data + 1, n - 1);
	len += n - 1;
	for (size_t i = 0; i < len; i++)
		sum = (uint8_t)(sum + (uint8_t)to[1 + i]);
	return 1 + len + (size_t)snprintf(to + 1 + len, 4, "#%02x", sum);
}

static size_t script(char *to, size_t room, const uint8_t *data, size_t size)
{
	size_t len = 0, used;

	while (size) {
		if (*data >= 0xf0) {
			len += frame(to + len, room - len, data, size, &used);
		} else {
			used = 1;
			if (len < room)
				to[len++] = (char)*data;
		}
		data += used;
		size -= used;
	}
	return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char elf[64] = "ELF";
	static char bytes[65536];
	static struct vb_dpa_debug fake;
	atomic_int code = 0;
	struct vb_file file;
	size_t len = script(bytes, sizeof(bytes), data, size);
	struct vb_gdb_target target = { .process = &fake.process,
					.elf_name = "/f",
					.elf = elf,
					.elf_len = sizeof(elf),
					.exit_code = &code };
	int fds[2], quit = eventfd(0, EFD_CLOEXEC), room = 1 << 20;

	if (quit < 0)
		return 0;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) || vb_file_keep(&file, fds[1]))
		return 0;
	fake_init(&fake);
	for (uint32_t i = 0; size && i < data[0] % 40; i++)
		fake_add(&fake, i + 1, "RPC <&>", i & 1);
	setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	if (write(fds[0], bytes, len) >= 0) {
		shutdown(fds[0], SHUT_WR);
		fake.script = fake.every = true; /* a resume stops again */
		fake.next =
			(struct vb_dpa_stopped){ .why = size > 1 ? data[1] % 5 : 0, .thread = 1 };
		vb_gdb_serve(&target, &fake, &file, quit);
	}
	fake_free(&fake);
	close(fds[0]);
	vb_file_close(&file);
	close(quit);
	return 0;
}
