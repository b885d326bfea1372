#!/usr/bin/env python3
"""The card uses no x87 and no MMX registers: a patched doorbell calls it in the middle of code that may, and does not
keep them.

usage: registers.py LIBRARY
"""
import re
import subprocess
import sys

# control words are read and written by libm's relatives only; %st and %mm name the registers
USES = re.compile(r'%(st|mm[0-7])\b|\b(f(ld|ild|st|stp|ist|istp|isttp|bld|bstp|ninit|nsave|rstor|ldenv|ldcw)[a-z0-9]*|emms)\s')


def main():
    text = subprocess.run(['objdump', '-d', '--no-show-raw-insn', sys.argv[1]], stdout=subprocess.PIPE, text=True,
                          check=True).stdout
    lines = [line for line in text.splitlines() if re.match(r'\s+[0-9a-f]+:\t', line)]
    found = [line for line in lines if USES.search(line.split('\t', 1)[1])]
    if len(lines) < 1000:
        sys.exit(f'{sys.argv[1]}: only {len(lines)} instructions')
    for line in found[:20]:
        print(line)
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
