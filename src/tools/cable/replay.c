// SPDX-License-Identifier: MIT
/*
 * verbatim cable replay: lets the frames of a file arrive at a port, as if they came from the wire.
 *
 *	file --> read once: every record is sound --> read again, for each loop: wait, inject
 *
 * A file that cannot be read to its end changes nothing: the first reading comes before the first
 * frame. What is no regular file is copied first.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/time.h"
#include "packet/frame/frame.h"
#include "tools/cable/cable.h"

enum {
	OPT_TO = 256,
	OPT_CONFIG,
	SECOND = 1000000000,
	ROOM_PAUSE_NS = 20000,       /* between looks for room */
	PATIENCE_NS = 200000000,     /* with a process that takes nothing */
	FAREWELL_NS = 2000000000,    /* for what was sent to be taken, at the end */
	PROGRESS_NS = 200000000,     /* between two updates on a terminal */
	LONGEST_SLEEP_NS = 100000000 /* so that progress is shown */
};

/* How fast. */
enum pace {
	BY_STAMPS, /* with the distances that the file has */
	BY_FRAMES, /* so many a second */
	BY_BITS,
	AT_ONCE, /* as fast as the receivers take them */
};

struct replay {
	const char *config, *name, *device;
	enum pace pace;
	double rate;    /* frames or bits a second */
	uint64_t loops; /* 0: until the end is asked for */
	FILE *file;
	struct vb_dev *dev;
	/* of one round, found by the first reading */
	uint64_t in_file, short_frames, long_frames, cut_frames, first_odd;
	uint32_t first_odd_len;
	/* of all */
	uint64_t frames, bytes, lost;
	uint64_t due;    /* when the next frame is */
	double fraction; /* of a nanosecond, of that */
	uint64_t shown;  /* when progress was */
	bool terminal;
};

static const char who[] = "verbatim cable replay";

/* --- arguments -------------------------------------------------------------------------------- */

static void parse_rate(struct replay *r, struct argp_state *state, const char *arg)
{
	static const struct {
		const char *name;
		enum pace pace;
		double factor;
	} units[] = {
		{ "", BY_FRAMES, 1 },       { "pps", BY_FRAMES, 1 },  { "kpps", BY_FRAMES, 1e3 },
		{ "mpps", BY_FRAMES, 1e6 }, { "bit", BY_BITS, 1 },    { "kbit", BY_BITS, 1e3 },
		{ "mbit", BY_BITS, 1e6 },   { "gbit", BY_BITS, 1e9 },
	};
	char *end;

	if (!strcasecmp(arg, "max")) {
		r->pace = AT_ONCE;
		return;
	}
	errno = 0;
	r->rate = strtod(arg, &end);
	for (unsigned int i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		/* Neither hexadecimal nor "nan" nor an exponent. */
		if (errno || end == arg || end != arg + strspn(arg, "0123456789.") ||
		    strcasecmp(end, units[i].name))
			continue;
		r->pace = units[i].pace;
		r->rate *= units[i].factor;
		if (r->rate >= 1e-3 && r->rate <= 1e15)
			return;
	}
	argp_error(state,
		   "'%s' is not a rate; allowed: frames a second (500, 10kpps, 1mpps), "
		   "bits a second (64kbit, 100mbit, 1gbit), max",
		   arg);
}

static void parse_loops(struct replay *r, struct argp_state *state, const char *arg)
{
	char *end;

	errno = 0;
	r->loops = strtoull(arg, &end, 10);
	if (errno || *end || *arg < '0' || *arg > '9')
		argp_error(state, "'%s' is not a number of rounds; allowed: 1 and more, 0: endless",
			   arg);
}

static error_t replay_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct replay *r = state->input;

	switch (key) {
	case OPT_TO:
		r->device = arg;
		return 0;
	case 'r':
		parse_rate(r, state, arg);
		return 0;
	case 'l':
		parse_loops(r, state, arg);
		return 0;
	case OPT_CONFIG:
		r->config = arg;
		return 0;
	case ARGP_KEY_ARG:
		if (r->name)
			argp_error(state, "one file at a time: '%s' and '%s'", r->name, arg);
		r->name = arg;
		return 0;
	case ARGP_KEY_END:
		if (!r->name)
			argp_error(state, "which file?");
		if (!r->device)
			argp_error(state, "to which adapter? Give --to mlx5_0; 'verbatim devices' "
					  "lists them");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp_option options[] = {
	{ "to", OPT_TO, "ADAPTER", 0, "The adapter at whose port the frames arrive", 0 },
	{ "rate", 'r', "RATE", 0,
	  "Frames a second (500, 10kpps), bits a second (100mbit), or max: as fast as receivers "
	  "take them; default: with the distances of the file's time stamps",
	  0 },
	{ "loop", 'l', "N", 0, "Replay the file N times; 0: until Ctrl-C; default: 1", 0 },
	{ "config", OPT_CONFIG, "FILE", 0,
	  "Take the adapters from FILE (default: $VERBATIM_CONFIG)", 0 },
	{ 0 },
};

/* --- the file --------------------------------------------------------------------------------- */

/* What cannot be read twice is copied. 0 or -errno. */
static int copy_file(struct replay *r, FILE *from)
{
	char buffer[65536];
	FILE *copy = tmpfile();
	size_t n;

	if (!copy)
		return -errno;
	while (!cable_stopped() && (n = fread(buffer, 1, sizeof(buffer), from)))
		if (fwrite(buffer, 1, n, copy) != n)
			break;
	if (cable_stopped() || ferror(from) || ferror(copy) || fflush(copy)) {
		fclose(copy);
		return cable_stopped() ? -EINTR : -EIO;
	}
	r->file = copy;
	return 0;
}

/* 0, or an exit code after a message. */
static int replay_open_file(struct replay *r)
{
	bool standard = !strcmp(r->name, "-");
	FILE *file = standard ? stdin : fopen(r->name, "rbe");
	struct stat st;
	int ret = 0;

	if (!file || fstat(fileno(file), &st)) {
		ret = -errno;
	} else if (S_ISDIR(st.st_mode)) {
		ret = -EISDIR;
	} else if (S_ISREG(st.st_mode) && !standard) {
		r->file = file;
		return 0;
	} else {
		ret = copy_file(r, file);
	}
	if (file && !standard)
		fclose(file);
	if (ret)
		fprintf(stderr, "%s: %s: %s\n", who, r->name, strerror(-ret));
	return ret ? 1 : 0;
}

/* Begin to read it from its start; NULL after a message. */
static pcap_t *replay_begin(struct replay *r)
{
	char error[PCAP_ERRBUF_SIZE] = "";
	int fd = dup(fileno(r->file)), type;
	FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");
	const char *name;
	pcap_t *pcap;

	if (!file || fseek(file, 0, SEEK_SET)) {
		fprintf(stderr, "%s: %s: %s\n", who, r->name, strerror(errno));
		if (file)
			fclose(file);
		else if (fd >= 0)
			close(fd);
		return NULL;
	}
	pcap = pcap_fopen_offline_with_tstamp_precision(file, PCAP_TSTAMP_PRECISION_NANO, error);
	if (!pcap) {
		fclose(file);
		fprintf(stderr, "%s: %s: not a pcap or pcapng file: %s\n", who, r->name, error);
		return NULL;
	}
	type = pcap_datalink(pcap);
	if (type == DLT_EN10MB)
		return pcap;
	name = pcap_datalink_val_to_name(type);
	fprintf(stderr,
		"%s: %s: frames of link type %s (%d), not of Ethernet (EN10MB); "
		"record on one Ethernet interface, not on 'any'\n",
		who, r->name, name ? name : "?", type);
	pcap_close(pcap);
	return NULL;
}

/* The next frame: 1, 0 at the end, -1 after a message. */
static int replay_next_frame(struct replay *r, pcap_t *pcap, uint64_t number,
			     struct pcap_pkthdr **header, const uint8_t **data)
{
	int ret = pcap_next_ex(pcap, header, data);

	if (ret == 1)
		return 1;
	if (ret == PCAP_ERROR_BREAK)
		return 0;
	fprintf(stderr, "%s: %s: packet %" PRIu64 ": %s\n", who, r->name, number,
		pcap_geterr(pcap));
	return -1;
}

static bool replay_fits(const struct pcap_pkthdr *header)
{
	return header->caplen >= VB_FRAME_HEADER && header->caplen <= VB_CABLE_LONGEST;
}

static void count_odd(struct replay *r, const struct pcap_pkthdr *header, uint64_t number)
{
	r->cut_frames += header->caplen < header->len;
	if (replay_fits(header))
		return;
	if (header->caplen < VB_FRAME_HEADER)
		r->short_frames++;
	else
		r->long_frames++;
	if (r->first_odd)
		return;
	r->first_odd = number;
	r->first_odd_len = header->caplen;
}

/* The first reading. 0, or an exit code after a message. */
static int check_file(struct replay *r)
{
	pcap_t *pcap = replay_begin(r);
	struct pcap_pkthdr *header;
	const uint8_t *data;
	int ret;

	if (!pcap)
		return 1;
	while ((ret = replay_next_frame(r, pcap, r->in_file + 1, &header, &data)) == 1)
		count_odd(r, header, ++r->in_file);
	pcap_close(pcap);
	if (ret)
		fprintf(stderr, "%s: nothing was replayed\n", who);
	return ret ? 1 : 0;
}

/* --- time ------------------------------------------------------------------------------------- */

/* On a terminal, now and then. */
static void show_progress(struct replay *r, bool last)
{
	uint64_t now = vb_now_ns();

	if (!r->terminal || (!last && now - r->shown < PROGRESS_NS))
		return;
	r->shown = now;
	if (last)
		fprintf(stderr, "\r\033[K");
	else
		fprintf(stderr, "\r\033[K%" PRIu64 " frames, %" PRIu64 " bytes", r->frames,
			r->bytes);
}

static void wait_until_due(struct replay *r)
{
	uint64_t now;

	while (!cable_stopped() && (now = vb_now_ns()) < r->due) {
		vb_sleep_ns(r->due - now < LONGEST_SLEEP_NS ? r->due - now : LONGEST_SLEEP_NS);
		show_progress(r, false);
	}
}

/* Add a distance to the time of the next frame. */
static void put_off(struct replay *r, double ns)
{
	uint64_t whole;

	r->fraction += ns;
	whole = (uint64_t)r->fraction;
	r->fraction -= (double)whole;
	r->due += whole;
}

/* A receiver that takes nothing for a while is not waited for any more: it loses frames. */
static void replay_wait_for_room(struct replay *r, uint32_t len)
{
	uint64_t end = vb_now_ns() + PATIENCE_NS;

	while (!cable_stopped() && !vb_cable_has_room(r->dev, len, vb_now_ns() >= end))
		vb_sleep_ns(ROOM_PAUSE_NS);
}

/* --- replaying -------------------------------------------------------------------------------- */

static uint64_t replay_stamp(const struct pcap_pkthdr *header)
{
	return (uint64_t)header->ts.tv_sec * SECOND + (uint64_t)header->ts.tv_usec;
}

/* 0, or an exit code after a message. */
static int inject(struct replay *r, const struct pcap_pkthdr *header, const uint8_t *data)
{
	int ret;

	wait_until_due(r);
	replay_wait_for_room(r, header->caplen);
	if (cable_stopped())
		return 0;
	ret = vb_cable_inject(r->dev, data, header->caplen);
	if (ret < 0) {
		fprintf(stderr, "%s: %s: %s\n", who, r->device, strerror(-ret));
		return 1;
	}
	r->frames++;
	r->bytes += header->caplen;
	r->lost += (unsigned int)ret;
	if (r->pace == BY_FRAMES)
		put_off(r, SECOND / r->rate);
	else if (r->pace == BY_BITS)
		put_off(r, header->caplen * 8.0 * SECOND / r->rate);
	if (!(r->frames & 0xff))
		show_progress(r, false);
	return 0;
}

/* Once through the file: 0, or an exit code after a message. */
static int play(struct replay *r)
{
	pcap_t *pcap = replay_begin(r);
	struct pcap_pkthdr *header;
	const uint8_t *data;
	uint64_t number = 0, last = 0;
	int ret;

	if (!pcap)
		return 1;
	while (!cable_stopped() &&
	       (ret = replay_next_frame(r, pcap, ++number, &header, &data)) == 1) {
		/* A clock that was set back in between makes no distance. */
		if (r->pace == BY_STAMPS && number > 1 && replay_stamp(header) > last)
			r->due += replay_stamp(header) - last;
		last = replay_stamp(header);
		ret = replay_fits(header) ? inject(r, header, data) : 0;
		if (ret)
			break;
	}
	pcap_close(pcap);
	return cable_stopped() || !ret ? 0 : 1;
}

/* Receivers lose what a process that is gone has left for them. */
static void wait_until_taken(struct replay *r)
{
	uint64_t end = vb_now_ns() + FAREWELL_NS;

	while (!vb_cable_drained(r->dev, false) && vb_now_ns() < end)
		vb_sleep_ns(ROOM_PAUSE_NS);
}

static void replay_print_end(struct replay *r)
{
	show_progress(r, true);
	printf("%" PRIu64 " frames, %" PRIu64 " bytes replayed to %s\n", r->frames, r->bytes,
	       r->device);
	fflush(stdout);
	if (r->lost)
		fprintf(stderr,
			"%s: %" PRIu64
			" frames were lost by processes that do not take them (stopped, or too slow)%s\n",
			who, r->lost,
			vb_cable_drained(r->dev, true) ? "" : ", and the last ones may be");
	if (r->cut_frames)
		fprintf(stderr,
			"%s: %s: %" PRIu64
			" frames of the file are cut; what there is of them was replayed\n",
			who, r->name, r->cut_frames);
	if (r->first_odd)
		fprintf(stderr,
			"%s: %s: %" PRIu64 " frames of the file were left out: %" PRIu64
			" shorter than %d bytes, %" PRIu64
			" longer than %d; the first is packet %" PRIu64 " with %" PRIu32 " bytes\n",
			who, r->name, r->short_frames + r->long_frames, r->short_frames,
			VB_FRAME_HEADER, r->long_frames, VB_CABLE_LONGEST, r->first_odd,
			r->first_odd_len);
}

static int replay(struct replay *r)
{
	int ret = 0;

	r->due = vb_now_ns();
	/* A file with nothing in it would be looped for ever, doing nothing. */
	for (uint64_t i = 0; !ret && !cable_stopped() && (!r->loops || i < r->loops) &&
			     (r->loops || r->in_file > r->short_frames + r->long_frames);
	     i++)
		ret = play(r);
	wait_until_taken(r);
	replay_print_end(r);
	return ret || r->first_odd ? 1 : 0;
}

int cable_replay(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = replay_parse_opt,
		.args_doc = "FILE --to ADAPTER",
		.doc = "Let the Ethernet frames of a pcap or pcapng file arrive at an adapter's port, "
		       "as if they came from the wire.\v"
		       "FILE may be - for standard input. Rules and flows of every process that uses the "
		       "adapter see the frames.\n\n"
		       "Examples:\n"
		       "  verbatim cable replay trace.pcap --to mlx5_0\n"
		       "  verbatim cable replay trace.pcapng --to mlx5_0 --rate 10kpps --loop 0",
	};
	struct replay r = { .loops = 1, .terminal = isatty(STDERR_FILENO) };
	int ret;

	argp_parse(&argp, argc, argv, 0, NULL, &r);
	cable_catch_signals(-1);
	ret = replay_open_file(&r);
	if (!ret)
		ret = check_file(&r);
	if (!ret && !cable_stopped())
		ret = cable_open_port(who, r.config, r.device, &r.dev);
	if (r.dev) {
		ret = replay(&r);
		vb_dev_close(r.dev);
	}
	if (r.file)
		fclose(r.file);
	return ret;
}
