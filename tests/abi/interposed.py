#!/usr/bin/env python3
"""Every function of libc that one of our libraries stands in front of returns what libc's returns, leaves errno as libc does,
and changes what libc changes: where it succeeds and where it fails, without a card and with one.

usage: interposed.py STAGE PROGRAM HOLDER

The functions are read from the libraries. One that PROGRAM has no row for fails the test.
"""
import difflib
import glob
import os
import subprocess
import sys
import tempfile

# Those of libc, and of what was apart from it before glibc 2.34.
LIBC = ('libc.so.6', 'libm.so.6', 'libpthread.so.0', 'libdl.so.2', 'librt.so.1', 'libutil.so.1', 'libresolv.so.2')

# Only where a card is open: see the row.
WITH_CARD = 'a fault that is sent while blocked'


def output(*command, **variables):
    env = {name: value for name, value in os.environ.items() if not name.startswith(('VERBATIM_', 'LD_', 'MALLOC_'))}
    done = subprocess.run(command, env={**env, 'LC_ALL': 'C', **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors='replace', timeout=280, check=False)
    if done.returncode:
        print(f'{" ".join(command)}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}')
        sys.exit(1)
    return done.stdout


def exported(library):
    lines = output('nm', '-D', '--defined-only', library).splitlines()
    return {line.split()[2].split('@')[0] for line in lines if line.split()[1] in 'TWi'}


def interposed(stage, program):
    """Names that one of ours defines, and libc as well."""
    loaded = [line.split('=>')[1].split()[0] for line in output('ldd', program).splitlines() if '=>' in line]
    folder = os.path.dirname(next(path for path in loaded if os.path.basename(path) == 'libc.so.6'))
    libc = set().union(*(exported(path) for path in (os.path.join(folder, name) for name in LIBC) if os.path.exists(path)))
    ours = {os.path.realpath(path) for path in glob.glob(os.path.join(stage, 'lib', '*.so*'))}
    return {name for path in ours for name in exported(path) if name in libc}


def blocks(text):
    """The report by row: its first line, and those below it."""
    found = {}
    for line in text.splitlines():
        if not line.startswith(('\t', 'exit code', 'ended by', 'no child')) and line.endswith((' succeeds', ' fails')):
            title = line
            found[title] = []
        else:
            found[title].append(line)
    return found


def compare(how, plain, ours):
    wrong = 0
    for title in plain:
        if plain[title] == ours.get(title) or title.startswith(WITH_CARD) and 'with a card' not in how:
            continue
        wrong += 1
        print(f'{how}: {title}, but not as libc does')
        print('\n'.join(list(difflib.unified_diff(plain[title], ours.get(title, []), 'libc', how, n=1, lineterm=''))[2:]))
    return wrong


def main():
    stage, program, holder = (os.path.abspath(path) for path in sys.argv[1:])
    verbatim = os.path.join(stage, 'bin', 'verbatim')
    ibverbs = os.path.join(stage, 'lib', 'libibverbs.so.1')
    with tempfile.TemporaryDirectory() as folder:
        says = os.path.join(folder, 'says')
        held = ['sh', '-c', 'LD_PRELOAD="$0:$LD_PRELOAD" exec "$@"', holder]
        runs = {
            'verbatim run': ([verbatim, 'run', '--', program, '--without', WITH_CARD], {}),
            'verbatim run with a card': ([verbatim, 'run', '--', *held, program], {'HOLDER_SAYS': says}),
            'linked with libibverbs': (['env', f'LD_PRELOAD={ibverbs}', program, '--without', WITH_CARD], {}),
            'linked with libibverbs, with a card': (['env', f'LD_PRELOAD={ibverbs}:{holder}', program],
                                                    {'HOLDER_SAYS': says, 'LD_LIBRARY_PATH': os.path.join(stage, 'lib')}),
        }
        names = interposed(stage, program)
        missing = sorted(names - set(output(program, '--list').splitlines()))
        for name in missing:
            print(f'{name}: interposed, but {os.path.basename(program)} has no row for it')
        plain = blocks(output(program))
        wrong = sum(compare(how, plain, blocks(output(*argv, **env))) for how, (argv, env) in runs.items())
        with open(says, encoding='ascii') as lines:
            if set(lines.read().split('\n')) != {'card', ''}:
                print('no card was open')
                wrong += 1
    print(f'{len(names)} functions, {len(plain)} rows, {len(runs)} runs')
    return 1 if missing or wrong or not names else 0


if __name__ == '__main__':
    sys.exit(main())
