#!/usr/bin/env python3
"""Whole programs, built as users build them with the staged dpacc and pkg-config, linked with the real libflexio and run:
host languages and compilers, several apps and processes, apps in shared libraries, device libraries, argument forms.
"""
import os
import pathlib
import shlex
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / 'dpacc'), str(HERE.parent / 'peers')]
from kit import BIN, STAGE, Skip, collect, dpacc, equal, expect, main, run  # noqa: E402
import peers  # noqa: E402

SOURCES = HERE / 'build'
WARNINGS = ['-Wall', '-Wextra', '-Werror', '-O1']
PRELOAD = peers.sanitizer(STAGE)


def pkg_config(cwd, option, *names):
    env = {'PKG_CONFIG_PATH': str(STAGE / 'lib/pkgconfig')}
    return shlex.split(expect(run('pkg-config', option, *names, cwd=cwd, env=env)).stdout)


def device(cwd, app, *sources, out=None, options=(), host='gcc'):
    """An archive from device code; returns its name."""
    out = out or f'{app}.a'
    flags = shlex.join(pkg_config(cwd, '--cflags', 'libflexio'))
    expect(dpacc(cwd, *(SOURCES / name for name in sources), '-mcpu=nv-dpa-bf3', f'-app-name={app}', f'-hostcc={host}',
                 f'-hostcc-options={flags}', '-o', out, *options))
    return out


def compile_host(cwd, compiler, *args, out='program'):
    libraries = pkg_config(cwd, '--libs', 'libflexio', 'libibverbs')
    expect(run(compiler, *WARNINGS, f'-I{SOURCES}', *pkg_config(cwd, '--cflags', 'libflexio', 'libibverbs'), *args,
               *libraries, '-o', out, cwd=cwd))


def start(cwd, *program, **env):
    """Under verbatim run; with a sanitizer its run-time must be the first library."""
    before = ['env', f'LD_PRELOAD={PRELOAD}', 'ASAN_OPTIONS=detect_leaks=0'] if PRELOAD else []
    return run(BIN / 'verbatim', 'run', '--', *before, *(program or ['./program']), cwd=cwd, env=env)


def done(cwd, **env):
    said = expect(start(cwd, **env)).stdout
    equal(said.splitlines()[-1:], ['done'], 'said')
    return said


def find_compiler(name, cwd):
    try:
        run(name, '--version', cwd=cwd)
    except FileNotFoundError:
        raise Skip(f'no {name}') from None


def check_c_host_with_gcc_and_clang(cwd):
    """Either compiles the host's half of the archive, the program, or both."""
    for first in ('gcc', 'clang'):
        device(cwd, 'kinds_app', 'kinds.c', host=first)
        for second in ('gcc', 'clang'):
            compile_host(cwd, second, SOURCES / 'kinds_host.c', 'kinds_app.a')
            equal(done(cwd).count('/said -17\n'), 1, f'messages with {first} and {second}')


def check_both_tiers(cwd):
    device(cwd, 'kinds_app', 'kinds.c')
    compile_host(cwd, 'gcc', SOURCES / 'kinds_host.c', 'kinds_app.a')
    for tier in ('interp', 'jit'):
        done(cwd, VERBATIM_DPA_TIER=tier)
    done(cwd, VERBATIM_DPA_SEED='7')


def check_cxx_host_with_gxx(cwd):
    find_compiler('g++', cwd)
    device(cwd, 'kinds_app', 'kinds.c')
    compile_host(cwd, 'g++', '-std=c++17', SOURCES / 'objects.cc', 'kinds_app.a', '-pthread')
    done(cwd)
    compile_host(cwd, 'g++', '-x', 'c++', SOURCES / 'kinds_host.c', '-x', 'none', 'kinds_app.a')
    done(cwd)


def check_cxx_host_with_clangxx(cwd):
    find_compiler('clang++', cwd)
    device(cwd, 'kinds_app', 'kinds.c', host='clang')
    compile_host(cwd, 'clang++', '-std=c++17', SOURCES / 'objects.cc', 'kinds_app.a', '-pthread')
    done(cwd)


def counter(cwd, app, func, step, **options):
    flags = f'-devicecc-options=-DFUNC={func} -DSTEP={step}'
    return device(cwd, app, 'counter.c', options=[flags, *options.pop('more', [])], **options)


def check_two_apps_in_one_program(cwd):
    counter(cwd, 'ones_app', 'ones', 1)
    counter(cwd, 'tens_app', 'tens', 10)
    compile_host(cwd, 'gcc', SOURCES / 'two_apps.c', 'ones_app.a', 'tens_app.a')
    done(cwd)


def check_two_processes_of_one_app(cwd):
    counter(cwd, 'ones_app', 'ones', 1)
    compile_host(cwd, 'gcc', SOURCES / 'two_processes.c', 'ones_app.a', '-pthread')
    done(cwd)


def libraries(cwd, app='library_app', more=()):
    """libones.so and libtens.so: the same function name in each, of different content."""
    for name, step in (('ones', 1), ('tens', 10)):
        this = app.format(name)
        counter(cwd, this, 'work', step, out=f'{name}.a', more=more)
        compile_host(cwd, 'gcc', '-shared', '-fPIC', '-fvisibility=hidden', f'-DNAME=count_{name}', f'-DAPP={this}',
                     SOURCES / 'library.c', f'{name}.a', out=f'lib{name}.so')


def check_apps_in_shared_libraries(cwd):
    libraries(cwd, '{}_app')
    compile_host(cwd, 'gcc', SOURCES / 'linked.c', '-L.', '-lones', '-ltens', '-Wl,-rpath,$ORIGIN')
    done(cwd)


def check_apps_of_one_name_in_shared_libraries(cwd):
    """Their symbols must be hidden from each other, as with any two libraries."""
    libraries(cwd, more=['-hostcc-options=-fvisibility=hidden'])
    compile_host(cwd, 'gcc', SOURCES / 'linked.c', '-L.', '-lones', '-ltens', '-Wl,-rpath,$ORIGIN')
    done(cwd)


def check_apps_in_loaded_libraries(cwd):
    libraries(cwd)
    expect(run('gcc', *WARNINGS, f'-I{SOURCES}', *pkg_config(cwd, '--cflags', 'libflexio', 'libibverbs'),
               SOURCES / 'loaded.c', '-o', 'program', *pkg_config(cwd, '--libs', 'libibverbs'), '-ldl', cwd=cwd))
    done(cwd)


def check_device_libraries(cwd):
    """Of -gen-libs: its host half linked too, or not."""
    expect(dpacc(cwd, SOURCES / 'shelf.c', '-gen-libs', '-o', 'libshelf'))
    device(cwd, 'reader_app', 'reader.c', options=['-device-libs=-L. -lshelf_device'])
    for archives in (['reader_app.a'], ['reader_app.a', 'libshelf_host.a']):
        compile_host(cwd, 'gcc', SOURCES / 'reader_host.c', *archives)
        done(cwd)


def check_objects_and_several_sources(cwd):
    device(cwd, 'reader_app', 'reader.c', 'shelf.c')
    compile_host(cwd, 'gcc', SOURCES / 'reader_host.c', 'reader_app.a')
    done(cwd)
    expect(dpacc(cwd, '-c', SOURCES / 'shelf.c', '-o', 'shelf.dpa.o'))
    device(cwd, 'reader_app', 'reader.c', options=['shelf.dpa.o', '-flto'])
    compile_host(cwd, 'gcc', SOURCES / 'reader_host.c', 'reader_app.a')
    done(cwd)


def check_argument_forms(cwd):
    """Device code in either form, without a flag and with one; the host's older forms with either."""
    for form, version in (('new', '0x19010000'), ('old', '0x18070000')):
        for options in ([], [f'-devicecc-options=-DFLEXIO_DEV_VER_USED={version}']):
            device(cwd, 'form_app', f'form_{form}.c', options=options)
            compile_host(cwd, 'gcc', SOURCES / 'form_host.c', 'form_app.a')
            done(cwd)
        compile_host(cwd, 'gcc', '-DOLD', SOURCES / 'form_host.c', 'form_app.a')
        done(cwd)


def check_several_targets(cwd):
    counter(cwd, 'ones_app', 'ones', 1, more=['-mcpu=nv-dpa-cx7,nv-dpa-bf3'])
    compile_host(cwd, 'gcc', SOURCES / 'models.c', 'ones_app.a')
    done(cwd)


def check_optimization_levels(cwd):
    for level in ('-O0', '-O3 -g', '-Os'):
        device(cwd, 'kinds_app', 'kinds.c', options=[
            f'-devicecc-options={level} -Wall -Wextra -Werror -DFLEXIO_DEV_ALLOW_EXPERIMENTAL_API'])
        compile_host(cwd, 'gcc', SOURCES / 'kinds_host.c', 'kinds_app.a')
        done(cwd)


def check_what_is_left_at_exit_is_no_error(cwd):
    """The archive's destructor finds the app in use, and says nothing of it; a program that asks for it is told."""
    counter(cwd, 'ones_app', 'ones', 1)
    (cwd / 'host.c').write_text('''#include <libflexio/flexio.h>
extern struct flexio_app *ones_app;
int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct flexio_process *process;

	(void)argv;
	if (flexio_process_create(ibv_open_device(list[0]), ones_app, NULL, &process))
		return 1;
	return argc > 1 && flexio_app_destroy(ones_app) != FLEXIO_STATUS_FAILED;
}
''')
    compile_host(cwd, 'gcc', 'host.c', 'ones_app.a')
    for arguments, wanted in (([], []), (['ask'], ['flexio_app_destroy'])):
        said = expect(start(cwd, './program', *arguments)).stderr.splitlines()
        equal([line.split(' ')[0] for line in said if 'flexio' in line], wanted, f'said with {arguments}')


def check_experimental_functions_with_werror(cwd):
    """They warn where they are not allowed, and no -Werror makes that an error: host and device, with and without LTO."""
    source = 'uint32_t use(struct flexio_cq *cq)\n{\n\treturn flexio_cq_get_cq_num(cq);\n}\n'
    main = 'int main(void)\n{\n\treturn use(NULL) != UINT32_MAX;\n}\n'
    (cwd / 'experiment.c').write_text(f'#include <libflexio/flexio.h>\nuint32_t use(struct flexio_cq *cq);\n{source}{main}')
    libraries = pkg_config(cwd, '--libs', 'libflexio', 'libibverbs')
    flags = [f for f in pkg_config(cwd, '--cflags', 'libflexio', 'libibverbs') if not f.startswith('-D')]
    for compiler in (['gcc'], ['gcc', '-flto'], ['clang'], ['g++', '-x', 'c++'], ['clang++', '-x', 'c++']):
        find_compiler(compiler[0], cwd)
        built = expect(run(*compiler, *WARNINGS, *flags, 'experiment.c', '-x', 'none', *libraries, '-o', 'program', cwd=cwd))
        equal('warning' in built.stderr and 'experimental' in built.stderr, True, f'{compiler}: {built.stderr}')
        expect(start(cwd))
        allowed = expect(run(*compiler, *WARNINGS, *flags, '-DFLEXIO_ALLOW_EXPERIMENTAL_API', '-c', 'experiment.c', cwd=cwd))
        equal(allowed.stderr, '', f'{compiler}, allowed')
    (cwd / 'device.c').write_text('#include <libflexio-dev/flexio_dev.h>\n#include <libflexio-dev/flexio_dev_err.h>\n'
                                  '__dpa_rpc__ uint64_t who(uint64_t x)\n{\n'
                                  '\tflexio_dev_print("%d", (int)x);\n\treturn x ? x : flexio_dev_get_errno(NULL);\n}\n')
    for options in ([], ['-flto']):
        device(cwd, 'experiment_app', cwd / 'device.c', options=['-devicecc-options=-Wall -Wextra -Werror', *options])


if __name__ == '__main__':
    os.environ.pop('VERBATIM_DPA_TIER', None)
    main(collect(globals()))
