// SPDX-License-Identifier: MIT
/*
 * Owns how faults come in: from a script, and from tools of the user, which ask the service "inject"
 * (control/ask/ask.h). A line is parsed as one of a file is; nothing else is read.
 */
#include "card/fault/fault.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/env.h"
#include "base/log.h"
#include "base/time.h"
#include "control/ask/ask.h"
#include "host/thread.h"

enum { WORDS = 256 }; /* of an answer */

/* --- tools ------------------------------------------------------------------------------------ */

static int apply_line(struct vb_card *card, const char *line, char *words, size_t size)
{
	struct vb_inject fault;
	int ret = vb_inject_parse(line, &fault, words, size);

	if (!ret)
		return vb_inject_apply(card, &fault, false, words, size);
	return ret > 0 ? -EINVAL : ret;
}

static void inject_serve(const struct vb_file *file, const char *line)
{
	char words[WORDS] = "";
	int ret = apply_line(vb_card_program(), line, words, sizeof(words));

	vb_ask_answer(file, ret, 0, words);
}

/* One at a time: a fault may wait for a peer that is stopped in the middle of a copy. */
static struct vb_ask_service inject_service = {
	.name = VB_INJECT_SERVICE,
	.at_once = 1,
	.serve = inject_serve,
};

/* --- scripts ---------------------------------------------------------------------------------- */

struct script {
	struct vb_card *card;
	struct vb_inject *faults;
	int count, next;
	uint64_t start; /* ns */
};

static void run_due(struct script *script, uint64_t elapsed)
{
	char words[WORDS];

	for (; script->next < script->count && script->faults[script->next].at_ns <= elapsed;
	     script->next++) {
		const struct vb_inject *fault = &script->faults[script->next];

		if (vb_inject_apply(script->card, fault, true, words, sizeof(words)))
			vb_warn("VERBATIM_INJECT: at %" PRIu64 " us: %s", fault->at_ns / 1000,
				words);
	}
}

static void script_free(struct script *script)
{
	free(script->faults);
	free(script);
}

static void *script_main(void *arg)
{
	struct script *script = arg;

	prctl(PR_SET_NAME, "verbatim-inject");
	while (script->next < script->count) {
		vb_sleep_until(vb_time_card(), script->start + script->faults[script->next].at_ns);
		run_due(script, vb_now_ns() - script->start);
	}
	script_free(script);
	return NULL;
}

/* Nothing is left to do for it, or a thread does it. */
static int begin_script(struct vb_card *card, const char *file)
{
	struct script *script = calloc(1, sizeof(*script));
	char words[512];
	int ret;

	if (!script)
		return -ENOMEM;
	ret = vb_inject_read(file, &script->faults, words, sizeof(words));
	if (ret < 0) {
		vb_error("VERBATIM_INJECT: %s", words);
		free(script);
		return -EINVAL;
	}
	script->card = card;
	script->count = ret;
	script->start = vb_now_ns();
	run_due(script, 0);
	ret = 0;
	if (script->next < script->count) {
		ret = vb_thread_start(NULL, &vb_thread_detached, script_main, script);
		if (!ret)
			return 0; /* it is the thread's now */
	}
	script_free(script);
	return ret;
}

/*
 * Faults of the script that are due at its start are carried out before ibv_open_device() returns, in every
 * thread that calls it. After a failure the next call tries again.
 */
int vb_inject_begin(struct vb_card *card)
{
	const char *file = vb_getenv("VERBATIM_INJECT");
	int ret = 0;

	vb_ask_serve(&inject_service);
	if (!file || !*file || card != vb_card_program())
		return 0;
	pthread_mutex_lock(&card->inject.script_lock);
	if (!card->inject.scripted)
		ret = begin_script(card, file);
	if (!ret)
		card->inject.scripted = true;
	pthread_mutex_unlock(&card->inject.script_lock);
	return ret;
}
