// SPDX-License-Identifier: MIT
/*
 * verbatim top: a live view of the cards, in a terminal. With --once one frame goes to standard output.
 *
 * Device threads are counted while it runs: it asks their programs to, and asks those that did not before to stop when it ends.
 * So it ends in order where a signal asks it to. Those signals are blocked but while it waits: none is missed.
 */
#include <argp.h>
#include <errno.h>
#include <curses.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/time.h"
#include "tools/cmd.h"
#include "tools/look/frame.h"

enum { KEY_ONCE = 'o' };

struct arguments {
	double seconds;
	bool once;
	struct frame_options options;
};

struct screen {
	struct arguments *args;
	size_t scroll;
	bool paused, help, ended;
};

/* --- the end ---------------------------------------------------------------------------------- */

static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
static volatile sig_atomic_t end_signal;
static sigset_t waiting; /* the mask while it waits */

static void top_end(int sig)
{
	end_signal = sig;
}

/* A signal that our caller ignores stays ignored. */
static void catch_ends(void)
{
	struct sigaction act = { .sa_handler = top_end }, old;
	sigset_t block;

	sigemptyset(&block);
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		sigaction(ends[i], NULL, &old);
		if (old.sa_handler == SIG_IGN)
			continue;
		sigaddset(&block, ends[i]);
		sigaction(ends[i], &act, NULL);
	}
	sigprocmask(SIG_BLOCK, &block, &waiting);
}

/* Ends by the signal that asked for it, as the caller expects. */
static void end_by_signal(void)
{
	signal(end_signal, SIG_DFL);
	raise(end_signal);
	sigprocmask(SIG_SETMASK, &waiting, NULL);
}

/* --- one frame -------------------------------------------------------------------------------- */

static double seconds_now(void)
{
	return (double)vb_machine_ns() / 1e9;
}

/* Until there is something to read, a signal came, or the time has passed; below 0: without end. True: to read. */
static bool wait_for_input(int fd, double seconds)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t until = seconds < 0 ? VB_NEVER : vb_machine_ns() + (uint64_t)(seconds * 1e9);

	return vb_poll_until(VB_MACHINE_TIME, &p, 1, until, &waiting) > 0;
}

static void sleep_for(double seconds)
{
	double end_at = seconds_now() + seconds, left;

	while (!end_signal && (left = end_at - seconds_now()) > 0)
		wait_for_input(-1, left);
}

static int print_once(const struct arguments *args)
{
	struct look before, now;
	struct frame frame;
	int ret = look_make(&before);

	sleep_for(args->seconds);
	if (!ret)
		ret = look_make(&now);
	if (!ret) {
		frame_make(&frame, &before, &now, &args->options);
		for (size_t i = 0; i < frame.count; i++)
			printf("%s\n", frame.line[i].text);
		frame_free(&frame);
		look_free(&now);
	}
	look_free(&before);
	return ret;
}

/* --- the terminal ----------------------------------------------------------------------------- */

static const char *const help[] = {
	"q             end",
	"Tab           queue pairs or device threads",
	"< >           sort by the column to the left or right",
	"r             turn the order round",
	"Up Down       scroll; so do PgUp, PgDn, Home",
	"space         stop and go on",
	"+ -           wait longer or shorter between looks",
	"h ?           these keys",
};

static void set_style(enum frame_style style)
{
	attrset(A_NORMAL);
	switch (style) {
	case FRAME_TITLE:
		attron(A_BOLD);
		break;
	case FRAME_HEAD:
		attron(A_REVERSE);
		break;
	case FRAME_BAD:
		attron(A_BOLD | (has_colors() ? COLOR_PAIR(1) : 0));
		break;
	case FRAME_PLAIN:
		break;
	}
}

static void draw_line(int y, const struct frame_line *line)
{
	set_style(line->style);
	mvaddnstr(y, 0, line->text, COLS);
	if (line->style == FRAME_HEAD)
		for (int x = (int)strlen(line->text); x < COLS; x++)
			mvaddch(y, x, ' ');
	attrset(A_NORMAL);
}

static void draw(struct screen *s, const struct frame *frame)
{
	size_t rest = frame->count - frame->head;
	int y = 0;

	erase();
	if (s->scroll >= rest)
		s->scroll = rest ? rest - 1 : 0;
	if (s->help) {
		for (size_t i = 0; i < sizeof(help) / sizeof(*help); i++)
			mvaddnstr((int)i + 1, 2, help[i], COLS - 2);
	} else {
		for (size_t i = 0; i < frame->head && y < LINES; i++)
			draw_line(y++, &frame->line[i]);
		for (size_t i = frame->head + s->scroll; i < frame->count && y < LINES; i++)
			draw_line(y++, &frame->line[i]);
	}
	if (s->paused)
		mvaddstr(1, 0, "stopped: space goes on");
	refresh();
}

static void sort_by(struct screen *s, int by, unsigned int columns)
{
	struct frame_options *o = &s->args->options;

	o->column = (o->column + columns + (unsigned int)by) % columns;
}

static void on_key(struct screen *s, int key, unsigned int columns)
{
	struct frame_options *o = &s->args->options;

	switch (key) {
	case 'q':
		s->ended = true;
		break;
	case '\t':
		o->list = (o->list + 1) % FRAME_LISTS;
		o->column = o->list == FRAME_QPS ? 5 : 4;
		s->scroll = 0;
		break;
	case '<':
		sort_by(s, -1, columns);
		break;
	case '>':
		sort_by(s, 1, columns);
		break;
	case 'r':
		o->reversed = !o->reversed;
		break;
	case ' ':
		s->paused = !s->paused;
		break;
	case 'h':
	case '?':
		s->help = !s->help;
		break;
	case '+':
		s->args->seconds = s->args->seconds < 60 ? s->args->seconds * 2 : 60;
		break;
	case '-':
		s->args->seconds = s->args->seconds > 0.2 ? s->args->seconds / 2 : 0.1;
		break;
	case KEY_DOWN:
		s->scroll++;
		break;
	case KEY_UP:
		s->scroll -= s->scroll > 0;
		break;
	case KEY_NPAGE:
		s->scroll += (size_t)LINES / 2;
		break;
	case KEY_PPAGE:
		s->scroll -= s->scroll < (size_t)LINES / 2 ? s->scroll : (size_t)LINES / 2;
		break;
	case KEY_HOME:
		s->scroll = 0;
		break;
	}
}

/* Keys, and the new size of the terminal, until it is time for the next look. */
static void wait_for_keys(struct screen *s, const struct look *before, const struct look *now)
{
	double start = seconds_now(), left;

	for (;;) {
		struct frame frame;
		int key;
		bool any;

		frame_make(&frame, before, now, &s->args->options);
		draw(s, &frame);
		left = start + s->args->seconds - seconds_now();
		any = (s->paused || left > 0) &&
		      wait_for_input(STDIN_FILENO, s->paused ? -1 : left);
		key = getch();
		if (key != ERR)
			on_key(s, key, frame.columns);
		frame_free(&frame);
		/* Input without a key is the end of the terminal. */
		s->ended |= end_signal || (any && key == ERR);
		if (s->ended || (key == ERR && !s->paused && left <= 0))
			return;
	}
}

static bool open_terminal(void)
{
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || !newterm(NULL, stdout, stdin))
		return false;
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE); /* wait_for_input() waits */
	curs_set(0);
	if (has_colors()) {
		start_color();
		use_default_colors();
		init_pair(1, COLOR_RED, -1);
	}
	return true;
}

static int top_run(struct arguments *args)
{
	struct screen s = { .args = args };
	struct look looks[2];
	int ret = look_make(&looks[0]), at = 0;

	if (ret)
		return ret;
	sleep_for(0.2);
	while (!ret && !s.ended) {
		ret = look_make(&looks[!at]);
		if (!ret)
			wait_for_keys(&s, &looks[at], &looks[!at]);
		look_free(&looks[at]);
		at = !at;
		if (!ret)
			look_count(true);
	}
	look_free(&looks[at]);
	return ret;
}

/* --- the command ------------------------------------------------------------------------------ */

static error_t top_parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;
	char *end;

	switch (key) {
	case 'd':
		args->options.adapter = arg;
		return 0;
	case 's':
		args->seconds = strtod(arg, &end);
		if (*end || !(args->seconds >= 0.1 && args->seconds <= 3600))
			argp_error(state, "--seconds: a number from 0.1 to 3600");
		return 0;
	case 't':
		args->options.list = FRAME_THREADS;
		args->options.column = 4;
		return 0;
	case KEY_ONCE:
		args->once = true;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

int cmd_top(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "device", 'd', "ADAPTER", 0, "Only this adapter", 0 },
		{ "seconds", 's', "N", 0, "Look every N seconds (default: 1)", 0 },
		{ "threads", 't', NULL, 0, "Begin with device threads instead of queue pairs", 0 },
		{ "once", KEY_ONCE, NULL, 0, "Print one frame and end", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = top_parse,
		.doc = "Show what the cards do: adapters, queue pairs, execution units, device threads."
		       "\vKeys: h shows them. Exit code 1 where nothing can be read, or there is no terminal.",
	};
	struct arguments args = { .seconds = 1, .options.column = 5 };
	int ret;

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	if (!args.once && !open_terminal()) {
		fprintf(stderr, "verbatim top: this is no terminal; --once prints one frame\n");
		return 1;
	}
	catch_ends(); /* after curses, which has handlers of its own */
	look_count(true);
	ret = args.once ? print_once(&args) : top_run(&args);
	look_count(false);
	if (!args.once)
		endwin();
	if (ret)
		fprintf(stderr, "verbatim top: %s\n", strerror(-ret));
	if (end_signal)
		end_by_signal();
	return ret ? 1 : 0;
}
