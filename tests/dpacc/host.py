"""Host programs for the archives of dpacc, linked with recorder.c in place of libflexio."""
from kit import HERE, expect, run, write

HEAD = '''
#include <stdint.h>
#include <stdio.h>
struct flexio_app;
typedef void (flexio_func_t)(void);
#ifdef __cplusplus
extern "C" {
#endif
void recorder_call(struct flexio_app *app, flexio_func_t *stub, ...);
extern struct flexio_app *app;
extern flexio_func_t add;
#ifdef __cplusplus
}
#endif
'''
MAIN = HEAD + '''
int main(void)
{
	printf("main %s\\n", app ? "app" : "null");
	if (app)
		recorder_call(app, add, (uint64_t)1, (uint64_t)2);
	return 0;
}
'''
SAID = '''create app elf
model app 2
function app add __dpa_unpack_add 16
main app
call 1 2
destroy app
'''


def build(cwd, *archives, source=MAIN, compiler='gcc', options=(), name='host.c'):
    """Link a host program; returns its path."""
    write(cwd, name, source)
    expect(run('gcc', '-Wall', '-Werror', '-O1', '-fPIC', '-c', HERE / 'recorder.c', '-o', 'recorder.o', cwd=cwd))
    expect(run(compiler, '-Wall', '-Werror', *options, name, *archives, 'recorder.o', '-o', 'host', cwd=cwd))
    return cwd / 'host'


def said_by(cwd, *archives, **options):
    return expect(run(build(cwd, *archives, **options), cwd=cwd)).stdout
