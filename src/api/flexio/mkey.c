// SPDX-License-Identifier: MIT
/*
 * Owns device mkeys: a memory region of the card over guest memory. Its addresses are device
 * addresses, so device code and remote peers name the memory in the same way. Access rights are
 * independent: the rule of verbs that remote write needs local write does not hold here.
 */
#include "api/flexio/process.h"

#include <stdlib.h>

#include "api/ibverbs/accessors.h"
#include "card/memory/mr.h"

struct flexio_mkey {
	struct flexio_process *process;
	struct ibv_pd *pd;
	struct vb_mr *mr;
};

enum {
	ACCESS_RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC,
	/* Accepted and ignored: binding of memory windows, hints about pages and ordering. */
	ACCESS_KNOWN = ACCESS_RIGHTS | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
		       IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE,
};

static int flexio_mkey_reg(struct flexio_mkey *m, const struct flexio_mkey_attr *attr, void *host)
{
	uint64_t iova = attr->access & IBV_ACCESS_ZERO_BASED ? 0 : attr->daddr;

	return vb_mr_reg(vb_verbs_pd(m->pd), host, attr->len, iova,
			 (unsigned int)attr->access & ACCESS_RIGHTS, &m->mr);
}

flexio_status flexio_device_mkey_create(struct flexio_process *process,
					struct flexio_mkey_attr *fattr, struct flexio_mkey **mkey)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct flexio_mkey *m;
	struct ibv_pd *pd;
	struct vb_dpa_view host;
	int err;

	CARD_WORDS(words);
	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (!fattr || !mkey)
		return fail("%s is NULL", !fattr ? "fattr" : "mkey");
	pd = fattr->pd ? fattr->pd : process->pd;
	if (strcmp(pd->context->device->name, process->ctx->device->name))
		return fail("the protection domain is of %s, process %s of %s",
			    pd->context->device->name, process->name, process->ctx->device->name);
	if (fattr->access & ~ACCESS_KNOWN)
		return fail(
			"access 0x%x has bits that an mkey does not know; allowed: bits of 0x%x",
			(unsigned int)fattr->access, ACCESS_KNOWN);
	host = vb_dpa_mem_host(process->dpa, fattr->daddr, fattr->len, VB_DPA_READ | VB_DPA_WRITE);
	if (vb_view_is_none(host))
		return fail(
			"process %s: %zu bytes at device address 0x%llx are not all writable memory",
			process->name, fattr->len, (unsigned long long)fattr->daddr);
	m = calloc(1, sizeof(*m));
	if (!m)
		return fail("process %s: no memory for an mkey", process->name);
	*m = (struct flexio_mkey){ .process = process, .pd = pd };
	if (!vb_process_hold(process, PART_MKEY))
		goto free_mkey;
	vb_dpa_mem_share(process->dpa, fattr->daddr, fattr->len);
	err = flexio_mkey_reg(m, fattr, vb_view_lend(host));
	if (err) {
		fail("process %s: no key for %zu bytes at device address 0x%llx: %s", process->name,
		     fattr->len, (unsigned long long)fattr->daddr, card_reason(&words, err));
		goto release_process;
	}
	vb_verbs_hold(pd->context, pd);
	if (!vb_handle_add(HANDLE_MKEY, m))
		goto deregister;
	*mkey = m;
	return FLEXIO_STATUS_SUCCESS;

deregister:
	vb_verbs_release(pd->context, pd);
	vb_mr_dereg(m->mr);
release_process:
	vb_process_release(process, PART_MKEY);
free_mkey:
	free(m);
	return failed();
}

flexio_status flexio_device_mkey_destroy(struct flexio_mkey *mkey)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_MKEY, mkey);

	API_CALL();
	if (!mkey)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_handle_end(&pin))
		return bad_handle(mkey, "mkey");
	vb_mr_dereg(mkey->mr); /* always succeeds */
	vb_verbs_release(mkey->pd->context, mkey->pd);
	vb_process_release(mkey->process, PART_MKEY);
	free(mkey);
	return FLEXIO_STATUS_SUCCESS;
}

uint32_t flexio_mkey_get_id(struct flexio_mkey *mkey)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_MKEY, mkey);

	API_CALL();
	if (!pin) {
		bad_handle(mkey, "mkey");
		return UINT32_MAX;
	}
	return vb_mr_key(mkey->mr);
}
