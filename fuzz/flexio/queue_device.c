// SPDX-License-Identifier: MIT
/* The device's half of fuzz_flexio_queue: makes the stores and calls that it is told. */
#include <stddef.h>
#include <stdint.h>

#include "../../src/device/rtos.h"

#define EXPORT __attribute__((used, visibility("default")))

EXPORT const uint64_t __flexio_dev_abi_version = VB_RTOS_ABI_VERSION;

struct step {
	uint64_t what; /* 0 to 3: a store of 1 << what bytes; 4 a load; else an ecall */
	uint64_t where, value;
};

static uint64_t ecall(uint64_t number, uint64_t a, uint64_t b, uint64_t c)
{
	register uint64_t a0 __asm__("a0") = a;
	register uint64_t a1 __asm__("a1") = b;
	register uint64_t a2 __asm__("a2") = c;
	register uint64_t a7 __asm__("a7") = number;

	__asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7) : "memory");
	return a0;
}

/* argument: number of steps, then the steps */
EXPORT uint64_t steps(uint64_t arg)
{
	const struct vb_rtos_thread *thread =
		(const struct vb_rtos_thread *)ecall(VB_RTOS_THREAD_CTX, 0, 0, 0);
	const uint64_t *number = (const uint64_t *)arg;
	const struct step *step = (const struct step *)(number + 1);
	uint64_t sum = 0;

	for (uint64_t i = 0; i < *number; i++, step++) {
		uint64_t at = thread->outbox_base + (step->where & 0xfff & ~7ull);

		switch (step->what) {
		case 0:
			*(volatile uint8_t *)at = (uint8_t)step->value;
			break;
		case 1:
			*(volatile uint16_t *)at = (uint16_t)step->value;
			break;
		case 2:
			*(volatile uint32_t *)at = (uint32_t)step->value;
			break;
		case 3:
			*(volatile uint64_t *)at = step->value;
			break;
		case 4:
			sum += *(volatile uint64_t *)at;
			break;
		default:
			sum += ecall(VB_RTOS_OUTBOX_CONFIG + step->what % 3, step->where,
				     step->value & 0xffffff, step->value >> 32);
		}
	}
	return sum;
}

/* An event handler with nothing to do. */
EXPORT void nothing(uint64_t arg)
{
	(void)arg;
	for (;;)
		ecall(VB_RTOS_RESCHEDULE, 0, 0, 0);
}
