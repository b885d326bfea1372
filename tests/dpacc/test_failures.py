#!/usr/bin/env python3
"""What goes wrong is said so that a user can mend it, and leaves nothing behind."""
import os
import random
import re
import shutil
import signal
import subprocess
import time

from kit import ADD, BIN, Failure, STAGE, Skip, collect, dpacc, equal, expect, files, main, run, without, write

MISSING = [
    ('clang', 'clang', 'clang'),
    ('ld.lld', r'ld\.lld', 'lld'),
    ('llvm-ar', 'llvm-ar', 'llvm'),
    ('riscv64-unknown-elf-gcc', 'riscv64-unknown-elf-gcc', 'gcc-riscv64-unknown-elf'),
    ('gcc', 'gcc', 'gcc'),
]


def fails(cwd, *args, stderr, code=1, env=None, program=BIN / 'dpacc'):
    """It fails with a message, and neither the folder nor the place of temporary files has more than before."""
    tmp = cwd.parent / (cwd.name + '-tmp')
    tmp.mkdir(exist_ok=True)
    before = files(cwd)
    done = run(program, *args, cwd=cwd, env={'TMPDIR': str(tmp), **(env or {})})
    left = os.listdir(tmp)
    shutil.rmtree(tmp)
    expect(done, code, stderr=stderr)
    equal(files(cwd), before, 'files after a failure')
    equal(left, [], 'temporary files after a failure')
    return done


def check_missing_tools(cwd):
    write(cwd, 'a.c')
    for name, pattern, package in MISSING:
        path = without(cwd / f'path-{name}', name, *(['cc'] if name == 'gcc' else []))
        fails(cwd, 'a.c', '-o', 'x.a', env={'PATH': path},
              stderr=rf'^dpacc: {pattern} was not found in PATH; it is in the Debian package {package}: apt-get install {package}$')
    path = without(cwd / 'path-objcopy', 'llvm-objcopy')
    fails(cwd, '-c', 'a.c', env={'PATH': path}, stderr='llvm-objcopy .* package llvm')
    fails(cwd, 'a.c', '-o', 'x.a', env={'DPACC_PICOLIBC': '/nowhere'}, stderr='package picolibc-riscv64-unknown-elf')
    fails(cwd, 'a.c', '-o', 'x.a', '-hostcc=nocc', stderr='^dpacc: nocc: not found in PATH')
    fails(cwd, 'a.c', '-o', 'x.a', '-hostcc=', stderr='-hostcc names no program')
    fails(cwd, 'a.c', '-o', 'x.a', '-hostcc=nocc -O2', stderr='^dpacc: nocc: not found in PATH')
    fails(cwd, 'a.c', '-o', 'x.a', '-hostcc=/no/cc', stderr='^dpacc: /no/cc: no such program')


def check_ignored_children(cwd):
    """A build system that ignores SIGCHLD passes that on."""
    write(cwd, 'a.c')
    done = run('env', '--ignore-signal=CHLD', BIN / 'dpacc', 'a.c', '-o', 'x.a', cwd=cwd)
    expect(done, 0)
    equal((cwd / 'x.a').exists(), True, 'the library')


def check_incomplete_installation(cwd):
    tree = cwd / 'tree'
    (tree / 'bin').mkdir(parents=True)
    shutil.copy(BIN / 'dpacc', tree / 'bin')
    shutil.copytree(STAGE / 'include', tree / 'include')
    write(cwd, 'a.c')
    fails(cwd, 'a.c', '-o', 'x.a', program=tree / 'bin/dpacc',
          stderr=rf'^dpacc: {re.escape(str(tree.resolve()))}/lib/flexio/dpa_linker\.ld is missing; is the installation complete')
    # the rest of the tree makes it whole, wherever it stands
    shutil.copytree(STAGE / 'lib/flexio', tree / 'lib/flexio')
    moved = tree.rename(cwd / 'moved tree')
    expect(run(moved / 'bin/dpacc', 'a.c', '-o', 'x.a', cwd=cwd))
    os.symlink(moved / 'bin/dpacc', cwd / 'link')
    expect(run(cwd / 'link', 'a.c', '-o', 'x.a', cwd=cwd))


def check_inputs_that_are_not_there(cwd):
    write(cwd, 'a.c')
    (cwd / 'folder.c').mkdir()
    fails(cwd, 'absent.c', '-o', 'x.a', stderr=r'^dpacc: absent\.c: No such file')
    fails(cwd, 'a.c', 'absent.dpa.o', '-o', 'x.a', stderr=r'^dpacc: absent\.dpa\.o: No such file')
    fails(cwd, 'folder.c', '-o', 'x.a', stderr=r'folder\.c')
    fails(cwd, '.', '-o', 'x.a', stderr=r'^dpacc: \.: is a folder')
    fails(cwd, '/dev/null', '-o', 'x.a', stderr=r'^dpacc: /dev/null: is no ordinary file')
    fails(cwd, 'a.c', '-device-libs=absent.a', '-o', 'x.a', stderr=r'absent\.a: No such file')


def check_inputs_that_are_something_else(cwd):
    write(cwd, 'a.c')
    write(cwd, 'text.o', 'hello\n')
    write(cwd, 'empty.o', '')
    write(cwd, 'libempty.a', '')
    write(cwd, 'b.cpp', 'class X {};\n')
    expect(run('gcc', '-c', 'a.c', '-D__dpa_rpc__=', '-o', 'host.o', cwd=cwd))
    expect(run(BIN / 'dpa-clang', '-c', 'a.c', '-o', 'device.o', cwd=cwd))
    expect(dpacc(cwd, 'a.c', '-o', 'app.a'))
    for name in ('text.o', 'empty.o', 'app.a'):
        fails(cwd, name, '-o', 'x.a', stderr=rf'^dpacc: {name}: not a C source \(\.c\), and damaged or no object$')
    for name in ('host.o', 'device.o'):
        fails(cwd, name, '-o', 'x.a', stderr=rf'^dpacc: {name}: no device code in it')
    fails(cwd, '-c', 'text.o', stderr='-c compiles sources')
    fails(cwd, 'b.cpp', '-o', 'x.a', stderr=r'^dpacc: b\.cpp: device code is C, in files whose names end in \.c$')
    fails(cwd, '-c', 'b.cpp', stderr='device code is C')
    fails(cwd, 'a.c', '-o', 'x.a', '-device-libs=libempty.a', stderr='^dpacc: libempty.a: damaged or no archive')
    fails(cwd, 'a.c', '-o', 'x.a', '-device-libs=-L.,-lempty', stderr='libempty.a: damaged or no archive')
    write(cwd, 'libvendor.a', 'NVDPAFBF\1')
    fails(cwd, 'a.c', '-o', 'x.a', '-lvendor', stderr='libvendor.a: made by another compiler')
    # an archive of host code is no device library
    expect(run('ar', 'rc', 'libhost.a', 'host.o', cwd=cwd))
    fails(cwd, 'a.c', '-o', 'x.a', '-lhost', stderr=r'ld\.lld: error: .*incompatible')


def damage(data, seed):
    """One of the ways in which files break: shorter, a byte changed, a run of zeros."""
    rng = random.Random(seed)
    data = bytearray(data)
    kind = seed % 3
    if kind == 0:
        return bytes(data[:rng.randrange(len(data))])
    for _ in range(1 + seed % 5):
        at = rng.randrange(len(data))
        if kind == 1:
            data[at] ^= 1 << rng.randrange(8)
        else:
            data[at:at + 16] = bytes(len(data[at:at + 16]))
    return bytes(data)


def ends_cleanly(cwd, *args):
    """Success or a message; never a crash, never leftovers."""
    tmp = cwd / 'tmp'
    tmp.mkdir(exist_ok=True)
    done = run(BIN / 'dpacc', *args, cwd=cwd, env={'TMPDIR': str(tmp)})
    if done.returncode not in (0, 1) or (done.returncode and not done.stderr.strip()):
        raise Failure(f'{args}: exit code {done.returncode}\n{done.stderr}')
    equal(os.listdir(tmp), [], 'temporary files')
    return done.returncode


def check_damaged_objects(cwd):
    write(cwd, 'a.c')
    expect(dpacc(cwd, '-c', 'a.c'))
    good = (cwd / 'a.dpa.o').read_bytes()
    failed = 0
    for seed in range(30):
        (cwd / 'bad.dpa.o').write_bytes(damage(good, seed))
        failed += ends_cleanly(cwd, 'bad.dpa.o', '-o', 'x.a')
    if failed < 10:
        raise Failure(f'only {failed} of 30 damaged objects were refused')


def check_damaged_libraries(cwd):
    write(cwd, 'a.c', '__dpa_rpc__ int in_library(int a) { return a; }\n')
    write(cwd, 'b.c')
    expect(dpacc(cwd, 'a.c', '-gen-libs', '-o', 'libx', '-mcpu=nv-dpa-bf3,nv-dpa-cx7'))
    good = (cwd / 'libx_device.a').read_bytes()
    expect(dpacc(cwd, '-c', 'b.c'))
    failed = 0
    for seed in range(30):
        (cwd / 'libbad.a').write_bytes(damage(good, seed))
        failed += ends_cleanly(cwd, 'b.dpa.o', '-o', 'x.a', '-device-libs=-L. -lbad')
    if failed < 10:
        raise Failure(f'only {failed} of 30 damaged libraries were refused')


def check_damaged_function_lists(cwd):
    """What a device object says about its functions becomes C code, so it is not believed blindly."""
    lines = ['f rpc extern li 1 a.c', 'f();abort rpc extern l 1 a.c', 'f rpc extern z 1 a.c', 'f rpc extern lv 1 a.c',
             'f what extern l 1 a.c', 'f rpc static2 l 1 a.c', 'f rpc extern l x a.c', 'f rpc extern l 1', 'f',
             'n' * 300 + ' rpc extern l 1 a.c', ' rpc extern l 1 a.c', 'f rpc extern  1 a.c', 'f rpc extern l{ 1 a.c',
             'f rpc extern l{4,4;} 1 a.c', 'f rpc extern l{4,4;i> 1 a.c', 'f rpc extern l{4,3;i} 1 a.c',
             'f rpc extern l{4,4;i[x]} 1 a.c', 'f rpc extern {4,4;i} 1 a.c',
             'f rpc extern l' + '{4,4;' * 40 + 'i' + '}' * 40 + ' 1 a.c', 'f rpc extern l{4,4;i;};abort() 1 a.c',
             'f\\\\000 rpc extern l 1 a.c']
    for number, line in enumerate(lines):
        write(cwd, 'a.c', f'__asm__(".pushsection .dpa_meta,\\"\\",@progbits\\n.ascii \\"{line}\\\\n\\"\\n.popsection\\n");\n'
              'long f(int a) { return a; }\n')
        if number == 0:
            expect(dpacc(cwd, 'a.c', '-o', 'x.a'))
            (cwd / 'x.a').unlink()
        else:
            fails(cwd, 'a.c', '-o', 'x.a', stderr='the list of its functions is damaged')


def check_outputs_that_cannot_be_written(cwd):
    write(cwd, 'a.c')
    (cwd / 'folder').mkdir()
    fails(cwd, 'a.c', '-o', 'no/such/x.a', stderr=r'^dpacc: no/such/x\.a: cannot write the output: no/such: No such file')
    fails(cwd, 'a.c', '-o', 'folder', stderr='^dpacc: folder: the output is a folder$')
    fails(cwd, '-c', 'a.c', '-o', 'no/a.o', stderr=r'^dpacc: no/a\.o: cannot write the output')
    fails(cwd, 'a.c', '-gen-libs', '-o', 'no/libx', stderr=r'^dpacc: no/libx_device\.a: cannot write the output')
    fails(cwd, 'a.c', '-o', 'x.a', '-keep-dir=a.c/k', stderr='cannot make this folder')
    fails(cwd, 'a.c', '-o', 'x.a', env={'TMPDIR': '/no/such/folder'}, stderr='set TMPDIR')
    # an input is never overwritten
    (cwd / 'link.c').symlink_to('a.c')
    write(cwd, 'libx_host.a', 'mine')
    for args in (['a.c', '-o', './a.c'], ['a.c', '-o', 'link.c'], ['-c', 'a.c', '-o', 'a.c'],
                 ['a.c', '-gen-libs', '-o', 'libx', '-device-libs=libx_host.a']):
        fails(cwd, *args, stderr='cannot write the output: it is an input, too')
    equal((cwd / 'a.c').read_text(), ADD, 'the source')
    # the linker writes its files beside their place, under names in which % means a random digit
    fails(cwd, 'a.c', '-o', 'x.a', '-keep-dir=100%/k', stderr=r'^dpacc: 100%/k: .*%.*-keep-dir')
    (cwd / '50%').mkdir()
    fails(cwd, 'a.c', '-o', 'x.a', env={'TMPDIR': str(cwd / '50%')}, stderr=r'^dpacc: .*/50%: .*%.*TMPDIR')
    expect(dpacc(cwd / '50%', '../a.c', '-o', 'x.a', '-keep-dir=k'))
    expect(dpacc(cwd, 'a.c', '-o', '50%/x.a'))
    if os.geteuid():
        (cwd / 'folder').chmod(0o555)
        fails(cwd, 'a.c', '-o', 'folder/x.a', stderr='Permission denied')


def check_full_disk(cwd):
    """The output is a limited size that it does not fit in."""
    write(cwd, 'a.c')
    command = f'ulimit -f 8; exec {BIN}/dpacc a.c -o x.a'
    tmp = cwd / 'tmp'
    tmp.mkdir()
    done = run('sh', '-c', command, cwd=cwd, env={'TMPDIR': str(tmp)})
    if done.returncode == 0:
        raise Failure('8 blocks were enough')
    equal([name for name in files(cwd) if name != 'a.c'], [], 'files')


def check_old_output_survives_a_failure(cwd):
    write(cwd, 'a.c', 'int broken(\n')
    for name in ('x.a', 'a.dpa.o', 'libx_device.a', 'libx_host.a'):
        write(cwd, name, 'before')
    fails(cwd, 'a.c', '-o', 'x.a', stderr='error:')
    fails(cwd, '-c', 'a.c', stderr='error:')
    fails(cwd, 'a.c', '-gen-libs', '-o', 'libx', stderr='error:')
    for name in ('x.a', 'a.dpa.o', 'libx_device.a', 'libx_host.a'):
        equal((cwd / name).read_text(), 'before', name)


def check_one_bad_source_of_several(cwd):
    write(cwd, 'a.c')
    write(cwd, 'b.c', 'int broken(\n')
    fails(cwd, '-c', 'a.c', 'b.c', stderr=r'^b\.c:1:')
    fails(cwd, 'a.c', 'b.c', '-o', 'x.a', stderr=r'^b\.c:1:')


def interrupted(cwd, number, compiler):
    tmp = cwd / 'tmp'
    tmp.mkdir(exist_ok=True)
    with subprocess.Popen([BIN / 'dpacc', 'a.c', '-o', 'x.a', f'-hostcc={compiler}'], cwd=cwd, text=True,
                          env={'PATH': os.environ['PATH'], 'TMPDIR': str(tmp)}, stderr=subprocess.PIPE) as process:
        end = time.monotonic() + 60
        while not (cwd / 'started').exists():
            if time.monotonic() > end or process.poll() is not None:
                raise Failure('the compiler was not started')
            time.sleep(0.01)
        process.send_signal(number)
        process.wait(60)
    equal(process.returncode, -number, 'exit code')
    equal(os.listdir(tmp), [], 'temporary files')
    (cwd / 'started').unlink()
    # what was running is gone, too
    pid = int((cwd / 'pid').read_text())
    for _ in range(500):
        if not os.path.exists(f'/proc/{pid}'):
            break
        time.sleep(0.01)
    else:
        raise Failure('the compiler still runs')


def check_signals(cwd):
    write(cwd, 'a.c')
    compiler = write(cwd, 'slowcc', '#!/bin/sh\necho $$ >pid\n: >started\nexec sleep 60\n')
    compiler.chmod(0o755)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        interrupted(cwd, number, compiler)
    equal((cwd / 'x.a').exists(), False, 'archive')


def check_compiler_that_crashes(cwd):
    write(cwd, 'a.c')
    compiler = write(cwd, 'badcc', '#!/bin/sh\nkill -SEGV $$\n')
    compiler.chmod(0o755)
    fails(cwd, 'a.c', '-o', 'x.a', f'-hostcc={compiler}', stderr=r'badcc was ended by signal 11')
    compiler.write_text('#!/no/such/interpreter\n')
    fails(cwd, 'a.c', '-o', 'x.a', f'-hostcc={compiler}', stderr=r'badcc: No such file')


def check_kept_files_after_a_failure(cwd):
    """They are what one looks at then."""
    write(cwd, 'a.c', ADD + 'int gone(void);\n__dpa_rpc__ int f(void) { return gone(); }\n')
    expect(dpacc(cwd, 'a.c', '-o', 'x.a', '-keep-dir=k'), 1, stderr='undefined symbol: gone')
    equal((cwd / 'k/a.bf3.dpa.join.o').exists(), True, 'kept')
    equal((cwd / 'x.a').exists(), False, 'archive')


def check_without_root(cwd):
    if os.geteuid():
        raise Skip('not root: all of this runs without')
    write(cwd, 'a.c')
    (cwd / 'out').mkdir()
    os.chown(cwd / 'out', 65534, 65534)
    cwd.chmod(0o755)
    tree = cwd / 'tree'
    shutil.copytree(STAGE / 'lib/flexio', tree / 'lib/flexio')
    shutil.copytree(STAGE / 'include', tree / 'include')
    (tree / 'bin').mkdir()
    shutil.copy(BIN / 'dpacc', tree / 'bin')

    def nobody():
        os.setgid(65534)
        os.setuid(65534)
    expect(run(tree / 'bin/dpacc', 'a.c', '-o', 'out/x.a', cwd=cwd, preexec_fn=nobody))
    done = run(tree / 'bin/dpacc', 'a.c', '-o', 'x.a', cwd=cwd, preexec_fn=nobody)
    expect(done, 1, stderr=r'^dpacc: x\.a: cannot write the output: \.: Permission denied$')


main(collect(globals()))
