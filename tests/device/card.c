// SPDX-License-Identifier: MIT
/* See card.h. */
#include "card.h"

#include <errno.h>
#include <signal.h>

#define HEAP   0x20000000ull
#define OUTBOX (VB_DPA_WINDOW_BASE + 0x10000)

const char *card_program;
const struct vb_dpa_attr *card_attr;
static enum vb_dpa_tier tier;

static enum vb_dpa_action end(struct guest *g, enum end how)
{
	g->end = how;
	return VB_DPA_EXIT;
}

static int64_t take_message(struct card *c, struct guest *g, const uint64_t *arg)
{
	struct message m = { g->ctx->thread_id, (uint8_t)arg[0], (uint8_t)arg[1],
			     malloc(arg[3] + 1), arg[3] };

	if (vb_dpa_mem_read(c->process, arg[2], m.text, m.length)) {
		free(m.text);
		return -1;
	}
	m.text[m.length] = 0;
	pthread_mutex_lock(&c->lock);
	c->messages = realloc(c->messages, (c->count + 1) * sizeof(m));
	c->messages[c->count++] = m;
	pthread_mutex_unlock(&c->lock);
	return (int64_t)m.length;
}

static int64_t move_break(struct card *c, int64_t by)
{
	uint64_t before, need;

	pthread_mutex_lock(&c->lock);
	before = c->brk;
	if (by < 0 || c->brk - HEAP + (uint64_t)by > c->brk_limit) {
		pthread_mutex_unlock(&c->lock);
		return -1;
	}
	c->brk += (uint64_t)by;
	need = (c->brk + 0xfff) & ~0xfffull;
	if (need > c->brk_mapped) {
		uint64_t at = c->brk_mapped;

		assert_int_equal(
			vb_dpa_mem_map(c->process, &at, need - at, VB_DPA_READ | VB_DPA_WRITE), 0);
		c->brk_mapped = need;
	}
	pthread_mutex_unlock(&c->lock);
	return (int64_t)before;
}

static int64_t other_call(struct card *c, uint64_t number, const uint64_t *arg)
{
	int64_t answer;

	pthread_mutex_lock(&c->lock);
	c->last_call[0] = number;
	memcpy(c->last_call + 1, arg, 6 * sizeof(*arg));
	answer = c->answer;
	pthread_mutex_unlock(&c->lock);
	return answer;
}

static enum vb_dpa_action on_end(struct card *c, struct guest *g, uint64_t number, uint64_t code)
{
	switch (number) {
	case VB_RTOS_RESCHEDULE:
		return end(g, END_RESCHEDULE);
	case VB_RTOS_FINISH:
		return end(g, END_FINISH);
	case VB_RTOS_RETRIGGER:
		return end(g, END_RETRIGGER);
	case VB_RTOS_PROCESS_FINISH:
		c->status = VB_RTOS_STATUS_FINISHED;
		return end(g, END_PROCESS);
	default:
		c->status = code >= 0x80 && code <= 0xff ? (unsigned int)code
							 : VB_RTOS_STATUS_ILLEGAL_ERR;
		return end(g, END_PROCESS);
	}
}

static enum vb_dpa_action on_ecall(struct vb_dpa_thread *thread, struct vb_dpa_state *s, void *arg)
{
	struct guest *g = vb_dpa_thread_user(thread);
	struct card *c = arg;
	uint64_t *a = &s->x[10];

	switch (s->x[17]) {
	case VB_RTOS_THREAD_CTX:
		__atomic_fetch_add(&c->ctx_calls, 1, __ATOMIC_RELAXED);
		a[0] = g->ctx_addr;
		return VB_DPA_CONTINUE;
	case VB_RTOS_MSG:
		a[0] = (uint64_t)take_message(c, g, a);
		return VB_DPA_CONTINUE;
	case VB_RTOS_SBRK:
		a[0] = (uint64_t)move_break(c, (int64_t)a[0]);
		return VB_DPA_CONTINUE;
	case VB_RTOS_RELAX:
		a[0] = 0;
		return VB_DPA_YIELD;
	case VB_RTOS_YIELD:
		g->yields++;
		g->retrigger = a[0];
		a[0] = 0;
		return VB_DPA_CONTINUE;
	case VB_RTOS_ACTIVATE:
		c->activated = a[0];
		a[0] = a[0] == 404 ? UINT64_MAX : 0;
		return VB_DPA_CONTINUE;
	case VB_RTOS_RESCHEDULE ... VB_RTOS_RETRIGGER:
	case VB_RTOS_PROCESS_FINISH:
	case VB_RTOS_ERROR:
		return on_end(c, g, s->x[17], a[0]);
	default:
		if ((s->x[17] < VB_RTOS_WINDOW_CONFIG || s->x[17] > VB_RTOS_PCC_TABLE) &&
		    s->x[17] != VB_RTOS_TRACES)
			return VB_DPA_TRAP;
		a[0] = (uint64_t)other_call(c, s->x[17], a);
		return VB_DPA_CONTINUE;
	}
}

static void on_trap(struct vb_dpa_thread *thread, const struct vb_dpa_state *s, void *arg)
{
	struct guest *g = vb_dpa_thread_user(thread);
	struct card *c = arg;

	g->end = END_TRAP;
	c->at_trap = *s;
}

static const struct vb_dpa_ops ops = { .ecall = on_ecall, .trap = on_trap };

static void *read_program(size_t *size)
{
	FILE *f = fopen(card_program, "rb");
	uint8_t *image = NULL;

	if (!f)
		fail_msg("cannot open %s", card_program);
	fseek(f, 0, SEEK_END);
	*size = (size_t)ftell(f);
	rewind(f);
	image = malloc(*size);
	assert_int_equal(fread(image, 1, *size, f), *size);
	fclose(f);
	return image;
}

void card_signals(void)
{
	static const int number[] = { SIGSEGV, SIGBUS };
	static struct sigaction ours[2];
	static bool have;

	for (int i = 0; i < 2; i++)
		sigaction(number[i], have ? &ours[i] : NULL, have ? NULL : &ours[i]);
	have = true;
}

int card_setup(void **state)
{
	struct card *c = calloc(1, sizeof(*c));
	struct vb_dpa_process_attr attr = {
		.tier = tier, .ops = &ops, .ops_arg = c, .name = "card"
	};
	struct vb_dpa_error error = { "" };
	size_t size;
	void *image = read_program(&size);

	pthread_mutex_init(&c->lock, NULL);
	c->brk = c->brk_mapped = HEAP;
	c->brk_limit = 64 << 20;
	c->answer = -1;
	assert_int_equal(vb_dpa_create(card_attr, &c->dpa), 0);
	if (vb_dpa_process_create(c->dpa, image, size, &attr, &c->process, &error))
		fail_msg("%s: %s", card_program, error.text);
	free(image);
	card_signals();
	assert_int_equal(vb_dpa_process_tier(c->process), tier);
	c->main = card_guest(c, 7, "main", VB_RTOS_THREAD_RPC);
	guest_call(c->main, VB_RTOS_SYM_INIT, 0);
	card_level(c, 0, 4);
	*state = c;
	return 0;
}

int card_teardown(void **state)
{
	struct card *c = *state;

	free(card_text(c));
	card_guest_free(c->main);
	assert_int_equal(vb_dpa_process_destroy(c->process), 0);
	assert_int_equal(vb_dpa_destroy(c->dpa), 0);
	pthread_mutex_destroy(&c->lock);
	free(c->messages);
	free(c);
	return 0;
}

struct guest *card_guest(struct card *card, uint32_t id, const char *name, uint32_t flags)
{
	struct guest *g = calloc(1, sizeof(*g));
	struct vb_dpa_thread_attr attr = { .user = g, .name = name };

	g->card = card;
	assert_int_equal(
		vb_dpa_mem_map(card->process, &g->ctx_addr, 4096, VB_DPA_READ | VB_DPA_WRITE), 0);
	g->ctx = vb_view_lend(vb_dpa_mem_host(card->process, g->ctx_addr, sizeof(*g->ctx),
					      VB_DPA_READ | VB_DPA_WRITE));
	assert_non_null(g->ctx);
	g->ctx->version = 1;
	g->ctx->thread_id = id;
	g->ctx->flags = flags;
	g->ctx->metadata_parameter = g->ctx_addr + offsetof(struct vb_rtos_thread, thread_id);
	snprintf(g->ctx->name, sizeof(g->ctx->name), "%s", name);
	assert_int_equal(vb_dpa_thread_create(card->process, &attr, &g->thread), 0);
	return g;
}

void card_guest_free(struct guest *guest)
{
	assert_int_equal(vb_dpa_thread_destroy(guest->thread), 0);
	assert_int_equal(vb_dpa_mem_unmap(guest->card->process, guest->ctx_addr, 4096), 0);
	free(guest);
}

uint64_t card_symbol(struct card *card, const char *name)
{
	uint64_t value;

	if (vb_dpa_symbol_value(card->process, name, &value, NULL))
		fail_msg("the program has no %s", name);
	return value;
}

void *card_object(struct card *card, const char *name)
{
	uint64_t value, size;
	void *host;

	if (vb_dpa_symbol_value(card->process, name, &value, &size))
		fail_msg("the program has no %s", name);
	host = vb_view_lend(vb_dpa_mem_host(card->process, value, size, VB_DPA_READ));
	assert_non_null(host);
	return host;
}

static uint64_t call(struct guest *g, const char *function, const uint64_t *args)
{
	uint64_t result = 0;
	int r;

	card_signals();
	g->end = END_RETURN;
	r = vb_dpa_call(g->thread, card_symbol(g->card, function), args, 4, &result);
	if (g->end == END_TRAP) {
		char dump[2048];

		vb_dpa_state_format(g->card->process, &g->card->at_trap, dump, sizeof(dump));
		fail_msg("%s: %s", function, dump);
	}
	assert_int_equal(r, g->end == END_RETURN ? 0 : -EINTR);
	return result;
}

uint64_t(card_call)(struct card *card, const char *function, ...)
{
	uint64_t args[4];
	va_list ap;

	va_start(ap, function);
	for (int i = 0; i < 4; i++)
		args[i] = va_arg(ap, uint64_t);
	va_end(ap);
	return call(card->main, function, args);
}

uint64_t guest_call(struct guest *guest, const char *function, uint64_t arg)
{
	return call(guest, function, (uint64_t[4]){ arg });
}

void card_level(struct card *card, unsigned int stream, uint8_t level)
{
	uint64_t addr = card_symbol(card, VB_RTOS_SYM_LEVELS);
	uint8_t *levels =
		vb_view_lend(vb_dpa_mem_host(card->process, addr, 256, VB_DPA_READ | VB_DPA_WRITE));
	uint8_t highest = 0;

	assert_non_null(levels);
	levels[stream] = level;
	for (int i = 0; i < 255; i++)
		highest = levels[i] > highest ? levels[i] : highest;
	levels[255] = highest;
}

/* ---- the outbox ---- */

static int outbox_load(struct vb_dpa_thread *thread, uint64_t offset, unsigned int size,
		       uint64_t *value, void *arg)
{
	struct card *c = arg;

	(void)thread;
	if (size != 8)
		return -1;
	/* UCTL is never busy; BUFFER has twice what was asked for through RXC_RD. */
	*value = offset == 0x40 && c->stores ? 2 * c->outbox[c->stores - 1][1] : 0;
	return 0;
}

static int outbox_store(struct vb_dpa_thread *thread, uint64_t offset, unsigned int size,
			uint64_t value, void *arg)
{
	struct card *c = arg;

	(void)thread;
	if (size != 8 || c->stores == 64)
		return -1;
	c->outbox[c->stores][0] = offset;
	c->outbox[c->stores++][1] = value;
	return 0;
}

void card_outbox(struct card *card)
{
	static const struct vb_dpa_device_ops device = { outbox_load, outbox_store };
	struct vb_dpa_window *page;

	assert_int_equal(
		vb_dpa_device_create(card->process, NULL, OUTBOX, 4096, &device, card, &page), 0);
	card->main->ctx->outbox_base = OUTBOX;
}

/* ---- messages ---- */

char *card_text(struct card *card)
{
	char *text = calloc(1, 1);
	size_t length = 0;

	for (size_t i = 0; i < card->count; i++) {
		struct message *m = &card->messages[i];

		text = realloc(text, length + m->length + 1);
		memcpy(text + length, m->text, m->length + 1);
		length += m->length;
		free(m->text);
	}
	card->count = 0;
	return text;
}

int card_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s interp|jit DEVICE-PROGRAM\n", argv[0]);
		return 2;
	}
	tier = strcmp(argv[1], "jit") ? VB_DPA_TIER_INTERP : VB_DPA_TIER_JIT;
	card_program = argv[2];
	unsetenv("VERBATIM_DPA_TIER");
	unsetenv("VERBATIM_DPA_SEED");
	return _cmocka_run_group_tests(argv[0], tests, count, NULL, NULL);
}
