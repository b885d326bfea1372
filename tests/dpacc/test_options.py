#!/usr/bin/env python3
"""The command line of dpacc: every option in every spelling, lists, option files, what is refused."""
import re

from kit import ADD, BIN, Failure, collect, dpacc, equal, expect, files, main, run, write

# option, value, what its commands must show in a dry run
VALUES = {
    'app-name': ('some_app', r'some_app\.meta\.c'),
    'mcpu': ('nv-dpa-cx7', r'-D__NV_DPA=7 .*\.cx7\.o'),
    'hostcc': ('clang', r'/clang .*-x c '),
    'hostcc-options': ('-DHOST=1', r'-DHOST=1 .*-x c '),
    'devicecc-options': ('-DDEVICE=1', r'-DDEVICE=1 .*-c a\.c'),
    'devicelink-options': ('--gc-sections', r'ld\.lld .*--gc-sections'),
    'device-libs': ('-L/no/such/folder', r'ld\.lld .*-L/no/such/folder'),
    'common-include-path': ('inc', r'-Iinc .*-c a\.c'),
    'keep-dir': ('kept', r'kept/a\.bf3\.o'),
    'output-file': ('b.a', r'llvm-ar'),
    'dpa-proc-attr': ('blob', r'--add-section=\.dpa_attributes=blob \S*device_exec'),
    'define': ('X=1', r'-DX=1 .*-c a\.c'),
    'library-path': ('/nowhere', r'-L/nowhere'),
}
SWITCHES = {
    'flto': r'-flto .*-c a\.c',
    'keep': r'-o a\.bf3\.o',
    'dryrun': r'llvm-ar',
    'v': r'llvm-ar',
    'verbose': r'llvm-ar',
    'c': r'--add-section=\.dpa_obj',
    'compile': r'--add-section=\.dpa_obj',
    'shared': r'/gcc -shared ',
    'disable-asm-checks': r'llvm-ar',
    'disable-asm-checks-nowarn': r'llvm-ar',
}


def all_values(cwd, spell):
    """All options with a value at once in one spelling; each must have its effect."""
    write(cwd, 'a.c')
    write(cwd, 'blob', 'DPAATTR1x: y')
    args = []
    for name, (value, _) in VALUES.items():
        args += spell(name, value)
    done = expect(dpacc(cwd, '-dryrun', 'a.c', *args))
    for name, (_, pattern) in VALUES.items():
        if name not in ('mcpu', 'keep-dir', 'app-name') or name == 'keep-dir':
            pattern = pattern.replace(r'kept/a\.bf3', r'kept/a\.cx7')
        if not re.search(pattern, done.stderr, re.M):
            raise Failure(f'{spell(name, "VALUE")}: no {pattern!r} in\n{done.stderr}')
    equal(files(cwd), ['a.c', 'blob'], 'files after a dry run')


def check_one_dash_and_equals(cwd):
    all_values(cwd, lambda name, value: [f'-{name}={value}'])


def check_two_dashes_and_equals(cwd):
    all_values(cwd, lambda name, value: [f'--{name}={value}'])


def check_one_dash_and_space(cwd):
    all_values(cwd, lambda name, value: [f'-{name}', value])


def check_two_dashes_and_space(cwd):
    all_values(cwd, lambda name, value: [f'--{name}', value])


def check_switches_with_one_and_two_dashes(cwd):
    write(cwd, 'a.c')
    for name, pattern in SWITCHES.items():
        for dashes in ('-', '--'):
            expect(dpacc(cwd, '-dryrun', 'a.c', dashes + name), 0, stderr=pattern)
    equal(files(cwd), ['a.c'], 'files after dry runs')


def check_short_options(cwd):
    write(cwd, 'a.c')
    write(cwd, 'lib/libq.a', '!<arch>\n')
    done = expect(dpacc(cwd, '--dryrun', 'a.c', '-Iinc1', '-I', 'inc2', '-DA', '-D', 'B=2', '-Llib', '-L', 'lib2', '-lq',
                        '-l', 'q', '--lq', '-ob.a'))
    for word in ('-Iinc1', '-Iinc2', '-DA', '-DB=2', '-Llib', '-Llib2', 'lib/libq.a'):
        if f' {word} ' not in done.stderr:
            raise Failure(f'no {word} in\n{done.stderr}')
    equal(done.stderr.count(' lib/libq.a'), 3, 'libraries')
    expect(dpacc(cwd, '--dryrun', 'a.c', '-o=b.a'))
    expect(dpacc(cwd, '--dryrun', 'a.c', '--o', 'b.a'))


def check_gen_libs_with_one_and_two_dashes(cwd):
    write(cwd, 'a.c')
    for dashes in ('-', '--'):
        expect(dpacc(cwd, dashes + 'dryrun', 'a.c', dashes + 'gen-libs', '-o', 'libx'), 0,
               stderr=r'libx_device\.a [^\n]*\n[^\n]*libx_host\.a')


def check_lists_have_commas_and_spaces(cwd):
    write(cwd, 'a.c')
    for text in ('-DA,-DB,-DC', '-DA -DB -DC', '-DA,-DB -DC', ' -DA , -DB,, -DC, '):
        for option in ('devicecc-options', 'hostcc-options'):
            expect(dpacc(cwd, '-dryrun', 'a.c', f'-{option}={text}'), 0, stderr=r'-DA -DB -DC ')
    expect(dpacc(cwd, '-dryrun', 'a.c', '-devicecc-options=-DX="a b",-DY=\\"q\\"'), 0,
           stderr=r"'-DX=a b' '-DY=\"q\"'")
    # several add up, and commas of -Wl are its own
    done = expect(dpacc(cwd, '-dryrun', 'a.c', '-devicelink-options=-Wl,--defsym,x=1', '-devicelink-options=-Map=m'))
    expect(done, 0, stderr=r'ld\.lld .* --defsym x=1 -Map=m ')
    expect(dpacc(cwd, '-dryrun', 'a.c', '-devicecc-options=-DX="open'), 2, stderr='quote')
    # so are those of a macro's arguments
    expect(dpacc(cwd, '-dryrun', 'a.c', '-devicecc-options=-DA=V(24,7,(1,0)),-DB'), 0,
           stderr=r"'-DA=V\(24,7,\(1,0\)\)' -DB ")
    expect(dpacc(cwd, '-dryrun', 'a.c', '-devicecc-options=-DA=(,-DB'), 0, stderr=r"'-DA=\(' -DB ")
    # scripts pass what they have, which may be nothing
    expect(dpacc(cwd, '-dryrun', 'a.c', '--device-libs=', '--devicelink-options=', '-hostcc-options=',
                 '--devicecc-options='))


def check_mcpu_lists(cwd):
    write(cwd, 'a.c')
    for text in ('nv-dpa-bf3,nv-dpa-cx7,nv-dpa-cx8,nv-dpa-cx9', 'nv-dpa-bf3 nv-dpa-cx7 nv-dpa-cx8 nv-dpa-cx9',
                 'nv-dpa-bf3,nv-dpa-bf3,nv-dpa-cx7 nv-dpa-cx8,nv-dpa-cx9'):
        done = expect(dpacc(cwd, '-dryrun', 'a.c', '-mcpu=' + text))
        for arch in ('bf3', 'cx7', 'cx8', 'cx9'):
            equal(len(re.findall(rf'-o \S*/device_exec\.{arch}$', done.stderr, re.M)), 1, f'{text}: links for {arch}')
    expect(dpacc(cwd, 'a.c', '-mcpu=nv-dpa-bf4'), 2, stderr=r"unknown -mcpu 'nv-dpa-bf4'; there are nv-dpa-bf3, ")
    equal(files(cwd), ['a.c'], 'files')


def check_option_files(cwd):
    write(cwd, 'a.c')
    write(cwd, 'inner', '-DINNER')
    write(cwd, 'opts', "a.c -app-name=from_file\n -devicecc-options='-DP -DQ,-DR'\n-optf inner\n")
    write(cwd, 'more', '-DMORE')
    pattern = r'-DP -DQ -DR -DINNER [^\n]*a\.c(.|\n)*from_file\.meta\.c'
    for args in (['-optf', 'opts'], ['-optf=opts'], ['--options-file', 'opts'], ['--optf=opts'], ['@opts']):
        expect(dpacc(cwd, '-dryrun', *args), 0, stderr=pattern)
    expect(dpacc(cwd, '-dryrun', '-optf=opts,more'), 0, stderr=r'-DINNER -DMORE ')
    expect(dpacc(cwd, '-dryrun', '-optf', 'absent'), 2, stderr='absent: No such file')
    write(cwd, 'loop', '@loop')
    expect(dpacc(cwd, '-dryrun', '@loop'), 2, stderr='loop: option files name each other')


def check_version(cwd):
    for option in ('-V', '-version', '--version'):
        done = expect(dpacc(cwd, option), 0, stdout=r'version \d+\.\d+\.\d+$')
        lines = [line for line in done.stdout.splitlines() if 'version' in line]
        equal(len(lines), 1, 'lines with "version"')
        number = tuple(int(part) for part in re.sub('^.*version ', '', lines[0]).split('.'))
        if number < (1, 8, 0):
            raise Failure(f'version {number}')


def check_help(cwd):
    for option in ('-h', '-help', '--help', '-?'):
        done = expect(dpacc(cwd, option), 0, stdout='^Usage: dpacc ')
    for name in [*VALUES, *SWITCHES, 'gen-libs', 'options-file']:
        if len(name) > 1 and f'--{name}' not in done.stdout:
            raise Failure(f'--help does not name {name}')


def check_wrong_command_lines(cwd):
    write(cwd, 'a.c')
    write(cwd, 'b.c')
    wrong = [
        ([], 'no input file'),
        (['-hostcc=gcc'], 'no input file'),
        (['a.c', '-nonsense'], "unrecognized option '-nonsense'"),
        (['a.c', '--nonsense=1'], "unrecognized option '--nonsense=1'"),
        (['a.c', '-o'], 'requires an argument'),
        (['a.c', '-o', ''], '-o needs a name'),
        (['a.c', '-keep-dir', ''], '-keep-dir needs a name'),
        (['a.c', 'b.c', '-c', '-o', 'x.o'], '-o names one file'),
        (['a.c', '-c', '-gen-libs', '-o', 'x'], 'exclude each other'),
        (['a.c', '-gen-libs'], '-gen-libs needs -o'),
        (['a.c', '-gen-libs', '-dryrun'], '-gen-libs needs -o'),
        # what is missing, and what would be taken for it
        (['a.c'], '-o FILE is missing; so is -mcpu, which would be nv-dpa-bf3; so is -app-name, which would be __dpa_a_out'),
        (['a.c', '-mcpu=nv-dpa-bf3'], '-o FILE is missing; so is -app-name, which would be __dpa_a_out'),
        (['a.c', '-app-name=app'], '-o FILE is missing; so is -mcpu, which would be nv-dpa-bf3'),
        (['a.c', '-app-name=app', '-mcpu=nv-dpa-cx7', '-shared'], '-o FILE is missing'),
        # no abbreviations of -gen-libs, -flto and -shared
        (['a.c', '-o', 'x.a', '-g'], '-g: options of the device compiler go into -devicecc-options'),
        (['a.c', '-o', 'x.a', '-f'], '-f: options of the device compiler go into -devicecc-options'),
        (['a.c', '-o', 'x.a', '-s'], '-s: options of the device compiler go into -devicecc-options'),
        *((['a.c', '-o', 'x.a', word], f'{word}: options of the device compiler go into -devicecc-options')
          for word in ('-O2', '-Wall', '-std=c11', '-march=rv64gc', '-fno-common', '-g3', '-isystem', '-x', '-UX')),
        (['a.c', '-c', '-shared'], '-shared goes with neither'),
    ]
    for args, message in wrong:
        expect(dpacc(cwd, *args), 2, stderr=re.escape(message))
    equal(files(cwd), ['a.c', 'b.c'], 'files')


def check_application_names(cwd):
    write(cwd, 'a.c')
    for name in ('1st', 'a-b', 'a b', '', 'a.b', 'é', 'int', 'main', 'while'):
        expect(dpacc(cwd, 'a.c', f'-app-name={name}'), 2, stderr='is no C identifier')
    expect(dpacc(cwd, 'a.c', '-app-name', 'a' * 257), 2, stderr='longer than 256')
    expect(dpacc(cwd, '-dryrun', 'a.c', '-app-name', 'a' * 200))
    expect(dpacc(cwd, 'a.c', '-o', 'x.a', '-app-name=add'), 1, stderr=r"^a\.c:3: error: function 'add' .*same name; .* -app-name")
    for name in ('_', 'stdout', 'A1_'):
        expect(dpacc(cwd, '-dryrun', 'a.c', '-app-name', name), 0, stderr=rf'{name}\.meta\.c')


def check_dry_run_is_what_is_run(cwd):
    """The commands of -dryrun are those of -v, but for the name of the work folder."""
    write(cwd, 'a.c', ADD + 'static __dpa_rpc__ int hidden(void) { return 1; }')
    args = ['a.c', '-o', 'a.a', '-mcpu=nv-dpa-bf3,nv-dpa-cx8']
    dry = expect(dpacc(cwd, '-dryrun', *args)).stderr
    equal(files(cwd), ['a.c'], 'files')
    real = expect(dpacc(cwd, '-v', *args)).stderr
    equal(re.sub(r'dpacc-\w{6}', '', dry), re.sub(r'dpacc-\w{6}', '', real), 'commands')
    # with a folder to keep files in, they can be run by hand
    for line in expect(dpacc(cwd, '-dryrun', '-keep-dir=none', *args)).stderr.splitlines():
        if not line.startswith('/'):
            raise Failure(f'no command: {line}')
    equal((cwd / 'none').exists(), False, 'folder of a dry run')


def check_quiet(cwd):
    write(cwd, 'a.c')
    done = expect(dpacc(cwd, 'a.c', '-o', 'a.a'))
    equal(done.stdout + done.stderr, '', 'output')


def check_companions(cwd):
    write(cwd, 'part.c', 'int __NV_DPA_value = __NV_DPA; unsigned long f(unsigned long a) { return (a << 3) + a; }')
    expect(run(BIN / 'dpa-clang', '-O2', '-c', 'part.c', cwd=cwd))
    expect(run(BIN / 'dpa-objdump', '-d', '-M', 'no-aliases', 'part.o', cwd=cwd), 0, stdout=r'elf64-littleriscv(.|\n)*sh3add')
    expect(run(BIN / 'dpa-nm', 'part.o', cwd=cwd), 0, stdout=r' T f$')
    expect(run(BIN / 'dpa-ar', 'rc', 'libpart.a', 'part.o', cwd=cwd))
    expect(run(BIN / 'dpa-ar', 't', 'libpart.a', cwd=cwd), 0, stdout=r'^part\.o$')
    write(cwd, 'a.c', '#include <stdint.h>\nunsigned long f(unsigned long);\n'
          '__dpa_rpc__ uint64_t nine(uint64_t a) { return f(a); }')
    expect(dpacc(cwd, 'a.c', '-o', 'a.a', '-device-libs=-L.,-lpart'))
    expect(run(BIN / 'dpa-clang', '-mcpu=nv-dpa-cx9', '-E', '-dM', '-x', 'c', '/dev/null', cwd=cwd), 0,
           stdout=r'define __NV_DPA 9$')
    expect(run(BIN / 'dpa-clang', '-mcpu=nv-dpa-xx', '-c', 'part.c', cwd=cwd), 1, stderr="unknown -mcpu 'nv-dpa-xx'")
    expect(run(BIN / 'dpa-clang', '-c', 'absent.c', cwd=cwd), 1, stderr='absent.c')
    expect(run(BIN / 'dpa-nm', 'part.o', cwd=cwd, env={'PATH': '/nowhere'}), 1, stderr='dpa-nm: .* package llvm')


def check_options_of_the_device_compiler(cwd):
    """As public build scripts write them: what clang would not know, or warn of, or do elsewhere."""
    write(cwd, 'a.c')
    flags = '-Wall,-Wextra,-Wpedantic,-Werror,-O3,-DE_MODE_LE,-ffreestanding,-mabi=lp64,-mno-relax,-mcmodel=medany,' \
            '-nostdlib,-Wdouble-promotion,-fuse-ld=lld -mcpu=nv-dpa-bf3 -ggdb -W -D__linux__ -MMD -MT x.a ' \
            '-mllvm -inline-threshold=1000000 -mllvm -inlinehint-threshold=1000000'
    done = expect(dpacc(cwd, 'a.c', '-o', 'a.a', f'--devicecc-options={flags}'))
    equal(done.stderr, '', 'messages')
    equal(files(cwd), ['a.a', 'a.c'], 'files')
    expect(dpacc(cwd, 'a.c', '-o', 'a.a', f'--devicecc-options={flags}', '--keep-dir', 'k'))
    equal((cwd / 'k/a.bf3.d').exists(), True, 'dependencies')
    # -flto is the same wherever it stands
    for option in ('-flto', '-devicecc-options=-O3 -flto', '-devicecc-options=-flto=full'):
        expect(dpacc(cwd, '-dryrun', 'a.c', option), 0, stderr='llvm-link')
    equal('llvm-link' in expect(dpacc(cwd, '-dryrun', 'a.c', '-devicecc-options=-flto -fno-lto')).stderr, False, 'no LTO')


def check_attributes(cwd):
    write(cwd, 'a.c')
    write(cwd, 'a.yaml', 'version: 1\n')
    tool = BIN / 'dpa-app-attributes2blob'
    expect(run('sh', '-c', f'umask 022; {tool} a.yaml a.blob', cwd=cwd))
    equal((cwd / 'a.blob').stat().st_mode & 0o777, 0o644, 'mode')
    expect(run('sh', '-c', f'{tool} a.yaml /dev/stdout | cmp - a.blob', cwd=cwd))
    expect(run(tool, 'a.yaml', './a.yaml', cwd=cwd), 1, stderr='the output is the input')
    expect(dpacc(cwd, 'a.c', '-o', 'a.a', '--dpa-proc-attr=a.blob', '-keep-dir=k', '-mcpu=nv-dpa-bf3,nv-dpa-cx7'))
    for arch in ('bf3', 'cx7'):
        expect(run('readelf', '-p', '.dpa_attributes', f'k/device_exec.{arch}', cwd=cwd), 0, stdout='version: 1')
    expect(dpacc(cwd, 'a.c', '-o', 'b.a', '--dpa-proc-attr=a.yaml'), 1, stderr='a.yaml: these attributes were not made by')
    expect(dpacc(cwd, 'a.c', '-o', 'b.a', '--dpa-proc-attr=none'), 1, stderr='none: No such file')
    expect(run(tool, 'none.yaml', 'b.blob', cwd=cwd), 1, stderr='none.yaml: No such file')
    expect(run(tool, 'a.yaml', 'no/b.blob', cwd=cwd), 1, stderr='no/b.blob: No such file')
    write(cwd, 'empty.yaml', '')
    expect(run(tool, 'empty.yaml', 'b.blob', cwd=cwd), 1, stderr='no text')
    for args in ([], ['a.yaml'], ['a', 'b', 'c']):
        expect(run(tool, *args, cwd=cwd), 2)
    equal((cwd / 'b.blob').exists() or (cwd / 'b.a').exists(), False, 'outputs')


main(collect(globals()))
