#!/usr/bin/env python3
"""The verbatim command as a user meets it: what it prints, what it exits with, and that `run` is transparent."""
import os
import re
import shutil
import signal
import subprocess
import tempfile

import peers

VERBATIM = os.path.join(peers.stage(), 'bin', 'verbatim')


def call(*args, env=None, program=VERBATIM, **options):
    environment = {**peers.bare_env(), **(env or {})}
    return subprocess.run([program, *args], env=environment, capture_output=True, text=True, timeout=60,
                          check=False, **options)


def expect(done, code, stdout='', stderr=''):
    """Exit code and a pattern in each output; an output without pattern must be empty where the code is not 0."""
    what = ' '.join(done.args[1:])
    if done.returncode != code:
        raise peers.Failure(f'verbatim {what}: exit code {done.returncode}, not {code}\n{done.stdout}{done.stderr}')
    for name, text, pattern in (('stdout', done.stdout, stdout), ('stderr', done.stderr, stderr)):
        if pattern and not re.search(pattern, text, re.M):
            raise peers.Failure(f'verbatim {what}: no {pattern!r} in {name}:\n{text}')


def check_front():
    expect(call('--help'), 0, stdout=r'^Commands:\n  run ')
    expect(call('--version'), 0, stdout=r'^verbatim \d+\.\d+\.\d+$')
    expect(call(), 2, stderr=r'^Usage: verbatim')
    expect(call('devcies'), 2, stderr=r"unknown command 'devcies'; did you mean 'verbatim devices'\?")
    expect(call('quite-different'), 2, stderr=r"unknown command 'quite-different'\n")
    expect(call('--nonsense'), 2, stderr='unrecognized option')
    for command in ('run', 'sdk', 'devices', 'ps', 'doctor', 'perf', 'inject', 'dpa', 'cable'):
        expect(call(command, '--help'), 0, stdout=rf'^Usage: verbatim {command} ')
    expect(call('dpa'), 2, stderr='which command')
    expect(call('dpa', 'no-such-command'), 2, stderr='unknown command|no accelerator')
    expect(call('dpa', '../run'), 2, stderr='unknown command|no accelerator')


def check_run_is_transparent():
    for code in (0, 1, 7, 255):
        expect(call('run', '--', 'sh', '-c', f'exit {code}'), code)
    expect(call('run', 'sh', '-c', 'echo "$1"', 'sh', '--config'), 0, stdout='^--config$')
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
        expect(call('run', '--', 'sh', '-c', f'kill -{int(number)} $$'), -number)
    # A signal to the process reaches the program, because it is that process.
    sleeper = subprocess.Popen([VERBATIM, 'run', '--', 'sleep', '60'])
    sleeper.send_signal(signal.SIGTERM)
    if sleeper.wait(timeout=30) != -signal.SIGTERM:
        raise peers.Failure(f'SIGTERM: exit code {sleeper.returncode}')
    expect(call('run', '--', 'cat', input='through\n'), 0, stdout='^through$')


def check_run_refuses():
    expect(call('run'), 2, stderr='which program')
    expect(call('run', '--nonsense', 'true'), 2, stderr='unrecognized option')
    expect(call('run', '--', 'no-such-program-here'), 127, stderr='no-such-program-here: not found in PATH')
    nowhere = {'PATH': os.path.dirname(VERBATIM)}
    expect(call('run', 'ibv_devinfo', env=nowhere), 127, stderr='ibv_devinfo: not found in PATH.*install ibverbs-utils')
    expect(call('run', 'ib_send_bw', env=nowhere), 127, stderr='ib_send_bw: not found in PATH.*install perftest')
    expect(call('run', '--', '/no/such/program'), 127, stderr='/no/such/program: No such file')
    expect(call('run', '--', '/etc/passwd'), 126, stderr='/etc/passwd: Permission denied')
    expect(call('run', '--', '/etc'), 126, stderr='/etc: Permission denied')
    with tempfile.NamedTemporaryFile('w', suffix='.sh', dir='/tmp', delete=False) as script:
        script.write('#!/no/such/interpreter\n')
    os.chmod(script.name, 0o755)
    expect(call('run', '--', script.name), 127, stderr='its interpreter is missing')
    os.unlink(script.name)


def check_without_proc():
    """Where something of the machine is missing, the message names it. Needs a mount namespace; passed over without one."""
    hide = 'mount -t tmpfs none /proc || exit 99; exec "$@"'
    for command in (['run', '--', 'true'], ['sdk', '--', 'true'], ['dpa', 'run', 'x.elf']):
        argv = ['--mount'] + ([] if os.geteuid() == 0 else ['--map-root-user'])
        done = call(*argv, 'sh', '-c', hide, 'sh', VERBATIM, *command, program='unshare')
        if done.returncode in (1, 99) and 'verbatim' not in done.stderr:
            return
        expect(done, done.returncode or -1, stderr=r'/proc/self/exe: No such file or directory; is /proc mounted\?$')


def check_warns(folder):
    """A program that the loader does not let us into runs, after a word about it."""
    source, program = os.path.join(folder, 'none.c'), os.path.join(folder, 'none')
    with open(source, 'w', encoding='ascii') as text:
        text.write('int main(void) { return 7; }\n')
    for flag, warning in (('-static', 'is statically linked, so it will not see the card'), ('-static-pie', 'is statically'),
                          ('-pie', '')):
        subprocess.run(['gcc', flag, '-o', program, source], check=True)
        done = call('run', '--', program)
        expect(done, 7, stderr=warning)
        if not warning and done.stderr:
            raise peers.Failure(f'{flag}: {done.stderr}')


def check_libraries():
    lib = os.path.join(os.path.realpath(peers.stage()), 'lib')
    show = ('run', '--', 'sh', '-c', 'echo "[$LD_LIBRARY_PATH]"')
    expect(call(*show), 0, stdout=rf'^\[{re.escape(lib)}\]$')
    expect(call(*show, env={'LD_LIBRARY_PATH': ''}), 0, stdout=rf'^\[{re.escape(lib)}\]$')
    expect(call(*show, env={'LD_LIBRARY_PATH': '/a:/b'}), 0, stdout=rf'^\[{re.escape(lib)}:/a:/b\]$')


def check_config(folder):
    good, bad = os.path.join(folder, 'good.conf'), os.path.join(folder, 'bad.conf')
    with open(good, 'w', encoding='ascii') as text:
        text.write('[adapter mlx5_9]\naddress = 127.0.0.1\nmtu = 512\n[adapter mlx5_8]\naddress = 203.0.113.9\npart = connectx-5\n')
    with open(bad, 'w', encoding='ascii') as text:
        text.write('[adapter mlx5_0]\n\nmtu = 1500\n')
    message = rf'{re.escape(bad)}:3: mtu: .1500. is not a path MTU; allowed: 256, 512'
    expect(call('devices', '--config', good), 0, stdout=r'^mlx5_9 +mlx5 +ACTIVE +127\.0\.0\.1 +512 +lo ')
    expect(call('devices', '--config', good), 0, stdout=r'^mlx5_8 +mlx5 +DOWN +203\.0\.113\.9 ')
    expect(call('devices', '-v', env={'VERBATIM_CONFIG': good}), 0,
           stdout=r'functions +4 emulated, vhca_id 0x100 to 0x103, 64 queues and 64 vectors each')
    expect(call('devices', '-v', env={'VERBATIM_CONFIG': good}), 0, stdout=r'GID 3 .*ffff:7f00:0001 +RoCE v2 +127\.0\.0\.1')
    expect(call('devices', '-v', '--config', good), 0, stdout=r'part +0xa2dc, firmware 32\.\S+, board MT_0000000884$(?s:.*)'
           r'part +0x1017, firmware 16\.\S+, board MT_0000000008$')
    expect(call('devices', '--config', bad), 1, stderr=message)
    expect(call('run', '--config', bad, '--', 'true'), 125, stderr=message)
    expect(call('run', '--', 'true', env={'VERBATIM_CONFIG': bad}), 125, stderr=message)
    expect(call('run', '--config', folder + '/none', 'true'), 125, stderr='none: No such file')
    expect(call('run', '--config', '', 'true'), 125, stderr='No such file')
    expect(call('run', '--config', folder, 'true'), 125, stderr=rf'{re.escape(folder)}: Is a directory')
    expect(call('run', '--config', '/dev/zero', 'true'), 125, stderr='/dev/zero: not a regular file')
    pipe = os.path.join(folder, 'pipe')
    os.mkfifo(pipe)
    expect(call('devices', '--config', pipe), 1, stderr='pipe: not a regular file')
    # The program may change its directory: what it gets is an absolute path.
    done = call('run', '--config', 'good.conf', '--', 'sh', '-c', 'cd / && echo $VERBATIM_CONFIG', cwd=folder)
    expect(done, 0, stdout=rf'^{re.escape(os.path.realpath(good))}$')
    expect(call('devices'), 0, stdout=r'^mlx5_0 +mlx5 +ACTIVE .*\nmlx5_1 +mlx5 +ACTIVE .*\nmlx4_0 +mlx4 +ACTIVE ')
    expect(call('devices', 'surplus'), 2, stderr='Too many arguments')


def check_can_be_moved(folder):
    """The tree finds its own files wherever it is copied, pkg-config files included."""
    moved = os.path.join(folder, 'moved')
    shutil.copytree(peers.stage(), moved, symlinks=True)
    tool = os.path.join(moved, 'bin', 'verbatim')
    expect(call('devices', program=tool), 0, stdout='^mlx5_0 ')
    expect(call('run', 'sh', '-c', 'echo $LD_LIBRARY_PATH', program=tool), 0, stdout=rf'^{re.escape(moved)}/lib$')
    folder = os.path.join(moved, 'lib', 'pkgconfig')
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        with open(os.path.join(folder, name), encoding='utf-8') as text:
            if os.path.realpath(peers.stage()) in text.read():
                raise peers.Failure(f'{name} names the tree it was built in')
    os.unlink(os.path.join(moved, 'lib', 'libibverbs.so.1'))
    expect(call('run', 'true', program=tool), 125, stderr='libibverbs.so.1.*is the installation complete')


def check_output_is_lost():
    """A full or closed standard output is named, and is no success."""
    for args in (['devices'], ['devices', '-v'], ['ps'], ['--help'], ['run', '--help'], ['--version']):
        for where, why in (('>/dev/full', 'No space left on device'), ('>&-', 'Bad file descriptor')):
            done = call('-c', f'exec "$0" "$@" {where}', VERBATIM, *args, program='/bin/sh')
            expect(done, 1, stderr=rf'^verbatim.*: standard output: {why}$')
    # What the program finds is what we found.
    done = call('-c', '"$0" run -- sh -c "ls -d /proc/self/fd/[12]" 2>&1 >&-', VERBATIM, program='/bin/sh')
    expect(done, 2, stdout='ls: write error: Bad file descriptor')


def check_bare_environment():
    for env in ({'HOME': ''}, {'LC_ALL': 'tr_TR.UTF-8', 'LANG': 'xx'}, {'TERM': 'dumb', 'COLUMNS': '-1'}):
        expect(call('devices', env=env), 0, stdout='^mlx5_0 ')
    done = subprocess.run([VERBATIM, 'run', '/bin/sh', '-c', 'echo "$LD_LIBRARY_PATH"'],
                          env={'VERBATIM_SHM_DIR': os.environ.get('VERBATIM_SHM_DIR', '')}, capture_output=True,
                          text=True, timeout=60, check=False)
    expect(done, 0, stdout='/lib$')


def check_log(folder):
    log = os.path.join(folder, 'log')
    expect(call('devices', env={'VERBATIM_LOG': 'loud'}), 0, stderr='VERBATIM_LOG=loud is not a level; allowed: error, ')
    expect(call('devices', env={'VERBATIM_LOG_FILE': '/no/such/file'}), 0,
           stderr='VERBATIM_LOG_FILE: /no/such/file: No such file or directory; the log goes to standard error')
    expect(call('devices', env={'VERBATIM_DIRECT': 'of'}), 0, stderr='VERBATIM_DIRECT=of has no effect; allowed: on, off')
    if call('devices', env={'VERBATIM_DIRECT': 'off'}).stderr:
        raise peers.Failure('VERBATIM_DIRECT=off is complained of')
    if call('devices', env={'VERBATIM_LOG': 'info', 'VERBATIM_LOG_FILE': log}).stderr:
        raise peers.Failure('a good VERBATIM_LOG and VERBATIM_LOG_FILE are complained of')


def check_odd_folders(folder):
    """Blanks in the tree's own path work; what the loader cannot take is refused with the reason."""
    # a plain program cannot load a library with a sanitizer, which opening the file would do
    file = '/dev/null' if peers.sanitizer(peers.stage()) else '/sys/class/infiniband/mlx5_0/ports/1/phys_state'
    show = ('run', '--', 'cat', file)
    for name, code, stdout, stderr in (('with blanks', 0, '' if file == '/dev/null' else r'^\d: ', ''),
                                       ('with:colon', 125, '', "takes no folder with ':'.*move the installation")):
        tree = os.path.join(folder, name)
        shutil.copytree(peers.stage(), tree, symlinks=True)
        done = call(*show, program=os.path.join(tree, 'bin', 'verbatim'))
        expect(done, code, stdout=stdout, stderr=stderr)
        if not code and done.stderr:
            raise peers.Failure(f'{name}: {done.stderr}')


def check_ps():
    expect(call('ps'), 0, stdout=r'^ +PID +SLOT +QPS +SENT +RECEIVED  COMMAND$')
    expect(call('ps', '-v'), 0, stdout=r'^ +PID +SLOT +QPS +SENT +RECEIVED  COMMAND$')
    port = peers.Port()
    with peers.World() as world:
        server = peers.start_server(world, ['ibv_rc_pingpong', '-g', '0', '-p', str(port.number)], port)
        expect(call('ps'), 0, stdout=rf'^ +{server.process.pid} +\d+ .*  ibv_rc_pingpong$')
        server.end()
    if re.search(rf'^ +{server.process.pid} ', call('ps').stdout, re.M):
        raise peers.Failure('a killed process is still listed')


def run():
    check_front()
    check_run_is_transparent()
    check_run_refuses()
    check_without_proc()
    check_libraries()
    check_output_is_lost()
    check_bare_environment()
    check_ps()
    with tempfile.TemporaryDirectory() as folder:
        check_config(folder)
        check_log(folder)
        check_warns(folder)
        check_odd_folders(folder)
        check_can_be_moved(folder)


peers.main(run)
