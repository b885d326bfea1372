#!/usr/bin/env python3
"""verbatim inject beside programs that are stopped, have no descriptor left, or open their devices in a race; odd command lines and scripts."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

VERBATIM = os.path.join(os.environ['VERBATIM_STAGE'], 'bin', 'verbatim')
HOLDS = os.path.abspath(sys.argv[1])
DOWN, ACTIVE = 1, 4


class Failure(Exception):
    """A check that did not hold."""


def check(held, message):
    if not held:
        raise Failure(message)


def inject(*arguments, code=0):
    done = subprocess.run([VERBATIM, 'inject', *arguments], capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode == code, f'verbatim inject {arguments}: {done.returncode}, not {code}\n{done.stdout}{done.stderr}')
    return done.stdout if not code else done.stderr


class Program:
    def __enter__(self):
        self.process = subprocess.Popen([VERBATIM, 'run', '--', HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        check(self.process.stdout.readline() == 'ready\n', 'the program is not ready')
        self.pid = self.process.pid
        return self

    def do(self, what):
        self.process.stdin.write(what + '\n')
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def __exit__(self, *_):
        self.process.stdin.close()
        check(self.process.wait(timeout=60) == 0, 'the program failed')


def check_command_line():
    with Program() as program:
        for pid in ('0', '-1', '', 'x', '1x', str(program.pid + (1 << 32)), str(1 << 31), '9' * 30):
            inject('--pid', pid, 'mlx5_0', 'port', '1', 'down', code=2)
        for when in ('0s', '1ms'):
            check('times are for scripts' in inject('at', when, 'mlx5_0', 'port', '1', 'down', code=2), when)
        check(program.do('state') == ACTIVE, 'refused, but done')
        # Names are the programs' own choice.
        program.do('name')
        said = inject('--pid', str(program.pid), 'mlx5_0', 'fail', 'pd', '0')
        check('\x1b' not in said and 'a?[31mb' in said, f'{said!r}')
        said = inject('--pid', str(program.pid), 'mlx5_0', 'qp', 'all', 'error', code=1)
        check('\x1b' not in said and 'a?[31mb' in said, f'{said!r}')


def check_stopped():
    """What was not answered was not done, then or later; and each of many commands ends."""
    with Program() as program:
        inject('mlx5_0', 'fail', 'pd', '0')  # somebody listens
        os.kill(program.pid, signal.SIGSTOP)
        tools = [subprocess.Popen([VERBATIM, 'inject', 'mlx5_0', 'port', '1', 'down'], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True) for _ in range(12)]
        try:
            for tool in tools:
                said = tool.communicate(timeout=60)[0]
                check(tool.returncode == 1 and 'does not answer' in said, f'{tool.returncode}: {said}')
        finally:
            for tool in tools:
                tool.kill()
            os.kill(program.pid, signal.SIGCONT)
        inject('mlx5_0', 'fail', 'pd', '0')  # behind all of them
        check(program.do('state') == ACTIVE, 'done, though the command had given up')


def check_closed_in():
    """A program that ends where it makes a socket is not asked to make one."""
    with Program() as program:
        check(program.do('closed in') == 0, 'no filter')
        said = inject('--pid', str(program.pid), 'mlx5_0', 'port', '1', 'down', code=1)
        check('does not answer' in said, said)
        check(program.do('state') == ACTIVE, 'done')


def check_stopped_command():
    """A command that is stopped and goes on gets its answer."""
    with Program() as program:
        inject('mlx5_0', 'fail', 'pd', '0')
        os.kill(program.pid, signal.SIGSTOP)
        tool = subprocess.Popen([VERBATIM, 'inject', 'mlx5_0', 'port', '1', 'down'], stdout=subprocess.PIPE)
        time.sleep(1)  # by then it waits for the answer; if not, nothing is tested here
        os.kill(tool.pid, signal.SIGSTOP)
        os.kill(tool.pid, signal.SIGCONT)
        os.kill(program.pid, signal.SIGCONT)
        tool.communicate(timeout=60)
        check(tool.returncode == 0 and program.do('state') == DOWN, f'{tool.returncode}')


def check_killed():
    """Of all programs one dies while it is asked: it is not one that refused."""
    for listening in (True, False):
        dies = Program().__enter__()
        with Program() as program:
            if listening:
                inject('--pid', str(dies.pid), 'mlx5_0', 'fail', 'pd', '0')
            os.kill(dies.pid, signal.SIGSTOP)
            tool = subprocess.Popen([VERBATIM, 'inject', 'mlx5_0', 'port', '1', 'down'], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
            time.sleep(1)  # by then it waits for the first one; if not, nothing is tested here
            dies.process.kill()
            dies.process.wait()
            said = tool.communicate(timeout=60)[0]
            check(tool.returncode == 0 and str(program.pid) in said, f'{tool.returncode}: {said}')
            check(program.do('state') == DOWN, 'not done')


def check_full():
    """A program without descriptors is not held up by who asks it."""
    with Program() as program:
        inject('mlx5_0', 'fail', 'pd', '0')
        program.do('full')
        before = program.do('cpu')
        inject('mlx5_0', 'port', '1', 'down', code=1)
        spent = program.do('cpu') - before
        check(spent < 500, f'{spent} ms of processor time')
        check(program.do('state') == ACTIVE, 'done without an answer')


def check_no_device():
    """A program that has closed its devices can still be asked for some seconds; then it has no card."""
    with Program() as program:
        inject('mlx5_0', 'fail', 'pd', '0')
        program.do('close')
        said = inject('--pid', str(program.pid), 'mlx5_0', 'port', '1', 'down', code=1)
        check('mlx5_0 is not open' in said or 'has no card open' in said, said)
        while 'has no card open' not in said:
            time.sleep(0.1)
            if program.process.poll() is None and listens(program.pid):
                continue
            said = inject('--pid', str(program.pid), 'mlx5_0', 'port', '1', 'down', code=1)
        program.do('open')
        check(program.do('state') == ACTIVE, 'done without a device')
        inject('--pid', str(program.pid), 'mlx5_0', 'port', '1', 'down')
        check(program.do('state') == DOWN, 'not done')


def listens(pid):
    with open('/proc/net/unix', encoding='ascii', errors='replace') as table:
        return any(re.search(rf'@verbatim/\d+/\d+/{pid}/', line) for line in table)


def run_script(text, *program, code=0):
    with tempfile.NamedTemporaryFile() as script:
        script.write(text)
        script.flush()
        done = subprocess.run([VERBATIM, 'inject', '--script', script.name, '--', *program], capture_output=True, text=True,
                              timeout=60, check=False)
    check(done.returncode == code, f'{text[:60]}: {done.returncode}, not {code}\n{done.stdout}{done.stderr}')
    return done.stdout if not code else done.stderr


def check_scripts():
    # Faults from the start hold for every thread, whichever is the first: a script that takes long to read.
    late = ''.join(f'at {5000 - i}s mlx5_0 fatal\n' for i in range(4000))
    for _ in range(3):
        said = run_script(late.encode() + b'mlx5_0 port 1 down\n', HOLDS, 'race')
        check(said.split() == [str(DOWN)] * 8, f'{said}')
    # A line of as many characters as are allowed, and one more.
    line = b'mlx5_0 port 1 down #'
    run_script(line + b'x' * (256 - len(line)) + b'\n', 'true')
    check(':1: ' in run_script(line + b'x' * (257 - len(line)) + b'\n', 'true', code=125), 'too long')
    # What a NUL hides is not taken for a comment.
    for bad in (b'mlx5_0 port 1 down\0 nonsense\n', b'\0nonsense\n', b'mlx5_0 fatal\n\0', b'\xff\xfem\0l\0'):
        check('NUL' in run_script(bad, 'true', code=125) or bad[0] == 0xff, f'{bad}')
    # Found bad by the program itself, which opens its adapter in vain.
    for script in ('/nonexistent', '/dev/null/x'):
        done = subprocess.run([VERBATIM, 'run', '--', HOLDS], env={**os.environ, 'VERBATIM_INJECT': script}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, check=False)
        check(done.returncode > 0 and f'VERBATIM_INJECT: {script}: ' in done.stderr, f'{done.returncode}\n{done.stderr}')


for test in (check_command_line, check_scripts, check_stopped_command, check_killed, check_full, check_no_device, check_closed_in, check_stopped):
    test()
print('ok')
