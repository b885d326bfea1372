// SPDX-License-Identifier: MIT
/* Many threads that share a piece of work: atomics for the sums, a lock for the rest. */
#include <libflexio-dev/flexio_dev.h>

#include "shared.h"

static int is_prime(uint64_t n)
{
	if (n < 4)
		return n > 1;
	if (n % 2 == 0)
		return 0;
	for (uint64_t i = 3; i * i <= n; i += 2)
		if (n % i == 0)
			return 0;
	return 1;
}

__dpa_global__ void count_primes(uint64_t arg)
{
	struct share *share = (struct share *)arg;
	struct team *team = (struct team *)share->team;
	struct spinlock_s *lock = (struct spinlock_s *)&team->lock;
	uint64_t primes = 0, largest = 0;

	for (uint64_t n = share->first; n < share->end; n++)
		if (is_prime(n)) {
			primes++;
			largest = n;
		}
	share->primes = primes;
	__atomic_add_fetch(&team->total, primes, __ATOMIC_RELAXED);
	spin_lock(lock);
	if (largest > team->largest)
		team->largest = largest;
	spin_unlock(lock);
	/* Release: who sees the last one finished sees all results. */
	__atomic_add_fetch(&team->finished, 1, __ATOMIC_RELEASE);
	flexio_dev_thread_finish();
}

__dpa_rpc__ void start_all(const uint32_t *activation_ids, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		flexio_dev_event_handler_activate(activation_ids[i]);
}
