// SPDX-License-Identifier: MIT
/*
 * Owns what the library says of itself and of the hardware: versions, models.
 */
#include "api/flexio/process.h"

/* The version set, + 1; 0: none yet. */
static _Atomic uint64_t version_set;

flexio_status flexio_version_set(uint64_t version)
{
	uint64_t none = 0;

	API_CALL();
	if (version > FLEXIO_CURRENT_VERSION)
		return fail(
			"version 0x%llx is newer than FLEXIO_CURRENT_VERSION of this library (0x%llx)",
			(unsigned long long)version, (unsigned long long)FLEXIO_CURRENT_VERSION);
	if (!atomic_compare_exchange_strong_explicit(&version_set, &none, version + 1,
						     memory_order_relaxed, memory_order_relaxed) &&
	    none != version + 1)
		return fail("version 0x%llx was set before; 0x%llx is another one",
			    (unsigned long long)(none - 1), (unsigned long long)version);
	return FLEXIO_STATUS_SUCCESS;
}

enum flexio_hw_model_id vb_hw_model(struct ibv_context *ctx)
{
	return vb_accel_adapter(ctx) ? FLEXIO_HW_MODEL_BF3 : FLEXIO_HW_MODEL_NA;
}

const char *vb_hw_model_name(enum flexio_hw_model_id model)
{
	static const char *const names[] = { "any", "ConnectX-7 (1)", "BlueField-3 (2)",
					     "ConnectX-8 (3)", "ConnectX-9 (4)" };

	return (unsigned int)model < ARRAY_SIZE(names) ? names[model] : "an adapter without a DPA";
}

/* An adapter without an accelerator is an answer, no failure. */
enum flexio_hw_model_id flexio_hw_model_id_get(struct ibv_context *ibv_ctx)
{
	API_CALL();
	if (!ibv_ctx)
		fail("ibv_ctx is NULL");
	return vb_hw_model(ibv_ctx);
}
