#!/usr/bin/env python3
"""Debian's programs start on the staged libraries with every symbol bound at once.

usage: load.py [--with LIBRARY] STAGE PROGRAM ARGUMENT... EXPECTED

  EXPECTED          a regular expression for what the program prints
  --with LIBRARY    load the system's own LIBRARY (a provider such as libmlx5.so.1) against ours, too
"""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), '..', 'peers'))
from peers import sanitizer  # pylint: disable=wrong-import-position

SKIP = 77


def system_library(name):
    cache = subprocess.run(['/sbin/ldconfig', '-p'], capture_output=True, text=True, check=True).stdout
    match = re.search(rf'^\s*{re.escape(name)} .*=> (\S+)$', cache, re.M)
    return match and match.group(1)


def main():
    arguments = sys.argv[1:]
    preload = []
    if arguments[0] == '--with':
        preload = [system_library(arguments[1])]
        if not preload[0]:
            print(f'{arguments[1]} is not installed')
            return SKIP
        arguments = arguments[2:]
    stage, *command, pattern = arguments
    if not shutil.which(command[0]):
        print(f'{command[0]} is not installed')
        return SKIP
    lib = os.path.join(stage, 'lib')
    env = dict(os.environ, LD_LIBRARY_PATH=lib, LD_BIND_NOW='1')
    if sanitizer(stage):  # its run-time must be the first library; what Debian's programs leave allocated is not ours
        preload.insert(0, sanitizer(stage))
        env['ASAN_OPTIONS'] = 'detect_leaks=0'
    env['LD_PRELOAD'] = ':'.join(preload)
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    print(run.stdout + run.stderr)
    if not re.search(pattern, run.stdout + run.stderr, re.M):
        print(f'nothing matches {pattern}')
        return 1
    # The program has to have met our libibverbs, not Debian's.
    trace = subprocess.run(command, env=dict(env, LD_TRACE_LOADED_OBJECTS='1'), capture_output=True, text=True,
                           timeout=60, check=False).stdout
    ours = [os.path.realpath(path) for path in re.findall(r'libibverbs\.so\.1 => (.+) \(0x', trace)]
    if ours != [os.path.realpath(os.path.join(lib, 'libibverbs.so.1'))]:
        print(f'libibverbs.so.1 came from {ours}')
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
