#!/usr/bin/env python3
"""verbatim sdk: build scripts that name the vendor's paths, as root and as an ordinary user."""
import os
import pathlib
import shutil
import signal

from kit import ADD, BIN, SANITIZED, STAGE, Skip, collect, equal, expect, files, main, run, write

VERBATIM = BIN / 'verbatim'
TOP = pathlib.Path(__file__).resolve().parent.parent.parent

# As in public build scripts: absolute paths, the version looked at, both kinds of dashes, empty lists.
SCRIPT = '''#!/bin/bash
set -e
DPACC=/opt/mellanox/doca/tools/dpacc
[ -f "$DPACC" ] || { echo "no dpacc"; exit 1; }
VERSION=$("$DPACC" --version | grep version | sed -e 's/^.*version //')
printf '%s\\n%s\\n' 1.8.0 "$VERSION" | sort -VC || { echo "too old: $VERSION"; exit 1; }
mkdir -p out
"$DPACC" device.c -o out/app.a \\
	-hostcc=gcc \\
	-hostcc-options="-Wno-deprecated-declarations -Werror -Wall" \\
	--devicecc-options="-Wall,-Wextra,-Wpedantic,-Werror, -O3 -ffreestanding -mabi=lp64 -mno-relax -mcmodel=medany -nostdlib -Wdouble-promotion -DFLEXIO_DEV_ALLOW_EXPERIMENTAL_API -I/opt/mellanox/flexio/include -I/opt/mellanox/doca/include" \\
	--devicelink-options="" \\
	--device-libs="-L/opt/mellanox/flexio/lib/bf3 -L/opt/mellanox/flexio/lib -lflexio_dev" \\
	-disable-asm-checks \\
	--app-name="app"
"$DPACC" device.c --gen-libs --devicecc-options=-I. -hostcc=gcc -o out/libdev -mcpu=nv-dpa-bf3,nv-dpa-cx7
/opt/mellanox/doca/tools/dpa-nm out/libdev_device.a >/dev/null
test -d /opt/mellanox/doca/lib/$(uname -m)-linux-gnu
test -f /opt/mellanox/flexio/include/libflexio-dev/flexio_dev.h
echo built
'''


HEADERS = '''
#include <dpaintrin.h>
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_debug.h>
#include <libflexio-dev/flexio_dev_endianity.h>
#include <libflexio-dev/flexio_dev_err.h>
#include <libflexio-dev/flexio_dev_queue_access.h>
#include <libflexio-dev/flexio_dev_queue_types.h>
#include <libflexio-libc/stdio.h>
#include <libflexio-libc/string.h>
#include <stddef.h>
'''


def can_namespace(cwd, **options):
    done = run(VERBATIM, 'sdk', '--', 'true', cwd=cwd, **options)
    if done.returncode == 125 and 'install-vendor-paths' in done.stderr:
        raise Skip('this system allows no mount namespace')


def nobody():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def tree_for_all(cwd):
    """The staged tree where another user can read it."""
    tree = cwd / 'tree'
    shutil.copytree(STAGE, tree, symlinks=True)
    cwd.chmod(0o777)
    return tree / 'bin/verbatim'


def check_build_script(cwd):
    can_namespace(cwd)
    write(cwd, 'device.c', HEADERS + ADD)
    write(cwd, 'build.sh', SCRIPT).chmod(0o755)
    expect(run(VERBATIM, 'sdk', '--', './build.sh', cwd=cwd), 0, stdout='^built$')
    equal(files(cwd), ['build.sh', 'device.c', 'out/app.a', 'out/libdev_device.a', 'out/libdev_host.a'], 'files')


def check_build_script_without_root(cwd):
    if os.geteuid():
        raise Skip('not root: the other tests are this one')
    verbatim = tree_for_all(cwd)
    can_namespace(cwd, preexec_fn=nobody)
    work = cwd / 'work'
    write(work, 'device.c', HEADERS + ADD)
    write(work, 'build.sh', SCRIPT).chmod(0o755)
    os.chown(work, 65534, 65534)
    expect(run(verbatim, 'sdk', '--', './build.sh', cwd=work, preexec_fn=nobody), 0, stdout='^built$')
    done = expect(run(verbatim, 'sdk', '--', 'sh', '-c', 'id -u; id -g; pwd', cwd=work, preexec_fn=nobody))
    equal(done.stdout.split(), ['65534', '65534', str(work)], 'user, group and folder')
    equal((work / 'out/app.a').stat().st_uid, 65534, 'owner of the output')


def check_transparent(cwd):
    can_namespace(cwd)
    for code in (0, 1, 7, 255):
        expect(run(VERBATIM, 'sdk', '--', 'sh', '-c', f'exit {code}', cwd=cwd), code)
    expect(run(VERBATIM, 'sdk', 'sh', '-c', f'kill -{int(signal.SIGTERM)} $$', cwd=cwd), -signal.SIGTERM)
    expect(run(VERBATIM, 'sdk', '--', 'cat', cwd=cwd, input='through\n'), 0, stdout='^through$')
    equal(expect(run(VERBATIM, 'sdk', '--', 'pwd', cwd=cwd)).stdout, f'{cwd}\n', 'folder')
    expect(run(VERBATIM, 'sdk', '--', 'id', '-u', cwd=cwd), 0, stdout=f'^{os.geteuid()}$')
    expect(run(VERBATIM, 'sdk', '--', 'no-such-program', cwd=cwd), 127, stderr='^verbatim sdk: no-such-program: not found')
    expect(run(VERBATIM, 'sdk', '--', '/etc/passwd', cwd=cwd), 126, stderr='Permission denied')
    expect(run(VERBATIM, 'sdk', cwd=cwd), 2, stderr='which command')
    expect(run(VERBATIM, 'sdk', '--nonsense', cwd=cwd), 2, stderr='unrecognized option')


def check_the_rest_of_opt_stays(cwd):
    can_namespace(cwd)
    inside = expect(run(VERBATIM, 'sdk', '--', 'ls', '-A', '/opt', cwd=cwd)).stdout.split()
    outside = sorted(set(os.listdir('/opt')) | {'mellanox'})
    equal(sorted(inside), outside, 'entries of /opt')
    for name in os.listdir('/opt'):
        path = f'/opt/{name}'
        if name != 'mellanox' and os.path.isdir(path):
            equal(sorted(expect(run(VERBATIM, 'sdk', '--', 'ls', '-A', path, cwd=cwd)).stdout.split('\n')[:-1]),
                  sorted(os.listdir(path)), path)
    # and nothing of it is seen outside
    expect(run(VERBATIM, 'sdk', '--', 'touch', '/opt/mellanox/mark', cwd=cwd))
    equal(os.path.exists('/opt/mellanox/mark'), False, 'a file of the view')


def check_meson_project(cwd):
    """Dependencies by their pkg-config names, device code by a custom target, dpacc from PATH."""
    can_namespace(cwd)
    write(cwd, 'device.c', ADD)
    write(cwd, 'host.c', '''
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <libflexio/flexio.h>
extern struct flexio_app *app;
extern flexio_func_t add;
int main(void)
{
	struct ibv_context *ctx = ibv_open_device(ibv_get_device_list(NULL)[0]);
	struct flexio_process *process;
	uint64_t sum = 0;
	return flexio_process_create(ctx, app, NULL, &process) ||
	       flexio_process_call(process, &add, &sum, (uint64_t)44, (uint64_t)55) || sum != 99 ||
	       flexio_process_destroy(process);
}
''')
    write(cwd, 'meson.build', '''
project('user', 'c')
device = custom_target(input: 'device.c', output: 'app.a', command: ['dpacc', '@INPUT@', '-o', '@OUTPUT@', '-hostcc=gcc',
  '--devicecc-options=-O2, -Wall', '--app-name=app'])
executable('host', 'host.c', link_with: device,
  dependencies: [dependency('libibverbs'), dependency('libmlx5', version: '>= 1.24.44'), dependency('libflexio')])
''')
    for paths in ('', '/opt/mellanox/doca/lib/x86_64-linux-gnu/pkgconfig:/opt/mellanox/flexio/lib/pkgconfig'):
        script = f'export PKG_CONFIG_PATH={paths}:$PKG_CONFIG_PATH; rm -rf build && meson setup build && ninja -C build && "$@"'
        expect(run(VERBATIM, 'sdk', '--', 'bash', '-c', script, 'bash', *SANITIZED, 'build/host', cwd=cwd))


def check_sample_project(cwd):
    """As the vendor's samples are configured: the version from a file, paths from doca-common, device code by its script."""
    can_namespace(cwd)
    write(cwd, 'device.c', ADD)
    write(cwd, 'host.c', 'extern struct flexio_app *app;\nint main(void) { return !app; }\n')
    write(cwd, 'uses.c', '#include <doca_log.h>\nint main(void) { return 0; }\n')
    write(cwd, 'meson.build', """
project('DOCA_SAMPLE', 'c', version: run_command(find_program('cat'),
  files('/opt/mellanox/doca/applications/VERSION'), check: true).stdout().strip())
doca = dependency('doca-common', version: '>= 3.0')
assert(doca.version() == meson.project_version(), doca.version() + ' and ' + meson.project_version())
tools = run_command('dirname', doca.get_variable('includedir'), check: true).stdout().strip() / 'tools'
run_command(tools / 'dpacc', '--version', check: true)
run_command('test', '-e', doca.get_variable('libdir') / 'libflexio.so', check: true)
run_command('/opt/mellanox/doca/tools/build_flexio_device.sh', 'app', files('device.c'), meson.project_build_root(), check: true)
executable('host', 'host.c', objects: [], link_args: [meson.project_build_root() / 'app.a'],
  dependencies: [doca, dependency('libflexio')])
executable('uses', 'uses.c', dependencies: doca, build_by_default: false)
""")
    for paths in ('', '/opt/mellanox/doca/lib/x86_64-linux-gnu/pkgconfig', '/opt/mellanox/flexio/lib/pkgconfig'):
        script = f'export PKG_CONFIG_PATH={paths}:$PKG_CONFIG_PATH; rm -rf build && meson setup build && ninja -C build && "$@"'
        expect(run(VERBATIM, 'sdk', '--', 'bash', '-c', script, 'bash', *SANITIZED, 'build/host', cwd=cwd))
    # What DOCA itself would bring is not here, and the compiler says so.
    expect(run(VERBATIM, 'sdk', '--', 'ninja', '-C', 'build', 'uses', cwd=cwd), 1, stdout='doca_log.h: No such file')
    equal(expect(run(VERBATIM, 'sdk', '--', 'pkg-config', '--libs', 'doca-common', cwd=cwd)).stdout.strip(), '', 'libraries')


def check_device_script(cwd):
    """Its arguments, and what is wrong with them."""
    can_namespace(cwd)
    script = '/opt/mellanox/doca/tools/build_flexio_device.sh'
    write(cwd, 'one.c', ADD)
    write(cwd, 'two.c', ADD.replace('add', 'more'))
    expect(run(VERBATIM, 'sdk', '--', script, 'pair', 'one.c two.c', 'new folder', cwd=cwd))
    expect(run(VERBATIM, 'sdk', '--', 'dpa-nm', 'new folder/pair.a', cwd=cwd))
    expect(run(VERBATIM, 'sdk', '--', script, 'app', 'one.c', cwd=cwd), 2, stderr='usage: build_flexio_device.sh NAME SOURCE FOLDER')
    expect(run(VERBATIM, 'sdk', '--', script, 'app', 'none.c', '.', cwd=cwd), 1, stderr='none.c')


def check_inside_itself(cwd):
    can_namespace(cwd)
    expect(run(VERBATIM, 'sdk', '--', VERBATIM, 'sdk', '--', '/opt/mellanox/doca/tools/dpacc', '-V', cwd=cwd), 0,
           stdout='version')
    expect(run(VERBATIM, 'sdk', '--', '/opt/mellanox/doca/tools/verbatim', 'sdk', '--', 'ls', '/opt/mellanox/flexio', cwd=cwd),
           0, stdout='^include$')


def check_environment(cwd):
    can_namespace(cwd)
    show = ('sdk', '--', 'sh', '-c', 'echo "$PKG_CONFIG_PATH|$LD_LIBRARY_PATH"')
    expect(run(VERBATIM, 'sdk', '--', 'sh', '-c', 'command -v dpacc', cwd=cwd), 0, stdout=rf'^{STAGE}/bin/dpacc$')
    expect(run(VERBATIM, *show, cwd=cwd), 0, stdout=rf'^{STAGE}/lib/pkgconfig\|{STAGE}/lib$')
    expect(run(VERBATIM, *show, cwd=cwd, env={'PKG_CONFIG_PATH': '/a', 'LD_LIBRARY_PATH': '/b'}), 0,
           stdout=rf'^{STAGE}/lib/pkgconfig:/a\|{STAGE}/lib:/b$')


def check_where_namespaces_are_refused(cwd):
    """As in a container that allows neither: no capabilities, and a limit of 0 user namespaces."""
    inner = f'echo 0 >/proc/sys/user/max_user_namespaces && ' \
            f'exec setpriv --bounding-set=-all --inh-caps=-all "{VERBATIM}" sdk -- true'
    done = run('unshare', '-Ur', 'sh', '-c', inner, cwd=cwd)
    if 'verbatim sdk' not in done.stderr and done.returncode:
        raise Skip('no way to make such a place here: ' + done.stderr.strip().replace('\n', ' '))
    expect(done, 125, stderr='^verbatim sdk: .* make install-vendor-paths$')


def check_install_vendor_paths(cwd):
    env = {'DESTDIR': str(cwd)}
    make = ('make', '-s', '-C', TOP, 'install-vendor-paths', 'PREFIX=/usr/verbatim')
    expect(run(*make, cwd=cwd, env=env), 2, stderr='make install PREFIX=/usr/verbatim first')
    shutil.copytree(STAGE, cwd / 'usr/verbatim', symlinks=True)
    for _ in range(2):  # again is no error
        expect(run(*make, cwd=cwd, env=env))
    for link, target in (('doca/tools', 'bin'), ('doca/include', 'include'), ('doca/lib/x86_64-linux-gnu', 'lib'),
                         ('flexio/lib', 'lib'), ('flexio/include', 'include')):
        equal(os.readlink(cwd / 'opt/mellanox' / link), f'/usr/verbatim/{target}', link)
    # never over the vendor's own
    os.unlink(cwd / 'opt/mellanox/doca/tools')
    write(cwd, 'opt/mellanox/doca/tools/dpacc', 'real')
    expect(run(*make, cwd=cwd, env=env), 2, stderr="the vendor's own SDK")
    equal((cwd / 'opt/mellanox/doca/tools/dpacc').read_text(), 'real', 'the vendor\'s file')


main(collect(globals()))
