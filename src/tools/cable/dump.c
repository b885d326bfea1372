// SPDX-License-Identifier: MIT
/*
 * verbatim cable dump: prints what a port sends and receives, or writes it into a pcap file.
 *
 *	any process --> capture (background thread): direction, filter --> queue --> this thread, in the order of sending: line or file
 *
 * What is lost on the way, before the capture or at the queue, is counted and said.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "packet/frame/frame.h"
#include "tools/cable/cable.h"

enum { QUEUE_SIZE = 32 << 20, OPT_CONFIG = 256, OPT_RDMA };

struct dump {
	const char *config, *device, *file;
	char *filter_text;
	bool in, out;   /* which frames */
	bool rdma;      /* packets of queue pairs, too */
	uint64_t count; /* to end after; 0: none */
	struct vb_dev *dev;
	pcap_t *pcap; /* no capture: what the filter and the file are made for */
	struct bpf_program filter;
	pcap_dumper_t *dumper; /* NULL: lines */
	struct queue queue;
	_Atomic uint64_t seen;
	uint64_t captured;
	bool told_lost;
};

static const char who[] = "verbatim cable dump";

/* --- arguments -------------------------------------------------------------------------------- */

static void add_filter(struct dump *d, struct argp_state *state, const char *word)
{
	char *joined;

	if (asprintf(&joined, "%s%s%s", d->filter_text ? d->filter_text : "",
		     d->filter_text ? " " : "", word) < 0)
		argp_failure(state, 1, ENOMEM, "the filter");
	free(d->filter_text);
	d->filter_text = joined;
}

static void parse_direction(struct dump *d, struct argp_state *state, const char *arg)
{
	if (strcmp(arg, "in") && strcmp(arg, "out") && strcmp(arg, "inout"))
		argp_error(state, "'%s' is not a direction; allowed: in, out, inout", arg);
	d->in = strcmp(arg, "out");
	d->out = strcmp(arg, "in");
}

static error_t cable_dump_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct dump *d = state->input;
	char *end;

	switch (key) {
	case 'w':
		d->file = arg;
		return 0;
	case 'c':
		errno = 0;
		d->count = strtoull(arg, &end, 10);
		if (errno || *end || *arg < '0' || *arg > '9' || !d->count)
			argp_error(state, "'%s' is not a number of frames; allowed: 1 and more",
				   arg);
		return 0;
	case 'Q':
		parse_direction(d, state, arg);
		return 0;
	case OPT_RDMA:
		d->rdma = true;
		return 0;
	case OPT_CONFIG:
		d->config = arg;
		return 0;
	case ARGP_KEY_ARG:
		if (d->device)
			add_filter(d, state, arg);
		else
			d->device = arg;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which adapter? 'verbatim devices' lists them");
		return EINVAL;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp_option options[] = {
	{ "write", 'w', "FILE", 0,
	  "Write the frames into FILE, as pcap with nanoseconds; -: standard output", 0 },
	{ "count", 'c', "COUNT", 0, "End after COUNT frames", 0 },
	{ "direction", 'Q', "DIRECTION", 0, "in: what arrives, out: what is sent; default: inout",
	  0 },
	{ "rdma", OPT_RDMA, NULL, 0, "Also show the packets of queue pairs, as RoCE frames", 0 },
	{ "config", OPT_CONFIG, "FILE", 0,
	  "Take the adapters from FILE (default: $VERBATIM_CONFIG)", 0 },
	{ 0 },
};

/* --- what the capture does ------------------------------------------------------------------------ */

static void on_frame(void *arg, const struct vb_frame *frame, bool sent, uint64_t ns)
{
	struct pcap_pkthdr header = { .caplen = frame->len, .len = frame->len };
	struct dump *d = arg;

	atomic_fetch_add_explicit(&d->seen, 1, memory_order_relaxed);
	if (!(sent ? d->out : d->in) ||
	    (d->filter_text && !pcap_offline_filter(&d->filter, &header, frame->data)))
		return;
	queue_put(&d->queue, frame, sent, ns);
}

/* --- what this thread does -------------------------------------------------------------------- */

static void print_line(const struct queued *q)
{
	struct vb_frame frame = { .data = (uint8_t *)q->data, .len = q->len };
	uint64_t wall = cable_wall_at(q->ns);
	time_t seconds = (time_t)(wall / 1000000000u);
	char line[VB_FRAME_LINE], stamp[16] = "";
	struct tm tm;

	vb_frame_parse(&frame);
	vb_frame_line(&frame, line, sizeof(line));
	if (localtime_r(&seconds, &tm))
		strftime(stamp, sizeof(stamp), "%H:%M:%S", &tm);
	printf("%s.%06u %-3s %s\n", stamp, (unsigned int)(wall % 1000000000u / 1000),
	       q->sent ? "Out" : "In", line);
}

/* 0, or an exit code after a message. */
static int write_frame(struct dump *d, const struct queued *q)
{
	uint64_t wall = cable_wall_at(q->ns);
	/* With nanoseconds tv_usec has those. */
	struct pcap_pkthdr header = {
		.ts = { .tv_sec = (time_t)(wall / 1000000000u),
			.tv_usec = (suseconds_t)(wall % 1000000000u) },
		.caplen = q->len,
		.len = q->len,
	};

	if (d->dumper)
		pcap_dump((u_char *)d->dumper, &header, q->data);
	else
		print_line(q);
	if (d->dumper ? !pcap_dump_flush(d->dumper) && !ferror(pcap_dump_file(d->dumper))
		      : !fflush(stdout))
		return 0;
	if (errno == EINTR && cable_stopped())
		return 0;
	if (d->dumper && strcmp(d->file, "-"))
		fprintf(stderr, "%s: %s: %s\n", who, d->file, strerror(errno));
	else
		tools_stdout_failed(); /* the message comes at exit */
	return 1;
}

/* What is missing in the output. */
struct losses {
	uint64_t before, here; /* the capture; in the queue */
	uint32_t unread;       /* processes */
};

static struct losses count_losses(struct dump *d)
{
	struct losses l = { .here = atomic_load_explicit(&d->queue.lost, memory_order_relaxed) };

	l.before = vb_cable_lost(d->dev, &l.unread);
	return l;
}

/* Once, while it runs; the numbers come at the end. */
static void tell_losses(struct dump *d)
{
	struct losses l = count_losses(d);

	if (d->told_lost || (!l.before && !l.here))
		return;
	d->told_lost = true;
	fprintf(stderr, "%s: frames are being lost: they come faster than they are %s\n", who,
		d->dumper ? "written" : "printed");
}

static int cable_dump_take_frames(struct dump *d)
{
	struct queued *q;
	int ret = 0;

	while (!ret && (!d->count || d->captured < d->count)) {
		q = queue_peek(&d->queue, cable_stopped());
		if (!q) {
			if (cable_stopped())
				break;
			queue_wait(&d->queue);
			continue;
		}
		ret = write_frame(d, q);
		queue_pop(&d->queue);
		d->captured += !ret;
		tell_losses(d);
	}
	return ret;
}

static void print_statistics(struct dump *d, const struct losses *l)
{
	fprintf(stderr, "%" PRIu64 " frames captured\n%" PRIu64 " frames seen on %s\n", d->captured,
		atomic_load_explicit(&d->seen, memory_order_relaxed), d->device);
	fprintf(stderr, "%" PRIu64 " frames lost", l->before + l->here);
	if (l->before)
		fprintf(stderr,
			": %" PRIu64 " of all ports before this process took them, %" PRIu64
			" because %s was too slow",
			l->before, l->here, d->dumper ? "writing" : "printing");
	fprintf(stderr, "\n");
	if (l->unread)
		fprintf(stderr,
			"%" PRIu32 " processes ended before anything that they sent was read\n",
			l->unread);
}

/* --- the whole -------------------------------------------------------------------------------- */

/* The filter is checked before anything is opened or made. */
static int cable_dump_compile(struct dump *d)
{
	d->pcap = pcap_open_dead_with_tstamp_precision(DLT_EN10MB, VB_CABLE_LONGEST,
						       PCAP_TSTAMP_PRECISION_NANO);
	if (!d->pcap) {
		fprintf(stderr, "%s: %s\n", who, strerror(ENOMEM));
		return 1;
	}
	if (d->filter_text &&
	    pcap_compile(d->pcap, &d->filter, d->filter_text, 1, PCAP_NETMASK_UNKNOWN)) {
		fprintf(stderr, "%s: filter '%s': %s; man pcap-filter has the language\n", who,
			d->filter_text, pcap_geterr(d->pcap));
		return CMD_USAGE;
	}
	return 0;
}

static int cable_dump_open_file(struct dump *d)
{
	if (!d->file)
		return 0;
	if (!strcmp(d->file, "-") && isatty(STDOUT_FILENO)) {
		fprintf(stderr,
			"%s: a pcap file is nothing for a terminal; "
			"try '-w - | tcpdump -r -', or leave out -w for lines\n",
			who);
		return CMD_USAGE;
	}
	d->dumper = pcap_dump_open(d->pcap, d->file);
	/* The head of the file goes out now: a reader of a pipe waits for it. */
	if (d->dumper && !pcap_dump_flush(d->dumper))
		return 0;
	fprintf(stderr, "%s: %s\n", who, d->dumper ? strerror(errno) : pcap_geterr(d->pcap));
	return 1;
}

static int listen_to(struct dump *d)
{
	struct vb_capture_sink sink = { .frame = on_frame, .arg = d, .rdma = d->rdma };
	struct losses losses;
	int ret;

	cable_catch_signals(d->queue.ready);
	ret = vb_capture_open(d->dev, &sink);
	if (ret) {
		fprintf(stderr, "%s: %s: %s\n", who, d->device, strerror(-ret));
		return 1;
	}
	fprintf(stderr, "listening on %s, link-type EN10MB (Ethernet), snapshot length %d bytes\n",
		d->device, VB_CABLE_LONGEST);
	ret = cable_dump_take_frames(d);
	losses = count_losses(d);
	vb_capture_close(d->dev);
	print_statistics(d, &losses);
	return ret;
}

int cable_dump(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = cable_dump_parse_opt,
		.args_doc = "ADAPTER [FILTER...]",
		.doc = "Print the raw Ethernet frames that an adapter's port sends and receives, "
		       "whichever process does it.\v"
		       "FILTER is an expression of pcap-filter(7), as for tcpdump. Ctrl-C ends.\n\n"
		       "Examples:\n"
		       "  verbatim cable dump mlx5_0 -c 10 arp or icmp\n"
		       "  verbatim cable dump mlx5_0 -w - | tcpdump -nr -\n"
		       "  verbatim cable dump mlx5_0 -w - | wireshark -k -i -",
	};
	struct dump d = { .in = true, .out = true };
	int ret;

	argp_parse(&argp, argc, argv, 0, NULL, &d);
	ret = cable_dump_compile(&d);
	if (!ret)
		ret = cable_open_port(who, d.config, d.device, &d.dev);
	if (!ret) {
		ret = cable_dump_open_file(&d);
		if (!ret) {
			ret = -queue_create(&d.queue, QUEUE_SIZE);
			if (ret)
				fprintf(stderr, "%s: %s\n", who, strerror(ret));
			else
				ret = listen_to(&d);
		}
		if (d.dumper && strcmp(d.file, "-")) /* standard output is closed at exit */
			pcap_dump_close(d.dumper);
		if (d.queue.area)
			queue_destroy(&d.queue);
		vb_dev_close(d.dev);
	}
	pcap_freecode(&d.filter);
	if (d.pcap)
		pcap_close(d.pcap);
	free(d.filter_text);
	return ret;
}
