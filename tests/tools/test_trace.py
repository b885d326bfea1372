#!/usr/bin/env python3
"""verbatim trace: the timeline of a program that does a known number of things has exactly these."""
import collections
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile

VERBATIM = os.path.join(os.environ['VERBATIM_STAGE'], 'bin', 'verbatim')
TRACED = os.path.abspath(sys.argv[1])


class Failure(Exception):
    """A check that did not hold."""


def check(held, message):
    if not held:
        raise Failure(message)


def trace(*program, options=(), code=0, output='t.json'):
    done = subprocess.run([VERBATIM, 'trace', '-o', output, *options, '--', *program], capture_output=True, text=True,
                          timeout=120, check=False)
    check(done.returncode == code, f'{program}: exit code {done.returncode}, not {code}\n{done.stdout}{done.stderr}')
    check(sorted(os.listdir('.')) == ([output] if os.path.exists(output) else []), f'left behind: {os.listdir(".")}')
    return done


def events(output='t.json'):
    with open(output, encoding='utf-8') as file:
        return json.load(file)


def count(found, pid=None):
    """How often each (category, name) occurs, of one process or all."""
    return collections.Counter((e['cat'], e['name']) for e in found['traceEvents']
                               if e['ph'] != 'M' and pid in (None, e['pid']))


WORK = {('doorbell', 'doorbell'): 11, ('wqe', 'WRITE'): 7, ('wqe', 'SEND'): 3, ('wqe', 'READ'): 1,
        ('sent', 'WRITE'): 7, ('sent', 'SEND'): 3, ('sent', 'READ'): 1, ('cqe', 'success'): 13,
        ('cqe', 'remote access error'): 1, ('call', 'ibv_create_qp'): 1, ('call', 'ibv_modify_qp'): 3}


def check_work(found, pid=None):
    got = count(found, pid)
    for what, times in WORK.items():
        check(got[what] == times, f'{what}: {got[what]} times, not {times}')


def check_fields():
    """Every event has what its kind promises, times are in order and inside of the run."""
    trace(TRACED, 'work')
    found = events()
    check_work(found)
    check(found['otherData']['lost'] == 0, 'notes were lost')
    pids = {e['pid'] for e in found['traceEvents']}
    check(len(pids) == 1, f'processes {pids}')
    names = [e for e in found['traceEvents'] if e['ph'] == 'M']
    check(any(e['name'] == 'process_name' and e['args']['name'] == 'traced' for e in names), 'no name of the process')
    writes = [e for e in found['traceEvents'] if (e['ph'], e.get('cat'), e['name']) == ('i', 'wqe', 'WRITE')]
    check([e['args']['bytes'] for e in writes] == [64] * 7, 'bytes of the WRITEs')
    sends = [e for e in found['traceEvents'] if (e.get('cat'), e['name']) == ('sent', 'SEND')]
    psns = [e['args']['psn'] for e in sends]
    check(psns == [(psns[0] + i) % (1 << 24) for i in range(3)], f'PSNs {psns}')
    check(all(e['args']['qp'] == e['args']['to'] for e in sends), 'the queue pair talks to itself')
    times = [e['ts'] for e in found['traceEvents'] if e['ph'] == 'i']
    check(times == sorted(times) and times[0] >= 0, 'moments of one thread are in order')


def check_fork():
    trace(TRACED, 'fork')
    found = events()
    pids = {e['pid'] for e in found['traceEvents']}
    check(len(pids) == 2, f'processes {pids}')
    for pid in pids:
        check_work(found, pid)


def check_ends():
    trace(TRACED, 'killed', code=128 + 9)
    check_work(events())
    trace('sh', '-c', 'exit 7', code=7)
    os.remove('t.json')
    check('nothing to show' in trace('true', code=125).stderr, 'a program without a card')
    check('not found' in trace('no-such-program', code=127).stderr, 'no such program')


def check_caller():
    """A caller that ignores the ends of its children gets the exit code all the same."""
    done = subprocess.run([VERBATIM, 'trace', '-o', 't.json', '--', TRACED, 'killed'], capture_output=True, timeout=120, check=False,
                          preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    check(done.returncode == 128 + 9, f'{done}')
    check_work(events())
    os.remove('t.json')


def check_folder():
    """Whatever a program leaves in the folder neither stops the tool nor is followed."""
    with open('precious', 'wb') as file:
        file.write(b'BVT2' + bytes(1 << 20))
    script = ('cd $VERBATIM_TRACE; mkfifo 1.0.notes; ln -s ../precious 2.0.notes; : >3.0.notes; '
              'printf BVT2 >4.0.notes; truncate -s 1M 4.0.notes; printf BVT2 >5.0.notes; truncate -s 65536 5.0.notes; '
              f'exec {TRACED} work')
    done = subprocess.run([VERBATIM, 'trace', '-o', 't.json', '--', 'sh', '-c', script], capture_output=True, text=True,
                          timeout=120, check=False)
    check(done.returncode == 0, f'{done}')
    check(sorted(os.listdir('.')) == ['precious', 't.json'], f'left behind: {os.listdir(".")}')
    os.remove('precious')
    check_work(events(), next(e['pid'] for e in events()['traceEvents'] if e['args']['name'] == 'traced'))
    os.remove('t.json')


def check_limits():
    """What keeps a program from recording is not taken for a program without a card."""
    done = subprocess.run([VERBATIM, 'trace', '-o', 't.json', '--', TRACED, 'work'], capture_output=True, text=True, timeout=120, check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 20, 32 << 20)))
    check(done.returncode == 125 and 'nothing could be recorded' in done.stderr, f'{done}')
    check(os.listdir('.') == [], f'left behind: {os.listdir(".")}')
    done = subprocess.run([VERBATIM, 'trace', '--size', '1', '-o', 't.json', '--', 'sh', '-c', f'{TRACED} work; rm -f t.json; ln -s /dev/full t.json'],
                          capture_output=True, text=True, timeout=120, check=False)
    check(done.returncode == 125 and 'No space left' in done.stderr, f'{done}')
    os.remove('t.json')


def check_growth():
    """The file grows with what is recorded, also for a program that closes our descriptors; what is there is not reserved at once."""
    for close in ((), ('close',)):
        trace(TRACED, 'many', '20000', *close)
        found = events()
        check(found['otherData']['lost'] == 0, f'{found["otherData"]}')
        check(count(found)[('wqe', 'WRITE')] == count(found)[('cqe', 'success')] == 20000, f'{count(found)}')
        os.remove('t.json')
    done = subprocess.run([VERBATIM, 'trace', '-o', 't.json', '--', 'sh', '-c', f'{TRACED} work; du -k $VERBATIM_TRACE | cut -f 1'],
                          capture_output=True, text=True, timeout=120, check=False)
    check(done.returncode == 0 and int(done.stdout) < 4096, f'{done}')
    os.remove('t.json')


def check_overrun():
    """A completion is shown as one, or as lost."""
    trace(TRACED, 'overrun')
    got = count(events())
    check(got[('lost', 'CQE')] > 0 and got[('lost', 'CQE')] + sum(n for what, n in got.items() if what[0] == 'cqe') == 8, f'{got}')
    os.remove('t.json')


def check_full():
    """A file that is full keeps what came first, and says how much was lost."""
    done = trace(TRACED, 'many', '20000', options=['--size', '1'])
    check('found no room' in done.stderr, done.stderr)
    found = events()
    kept = sum(1 for e in found['traceEvents'] if e['ph'] == 'i')
    check(kept + found['otherData']['lost'] >= 80000 and kept > 20000, f'{kept} kept, {found["otherData"]["lost"]} lost')
    check(found['traceEvents'][2]['name'] == 'ibv_open_device', 'what came first')
    os.remove('t.json')


def check_arguments():
    for arguments, text in (([], 'which program'), (['--size', '0', 'true'], '--size'), (['--size', 'x', 'true'], '--size')):
        done = subprocess.run([VERBATIM, 'trace', *arguments], capture_output=True, text=True, timeout=60, check=False)
        check(done.returncode == 2 and text in done.stderr, f'{arguments}: {done.returncode}\n{done.stderr}')
    done = subprocess.run([VERBATIM, 'trace', '-o', '/no/such/folder/t', 'true'], capture_output=True, text=True,
                          timeout=60, check=False)
    check(done.returncode == 125 and '/no/such/folder' in done.stderr, done.stderr)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for test in (check_fields, check_fork, check_ends, check_caller, check_folder, check_limits, check_growth, check_overrun, check_full, check_arguments):
            test()
        os.chdir('/')


if __name__ == '__main__':
    try:
        main()
    except Failure as failure:
        print(f'FAILED: {failure}')
        sys.exit(1)
