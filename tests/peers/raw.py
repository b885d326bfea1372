#!/usr/bin/env python3
"""Run perftest's raw_ethernet_{bw,lat,burst_lat} as server and client on two adapters, and check what they measure.

usage: raw.py [--nobody] [--server-device NAME] [--client-device NAME] PROGRAM [ARGUMENT...]

The two exchange nothing but frames, so the server is ready when it has printed the head of its table. The server of
raw_ethernet_burst_lat only answers; it prints no row.
"""
import argparse
import time

import peers

MACS = ('02:00:00:00:00:01', '02:00:00:00:00:02')


def row(side, argv):
    """The numbers of the last row, with the size and the iterations that were asked for."""
    lines = [line.split() for line in side.output.partition('#bytes')[2].splitlines()[1:]]
    rows = [fields for fields in lines if len(fields) >= 4 and fields[0].isdigit()]
    wanted = [argv[argv.index('-s') + 1], argv[argv.index('-n') + 1]]
    if not rows or rows[-1][:2] != wanted:
        raise peers.Failure(f'{side.name}: no row of {wanted[1]} frames of {wanted[0]} bytes')
    if not any(float(field) > 0 for field in rows[-1][2:]):
        raise peers.Failure(f'{side.name}: nothing measured')


def run():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--nobody', action='store_true')
    parser.add_argument('--server-device', default='mlx5_0')
    parser.add_argument('--client-device', default='mlx5_1')
    parser.add_argument('program', nargs=argparse.REMAINDER)
    args = parser.parse_args()
    # A program that prints into a file keeps its lines back otherwise.
    common = ['stdbuf', '-o0'] + args.program
    with peers.World(args.nobody) as world:
        try:
            server = world.start(common + ['--server', '-d', args.server_device, '-B', MACS[1], '-E', MACS[0]])
            peers.poll_until(lambda: '#bytes' in server.output or server.process.poll() is not None, world.seconds,
                             f'{server.name}: ready')
            client = world.start(common + ['--client', '-d', args.client_device, '-B', MACS[0], '-E', MACS[1]])
            deadline = time.monotonic() + world.seconds
            for side in (client, server):
                code = side.wait(max(1, deadline - time.monotonic()))
                if code != 0:
                    raise peers.Failure(f'{side.name}: exit code {code}')
                if side is client or 'burst_lat' not in args.program[0]:
                    row(side, args.program)
        except peers.Failure:
            for side in world.started:
                side.show()
            raise


peers.main(run)
