#!/usr/bin/env python3
"""docs/in-your-process.md is true of the tree: every function of libc that a library of ours defines has a row, every
function in a row is defined, and every test that is named is there.

usage: process.py STAGE SOURCE PROGRAM
"""
import json
import os
import re
import sys

import interposed

# Names in the first column of these sections are functions.
FUNCTIONS = ('### Signals', '### Users and rights', '### Files', '### Memory and children')


def read(path):
    with open(path, encoding='utf-8') as text:
        return text.read()


def tables(document):
    """(heading, cells) of every row of every table."""
    heading = ''
    for line in document.splitlines():
        if line.startswith('#'):
            heading = line
        elif line.startswith('|') and not line.startswith('|---') and line.count('|') > 2:
            yield heading, [cell.strip() for cell in line.strip('|').split(' | ')]


def tests(stage):
    with open(os.path.join(os.path.dirname(stage), 'meson-info', 'intro-tests.json'), encoding='utf-8') as file:
        return {test['name'] for test in json.load(file)}


def main():
    stage, source, program = (os.path.abspath(path) for path in sys.argv[1:])
    document = read(os.path.join(source, 'docs', 'in-your-process.md'))
    known, problems, functions, named = tests(stage), [], set(), 0
    for heading, cells in tables(document):
        if heading in FUNCTIONS and cells[0] != 'functions':
            functions |= set(re.findall(r'`(\w+)`', cells[0]))
        if len(cells) >= 3 and cells[-1] != 'test' and heading not in ('# In your process', '## What can be noticed'):
            found = re.findall(r'`([^`]+)`', cells[-1])
            named += len(found)
            problems += [f'{cells[0]}: {name} is no test' for name in found if name not in known]
            if not found:
                problems.append(f'{cells[0]}: no test holds it')
    whole = document.split('## Whole programs')[1].split('\n## ')[0]
    problems += [f'{name} is no test' for name in re.findall(r'`(stranger-[^`]+)`', whole) if name not in known]
    ours = interposed.interposed(stage, program)
    problems += [f'{name}: interposed, but no row has it' for name in sorted(ours - functions)]
    problems += [f'{name}: has a row, but is not interposed' for name in sorted(functions - ours)]
    print('\n'.join(problems) or f'{len(functions)} functions, {named} tests')
    return 1 if problems or not named else 0


sys.exit(main())
