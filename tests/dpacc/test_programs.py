#!/usr/bin/env python3
"""Programs of dpacc and libflexio that run: every type of argument and result there and back, both argument forms,
optimization at link time, libraries, on both tiers of the accelerator."""
import shlex

from kit import BIN, SANITIZED, STAGE, collect, dpacc, equal, expect, main, run, write

HOST = '''
#include <infiniband/verbs.h>
#include <libflexio/flexio.h>
#include <stdio.h>
#include <string.h>
extern struct flexio_app *app;
static struct flexio_process *process;
static uint64_t result;
/* "status result" of a call */
#define CALL(...) do { result = 0x5555; int status_ = flexio_process_call(process, __VA_ARGS__); \\
	if (status_) printf("status %d\\n", status_); else printf("%llx\\n", (unsigned long long)result); } while (0)
static void calls(void);
int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;

	if (!ctx || flexio_process_create(ctx, app, NULL, &process)) {
		printf("no process\\n");
		return 1;
	}
	calls();
	return flexio_process_destroy(process) || ibv_close_device(ctx);
}
'''
ONES = 'f' * 16


def said_by(cwd, stubs, calls, archives=('app.a',), env=None):
    """The lines that a host program with these calls prints."""
    environment = {'PKG_CONFIG_PATH': str(STAGE / 'lib/pkgconfig')}
    said = expect(run('pkg-config', '--cflags', '--libs', 'libflexio', 'libibverbs', cwd=cwd, env=environment)).stdout
    flags = shlex.split(said)
    write(cwd, 'host.c', HOST + f'extern flexio_func_t {stubs};\nstatic void calls(void)\n{{\n{calls}\n}}\n')
    expect(run('gcc', '-Wall', '-Werror', 'host.c', *archives, *flags, '-o', 'host', cwd=cwd))
    return expect(run(BIN / 'verbatim', 'run', '--', *SANITIZED, './host', cwd=cwd, env=env)).stdout.split('\n')[:-1]


def build(cwd, *args):
    expect(dpacc(cwd, *args, '-o', 'app.a', '-app-name=app', '-DFLEXIO_DEV_ALLOW_EXPERIMENTAL_API'))


TYPES = [
    # C type on the device, argument on the host, what comes back in 64 bits
    ('int8_t', '-1', ONES), ('int8_t', '0x17f', '7f'), ('uint8_t', '-1', 'ff'), ('uint8_t', '0x180', '80'),
    ('int16_t', '-2', 'fffffffffffffffe'), ('int16_t', '0x18000', 'ffffffffffff8000'), ('uint16_t', '-2', 'fffe'),
    ('int32_t', '-3', 'fffffffffffffffd'), ('uint32_t', '0xfffffffdu', 'fffffffd'),
    ('int64_t', '-4l', 'fffffffffffffffc'), ('uint64_t', '0x123456789abcdef0ul', '123456789abcdef0'),
    ('bool', '7', '1'), ('bool', '0', '0'), ('char', '-1', 'ff'), ('enum small', '1', '1'),
    ('enum negative', '-1', ONES), ('enum wide', '0x100000000l', '100000000'), ('void *', '(void *)-16l', 'fffffffffffffff0'),
    ('long long', '-5ll', 'fffffffffffffffb'), ('float', '1.5', '3fc00000'), ('double', '-2.0', 'c000000000000000'),
]


def device_types():
    text = '''
#include <stdbool.h>
#include <stdint.h>
enum small { ONE = 1 };
enum negative { MINUS = -1 };
enum wide { WIDE = 0x100000000 };
'''
    for number, (name, _, _) in enumerate(TYPES):
        # through a volatile, so that it is a value of its type and not just the register
        text += f'__dpa_rpc__ {name} f{number}({name} a) {{ volatile {name} b = a; return b; }}\n'
    return text


def check_every_type_there_and_back(cwd):
    write(cwd, 'dev.c', device_types())
    stubs = ', '.join(f'f{number}' for number in range(len(TYPES)))
    calls = '\n'.join(f'CALL(f{number}, &result, {argument});' for number, (_, argument, _) in enumerate(TYPES))
    wanted = [value for _, _, value in TYPES]
    for options in ([], ['-devicecc-options=-O0'], ['-flto']):
        build(cwd, 'dev.c', *options)
        equal(said_by(cwd, stubs, calls), wanted, f'results {options}')
    equal(said_by(cwd, stubs, calls, env={'VERBATIM_DPA_TIER': 'interp'}), wanted, 'results interpreted')


def check_many_arguments(cwd):
    """More than there are registers, of mixed types."""
    names = ['int8_t', 'uint64_t', 'uint16_t', 'double', 'int32_t', 'float', 'bool', 'int64_t', 'uint8_t', 'int16_t',
             'uint32_t', 'double', 'void *', 'char', 'long', 'float']
    values = ['-1', '2ul', '3', '4.0', '-5', '6.0', '1', '-8l', '9', '-10', '11u', '12.0', '(void *)13', '14', '-15l', '16.0']
    parameters = ', '.join(f'{name} a{number}' for number, name in enumerate(names))
    tests = ' | '.join(f'(uint64_t)!(a{number} == ({name}){value.rstrip("ul")}) << {number}'
                       for number, (name, value) in enumerate(zip(names, values)))
    write(cwd, 'dev.c', f'#include <stdbool.h>\n#include <stdint.h>\n__dpa_rpc__ uint64_t many({parameters}) {{ return {tests}; }}\n'
          '__dpa_rpc__ void nothing(void) { }\n'
          '__dpa_rpc__ int sum(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j) '
          '{ return a - b + c - d + e - f + g - h + i - j; }\n')
    build(cwd, 'dev.c')
    calls = f'CALL(many, &result, {", ".join(values)});\nCALL(nothing, &result);\n' \
            'CALL(sum, &result, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512);\nCALL(nothing, NULL);'
    equal(said_by(cwd, 'many, nothing, sum', calls)[:3], ['0', '0', 'fffffffffffffeab'], 'results')


STRUCTS = '''
#include <stdbool.h>
#include <stdint.h>
#ifndef __DPA__
#define __dpa_global__
#endif
struct __dpa_global__ word { uint64_t a; };
struct byte { int8_t a; } __dpa_global__;
typedef __dpa_global__ struct { float x, y; } point;
typedef struct { double x; int32_t n; } __dpa_global__ mixed;
typedef struct { double x, y; } __dpa_global__ doubles;
typedef struct { float x, y, z; } __dpa_global__ three;
struct big { uint64_t a[5]; uint8_t b; } __dpa_global__;
union either { uint32_t i; float f; uint8_t b[8]; } __dpa_global__;
struct bits { uint32_t a : 3, b : 7; int32_t : 0; int32_t c : 9; bool d : 1; uint64_t e : 40; } __dpa_global__;
struct __attribute__((packed)) tight { uint8_t a; uint32_t b; uint16_t c; } __dpa_global__;
struct __attribute__((aligned(32))) wide { uint32_t a; } __dpa_global__;
struct inner { int16_t a; union { uint16_t u; uint8_t c[2]; }; };
struct nested { struct inner one[2][3]; enum { FEW, MANY = 300 } kind; char text[7]; } __dpa_global__;
'''

STRUCT_ARGS = [
    # type, how the host makes one, what the device must find in p
    ('struct word', '{ 0x123456789abcdef0ul }', 'p.a == 0x123456789abcdef0ul'),
    ('struct byte', '{ -7 }', 'p.a == -7'),
    ('point', '{ 1.5f, -2.5f }', 'p.x == 1.5f && p.y == -2.5f'),
    ('mixed', '{ 0.25, -9 }', 'p.x == 0.25 && p.n == -9'),
    ('doubles', '{ 3.5, -4.5 }', 'p.x == 3.5 && p.y == -4.5'),
    ('three', '{ 1, 2, 3 }', 'p.x == 1 && p.y == 2 && p.z == 3'),
    ('struct big', '{ { 1, 2, 3, 4, 5 }, 200 }', 'p.a[0] == 1 && p.a[4] == 5 && p.b == 200'),
    ('union either', '{ .f = 1.0f }', 'p.i == 0x3f800000'),
    ('struct bits', '{ 5, 100, -200, true, 0xfedcba9876 }',
     'p.a == 5 && p.b == 100 && p.c == -200 && p.d && p.e == 0xfedcba9876'),
    ('struct tight', '{ 1, 0xaabbccdd, 0x1122 }', 'p.a == 1 && p.b == 0xaabbccdd && p.c == 0x1122'),
    ('struct wide', '{ 77 }', 'p.a == 77 && !((uintptr_t)&p & 31)'),
    ('struct nested', '{ { { { 1, { 2 } } }, { { 0, { 0 } }, { 0, { 0 } }, { -5, { 600 } } } }, MANY, "abcdef" }',
     'p.one[0][0].a == 1 && p.one[0][0].u == 2 && p.one[1][2].a == -5 && p.one[1][2].u == 600 && p.kind == MANY && '
     'p.text[5] == 102 && !p.text[6]'),
]


def check_structs_by_value(cwd):
    """Alone, between other arguments, and where registers have run out; host in C with either compiler, and as C++."""
    write(cwd, 'structs.h', STRUCTS)
    device = '#include "structs.h"\n'
    calls, stubs = '', []
    for number, (name, made, test) in enumerate(STRUCT_ARGS):
        device += f'__dpa_rpc__ int f{number}({name} p) {{ return {test}; }}\n'
        device += (f'__dpa_rpc__ int g{number}(int8_t a, {name} p, double b, {name} q, uint64_t c) '
                   f'{{ int first = {test}; p = q; return a == -3 && b == 1.25 && c == 9 && first && ({test}); }}\n')
        device += (f'__dpa_rpc__ int h{number}(long a, long b, long c, long d, long e, long f, long g, double h, float i, {name} p) '
                   f'{{ return a + b + c + d + e + f + g == 28 && h == 0.5 && i == 2.5f && ({test}); }}\n')
        calls += f'{{ {name} s = {made};\nCALL(f{number}, &result, s);\nCALL(g{number}, &result, -3, s, 1.25, s, (uint64_t)9);\n'
        calls += f'CALL(h{number}, &result, 1l, 2l, 3l, 4l, 5l, 6l, 7l, 0.5, 2.5, s); }}\n'
        stubs += [f'f{number}', f'g{number}', f'h{number}']
    all_stubs = ', '.join(stubs) + ';\n#include "structs.h"\nextern flexio_func_t last'
    write(cwd, 'dev.c', device + '__dpa_rpc__ void last(void) { }\n')
    wanted = ['1'] * len(stubs)
    for options in ([], ['-devicecc-options=-O0'], ['-flto', '-hostcc=clang'], ['-hostcc=g++']):
        build(cwd, 'dev.c', *options)
        equal(said_by(cwd, all_stubs, calls), wanted, f'results {options}')
    equal(said_by(cwd, all_stubs, calls, env={'VERBATIM_DPA_TIER': 'interp'}), wanted, 'results interpreted')
    # through an object the types travel with the program
    expect(dpacc(cwd, '-c', 'dev.c', '-o', 'dev.dpa.o'))
    write(cwd, 'none.c', 'int none;\n')
    build(cwd, 'none.c', 'dev.dpa.o')
    equal(said_by(cwd, all_stubs, calls), wanted, 'results from an object')


def check_static_header_and_prototype(cwd):
    write(cwd, 'shared.h', '#include <stdint.h>\nstatic inline __dpa_rpc__ int in_header(int a) { return a + 100; }\n'
          '__dpa_rpc__ int by_prototype(int a);\n')
    write(cwd, 'one.c', '#include "shared.h"\nstatic __attribute__((noinline)) int hidden(int a) { return a + 1; }\n'
          'int by_prototype(int a) { return hidden(a); }\n')
    write(cwd, 'two.c', '#include "shared.h"\nstatic __dpa_rpc__ int hidden(int a) { return a + 2; }\n')
    calls = 'CALL(in_header, &result, 1); CALL(by_prototype, &result, 1); CALL(hidden, &result, 1);'
    for args in (['one.c', 'two.c'], ['one.c', 'two.c', '-flto'], ['one.c', 'two.c', '-devicecc-options=-O0']):
        build(cwd, *args)
        equal(said_by(cwd, 'in_header, by_prototype, hidden', calls), ['65', '2', '3'], f'results {args}')


def check_argument_forms(cwd):
    head = '#include <libflexio-dev/flexio_dev.h>\n#include <libflexio-dev/flexio_dev_queue_access.h>\n'
    version = '{ return FLEXIO_DEV_VER_USED < FLEXIO_DEV_VER(24, 10, 0); }\n'
    write(cwd, 'old.c', head + '__dpa_rpc__ int is_old(void) ' + version +
          'int arm(struct flexio_dev_thread_ctx *c);\nint arm(struct flexio_dev_thread_ctx *c) { flexio_dev_cq_arm(c, 1, 2); return 0; }')
    write(cwd, 'new.c', head + '__dpa_rpc__ int is_new(void) ' + version + 'void arm2(void);\nvoid arm2(void) { flexio_dev_cq_arm(1, 2); }')
    build(cwd, 'old.c', 'new.c')
    equal(said_by(cwd, 'is_old, is_new', 'CALL(is_old, &result); CALL(is_new, &result);'), ['1', '0'], 'forms')


def check_objects_libraries_and_targets(cwd):
    write(cwd, 'dev.c', 'int help(int);\n__dpa_rpc__ int calls_library(int a) { return help(a) * 10 + __NV_DPA; }\n')
    write(cwd, 'lib.c', 'int help(int a) { return a + __NV_DPA; }\n__dpa_rpc__ int in_library(int a) { return a + 2; }\n')
    cpus = '-mcpu=nv-dpa-cx7,nv-dpa-bf3'
    calls = 'CALL(calls_library, &result, 1); CALL(in_library, &result, 1);'
    wanted = [f'{(1 + 3) * 10 + 3:x}', '3']
    expect(dpacc(cwd, 'lib.c', '-gen-libs', '-o', 'libx', cpus))
    build(cwd, 'dev.c', cpus, '-device-libs=-L. -lx_device')
    equal(said_by(cwd, 'calls_library, in_library', calls, ['app.a', 'libx_host.a']), wanted, 'with a library')
    expect(dpacc(cwd, '-c', 'dev.c', 'lib.c', cpus))
    build(cwd, 'dev.dpa.o', 'lib.dpa.o', cpus)
    equal(said_by(cwd, 'calls_library, in_library', calls), wanted, 'with objects')
    # where BlueField-3 is not among them, the first
    build(cwd, 'dev.dpa.o', 'lib.dpa.o', '-mcpu=nv-dpa-cx7')
    done = said_by(cwd, 'calls_library, in_library', calls)
    equal(done, [f'{(1 + 7) * 10 + 7:x}', '3'], 'for another target')


def check_libc_and_assembly(cwd):
    """Device code as public programs have it: string functions, printf to memory, inline assembly, thread-local data."""
    write(cwd, 'dev.c', '''
#include <dpaintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static _Thread_local int counter = 5;
static int initialized = 7, zero;
__dpa_rpc__ int text(int a)
{
	char buffer[64], *copy = malloc(64);
	int n = snprintf(buffer, sizeof(buffer), "%d-%s-%08lx", a, "x", 0xabcul);
	strcpy(copy, buffer);
	n = n * 1000 + (int)strlen(copy) * (memcmp(copy, "42-x-00000abc", 13) == 0);
	free(copy);
	return n;
}
__dpa_rpc__ uint64_t assembly(uint64_t a)
{
	uint64_t b;
	__asm__ volatile("fence iorw, iorw\\n sh2add %0, %1, %1" : "=r"(b) : "r"(a));
	__dpa_thread_memory_fence(__DPA_RW, __DPA_RW);
	return b + (__dpa_thread_cycles() == 0);
}
__dpa_rpc__ int data(int a) { counter += a; zero++; return counter * 100 + initialized * 10 + zero; }
''')
    for options in ([], ['-flto'], ['-devicecc-options=-O3 -g', '-devicelink-options=--gc-sections']):
        build(cwd, 'dev.c', *options)
        equal(said_by(cwd, 'text, assembly, data',
                      'CALL(text, &result, 42); CALL(assembly, &result, 9ul); CALL(data, &result, 1);'),
              [f'{13 * 1000 + 13:x}', f'{9 * 5:x}', f'{600 + 70 + 1:x}'], f'results {options}')


def check_build_script_and_run(cwd):
    """From a build that names the vendor's paths to a program that runs."""
    done = run(BIN / 'verbatim', 'sdk', '--', 'true', cwd=cwd)
    if done.returncode == 125:
        return  # test_sdk.py says so
    write(cwd, 'dev.c', '#include <stdint.h>\n__dpa_rpc__ uint64_t add(uint64_t a, uint64_t b) { return a + b; }\n')
    write(cwd, 'host.c', HOST + 'extern flexio_func_t add;\n'
          'static void calls(void) { CALL(&add, &result, (uint64_t)44, (uint64_t)55); }\n')
    write(cwd, 'build.sh', '''set -e
/opt/mellanox/doca/tools/dpacc dev.c -o app.a -hostcc=gcc -hostcc-options="-I/opt/mellanox/flexio/include" \\
	--devicecc-options="-O2,-I/opt/mellanox/flexio/include" --app-name=app
gcc host.c app.a -I/opt/mellanox/flexio/include -L/opt/mellanox/flexio/lib -DFLEXIO_ALLOW_EXPERIMENTAL_API \\
	-lflexio -libverbs -lmlx5 -o host
"$@"
''')
    expect(run(BIN / 'verbatim', 'sdk', '--', 'bash', 'build.sh', *SANITIZED, './host', cwd=cwd), 0, stdout='^63$')


main(collect(globals()))
