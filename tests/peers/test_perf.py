#!/usr/bin/env python3
"""verbatim perf: samples that are exact and the same every time, names and lines, folded stacks, and what it leaves alone.

The first program is of assembly, so that the place of every instruction is known: the samples are computed here.
"""
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile

import peers

STAGE = os.path.realpath(peers.stage())
VERBATIM = os.path.join(STAGE, 'bin', 'verbatim')

ASSEMBLY = '''	.text
	.globl	_start
	.type	_start, @function
_start:	li	s0, {rounds}
1:	li	a0, {first}
	call	first
	li	a0, {second}
	call	second
	addi	s0, s0, -1
	bnez	s0, 1b
	li	a0, 7
	li	a7, 93
	ecall
	.size	_start, . - _start
	.globl	first
	.type	first, @function
first:	addi	a0, a0, -1
	bnez	a0, first
	ret
	.size	first, . - first
	.globl	second
	.type	second, @function
second:	addi	a0, a0, -1
	bnez	a0, second
	ret
	.size	second, . - second
'''

DEVICE = '''#include <libflexio-dev/flexio_dev.h>
static volatile uint64_t sink;
__attribute__((noinline)) static void heavy(uint64_t n)
{
	while (n--)
		sink += n;
}
__attribute__((noinline)) static void light(uint64_t n)
{
	while (n--)
		sink ^= n;
}
__dpa_rpc__ uint64_t work(uint64_t n);
__dpa_rpc__ uint64_t work(uint64_t n)
{
	for (int i = 0; i < 10; i++) {
		heavy(3 * n);
		light(n);
	}
	return sink;
}
'''

# What it does behind its calls is said by its argument.
HOST = '''#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include <libflexio/flexio.h>
extern struct flexio_app *perfapp;
extern flexio_func_t work;
static struct flexio_process *process;
static volatile int done;

static void *call_always(void *arg)
{
	uint64_t result;

	while (!done)
		flexio_process_call(process, &work, &result, (uint64_t)2000);
	return arg;
}

/* Children of a program whose threads are sampled all the time; each ends by itself. */
static int fork_many(void)
{
	pthread_t thread[2];
	int status;

	for (int i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, call_always, NULL);
	for (int i = 0; i < 60; i++) {
		pid_t pid = fork();

		if (!pid) {
			alarm(20);
			exit(0);
		}
		if (waitpid(pid, &status, 0) != pid || status)
			return 4;
	}
	done = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	return 3;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = ibv_open_device(list[0]);
	char *again[] = { argv[0], NULL };
	uint64_t result, n = strcmp(how, "short") ? 2000 : 10;

	if (flexio_process_create(ctx, perfapp, NULL, &process))
		return 1;
	for (int i = 0; i < 5; i++)
		if (flexio_process_call(process, &work, &result, n))
			return 2;
	if (!strcmp(how, "killed"))
		raise(SIGKILL);
	if (!strcmp(how, "again")) {
		flexio_process_destroy(process);
		execv(argv[0], again);
	}
	if (!strcmp(how, "forks"))
		return fork_many();
	puts("said by the program");
	if (!strcmp(how, "waits")) {
		fflush(stdout);
		pause();
	}
	exit(3); /* the process is not destroyed */
}
'''


# Under AddressSanitizer: its search for leaks faults itself where a program ends that has loaded libdw late.
os.environ.setdefault('ASAN_OPTIONS', 'detect_leaks=0')


def call(*args, env=None, code=0):
    done = subprocess.run([VERBATIM, 'perf', *args], env={**os.environ, **(env or {})}, capture_output=True, text=True,
                          timeout=120, check=False)
    if done.returncode != code:
        raise peers.Failure(f'perf {args}: exit code {done.returncode}, not {code}\n{done.stdout}{done.stderr}')
    return done


def trace(rounds, first, second):
    """The function of each instruction, in order."""
    def loop(name, n):
        return [name] * (2 * n + 1)
    def start(n):
        return ['_start'] * n
    one = start(1) + start(2) + loop('first', first) + start(1) + start(2) + loop('second', second) + start(2)
    return start(1) + one * rounds + start(3)


def profile(folder, period, *program, env=None, code=0):
    report, folded = os.path.join(folder, 'report'), os.path.join(folder, 'folded')
    call('--period', str(period), '--json', '-r', report, '-o', folded, '--', *program, env=env, code=code)
    with open(report, encoding='utf-8') as text:
        said = json.load(text)
    with open(folded, encoding='utf-8') as text:
        stacks = {line.rsplit(' ', 1)[0]: int(line.rsplit(' ', 1)[1]) for line in text.read().splitlines()}
    return said, stacks


def check_exact(folder):
    rounds, first, second = 10, 300, 100
    source, elf = os.path.join(folder, 'two.S'), os.path.join(folder, 'two.elf')
    with open(source, 'w', encoding='ascii') as text:
        text.write(ASSEMBLY.format(rounds=rounds, first=first, second=second))
    subprocess.run(['clang', '--target=riscv64-unknown-elf', '-march=rv64imac', '-mabi=lp64', '-nostdlib', '-static',
                    '-fuse-ld=lld', '-g', '-Wl,--no-relax', source, '-o', elf], check=True)
    order = trace(rounds, first, second)
    for tier in ('jit', 'interp'):
        for period in (1, 2, 7, 100, 1009):
            said, stacks = profile(folder, period, VERBATIM, 'dpa', 'run', elf, env={'VERBATIM_DPA_TIER': tier}, code=7)
            sampled = order[period // 2::period]
            want = {name: sampled.count(name) for name in set(sampled)}
            got = {f['name']: f['self'] for f in said['functions'] if f['self']}
            if got != want or said['samples'] != len(sampled) or said['period'] != period or said['lost']:
                raise peers.Failure(f'{tier}, every {period}: {said}, not {want}')
            want = {name if name == '_start' else f'_start;{name}': n for name, n in want.items()}
            if stacks != want:
                raise peers.Failure(f'{tier}, every {period}: stacks {stacks}, not {want}')
            if period == 1:
                lines = {(f['function'], f['line']): f['self'] for f in said['lines']}
                if lines[('first', 17)] != rounds * first or lines[('second', 24)] != rounds * second:
                    raise peers.Failure(f'lines {lines}')
                totals = {f['name']: f['total'] for f in said['functions']}
                if totals['_start'] != len(order):
                    raise peers.Failure(f'totals {totals}')
    text = call('--period', '1', '--', VERBATIM, 'dpa', 'run', elf, code=7).stdout
    for line in ('8104 samples of 1 device process, one every 1 instructions', ' 74.16%  74.16%       6010  first',
                 f' 37.02%       3000  {source}:17  first'):
        if line not in text:
            raise peers.Failure(f'no {line!r} in\n{text}')


def build(folder):
    for name, text in (('perf.dev.c', DEVICE), ('perf.c', HOST)):
        with open(os.path.join(folder, name), 'w', encoding='ascii') as source:
            source.write(text)
    env = {**os.environ, 'PKG_CONFIG_PATH': os.path.join(STAGE, 'lib', 'pkgconfig')}
    subprocess.run([os.path.join(STAGE, 'bin', 'dpacc'), 'perf.dev.c', '-o', 'perf.a', '-mcpu=nv-dpa-bf3', '-hostcc=gcc',
                    '-app-name=perfapp', '-devicecc-options=-g -O1'], cwd=folder, check=True)
    flags = shlex.split(subprocess.run(['pkg-config', '--cflags', '--libs', 'libflexio', 'libibverbs'], env=env, check=True,
                                       capture_output=True, text=True).stdout)
    subprocess.run(['gcc', '-pthread', 'perf.c', '-o', 'perf', 'perf.a', *flags], cwd=folder, check=True)
    return os.path.join(folder, 'perf')


def check_flexio(folder):
    """Calls of FlexIO, translated; the process is alive when the program ends."""
    program = build(folder)
    preload = peers.sanitizer(STAGE)
    argv = ['env', f'LD_PRELOAD={preload}', program] if preload else [program]
    seen = [profile(folder, 997, *argv, code=3) for _ in range(2)]
    if seen[0] != seen[1]:
        raise peers.Failure(f'two profiles of one program differ:\n{seen[0]}\n{seen[1]}')
    said, stacks = seen[0]
    count = {f['name']: f for f in said['functions']}
    if not count['heavy']['self'] > 2 * count['light']['self'] > 0:
        raise peers.Failure(f'heavy and light: {said}')
    if not any(stack.endswith('work;heavy') for stack in stacks) or count['work']['total'] < count['heavy']['total']:
        raise peers.Failure(f'callers: {stacks}')
    if not any(f['function'] == 'heavy' and f['file'].endswith('perf.dev.c') and f['line'] in (5, 6) for f in said['lines']):
        raise peers.Failure(f'lines: {said["lines"]}')
    # All instructions of five calls that are the same: each in its function, that behind a call the next one's.
    for tier in ('jit', 'interp'):
        said, stacks = profile(folder, 1, *argv, 'short', code=3, env={'VERBATIM_DPA_TIER': tier})
        odd = [f for f in said['functions'] if f['self'] % 5 and f['name'] != '__flexio_dev_init' or f['name'].startswith('0x')]
        if odd or any(n % 5 for stack, n in stacks.items() if '__flexio_dev_init' not in stack):
            raise peers.Failure(f'{tier}, five calls: {odd}, {stacks}')
    text = call('--period', '997', '--', *argv, code=3).stdout
    if 'said by the program' not in text:
        raise peers.Failure('the program was not heard')
    if not re.search(r'^ +\d+\.\d\d% 100\.00% +\d+  work$', text, re.M):
        raise peers.Failure(f'what only calls others is not shown:\n{text}')


def check_ends(folder):
    """However a program ends, its profile is there, or is said to be missing."""
    program = os.path.join(folder, 'perf')
    preload = peers.sanitizer(STAGE)
    argv = ['env', f'LD_PRELOAD={preload}', program] if preload else [program]
    said, stacks = profile(folder, 997, *argv, code=3)
    if said['unfinished']:
        raise peers.Failure(f'a program that ended: {said}')
    # Another program in the same process: one profile is not written over the other.
    twice, stacks_twice = profile(folder, 997, *argv, 'again', code=3)
    if twice['samples'] != 2 * said['samples'] or twice['processes'] != 2 or twice['unfinished']:
        raise peers.Failure(f'two programs, one after the other: {twice}, not twice {said}')
    if stacks_twice != {stack: 2 * n for stack, n in stacks.items()}:
        raise peers.Failure(f'{stacks_twice}, not twice {stacks}')
    killed, _ = profile(folder, 997, *argv, 'killed', code=137)
    if killed['unfinished'] != 1:
        raise peers.Failure(f'killed: {killed}')
    text = call('--', *argv, 'killed', code=137).stdout
    if 'no device code' in text or 'was killed' not in text:
        raise peers.Failure(f'killed: {text}')
    # A file that may not grow is an error that the program is told of, and no signal that ends it.
    done = subprocess.run(['sh', '-c', 'ulimit -f 128; exec "$@"', 'sh', VERBATIM, 'perf', '--', *argv], capture_output=True,
                          text=True, timeout=60, check=False)
    if done.returncode != 1 or 'File too large' not in done.stderr:
        raise peers.Failure(f'ulimit -f: {done}')
    if not preload:  # AddressSanitizer's allocator does not know forks
        profile(folder, 101, *argv, 'forks', code=3)
    # Who ends the command ends the program; nothing stays. ThreadSanitizer runs no handler while the command is in waitpid().
    waits = 'libtsan' not in (peers.sanitizer(peers.stage()) or '')
    for sig in (signal.SIGTERM, signal.SIGHUP) if waits else ():
        with subprocess.Popen([VERBATIM, 'perf', '--period', '997', '--', *argv, 'waits'], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, 'TMPDIR': folder}) as command:
            if command.stdout.readline() != 'said by the program\n':
                raise peers.Failure('the program was not heard')
            command.send_signal(sig)
            text = command.communicate(timeout=60)[0]
        if command.returncode != 128 + sig or 'was killed' not in text:
            raise peers.Failure(f'{sig}: {command.returncode}\n{text}')
        left = [name for name in os.listdir(folder) if name.startswith('verbatim-perf')]
        if left:
            raise peers.Failure(f'{sig}: left behind: {left}')


def check_edges(folder):
    call(code=2)
    for period in ('0', '-1', 'x', '1x', '99999999999999999999'):
        call('--period', period, '--', 'true', code=2)
    call('--', 'no-such-program-here', code=127)
    call('--', 'sh', '-c', 'kill -9 $$', code=137)
    # Exit codes are those of the program, though the caller wants none of its own.
    done = subprocess.run(['env', '--ignore-signal=CHLD', VERBATIM, 'perf', '--', 'sh', '-c', 'exit 7'], capture_output=True,
                          timeout=60, check=False)
    if done.returncode != 7:
        raise peers.Failure(f'SIGCHLD is ignored: {done}')
    call('-o', '/no/such/folder/file', '--', 'true', code=125)
    call('-r', '/no/such/folder/file', '--', 'true', code=125)
    call('-r', '/dev/full', '--', 'true', code=125)
    call('-p', '1', '-o', '/dev/full', '--', VERBATIM, 'dpa', 'run', os.path.join(folder, 'two.elf'), code=125)
    text = call('--', 'true', env={'TMPDIR': folder}).stdout
    if text != 'No samples: the program has run no device code.\n':
        raise peers.Failure(f'without device code: {text}')
    left = [name for name in os.listdir(folder) if name.startswith('verbatim-perf')]
    if left:
        raise peers.Failure(f'left behind: {left}')
    elf = os.path.join(folder, 'two.elf')
    done = subprocess.run([VERBATIM, 'dpa', 'run', elf], env={**os.environ, 'VERBATIM_DPA_PROFILE': '/no/such/folder'},
                          capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 126 or 'VERBATIM_DPA_PROFILE=/no/such/folder' not in done.stderr:
        raise peers.Failure(f'a folder that is missing: {done}')
    done = subprocess.run([VERBATIM, 'dpa', 'run', elf], env={**os.environ, 'VERBATIM_DPA_PROFILE': '/' * 4090 + 'tmp'}, cwd=folder,
                          capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 126 or os.path.exists(os.path.join(folder, '.elf')):
        raise peers.Failure(f'a folder whose name is too long: {done}')


def run():
    with tempfile.TemporaryDirectory() as folder:
        check_exact(folder)
        check_flexio(folder)
        check_ends(folder)
        check_edges(folder)


peers.main(run)
