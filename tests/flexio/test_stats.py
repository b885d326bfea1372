#!/usr/bin/env python3
"""dpa-ps and dpa-statistics beside a program whose calls are known: what they print, and what they exit with.

usage: test_stats.py STAGE SERVER DEVICE_ELF
"""
import json
import os
import re
import resource
import signal
import subprocess
import sys

STAGE, SERVER, ELF = sys.argv[1:]
COST = 2001  # instructions of a call
NAME = 'al"pha\x1b[1m'
SHOWN = r'al"pha\x1b[1m'


def run(tool, *args, code=0):
    done = subprocess.run([os.path.join(STAGE, 'bin', tool), *args], capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == code, f'{done.args}: {done.returncode}\n{done.stdout}{done.stderr}'
    assert bool(done.stderr) == bool(code), done.stderr
    return done.stdout if not code else done.stderr


class Program:
    def __init__(self):
        self.process = subprocess.Popen([SERVER, ELF, 'serve'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ready()

    def ready(self):
        assert self.process.stdout.readline() == 'ready\n'

    def call(self, times):
        self.process.stdin.write(f'{times}\n')
        self.process.stdin.flush()
        self.ready()

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0


def rpc(output, where='threads'):
    """The thread of the calls in an answer of JSON."""
    threads = [t for t in json.loads(output)['processes'][0][where] if t['name'] == 'RPC']
    assert len(threads) == 1, output
    return threads[0]


def check_front():
    for tool in ('dpa-ps', 'dpa-statistics'):
        for option in ('--help', '-?', '-h'):
            assert run(tool, option).startswith(f'Usage: {tool} ')
        assert re.fullmatch(rf'{tool} \(Verbatim\) \d+\.\d+\.\d+\n', run(tool, '--version'))
        command = ['show'] if tool == 'dpa-statistics' else []
        assert 'no card nonsense' in run(tool, *command, '-d', 'nonsense', code=1)
        assert 'has no accelerator' in run(tool, *command, '-d', 'mlx4_0', code=1)
        assert 'no DPA process abc' in run(tool, *command, '-p', 'abc', code=1)
        for bad in ('xyz', '', '-1', '1,', '1,,2', 'ffffffff', '100000000', ' 1'):
            run(tool, *command, '-p', bad, code=2)
        run(tool, *command, '--nonsense', code=2)
        run(tool, *command, 'nonsense', code=2)
    run('dpa-statistics', code=2)
    run('dpa-statistics', 'collect', '-e', '-x', code=2)
    run('dpa-statistics', 'collect', '-e', '-t', '5', code=2)
    run('dpa-statistics', 'collect', 'show', code=2)
    run('dpa-statistics', 'show', '-r', code=2)
    for bad in ('0', '-1', '5x', '', '1000000001'):
        run('dpa-statistics', 'collect', '-t', bad, code=2)


def check_empty():
    assert run('dpa-ps') == 'ProcessID    Process Name\n'
    assert run('dpa-ps', '-i') == ''
    assert json.loads(run('dpa-ps', '--json')) == {'device': 'mlx5_0', 'processes': []}
    assert json.loads(run('dpa-statistics', 'show', '--json'))['processes'] == []


def check_ps(program):
    shown = json.loads(run('dpa-ps', '-j', '-t'))['processes']
    assert len(shown) == 1 and shown[0]['name'] == NAME and shown[0]['num_of_threads'] == 2
    pid = f'{shown[0]["id"]:x}'
    threads = {t['name']: f'{t["id"]:x}' for t in shown[0]['threads']}
    assert sorted(threads) == ['RPC', 'beta']
    lines = run('dpa-ps', '-d', 'mlx5_0', '-t').splitlines()
    assert lines[:3] == ['ProcessID    Process Name', '  ThreadID     Thread Name', f'{pid:12} {SHOWN}']
    assert sorted(lines[3:]) == sorted(f'  {number:12} {name}' for name, number in threads.items())
    assert run('dpa-ps', '-i', '--process-id', pid) == f'{pid:12} {SHOWN}\n'
    assert run('dpa-ps', '--suppress-header-info', '-p', f'{pid},0x{pid}') == f'{pid:12} {SHOWN}\n'
    assert run('dpa-ps', '-i', '-d', 'mlx5_1') == ''
    run('dpa-ps', '-p', f'{pid},1234567', code=1)
    return pid


def check_poor(pid):
    """With little memory, or few descriptors, a list is whole, or there is none and the tool says so."""
    poor = [(resource.RLIMIT_NOFILE, n) for n in range(4, 10)]
    if 'san' not in subprocess.run(['ldd', os.path.join(STAGE, 'bin', 'dpa-ps')], capture_output=True, text=True,
                                   check=True).stdout:
        poor += [(resource.RLIMIT_AS, kib << 10) for kib in range(5000, 9000, 40)]
    for what, limit in poor:
        for tool in (['dpa-ps', '-i'], ['dpa-statistics', 'show', '-i']):
            done = subprocess.run([os.path.join(STAGE, 'bin', tool[0]), *tool[1:]], capture_output=True, text=True, timeout=60,
                                  preexec_fn=lambda: resource.setrlimit(what, (limit, limit)), check=False)
            assert done.stdout.startswith(f'{pid:12} ') if not done.returncode else not done.stdout, f'{tool}, {limit}: {done}'


def check_counters(program, pid, deterministic):
    assert run('dpa-statistics', 'collect', '-e', '-r', '-p', pid) == ''
    program.call(10)
    counted = rpc(run('dpa-statistics', 'show', '--json'))
    assert counted['instructions'] == 10 * COST and counted['executions'] == 10
    assert counted['time'] == counted['cycles'] > 0
    if deterministic:
        assert counted['cycles'] == 10 * COST
    assert run('dpa-statistics', 'collect', '--disable') == ''
    program.call(3)
    lines = run('dpa-statistics', 'show', '-d', 'mlx5_0', '-p', pid).splitlines()
    assert lines[0] == 'ProcessID    Process Name' and lines[2] == f'{pid:12} {SHOWN}'
    assert lines[1].split() == ['ThreadID', 'Cycles', 'Instruction', 'Time', 'Executions', 'Thread', 'Name']
    rows = {row[-1]: row for row in map(str.split, lines[3:])}
    assert rows['beta'][1:5] == ['0', '0', '0', '0']
    assert rows['RPC'] == [f'{counted["id"]:x}', str(counted['cycles']), str(10 * COST), str(counted['time']), '10', 'RPC']


def collect(program, args, calls, end):
    """Collect while the program calls, until Ctrl-C."""
    run('dpa-statistics', 'collect', '-x', '-r')  # so that what is counted below is counted by it
    tool = subprocess.Popen([os.path.join(STAGE, 'bin', 'dpa-statistics'), 'collect', '-r', '--json', *args],
                            stdout=subprocess.PIPE, text=True)
    while not rpc(run('dpa-statistics', 'show', '--json'))['executions']:
        program.call(1)
    program.call(calls)
    tool.send_signal(end)
    output = tool.communicate(timeout=60)[0]
    assert tool.returncode == 0
    return output


def check_collect(program, pid):
    for args, end in ((['-p', pid], signal.SIGINT), ([], signal.SIGTERM), (['-t', '60000'], signal.SIGINT)):
        output = collect(program, args, 50, end)
        counted = rpc(output)
        assert 51 <= counted['executions'], output
        assert counted['instructions'] == counted['executions'] * COST
        assert json.loads(output)['collected_ms'] > 0
        before = run('dpa-statistics', 'show', '--json')
        program.call(2)
        assert before == run('dpa-statistics', 'show', '--json')  # it is off again
    lines = run('dpa-statistics', 'collect', '-t', '20', '-r').splitlines()
    assert re.fullmatch(r'Collected for \d+ ms', lines[0])
    assert run('dpa-statistics', 'collect', '-t', '1', '-r', '-i').startswith(f'{pid:12} ')


def begin_collecting(program, *ids):
    """Processes are counted when this returns; that of the program is the last of the ids, and the first of all."""
    run('dpa-statistics', 'collect', '-x', '-r')
    tool = subprocess.Popen([os.path.join(STAGE, 'bin', 'dpa-statistics'), 'collect', '-r', '--json', '-p', ','.join(ids)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not rpc(run('dpa-statistics', 'show', '--json'))['executions']:
        program.call(1)
    return tool


def check_ended(program, pid):
    """A process that ends while it is counted takes nobody's numbers with it; where none is left, that is an error."""
    other = Program()
    (second,) = {f'{p["id"]:x}' for p in json.loads(run('dpa-ps', '-j'))['processes']} - {pid}
    tool = begin_collecting(program, second, pid)
    other.end()
    program.call(4)
    tool.send_signal(signal.SIGINT)
    output, errors = tool.communicate(timeout=60)
    assert tool.returncode == 0 and errors == f'dpa-statistics: DPA process {second} has ended\n', f'{tool.returncode} {errors}'
    assert len(json.loads(output)['processes']) == 1 and rpc(output)['executions'] > 4, output
    other = Program()
    (second,) = {f'{p["id"]:x}' for p in json.loads(run('dpa-ps', '-j'))['processes']} - {pid}
    tool = subprocess.Popen([os.path.join(STAGE, 'bin', 'dpa-statistics'), 'collect', '-t', '500', '-p', second],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    other.end()
    output, errors = tool.communicate(timeout=60)
    assert tool.returncode == 1 and not output and second in errors, f'{tool.returncode} {output}{errors}'
    # However the terminal goes, counters are off again.
    tool = begin_collecting(program, pid)
    tool.send_signal(signal.SIGHUP)
    assert tool.wait(timeout=60) == 0
    before = run('dpa-statistics', 'show', '--json')
    program.call(2)
    assert before == run('dpa-statistics', 'show', '--json')


def check_tracer(program, pid, deterministic):
    assert run('dpa-statistics', 'collect', '-e', '-r', '-T') == ''
    program.call(4)
    samples = json.loads(run('dpa-statistics', 'show', '-T', '-j'))['processes'][0]['samples']
    ins = [s for s in samples if s['type'] == 'in']
    outs = [s for s in samples if s['type'] == 'out']
    assert len(ins) == len(outs) >= 4
    assert sum(s['instructions'] for s in outs) - sum(s['instructions'] for s in ins) == 4 * COST
    assert all((s['eu'] is None) != deterministic for s in samples)
    run('dpa-statistics', 'collect', '-x', '-T')
    lines = run('dpa-statistics', 'show', '--tracer', '-p', pid).splitlines()
    assert lines[1].split() == ['ThreadID', 'Event', 'EU', 'SampleID', 'Cycles', 'Instruction', 'Time[us]', 'Thread', 'Name']
    assert len(lines) == 3 + len(samples)


def main():
    deterministic = 'VERBATIM_DPA_SEED' in os.environ
    check_front()
    check_empty()
    program = Program()
    pid = check_ps(program)
    check_poor(pid)
    check_counters(program, pid, deterministic)
    check_collect(program, pid)
    check_ended(program, pid)
    check_tracer(program, pid, deterministic)
    program.end()
    check_empty()


main()
