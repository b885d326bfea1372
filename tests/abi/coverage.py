#!/usr/bin/env python3
"""docs/coverage.md is true of the tree: every function of a staged FlexIO header has a row, every name in a row is one of a
header, and every test that is named exists and is run.

usage: coverage.py STAGE SOURCE

A test is `file:function`, or `file` where the whole of it is meant; paths begin in tests/flexio or in tests. A file is run if a
meson.build or a script of its folder, or of one above it, names it. A function is run if its file names it twice. In a row
with the words "comes with" a file may be missing; once it is there it is looked at as any other.
"""
import os
import re
import sys

HEADERS = ('libflexio', 'libflexio-dev', 'libflexio-libc', 'libflexio-os')
WORDS = {'static_assert', 'void', 'uint64_t'}
DECLARATION = re.compile(r'(?:#\s*define\s+|\w[\w\s*(),]*?[\s*]|)([a-z_]\w*)\(')
REFERENCE = re.compile(r'`([\w/.-]+\.(?:c|cc|py|sh))(?::(\w+))?`')
# Those of the C library are in its own headers.
OURS = re.compile(r'(flexio_|spin_|FLEXIO_)\w+$')


def read(path):
    with open(path, encoding='utf-8') as text:
        return text.read()


def header_text(stage):
    text = ''
    for folder in HEADERS:
        path = os.path.join(stage, 'include', folder)
        for name in sorted(os.listdir(path)):
            text += re.sub(r'/\*.*?\*/|//[^\n]*', '', read(os.path.join(path, name)), flags=re.S) + '\n'
    return text


def functions(text):
    found = {m[1] for m in map(DECLARATION.match, text.splitlines()) if m}
    return {name for name in found if name not in WORDS and not name.startswith('_') and not name.endswith('_v0')}


def rows(document):
    """(names of the first column, whole row) of every row of every table."""
    for line in document.splitlines():
        cells = line.split(' | ')
        if line.startswith('| ') and len(cells) >= 3:
            yield re.findall(r'`(?:struct |enum |union )?([\w*-]+)`', cells[0]), line


def find(tests, path):
    for root in (os.path.join(tests, 'flexio'), tests):
        if os.path.exists(os.path.join(root, path)):
            return os.path.join(root, path)
    return None


def is_built(tests, path):
    stem = os.path.splitext(os.path.basename(path))[0]
    names = re.compile(rf"'{re.escape(re.sub('^test_', '', stem))}'|\b{re.escape(os.path.basename(path))}\b")
    folder = os.path.dirname(path)
    while folder.startswith(tests):
        for name in os.listdir(folder):
            other = os.path.join(folder, name)
            if other != path and (name == 'meson.build' or name.endswith('.sh')) and names.search(read(other)):
                return True
        folder = os.path.dirname(folder)
    return False


def check_test(tests, path, name, later):
    """What is wrong with a reference, or None."""
    where = find(tests, path)
    if not where:
        return None if later else f'{path} does not exist'
    if not is_built(tests, where):
        return f'{path} is in no meson.build: nobody runs it'
    if not name:
        return None
    text = read(where)
    if not re.search(rf'^(?:def|[\w *]+\W){name}\(', text, re.M):
        return f'{path} has no function {name}'
    if name != 'main' and not name.startswith('check_') and len(re.findall(rf'\b{name}\b', text)) < 2:
        return f'{path}: nobody runs {name}'
    return None


def main():
    stage, source = sys.argv[1:3]
    document = read(os.path.join(source, 'docs', 'coverage.md'))
    text = header_text(stage)
    wanted = functions(text)
    named, wrong, references = set(), [], set()
    for names, line in rows(document):
        named |= set(names)
        references |= {(path, name, 'comes with' in line) for path, name in REFERENCE.findall(line)}
    if len(wanted) < 200 or len(references) < 200:
        print(f'FAILED: only {len(wanted)} functions and {len(references)} tests found: this test is broken')
        return 1
    patterns = [re.compile(re.escape(name).replace(r'\*', r'\w+') + '$') for name in named if '*' in name]
    wrong += [f'{name} has no row' for name in sorted(wanted - named) if not any(p.match(name) for p in patterns)]
    wrong += [f'{name} has a row and is in no header' for name in sorted(named)
              if OURS.match(name) and not re.search(rf'\b{name}\b', text)]
    tests = os.path.join(source, 'tests')
    wrong += filter(None, (check_test(tests, *reference) for reference in sorted(references)))
    wrong += [f'{d} is not among the decisions' for d in sorted(set(re.findall(r'\bD\d+\b', document)))
              if not re.search(rf'^\| {d} \|', document, re.M)]
    print(f'{len(wanted)} functions, {len(references)} tests, {len(wrong)} wrong', *wrong, sep='\n  ')
    return 1 if wrong else 0


sys.exit(main())
