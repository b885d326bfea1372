// SPDX-License-Identifier: MIT
/* Owns libverbatim's side of born.h. */
#include "host/shared/born.h"

#include <dlfcn.h>
#include <string.h>

#include "base/config.h"
#include "base/env.h"
#include "base/log.h"
#include "host/shared/shared.h"

/* VERBATIM_SHARE=all says it for one run. */
static bool is_all_wanted(const struct vb_config *config)
{
	const char *how = vb_getenv("VERBATIM_SHARE");

	return config->arena == VB_CONFIG_ARENA_ALL || (how && !strcmp(how, "all"));
}

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

	dlerror(); /* that there is none is nothing to the program */
	if (!start || !config || config->arena == VB_CONFIG_ARENA_OFF || !vb_shared_wanted())
		return;
	hooks.limit = (uint64_t)config->arena_size << 20;
	hooks.all = is_all_wanted(config);
	ret = start(&hooks, &why);
	if (ret)
		vb_info("memory of the program stays private: %s", why ? why : strerror(-ret));
}
