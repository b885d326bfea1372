// SPDX-License-Identifier: MIT
/*
 * Owns the counters of the port that device code samples: which ones a process has configured, and
 * where it wants to have them. A process has one choice at a time, its last one; what it does wrong
 * ends it, as the manual says, after a line of the log that says what was wrong.
 */
#include "api/flexio/process.h"

#include "card/card.h"
#include "host/fault.h"

/* enum flexio_dev_nic_counter_ids: PORT0 to PORT3 of each */
enum { RX_BYTES = 0x10, TX_BYTES = 0x20, PORTS = 4 };

static bool is_known(uint32_t id)
{
	return (id >= RX_BYTES && id < RX_BYTES + PORTS) ||
	       (id >= TX_BYTES && id < TX_BYTES + PORTS);
}

static bool flexio_counters_refuse(const struct guest *guest, const char *why, uint64_t value)
{
	log_err("flexio_dev_nic_counters_config in device thread %u of process %s: %s (0x%llx)",
		guest->thread_id, guest->process->name, why, (unsigned long long)value);
	return false;
}

bool vb_counters_config(struct guest *guest, uint64_t values, uint64_t ids, uint64_t count)
{
	struct flexio_process *process = guest->process;
	struct counters chosen = { .count = (uint32_t)count };
	struct vb_dpa_view from;

	if (!count || count > MAX_COUNTERS)
		return flexio_counters_refuse(guest, "the number of counters must be 1 to 32",
					      count);
	/* The arrays are global or on the heap: what is on a stack goes with its thread. */
	chosen.values = vb_process_lasting(process, values, 4 * count);
	if (values & 3 || vb_view_is_none(chosen.values))
		return flexio_counters_refuse(
			guest, "counter_values is not in global or heap memory", values);
	from = vb_process_lasting(process, ids, 4 * count);
	if (ids & 3 || vb_view_is_none(from) || vb_view_read(from, chosen.ids, 4 * count))
		return flexio_counters_refuse(guest, "counter_ids is not in global or heap memory",
					      ids);
	for (uint32_t i = 0; i < count; i++)
		if (!is_known(chosen.ids[i]))
			return flexio_counters_refuse(guest, "there is no such counter",
						      chosen.ids[i]);
	vb_lock(&process->counters_lock);
	process->counters = chosen;
	vb_unlock(&process->counters_lock);
	return true;
}

bool vb_counters_sample(struct guest *guest)
{
	struct flexio_process *process = guest->process;
	struct counters *c = &process->counters;
	struct vb_traffic traffic;
	uint32_t count;

	vb_port_traffic(process->uar.adapter, &traffic);
	/* Held over the stores: behind a new choice nothing is stored to the place of the one before. */
	vb_lock(&process->counters_lock);
	count = c->count;
	for (uint32_t i = 0; i < count; i++) {
		/* Adapters have one port: the others never carry anything. */
		uint64_t value = c->ids[i] == RX_BYTES   ? traffic.received
				 : c->ids[i] == TX_BYTES ? traffic.sent
							 : 0;

		vb_view_put(c->values, 4 * i, 4, (uint32_t)value);
	}
	vb_unlock(&process->counters_lock);
	if (!count)
		log_err("flexio_dev_nic_counters_sample in device thread %u of process %s: nothing was configured",
			guest->thread_id, process->name);
	return count;
}
