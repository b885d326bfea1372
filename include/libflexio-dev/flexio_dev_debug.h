/* SPDX-License-Identifier: MIT */
/*
 * Looking at device code: the simulator's log and a stopwatch for pieces of code.
 *
 * What goes to the simulator's log goes to the default message stream here, at level DEBUG.
 */
#ifndef _FLEXIO_DEV_DEBUG_H_
#define _FLEXIO_DEV_DEBUG_H_

#include <stdint.h>

#include <dpaintrin.h>

#include <libflexio-dev/flexio_dev.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Print a string: len characters of it, or all of it if len is 0. */
FLEXIO_DEV_EXPERIMENTAL void print_sim_str(const char *str, int len);

/* Print a number, its last len digits only unless len is 0. */
FLEXIO_DEV_EXPERIMENTAL void print_sim_hex(uint64_t val, int len);
FLEXIO_DEV_EXPERIMENTAL void print_sim_int(int val, int len);

FLEXIO_DEV_EXPERIMENTAL void print_sim_putc(int val);

/* Print a text and a value with the place in the source. */
FLEXIO_DEV_EXPERIMENTAL void sim_trace(const char *text, uint64_t val, const char *func, int line);

/* SIM_TRACE(value), or SIM_TRACE("text", value). */
#define SIM_TRACE(...)                             __SIM_TRACE_PICK(__VA_ARGS__, __SIM_TRACE_2, __SIM_TRACE_1, )(__VA_ARGS__)
#define __SIM_TRACE_PICK(first, second, name, ...) name
#define __SIM_TRACE_1(val)                         sim_trace(#val, (uint64_t)(val), __func__, __LINE__)
#define __SIM_TRACE_2(text, val)                   sim_trace(text, (uint64_t)(val), __func__, __LINE__)
#define SIM_TRACEVAL(val)                          __SIM_TRACE_1(val)

/* A measurement, or a sum of several. */
struct flexio_dev_perf_data {
	uint64_t cycles;
	uint64_t insts;
	int flag;
};

FLEXIO_DEV_ALWAYS_INLINE struct flexio_dev_perf_data flexio_dev_perf_start(void)
{
	struct flexio_dev_perf_data data = { 0, 0, 0 };

	data.cycles = __dpa_thread_cycles();
	data.insts = __dpa_thread_inst_ret();
	return data;
}

FLEXIO_DEV_ALWAYS_INLINE void flexio_dev_perf_end(struct flexio_dev_perf_data *data)
{
	data->insts = __dpa_thread_inst_ret() - data->insts;
	data->cycles = __dpa_thread_cycles() - data->cycles;
	data->flag = 1;
}

FLEXIO_DEV_ALWAYS_INLINE void flexio_dev_perf_aggregate(struct flexio_dev_perf_data *sum,
							struct flexio_dev_perf_data *data)
{
	sum->cycles += data->cycles;
	sum->insts += data->insts;
}

/* Print "<key>: instructions/cycles: <i>/<c>" to the default message stream. */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_perf_print(struct flexio_dev_perf_data *pdata,
						   const char *keyword);

/* Print what the stopwatch itself costs. */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_perf_measure_calibrate(void);

/* In front of a statement or block: run it and print what it took. */
#define FLEXIO_DEV_PERF_MEASURE(keyword)                                                 \
	for (struct flexio_dev_perf_data __perf = flexio_dev_perf_start(); !__perf.flag; \
	     flexio_dev_perf_end(&__perf), flexio_dev_perf_print(&__perf, #keyword))

/* In front of a statement or block: run it and add what it took to *collector. */
#define FLEXIO_DEV_PERF_COLLECT(collector)                                               \
	for (struct flexio_dev_perf_data __perf = flexio_dev_perf_start(); !__perf.flag; \
	     flexio_dev_perf_end(&__perf), flexio_dev_perf_aggregate(collector, &__perf))

#ifdef __cplusplus
}
#endif

#endif
