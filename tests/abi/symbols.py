#!/usr/bin/env python3
"""Compare a library's dynamic symbols and version nodes with a list.

usage: symbols.py LIBRARY LIST
"""
import re
import subprocess
import sys


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def expected(path):
    """The list: 'node NAME < PARENT' lines, then 'name@version' with ' *' where it is not the default, or a name without."""
    lines = [line.strip() for line in open(path, encoding='ascii') if not line.startswith('#')]
    return {l for l in lines if l and not l.startswith('node ')}, {l for l in lines if l.startswith('node ')}


def exported(library):
    symbols = set()
    for line in output('nm', '-D', '--defined-only', library).splitlines():
        kind, name = line.split()[1:3]
        if kind == 'A' or name.startswith('__odr_asan'):  # the version nodes themselves; the sanitizer's own
            continue
        symbols.add(name.replace('@@', '@') if '@@' in name else name + ' *' if '@' in name else name)
    return symbols


def defined_nodes(library):
    nodes, defining = [], False
    for line in output('readelf', '-VW', library).splitlines():
        if 'Version definition section' in line or 'Version needs section' in line:
            defining = 'definition' in line
        elif defining and 'Name:' in line and 'BASE' not in line:
            nodes.append('node ' + line.split('Name:')[1].strip())
        elif defining and 'Parent' in line:
            nodes[-1] += ' < ' + line.split(': ')[-1].strip()
    return set(nodes)


def main():
    library, path = sys.argv[1:]
    symbols, nodes = expected(path)
    problems = []
    for what, want, have in (('symbol', symbols, exported(library)), ('node', nodes, defined_nodes(library))):
        problems += [f'missing {what}: {name}' for name in sorted(want - have)]
        problems += [f'surplus {what}: {name}' for name in sorted(have - want)]
    soname = re.search(r'SONAME.*\[(.*)\]', output('readelf', '-d', library))
    if not soname or soname.group(1) + '.txt' != path.split('/')[-1]:
        problems.append(f'SONAME is {soname and soname.group(1)}')
    print('\n'.join(problems) or f'{len(symbols)} symbols, {len(nodes)} nodes')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
