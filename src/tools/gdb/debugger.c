// SPDX-License-Identifier: MIT
/*
 * Owns the gdb that `verbatim gdb` starts: which one, with which file, and its end.
 *
 *	verbatim gdb -- forks --> gdb DIR/APP.elf -- "target remote |" --> verbatim gdb --relay=TOKEN
 *	             waits, removes DIR                                    standard input and output <-> socket
 */
#include "tools/gdb/gdb.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/env.h"
#include "tools/cmd.h"

static const char who[] = "verbatim gdb";

/* ---- which ---- */

static bool is_in_path(const char *name)
{
	const char *dir = vb_getenv("PATH"), *end;
	char path[PATH_MAX];

	if (strchr(name, '/'))
		return !access(name, X_OK);
	for (dir = dir ? dir : "/bin:/usr/bin"; *dir; dir = end + (*end == ':')) {
		end = strchrnul(dir, ':');
		if (snprintf(path, sizeof(path), "%.*s/%s", (int)(end - dir), dir, name) <
			    PATH_MAX &&
		    !access(path, X_OK))
			return true;
	}
	return false;
}

/* A plain gdb has been built for this machine only, or for all: it says so itself. */
static bool knows_riscv(const char *gdb)
{
	char command[PATH_MAX + 96], line[256];
	bool found = false;
	FILE *f;

	snprintf(command, sizeof(command),
		 "'%s' -nx -batch -ex 'set architecture riscv:rv64' </dev/null 2>&1", gdb);
	f = popen(command, "re");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		found |= strstr(line, "set to \"riscv:rv64\"") != NULL;
	pclose(f);
	return found;
}

char *gdb_find(const char *asked)
{
	static const char *const names[] = { "gdb-multiarch", "riscv64-unknown-elf-gdb",
					     "riscv64-linux-gnu-gdb" };
	const char *wish = asked ? asked : vb_getenv("VERBATIM_GDB");

	if (wish && *wish) {
		if (is_in_path(wish))
			return strdup(wish);
		fprintf(stderr, "%s: %s: there is no such program\n", who, wish);
		return NULL;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (is_in_path(names[i]))
			return strdup(names[i]);
	if (is_in_path("gdb") && knows_riscv("gdb"))
		return strdup("gdb");
	fprintf(stderr,
		"%s: no gdb that knows RISC-V was found; on Debian: apt-get install gdb-multiarch "
		"(VERBATIM_GDB names another one)\n",
		who);
	return NULL;
}

/* ---- the device ELF ---- */

static int copy_elf(int from, int to, uint64_t left)
{
	char bytes[65536];

	while (left) {
		size_t n = left < sizeof(bytes) ? left : sizeof(bytes);

		if (!vb_peer_read(from, bytes, n))
			return -ECONNRESET;
		for (size_t at = 0; at < n;) {
			ssize_t done = write(to, bytes + at, n - at);

			if (done < 0 && errno != EINTR)
				return -errno;
			at += done > 0 ? (size_t)done : 0;
		}
		left -= n;
	}
	return 0;
}

int gdb_save_elf(uint64_t token, const char *path)
{
	struct vb_gdb_entry *entry = NULL;
	int fd, file, err = gdb_ask_token(VB_GDB_ELF, token, &entry, &fd);

	if (err < 0) {
		fprintf(stderr, "%s: %s\n", who, gdb_reason(err));
		return err;
	}
	file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	err = file < 0 ? -errno : err == 1 ? copy_elf(fd, file, entry->elf_len) : -EPROTO;
	if (file >= 0 && close(file) && !err)
		err = -errno;
	if (err)
		fprintf(stderr, "%s: %s: %s\n", who, path, strerror(-err));
	free(entry);
	close(fd);
	return err;
}

/* ---- gdb ---- */

struct place {
	char dir[PATH_MAX / 2], file[PATH_MAX];
};

static void place_remove(const struct place *place)
{
	unlink(place->file);
	rmdir(place->dir);
}

/* DIR/APP.elf: the name is what gdb shows. */
static int place_make(struct place *place, const struct vb_gdb_entry *entry)
{
	const char *tmp = vb_getenv("TMPDIR");
	char *name;

	snprintf(place->dir, sizeof(place->dir), "%s/verbatim-gdb-XXXXXX",
		 tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(place->dir)) {
		fprintf(stderr, "%s: %s: %s\n", who, place->dir, strerror(errno));
		return -errno;
	}
	snprintf(place->file, sizeof(place->file), "%s/", place->dir);
	name = place->file + strlen(place->file);
	snprintf(name, sizeof(place->file) - strlen(place->file), "%s.elf", entry->app);
	for (; *name; name++)
		if (*name == '/')
			*name = '_';
	return 0;
}

/* For the shell that gdb starts: in quotes, and a quote as '\''. */
static void quote(char *to, size_t size, const char *text)
{
	size_t n = 0;

	to[n++] = '\'';
	for (; *text && n + 6 < size; text++) {
		if (*text == '\'') {
			memcpy(to + n, "'\\''", 4);
			n += 4;
		} else {
			to[n++] = *text;
		}
	}
	to[n++] = '\'';
	to[n] = '\0';
}

static void become_gdb(const struct gdb_run *run, const char *gdb, const struct place *place)
{
	char self[PATH_MAX], quoted[PATH_MAX * 2], remote[PATH_MAX * 2 + 64];
	char **argv = calloc(run->noptions + 8, sizeof(*argv));
	unsigned int n = 0;

	if (!argv || tools_path(self, "bin/verbatim"))
		_exit(CMD_FAILED);
	quote(quoted, sizeof(quoted), self);
	snprintf(remote, sizeof(remote), "target remote | exec %s gdb --relay=0x%" PRIx64, quoted,
		 run->token);
	argv[n++] = (char *)gdb;
	argv[n++] = (char *)"-q";
	argv[n++] = (char *)place->file;
	argv[n++] = (char *)"-ex";
	argv[n++] = remote;
	for (unsigned int i = 0; i < run->noptions; i++)
		argv[n++] = run->options[i];
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	execvp(gdb, argv);
	fprintf(stderr, "%s: %s: %s\n", who, gdb, strerror(errno));
	_exit(CMD_CANNOT_EXEC);
}

static volatile pid_t gdb_pid;

static void end_gdb(int sig)
{
	(void)sig;
	kill(gdb_pid, SIGTERM);
}

/*
 * A request to end this tool is gdb's: afterwards the file is removed. Both signals are blocked, so that
 * none comes too early; `before` is the mask without that.
 */
static int await_gdb(pid_t child, const sigset_t *before)
{
	struct sigaction act = { .sa_handler = end_gdb }, term, hup;
	int status = 0;

	gdb_pid = child;
	sigaction(SIGTERM, &act, &term);
	sigaction(SIGHUP, &act, &hup);
	if (hup.sa_handler == SIG_IGN) /* nohup(1) */
		sigaction(SIGHUP, &hup, NULL);
	sigprocmask(SIG_SETMASK, before, NULL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	sigaction(SIGTERM, &term, NULL);
	sigaction(SIGHUP, &hup, NULL);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int gdb_run(const struct gdb_run *run)
{
	struct vb_gdb_entry entry;
	struct place place;
	sigset_t ends, before;
	char *gdb = gdb_find(run->gdb);
	int code = CMD_FAILED, err = gdb ? gdb_look(run->token, &entry, NULL) : -ENOENT;
	pid_t child;

	if (gdb && err)
		fprintf(stderr, "%s: %s\n", who, gdb_reason(err));
	if (err || place_make(&place, &entry)) {
		free(gdb);
		return CMD_FAILED;
	}
	if (gdb_save_elf(run->token, place.file)) {
		place_remove(&place);
		free(gdb);
		return CMD_FAILED;
	}
	/* An interrupt at the terminal is gdb's, which passes it to the device process. */
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigprocmask(SIG_BLOCK, &ends, &before);
	fflush(stdout);
	child = fork();
	if (!child) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		become_gdb(run, gdb, &place);
	}
	if (child > 0)
		code = await_gdb(child, &before);
	else
		sigprocmask(SIG_SETMASK, &before, NULL);
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	place_remove(&place);
	free(gdb);
	return code;
}
