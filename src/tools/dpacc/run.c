// SPDX-License-Identifier: MIT
/*
 * Commands, the folder of intermediate files, and the outputs.
 *
 * Nothing half-written stays behind: everything is made in the work folder; finished files are
 * copied beside their place under a temporary name and renamed when all are complete. What is no
 * ordinary file (a pipe, /dev/null) is written to instead. SIGINT, SIGTERM and SIGHUP end the
 * running command, and the ordinary way out removes the rest.
 */
#include "dpacc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static struct {
	const char *dir;
	bool keep, dryrun, verbose;
	bool made;                    /* ours to remove */
	struct list temporary, final; /* outputs: pairs */
	volatile sig_atomic_t signal;
	volatile pid_t child;
} work;

void say(const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "dpacc: ");
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static void dpacc_run_on_signal(int number)
{
	work.signal = number;
	if (work.child > 0)
		kill(work.child, number);
}

static void catch_signals(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
	struct sigaction action = { .sa_handler = dpacc_run_on_signal }, old;

	signal(SIGXFSZ, SIG_IGN); /* a file that gets too large is an error like others */
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
}

static int make_folders(const char *path)
{
	char *copy = mem_dup(path, strlen(path));

	for (char *p = copy + 1;; p++) {
		char c = *p;

		if (c && c != '/')
			continue;
		*p = '\0';
		if (mkdir(copy, 0777) && errno != EEXIST) {
			say("%s: cannot make this folder: %s", copy, strerror(errno));
			return -1;
		}
		*p = c;
		if (!c)
			return 0;
	}
}

/*
 * The linker writes beside its output first, under a name in which each % becomes a random digit,
 * folders included.
 */
static int check_folder(const char *dir, const char *option)
{
	if (!strchr(dir, '%'))
		return 0;
	say("%s: the linker cannot write where a folder has a %% in its name; choose another with %s",
	    dir, option);
	return -1;
}

/*
 * The names of some kept files do not depend on the application: others that keep theirs here wait
 * until this command ends, and the lock with it. A file system without locks goes without.
 */
static int lock_folder(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	while (fd >= 0 && flock(fd, LOCK_EX) && errno == EINTR)
		if (work.signal)
			return -1;
	return 0;
}

int work_begin(const struct options *opt)
{
	const char *tmp = getenv("TMPDIR");
	char *dir;

	work.keep = opt->keep_dir != NULL;
	work.dryrun = opt->dryrun;
	work.verbose = opt->verbose || opt->dryrun;
	catch_signals();
	if (work.keep) {
		work.dir = opt->keep_dir;
		if (check_folder(work.dir, "-keep-dir"))
			return -1;
		return work.dryrun ? 0 : make_folders(work.dir) || lock_folder(work.dir);
	}
	tmp = tmp && *tmp ? tmp : "/tmp";
	if (check_folder(tmp, "TMPDIR"))
		return -1;
	dir = mem_printf("%s/dpacc-XXXXXX", tmp);
	work.dir = dir;
	if (work.dryrun)
		return 0;
	if (!mkdtemp(dir)) {
		say("%s: cannot make this folder: %s; set TMPDIR to one that can be written", dir,
		    strerror(errno));
		return -1;
	}
	work.made = true;
	atexit(work_end); /* for those who exit on the way: no memory */
	return 0;
}

static void remove_files(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *entry;

	while (d && (entry = readdir(d)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			unlinkat(dirfd(d), entry->d_name, 0);
	if (d)
		closedir(d);
	rmdir(dir);
}

void work_end(void)
{
	for (int i = 0; i < work.temporary.n; i++)
		unlink(work.temporary.v[i]);
	work.temporary.n = 0;
	if (work.made)
		remove_files(work.dir);
	work.made = false;
	if (work.signal) {
		signal(work.signal, SIG_DFL);
		raise(work.signal);
	}
}

const char *work_path(const char *format, ...)
{
	const char *name;
	va_list ap;

	va_start(ap, format);
	name = mem_vprintf(format, ap);
	va_end(ap);
	/* no "./" before the names that are kept here */
	return strcmp(work.dir, ".") ? mem_printf("%s/%s", work.dir, name) : name;
}

void work_hide(struct list *argv)
{
	if (!work.keep)
		list_addf(argv, "-ffile-prefix-map=%s/=", work.dir);
}

static int dpacc_run_write_all(int fd, const char *data, size_t size)
{
	while (size) {
		ssize_t n = write(fd, data, size);

		if (n < 0 && errno == EINTR && !work.signal)
			continue;
		if (n < 0)
			return -1;
		data += n;
		size -= (size_t)n;
	}
	return 0;
}

int work_write(const char *path, const void *data, size_t size)
{
	int fd, ret;

	if (work.dryrun)
		return 0;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	ret = fd < 0 ? -1 : dpacc_run_write_all(fd, data, size);
	if (fd >= 0 && close(fd))
		ret = -1;
	if (ret)
		say("%s: %s", path, strerror(errno));
	return ret;
}

void work_remove(const char *path)
{
	if (!work.dryrun)
		unlink(path);
}

/* As a shell would read it. */
static void print_word(const char *word)
{
	if (*word &&
	    !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
			       "-_./=+:,%@")]) {
		fputs(word, stderr);
		return;
	}
	fputc('\'', stderr);
	for (; *word; word++) {
		if (*word == '\'')
			fputs("'\\''", stderr);
		else
			fputc(*word, stderr);
	}
	fputc('\'', stderr);
}

static int dpacc_run_wait_for(pid_t pid, const char *program)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	work.child = 0;
	if (work.signal)
		return -1;
	if (WIFSIGNALED(status))
		say("%s was ended by signal %d (%s)", program, WTERMSIG(status),
		    strsignal(WTERMSIG(status)));
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -1;
}

int run_command(const struct list *argv)
{
	pid_t pid;
	int err;

	if (work.verbose) {
		for (int i = 0; i < argv->n; i++) {
			if (i)
				fputc(' ', stderr);
			print_word(argv->v[i]);
		}
		fputc('\n', stderr);
	}
	if (work.dryrun)
		return 0;
	if (work.signal)
		return -1;
	err = posix_spawn(&pid, argv->v[0], NULL, NULL, argv->v, environ);
	if (err) {
		say("%s: %s", argv->v[0], strerror(err));
		return -1;
	}
	work.child = pid;
	if (work.signal) /* came before the child was known */
		kill(pid, work.signal);
	return dpacc_run_wait_for(pid, argv->v[0]);
}

const char *run_question(const struct list *argv)
{
	posix_spawn_file_actions_t actions;
	int ends[2], err;
	const char *answer = NULL;
	char *line = NULL;
	size_t size = 0;
	FILE *f;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return NULL;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	err = posix_spawn(&pid, argv->v[0], &actions, NULL, argv->v, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	f = fdopen(ends[0], "r");
	if (f && getline(&line, &size, f) > 0)
		line[strcspn(line, "\n")] = '\0';
	if (f)
		fclose(f);
	else
		close(ends[0]);
	if (!err && !dpacc_run_wait_for(pid, argv->v[0]) && line)
		answer = mem_dup(line, strlen(line));
	free(line);
	return answer;
}

int output_check(const char *to)
{
	const char *dir = file_folder(to);
	struct stat st;

	if (work.dryrun)
		return 0;
	if (!stat(to, &st) && S_ISDIR(st.st_mode)) {
		say("%s: the output is a folder", to);
		return -1;
	}
	if (!access(file_is_special(to) ? to : dir, W_OK))
		return 0;
	say("%s: cannot write the output: %s: %s", to, dir, strerror(errno));
	return -1;
}

static int open_beside(const char *to)
{
	const char *name, *place;
	int fd = file_beside(to, &name, &place);

	if (fd >= 0) {
		list_add(&work.temporary, name);
		list_add(&work.final, place);
	}
	return fd;
}

int output_add(const char *from, const char *to)
{
	const void *data;
	size_t size;
	int fd, ret;

	if (work.dryrun || same_file(from, to))
		return 0;
	data = file_read(from, &size);
	if (!data)
		return -1;
	fd = file_is_special(to) ? open(to, O_WRONLY | O_CLOEXEC) : open_beside(to);
	ret = fd < 0 ? -1 : dpacc_run_write_all(fd, data, size);
	if (fd >= 0 && close(fd))
		ret = -1;
	if (ret)
		say("%s: cannot write the output: %s", to, strerror(errno));
	return ret;
}

int output_commit(void)
{
	if (work.signal)
		return -1;
	for (int i = 0; i < work.temporary.n; i++) {
		if (rename(work.temporary.v[i], work.final.v[i])) {
			say("%s: %s", work.final.v[i], strerror(errno));
			return -1;
		}
	}
	work.temporary.n = work.final.n = 0;
	return 0;
}
