#!/usr/bin/env python3
"""Every variable is read through vb_getenv(), for which no variable counts in a secure execution (src/base/env.h).

usage: environment.py SOURCE_ROOT

dpacc is left out: it is a compiler, runs in a process of its own, and is never part of another program.
"""
import os
import re
import sys

ALLOWED = ('src/base/env.h', 'src/tools/dpacc/')
BARE = re.compile(r'(?<!\w)(?:secure_)?getenv\s*\(')


def sources(root):
    for folder, _, names in os.walk(os.path.join(root, 'src')):
        for name in sorted(names):
            if name.endswith(('.c', '.h')):
                yield os.path.relpath(os.path.join(folder, name), root)


def main():
    root = sys.argv[1]
    found = calls = 0
    for path in sources(root):
        with open(os.path.join(root, path), encoding='utf-8') as file:
            text = file.read()
        calls += len(re.findall(r'\bvb_getenv\s*\(', text))
        if path.startswith(ALLOWED):
            continue
        for match in BARE.finditer(text):
            found += 1
            print(f'{path}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}...): use vb_getenv()')
    if not calls:
        print('no call of vb_getenv() found: is this the source tree?')
    return 1 if found or not calls else 0


sys.exit(main())
