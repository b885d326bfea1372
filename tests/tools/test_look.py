#!/usr/bin/env python3
"""verbatim ps, stats and top: what they show of a program that did a known number of things."""
import json
import os
import pty
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

VERBATIM = os.path.join(os.environ['VERBATIM_STAGE'], 'bin', 'verbatim')
TRACED = os.path.abspath(sys.argv[1])
STATISTICS = os.path.join(os.environ['VERBATIM_STAGE'], 'bin', 'dpa-statistics')
SHOWS = os.path.abspath(sys.argv[2])
# Of hold: 7 WRITEs of 64 bytes and 3 SENDs of 32, and the 2 WRITEs of a queue pair that is gone.
SENT = 7 * 64 + 3 * 32
PAST = 2 * 64


class Failure(Exception):
    """A check that did not hold."""


def check(held, message):
    if not held:
        raise Failure(message)


def verbatim(*arguments, code=0):
    done = subprocess.run([VERBATIM, *arguments], capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode == code, f'verbatim {arguments}: {done.returncode}, not {code}\n{done.stderr}')
    return done


class Program:
    """The program while it waits."""

    def __init__(self, what='hold'):
        self.what = what

    def __enter__(self):
        self.process = subprocess.Popen([VERBATIM, 'run', '--', TRACED, self.what], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.wait()
        return self

    def wait(self):
        line = self.process.stdout.readline()
        check(line.startswith('ready'), f'the program said {line!r}')
        self.qp = int(line.split()[1], 16)

    def write(self):
        self.process.stdin.write('\n')
        self.process.stdin.flush()
        self.wait()

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=30)


def check_ps(program):
    found = [p for p in json.loads(verbatim('ps', '--json').stdout)['processes'] if p['pid'] == program.process.pid]
    check(len(found) == 1 and found[0]['command'] == 'traced', f'{found}')
    adapter = found[0]['adapters'][0]
    check(adapter['sent_bytes'] == 2 * 0 + SENT + PAST and adapter['received_bytes'] == SENT + PAST, f'{adapter}')
    check(adapter['calls'] == 12 and adapter['packets'] == adapter['stores'] == adapter['copies'] == adapter['retries'] == 0, f'{adapter}')
    check(len(adapter['qps']) == 1, f'{adapter}')
    qp = adapter['qps'][0]
    check((qp['number'], qp['peer'], qp['peer_pid'], qp['type'], qp['state']) ==
          (program.qp, program.qp, program.process.pid, 'RC', 'RTS'), f'{qp}')
    check(qp['requester']['sent_bytes'] == SENT and qp['requester']['calls'] == 10, f'{qp}')
    check(qp['responder']['received_bytes'] == SENT and qp['responder']['packets'] == 10, f'{qp}')
    text = verbatim('ps', '-v').stdout
    check(re.search(rf'^ +{program.process.pid} +\d+ +1 +672 B +672 B  traced$', text, re.M), text)
    check(re.search(rf'QP 0x{program.qp:x} RC RTS, peer 0x{program.qp:x} \({program.process.pid}\), sent 544 B', text), text)


def stats(program):
    return next(a for a in json.loads(verbatim('stats', '--json').stdout)['adapters'] if a['pid'] == program.process.pid)


def check_stats(program):
    check(stats(program)['sent_bytes'] == SENT + PAST and stats(program)['requests_call'] == 12, f'{stats(program)}')
    program.write()
    check(stats(program)['sent_bytes'] == SENT + PAST + 64 and stats(program)['requests_call'] == 13, f'{stats(program)}')
    check(verbatim('stats', '-d', 'mlx5_1').stdout.count('\n') == 1, 'another adapter')
    text = verbatim('stats').stdout
    check(re.search(rf'^mlx5_0 +{program.process.pid} +1 +736 +736 +0 +0 +0 +13 +0 +0  traced$', text, re.M), text)


def check_metrics(text, pid):
    """The rules of OpenMetrics that a reader depends on: families in one piece, known suffixes, an end."""
    check(text.endswith('# EOF\n') and text.count('# EOF') == 1, 'the end')
    family, seen, types = None, set(), {}
    for line in text.splitlines()[:-1]:
        if line.startswith('#'):
            _, what, name, rest = line.split(' ', 3)
            if what == 'TYPE':
                check(name not in seen, f'{name} twice')
                family, types[name] = name, rest
                seen.add(name)
            check(name == family, f'{line}: not of {family}')
        else:
            match = re.fullmatch(r'([a-z_]+)(\{[^}]*\})? (\d+)', line)
            check(match, line)
            check(match[1] == family + ('_total' if types[family] == 'counter' else ''), f'{line}: not of {family}')
    check(f'verbatim_adapter_sent_bytes_total{{adapter="mlx5_0",pid="{pid}",command="traced"}} 736\n' in text, text)
    check(f'pid="{pid}",command="traced",way="call"}} 13\n' in text, text)


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def fetch(port, path='/metrics'):
    with urllib.request.urlopen(f'http://127.0.0.1:{port}{path}', timeout=30) as answer:
        return answer.headers['Content-Type'], answer.read().decode()


def raw(port, data, end=True):
    with socket.create_connection(('127.0.0.1', port), timeout=30) as s:
        s.sendall(data)
        if end:
            s.shutdown(socket.SHUT_WR)
        parts = []
        while part := s.recv(4096):
            parts.append(part)
        return b''.join(parts)


def wait_for_server(port):
    deadline = time.monotonic() + 30
    while True:
        try:
            return fetch(port)
        except (urllib.error.URLError, ConnectionError):
            check(time.monotonic() < deadline, 'no answer')
            time.sleep(0.05)


def check_listen(program):
    port = free_port()
    server = subprocess.Popen([VERBATIM, 'stats', '--listen', str(port)])
    try:
        kind, text = wait_for_server(port)
        check(kind.startswith('application/openmetrics-text; version=1.0.0'), kind)
        check_metrics(text, program.process.pid)
        for path in ('/x', '/metricsx'):
            try:
                fetch(port, path)
                raise Failure(f'{path} is there')
            except urllib.error.HTTPError as error:
                check(error.code == 404, f'{path}: {error.code}')
        check(b' 405 ' in raw(port, b'POST /metrics HTTP/1.1\r\n\r\n'), 'POST')
        # Garbage, half a request and one that is too long are not answered, and do no harm.
        for data in (b'\0' * 100, b'GET /metrics', b'GET /' + b'a' * 100000):
            try:
                check(b'200 OK' not in raw(port, data), f'{data[:20]}')
            except OSError:
                pass
        # One who says nothing holds nobody up for long.
        with socket.create_connection(('127.0.0.1', port)):
            fetch(port)
        check('in use' in verbatim('stats', '--listen', str(port), code=1).stderr, 'the port is taken')
    finally:
        server.terminate()
        check(server.wait(timeout=30) == 0, 'the end of the server')
    check('is wanted' in verbatim('stats', '--listen', 'nonsense:', code=1).stderr, 'a bad address')


def cpu_ticks(pid):
    with open(f'/proc/{pid}/stat', encoding='ascii') as file:
        return sum(int(field) for field in file.read().rsplit(')', 1)[1].split()[11:13])


def check_no_descriptors(program):
    """Where accept() fails for want of descriptors the server waits, and goes on when there are some."""
    port = free_port()
    server = subprocess.Popen([VERBATIM, 'stats', '--listen', str(port)])
    try:
        wait_for_server(port)
        before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        with socket.create_connection(('127.0.0.1', port)) as connection:
            connection.sendall(b'GET /metrics HTTP/1.1\r\n\r\n')
            spent = cpu_ticks(server.pid)
            time.sleep(1)
            spent = cpu_ticks(server.pid) - spent
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, before)
            check(b'200 OK' in connection.recv(64), 'the one who waited')
        # Where it tries again at once it is all of that second, or what other programs leave of it.
        check(spent <= os.sysconf('SC_CLK_TCK') // 10, f'{spent} ticks of processor time for nothing')
        check_metrics(fetch(port)[1], program.process.pid)
    finally:
        server.terminate()
        server.wait(timeout=30)


def check_resets():
    """After a reset, counters are 0 for all who look, before the thread runs again, too."""
    def executions():
        return [t['executions'] for t in json.loads(verbatim('stats', '--json').stdout)['threads']]

    def collect(*options):
        subprocess.run([STATISTICS, 'collect', *options], check=True, stdout=subprocess.DEVNULL, timeout=60)

    with Shows() as program:
        collect('-e')
        for _ in range(3):
            check(program.is_counted(), 'not counted')
        check(executions() == [3], f'{executions()}')
        collect('-r', '-e')
        check(executions() == [0], f'after a reset: {executions()}')
        program.is_counted()
        check(executions() == [1], f'{executions()}')
        collect('-x')


def check_two_directories(folder):
    """Programs of one user may be in two registry directories, each with the same slots."""
    before, os.environ['VERBATIM_SHM_DIR'] = os.environ['VERBATIM_SHM_DIR'], folder
    try:
        with Program() as first:
            name = next(n for n in os.listdir(folder) if n.startswith('verbatim-') and not n.startswith('verbatim-files'))
            os.rename(os.path.join(folder, name), os.path.join(folder, 'aside'))
            with Program() as second:
                os.rename(os.path.join(folder, 'aside'), os.path.join(folder, name + '-1'))
                qps = {p['pid']: p['adapters'][0]['qps'][0] for p in json.loads(verbatim('ps', '--json').stdout)['processes']}
                check(first.qp == second.qp and set(qps) == {first.process.pid, second.process.pid}, f'{qps}')
                for pid, qp in qps.items():
                    check(qp['peer_pid'] == pid, f'{pid}: {qp}')
    finally:
        os.environ['VERBATIM_SHM_DIR'] = before


def check_churn():
    """Counters do not go back while queue pairs come and go."""
    port, least, changes = free_port(), 0, 0
    with Program('churn') as program:
        server = subprocess.Popen([VERBATIM, 'stats', '--listen', str(port)])
        try:
            wait_for_server(port)
            for _ in range(1000):
                found = re.search(rf'sent_bytes_total.*pid="{program.process.pid}".* (\d+)$', fetch(port)[1], re.M)
                value = int(found[1])
                check(value >= least, f'{value} bytes sent after {least}')
                changes += value > least
                least = value
        finally:
            server.terminate()
            server.wait(timeout=30)
    check(changes > 10, f'{changes} changes')


def check_once(program):
    text = verbatim('top', '--once', '-s', '0.1').stdout
    check(re.search(r'^verbatim top - .*, 1 processes, 1 queue pairs, 0 device processes', text), text)
    check(re.search(rf'^mlx5_0 +{program.process.pid} +1 +0 B/s +0 B/s +0 +0 +0  traced$', text, re.M), text)
    check(re.search(rf'^ *0x{program.qp:x} +{program.process.pid} +RC +RTS ', text, re.M), text)
    check('no device threads' in verbatim('top', '--once', '-t', '-s', '0.1').stdout, 'threads')
    check('no terminal' in verbatim('top', code=1).stderr, 'no terminal')
    for bad in ('0', 'x', '1e9'):
        verbatim('top', '-s', bad, code=2)


class Terminal:
    """The tool in a terminal of tmux."""

    def __init__(self, folder, command):
        self.socket = os.path.join(folder, 'tmux')
        self.tmux('new-session', '-d', '-x', '110', '-y', '24', command)

    def tmux(self, *arguments):
        return subprocess.run(['tmux', '-S', self.socket, *arguments], capture_output=True, text=True, timeout=30,
                              env={**os.environ, 'TERM': 'xterm', 'LC_ALL': 'C.UTF-8'}, check=False)

    def wait(self, pattern):
        deadline = time.monotonic() + 30
        while not re.search(pattern, text := self.tmux('capture-pane', '-p').stdout, re.M):
            check(time.monotonic() < deadline, f'no {pattern!r} on the screen:\n{text}')
            time.sleep(0.05)
        return text

    def press(self, *keys):
        self.tmux('send-keys', *keys)

    def is_there(self):
        return self.tmux('has-session').returncode == 0


def check_terminal(program, folder):
    if not shutil.which('tmux'):
        raise Failure('tmux is missing')
    terminal = Terminal(folder, f'{VERBATIM} top -s 0.2; sleep 60')
    terminal.wait(r'^verbatim top - .* 1 queue pairs')
    terminal.wait(rf'^ *0x{program.qp:x} ')
    terminal.press('Tab')
    terminal.wait(r'^no device threads')
    terminal.press('>')
    terminal.wait(r'RUNS/Sv')
    terminal.press('r')
    terminal.wait(r'RUNS/S\^')
    terminal.press('h')
    terminal.wait(r'sort by the column')
    terminal.press('h')
    terminal.tmux('resize-window', '-x', '50', '-y', '8')
    terminal.press('Tab')
    terminal.wait(r'^verbatim top')
    terminal.tmux('resize-window', '-x', '200', '-y', '50')
    terminal.wait(rf'0x{program.qp:x} .*traced')
    terminal.press(' ')
    terminal.wait('stopped: space goes on')
    terminal.press('q')
    deadline = time.monotonic() + 30
    while 'verbatim top' in terminal.tmux('capture-pane', '-p').stdout:
        check(time.monotonic() < deadline, 'q does not end it')
        time.sleep(0.05)
    terminal.tmux('kill-server')


class Shows:
    """A program with a device process that somebody may want to be counted."""

    def __enter__(self):
        self.process = subprocess.Popen([VERBATIM, 'run', '--', SHOWS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        check(self.process.stdout.readline() == 'not counted\n', 'it is counted from its start')
        return self

    def is_counted(self):
        self.process.stdin.write('\n')
        self.process.stdin.flush()
        return self.process.stdout.readline() == 'counted\n'

    def wait(self):
        deadline = time.monotonic() + 30
        while not self.is_counted():
            check(time.monotonic() < deadline, 'nobody counts')
            time.sleep(0.05)

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=30)


def check_ends():
    """However top ends, it leaves no program counting for nobody."""
    with Shows() as program:
        for end in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            top = subprocess.Popen([VERBATIM, 'top', '--once', '-s', '3600'], stdout=subprocess.DEVNULL)
            program.wait()
            top.send_signal(end)
            check(top.wait(timeout=30) == -end, f'{end}: {top.returncode}')
            check(not program.is_counted(), f'counted after {end}')


def start_top(ignore=()):
    pid, master = pty.fork()
    if not pid:
        for sig in ignore:
            signal.signal(sig, signal.SIG_IGN)
        os.environ['TERM'] = 'xterm'
        os.execv(VERBATIM, [VERBATIM, 'top', '-s', '0.1'])
    # What it draws has to be read.
    threading.Thread(target=drain, args=(master,), daemon=True).start()
    return pid, master


def drain(master):
    try:
        while os.read(master, 65536):
            pass
    except OSError:
        pass


def check_pty():
    pid, master = start_top()
    for _ in range(2):  # the second one has the slot and the ids of the first
        with Shows() as program:
            program.wait()
    with Shows() as program:
        program.wait()
        os.write(master, b'\x03')
        check(os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGINT, 'the end by ^C')
        check(not program.is_counted(), 'counted after ^C')
        os.close(master)
        # A terminal that goes, for one who does not hear of it.
        for keys in (b'', b' '):
            pid, master = start_top(ignore=[signal.SIGHUP])
            program.wait()
            os.write(master, keys)
            os.close(master)
            os.waitpid(pid, 0)
            check(not program.is_counted(), 'counted after the end of the terminal')


def main():
    with tempfile.TemporaryDirectory() as folder, Program() as program:
        check_ps(program)
        check_stats(program)
        check_listen(program)
        check_no_descriptors(program)
        check_once(program)
        check_terminal(program, folder)
    with tempfile.TemporaryDirectory() as folder:
        check_two_directories(folder)
    check_churn()
    check_resets()
    check_ends()
    check_pty()
    check('"adapters":[]' in verbatim('stats', '--json').stdout, 'a program that has gone')


if __name__ == '__main__':
    try:
        main()
    except Failure as failure:
        print(f'FAILED: {failure}')
        sys.exit(1)
