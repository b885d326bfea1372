// SPDX-License-Identifier: MIT
/* What device code prints, in all its ways, comes out of the streams that it was meant for. */
#include "check.h"

extern struct flexio_app *talk;
extern flexio_func_t say_all;

/* The text without prefixes. */
static void strip(char *text)
{
	char *to = text;

	while (*text) {
		if (text[0] == '/' && text[4] == '/')
			text += 5;
		else
			*to++ = *text++;
	}
	*to = 0;
}

int main(void)
{
	struct ibv_context *ctx = open_device();
	flexio_msg_stream_attr_t attr = { .data_bsize = 4 * 2048,
					  .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_SYNC,
					  .level = FLEXIO_MSG_DEV_INFO,
					  .stream_name = "default" };
	struct flexio_msg_stream *first, *second;
	struct flexio_process *process;
	char *a = NULL, *b = NULL;
	size_t alen = 0, blen = 0;
	FILE *fa = open_memstream(&a, &alen), *fb = open_memstream(&b, &blen);
	uint64_t result = 0;

	OK(flexio_process_create(ctx, talk, NULL, &process));
	OK(flexio_process_call(process, say_all, &result, 1, (uint64_t)1)); /* nobody listens */
	OK(flexio_msg_stream_create(process, &attr, fa, NULL, &first));
	attr.level = FLEXIO_MSG_DEV_WARN;
	attr.stream_name = "second";
	OK(flexio_msg_stream_create(process, &attr, fb, NULL, &second));
	OK(flexio_process_call(process, say_all, &result, flexio_msg_stream_get_id(second),
			       (uint64_t)7));
	CHECK(result == 5);
	CHECK(alen && !strncmp(a, "/", 1) && a[4] == '/');
	strip(a);
	strip(b);
	CHECK(!strcmp(a, "print 7\ndefault text\nto all -1\nputs\nprintf without an end"));
	CHECK(!strcmp(b, "to all -1\nerror beef\nwarning\nfive\n"));
	OK(flexio_msg_stream_destroy(second));
	OK(flexio_process_destroy(process));
	fclose(fa);
	fclose(fb);
	free(a);
	free(b);
	CHECK(!ibv_close_device(ctx));
	return 0;
}
