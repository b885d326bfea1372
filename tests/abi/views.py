#!/usr/bin/env python3
"""Host code has no pointer to guest memory: what vb_dpa_mem_host() gives cannot be followed, and the ways past that are
known.

usage: views.py SOURCE_ROOT CC...
"""
import os
import re
import subprocess
import sys

HEAD = '''
#include <string.h>
#include "dpa/dpa.h"
struct context { uint64_t word; };
uint64_t f(struct vb_dpa_process *p, char *buf);
uint64_t f(struct vb_dpa_process *p, char *buf)
{
	struct vb_dpa_view v = vb_dpa_mem_host(p, 4096, 8, VB_DPA_READ);
	uint64_t word = 0;
'''
GOOD = ['vb_view_load(v, 8, &word);', 'vb_view_read(v, buf, 8);', 'vb_view_put(v, VB_VIEW_FIELD(struct context, word), 1);']
BAD = ['word = *v;', 'word = v[0];', 'word = v->word;', 'memcpy(buf, v, 8);', 'memcpy(v, buf, 8);',
       'struct context *c = v;', 'struct context *c = (struct context *)v;', 'word = *(uint64_t *)v;',
       'struct context *c = vb_dpa_mem_host(p, 4096, 8, VB_DPA_READ);', 'v += 8;', 'if (v) word = 1;',
       '__atomic_store_n(v, 1, __ATOMIC_RELEASE);']

# Files that may take the address out of a view: keys and queues of the card, and write(2), which answers EFAULT itself.
LENT = ['src/api/flexio/mkey.c', 'src/api/flexio/process.c', 'src/tools/dpa_run.c']


def compiles(root, cc, line):
    done = subprocess.run(cc + ['-fsyntax-only', '-std=gnu11', '-D_GNU_SOURCE', '-I' + os.path.join(root, 'src'), '-x', 'c', '-'],
                          input=HEAD + '\t' + line + '\n\treturn word;\n}\n', text=True, stderr=subprocess.DEVNULL)
    return done.returncode == 0


def uses(root, pattern, but):
    found = []
    for folder, _, names in os.walk(os.path.join(root, 'src')):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), root)
            if not name.endswith(('.c', '.h')) or path in but:
                continue
            with open(os.path.join(root, path)) as f:
                found += [f'{path}:{n}: {line.strip()}' for n, line in enumerate(f, 1) if re.search(pattern, line)]
    return found


def main():
    root, cc = sys.argv[1], sys.argv[2:]
    wrong = [f'does not compile: {line}' for line in GOOD if not compiles(root, cc, line)]
    wrong += [f'compiles: {line}' for line in BAD if compiles(root, cc, line)]
    wrong += uses(root, r'\bvb_view_lend\(', LENT + ['src/dpa/view.h'])
    wrong += uses(root, r'\bview\w*(\.|->)host\b|\bvb_dpa_view\)\{ \(', ['src/dpa/view.h', 'src/dpa/internal.h'])
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
