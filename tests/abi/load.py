#!/usr/bin/env python3
"""Debian's programs start on the staged libraries with every symbol bound at once.

usage: load.py STAGE PROGRAM ARGUMENT... EXPECTED       EXPECTED is a regular expression for what it prints
"""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), '..', 'peers'))
from peers import sanitizer  # pylint: disable=wrong-import-position


def main():
    stage, *command, pattern = sys.argv[1:]
    lib = os.path.join(stage, 'lib')
    if not shutil.which(command[0]):
        print(f'{command[0]} is not installed')
        return 77
    env = dict(os.environ, LD_LIBRARY_PATH=lib, LD_BIND_NOW='1')
    preload = sanitizer(stage)
    if preload:  # its run-time must be the first library; what Debian's programs leave allocated is not ours
        env.update(LD_PRELOAD=preload, ASAN_OPTIONS='detect_leaks=0')
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    print(run.stdout + run.stderr)
    if not re.search(pattern, run.stdout + run.stderr, re.M):
        print(f'nothing matches {pattern}')
        return 1
    # The program has to have met ours, not Debian's.
    trace = subprocess.run(command, env=dict(env, LD_TRACE_LOADED_OBJECTS='1'), capture_output=True, text=True,
                           timeout=60, check=False).stdout
    for name, path in re.findall(r'(lib(?:ibverbs|mlx5)\.so\.1) => (\S+)', trace):
        if os.path.dirname(os.path.realpath(path)) != os.path.realpath(lib):
            print(f'{name} came from {path}')
            return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
