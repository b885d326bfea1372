// SPDX-License-Identifier: MIT
/*
 * Random bytes as what device code has in the memory of a tracer stream, and as what it says when it hands buffers over: the
 * host never reads beyond the ring, and prints whatever numbers it finds.
 *
 *	byte 0        transport, formats
 *	then          steps: a byte says which, the next ones are its values (struct step)
 *	              0 write messages   1 write the stream's part of the table   2 hand over   3 collect   4 print
 */
#include <stdlib.h>
#include <string.h>

#include "api/flexio/tracer.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Only the making of a stream fails with words. */
flexio_status vb_flexio_fail(const char *function, int line, const char *fmt, ...)
{
	abort();
}

enum { PER_BUFFER = 4, MESSAGES = BUFFERS * PER_BUFFER };

struct input {
	const uint8_t *at;
	size_t left;
};

static uint64_t take(struct input *in, size_t bytes)
{
	uint64_t value = 0;

	bytes = bytes < in->left ? bytes : in->left;
	memcpy(&value, in->at, bytes);
	in->at += bytes;
	in->left -= bytes;
	return value;
}

static void scribble(struct input *in, void *to, size_t size)
{
	size_t at = take(in, 2) % size, n = take(in, 1) % (size - at);

	n = n < in->left ? n : in->left;
	memcpy((char *)to + at, in->at, n);
	in->at += n;
	in->left -= n;
}

static void print_all(struct tracer *t, FILE *out)
{
	struct vb_rtos_trace msgs[PER_BUFFER];
	uint64_t lost;

	for (int i = 0; i <= BUFFERS && vb_tracer_pending(t); i++) {
		uint32_t n = vb_tracer_out(t, msgs, &lost);

		if (n > PER_BUFFER)
			abort();
		for (uint32_t k = 0; k < n; k++)
			vb_tracer_print(t, &msgs[k], out);
	}
}

static void run(struct tracer *t, struct input *in, FILE *out)
{
	while (in->left) {
		switch (take(in, 1) % 5) {
		case 0:
			scribble(in, t->memory->from, MESSAGES * sizeof(struct vb_rtos_trace));
			break;
		case 1:
			scribble(in, t->data, sizeof(*t->data));
			t->data->writing = 0; /* or collecting waits */
			break;
		case 2:
			vb_tracer_take(t, take(in, 1), take(in, 1), take(in, 1) & 1);
			break;
		case 3:
			vb_tracer_collect(t);
			break;
		case 4:
			print_all(t, out);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char *formats[] = { "n %d\n", "%hhx %-8llu %c %p %%\n", "%#.3o%+i%zx %jX %td %5hi\n",
				   "" };
	struct input in = { data, size };
	uint64_t how = take(&in, 1);
	struct tracer_memory memory = { .window = how & 1 };
	struct tracer t = { .memory = &memory,
			    .formats = formats,
			    .num_formats = how >> 1 & 3,
			    .per_buffer = PER_BUFFER };
	FILE *out = fopen("/dev/null", "w");

	/* On the heap: the sanitizer knows their ends. */
	memory.ring = calloc(MESSAGES, sizeof(*memory.ring));
	memory.from = memory.window ? memory.ring : calloc(MESSAGES, sizeof(*memory.from));
	t.data = calloc(1, sizeof(*t.data));
	run(&t, &in, out);
	fclose(out);
	free(t.data);
	if (!memory.window)
		free(memory.from);
	free(memory.ring);
	return 0;
}
