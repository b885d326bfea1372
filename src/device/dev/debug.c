// SPDX-License-Identifier: MIT
/*
 * flexio_dev_debug.h: what programs print to a simulator's log, and results of the stopwatch.
 */
#include <stdio.h>
#include <string.h>

#include <libflexio-dev/flexio_dev_debug.h>

#define print(...) flexio_dev_msg_dflt(FLEXIO_MSG_DEV_DEBUG, __VA_ARGS__)

void print_sim_str(const char *str, int len)
{
	if (!str)
		return;
	if (len > 0)
		print("%.*s", len, str);
	else
		print("%s", str);
}

/* The last len characters of a number. */
static void print_tail(const char *digits, int len)
{
	size_t length = strlen(digits);

	print("%s", len > 0 && length > (size_t)len ? digits + length - len : digits);
}

void print_sim_hex(uint64_t val, int len)
{
	char digits[20];

	snprintf(digits, sizeof(digits), "%lx", (unsigned long)val);
	print_tail(digits, len);
}

void print_sim_int(int val, int len)
{
	char digits[16];

	snprintf(digits, sizeof(digits), "%d", val);
	print_tail(digits, len);
}

void print_sim_putc(int val)
{
	print("%c", val);
}

void sim_trace(const char *text, uint64_t val, const char *func, int line)
{
	print("%s:%d %s 0x%lx\n", func, line, text, (unsigned long)val);
}

void flexio_dev_perf_print(struct flexio_dev_perf_data *pdata, const char *keyword)
{
	flexio_dev_print("%s: instructions/cycles: %lu/%lu\n", keyword, (unsigned long)pdata->insts,
			 (unsigned long)pdata->cycles);
}

void flexio_dev_perf_measure_calibrate(void)
{
	FLEXIO_DEV_PERF_MEASURE(calibrate)
	{
	}
}
