#!/usr/bin/env python3
"""Programs of Debian whose memory is born shared, because a library in LD_PRELOAD opens a card in each of their processes:
they say and do what they do without it.

usage: debian.py VERBATIM OPENER
"""
import os
import subprocess
import sys
import tempfile

PYTHON = r'''
import hashlib, mmap, multiprocessing, os, subprocess, threading
def work(n):
    data = bytes([n]) * (1 << 20)
    return hashlib.sha256(data).hexdigest()
def busy(stop):
    while not stop.is_set():
        bytearray(300000)
if __name__ == '__main__':
    stop = threading.Event()
    threads = [threading.Thread(target=busy, args=(stop,)) for _ in range(2)]
    for t in threads: t.start()
    keep = [bytearray(os.urandom(1)) * 200000 for _ in range(40)]
    sums = [hashlib.md5(k).hexdigest() for k in keep]
    with multiprocessing.get_context('fork').Pool(3) as pool:
        print(pool.map(work, range(12)))
    for _ in range(5):
        pid = os.fork()
        if not pid:
            os._exit(0 if sums == [hashlib.md5(k).hexdigest() for k in keep] else 1)
        assert os.waitpid(pid, 0)[1] == 0
    area = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.write(b'x' * 70000)
    area.resize(2 << 20)
    area.madvise(mmap.MADV_DONTNEED, 0, 4096)
    print(hashlib.md5(area[:80000]).hexdigest())
    print(subprocess.run(['echo', 'child'], stdout=subprocess.PIPE).stdout)
    stop.set()
    for t in threads: t.join()
    assert sums == [hashlib.md5(k).hexdigest() for k in keep]
    print('end')
'''

C = r'''
#include <stdio.h>
int main(void) { return puts("hello") < 0; }
'''

# name, command for sh; each works in an empty folder
CASES = [
    ('sort', 'seq 300000 -1 1 | sort -n --parallel=2 -S 20M | md5sum'),
    ('bash', 'for i in 1 2 3 4; do x=$(printf "%0200000d" $i); echo ${#x} | cat; (echo $((${#x} + i))); done'),
    ('awk', 'seq 100000 | awk \'{ a[$1 % 5000] = a[$1 % 5000] $1 } END { n = 0; for (k in a) n += length(a[k]); print n }\''),
    ('perl', 'perl -e \'$x = "a" x 5000000; if (!fork) { $x =~ tr/a/b/; exit(length($x) != 5000000) } wait; print $?, length($x), '
             'substr($x, 0, 3), "\\n"\''),
    ('tar, gzip, xz', 'seq 200000 > a; tar --mtime=@0 -cf - a | gzip -n | md5sum; tar cf t.tar a; xz -T2 -k t.tar; xz -dc t.tar.xz | tar xOf - a | '
                      'md5sum'),
    ('git', 'git init -q .; seq 100000 > f; git add f; git -c user.name=a -c user.email=a@b commit -qm one; seq 100001 > f; '
            'git diff --stat | cat; git gc -q; git fsck --no-progress; git log --format=%s'),
    ('gcc', 'cc -O2 -o hello ../hello.c && ./hello'),
    ('python', 'python3 ../work.py'),
]


def run(prefix, command, folder, **variables):
    where = tempfile.mkdtemp(dir=folder)
    env = {name: value for name, value in os.environ.items()
           if name == 'VERBATIM_SHM_DIR' or not name.startswith(('VERBATIM_', 'LD_PRELOAD', 'LD_LIBRARY_PATH', 'MALLOC_', 'GIT_'))}
    env.update(variables, LC_ALL='C', HOME=folder)
    return subprocess.run(prefix + ['sh', '-c', command], cwd=where, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=170)


def main():
    verbatim, opener = (os.path.abspath(path) for path in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, 'work.py'), 'w', encoding='utf-8') as file:
            file.write(PYTHON)
        with open(os.path.join(folder, 'hello.c'), 'w', encoding='utf-8') as file:
            file.write(C)
        print(f'1..{len(CASES)}')
        for number, (name, command) in enumerate(CASES, 1):
            words = name.split(', ')
            if not all(run([], f'command -v {word}', folder).returncode == 0 for word in words):
                print(f'ok {number} - {name} # SKIP is not installed')
                continue
            says = os.path.join(folder, f'says.{number}')
            plain = run([], command, folder)
            ours = run([verbatim, 'run', '--', 'sh', '-c', 'LD_PRELOAD="$0:$LD_PRELOAD" exec "$@"', opener], command, folder,
                       OPENER_SAYS=says, VERBATIM_SHARE='all')
            with open(says, encoding='utf-8') as file:
                lines = file.read().split('\n')
            good = (plain.returncode, plain.stdout) == (ours.returncode, ours.stdout) and not plain.returncode
            # the compiler itself has functions of malloc() in it, and keeps its memory
            good = good and lines.count('shared') > 1 and set(lines) - {'private'} == {'shared', ''}
            print(f'{"ok" if good else "not ok"} {number} - {name}')
            if not good:
                print(f'# plain: {plain.returncode} {plain.stdout[-300:]!r} {plain.stderr[-300:]!r}')
                print(f'# ours: {ours.returncode} {ours.stdout[-300:]!r} {ours.stderr[-600:]!r}')
                print(f'# {len(lines)} processes: {set(lines)}')


main()
