#!/usr/bin/env python3
"""The scripts behind the Makefile: each has help, says what is wrong with its arguments, and warnings are errors where
they are for CI."""
import os
import re
import subprocess
import tempfile

import peers

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
SCRIPTS = os.path.join(TOP, 'build-aux')


def call(*args, **env):
    environment = {**peers.bare_env(), **env}
    return subprocess.run(args, cwd=TOP, env=environment, capture_output=True, text=True, timeout=60, check=False)


def expect(done, code, stderr=''):
    if done.returncode != code or not re.search(stderr, done.stderr):
        raise peers.Failure(f'{" ".join(done.args)}: exit code {done.returncode}, wanted {code} and {stderr!r}:\n'
                            f'{done.stdout}{done.stderr}')


def check_help():
    for name in sorted(os.listdir(SCRIPTS)):
        path = os.path.join(SCRIPTS, name)
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            continue
        done = call(path, '--help')
        if done.returncode or f'usage: build-aux/{name}' not in done.stdout:
            raise peers.Failure(f'{name} --help: exit code {done.returncode}\n{done.stdout}{done.stderr}')


def check_refusals():
    def script(name, *args, **env):
        return call(os.path.join(SCRIPTS, name), *args, **env)

    for name in ('apart', 'build', 'check', 'bench', 'demo', 'setup', 'install', 'vendor-paths', 'cross-aarch64'):
        expect(script(name), 2, 'usage' if name != 'check' else '')
    expect(script('setup', 'nonsense'), 2, "unknown purpose 'nonsense'; known:.* build ")
    expect(script('check', '/nowhere'), 2, '/nowhere is no build tree; make one with')
    expect(script('bench', '/nowhere'), 1, 'nothing is staged in /nowhere; run make first')
    expect(script('bench', peers.stage(), 'nonsense'), 2, 'no benchmark nonsense; there are: dpa flexio frames instructions scale verbs')
    expect(script('demo', '/nowhere'), 1, 'nothing is staged in /nowhere; run make first')
    expect(script('install', peers.stage(), 'here'), 2, 'must be an absolute path')
    expect(script('install', '/nowhere', '/tmp'), 1, 'nothing is staged in /nowhere; run make first')
    expect(script('vendor-paths', '/nowhere'), 1, 'nothing is installed in /nowhere; run make install')
    expect(script('format', 'nonsense'), 2, 'usage')


def check_warnings():
    """Errors with the compilers of Debian 12 and in CI; not with one that may know more, unless asked for."""
    with tempfile.TemporaryDirectory() as folder:
        def rule(version, **env):
            compiler = os.path.join(folder, 'cc')
            with open(compiler, 'w', encoding='ascii') as script:
                script.write(f'#!/bin/sh\necho "{version}"\n')
            os.chmod(compiler, 0o755)
            return call('bash', '-c', '. build-aux/common.sh; werror "$0"', compiler, **env).stdout.strip()

        for wanted, version, env in (
                ('true', 'cc (Debian 12.2.0-14+deb12u1) 12.2.0', {}),
                ('true', 'aarch64-linux-gnu-gcc (Debian 12.2.0-14) 12.2.0', {}),
                ('true', 'Debian clang version 14.0.6', {}),
                ('false', 'gcc (Debian 14.2.0-19) 14.2.0', {}),
                ('false', 'gcc (GCC) 15.1.1 20250425', {}),
                ('false', 'clang version 19.1.7', {}),
                ('true', 'gcc (GCC) 15.1.1 20250425', {'CI': 'true'}),
                ('true', 'gcc (GCC) 15.1.1 20250425', {'WERROR': 'true'}),
                ('false', 'cc (Debian 12.2.0-14+deb12u1) 12.2.0', {'WERROR': 'false'}),
                ('false', 'cc (Debian 12.2.0-14+deb12u1) 12.2.0', {'WERROR': 'false', 'CI': 'true'})):
            said = rule(version, **env)
            if said != wanted:
                raise peers.Failure(f'{version}, {env}: warnings are errors: {said!r}, not {wanted}')


def run():
    check_help()
    check_refusals()
    check_warnings()


peers.main(run)
