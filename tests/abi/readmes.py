#!/usr/bin/env python3
"""Every source file is named in the README of its folder, so that a reader finds what it is for.

usage: readmes.py SOURCE

A name counts in backquotes: `mem.c`, or `mem` and `mem.h` for a file that goes with it. Folders without a README are
described by the one above them.
"""
import os
import re
import sys


def missing(folder):
    with open(os.path.join(folder, 'README.md'), encoding='utf-8') as text:
        named = {name.split('.')[0] for name in re.findall(r'`([\w.]+)`', text.read())}
    for name in sorted(os.listdir(folder)):
        stem, dot, ending = name.partition('.')
        if dot and ending in ('c', 'h', 'S') and stem not in named:
            yield os.path.join(folder, name)


def main():
    top = os.path.join(sys.argv[1], 'src')
    folders = [folder for folder, _, files in os.walk(top) if 'README.md' in files]
    unnamed = [path for folder in folders for path in missing(folder)]
    for path in unnamed:
        print(f'{os.path.relpath(path, sys.argv[1])} is not in the README of its folder')
    print(f'{len(folders)} READMEs')
    return 1 if unnamed or not folders else 0


sys.exit(main())
