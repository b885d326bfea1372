#!/usr/bin/env python3
"""What dpacc leaves: archives, objects, libraries, kept files; and that programs of every kind link them."""
import os
import re
import stat
import subprocess
import time

from host import HEAD, MAIN, SAID, build, said_by
from kit import ADD, BIN, HERE, Failure, Skip, collect, dpacc, equal, expect, files, main, run, symbols, write

APP = ('-o', 'app.a', '-app-name=app')


def check_archive(cwd):
    write(cwd, 'dev.c')
    expect(dpacc(cwd, 'dev.c', *APP))
    equal(files(cwd), ['app.a', 'dev.c'], 'files')
    equal(expect(run('ar', 't', 'app.a', cwd=cwd)).stdout, 'hostStubs.o\n', 'members')
    names = symbols('app.a', cwd)
    equal((names.get('app'), names.get('add')), ('B', 'T'), 'symbols')
    equal({name for name, letter in names.items() if letter.isupper()}, {'app', 'add'}, 'global symbols')
    # the device program is read-only data of the host
    expect(run('readelf', '-SW', 'app.a', cwd=cwd), 0, stdout=r'\.rodata\.dpa_image\s+PROGBITS .* A ')
    equal(said_by(cwd, 'app.a'), SAID, 'said')


def check_default_names(cwd):
    write(cwd, 'dev.c')
    expect(dpacc(cwd, 'dev.c', '-o', 'x.a'))
    equal(files(cwd), ['dev.c', 'x.a'], 'files')
    equal(symbols('x.a', cwd).get('__dpa_a_out'), 'B', 'application')
    expect(dpacc(cwd, '-c', 'dev.c'))
    equal(files(cwd), ['dev.c', 'dev.dpa.o', 'x.a'], 'files')


def check_overwrites_whole_files(cwd):
    write(cwd, 'dev.c')
    write(cwd, 'app.a', 'old')
    (cwd / 'app.a').chmod(0o600)
    expect(dpacc(cwd, 'dev.c', *APP))
    expect(dpacc(cwd, 'dev.c', *APP))
    equal(said_by(cwd, 'app.a'), SAID, 'said')


def check_outputs_that_are_no_ordinary_files(cwd):
    """They are written to, never replaced: -o /dev/null is how scripts try a compiler."""
    write(cwd, 'dev.c')
    os.mkfifo(cwd / 'pipe')
    with open(cwd / 'got', 'wb') as got, subprocess.Popen(['cat', cwd / 'pipe'], stdout=got) as reader:
        done = dpacc(cwd, 'dev.c', '-o', 'pipe', '-app-name=app')
        if not stat.S_ISFIFO(os.stat(cwd / 'pipe').st_mode):
            reader.kill()
    expect(done)
    got = (cwd / 'got').read_bytes()
    equal(stat.S_ISFIFO(os.stat(cwd / 'pipe').st_mode), True, 'still a pipe')
    expect(dpacc(cwd, 'dev.c', *APP))
    equal((cwd / 'app.a').read_bytes() == got, True, 'the same bytes')
    # a link is followed
    write(cwd, 'place/real.a', 'old')
    (cwd / 'link.a').symlink_to('place/real.a')
    expect(dpacc(cwd, 'dev.c', '-o', 'link.a', '-app-name=app'))
    equal((cwd / 'link.a').is_symlink(), True, 'still a link')
    equal((cwd / 'place/real.a').read_bytes() == got, True, 'what it leads to')
    # as long as names may be
    name = 'n' * 253 + '.a'
    expect(dpacc(cwd, 'dev.c', '-o', name, '-app-name=app'))
    equal(files(cwd), sorted(['app.a', 'dev.c', 'got', 'link.a', name, 'place/real.a']), 'files')


def check_same_input_same_output(cwd):
    write(cwd, 'dev.c')
    expect(dpacc(cwd, 'dev.c', *APP, '-devicecc-options=-g', '-hostcc-options=-g'))
    first = (cwd / 'app.a').read_bytes()
    expect(dpacc(cwd, 'dev.c', *APP, '-devicecc-options=-g', '-hostcc-options=-g'))
    equal((cwd / 'app.a').read_bytes() == first, True, 'equal bytes')


def check_several_sources_and_objects(cwd):
    write(cwd, 'add.c')
    write(cwd, 'x/part.c', 'int helper(int a) { return a + 1; }')
    write(cwd, 'y/part.c', 'int helper(int); __dpa_rpc__ int more(int a) { return helper(a); }')
    functions = ['add', 'more']
    expect(dpacc(cwd, 'add.c', 'x/part.c', 'y/part.c', *APP))
    equal(re.findall(r'^function app (\S+)', said_by(cwd, 'app.a'), re.M), functions, 'from sources')
    # -c makes one object for each, in the current folder
    expect(dpacc(cwd, '-c', 'add.c'))
    expect(dpacc(cwd, '-c', 'x/part.c', '-o', 'x/part.o'))
    expect(dpacc(cwd, '-c', 'y/part.c', '-o', 'y/part.dpa.o'))
    expect(dpacc(cwd, 'add.dpa.o', 'x/part.o', 'y/part.dpa.o', '-o', 'two.a', '-app-name=app'))
    equal(re.findall(r'^function app (\S+)', said_by(cwd, 'two.a'), re.M), functions, 'from objects')
    expect(dpacc(cwd, 'y/part.c', 'x/part.o', 'add.dpa.o', '-o', 'three.a', '-app-name=app'))
    equal(sorted(re.findall(r'^function app (\S+)', said_by(cwd, 'three.a'), re.M)), functions, 'from both')
    # the host's part alone has the stub, and the device code goes no further
    equal(symbols('add.dpa.o', cwd).get('add'), 'T', 'stub')
    expect(run('readelf', '-SW', 'add.dpa.o', cwd=cwd), 0, stdout=r' \.dpa_obj ')
    equal('.dpa_obj' in run('readelf', '-SW', 'two.a', cwd=cwd).stdout, False, '.dpa_obj in the archive')


def check_compile_several(cwd):
    write(cwd, 'a.c', 'int a;')
    write(cwd, 'b.c', 'int b;')
    expect(dpacc(cwd, '-c', 'a.c', 'b.c'))
    equal(files(cwd), ['a.c', 'a.dpa.o', 'b.c', 'b.dpa.o'], 'files')


def check_libraries(cwd):
    write(cwd, 'lib.c', 'int helper(int a) { return a + 1; }\n__dpa_rpc__ int in_library(int a) { return a; }\n'
          'static __dpa_global__ void handler(unsigned long a) { }')
    write(cwd, 'lib2.c', 'int second(void) { return 2; }')
    write(cwd, 'dev.c', ADD + 'int helper(int); int second(void);\n__dpa_rpc__ int uses(int a) { return helper(a) + second(); }')
    (cwd / 'out').mkdir()
    expect(dpacc(cwd, 'lib.c', 'lib2.c', '-gen-libs', '-o', 'out/libx'))
    equal([name for name in files(cwd) if 'out/' in name], ['out/libx_device.a', 'out/libx_host.a'], 'libraries')
    expect(run(BIN / 'dpa-nm', 'out/libx_device.a', cwd=cwd), 0, stdout=r' T helper$')
    functions = ['add', 'uses', 'in_library', '__dpa_static_handler']
    for args in (['-device-libs=-Lout -lx_device'], ['--device-libs', '-Lout,-lx'], ['-Lout', '-lx'],
                 ['-device-libs=-Lout', '-devicelink-options=-lx'], ['-device-libs=out/libx_device.a'],
                 ['-device-libs=-L out -l x']):
        expect(dpacc(cwd, 'dev.c', *APP, *args))
    for archives in (['app.a'], ['app.a', 'out/libx_host.a'], ['out/libx_host.a', 'app.a']):
        said = said_by(cwd, *archives)
        equal(sorted(re.findall(r'^function app (\S+)', said, re.M)), sorted(functions), 'functions')
    source = HEAD.replace('add;', 'add, in_library, handler;') + \
        'int main(void) { recorder_call(app, in_library, -1); recorder_call(app, handler, 5ul); return 0; }'
    expect(run(build(cwd, 'app.a', 'out/libx_host.a', source=source), cwd=cwd), 0, stdout=r'^call f{16}\ncall 5$')
    # renamed, as a build script of the vendor's does
    (cwd / 'out/libx_device.a').rename(cwd / 'out/libz.a')
    expect(dpacc(cwd, 'dev.c', *APP, '-device-libs=-Lout', '-devicelink-options=-lz'))
    expect(dpacc(cwd, 'dev.c', *APP, '-device-libs=-Lout -lnowhere'), 1, stderr='device library nowhere .* was not found')
    # what is linked anyway may be named
    expect(dpacc(cwd, 'dev.c', *APP, '-device-libs=-Lout -lz -lflexio_dev -lflexio-libc -lc -lm'))


def check_objects_become_libraries(cwd):
    write(cwd, 'lib.c', '__dpa_rpc__ int in_library(int a) { return a; }')
    write(cwd, 'dev.c')
    expect(dpacc(cwd, '-c', 'lib.c'))
    expect(dpacc(cwd, 'lib.dpa.o', '-gen-libs', '-o', 'libx'))
    expect(dpacc(cwd, 'dev.c', *APP, '-lx'))
    equal(re.findall(r'^function app (\S+)', said_by(cwd, 'app.a'), re.M), ['add', 'in_library'], 'functions')


def check_several_targets(cwd):
    """One program for each, each registered for its hardware model; the variable is that of BlueField-3."""
    write(cwd, 'dev.c', ADD + '''
#if __NV_DPA == __NV_DPA_CX7
__dpa_rpc__ int only_cx7(short a) { return a; }
#endif
''')
    cpus = '-mcpu=nv-dpa-cx7,nv-dpa-bf3,nv-dpa-cx8,nv-dpa-cx9'
    wanted = ['create app elf', 'model app 1', 'function app add __dpa_unpack_add 16',
              'function app only_cx7 __dpa_unpack_only_cx7 8']
    for model in (2, 3, 4):
        wanted += ['create app elf', f'model app {model}', 'function app add __dpa_unpack_add 16']
    wanted += ['main app', 'call 1 2'] + ['destroy app'] * 4
    expect(dpacc(cwd, 'dev.c', *APP, cpus))
    equal(said_by(cwd, 'app.a').splitlines(), wanted, 'from a source')
    expect(dpacc(cwd, '-c', 'dev.c', cpus))
    expect(dpacc(cwd, 'dev.dpa.o', *APP, cpus))
    equal(said_by(cwd, 'app.a').splitlines(), wanted, 'from an object')
    expect(dpacc(cwd, 'dev.c', '-gen-libs', '-o', 'libx', cpus))
    write(cwd, 'empty.c', 'int x;')
    expect(dpacc(cwd, 'empty.c', *APP, cpus, '-lx'))
    equal(said_by(cwd, 'app.a').splitlines(), wanted, 'from a library')
    # fewer of them
    expect(dpacc(cwd, 'dev.dpa.o', *APP, '-mcpu=nv-dpa-cx9'))
    equal(said_by(cwd, 'app.a').splitlines()[1], 'model app 4', 'one of an object')
    expect(dpacc(cwd, 'empty.c', *APP, '-lx', '-mcpu', 'nv-dpa-cx7'))
    equal(said_by(cwd, 'app.a').splitlines()[1:4:2], ['model app 1', wanted[3]], 'one of a library')
    # more than there are
    expect(dpacc(cwd, '-c', 'dev.c'))
    expect(dpacc(cwd, 'dev.dpa.o', '-o', 'no.a', cpus), 1, stderr=r'dev\.dpa\.o: no code for nv-dpa-cx7')
    equal((cwd / 'no.a').exists(), False, 'archive')


def check_link_time_optimization(cwd):
    write(cwd, 'a.c', ADD + 'int hint(int);\n__dpa_rpc__ int calls(int a) { return hint(a) + 1; }')
    write(cwd, 'b.c', 'int hint(int a) { return a * 2; }\nstatic __dpa_rpc__ int hidden(int a) { return a; }')
    expect(dpacc(cwd, 'a.c', 'b.c', *APP, '-flto'))
    functions = ['__dpa_static_hidden', 'add', 'calls']
    equal(sorted(re.findall(r'^function app (\S+)', said_by(cwd, 'app.a'), re.M)), functions, 'functions')
    write(cwd, 'b.c', 'int hint(int a) { return a * 2; }')
    expect(dpacc(cwd, '-c', 'a.c', 'b.c', '-flto'))
    expect(dpacc(cwd, 'a.dpa.o', 'b.dpa.o', *APP, '-flto', '-keep-dir=kept'))
    equal(re.findall(r'^function app (\S+)', said_by(cwd, 'app.a'), re.M), functions[1:], 'functions of objects')
    # it did happen: the call across files is gone
    code = expect(run(BIN / 'dpa-objdump', '-d', '--disassemble-symbols=calls', 'kept/device_exec.bf3', cwd=cwd)).stdout
    if '<calls>:' not in code or re.search(r'\b(jal|call|jalr|auipc)\b', code):
        raise Failure(code)
    expect(dpacc(cwd, 'b.c', '-flto', '-gen-libs', '-o', 'libx'))
    expect(dpacc(cwd, 'a.c', *APP, '--flto', '-lx'))


def check_kept_files(cwd):
    write(cwd, 'dev.c')
    expect(dpacc(cwd, 'dev.c', *APP, '-keep-dir=one/two'))
    kept = [name[len('one/two/'):] for name in files(cwd) if name.startswith('one/two/')]
    equal(kept, ['app.archive.a', 'app.meta.c', 'app.meta.o', 'dev.bf3.dpa.device.c', 'dev.bf3.dpa.device.o',
                 'dev.bf3.dpa.join.o', 'dev.bf3.o', 'dev.dpa.host.c', 'dev.dpa.o', 'device_exec.bf3', 'hostStubs.o'], 'kept')
    expect(run('readelf', '-h', 'one/two/device_exec.bf3', cwd=cwd), 0, stdout=r'Machine:\s+RISC-V')
    # again, over the old ones
    expect(dpacc(cwd, 'dev.c', *APP, '-keep-dir', 'one/two'))
    expect(dpacc(cwd, '-c', 'dev.c', '-keep'))
    expect(dpacc(cwd, '-c', 'dev.c', '-keep'))
    equal(set(files(cwd)) >= {'dev.bf3.o', 'dev.dpa.o', 'dev.fatobj.a', 'dev.dpa.host.c'}, True, 'kept here')
    expect(dpacc(cwd, 'dev.dpa.o', *APP, '--keep'))
    equal(said_by(cwd, 'app.a'), SAID, 'said')


def check_kept_files_of_two_at_once(cwd):
    """make -j with -keep: the names of some files do not depend on the application, so one waits for the other."""
    slow = write(cwd, 'slowcc', '#!/bin/sh\n: >"$1-started"\nshift\nsleep 1\nexec gcc "$@"\n')
    slow.chmod(0o755)
    write(cwd, 'add.c')
    write(cwd, 'sub.c', '__dpa_rpc__ int sub(int a, int b) { return a - b; }\n')

    def command(name):
        return [BIN / 'dpacc', f'{name}.c', '-o', f'{name}.a', f'-app-name=app_{name}', '-keep',
                f'-hostcc={slow} {name}']

    alone = {}
    for name in ('add', 'sub'):
        expect(run(*command(name), cwd=cwd))
        alone[name] = (cwd / f'{name}.a').read_bytes()
        (cwd / f'{name}-started').unlink()
    with subprocess.Popen(command('add'), cwd=cwd) as first:
        while not (cwd / 'add-started').exists() and first.poll() is None:
            time.sleep(0.01)
        expect(run(*command('sub'), cwd=cwd))
    equal(first.returncode, 0, 'the first')
    for name, data in alone.items():
        equal((cwd / f'{name}.a').read_bytes() == data, True, f'{name} is what it was alone')


def check_archive_from_kept_files(cwd):
    """As scripts for newer SDKs do it: they compile the kept files themselves, in their folder."""
    write(cwd, 'dev.c')
    write(cwd, 'more.c', 'static __dpa_rpc__ int more(int a) { return a; }')
    expect(dpacc(cwd, 'dev.c', 'more.c', '-o', 'unused.a', '-app-name=app', '--keep-dir=kept', '-flto'))
    script = '''set -e
for name in dev more; do
	gcc -c $name.dpa.host.c -I kept -D__DPA_OBJ_STUB_FILE__="\\"$name.stub.inc\\"" -o $name.dpa.o \\
		-Wno-attributes -Wno-pedantic -Wno-unused-parameter -Wno-return-type -fPIC
	objcopy --remove-section=.dpa_obj $name.dpa.o
done
gcc -r app.meta.c dev.dpa.o more.dpa.o -D__DPA_EXEC_STUB_FILE__="\\"device_exec.stub.inc\\"" -o app_host_stubs.o \\
	-Wno-attributes -Wno-pedantic -Wno-implicit-function-declaration -fPIC -nostdlib
ar cr app.a app_host_stubs.o
'''
    expect(run('sh', '-c', script, cwd=cwd / 'kept'))
    said = said_by(cwd, 'kept/app.a')
    equal(sorted(re.findall(r'^function app (\S+)', said, re.M)), ['__dpa_static_more', 'add'], 'functions')
    # and a stub object taken out of an archive
    expect(run('ar', 'x', 'unused.a', cwd=cwd))
    equal(said_by(cwd, 'hostStubs.o'), said, 'said')


def check_shared_library_output(cwd):
    write(cwd, 'dev.c')
    expect(dpacc(cwd, '-c', 'dev.c', '-flto'))
    for compiler in ('gcc', 'clang'):
        expect(dpacc(cwd, 'dev.dpa.o', '-o', 'libapp.so', '-app-name=app', '-shared', f'-hostcc={compiler}', '-device-libs= ',
                     '-hostcc-options=-Wall -Werror -fPIC'))
        build(cwd, '-L.', '-lapp', options=['-Wl,-rpath,.', '-rdynamic'])
        said = expect(run('./host', cwd=cwd)).stdout
        equal(said, SAID, 'said')
    equal(files(cwd), ['dev.c', 'dev.dpa.o', 'host', 'host.c', 'libapp.so', 'recorder.o'], 'files')


def check_generated_code_is_clean(cwd):
    """By itself, not only because dpacc turns warnings off."""
    write(cwd, 'dev.c', ADD + 'static __dpa_rpc__ float f(float a, double b, _Bool c, char d) { return a; }\n'
          '__dpa_global__ void g(void) { }')
    write(cwd, 'none.c', 'int nothing;')
    expect(dpacc(cwd, 'dev.c', 'none.c', *APP, '-keep-dir=k', '-mcpu=nv-dpa-bf3,nv-dpa-cx7'))
    warnings = ['-Wall', '-Wextra', '-Werror', '-Wstrict-prototypes', '-Wmissing-prototypes', '-Wno-unused-parameter',
                '-Wwrite-strings', '-Wshadow', '-Wcast-qual']
    for compiler in ('gcc', 'clang'):
        for standard in ('c99', 'c11', 'gnu17'):
            for name in ('k/app.meta.c', 'k/dev.dpa.host.c', 'k/none.dpa.host.c'):
                expect(run(compiler, *warnings, f'-std={standard}', '-O2', '-c', name, '-o', 'x.o', cwd=cwd))


def check_host_compilers(cwd):
    write(cwd, 'dev.c')
    for args in (['-hostcc=gcc'], ['-hostcc=clang'], ['-hostcc=cc'], ['--hostcc', '/usr/bin/gcc'], ['-hostcc=g++'],
                 ['-hostcc=gcc -DX="1 2"'], ['-hostcc', 'env A=b  gcc'],
                 ['-hostcc=clang++']):
        done = dpacc(cwd, 'dev.c', *APP, *args)
        if done.returncode and '++' in args[0] and 'not found' in done.stderr:
            continue
        expect(done)
        equal(said_by(cwd, 'app.a'), SAID, f'said with {args}')


def check_host_options(cwd):
    write(cwd, 'dev.c')
    for options in ('-Wno-deprecated-declarations', '-Wall -Wextra -Werror -pedantic', '-std=c99', '-std=c99,-O0', '-O3',
                    '-fPIC', '-g -fvisibility=hidden', '-flto -O2', '-fsanitize=address', '-std=gnu89', '-fno-pic',
                    '-Werror,-Weverything', '-ffunction-sections -fdata-sections'):
        compiler = 'clang' if 'everything' in options else 'gcc'
        expect(dpacc(cwd, 'dev.c', *APP, f'-hostcc={compiler}', f'-hostcc-options={options}'))
        link = ['-fsanitize=address'] if 'sanitize' in options else []
        equal(said_by(cwd, 'app.a', options=link), SAID, f'said with {options}')
    expect(dpacc(cwd, 'dev.c', '-o', 'no.a', '-hostcc-options=--no-such-option'), 1, stderr='no-such-option')
    equal((cwd / 'no.a').exists(), False, 'archive')


def check_kinds_of_programs(cwd):
    write(cwd, 'dev.c')
    expect(dpacc(cwd, 'dev.c', *APP))
    for options in (['-pie', '-fPIE'], ['-no-pie', '-fno-pie'], ['-Wl,--gc-sections', '-ffunction-sections'],
                    ['-Wl,-z,now', '-Wl,-z,text'], ['-fuse-ld=lld'], ['-O2', '-flto'], ['-s']):
        equal(said_by(cwd, 'app.a', options=options), SAID, f'said with {options}')
    equal(said_by(cwd, 'app.a', compiler='clang'), SAID, 'said with clang')


def check_cxx_program(cwd):
    if run('g++', '--version', cwd=cwd, env={}).returncode:
        raise Skip('no g++')
    write(cwd, 'dev.c')
    expect(dpacc(cwd, 'dev.c', *APP))
    source = HEAD + '''
struct early { early() { printf("object %s\\n", app ? "app" : "null"); fflush(stdout); } ~early() { printf("gone %s\\n", app ? "app" : "null"); fflush(stdout); } };
static early object;
int main() { printf("main\\n"); recorder_call(app, add, (uint64_t)1, (uint64_t)2); return 0; }
'''
    wanted = SAID.replace('main app\n', 'object app\nmain\n').replace('destroy', 'gone app\ndestroy')
    equal(said_by(cwd, 'app.a', source=source, compiler='g++', name='host.cc'), wanted, 'said')


def check_constructors_of_the_program(cwd):
    """Those without priority, and those of the earliest libraries may ask, see the application."""
    write(cwd, 'dev.c')
    expect(dpacc(cwd, 'dev.c', *APP))
    source = HEAD + '''
__attribute__((constructor)) static void begin(void) { printf("begin %d\\n", app != NULL); }
__attribute__((constructor(102))) static void sooner(void) { printf("sooner %d\\n", app != NULL); }
__attribute__((destructor)) static void end(void) { printf("end %d\\n", app != NULL); }
__attribute__((destructor(102))) static void later(void) { printf("later %d\\n", app != NULL); fflush(stdout); }
int main(void) { recorder_call(app, add, (uint64_t)1, (uint64_t)2); return 0; }
'''
    wanted = SAID.replace('main app\n', 'sooner 1\nbegin 1\n').replace('destroy', 'end 1\nlater 1\ndestroy')
    equal(said_by(cwd, 'app.a', source=source), wanted, 'said')


def check_shared_libraries(cwd):
    """Two libraries, each with an application of its own and a function of the same name."""
    write(cwd, 'one.c', '#include <stdint.h>\n__dpa_rpc__ int work(uint64_t a, int b) { return b; }')
    write(cwd, 'two.c', '__dpa_rpc__ int work(signed char a) { return a; }')
    expect(run('gcc', '-fPIC', '-shared', '-x', 'c', HERE / 'recorder.c', '-o', 'librec.so', cwd=cwd))
    for name in ('one', 'two'):
        expect(dpacc(cwd, f'{name}.c', '-o', f'{name}.a', f'-app-name=app_{name}'))
        write(cwd, f'lib{name}.c', HEAD.replace('*app;', f'*app_{name};').replace('add;', 'work;')
              + f'void {name}(void);\nvoid {name}(void) {{ recorder_call(app_{name}, work, 0x1ffl, 0x2ff); }}')
        expect(run('gcc', '-fPIC', '-shared', f'lib{name}.c', f'{name}.a', '-L.', '-lrec', '-o', f'lib{name}.so', cwd=cwd))
    write(cwd, 'main.c', 'void one(void); void two(void); int main(void) { one(); two(); return 0; }')
    expect(run('gcc', 'main.c', '-L.', '-lone', '-ltwo', '-lrec', '-Wl,-rpath,.', '-o', 'main', cwd=cwd))
    said = expect(run(cwd / 'main', cwd=cwd, env={'LD_LIBRARY_PATH': '.'})).stdout
    equal(re.findall('^call .*$', said, re.M), ['call 1ff 2ff', 'call ffffffffffffffff'], 'calls')
    # in one program the linker says which name is there twice
    write(cwd, 'both.c', 'extern void *app_one, *app_two; int main(void) { return !app_one || !app_two; }')
    done = run('gcc', 'both.c', 'one.a', 'two.a', '-L.', '-lrec', '-o', 'both', cwd=cwd)
    expect(done, 1, stderr=r"multiple definition of `work'")


def check_two_applications(cwd):
    write(cwd, 'one.c')
    write(cwd, 'two.c', ADD.replace('add', 'sum'))
    expect(dpacc(cwd, 'one.c', '-o', 'one.a', '-app-name=app'))
    expect(dpacc(cwd, 'two.c', '-o', 'two.a', '-app-name=second'))
    source = MAIN.replace('extern flexio_func_t add;', 'extern flexio_func_t add, sum;\nextern struct flexio_app *second;') \
        .replace('return 0;', 'recorder_call(second, sum, 3ul, 4ul); recorder_call(second, add, 3ul, 4ul); return 0;')
    said = said_by(cwd, 'one.a', 'two.a', source=source)
    equal(re.findall('^call .*$', said, re.M), ['call 1 2', 'call 3 4', 'call of a stranger'], 'calls')


def check_application_that_fails(cwd):
    write(cwd, 'dev.c')
    expect(dpacc(cwd, 'dev.c', *APP))
    program = build(cwd, 'app.a')
    for step, what in (('create', 'flexio_app_create'), ('model', 'flexio_app_hw_model_register'), ('function', 'add')):
        done = expect(run(program, cwd=cwd, env={'RECORDER_FAIL': step}), 0, stdout='^main null$',
                      stderr=rf"^device application 'app' \(nv-dpa-bf3\): {what} failed with status 22")
        equal(done.stdout.count('create'), done.stdout.count('destroy'), 'created and destroyed')


main(collect(globals()))
