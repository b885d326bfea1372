#!/usr/bin/env python3
"""Two users on one machine do not meet: their pairs run side by side, neither reads the other's registry, and a
connection from one to the other finds nobody."""
import os
import re

import peers


def pair_argv(port, iters='20000'):
    return ['ibv_rc_pingpong', '-g', '0', '-n', iters, '-p', str(port.number)]


def check_side_by_side(ours, theirs):
    """Both servers, then both clients, at once; all four succeed."""
    ports = [peers.Port(), peers.Port()]
    worlds = [ours, theirs]
    servers = [peers.start_server(world, pair_argv(port), port) for world, port in zip(worlds, ports)]
    clients = [world.start(pair_argv(port) + ['localhost']) for world, port in zip(worlds, ports)]
    for program in clients + servers:
        code = program.wait(ours.seconds)
        if code != 0:
            raise peers.Failure(f'{program.name}: exit code {code}')


def registry_dirs(owner):
    """The directories beside the registry that belong to a user and have our name."""
    found = []
    for entry in os.scandir(os.environ.get('VERBATIM_SHM_DIR', '/dev/shm')):
        if 'verbatim' in entry.name and entry.stat(follow_symlinks=False).st_uid == owner:
            found.append(entry.path)
    return found


def check_cannot_read(ours, theirs):
    """While our server runs its registry exists, and the other user can neither list nor read it."""
    port = peers.Port()
    server = peers.start_server(ours, pair_argv(port), port)
    dirs = registry_dirs(os.geteuid())
    if not dirs:
        raise peers.Failure('no registry while a server runs')
    for path in dirs:
        if theirs.call(['test', '-r', path]) == 0 or theirs.call(['test', '-x', path]) == 0:
            raise peers.Failure(f'{path} is open to another user')
    server.end()


def numbers_differ(client):
    """Queue pair numbers are unique per user only: with equal ones the client would have aimed at itself."""
    ends = re.findall(r'(?:local|remote) address: .*QPN (0x[0-9a-f]+)', client.output)
    if len(ends) != 2:
        raise peers.Failure(f'{client.name}: it did not say which queue pairs it connects')
    return ends[0] != ends[1]


def check_do_not_meet(ours, theirs):
    """The programs find each other by TCP, but their cards do not: the client's sends are never acknowledged."""
    servers = []
    for _ in range(4):
        port = peers.Port()
        servers.append(peers.start_server(ours, pair_argv(port), port))  # those before it keep their numbers taken
        client = theirs.start(pair_argv(port) + ['localhost'])
        code = client.wait(ours.seconds)
        if numbers_differ(client):
            break
    else:
        raise peers.Failure('the two users have equal queue pair numbers every time')
    if code == 0 or 'Failed status' not in client.output:
        raise peers.Failure(f'{client.name}: exit code {code}, though the server is another user\'s')
    for server in servers:
        server.end()


def run():
    with peers.World() as ours, peers.World(unprivileged=True) as theirs:
        try:
            check_side_by_side(ours, theirs)
            check_cannot_read(ours, theirs)
            check_do_not_meet(ours, theirs)
        except peers.Failure:
            for side in ours.started + theirs.started:
                side.show()
            raise


peers.main(run)
