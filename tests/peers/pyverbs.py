#!/usr/bin/env python3
"""Run rdma-core's own tests, as Debian ships them, and compare with the list of what passes and what is skipped, and why.

usage: pyverbs.py [--nobody] [--write] DEVICE

The list is pyverbs.txt beside this file: "pass NAME", "skip NAME: reason", or "off NAME: reason" for tests that are not
run. What passes must pass. A skip that has become a pass is told and is no failure: --write then makes the list anew,
and refuses to where something that passed no longer does.

All tests run in one process, one after the other. What is not as listed runs again alone, and that counts. A process
that dies or stands still ends the test it was at, and a new one goes on with the next.
"""
import argparse
import glob
import gzip
import json
import os
import re
import shutil
import time

import peers

HERE = os.path.dirname(os.path.realpath(__file__))
LIST = os.path.join(HERE, 'pyverbs.txt')
TESTS = '/usr/share/doc/rdma-core/tests'
PYTHON = '/usr/bin/python3'  # the one that Debian's modules are for
SECONDS = 60  # for one test
FORKS = ('test_device.DMTest.test_multi_process_alloc_dm',)  # ThreadSanitizer allows no threads in their children

HEAD = f"""\
# rdma-core's own tests on our adapters, by device. Written by tests/peers/pyverbs.py --write DEVICE; see there.
"""


def read_list():
    """{device: {name: (outcome, reason)}}"""
    devices = {}
    with open(LIST, encoding='utf-8') as lines:
        for line in filter(None, map(str.strip, lines)):
            if line.startswith('#'):
                continue
            if line.startswith('['):
                tests = devices.setdefault(line.strip('[]'), {})
                continue
            outcome, name, reason = re.fullmatch(r'(pass|skip|off) +([\w.]+)(?:: (.*))?', line).groups()
            tests[name] = (outcome, reason or '')
    return devices


def write_list(devices):
    with open(LIST, 'w', encoding='utf-8') as out:
        out.write(HEAD)
        for device, tests in devices.items():
            out.write(f'\n[{device}]\n')
            for name, (outcome, reason) in sorted(tests.items()):
                out.write(f'{outcome:<4} {name}' + (f': {reason}' if reason else '') + '\n')


def unpack(world):
    """The tests as they are in the package, some of them compressed, in a folder of ours."""
    if not os.path.isdir(TESTS):
        raise peers.Skip(f'{TESTS} is missing: python3-pyverbs is not installed, or without its documentation')
    folder = os.path.join(world.home, 'pyverbs')
    os.makedirs(os.path.join(folder, 'tests'))
    for path in glob.glob(os.path.join(TESTS, '*.py*')):
        name = os.path.join(folder, 'tests', os.path.basename(path).removesuffix('.gz'))
        with (gzip.open if path.endswith('.gz') else open)(path, 'rb') as source, open(name, 'wb') as copy:
            shutil.copyfileobj(source, copy)
    shutil.copy(os.path.join(HERE, 'pyverbs_child.py'), folder)
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o777)  # Python leaves compiled modules there
    return folder


def read_results(path):
    """([name, outcome, reason] of tests that ended, the name of one that has not, or None)"""
    ended, current = [], None
    if os.path.exists(path):
        with open(path, encoding='utf-8') as lines:
            for name, outcome, reason in map(json.loads, lines):
                current = name if outcome == 'start' else None
                if outcome != 'start':
                    ended.append((name, outcome, ' '.join(reason.split())))
    return ended, current


def run_process(world, folder, device, names):
    """Run these tests until they are through, or the process is; what became of them."""
    path = os.path.join(folder, f'results-{time.monotonic_ns()}')
    child = world.start([PYTHON, os.path.join(folder, 'pyverbs_child.py'), folder, device, path] + names)
    count, since = -1, time.monotonic()
    limit = SECONDS * (5 if world.preload else 1)
    while child.process.poll() is None and time.monotonic() - since < limit:
        time.sleep(0.05)
        size = os.path.getsize(path) if os.path.exists(path) else 0
        if size != count:
            count, since = size, time.monotonic()
    hangs = child.process.poll() is None
    child.end()
    ended, current = read_results(path)
    if current:
        why = f'no end within {limit} s' if hangs else f'the process ended with {child.process.returncode}'
        ended.append((current, 'fail', why))
    elif not ended or child.process.returncode:
        child.show()
        raise peers.Failure(f'{len(ended)} tests have run, and then the process ended with {child.process.returncode}')
    return {name: (outcome, reason) for name, outcome, reason in ended}


def run_all(world, folder, device, names):
    """Of every test what became of it; names may be empty for all that there are."""
    results = {}
    left = list(names)
    while left or not results:
        results.update(run_process(world, folder, device, left))
        left = [name for name in left if name not in results]
    return results


def compare(listed, results):
    """Lines about what is not as listed, and whether any of it is a failure."""
    lines, failed = [], False
    for name in sorted(listed.keys() | results.keys()):
        wanted = listed.get(name, ('unknown', ''))[0]
        outcome, reason = results.get(name, ('missing', 'there is no such test'))
        if wanted in (outcome, 'off') or (outcome == 'skip' and re.search('must be (done|run) by root', reason, re.I)):
            continue
        lines.append(f'{name}: {outcome} instead of {wanted}' + (f' ({reason})' if reason else ''))
        failed |= wanted == 'pass' or outcome in ('fail', 'missing')
    return lines, failed


def write(devices, device, results):
    before = devices.get(device, {})
    lost = [name for name, (outcome, _) in before.items() if outcome == 'pass' and results.get(name, ('',))[0] != 'pass']
    bad = [name for name, (outcome, _) in results.items() if outcome == 'fail']
    for name in lost + bad:
        print(f'{name}: {results.get(name)}')
    if lost or bad:
        raise peers.Failure('the list stays as it is: these must be mended, or set to "off" by hand')
    devices[device] = {**results, **{name: entry for name, entry in before.items() if entry[0] == 'off'}}
    write_list(devices)


def run():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--nobody', action='store_true')
    parser.add_argument('--write', action='store_true')
    parser.add_argument('device')
    args = parser.parse_args()
    devices = read_list()
    listed = devices.get(args.device, {})
    with peers.World(args.nobody, os.path.join(HERE, 'pyverbs.conf')) as world:
        folder = unpack(world)
        if world.preload and 'tsan' in world.preload:
            listed.update((name, ('off', '')) for name in FORKS if name in listed)
        off = [name for name, (outcome, _) in listed.items() if outcome == 'off']
        wanted = [] if args.write else [name for name in listed if name not in off]
        results = run_all(world, folder, args.device, wanted)
        results = {name: result for name, result in results.items() if name not in off}
        for name, (outcome, _) in results.items():
            if outcome != listed.get(name, ('',))[0]:
                results.update(run_process(world, folder, args.device, [name]))
    if args.write:
        write(devices, args.device, results)
        return
    lines, failed = compare(listed, results)
    print('\n'.join(lines))
    counts = {outcome: sum(1 for o, _ in results.values() if o == outcome) for outcome in ('pass', 'skip', 'fail')}
    print(f'{args.device}: {counts["pass"]} passed, {counts["skip"]} skipped, {counts["fail"]} failed')
    if failed:
        raise peers.Failure('not as listed in tests/peers/pyverbs.txt')


peers.main(run)
