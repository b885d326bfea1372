#!/usr/bin/env python3
"""Run one program through `verbatim run` and compare what it says with patterns.

usage: single.py [--nobody] [--config FILE] [--expect REGEX]... PROGRAM [ARGUMENT...]
"""
import argparse
import os
import re

import peers


def run():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--nobody', action='store_true')
    parser.add_argument('--config')
    parser.add_argument('--expect', action='append', default=[])
    parser.add_argument('program', nargs=argparse.REMAINDER)
    args = parser.parse_args()
    with peers.World(args.nobody, args.config) as world:
        if os.path.isabs(args.program[0]):
            args.program[0] = world.bring(args.program[0])
        program = world.start(args.program)
        try:
            code = program.wait(world.seconds)
            if code == peers.SKIP:
                raise peers.Skip(program.output.strip())
            if code != 0:
                raise peers.Failure(f'{program.name}: exit code {code}')
            for text in args.expect:
                if not re.search(text, program.output, re.M):
                    raise peers.Failure(f'{program.name}: no {text!r}')
        except peers.Failure:
            program.show()
            raise


peers.main(run)
