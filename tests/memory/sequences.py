#!/usr/bin/env python3
"""Runs random sequences of calls twice, with the allocator of `verbatim run` and with plain libc, and compares what the
calls returned.

usage: sequences.py PROGRAM LIBRARY THREADS STEPS

Some seeds that never change, and many more where VERBATIM_TEST_LONG is set; the last line names a seed that differs.
"""
import difflib
import os
import subprocess
import sys

FOUND = (628,)  # seeds that found something


def run(program, seed, steps, threads, library):
    env = dict(os.environ)
    env.pop('LD_PRELOAD', None)
    if library:
        env['LD_PRELOAD'] = library
    done = subprocess.run([program, str(seed), steps, threads], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=300)
    kind, _, errors = done.stderr.partition('\n')
    if kind != ('shared' if library else 'plain') or done.returncode:
        sys.exit(f'seed {seed}: {kind or "none"} run ended with {done.returncode}: {errors}')
    return done.stdout.splitlines()


def main():
    program, library, threads, steps = sys.argv[1:]
    seeds = [*range(1, 1001 if os.environ.get('VERBATIM_TEST_LONG') else 7), *FOUND]
    calls = 0
    for seed in seeds:
        plain = run(program, seed, steps, threads, None)
        ours = run(program, seed, steps, threads, library)
        calls += len(ours)
        if plain != ours:
            print('\n'.join(list(difflib.unified_diff(plain, ours, 'libc', 'ours', lineterm=''))[:20]))
            sys.exit(f'seed {seed}: calls return something else')
    if calls < len(seeds) * int(steps) / 2:
        sys.exit(f'{calls} calls are too few to say anything')
    print(f'{len(seeds)} seeds, {calls} lines, no difference')


main()
