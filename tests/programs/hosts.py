#!/usr/bin/env python3
"""Compares the table of programs that run on two hosts of one process (hosts.txt) with the programs that there are.

usage: hosts.py TABLE

Fails on a program of the table's folder without a row, a row without a program, an unknown word, and a row that leaves
something out and does not say why. Prints a TAP line for each of the three.
"""
import pathlib
import re
import sys


def rows(table):
    lines = (line for line in table.read_text(encoding='ascii').splitlines() if line and not line.startswith('#'))
    return [[cell.strip() for cell in line.split('|')] for line in lines]


def tell(number, problems, words):
    print(f'{"not " if problems else ""}ok {number} {words}')
    for problem in sorted(problems):
        print(f'#   {problem}')


def main():
    table = pathlib.Path(sys.argv[1])
    found = rows(table)
    names = [row[0] for row in found]
    programs = {path.stem for path in table.parent.glob('*.c')
                if re.search(r'^int main\(.*\)$', path.read_text(encoding='utf-8'), re.M)}
    print('1..3')
    tell(1, programs - set(names), f'each of the {len(programs)} programs has a row')
    tell(2, [name for name in names if name not in programs or names.count(name) > 1],
         'each row has a program, which no other has')
    tell(3, [' | '.join(row) for row in found
             if len(row) != 3 or row[1] not in ('all', 'part', 'none') or (row[1] == 'all') != (not row[2])],
         'what is left out has a reason')


if __name__ == '__main__':
    main()
