#!/usr/bin/env python3
"""Completion in bash, with what is staged: each command has a file, and words are completed as the command has them."""
import os
import subprocess

import peers

STAGE = peers.stage()
FOLDER = os.path.join(STAGE, 'share', 'bash-completion', 'completions')
# Others' programs under the vendor's names.
FOREIGN = {'dpa-clang', 'dpa-ar', 'dpa-nm', 'dpa-objdump', 'dpa-app-attributes2blob'}


def complete(line):
    """What a tabulator behind the line offers."""
    words = line.split(' ')
    script = '''. "$1/$2" || exit 9
spec=($(complete -p "$2")); shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
for ((i = 0; i < ${#spec[@]}; i++)); do [[ ${spec[i]} == -F ]] && ${spec[i + 1]}; done
printf '%s\\n' "${COMPREPLY[@]}"'''
    done = subprocess.run(['bash', '-c', script, 'bash', FOLDER, *words], capture_output=True, text=True, timeout=60, check=False,
                          env={**peers.bare_env(HOME='/'), 'PATH': os.path.join(STAGE, 'bin') + ':' + os.environ['PATH']}, cwd='/')
    if done.returncode or done.stderr:
        raise peers.Failure(f'{line}: exit code {done.returncode}\n{done.stdout}{done.stderr}')
    return done.stdout.split()


def expect(line, *wanted, never=()):
    offered = complete(line)
    if not set(wanted) <= set(offered) or set(never) & set(offered):
        raise peers.Failure(f'{line!r}: offered {offered}, wanted {wanted}, never {never}')


def run():
    for command in sorted(set(os.listdir(os.path.join(STAGE, 'bin'))) - FOREIGN):
        if not os.path.exists(os.path.join(FOLDER, command)):
            raise peers.Failure(f'{command} has no completion')
    expect('verbatim ', 'run', 'sdk', 'devices', 'ps', 'cable')
    expect('verbatim d', 'devices', 'dpa', never=('run',))
    expect('verbatim devices --', '--verbose', '--config', never=('--batch',))
    expect('verbatim cable ', 'dump', 'replay')
    expect('verbatim cable replay --', '--rate', '--to')
    expect('verbatim cable replay --to ', 'mlx5_0', 'mlx4_0')
    expect('verbatim cable dump m', 'mlx5_0')
    expect('verbatim run -- ba', 'bash')
    expect('dpaeumgmt ', 'eu_group', 'info', 'partition', never=('create',))
    expect('dpaeumgmt eu_group ', 'info', 'create', 'query', 'destroy', 'apply', never=('chip',))
    expect('dpaeumgmt partition -d mlx5_0 ', 'info', 'create', 'query', 'destroy', never=('apply',))
    expect('dpaeumgmt eu_group info -d ', 'mlx5_0', 'mlx5_1', never=('mlx4_0', 'hbl_0'))
    expect('dpaeumgmt eu_group create --', '--dpa_device', '--range_eus', '--name_group', '--json')
    expect('dpacc --m', '--mcpu')
    expect('dpacc --mcpu = nv', 'nv-dpa-bf3')
    expect('dpa-gdbserver ', 'mlx5_0', never=('mlx4_0',))
    expect('dpa-gdbserver -', '-T', '-s')
    expect('dpa-ps --', '--threads', '--json')
    expect('dpa-statistics ', 'collect', 'show')
    expect('dpa-statistics collect -d ', 'mlx5_0', never=('mlx4_0',))
    expect('verbatim trace -- ba', 'bash')


peers.main(run)
