#!/usr/bin/env python3
"""Every function of a staged header, every installed command and subcommand has a man page, and every page is found.

usage: manpages.py STAGE

Headers are read line by line: what is declared or defined at the start of a line and is followed by a parenthesis. Names
that begin with two underscores are private, but those of the accelerator's intrinsics (__dpa_*).
"""
import os
import re
import subprocess
import sys

# Declared in our headers, but not to be called by name: the header's macros choose them by version.
BY_VERSION = re.compile(r'_v0$')
WORDS = {'static_assert', 'void', 'uint64_t'}
DECLARATION = re.compile(r'(?:#\s*define\s+|\w[\w\s*(),]*?[\s*]|)([a-z_]\w*)\(')


def functions(path):
    with open(path, encoding='utf-8') as text:
        code = re.sub(r'/\*.*?\*/|//[^\n]*', '', text.read(), flags=re.S)
    for line in code.splitlines():
        match = DECLARATION.match(line)
        if match and match[1] not in WORDS and not BY_VERSION.search(match[1]):
            if not match[1].startswith('_') or match[1].startswith('__dpa_'):
                yield match[1]


def headers(stage):
    for folder, _, files in os.walk(os.path.join(stage, 'include')):
        yield from (os.path.join(folder, name) for name in files if name.endswith('.h'))


def subcommands(command):
    said = subprocess.run([*command, '--help'], capture_output=True, text=True, timeout=30, check=True).stdout
    listed = re.search(r'^Commands:\n((?:  \w.*\n)+)', said, re.M)
    return re.findall(r'^  (\w+)', listed[1], re.M) if listed else []


def exported(library):
    said = subprocess.run(['nm', '-D', '--defined-only', library], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r' [TW] ((?:flexio|dpa_stats|mlx4dv|hbldv|mlx5dv_(?:create_flow|destroy_flow|devx|dr|dump_dr|'
                          r'init_obj|create_(?:cq|qp|wq|mkey)|destroy_mkey|qp_|get_clock|set_context|modify_qp_udp|map_ah|reserved_qpn|pp_|alloc_dm|dm_map))_?\w*)',
                          said))


def main():
    stage = sys.argv[1]
    man = os.path.join(stage, 'share', 'man')
    if not os.path.isdir(man):
        print('this tree has no man pages: pandoc was missing when it was built')
        return 77
    wanted = {(name, 3) for path in headers(stage) for name in functions(path)}
    for library in ('libflexio.so.1', 'libdpa_stats.so.1', 'libmlx4.so.1', 'libmlx5.so.1', 'libhbl.so.1'):
        wanted |= {(n, 3) for n in exported(os.path.join(stage, 'lib', library)) if not BY_VERSION.search(n)}
    if len(wanted) < 200:
        print(f'FAILED: only {len(wanted)} functions found in the headers: this test is broken')
        return 1
    wanted |= {(name, 1) for name in os.listdir(os.path.join(stage, 'bin'))}
    verbatim = os.path.join(stage, 'bin', 'verbatim')
    for name in subcommands([verbatim]):
        wanted |= {(f'verbatim-{name}', 1)}
        wanted |= {(f'verbatim-{name}-{last}', 1) for last in subcommands([verbatim, name])}
    missing = sorted(f'{name}({section})' for name, section in wanted
                     if not os.path.exists(os.path.join(man, f'man{section}', f'{name}.{section}')))
    print(f'{len(wanted)} names, {len(missing)} without a man page: {" ".join(missing)}')
    return 1 if missing else 0


sys.exit(main())
