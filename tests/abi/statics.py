#!/usr/bin/env python3
"""Compares what a library has of writable memory with the table in src/README.md, "What a process has one of".

usage: statics.py README LIBRARY...

State belongs to an instance (a host, a card, an object): a process can then have several. A variable outside of one
is in the table, with the reason why a process has one of it. Prints a TAP line per library and one for the table.

A row names variables in its second column: `name`, or `file.c: name, name` for those of one file. Variables inside of
functions go by their names alone.
"""
import re
import subprocess
import sys

SECTION = '## What a process has one of'
WRITABLE = ('.data', '.bss', '.tdata', '.tbss')
TOOLCHAIN = ('__TMC_END__', '__dso_handle', 'completed', '__cpu_model', '__cpu_features2')


def readelf(*args):
    return subprocess.run(['readelf', *args], capture_output=True, text=True, check=True).stdout


def plain(name):
    """As it stands in the source: gcc calls it name.0, clang function.name."""
    parts = [part for part in name.split('.') if part and not part.isdigit()]
    return parts[-1] if parts else name


def variables(library):
    """(file, name) of all; the file of one that several files share is not known after linking: ''."""
    sections = dict(re.findall(r'^\s*\[\s*(\d+)\]\s+(\S+)', readelf('-SW', library), re.M))
    symbols = readelf('-sW', library).partition("'.symtab'")[2]
    if not symbols:
        sys.exit(f'1..0 # SKIP {library} has no symbols')
    file, found = '', set()
    for line in symbols.splitlines():
        fields = line.split()
        if len(fields) < 8:
            continue
        kind, bind, section, name = fields[3], fields[4], fields[6], fields[7]
        if kind == 'FILE':
            file = '' if name == 'crtstuff.c' else name
        elif kind in ('OBJECT', 'TLS') and sections.get(section) in WRITABLE and plain(name) not in TOOLCHAIN:
            found.add((file if bind == 'LOCAL' else '', plain(name)))
    return found


def table(readme):
    text = open(readme, encoding='utf-8').read().partition(SECTION)[2]
    rows = set()
    for line in re.split(r'^## ', text, flags=re.M)[0].splitlines():
        cells = [cell.strip() for cell in line.split('|')]
        if len(cells) != 5 or not cells[3] or set(cells[1]) <= set('-'):
            continue
        for names in re.findall(r'`([^`]*)`', cells[2]):
            file, colon, rest = names.partition(':')
            rows |= {(file, name.strip()) for name in rest.split(',')} if colon else {('', names)}
    return rows


def tell(number, missing, words):
    print(f'{"not " if missing else ""}ok {number} {words}')
    for file, name in sorted(missing):
        print(f'#   {file + ": " if file else ""}{name}')


def main():
    readme, libraries = sys.argv[1], sys.argv[2:]
    rows, seen = table(readme), set()
    print(f'1..{len(libraries) + 1}')
    for number, library in enumerate(libraries, 1):
        found = variables(library)
        seen |= found
        tell(number, found - rows, f'{library.rpartition("/")[2]} has no variable that the table lacks ({len(found)} are there)')
    tell(len(libraries) + 1, rows - seen if rows else {('', 'the table is empty')}, f'each of the {len(rows)} names in the table is there')


if __name__ == '__main__':
    main()
