// SPDX-License-Identifier: MIT
/*
 * A program that shows a device process of one thread, without any device code: for each line of its input it prints whether somebody
 * wants it to be counted.
 */
#include <stdio.h>

#include "../programs/common.h"
#include "control/show/dpa.h"

int main(void)
{
	struct ibv_context *ctx = device_open();
	struct vb_shown_process process;
	struct vb_shown_thread thread;
	struct vb_shown_counting counting;
	uint64_t state;
	char line[16];

	check(ctx);
	vb_shown_process_begin(&process, "shows", "mlx5_0", 1, false);
	vb_shown_thread_begin(&thread, &process, 1, "thread");
	vb_shown_counting_begin(&counting, &thread);
	do {
		bool wanted = vb_shown_wanted(&counting, &state);

		if (wanted) { /* a slice of 20 instructions */
			vb_shown_begin(&counting, state);
			vb_shown_count(&counting, 10, 20, 1);
		}
		printf("%s\n", wanted ? "counted" : "not counted");
		fflush(stdout);
	} while (fgets(line, sizeof(line), stdin));
	vb_shown_thread_end(&thread);
	vb_shown_process_end(&process);
	check_eq(ibv_close_device(ctx), 0);
	return 0;
}
