#!/usr/bin/env python3
"""Which programs have their memory shared once they have opened a card, and which keep it as it is.

usage: opened.py VERBATIM PROGRAM PROGRAM_WITH_ITS_OWN_MALLOC
"""
import os
import subprocess
import sys
import tempfile

# what grew out of a block that was there before, of malloc(), at a page boundary, mapped
ALL = 'shared shared shared shared'
SHARED = 'private private shared shared'
PRIVATE = 'private private private private'
ONE = 'private private shared private'
ALL_OF_ONE = 'private shared private private'


def run(argv, limits='', **variables):
    env = {name: value for name, value in os.environ.items()
           if name == 'VERBATIM_SHM_DIR' or not name.startswith(('VERBATIM_', 'LD_PRELOAD'))}
    env.update(variables)
    return subprocess.run(['sh', '-c', f'{limits} exec "$@"', 'sh', *argv], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)


def has(library):
    done = run(['true'], LD_PRELOAD=library)
    return 'cannot be preloaded' not in done.stderr


def with_config(verbatim, program, folder, text):
    path = os.path.join(folder, f'{len(os.listdir(folder))}.conf')
    with open(path, 'w', encoding='utf-8') as file:
        file.write('[adapter mlx5_0]\n[memory]\n' + text)
    return [verbatim, 'run', '--config', path, '--', program]


def main():
    verbatim, program, own = sys.argv[1:]
    through = [verbatim, 'run', '--', program]
    # what is called, how, and what it must say of its memory; None: cannot be tried
    cases = [
        ('by verbatim run', through, '', {}, SHARED),
        ('not by verbatim run', [program], '', {'LD_LIBRARY_PATH': os.path.join(os.path.dirname(verbatim), '..', 'lib')}, PRIVATE),
        ('switched on', through, '', {'VERBATIM_SHARE': 'on'}, SHARED),
        ('by its old word', through, '', {'VERBATIM_SHARE': 'arena'}, SHARED),
        ('all of it', through, '', {'VERBATIM_SHARE': 'all'}, ALL),
        ('switched off', through, '', {'VERBATIM_SHARE': 'off'}, PRIVATE),
        ('its own malloc', [verbatim, 'run', '--', own], '', {}, PRIVATE),
        ('ulimit -v', through, 'ulimit -v 8000000;', {}, PRIVATE),
        ('ulimit -d', through, 'ulimit -d 8000000;', {}, PRIVATE),
        ('ulimit -f', through, 'ulimit -f 200000;', {}, PRIVATE),
        ('ulimit -l', through, 'ulimit -l 64;', {}, SHARED),
    ]
    folder = tempfile.TemporaryDirectory()
    for text, expected in {'share = on': SHARED, 'arena = aligned': SHARED, 'arena_size = 64': SHARED, 'arena_size = 1': ONE,
                           'arena = all': ALL, 'arena = all\narena_size = 1': ALL_OF_ONE, 'share = off': PRIVATE, 'arena = off': PRIVATE}.items():
        cases.append((text.replace('\n', ', '), with_config(verbatim, program, folder.name, text), '', {}, expected))
    for library in ('libjemalloc.so.2', 'libtcmalloc_minimal.so.4'):
        cases.append((library, through, '', {'LD_PRELOAD': library}, PRIVATE if has(library) else None))
    print(f'1..{len(cases)}')
    for number, (name, argv, limits, variables, expected) in enumerate(cases, 1):
        if expected is None:
            print(f'ok {number} - {name} # SKIP is not installed')
            continue
        done = run(argv, limits, **variables)
        good = done.returncode == 0 and done.stdout.strip() == expected
        print(f'{"ok" if good else "not ok"} {number} - {name}')
        if not good:
            print(f'# ended with {done.returncode}, said {done.stdout.strip()!r}, expected {expected!r}')
            for line in done.stderr.splitlines():
                print(f'# {line}')


main()
