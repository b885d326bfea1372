// SPDX-License-Identifier: MIT
/*
 * A step of congestion control for each event of many flows: a smoothed round-trip time in fixed
 * point, additive increase, decrease in proportion to the marks, bounds, and the next event's state.
 */
#include "kernel.h"

enum { FLOWS = 512 };

static struct flow {
	uint32_t rate;   /* 2^20 is the line rate */
	uint32_t target; /* before the last decrease */
	uint32_t rtt;    /* ns, smoothed, times 16 */
	uint32_t alpha;  /* 2^10 is 1 */
	uint32_t bytes;
	uint16_t stage, marks;
} flows[FLOWS];

static __attribute__((noinline)) uint32_t step(struct flow *f, uint32_t rtt, uint32_t bytes,
					       int marked)
{
	f->rtt += rtt - (f->rtt >> 4);
	f->bytes += bytes;
	if (marked) {
		f->alpha += (1024 - f->alpha) >> 4;
		f->target = f->rate;
		f->rate -= (uint32_t)(((uint64_t)f->rate * f->alpha) >> 11);
		f->stage = 0;
		f->marks++;
	} else {
		f->alpha -= f->alpha >> 4;
		if (f->bytes > 65536) {
			f->bytes = 0;
			f->stage++;
			if (f->stage > 5)
				f->target += f->stage > 10 ? 8192 : 512;
			f->rate = (f->rate + f->target) / 2;
		}
	}
	if (f->rtt > 16 * 20000u)
		f->rate -= f->rate * (uint64_t)(f->rtt / 16 - 20000) / (2 * (uint64_t)f->rtt);
	if (f->rate < 1024)
		f->rate = 1024;
	if (f->rate > 1u << 20)
		f->rate = 1u << 20;
	if (f->target > 1u << 20)
		f->target = 1u << 20;
	return f->rate;
}

uint64_t kernel(uint64_t rounds)
{
	uint64_t seed = 19, sum = 0;

	for (unsigned i = 0; i < FLOWS; i++)
		flows[i] = (struct flow){ 1u << 20, 1u << 20, 16 * 8000, 512, 0, 0, 0 };
	while (rounds--)
		for (unsigned i = 0; i < 64; i++) {
			uint64_t z = kernel_random(&seed);

			sum += step(&flows[z % FLOWS], 4000 + (uint32_t)(z >> 32) % 24000,
				    (uint32_t)(z >> 20) % 16384, !(z >> 60));
		}
	return sum;
}
