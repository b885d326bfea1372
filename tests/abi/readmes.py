#!/usr/bin/env python3
"""Every source file is named in the README of its folder, so that a reader finds what it is for; and what documents
say of the source has names that the source still has.

usage: readmes.py SOURCE

A file's name counts in backquotes: `mem.c`, or `mem` and `mem.h` for a file that goes with it. Folders without a README
are described by the one above them. In READMEs, and in documents with links into src/, `name()` and `vb_name` are words of
the source.
"""
import os
import re
import sys

FOREIGN = {'cap_setuid', 'setns'}  # functions of others that documents name and the source does not call


def missing(folder):
    with open(os.path.join(folder, 'README.md'), encoding='utf-8') as text:
        named = {name.split('.')[0] for name in re.findall(r'`([\w.]+)`', text.read())}
    for name in sorted(os.listdir(folder)):
        stem, dot, ending = name.partition('.')
        if dot and ending in ('c', 'h', 'S') and stem not in named:
            yield os.path.join(folder, name)


def words(top):
    found = set()
    for root in ('src', 'include'):
        for folder, _, files in os.walk(os.path.join(top, root)):
            for name in files:
                if name.endswith(('.c', '.h', '.S')):
                    with open(os.path.join(folder, name), encoding='utf-8') as text:
                        found |= set(re.findall(r'\w+', text.read()))
    return found


def stale(path, known):
    with open(path, encoding='utf-8') as text:
        content = text.read()
    if os.path.basename(path) == 'README.md' or '](../src/' in content:
        for name in sorted(set(re.findall(r'`([a-z]\w*)\(\)`|`(?:struct |enum )?(vb_\w+)', content))):
            name = name[0] or name[1]
            if name not in known | FOREIGN:
                yield f'{os.path.relpath(path, sys.argv[1])}: {name} is not in the source'


def main():
    top = os.path.join(sys.argv[1], 'src')
    docs = os.path.join(sys.argv[1], 'docs')
    known = words(sys.argv[1])
    folders = [folder for folder, _, files in os.walk(top) if 'README.md' in files]
    unnamed = [path for folder in folders for path in missing(folder)]
    for path in unnamed:
        print(f'{os.path.relpath(path, sys.argv[1])} is not in the README of its folder')
    pages = [os.path.join(docs, name) for name in os.listdir(docs) if name.endswith('.md')]
    pages += [os.path.join(folder, 'README.md') for folder in folders]
    gone = [line for page in sorted(pages) for line in stale(page, known)]
    for line in gone:
        print(line)
    print(f'{len(folders)} READMEs, {len(pages)} pages')
    return 1 if unnamed or gone or not folders or len(known) < 10000 else 0


sys.exit(main())
