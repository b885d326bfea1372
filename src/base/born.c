// SPDX-License-Identifier: MIT
/* Owns libverbatim's side of born.h. */
#include "base/born.h"

#include <dlfcn.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "base/shared.h"

void vb_born_start(void)
{
	/* In front of everybody, or not there: not started by `verbatim run`, or not wanted. */
	vb_born_start_function *start =
		(vb_born_start_function *)dlsym(RTLD_DEFAULT, VB_BORN_START);
	const struct vb_config *config = vb_config_get();
	struct vb_born_hooks hooks = {
		.memfd = vb_shared_memfd,
		.add = vb_shared_add_file,
		.remove = vb_shared_remove,
	};
	const char *why;
	int ret;

	if (!start || !config || config->arena_off || !vb_shared_wanted())
		return;
	hooks.limit = (uint64_t)config->arena << 20;
	ret = start(&hooks, &why);
	if (ret)
		vb_info("memory of the program stays private: %s", why ? why : strerror(-ret));
}
