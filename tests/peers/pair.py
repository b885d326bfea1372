#!/usr/bin/env python3
"""Run one of Debian's RDMA programs as server and client through `verbatim run`, and check what both say.

usage: pair.py [--nobody] [--device NAME] [--config FILE] [--env NAME=VALUE]... [--server 'ARGUMENTS']
               PROGRAM [ARGUMENT...]

Both sides get the same arguments and a port of their own (--server: the server gets these as well;
--device: both use that adapter). What their output
must show depends on the program and its options; see check_pingpong, check_perftest and check_ucx.
"""
import argparse
import re
import shlex

import peers


def option(argv, *names, default=None):
    """The value of an option as these programs take it: -s 64 or --size=64."""
    for i, arg in enumerate(argv):
        for name in names:
            if arg == name:
                return argv[i + 1]
            if arg.startswith(name + '='):
                return arg.split('=', 1)[1]
    return default


def check_pingpong(argv, side, is_server):
    """ibv_*_pingpong: every byte there and back, as many rounds as asked for, and no invalid page."""
    size = int(option(argv, '-s', default='2048' if 'ud_' in argv[0] else '4096'))
    iters = int(option(argv, '-n', default='1000'))
    output = side.output
    for text in (rf'^{2 * size * iters} bytes in [\d.]+ seconds', rf'^{iters} iters in [\d.]+ seconds',
                 r'local address: +LID 0x0000, QPN 0x[0-9a-f]{6}', r'remote address: LID 0x0000, QPN 0x[0-9a-f]{6}'):
        if not re.search(text, output, re.M):
            raise peers.Failure(f'{side.name}: no line {text!r}')
    if re.search('invalid data|Failed|Couldn', output):
        raise peers.Failure(f'{side.name}: it complains')
    if '-t' in argv and not re.search(r'Max receive completion clock cycles = [1-9]', output):
        raise peers.Failure(f'{side.name}: no receive timestamps')


ALL_SIZES = [2 ** k for k in range(1, 24)]


def expected_sizes(argv):
    if '-a' in argv:
        return ALL_SIZES
    if 'atomic' in argv[0]:
        return [8]
    return [int(option(argv, '-s', default='2' if argv[0].endswith('_lat') else '65536'))]


# perftest measures the processor's clock before each size. Where the machine is disturbed meanwhile it says this, in the
# middle of a row, and prints the next row with zeros.
UNMEASURED = re.compile(r'Correlation coefficient r\^2: \S+ < 0\.9\n')


def check_perftest(argv, side, is_server):
    """ib_*_bw, ib_*_lat: on the client a row per size, with the size, the iterations and numbers above zero."""
    rows = {}
    clock_is_known = not UNMEASURED.search(side.output)
    for line in UNMEASURED.sub('', side.output).partition('#bytes')[2].splitlines():
        fields = line.split()
        if len(fields) >= 4 and all(re.fullmatch(r'-?([\d.]+|nan|inf)', f) for f in fields):
            rows[int(fields[0])] = fields[1:]
    if re.search(r'Completion with error|Failed|Couldn|Unable|bad vendor', side.output):
        raise peers.Failure(f'{side.name}: it complains')
    if is_server and re.search('write|read|atomic', argv[0]):
        return  # the passive side has nothing to measure; some print what the client told them at the end
    sizes = expected_sizes(argv)
    if list(rows) != sizes:
        raise peers.Failure(f'{side.name}: rows for {list(rows)}, not for {sizes}')
    if '-D' in argv:
        return  # by time: the number of iterations is what it comes to
    iters = int(option(argv, '-n', default='5000' if 'ib_write_bw' in argv[0] else '1000'))
    queues = int(option(argv, '-q', default='1')) * (2 if '-b' in argv else 1)
    for size, fields in rows.items():
        # bw counts each queue's iterations, and with -b both directions'; lat counts those of one queue
        if int(fields[0]) not in (iters, iters * queues, iters * queues // 2):
            raise peers.Failure(f'{side.name}: {fields[0]} iterations of {size} bytes, not {iters} a queue')
        if clock_is_known and not any(float(f) > 0 for f in fields[1:]):
            raise peers.Failure(f'{side.name}: nothing measured at {size} bytes')


def check_ucx(argv, side, is_server):
    """ucx_perftest: on the client a last row with all iterations, and a time and a rate above zero; on no side a complaint.

    What counts is overall: averages are those since the row before, which may be the same instant. Megabytes a second have
    two digits behind the point, and nothing is left of small messages on a busy machine."""
    if re.search('WARN|ERROR', side.output):
        raise peers.Failure(f'{side.name}: it complains')
    if is_server:
        return
    row = re.search(r'^Final: +(.*)', side.output, re.M)
    fields = row[1].split() if row else []
    if len(fields) != 8 or fields[0] != option(argv, '-n') or not (float(fields[3]) > 0 and float(fields[7]) > 0):
        raise peers.Failure(f'{side.name}: no last row with {option(argv, "-n")} iterations')


CHECKS = {'ibv_': check_pingpong, 'ib_': check_perftest, 'ucx_': check_ucx}


def run():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--nobody', action='store_true')
    parser.add_argument('--device')
    parser.add_argument('--config')
    parser.add_argument('--env', action='append', default=[])
    parser.add_argument('--server', default='')
    parser.add_argument('program', nargs=argparse.REMAINDER)
    args = parser.parse_args()
    check = CHECKS[args.program[0].split('_')[0] + '_']
    port = peers.Port()
    common = args.program + (['-d', args.device] if args.device else []) + ['-p', str(port.number)]
    with peers.World(args.nobody, args.config, args.env) as world:
        try:
            server, client = peers.run_pair(world, common + shlex.split(args.server), common + ['localhost'], port)
            check(args.program, server, True)
            check(args.program, client, False)
        except peers.Failure:
            for side in world.started:
                side.show()
            raise


peers.main(run)
