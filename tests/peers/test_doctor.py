#!/usr/bin/env python3
"""verbatim doctor: what it says and exits with when abilities of the machine are taken away, one at a time.

usage: test_doctor.py REFUSE            (the program refuse.c)
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import peers

VERBATIM = os.path.join(peers.stage(), 'bin', 'verbatim')
REFUSE = sys.argv[1]
CODES = {'ok': 0, 'fallback': 1, 'fail': 2}


def call(*argv, env=None):
    environment = {**peers.bare_env(), **(env or {})}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=170, check=False)


def findings(*before, env=None, tool=VERBATIM):
    """The checks by name; the exit code must be that of the worst."""
    done = call(*before, tool, 'doctor', '--json', env=env)
    if done.returncode == 77 and 'no seccomp' in done.stdout:
        return None
    try:
        said = json.loads(done.stdout)
    except ValueError as error:
        raise peers.Failure(f'{before}: {error}\n{done.stdout}\n{done.stderr}') from error
    worst = max((check['verdict'] for check in said['checks']), key=CODES.get)
    if (said['verdict'], done.returncode) != (worst, CODES[worst]):
        raise peers.Failure(f'{before}: verdict {said["verdict"]}, exit code {done.returncode}, worst {worst}')
    if done.stderr:
        raise peers.Failure(f'{before}: {done.stderr}')
    return {check['name']: check for check in said['checks']}


def expect(found, name, verdict, text='', remedy=''):
    if found is None:
        return
    check = found.get(name)
    if not check or check['verdict'] != verdict or text not in check['text'] or remedy not in (check['remedy'] or ''):
        raise peers.Failure(f'{name}: not {verdict}, {text!r}, {remedy!r}: {check}')


def limited(limit, **options):
    return findings('sh', '-c', f'ulimit {limit} && exec "$@"', 'sh', **options)


def check_limits(sanitized):
    expect(limited('-n 64'), 'open files', 'fallback', 'ulimit -n is 64', 'ulimit -n 1024')
    expect(limited('-f 8192'), 'file size', 'fallback', '4096 KiB', 'ulimit -f unlimited')
    found = limited('-f 8')
    expect(found, 'card', 'fail', 'files may have 4096 bytes (ulimit -f)')
    if sanitized:
        return  # it needs terabytes of addresses
    found = limited('-v 2000000')
    expect(found, 'address space', 'fallback', 'ulimit -v is 1953 MiB', 'ulimit -v unlimited')
    expect(found, 'accelerator', 'fallback', 'interpreted')
    expect(limited('-v 900000'), 'accelerator', 'fail', 'cannot reserve')


def check_sandbox(fine, sanitized):
    """A check that fails on this machine already cannot show that it was taken away."""
    for calls, name, verdict, text in (
            ('process_vm_readv', 'direct copies', 'fallback', 'process_vm_readv: Operation not permitted'),
            ('memfd_create', 'memory files', 'fail', 'memfd_create: Operation not permitted'),
            ('membarrier', 'membarrier', 'fallback', 'membarrier (global barriers)'),
            ('unshare', 'namespaces', 'fallback', 'namespaces: Operation not permitted'),
            ('unshare', 'own networks', 'fallback', 'namespaces: Operation not permitted'),
            ('ptrace', 'ptrace', 'fallback', 'ptrace: Operation not permitted'),
            ('perf_event_open', 'perf', 'fallback', 'perf_event_open: Operation not permitted'),
            ('exec', 'executable', 'fallback', 'mprotect: Operation not permitted')):
        # LeakSanitizer itself needs ptrace.
        env = {'ASAN_OPTIONS': 'detect_leaks=0'} if sanitized and calls == 'ptrace' else None
        if name in fine:
            expect(findings(REFUSE, calls, env=env), name, verdict, text)
    if 'executable' in fine:
        expect(findings(REFUSE, 'exec'), 'accelerator', 'fallback', 'interpreted')


def check_shared_memory():
    """A small /dev/shm; needs a mount namespace, and is passed over without one."""
    mount = 'mount -t tmpfs -o {} none /dev/shm || exit 99; unset VERBATIM_SHM_DIR; shift; exec "$@"'
    for options, name, verdict, text in (('size=16k', 'card', 'fail', '/dev/shm is full'),
                                         ('size=10m', 'shared memory', 'fallback', '/dev/shm has 10240 KiB left'),
                                         ('nr_inodes=5', 'inodes', 'fallback', 'room for 4 files')):
        argv = ['unshare', '--mount'] + ([] if os.geteuid() == 0 else ['--map-root-user'])
        if call(*argv, 'sh', '-c', mount.format(options), 'sh', 'x', 'true').returncode:
            return
        expect(findings(*argv, 'sh', '-c', mount.format(options), 'sh', 'x'), name, verdict, text)


def check_programs(folder):
    """PATH without some programs: a folder of links to all others."""
    def path_without(*names):
        temporary = tempfile.mkdtemp(dir=folder)
        for where in reversed(os.environ['PATH'].split(':')):
            for name in os.listdir(where) if os.path.isdir(where) else []:
                link = os.path.join(temporary, name)
                if name not in names:
                    if os.path.lexists(link):
                        os.unlink(link)
                    os.symlink(os.path.join(where, name), link)
        return {'PATH': temporary}

    found = findings(env=path_without('clang', 'ld.lld', 'gdb-multiarch', 'riscv64-unknown-elf-gdb', 'riscv64-linux-gnu-gdb'))
    expect(found, 'programs', 'fail', 'not in PATH: clang, ld.lld: ', 'apt-get install clang lld')
    expect(found, 'gdb', 'fallback', 'no gdb that knows RISC-V', 'apt-get install gdb-multiarch')
    if 'dpacc' in found:
        raise peers.Failure('dpacc was tried without clang')
    expect(findings(env={'DPACC_PICOLIBC': folder}), 'device libc', 'fail', f'in {folder}',
           'apt-get install picolibc-riscv64-unknown-elf')


def check_tree(folder):
    config = os.path.join(folder, 'doctor.conf')
    with open(config, 'w', encoding='ascii') as text:
        text.write('[adapter mlx5_0]\nmtu = 1500\n')
    found = findings(env={'VERBATIM_CONFIG': config})
    expect(found, 'configuration', 'fail', f'{config}:2: mtu: ')
    with open(config, 'w', encoding='ascii') as text:
        text.write('[adapter mlx5_3]\naddress = 203.0.113.9\n')
    expect(findings(env={'VERBATIM_CONFIG': config}), 'configuration', 'fallback', 'mlx5_3 is DOWN')
    expect(findings(env={'VERBATIM_DIRECT': 'off'}), 'direct copies', 'fallback', 'VERBATIM_DIRECT=off')
    tree = os.path.join(folder, 'tree')
    shutil.copytree(peers.stage(), tree, symlinks=True)
    os.unlink(os.path.join(tree, 'lib', 'libmlx5.so.1'))
    os.unlink(os.path.join(tree, 'lib', 'libverbatim-preload.so'))
    found = findings(tool=os.path.join(tree, 'bin', 'verbatim'))
    expect(found, 'libraries', 'fail', 'libmlx5.so.1')
    expect(found, 'installation', 'fail', 'libverbatim-preload.so is missing')


def check_text():
    done = call(VERBATIM, 'doctor')
    for word in ('\nProcessor\n', '\nKernel\n', '\nLimits\n', '\nTools for device code\n', 'Verbatim\n'):
        if word not in done.stdout:
            raise peers.Failure(f'no {word!r} in {done.stdout}')
    if '\033' in done.stdout or done.returncode not in (0, 1, 2):
        raise peers.Failure(f'colours without a terminal, or {done.returncode}')
    if call(VERBATIM, 'doctor', '--nonsense').returncode != 64 or call(VERBATIM, 'doctor', 'x').returncode != 64:
        raise peers.Failure('a wrong command line is no 64')
    quiet = call('sh', '-c', 'ulimit -n 64 && exec "$0" doctor -q', VERBATIM)
    if ' ok ' in quiet.stdout or 'open files' not in quiet.stdout or quiet.returncode == 0:
        raise peers.Failure(f'--quiet: {quiet.stdout}')


def run():
    sanitized = peers.sanitizer(peers.stage())
    fine = {name for name, check in findings().items() if check['verdict'] == 'ok'}
    for name in ('installation', 'configuration', 'card', 'accelerator', 'dpacc'):
        if name not in fine:
            raise peers.Failure(f'{name} is not fine on the machine that built it')
    check_text()
    # Whoever started it may want no exit codes of its own children.
    if {name for name, check in findings('env', '--ignore-signal=CHLD').items() if check['verdict'] == 'ok'} != fine:
        raise peers.Failure('other findings where SIGCHLD is ignored')
    check_limits(sanitized)
    check_sandbox(fine, sanitized)
    check_shared_memory()
    with tempfile.TemporaryDirectory() as folder:
        check_programs(folder)
        check_tree(folder)


peers.main(run)
