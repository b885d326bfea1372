#!/usr/bin/env python3
"""Files of the card as people and scripts meet them, and the directory that they really lie in: private, shared by equal
runs, removed when nobody uses it. What programs find in them is in files.c."""
import os
import re
import signal
import stat
import subprocess
import tempfile
import time

import peers

VERBATIM = os.path.join(peers.stage(), 'bin', 'verbatim')
SHM = os.environ.get('VERBATIM_SHM_DIR', '/dev/shm')
UNIQUE = f'{time.time_ns():x}'  # in names of adapters: trees of earlier runs of this test may still be there


def call(*program, config=None, env=None, verbatim=True, **options):
    environment = {**peers.bare_env(), **(env or {})}
    if config:
        environment['VERBATIM_CONFIG'] = config
    return subprocess.run([VERBATIM, 'run', '--', *program] if verbatim else program, env=environment, capture_output=True,
                          text=True, timeout=60, check=False, **options)


def expect(done, stdout='', code=0, stderr=None):
    what = ' '.join(done.args)
    if done.returncode != code:
        raise peers.Failure(f'{what}: exit code {done.returncode}\n{done.stdout}{done.stderr}')
    if not re.search(stdout, done.stdout, re.M):
        raise peers.Failure(f'{what}: no {stdout!r} in\n{done.stdout}')
    if done.stderr if stderr is None else not re.search(stderr, done.stderr):
        raise peers.Failure(f'{what}: not {stderr!r} but\n{done.stderr}')


def tree_of(config):
    """Where the files of this configuration lie; other tests may make and remove trees meanwhile."""
    done = call('sh', '-c', 'echo "$VERBATIM_FILES"', config=config)
    expect(done, f'^{SHM}/verbatim-files-')
    return done.stdout.strip()


def write_config(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, 'w', encoding='ascii') as out:
        out.write(text)
    return path


def check_programs():
    """The programs that people type, and a shell's own ways."""
    expect(call('ls', '/sys/class/infiniband'), r'^mlx4_0\nmlx5_0\nmlx5_1$')
    expect(call('ls', '/dev/accel'), r'\Aaccel0\naccel1\n\Z')
    expect(call('ls', '-l', '/dev/infiniband', '/sys/class/infiniband/'),
           r'^crw-rw-rw- .* 231, +192 .* uverbs0$(?s:.*)mlx5_0 -> \.\./\.\./devices/pci')
    expect(call('ls', '-lR', '/sys/class/infiniband/mlx5_0/'), r'^-r--r--r-- .* fw_ver$')
    expect(call('find', '/dev/infiniband', '/dev/accel', '-type', 'c'), r'^/dev/infiniband/uverbs0$(?s:.*)^/dev/accel/accel1$')
    expect(call('find', '/sys/class/infiniband/mlx5_0/', '-name', 'state'), r'ports/1/state$')
    expect(call('stat', '-c', '%F %t:%T', '/dev/infiniband/uverbs1'), r'^character special file e7:c1$')
    expect(call('cat', '/sys/class/infiniband/mlx5_0/ports/1/state'), r'^4: ACTIVE$')
    expect(call('realpath', '/sys/class/infiniband/mlx5_0/device'), r'^/sys/devices/pci5642:00/5642:00:00\.0$')
    expect(call('readlink', '-f', '/sys/class/infiniband/mlx5_0/device/driver'), r'/mlx5_core$')
    for shell in ('sh', 'bash'):
        expect(call(shell, '-c', 'cd /sys/class/infiniband && pwd && cd mlx5_0/ports/1 && read s < state && echo $s'),
               r'\A/sys/class/infiniband\n4: ACTIVE\n\Z')
        expect(call(shell, '-c', 'echo /sys/class/infiniband/mlx5*/ports/*/rate'), r'mlx5_0/ports/1/rate .*mlx5_1/ports/1/rate')
        if call(shell, '-c', 'echo x > /sys/class/infiniband/mlx5_0/node_desc').returncode == 0:
            raise peers.Failure(f'{shell}: a file of /sys was written to')
    expect(call('python3', '-c', 'import glob, os; print(sorted(glob.glob("/dev/infiniband/*"))[0], '
                'os.path.realpath("/sys/class/infiniband/mlx5_0"), len(os.listdir("/sys/class/infiniband_verbs")))'),
           r'^/dev/infiniband/uverbs0 /sys/devices/pci5642:00/5642:00:00\.0/infiniband/mlx5_0 6$')


def check_untouched():
    """Other files are as they are, and nothing of ours is left without `verbatim run`."""
    for command in (('ls', '-l', '/dev/null', '/sys/class'), ('cat', '/proc/version'), ('ls', '/sys/class/net')):
        if call(*command).stdout != call(*command, verbatim=False).stdout:
            raise peers.Failure(f'{" ".join(command)}: not as without us')
    # /dev/infiniband need not be there without us, so that this is compared with what it stands for.
    for path, same in (('/dev/infiniband/../null', '/dev/null'), ('/dev/./infiniband/.././/null', '/dev/null'),
                       ('/sys/class/infiniband/../net', '/sys/class/net'), ('/sys/class/infiniband/..', '/sys/class'),
                       ('/dev/accel/../infiniband/../null', '/dev/null')):
        if os.path.exists(same):
            expect(call('stat', '-L', '-c', '%d:%i', path), '^' + call('stat', '-L', '-c', '%d:%i', same, verbatim=False).stdout)
    expect(call('ls', '/dev/accel/../infiniband'), r'^uverbs0$')
    if call('sh', '-c', 'unset LD_PRELOAD; ls /dev/infiniband').stdout != call('ls', '/dev/infiniband', verbatim=False).stdout:
        raise peers.Failure('/dev/infiniband is there without the preload')


def check_adapters(folder):
    """The files follow the configuration: other names, another state, no accelerators."""
    config = write_config(folder, 'down.conf', '[adapter mlx5_7]\naddress = 203.0.113.9\n')
    expect(call('ls', '/sys/class/infiniband', '/dev/infiniband', config=config), r'^uverbs0$(?s:.*)^mlx5_7$')
    expect(call('cat', '/sys/class/infiniband/mlx5_7/ports/1/state', config=config), r'^1: DOWN$')
    expect(call('cat', '/sys/class/infiniband/mlx5_7/ports/1/phys_state', config=config), r'^3: Disabled$')
    expect(call('ls', '/dev/accel', config=config), code=call('ls', '/dev/accel', verbatim=False).returncode, stderr='')
    expect(call('ls', '/sys/class/infiniband/mlx5_0', config=config), code=2, stderr='No such file')
    local = write_config(folder, 'local.conf', '[adapter mlx5_0]\naddress = 127.0.0.1\n')
    expect(call('cat', '/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0', config=local), r'^lo$')
    if os.path.exists('/sys/class/net/lo'):
        expect(call('ls', '/sys/class/infiniband/mlx5_0/device/net', config=local), r'\Alo\n\Z')
        expect(call('cat', '/sys/class/infiniband/mlx5_0/device/net/lo/ifindex', config=local), r'^1$')


def check_tree(folder):
    """One private tree for equal runs, whatever the umask, whoever took its name."""
    name = f'mlx5_t{UNIQUE}'
    config = write_config(folder, 'tree.conf', f'[adapter {name}]\naddress = 127.0.0.5\n')
    made = set()
    for umask in ('022', '777'):
        expect(call('sh', '-c', f'umask {umask}; exec "{VERBATIM}" run -- cat /sys/class/infiniband/{name}/node_type', 'sh',
                    config=config, verbatim=False), '^1: CA$')
        made.add(tree_of(config))
    if len(made) != 1:
        raise peers.Failure(f'{len(made)} trees for two equal runs: {made}')
    tree = made.pop()
    if stat.S_IMODE(os.stat(tree).st_mode) != 0o700:
        raise peers.Failure(f'{tree} is open to others')
    os.rename(tree, tree + '.kept')
    os.symlink('/etc', tree)  # as somebody else might do
    expect(call('cat', f'/sys/class/infiniband/{name}/node_type', config=config), '^1: CA$')
    os.unlink(tree)
    os.rename(tree + '.kept', tree)
    return tree


def check_damage(folder):
    """A program removes files of the tree, as it could not in /sys. The next run has them all, and so have those that run."""
    name = f'mlx5_d{UNIQUE}'
    config = write_config(folder, 'damage.conf', f'[adapter {name}]\naddress = 127.0.0.7\n')
    before = tree_of(config)
    for path in ('/sys/class/infiniband', f'/sys/class/infiniband/{name}/ports/1/state', '/dev/infiniband/uverbs0'):
        user = subprocess.Popen([VERBATIM, 'run', '--', 'sh', '-c', 'read line; ls -d "$0"', path], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, env=peers.bare_env(VERBATIM_CONFIG=config), text=True)
        call('rm', '-rf', path, config=config)
        expect(call('ls', '-d', path, config=config), f'^{path}$')
        if path not in user.communicate('\n', timeout=60)[0]:
            raise peers.Failure(f'{path} is still gone in a program that was there before')
    if tree_of(config) != before:
        raise peers.Failure(f'{tree_of(config)}, and {before} before the damage')


def make_another(folder):
    """A tree that no run has made before, not even one of another test on this machine."""
    make_another.made += 1
    name = f'[adapter mlx5_{UNIQUE}_{make_another.made}]'
    expect(call('true', config=write_config(folder, 'next.conf', f'{name}\naddress = 127.0.0.6\n')))


make_another.made = 0


def is_blind():
    """A process of this user that does not let us look, as in a container with its host's /proc, may use any tree."""
    for pid in filter(str.isdigit, os.listdir('/proc')):
        path = f'/proc/{pid}/environ'
        try:
            with open(path, 'rb'):
                pass
        except PermissionError:
            if os.stat(path).st_uid == os.geteuid():
                return True
        except OSError:
            pass
    return False


def check_removal(folder, tree):
    """The next one to make a tree removes what is old and in nobody's environment. It leaves what somebody else looks at in
    that moment, as a test beside this one may do: then one of the next removes it."""
    old = time.time() - 3600
    for used, is_old in ((True, True), (False, False), (False, True)):
        user = subprocess.Popen(['sleep', '60'], env={'PATH': os.environ['PATH'], 'VERBATIM_FILES': tree if used else '/none'})
        stays = used or not is_old or is_blind()
        for _ in range(1 if stays else 20):
            if not os.path.exists(tree):
                break
            os.utime(tree, (old, old) if is_old else None)
            make_another(folder)
        user.kill()
        user.wait()
        if os.path.exists(tree) != stays:
            raise peers.Failure(f'{tree}: used {used}, old {is_old}, exists {os.path.exists(tree)}')


class Place:
    """A folder for trees that no other program of the machine looks into."""

    def __init__(self, folder, name):
        self.path = os.path.join(folder, name)
        os.mkdir(self.path)
        self.configs = [write_config(folder, f'{name}{i}.conf', f'[adapter mlx5_{i}]\naddress = 127.0.0.{8 + i}\n') for i in range(2)]
        self.env = {'VERBATIM_SHM_DIR': self.path}

    def run(self, config, *program, **options):
        done = call(*program or ('sh', '-c', 'echo "$VERBATIM_FILES"'), config=self.configs[config], env=self.env, **options)
        expect(done)
        return done.stdout.strip()

    def age(self, *paths):
        for path in paths:
            os.utime(path, (time.time() - 3600,) * 2)

    def left(self):
        return sorted(os.path.join(self.path, name) for name in os.listdir(self.path))


def check_leftovers(folder):
    """Any run removes what ended and killed ones left, also where it makes no tree itself; not what a living program uses."""
    place = Place(folder, 'left')
    trees = [place.run(i) for i in (0, 1)]
    half = trees[0] + '.abcdef'
    os.makedirs(half + '/sys/class')
    gone = trees[1] + '.gone'
    os.makedirs(gone + '/dev')
    place.run(1)
    if place.left() != sorted([*trees, half, gone]):
        raise peers.Failure(f'too early: {place.left()}')
    place.age(trees[0], half, gone)
    place.run(1)
    if place.left() != [trees[1]]:
        raise peers.Failure(f'left: {place.left()}, not {trees[1]} alone')


def check_use(folder):
    """A program, its children, and one that writes over its environment, as some do to show a title, keep a tree."""
    place = Place(folder, 'use')
    over = ('import ctypes; libc = ctypes.CDLL(None); libc.getenv.restype = ctypes.c_void_p; '
            'ctypes.memset(libc.getenv(b"VERBATIM_FILES"), 120, 20); print("ready", flush=True); input(); '
            'print(open("/sys/class/infiniband/mlx5_0/node_type").read())')
    child = 'sh -c "echo ready; read line; cat /sys/class/infiniband/mlx5_0/node_type" <&3 & wait'
    for program in (('python3', '-c', over), ('sh', '-c', f'exec 3<&0; sh -c \'{child}\'')):
        user = subprocess.Popen([VERBATIM, 'run', '--', *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                env={'PATH': os.environ['PATH'], 'VERBATIM_CONFIG': place.configs[0], **place.env})
        if user.stdout.readline() != 'ready\n':
            raise peers.Failure(f'{program} did not start')
        for _ in range(2):
            place.age(*place.left())
            place.run(1)
        if '1: CA' not in user.communicate('\n', timeout=60)[0]:
            raise peers.Failure(f'{program}: its tree is gone')
    if is_blind():
        return
    place.age(*place.left())
    tree = place.run(1)
    if place.left() != [tree]:
        raise peers.Failure(f'left: {place.left()}')


def check_descriptors(folder):
    """Without a descriptor for it there is no tree, not a part of one."""
    place = Place(folder, 'fds')
    for number in range(4, 20):
        done = call('sh', '-c', f'ulimit -n {number}; exec "{VERBATIM}" run -- true', config=place.configs[0], env=place.env,
                    verbatim=False)
        whole = [path for path in place.left() if re.search(r'-[0-9a-f]{16}$', path)]
        if place.left() != whole:
            raise peers.Failure(f'with {number} descriptors: {place.left()}\n{done.stderr}')
        for path in whole:
            subprocess.run(['rm', '-rf', path], check=True)


def check_kills(folder):
    """What is killed while it makes a tree leaves something that the next run finds; a polite signal leaves nothing."""
    place = Place(folder, 'kill')
    for number in (signal.SIGTERM, signal.SIGKILL):
        for i in range(10):
            process = subprocess.Popen([VERBATIM, 'run', '--', 'true'], stderr=subprocess.DEVNULL,
                                       env={'PATH': os.environ['PATH'], 'VERBATIM_CONFIG': place.configs[0], **place.env})
            time.sleep(0.002 * i)
            process.send_signal(number)
            process.wait()
            if number == signal.SIGTERM and any('.' in os.path.basename(path) for path in place.left()):
                raise peers.Failure(f'left by SIGTERM: {place.left()}')
            for path in place.left():
                if '.' not in os.path.basename(path):
                    subprocess.run(['rm', '-rf', path], check=True)
    place.age(*place.left())
    tree = place.run(1)
    if place.left() != [tree]:
        raise peers.Failure(f'left: {place.left()}')


def check_no_room():
    """A program that asks libraries runs where the tree cannot be made; a line says what will be missing."""
    if os.geteuid() != 0 or subprocess.run(['unshare', '--mount', 'true'], check=False, capture_output=True).returncode:
        return
    script = f'mount -t tmpfs -o ro none {SHM} && exec "{VERBATIM}" run -- sh -c "echo started; ls /dev/infiniband"'
    done = call('unshare', '--mount', 'sh', '-c', script, verbatim=False)
    expect(done, '^started$', code=2, stderr='cannot make the files of /dev/infiniband .*: Read-only file system')


def run():
    if peers.sanitizer(peers.stage()):
        raise peers.Skip('plain programs cannot load libraries with a sanitizer')
    check_programs()
    check_untouched()
    with tempfile.TemporaryDirectory() as folder:
        check_adapters(folder)
        check_damage(folder)
        check_removal(folder, check_tree(folder))
        check_use(folder)
        check_descriptors(folder)
        if not is_blind():
            check_leftovers(folder)
            check_kills(folder)
    check_no_room()


peers.main(run)
