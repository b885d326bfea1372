#!/usr/bin/env python3
"""Tests and the user's own programs do not meet: a program with a card open in the user's ordinary registry is not there for
what runs in build-aux/apart, and its port stays up while the tests of `verbatim inject` take ports down. What is left of a
killed run is removed by the next one, and what is in use stays.

usage: test_apart.py BUILD
"""
import json
import os
import signal
import subprocess
import sys

import peers

BUILD = sys.argv[1]
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
APART = os.path.join(TOP, 'build-aux', 'apart')
VERBATIM = os.path.join(peers.stage(), 'bin', 'verbatim')


class Stranger:
    """Debian's ibv_asyncwatch in the registry that programs use when nothing is set; it prints what happens to its port."""

    def __init__(self, world):
        self.env = world.environment()
        self.env.pop('VERBATIM_SHM_DIR', None)
        world.environment = lambda: self.env
        self.program = world.start(['stdbuf', '-oL', 'ibv_asyncwatch', '-d', 'mlx5_0'])
        peers.poll_until(lambda: 'async event FD' in self.program.output, world.seconds, 'ibv_asyncwatch opens the card')

    def verbatim(self, *args):
        return subprocess.run([VERBATIM, *args], env=self.env, capture_output=True, text=True, timeout=60, check=False)

    def is_seen(self, *before):
        done = subprocess.run([*before, VERBATIM, 'ps', '--json'], env=self.env, capture_output=True, text=True, timeout=60,
                              check=True)
        return self.program.process.pid in [p['pid'] for p in json.loads(done.stdout)['processes']]

    def events(self):
        return [line for line in self.program.output.splitlines() if 'event_type' in line]


def check_stranger(world):
    stranger = Stranger(world)
    if not stranger.is_seen():
        raise peers.Failure('the program is not in the registry of the user')
    if stranger.is_seen(APART):
        raise peers.Failure('the program is seen in a registry that is not its own')
    done = subprocess.run(['meson', 'test', '-C', BUILD, '--no-rebuild', '--logbase', 'apart', '--suite', 'programs',
                           'inject-mlx5_0'], capture_output=True, text=True, timeout=world.seconds, check=False)
    if done.returncode:
        raise peers.Failure(f'the tests of inject beside another program:\n{done.stdout}')
    if stranger.events():
        raise peers.Failure(f'the tests of inject reached another program: {stranger.events()}')
    # It would have said so.
    stranger.verbatim('inject', '--pid', str(stranger.program.process.pid), 'mlx5_0', 'port', '1', 'down')
    peers.poll_until(stranger.events, world.seconds, 'ibv_asyncwatch hears of its port')


def start_apart():
    """A run that sleeps: the process of the script, and its directory."""
    script = 'echo "$VERBATIM_SHM_DIR"; exec sleep 60'
    process = subprocess.Popen([APART, 'sh', '-c', script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    return process, process.stdout.readline().strip()


def check_leftovers():
    killed, left = start_apart()
    used, kept = start_apart()
    try:
        os.mkdir(os.path.join(left, 'deep'))
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        done = subprocess.run([APART, 'sh', '-c', 'echo "$VERBATIM_SHM_DIR"; exit 5'], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 5:
            raise peers.Failure(f'exit code {done.returncode}, not that of the command')
        if os.path.exists(done.stdout.strip()) or os.path.exists(left):
            raise peers.Failure(f'{done.stdout.strip()} or {left} is left')
        if not os.path.isdir(kept):
            raise peers.Failure(f'{kept} is gone while its run goes on')
        os.killpg(used.pid, signal.SIGTERM)
        used.wait()
        if os.path.exists(kept):
            raise peers.Failure(f'{kept} is left after SIGTERM')
    finally:
        for process in (killed, used):
            process.stdout.close()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def run():
    check_leftovers()
    with peers.World() as world:
        check_stranger(world)


peers.main(run)
