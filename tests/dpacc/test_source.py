#!/usr/bin/env python3
"""What dpacc finds in a source: functions and their types, argument forms, macros, and what it refuses."""
import re

from host import HEAD, build, said_by
from kit import ADD, BIN, Failure, collect, dpacc, equal, expect, files, main, run, write

OLD = '''
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_queue_access.h>
__dpa_rpc__ uint64_t old_form(uint64_t a)
{
	struct flexio_dev_thread_ctx *ctx;
	flexio_dev_get_thread_ctx(&ctx);
	flexio_dev_cq_arm(ctx, 1, 2);
	return FLEXIO_DEV_VER_USED < FLEXIO_DEV_VER(24, 10, 0);
}
'''
NEW = '''
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_queue_access.h>
__dpa_rpc__ uint64_t new_form(uint64_t a)
{
	flexio_dev_cq_arm(1, 2);
	return FLEXIO_DEV_VER_USED >= FLEXIO_DEV_VER(24, 10, 0);
}
'''


def registered(cwd, *args):
    """name -> size of the arguments, of the functions that the archive registers."""
    expect(dpacc(cwd, *args, '-o', 'app.a', '-app-name=app'))
    source = HEAD + '__attribute__((weak)) void add(void) {}\nint main(void) { return !app; }\n'
    said = said_by(cwd, 'app.a', source=source.replace('extern flexio_func_t add;', 'void add(void);'))
    return dict((name, int(size)) for name, size in re.findall(r'^function app (\S+) \S+ (\d+)$', said, re.M))


def check_every_type(cwd):
    """Each argument arrives in its slot with the extension of its type, whatever the varargs did to it."""
    write(cwd, 'dev.c', '''
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <libflexio-dev/flexio_dev.h>
enum plain { A, B };
enum negative { MINUS = -1 };
enum wide { WIDE = 0x100000000 };
typedef enum { X } anonymous;
typedef const volatile int16_t half;
typedef struct incomplete *handle;
typedef int callback(int);
__dpa_rpc__ int ints(int8_t a, uint8_t b, int16_t c, uint16_t d, int32_t e, uint32_t f, int64_t g, uint64_t h) { return 0; }
__dpa_rpc__ int names(signed char a, unsigned char b, short c, unsigned short d, int e, unsigned f, long g,
	unsigned long h, long long i, unsigned long long j, size_t k, flexio_uintptr_t l) { return 0; }
__dpa_rpc__ int kinds(bool a, _Bool b, char c, enum plain d, enum negative e, enum wide f, anonymous g, half h,
	const handle i, callback *j, callback k, int l[4], void *const m, const char *n) { return 0; }
__dpa_rpc__ int floats(float a, double b, const float c) { return 0; }
__dpa_rpc__ void nothing(void) { }
__dpa_rpc__ int old_style() { return 1; }
__dpa_global__ void handler(uint64_t argument) { }
''')
    expect(dpacc(cwd, 'dev.c', '-o', 'app.a', '-app-name=app'))
    source = HEAD.replace('extern flexio_func_t add;', 'extern flexio_func_t ints, names, kinds, floats, nothing, handler;')
    source += '''
int main(void)
{
	recorder_call(app, ints, -1, -1, -1, -1, -1, -1, (int64_t)-1, (uint64_t)-1);
	recorder_call(app, ints, 0x17f, 0x180, 0x18000, 0x18000, 1, 0x80000000u, (int64_t)1, (uint64_t)1 << 63);
	recorder_call(app, names, -2, -2, -2, -2, -2, -2u, -2l, -2ul, -2ll, -2ull, (size_t)5, (uint64_t)6);
	recorder_call(app, kinds, 2, 0, -1, 1, -1, 0x100000000l, 0, -3, (void *)16, (void *)17, (void *)18, (void *)19,
		      (void *)20, (void *)-1l);
	recorder_call(app, floats, 1.0, -2.0, 0.5f);
	recorder_call(app, nothing);
	recorder_call(app, handler, (uint64_t)77);
	return 0;
}
'''
    said = said_by(cwd, 'app.a', source=source)
    ones = 'f' * 16
    wanted = [
        f'{ones} ff {ones} ffff {ones} ffffffff {ones} {ones}',
        '7f 80 ffffffffffff8000 8000 1 80000000 1 8000000000000000',
        'fffffffffffffffe fe fffffffffffffffe fffe fffffffffffffffe fffffffe fffffffffffffffe fffffffffffffffe '
        'fffffffffffffffe fffffffffffffffe 5 6',
        # char is unsigned on RISC-V
        f'1 0 ff 1 {ones} 100000000 0 fffffffffffffffd 10 11 12 13 14 {ones}',
        '3f800000 c000000000000000 3f000000',
        '',
        '4d',
    ]
    equal([line[5:] for line in said.splitlines() if line.startswith('call')], wanted, 'slots')
    equal(re.findall(r'^function app (\S+) \S+ (\d+)', said, re.M),
          [('ints', '64'), ('names', '96'), ('kinds', '112'), ('floats', '24'), ('nothing', '0'), ('old_style', '0'),
           ('handler', '8')], 'functions')


def check_where_functions_come_from(cwd):
    write(cwd, 'inc/head.h', '''
#pragma once
#define ENTRY(name) __dpa_rpc__ int name(int a) { return a; }
static inline __dpa_rpc__ int in_header(short a) { return a; }
__dpa_rpc__ void with_prototype(int a, int b);
extern __dpa_rpc__ int elsewhere(int a);
''')
    write(cwd, 'one.c', '''
#include "head.h"
ENTRY(by_macro)
void with_prototype(int a, int b) { }
static __dpa_rpc__ int hidden(void) { return 1; }
int __dpa_rpc__ between(void) { return in_header(1); }
int behind(void) __attribute__((noinline)) __dpa_rpc__;
int behind(void) { return 0; }
static __attribute__((unused)) int ordinary(void) { return 0; }
#if 0
__dpa_rpc__ int absent(void) { return 0; }
#endif
''')
    write(cwd, 'two.c', '''
#include "head.h"
int elsewhere(int a) { return in_header(2); }
static int hidden(void) { return 2; }
__dpa_rpc__ int uses(void) { return hidden(); }
''')
    for options in ([], ['-flto'], ['-devicecc-options=-O0']):
        equal(registered(cwd, 'one.c', 'two.c', '-Iinc', *options),
              {'by_macro': 8, '__dpa_static_in_header': 8, 'with_prototype': 16, '__dpa_static_hidden': 0, 'between': 0,
               'behind': 0, 'elsewhere': 8, 'uses': 0}, f'functions {options}')


def check_one_header_by_two_names(cwd):
    write(cwd, 'head.h', 'static __dpa_rpc__ int in_header(int a) { return a; }\n')
    write(cwd, 'a.c', '#include "head.h"\n')
    write(cwd, 'sub/b.c', '#include "../head.h"\n')
    write(cwd, 'c.c', f'#include "{cwd}/head.h"\n')
    equal(registered(cwd, 'a.c', 'sub/b.c', 'c.c'), {'__dpa_static_in_header': 8}, 'functions')


def check_inline(cwd):
    """C99's inline alone makes no function."""
    write(cwd, 'a.c', '\ninline __dpa_rpc__ int f(int a) { return a; }\n')
    expect(dpacc(cwd, 'a.c', '-o', 'x.a'), 1, stderr=r"^a\.c:2: error: function 'f' .*it has no code; 'inline' needs 'static'")
    equal(files(cwd), ['a.c'], 'files')
    equal(registered(cwd, 'a.c', '-devicecc-options=-std=gnu89'), {'f': 8}, 'functions')
    write(cwd, 'a.c', 'extern inline __dpa_rpc__ int f(int a) { return a; }\n'
          'static inline __dpa_rpc__ int g(int a) { return a; }\n')
    equal(registered(cwd, 'a.c'), {'f': 8, '__dpa_static_g': 8}, 'functions')


def check_linker_messages_name_the_source(cwd):
    write(cwd, 'a.c', 'int absent(int); __dpa_rpc__ int f(int a) { return absent(a); }\n')
    expect(dpacc(cwd, 'a.c', '-o', 'x.a'), 1, stderr=r'undefined symbol: absent\n>>> referenced by a\.c$')


def check_same_name_twice(cwd):
    write(cwd, 'a.c', '\nstatic __dpa_rpc__ int twin(void) { return 1; }\n')
    write(cwd, 'b.c', '\n\nstatic __dpa_rpc__ int twin(void) { return 2; }\n')
    expect(dpacc(cwd, 'a.c', 'b.c', '-o', 'x.a'), 1, stderr=r"^b\.c:3: error: function 'twin' .* a\.c:2$")
    # the same where both come out of objects or libraries
    expect(dpacc(cwd, '-c', 'a.c', 'b.c'))
    expect(dpacc(cwd, 'a.dpa.o', 'b.dpa.o', '-o', 'x.a'), 1, stderr=r"^b\.c:3: error: function 'twin' .* a\.c:2$")
    expect(dpacc(cwd, 'b.c', '-gen-libs', '-o', 'libb'))
    expect(dpacc(cwd, 'a.c', '-device-libs=-L. -lb', '-o', 'x.a'), 1, stderr=r"^b\.c:3: error: function 'twin' .* a\.c:2$")
    write(cwd, 'c.c', '__dpa_rpc__ int global_twin(void) { return 1; }\n')
    write(cwd, 'd.c', '__dpa_rpc__ int global_twin(void) { return 1; }\n')
    expect(dpacc(cwd, 'c.c', 'd.c', '-o', 'x.a'), 1, stderr=r"^d\.c:1: error: function 'global_twin' .* c\.c:1$")
    equal((cwd / 'x.a').exists(), False, 'archive')


def check_names_of_the_host(cwd):
    """A device function may be called like one of libc, the application too."""
    write(cwd, 'a.c', '__dpa_rpc__ int remove(int a) { return a; }\n__dpa_rpc__ int abs(int a) { return a; }\n'
          '__dpa_rpc__ int dpa_stub_0(int a) { return a; }\n')
    for compiler in ('gcc', 'clang'):
        expect(dpacc(cwd, 'a.c', '-o', 'app.a', '-app-name=stdout', f'-hostcc={compiler}'))
    write(cwd, 'm.c', '__dpa_rpc__ int main(void) { return 0; }\n')
    expect(dpacc(cwd, 'm.c', '-o', 'm.a'), 1, stderr=r"m\.c:1:\d+: error: function 'main' ")
    write(cwd, 'n.c', f'__dpa_rpc__ int {"n" * 250}(void) {{ return 0; }}\n')
    expect(dpacc(cwd, 'n.c', '-o', 'm.a'), 1, stderr='too long')


def check_what_cannot_be_passed(cwd):
    write(cwd, 'types.h', 'struct pair { int a, b; };\ntypedef union { int i; } either;\n')
    cases = [
        ('int f(int a,\n  struct pair second) { return 0; }', r"^a\.c:3:\d+: error: function 'f' .*parameter 2 'second' has type 'struct pair'"),
        ('int f(either e) { return 0; }', r"parameter 1 'e' has type 'either'"),
        ('int f(struct pair) { return 0; }', r"parameter 1 has type 'struct pair'"),
        ('int f(long double x) { return 0; }', r"parameter 1 'x' has type 'long double'"),
        ('int f(__int128 x) { return 0; }', r"parameter 1 'x' has type '__int128'"),
        ('int f(unsigned __int128 x) { return 0; }', r"parameter 1 'x' has type 'unsigned __int128'"),
        ('int f(_Complex float x) { return 0; }', r"parameter 1 'x' has type '_Complex float'"),
        ('int f(int a, ...) { return 0; }', r'variable number of arguments'),
        ('struct pair f(void) { struct pair p = { 0 }; return p; }', r"it returns 'struct pair'"),
        ('long double f(void) { return 0; }', r"it returns 'long double'"),
    ]
    for text, message in cases:
        write(cwd, 'a.c', '#include "types.h"\n__dpa_rpc__ ' + text + '\n')
        expect(dpacc(cwd, 'a.c', '-o', 'a.a', '-devicecc-options=-Wno-everything'), 1, stderr=message)
        equal(files(cwd), ['a.c', 'types.h'], 'files')
    # not annotated, not called from the host: no matter
    write(cwd, 'a.c', '#include "types.h"\nint f(struct pair p) { return p.a; }\n')
    expect(dpacc(cwd, 'a.c', '-o', 'a.a'))


def form_of(cwd, name, *args):
    done = expect(dpacc(cwd, name, '-o', 'x.a', '-v', *args))
    line = next(line for line in done.stderr.splitlines() if f'-c {name} ' in line)
    return 'old' if 'FLEXIO_DEV_VER_USED' in line else 'new'


def check_argument_forms(cwd):
    write(cwd, 'old.c', OLD)
    write(cwd, 'new.c', NEW)
    write(cwd, 'neither.c', ADD)
    # only an integer in the place of a pointer tells, for which clang 14 has a mere warning
    write(cwd, 'subtle.c', '''
#include <libflexio-dev/flexio_dev.h>
__dpa_rpc__ int subtle(int a)
{
	struct flexio_dev_thread_ctx *ctx;
	flexio_dev_get_thread_ctx(&ctx);
	return flexio_dev_window_config(ctx, 1, 2);
}
''')
    for name, form in (('old.c', 'old'), ('new.c', 'new'), ('neither.c', 'new'), ('subtle.c', 'old')):
        equal(form_of(cwd, name), form, name)
    # each source alone
    done = expect(dpacc(cwd, 'old.c', 'new.c', '-o', 'x.a', '-v'))
    expect(done, 0, stderr=r'-DFLEXIO_DEV_VER_USED=\S+ \S+ -c old\.c ')
    equal(re.search(r'^.*VER_USED.* -c new\.c ', done.stderr, re.M), None, 'form of new.c')


def check_forms_asked_for(cwd):
    write(cwd, 'old.c', OLD)
    write(cwd, 'new.c', NEW)
    old, new = 'FLEXIO_DEV_VER_USED=0x18010000', 'FLEXIO_DEV_VER_USED=0x19010000'
    expect(dpacc(cwd, 'old.c', '-o', 'x.a', f'-devicecc-options=-D{old}'))
    expect(dpacc(cwd, 'new.c', '-o', 'x.a', f'-devicecc-options=-D{new}'))
    expect(dpacc(cwd, 'new.c', '-o', 'x.a', '-D', new))
    expect(dpacc(cwd, 'old.c', '-o', 'y.a', f'-devicecc-options=-D{new}'), 1, stderr=r'old\.c:8:\d+: error: ')
    expect(dpacc(cwd, 'new.c', '-o', 'y.a', '-devicecc-options', f'-D{old}'), 1, stderr=r'new\.c:6:\d+: error: ')
    # or in the source, as the manual shows
    says = '#include <libflexio-dev/flexio_dev_ver.h>\n#define FLEXIO_DEV_VER_USED FLEXIO_DEV_VER({}, 1, 0)\n'
    write(cwd, 'says_old.c', says.format(24) + OLD)
    write(cwd, 'says_new.c', says.format(25) + NEW)
    write(cwd, 'lies.c', says.format(25) + OLD)
    for name in ('says_old.c', 'says_new.c'):
        done = expect(dpacc(cwd, name, '-o', 'x.a', '-DFLEXIO_DEV_ALLOW_EXPERIMENTAL_API'))
        equal(done.stderr, '', 'warnings')
    expect(dpacc(cwd, 'lies.c', '-o', 'y.a'), 1, stderr=r'lies\.c:10:\d+: error: ')
    equal((cwd / 'y.a').exists(), False, 'archive')


def check_errors_of_the_nearer_form(cwd):
    write(cwd, 'old.c', OLD + 'int f(void) { return undeclared; }\n')
    done = expect(dpacc(cwd, 'old.c', '-o', 'x.a'), 1, stderr=r"^old\.c:11:\d+: error: .*'undeclared'")
    equal(done.stderr.count(' error: '), 1, 'errors')
    write(cwd, 'new.c', NEW + 'int f(void) { return undeclared; }\n')
    done = expect(dpacc(cwd, 'new.c', '-o', 'x.a'), 1, stderr=r"^new\.c:9:\d+: error: .*'undeclared'")
    equal(done.stderr.count(' error: '), 1, 'errors')


def check_compiler_messages_come_through(cwd):
    write(cwd, 'sub/bad.c', '#include "h.h"\nint f(void) { return 1 }\n')
    write(cwd, 'sub/h.h', '#warning look here\n')
    expect(dpacc(cwd, 'sub/bad.c', '-o', 'x.a'), 1, stderr=r"^sub/bad\.c:2:\d+: error: expected ';'")
    write(cwd, 'missing.c', '#include <no/such/header.h>\n')
    expect(dpacc(cwd, 'missing.c', '-o', 'x.a'), 1, stderr=r"^missing\.c:1:\d+: fatal error: 'no/such/header\.h'")
    write(cwd, 'warns.c', '#include "sub/h.h"\n' + ADD)
    done = expect(dpacc(cwd, 'warns.c', '-o', 'x.a'), 0, stderr=r'h\.h:1:\d+: warning: look here')
    equal(done.stderr.count('warning: look here'), 1, 'the same warning')
    expect(dpacc(cwd, 'warns.c', '-o', 'y.a', '-devicecc-options=-Werror'), 1, stderr=r'h\.h:1:\d+: error: look here')
    write(cwd, 'undefined.c', 'int gone(void);\n__dpa_rpc__ int f(void) { return gone(); }\n')
    expect(dpacc(cwd, 'undefined.c', '-o', 'y.a'), 1, stderr=r'undefined symbol: gone')
    equal((cwd / 'y.a').exists(), False, 'archive')


def check_macros(cwd):
    values = {}
    for arch, macro in (('bf3', 'BF3'), ('cx7', 'CX7'), ('cx8', 'CX8'), ('cx9', 'CX9')):
        write(cwd, 'm.c', f'''
#if !defined(__DPA__) || !__DPA__ || __NV_DPA != __NV_DPA_{macro}
#error {macro}
#endif
#if __NV_DPA_BF3 == __NV_DPA_CX7 || __NV_DPA_CX7 == __NV_DPA_CX8 || __NV_DPA_CX8 == __NV_DPA_CX9 || __NV_DPA_CX9 == __NV_DPA_BF3
#error equal
#endif
#if __riscv_xlen != 64 || !__OPTIMIZE__
#error target
#endif
''')
        expect(dpacc(cwd, 'm.c', '-o', 'x.a', f'-mcpu=nv-dpa-{arch}'))
        text = expect(run(BIN / 'dpa-clang', f'-mcpu=nv-dpa-{arch}', '-E', '-dM', '-x', 'c', '/dev/null', cwd=cwd)).stdout
        values[arch] = re.search(r'define __NV_DPA (\d+)', text)[1]
    equal(len(set(values.values())), 4, 'values of __NV_DPA')


def check_odd_names(cwd):
    """Spaces, quotes and equal base names in paths."""
    write(cwd, 'a b/x.c', '__dpa_rpc__ int one(void) { return 1; }\n')
    write(cwd, 'c"d/x.c', '__dpa_rpc__ int two(void) { return 2; }\n')
    write(cwd, "e'f\\g/x.c", '__dpa_rpc__ int three(void) { return 3; }\n')
    equal(registered(cwd, 'a b/x.c', 'c"d/x.c', "e'f\\g/x.c"), {'one': 0, 'two': 0, 'three': 0}, 'functions')
    expect(dpacc(cwd, 'a b/x.c', '-o', 'q.a', '-keep-dir', 'k "d'), 0)
    (cwd / 'tmp "d').mkdir()
    expect(dpacc(cwd, 'a b/x.c', '-o', 'q.a', env={'TMPDIR': str(cwd / 'tmp "d')}), 0)


def check_annotated_types(cwd):
    """Headers of public programs mark types, too: structs can be passed by value then."""
    write(cwd, 'types.h', '''
#include <stdint.h>
struct arguments { uint64_t a; } __dpa_global__;
typedef uint64_t __dpa_global__ handle;
typedef struct { int a; } __dpa_global__ pair __dpa_global__;
enum __dpa_global__ kind { SOME };
''')
    write(cwd, 'a.c', '''
#include "types.h"
static __dpa_rpc__ int f(struct arguments *a, handle b, pair *c, enum kind d) { return d; }
''')
    expect(dpacc(cwd, 'a.c', '-o', 'app.a', '-devicecc-options=-Wall,-Wextra,-Werror,-Wno-unused-parameter'))
    equal(registered(cwd, 'a.c'), {'__dpa_static_f': 32}, 'functions')
    write(cwd, 'b.c', '#include "types.h"\n__dpa_global__ void f(struct arguments a, pair b) { }\n')
    equal(registered(cwd, 'b.c'), {'f': 16}, 'functions')


def check_structs_that_cannot_be_passed(cwd):
    cases = [
        ('struct s { int a; };', 'struct s', 'mark the type __dpa_global__, or pass a pointer'),
        ('struct s { int *a; } __dpa_global__;', 'struct s', "its member 'a' has a pointer"),
        ('struct s { int n; char rest[]; } __dpa_global__;', 'struct s', "its member 'rest' has a pointer, or an array without a size"),
        ('struct in { void (*f)(void); };\nstruct s { struct in deep[2]; } __dpa_global__;', 'struct s', "its member 'f' has a pointer"),
        ('struct s { long double d; } __dpa_global__;', 'struct s', "its member 'd' has the type 'long double'"),
        ('struct s { int a, b __attribute__((aligned(32))); } __dpa_global__;', 'struct s', "'b' has an alignment of its own"),
        ('struct s { } __dpa_global__;', 'struct s', 'it has no members'),
        ('typedef struct { char a[5000]; } __dpa_global__ s;', 's', 'it has 5000 bytes; the most is 4096'),
    ]
    for types, name, message in cases:
        write(cwd, 'a.c', f'{types}\n__dpa_rpc__ int f(int n, {name} arg) {{ return n; }}\n')
        expect(dpacc(cwd, 'a.c', '-o', 'a.a', '-devicecc-options=-Wno-everything'), 1,
               stderr=rf"error: function 'f' called from the host: parameter 2 'arg' has type '{name}'.*{message}")
    write(cwd, 'a.c', 'struct s { char a[4000]; } __dpa_global__;\n__dpa_rpc__ void f(struct s a, struct s b) { }\n')
    expect(dpacc(cwd, 'a.c', '-o', 'a.a'), 1, stderr="function 'f' called from the host: its arguments take more than 4096 bytes")
    # a layout that no attribute shows: the device's own check finds it
    write(cwd, 'a.c', '#pragma pack(push, 1)\nstruct s { char a; long b; } __dpa_global__;\n#pragma pack(pop)\n'
          '__dpa_rpc__ void f(struct s a) { }\n')
    expect(dpacc(cwd, 'a.c', '-o', 'a.a'), 1, stderr='has_this_size')


def check_declared_by_type(cwd):
    write(cwd, 'a.c', '''
#include <libflexio-dev/flexio_dev.h>
flexio_dev_rpc_handler_t init;
__dpa_rpc__ uint64_t init(uint64_t data) { return data; }
flexio_dev_event_handler_t handler;
void __dpa_global__ handler(flexio_uintptr_t arg) { (void)arg; }
__dpa_rpc__ static uint64_t
on_the_next_line(uint64_t a,
                 uint32_t b)
{
	return a + b;
}
''')
    equal(registered(cwd, 'a.c'), {'init': 8, 'handler': 8, '__dpa_static_on_the_next_line': 16}, 'functions')


def check_no_functions(cwd):
    write(cwd, 'a.c', 'int x;\n')
    equal(registered(cwd, 'a.c'), {}, 'functions')


def check_calling_a_stub(cwd):
    write(cwd, 'a.c')
    expect(dpacc(cwd, 'a.c', '-o', 'app.a', '-app-name=app'))
    program = build(cwd, 'app.a', source=HEAD + 'int main(void) { add(); return 0; }')
    expect(run(program, cwd=cwd), -6, stderr='^add runs on the device: pass its address to flexio_process_call$')


main(collect(globals()))
