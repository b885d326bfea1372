#!/usr/bin/env python3
"""Build mpi.c with Open MPI's own compiler wrapper and run it on several ranks over UCX, through `verbatim run`.

usage: mpi.py [--nobody] [--config FILE] [--env NAME=VALUE]... RANKS

The options of mpirun are those that a user of Debian gives: its settings leave UCX out where nobody asks for it, root
and machines with few cores need a word of permission.
"""
import argparse
import os
import subprocess

import peers

HERE = os.path.dirname(os.path.realpath(__file__))


def build(world):
    program = os.path.join(world.home, 'mpi')
    try:
        subprocess.run(['mpicc', '-O1', '-Wall', '-Werror', '-o', program, os.path.join(HERE, 'mpi.c')], check=True)
    except FileNotFoundError:
        raise peers.Skip('mpicc is not installed') from None
    os.chmod(program, 0o755)
    return program


def run():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--nobody', action='store_true')
    parser.add_argument('--config')
    parser.add_argument('--env', action='append', default=[])
    parser.add_argument('ranks')
    args = parser.parse_args()
    with peers.World(args.nobody, args.config, args.env) as world:
        root = ['--allow-run-as-root'] if os.geteuid() == 0 and not args.nobody else []
        mpirun = world.start(['mpirun', *root, '--oversubscribe', '--mca', 'pml', 'ucx', '--mca', 'osc', 'ucx',
                              '-np', args.ranks, build(world)])
        try:
            code = mpirun.wait(world.seconds)
            if code != 0:
                raise peers.Failure(f'{mpirun.name}: exit code {code}')
            wanted = [f'{args.ranks} ranks {what}' for what in ('passed messages', 'agreed', "reached each other's memory")]
            if mpirun.output.splitlines() != wanted:
                raise peers.Failure(f'{mpirun.name}: not the three lines of rank 0, and nothing else')
        except peers.Failure:
            mpirun.process.terminate()  # it ends its ranks
            try:
                mpirun.wait(10)
            except peers.Failure:
                pass
            mpirun.show()
            raise


peers.main(run)
