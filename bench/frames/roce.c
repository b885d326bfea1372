// SPDX-License-Identifier: MIT
/*
 * What the bytes of RoCE cost: the CRC alone, a packet encoded (headers and ICRC; data stays where it is) and
 * decoded (everything checked), by bytes of data.
 *
 * usage: roce-bench [--quick] [--json]    rows for people, or as JSON, one a line
 *
 * A row is the median of nine repetitions, with the lowest and highest. Beside it: memcpy of as many bytes in the
 * same run, which is what a copy to a socket costs at least.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/util.h"
#include "packet/frame/frame.h"
#include "packet/roce.h"

enum { REPEATS = 9, BYTES = 1 << 23 };

static bool quick, json;
static uint8_t data[VB_ROCE_DATA], frame[VB_ROCE_HEAD_MAX + VB_ROCE_DATA + VB_ROCE_TAIL_MAX];
static size_t frame_len;
static volatile uint32_t sink;

static const struct vb_roce_route route = { .network = VB_ROCE_IPV4,
					    .sport = 0xc000,
					    .ip_df = true,
					    .pkey = VB_ROCE_PKEY,
					    .migreq = true };

/* Of this thread: what others do meanwhile does not count. Nothing here waits. */
static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void run_copy(uint32_t len)
{
	memcpy(frame + VB_ROCE_HEAD_MAX, data, len);
	__asm__ volatile("" : : "r"(frame) : "memory");
}

static void run_crc(uint32_t len)
{
	sink += vb_frame_crc(0xffffffff, data, len);
}

static void run_encode(uint32_t len)
{
	struct iovec iov = { data, len };
	struct vb_pkt pkt = { .op = VB_PKT_SEND,
			      .flags = VB_PKT_ONLY,
			      .transport = IBV_QPT_RC,
			      .dqpn = 1,
			      .iov = &iov,
			      .iov_cnt = 1,
			      .len = len };
	struct vb_roce_bytes bytes;

	if (vb_roce_encode(&route, &pkt, &bytes))
		abort();
	sink += bytes.tail[0];
}

static void run_decode(uint32_t len)
{
	struct vb_roce_packet got;

	if (vb_roce_decode_frame(frame, frame_len, &got) || got.pkt.len != len)
		abort();
}

/* The frame that run_decode() reads. */
static void make_frame(uint32_t len)
{
	struct iovec iov = { data, len };
	struct vb_pkt pkt = { .op = VB_PKT_SEND,
			      .flags = VB_PKT_ONLY,
			      .transport = IBV_QPT_RC,
			      .iov = &iov,
			      .iov_cnt = 1,
			      .len = len };
	struct vb_roce_bytes bytes;
	struct iovec pieces[3];
	uint32_t n;

	if (vb_roce_encode(&route, &pkt, &bytes))
		abort();
	n = vb_roce_gather(&bytes, &pkt, VB_ROCE_ETHERNET, pieces);
	frame_len = 0;
	for (uint32_t i = 0; i < n; i++) {
		memcpy(frame + frame_len, pieces[i].iov_base, pieces[i].iov_len);
		frame_len += pieces[i].iov_len;
	}
}

static int compare(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;

	return (a > b) - (a < b);
}

/* Nanoseconds, sorted. */
static void measure(void (*run)(uint32_t len), uint32_t len, double sample[REPEATS])
{
	uint32_t times = quick ? 10 : BYTES / (len + 512);

	for (int i = 0; i < REPEATS; i++) {
		double begin = now();

		for (uint32_t k = 0; k < times; k++)
			run(len);
		sample[i] = (now() - begin) / times;
	}
	qsort(sample, REPEATS, sizeof(*sample), compare);
}

static void print_row(const char *what, uint32_t len, const double sample[REPEATS], double copy)
{
	double median = sample[REPEATS / 2];

	if (json)
		printf("{\"what\": \"%s\", \"bytes\": %u, \"unit\": \"ns\", \"median\": %g, \"low\": %g, "
		       "\"high\": %g}\n",
		       what, len, median, sample[0], sample[REPEATS - 1]);
	else
		printf("%-16s %6u %9.1f %9.1f %9.1f %8.2f %9.1f %8.2f\n", what, len, median,
		       sample[0], sample[REPEATS - 1], len / median, copy, median / copy);
}

int main(int argc, char **argv)
{
	static const uint32_t lengths[] = { 8, 64, 256, 1024, 4096 };
	static const struct {
		const char *what;
		void (*run)(uint32_t len);
	} runs[] = { { "CRC", run_crc },
		     { "RoCE encode", run_encode },
		     { "RoCE decode", run_decode } };

	for (int i = 1; i < argc; i++) {
		quick |= !strcmp(argv[i], "--quick");
		json |= !strcmp(argv[i], "--json");
	}
	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 37 + (i >> 8));
	if (!json)
		printf("%-16s %6s %9s %9s %9s %8s %9s %8s\n", "what", "bytes", "median ns",
		       "lowest", "highest", "B/ns", "memcpy ns", "x memcpy");
	for (unsigned int i = 0; i < ARRAY_SIZE(runs); i++)
		for (unsigned int l = 0; l < ARRAY_SIZE(lengths); l++) {
			double sample[REPEATS], copy;

			measure(run_copy, lengths[l], sample);
			copy = sample[REPEATS / 2];
			make_frame(lengths[l]);
			measure(runs[i].run, lengths[l], sample);
			print_row(runs[i].what, lengths[l], sample, copy);
		}
	return 0;
}
