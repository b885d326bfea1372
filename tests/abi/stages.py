#!/usr/bin/env python3
"""Holds start, fork and exit together in one table (src/base/fork.h).

usage: stages.py SOURCE_ROOT

Prints TAP: every stage of the enum has one row, in the file that the enum names; src/README.md has the stages in the enum's order, with
the calls that the rows make; nothing in src/ is called at start, fork or exit by other means, but for the PLACES below; and no
mutex of a library stays locked in a forked child.
"""
import os
import re
import sys

# What is called by other means, and why.
ATFORK, ATEXIT, CONSTRUCTOR, DESTRUCTOR = 'pthread_atfork', 'atexit', 'constructor', 'destructor'
PLACES = {
    ('base/fork.c', ATFORK): 'the one of the table',
    ('base/fork_rows.c', CONSTRUCTOR): 'the one of each library with rows',
    ('base/fork_rows.c', DESTRUCTOR): 'the one of each library with rows',
    # In every child of verbatim run, with libc alone.
    ('host/preload/libc.c', CONSTRUCTOR): 'libc\'s functions are found before a signal handler asks',
    ('host/preload/redirect.c', CONSTRUCTOR): 'a page shows that the tree of files is in use',
    ('host/preload/signals.c', CONSTRUCTOR): 'as SIGNALS of the table',
    ('host/preload/signals.c', ATFORK): 'as SIGNALS of the table, and the function itself',
    ('host/memory/libc.c', CONSTRUCTOR): 'libc\'s functions are found before a signal handler asks',
    ('host/memory/fork_copy.c', CONSTRUCTOR): 'before all other libraries, so that the child has its memory first',
    ('host/memory/fork_copy.c', ATFORK): 'before all other libraries, so that the child has its memory first',
    # Before destructors of the program, with threads that still run.
    ('api/flexio/app.c', ATEXIT): 'programs that dpacc made destroy their apps in destructors',
    ('dpa/observe/sample.c', ATEXIT): 'profiles of processes that the program leaves to exit()',
    ('control/ask/ask.c', ATEXIT): 'a debugger learns the exit status',
    # Programs, which have no card in them where they do that.
    ('tools/stdio.c', ATEXIT): 'a tool says that its output could not be written',
    ('tools/dpacc/mem.c', ATEXIT): 'memory of the compiler',
    ('tools/dpacc/run.c', ATEXIT): 'temporary files of the compiler',
    ('tools/dpacc/gen_host.c', CONSTRUCTOR): 'text: of the program that is compiled',
    ('tools/dpacc/gen_host.c', DESTRUCTOR): 'text: of the program that is compiled',
}
HOOKS = {
    ATFORK: re.compile(r'\bpthread_atfork\s*\(|\b__register_atfork\b'),
    ATEXIT: re.compile(r'\b(?:atexit|on_exit|at_quick_exit|__cxa_atexit)\s*\('),
    CONSTRUCTOR: re.compile(r'__attribute__\s*\(\(.*\b(?:__)?constructor|[".]init_array'),
    DESTRUCTOR: re.compile(r'__attribute__\s*\(\(.*\b(?:__)?destructor|[".]fini_array'),
}
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*', re.S)
ROW = re.compile(r'^VB_STAGE\((\w+),(.*?)\);', re.S | re.M)
MUTEX = re.compile(r'^(?:static )?pthread_mutex_t (\w+)(?: =|;)', re.M)
CALLS = ['start', 'prepare', 'parent', 'child', 'exit']


def sources(root):
    """Path and text without comments of each file."""
    for base, _, names in os.walk(root):
        for name in sorted(names):
            if name.endswith(('.c', '.h', '.S')):
                path = os.path.join(base, name)
                with open(path, encoding='utf-8') as file:
                    yield os.path.relpath(path, root), COMMENT.sub(lambda c: '\n' * c[0].count('\n'), file.read())


def stages_of(header):
    """The enum's stages in their order, and the end of the path that a comment gives each."""
    with open(header, encoding='utf-8') as file:
        body = re.search(r'^enum vb_stage \{(.*?)^\};', file.read(), re.S | re.M)[1]
    found = re.findall(r'\bVB_STAGE_(\w+),[^\n]*?/\* (\S+) \*/', body)
    return found, len(re.findall(r'\bVB_STAGE_\w+', body))


def rows_of(texts):
    rows = {}
    for path, text in texts:
        if path == 'base/fork.h':
            continue
        for name, rest in ROW.findall(text):
            rows.setdefault(name, []).append((path, re.findall(r'\.(\w+)\s*=', rest)))
    return rows


def judge_rows(stages, rows):
    wrong = [f'{name}: no stage of the enum' for name in rows if name not in dict(stages)]
    for name, file in stages:
        have = rows.get(name, [])
        if len(have) != 1:
            wrong.append(f'{name}: {len(have)} rows')
        elif not ('/' + have[0][0]).endswith('/' + file):
            wrong.append(f'{name}: its row is in {have[0][0]}, not in {file}')
    return wrong


def judge_readme(path, stages, rows):
    with open(path, encoding='utf-8') as file:
        lines = re.findall(r'^\| `([A-Z]+)` \| `(\S+)` \| (.*) \|$', file.read(), re.M)
    wrong = []
    if [name for name, _, _ in lines] != [name for name, _ in stages]:
        wrong.append('the table\'s stages are not those of the enum, in its order')
    for name, file, text in lines:
        for where, calls in rows.get(name, []):
            said = [call for call in CALLS if re.search(rf'\*\*{call}\*\*', text)]
            if where != file:
                wrong.append(f'{name}: {file}, but the row is in {where}')
            if said != [call for call in CALLS if call in calls]:
                wrong.append(f'{name}: says {said}, the row has {calls}')
    return wrong


def judge_hooks(texts):
    wrong, used = [], set()
    for path, text in texts:
        for number, line in enumerate(text.splitlines(), 1):
            for kind, pattern in HOOKS.items():
                if not pattern.search(line):
                    continue
                used.add((path, kind))
                if (path, kind) not in PLACES:
                    wrong.append(f'{path}:{number}: {kind}: declare a row with VB_STAGE() instead (src/base/fork.h)')
    return wrong + [f'{path}: has no {kind} any more' for path, kind in PLACES if (path, kind) not in used]


def judge_mutexes(texts):
    """A mutex of the library's own, which another thread may have at a fork, is made again in the child."""
    wrong = []
    for path, text in texts:
        if path.startswith(('host/preload/', 'host/memory/', 'tools/')):
            continue
        for name in MUTEX.findall(text):
            if not re.search(rf'pthread_mutex_init\(&{re.escape(name)}\b', text):
                wrong.append(f'{path}: {name}: a child may wait for it for ever; reset it in a row, or use struct vb_lock')
    return wrong


def main():
    root = sys.argv[1]
    texts = list(sources(os.path.join(root, 'src')))
    stages, names = stages_of(os.path.join(root, 'src/base/fork.h'))
    rows = rows_of(texts)
    results = [
        (f'{len(stages)} stages have a row each', ([] if len(stages) == names and stages else ['a stage of the enum names no file'])
         + judge_rows(stages, rows)),
        ('src/README.md has them in their order', judge_readme(os.path.join(root, 'src/README.md'), stages, rows)),
        (f'{len(PLACES)} places, and no other, have a hook of another kind', judge_hooks(texts)),
        ('mutexes of libraries are free in a child', judge_mutexes(texts)),
    ]
    print(f'1..{len(results)}')
    for number, (text, wrong) in enumerate(results, 1):
        for line in wrong:
            print('# ' + line)
        print(('not ok' if wrong else 'ok') + f' {number} - {text}')
    return 1 if any(wrong for _, wrong in results) else 0


if __name__ == '__main__':
    sys.exit(main())
