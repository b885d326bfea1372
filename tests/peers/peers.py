"""What the tests of this folder share: starting programs through `verbatim run`, as whom, and ending them.

Everything is bounded in time, and only processes started here are ended, by their own pid: `verbatim run` becomes the
program, so that pid is the program's. Ports are claimed by an abstract socket each, so that tests that run at the same
time (of any user of this network namespace) never share one.
"""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

SKIP = 77
NOBODY = 65534


class Failure(Exception):
    """A check that did not hold; the message says which."""


class Skip(Exception):
    """This machine lacks something; the message says what."""


def stage():
    path = os.environ.get('VERBATIM_STAGE', '')
    if not os.access(os.path.join(path, 'bin', 'verbatim'), os.X_OK):
        raise Failure(f'VERBATIM_STAGE={path} has no bin/verbatim; run make first')
    return path


def sanitizer(tree):
    """The sanitizer run-time that the staged libraries want in front, or None."""
    with open(os.path.join(tree, 'lib', 'libibverbs.so.1'), 'rb') as library:
        match = re.search(rb'lib[at]san\.so\.\d+', library.read())
    if not match:
        return None
    return subprocess.run(['gcc', '-print-file-name=' + match[0].decode()], check=True, capture_output=True,
                          text=True).stdout.strip()


def bare_env(**more):
    """An environment with nothing of the caller's, except for where the registry is."""
    env = {'PATH': os.environ.get('PATH', '/usr/bin:/bin'), 'LANG': 'C', **more}
    if 'VERBATIM_SHM_DIR' in os.environ:
        env['VERBATIM_SHM_DIR'] = os.environ['VERBATIM_SHM_DIR']
    return env


def main(run):
    """Exit as meson wants it: 0 passed, 77 skipped with its reason as the last line, else failed."""
    try:
        run()
    except Skip as skip:
        print(skip)
        sys.exit(SKIP)
    except Failure as failure:
        print(f'FAILED: {failure}')
        sys.exit(1)


def poll_until(done, seconds, what):
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise Failure(f'{what}: not within {seconds} s')
        time.sleep(0.01)


class Port:
    """A TCP port nobody else uses: below the ephemeral range, claimed by name until this process ends."""

    def __init__(self):
        for number in range(20000 + os.getpid() % 8000, 32000):
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                claim.bind(f'\0verbatim-test-port-{number}')
                self.probe(number)
            except OSError:
                claim.close()
                continue
            self.number, self.claim = number, claim
            return
        raise Failure('no free TCP port between 20000 and 32000')

    @staticmethod
    def probe(number):
        """Raise OSError where the port is taken, by whatever family of addresses."""
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                probe = socket.socket(family)
            except OSError:
                continue  # a kernel without this family
            with probe:
                probe.bind(('', number))

    def listening(self):
        """Whether a program listens here. Read from /proc: a connection would be taken for the client."""
        wanted = f':{self.number:04X}'
        for table in ('/proc/net/tcp', '/proc/net/tcp6'):
            try:
                with open(table, encoding='ascii') as lines:
                    if any(f[1].endswith(wanted) and f[3] == '0A' for f in map(str.split, lines) if len(f) > 3):
                        return True
            except OSError:
                continue
        return False


class World:
    """Who the programs run as and where: a folder of their own, and an installed tree they can read."""

    def __init__(self, unprivileged=False, config=None, extra_env=()):
        if unprivileged and os.geteuid() != 0:
            raise Skip('needs root to become another user (the other tests ran as an ordinary user already)')
        self.ids = {}
        self.tree = stage()
        self.home = tempfile.mkdtemp(prefix='verbatim-peers-')
        self.started = []
        self.extra_env = dict(setting.split('=', 1) for setting in extra_env)
        self.preload = sanitizer(self.tree)
        self.seconds = 400 if self.preload else 150
        if unprivileged:
            self.ids = {'user': NOBODY, 'group': NOBODY, 'extra_groups': []}
            os.chown(self.home, NOBODY, NOBODY)
            if self.call(['test', '-x', os.path.join(self.tree, 'bin', 'verbatim')]) != 0:
                copy = os.path.join(self.home, 'stage')
                shutil.copytree(self.tree, copy, symlinks=True)
                os.chmod(self.home, 0o755)
                self.tree = copy
        if config:
            shutil.copy(config, os.path.join(self.home, 'verbatim.conf'))
            os.chmod(os.path.join(self.home, 'verbatim.conf'), 0o644)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for program in self.started:
            program.end()
        shutil.rmtree(self.home, ignore_errors=True)

    def environment(self):
        """Nothing of the caller's: a program must run from a bare environment."""
        env = bare_env(HOME=self.home, TMPDIR=self.home)
        config = os.path.join(self.home, 'verbatim.conf')
        if os.path.exists(config):
            env['VERBATIM_CONFIG'] = config
        for name in ('VERBATIM_LOG', 'VERBATIM_SHARE', 'ASAN_OPTIONS', 'TSAN_OPTIONS', 'UBSAN_OPTIONS'):
            if name in os.environ:
                env[name] = os.environ[name]
        if self.preload:
            # What Debian's own programs do in handlers of signals is not ours to report either.
            env['TSAN_OPTIONS'] = ':'.join(filter(None, (env.get('TSAN_OPTIONS'), 'report_signal_unsafe=0')))
        return {**env, **self.extra_env}

    def call(self, command):
        return subprocess.run(command, cwd='/', env=self.environment(), check=False, **self.ids).returncode

    def command(self, program):
        """The program under verbatim run; with a sanitizer its run-time must be the first library."""
        run = [os.path.join(self.tree, 'bin', 'verbatim'), 'run', '--']
        if self.preload:
            # What Debian's own programs leave allocated is not ours to report.
            leaks = [] if 'ASAN_OPTIONS' in os.environ else ['ASAN_OPTIONS=detect_leaks=0']
            run = ['env', f'LD_PRELOAD={self.preload}'] + leaks + run
        return run + program

    def bring(self, path):
        """A file of the build tree where the programs can read it, whoever they are."""
        if self.call(['test', '-r', path]) == 0:
            return path
        copy = shutil.copy(path, self.home)
        os.chmod(copy, 0o755)
        os.chmod(self.home, 0o755)
        return copy

    def start(self, program):
        if not shutil.which(program[0]):
            raise Skip(f'{program[0]} is not installed')
        started = Program(self, program)
        self.started.append(started)
        return started


class Program:
    """One running program; its output goes to a file, which no full pipe can stop."""

    def __init__(self, world, argv):
        self.name = ' '.join(argv)
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(world.command(argv), stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=subprocess.STDOUT, cwd=world.home, env=world.environment(), **world.ids)

    @property
    def output(self):
        self.log.seek(0)
        return self.log.read().decode(errors='replace')

    def wait(self, seconds):
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f'{self.name}: still running after {seconds:.0f} s') from None

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def show(self):
        code = self.process.poll()
        print(f'--- {self.name}: {"running" if code is None else f"exit code {code}"}\n{self.output.rstrip()}')


def start_server(world, argv, port):
    """Start a program that will listen on a port, and wait until it does."""
    server = world.start(argv)
    poll_until(lambda: port.listening() or server.process.poll() is not None, world.seconds,
               f'{server.name}: listening')
    if server.process.poll() is not None:
        raise Failure(f'{server.name}: ended before it listened, exit code {server.process.returncode}')
    return server


def run_pair(world, server_argv, client_argv, port):
    """Start the server, then the client once it listens, and wait for both. (server, client)"""
    server = start_server(world, server_argv, port)
    client = world.start(client_argv)
    deadline = time.monotonic() + world.seconds
    for side in (client, server):
        code = side.wait(max(1, deadline - time.monotonic()))
        if code != 0:
            # Give the other side a moment to say what it saw.
            time.sleep(0.2)
            raise Failure(f'{side.name}: exit code {code}')
    return server, client
