// SPDX-License-Identifier: MIT
/*
 * verbatim ps: the processes of this user that have the card open. With -v also their adapters, queue pairs, device
 * code, and what became of their doorbells by store.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/cmd.h"
#include "tools/json.h"
#include "tools/look/look.h"

enum { KEY_JSON = 'j' };

struct arguments {
	bool verbose, json;
};

void tools_command_of(pid_t pid, char *name, size_t size)
{
	char path[64];
	FILE *f;

	snprintf(name, size, "?");
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(name, (int)size, f))
		name[strcspn(name, "\n")] = '\0';
	fclose(f);
}

/* --- text ------------------------------------------------------------------------------------- */

/* Nothing where no doorbell was ever rung by a store. */
static void print_doorbells(const struct look_doorbells *bells)
{
	unsigned int kept = 0;

	if (!bells->traps)
		return;
	printf("%15s doorbells: %u sites patched, %" PRIu64 " traps", "", bells->patched,
	       bells->traps);
	for (int i = 0; i < VB_SITE_REASONS; i++)
		if (bells->kept[i])
			printf("%s%s %u", kept++ ? ", " : "; sites that trap: ",
			       vb_site_reason_name((enum vb_site_reason)i), bells->kept[i]);
	printf("\n");
}

static void print_qp(const struct look_qp *qp)
{
	char sent[24], received[24], peer[32] = "-";

	look_bytes(qp->sq.sent + qp->rq.sent, sent);
	look_bytes(qp->sq.received + qp->rq.received, received);
	if (qp->peer)
		snprintf(peer, sizeof(peer), "0x%x (%d)", qp->peer, (int)qp->peer_pid);
	printf("%15s QP 0x%x %s %s, peer %s, sent %s, received %s; requests: %" PRIu64
	       " in packets, %" PRIu64 " shared, %" PRIu64 " copied, %" PRIu64
	       " in the process; %" PRIu64 " retries, %" PRIu64 " dropped\n",
	       "", qp->number, look_type(qp->type), look_state(qp->state), peer, sent, received,
	       qp->sq.packets, qp->sq.stores, qp->sq.copies, qp->sq.calls, qp->sq.retries,
	       qp->rq.dropped);
}

static void print_details(const struct look *look, const struct look_process *p)
{
	char sent[24], received[24];

	look_each(look_adapter, a, &look->adapters)
	{
		if (a->pid != p->pid)
			continue;
		look_bytes(a->traffic.sent, sent);
		look_bytes(a->traffic.received, received);
		printf("%15s %s: %u QPs, sent %s, received %s\n", "", a->name, a->qps, sent,
		       received);
		look_each(look_qp, qp, &look->qps) if (qp->pid == p->pid &&
						       !strcmp(qp->adapter, a->name)) print_qp(qp);
	}
	look_each(look_dpa, dpa, &look->dpas) if (dpa->pid == p->pid)
		printf("%15s %s: device process 0x%x %s, %u threads\n", "", dpa->adapter, dpa->id,
		       dpa->name, dpa->threads);
	print_doorbells(&p->doorbells);
}

static void look_ps_print_text(const struct look *look, bool verbose)
{
	printf("%8s %5s %6s %11s %11s  %s\n", "PID", "SLOT", "QPS", "SENT", "RECEIVED", "COMMAND");
	look_each(look_process, p, &look->processes)
	{
		struct look_traffic sum = { 0 };
		uint32_t qps = 0;
		char sent[24], received[24];

		look_each(look_adapter, a, &look->adapters) if (a->pid == p->pid)
		{
			qps += a->qps;
			sum.sent += a->traffic.sent;
			sum.received += a->traffic.received;
		}
		look_bytes(sum.sent, sent);
		look_bytes(sum.received, received);
		printf("%8d %5" PRIu32 " %6u %11s %11s  %s\n", (int)p->pid, p->slot, qps, sent,
		       received, p->command);
		if (verbose)
			print_details(look, p);
	}
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void json_traffic(const struct look_traffic *t)
{
	printf("\"sent_bytes\":%" PRIu64 ",\"received_bytes\":%" PRIu64 ",\"packets\":%" PRIu64
	       ",\"stores\":%" PRIu64 ",\"copies\":%" PRIu64 ",\"calls\":%" PRIu64
	       ",\"retries\":%" PRIu64 ",\"dropped\":%" PRIu64,
	       t->sent, t->received, t->packets, t->stores, t->copies, t->calls, t->retries,
	       t->dropped);
}

static void json_qp(const struct look_qp *qp, const char *sep)
{
	printf("%s{\"number\":%u,\"type\":\"%s\",\"state\":\"%s\",\"send_cq\":%u,\"recv_cq\":%u,"
	       "\"peer\":%u,\"peer_pid\":%d,\"requester\":{",
	       sep, qp->number, look_type(qp->type), look_state(qp->state), qp->send_cq,
	       qp->recv_cq, qp->peer, (int)qp->peer_pid);
	json_traffic(&qp->sq);
	printf("},\"responder\":{\"sent_bytes\":%" PRIu64 ",\"received_bytes\":%" PRIu64
	       ",\"packets\":%" PRIu64 ",\"dropped\":%" PRIu64 "}}",
	       qp->rq.sent, qp->rq.received, qp->rq.packets, qp->rq.dropped);
}

static void json_adapter(const struct look *look, const struct look_adapter *a, const char *sep)
{
	const char *inner = "";

	printf("%s{\"name\":", sep);
	tools_json_string(stdout, a->name);
	printf(",");
	json_traffic(&a->traffic);
	printf(",\"qps\":[");
	look_each(look_qp, qp, &look->qps) if (qp->pid == a->pid && !strcmp(qp->adapter, a->name))
	{
		json_qp(qp, inner);
		inner = ",";
	}
	printf("]}");
}

static void json_dpa(const struct look_dpa *dpa, const char *sep)
{
	printf("%s{\"id\":%u,\"name\":", sep, dpa->id);
	tools_json_string(stdout, dpa->name);
	printf(",\"adapter\":");
	tools_json_string(stdout, dpa->adapter);
	printf(",\"threads\":%u}", dpa->threads);
}

static void json_doorbells(const struct look_doorbells *bells)
{
	const char *sep = "";

	printf("{\"patched\":%u,\"traps\":%" PRIu64 ",\"kept\":{", bells->patched, bells->traps);
	for (int i = 0; i < VB_SITE_REASONS; i++)
		if (bells->kept[i]) {
			printf("%s\"%s\":%u", sep, vb_site_reason_name((enum vb_site_reason)i),
			       bells->kept[i]);
			sep = ",";
		}
	printf("}}");
}

static void look_ps_print_json(const struct look *look)
{
	const char *outer = "";

	printf("{\"processes\":[");
	look_each(look_process, p, &look->processes)
	{
		const char *sep = "";

		printf("%s{\"pid\":%d,\"slot\":%u,\"command\":", outer, (int)p->pid, p->slot);
		tools_json_string(stdout, p->command);
		printf(",\"adapters\":[");
		look_each(look_adapter, a, &look->adapters) if (a->pid == p->pid)
		{
			json_adapter(look, a, sep);
			sep = ",";
		}
		printf("],\"device_processes\":[");
		sep = "";
		look_each(look_dpa, dpa, &look->dpas) if (dpa->pid == p->pid)
		{
			json_dpa(dpa, sep);
			sep = ",";
		}
		printf("],\"doorbells\":");
		json_doorbells(&p->doorbells);
		printf("}");
		outer = ",\n";
	}
	printf("]}\n");
}

/* --- the command ------------------------------------------------------------------------------ */

static error_t look_ps_parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	switch (key) {
	case 'v':
		args->verbose = true;
		return 0;
	case KEY_JSON:
		args->json = true;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

int cmd_ps(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "verbose", 'v', NULL, 0,
		  "Also adapters, queue pairs, device code, doorbells by store", 0 },
		{ "json", KEY_JSON, NULL, 0, "All of it, as JSON", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = look_ps_parse,
		.doc = "List your processes that use the card on this host.",
	};
	struct arguments args = { 0 };
	struct look look;
	int ret;

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	ret = look_make(&look);
	if (ret) {
		fprintf(stderr, "verbatim ps: %s\n", strerror(-ret));
	} else if (args.json) {
		look_ps_print_json(&look);
	} else {
		look_ps_print_text(&look, args.verbose);
	}
	look_free(&look);
	return ret ? 1 : 0;
}
