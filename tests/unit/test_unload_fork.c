// SPDX-License-Identifier: MIT
/*
 * A program that loads libraries of ours with dlopen(), uses them, unloads them, and forks and exits afterwards: what they have
 * registered for that is gone with their code, and there again when they are.
 *
 *	usage: test_unload_fork LIBIBVERBS LIBMLX5 LIBFLEXIO
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define need(what)                                                                 \
	do {                                                                       \
		if (!(what)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
			exit(1);                                                   \
		}                                                                  \
	} while (0)

enum { ROUNDS = 3, LOADS = 50 };

/* Opens the first device and closes it again, by names alone. */
static void use_card(void *library)
{
	void **(*get_list)(int *) = (__typeof__(get_list))dlsym(library, "ibv_get_device_list");
	void (*free_list)(void **) = (__typeof__(free_list))dlsym(library, "ibv_free_device_list");
	void *(*open)(void *) = (__typeof__(open))dlsym(library, "ibv_open_device");
	int (*close)(void *) = (__typeof__(close))dlsym(library, "ibv_close_device");
	void **list, *context;

	need(get_list && free_list && open && close);
	list = get_list(NULL);
	need(list && list[0]);
	context = open(list[0]);
	need(context);
	free_list(list);
	need(!close(context));
}

/* library: the child uses it, too; NULL: there is none. */
static void fork_and_exit(void *library)
{
	for (int i = 0; i < 2; i++) {
		int status = -1;
		pid_t pid = fork();

		need(pid >= 0);
		if (!pid) {
			alarm(60);
			if (library)
				use_card(library);
			if (i)
				exit(0);
			_exit(0);
		}
		need(waitpid(pid, &status, 0) == pid && status == 0);
	}
}

static void *load(const char *name)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	need(library);
	return library;
}

static bool is_loaded(const char *name)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);

	if (library)
		dlclose(library);
	return library;
}

static void come_and_go(const char *name, const char *verbs)
{
	for (int i = 0; i < ROUNDS; i++) {
		void *library = load(name), *below = load(verbs);

		use_card(below);
		fork_and_exit(below);
		need(!dlclose(library) && !dlclose(below));
		need(!is_loaded(name) && !is_loaded(verbs));
		fork_and_exit(NULL);
	}
}

static atomic_bool done;

static void *load_often(void *name)
{
	for (int i = 0; i < LOADS; i++)
		need(!dlclose(load(name)));
	atomic_store(&done, true);
	return NULL;
}

/* Children leave without exit(): the loader's lock may be that of the other thread, which they do not have. */
static void fork_while_it_loads(char *name)
{
	pthread_t thread;

	need(!pthread_create(&thread, NULL, load_often, name));
	while (!atomic_load(&done)) {
		int status = -1;
		pid_t pid = fork();

		need(pid >= 0);
		if (!pid) {
			alarm(60);
			_exit(0);
		}
		need(waitpid(pid, &status, 0) == pid && status == 0);
	}
	need(!pthread_join(thread, NULL));
}

int main(int argc, char **argv)
{
	void *library;

	need(argc == 4);
	come_and_go(argv[1], argv[1]);
	come_and_go(argv[2], argv[1]);
	fork_while_it_loads(argv[1]);
	/* This one stays, and keeps what it needs. */
	library = load(argv[3]);
	fork_and_exit(NULL);
	need(!dlclose(library));
	need(is_loaded(argv[3]) && is_loaded(argv[1]));
	fork_and_exit(NULL);
	library = load(argv[1]);
	use_card(library);
	fork_and_exit(library);
	need(!dlclose(library));
	return 0;
}
