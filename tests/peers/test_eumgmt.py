#!/usr/bin/env python3
"""dpaeumgmt as a user meets it: every subcommand, what it prints and exits with, and what it refuses. Its store is in a
folder of the test; what device code does with groups is in tests/flexio/test_groups.c."""
import fcntl
import glob
import json
import os
import re
import signal
import struct
import subprocess
import tempfile
import time

import peers

TOOL = os.path.join(peers.stage(), 'bin', 'dpaeumgmt')
CONFIG = '''[adapter mlx5_0]
address = 127.0.0.1
[adapter mlx5_1]
address = 127.0.0.1
[adapter mlx4_0]
address = 127.0.0.1
[adapter mlx5_2]
address = 127.0.0.1
dpa_eus = 20
'''


class Tool:
    def __init__(self, folder):
        self.folder = folder
        config = os.path.join(folder, 'verbatim.conf')
        with open(config, 'w', encoding='ascii') as text:
            text.write(CONFIG)
        self.shm = os.path.join(folder, 'shm')
        os.mkdir(self.shm)
        self.env = {'PATH': os.environ['PATH'], 'LANG': 'C', 'VERBATIM_CONFIG': config, 'VERBATIM_SHM_DIR': self.shm,
                    **{name: value for name, value in os.environ.items() if name.endswith('SAN_OPTIONS')}}

    def run(self, *args, **options):
        return subprocess.run([TOOL, *args], env=self.env, capture_output=True, text=True, timeout=60, check=False, **options)

    def ok(self, line, output, **options):
        done = self.run(*line.split(), **options)
        if (done.returncode, done.stderr) != (0, '') or done.stdout != output:
            raise peers.Failure(f'{line}: exit code {done.returncode}\n{done.stdout}---\n{output}---\n{done.stderr}')

    def json(self, line, wanted):
        done = self.run(*line.split(), '--json')
        if done.returncode or done.stderr or json.loads(done.stdout) != wanted:
            raise peers.Failure(f'{line} --json: exit code {done.returncode}\n{done.stdout}---\n{wanted}\n{done.stderr}')

    def refused(self, line, reason, code=1, **options):
        """Nothing on standard output, the reason on standard error, and the store as before."""
        before = self.files()
        done = self.run(*(line.split() if isinstance(line, str) else line), **options)
        if done.returncode != code or done.stdout or not re.search(reason, done.stderr, re.M):
            raise peers.Failure(f'{line}: exit code {done.returncode}, not {code}, or no {reason!r}\n{done.stdout}{done.stderr}')
        if self.files() != before:
            raise peers.Failure(f'{line} was refused and changed the store')

    def files(self):
        found = {}
        for path in glob.glob(os.path.join(self.shm, '*', 'eu-groups')):
            with open(path, 'rb') as text:
                found[path] = text.read()
        return found

    def store(self):
        (path,) = self.files()
        return path

    def groups(self, text):
        path = os.path.join(self.folder, 'groups.json')
        with open(path, 'wb') as out:
            out.write(text if isinstance(text, bytes) else text.encode())
        return path


def check_front(tool):
    for args in (['-h'], ['--help'], ['help'], ['eu_group', '-h']):
        done = tool.run(*args)
        if done.returncode or not re.search(r'^Subcommands:\n  eu_group  info ', done.stdout, re.M):
            raise peers.Failure(f'{args}: {done.stdout}{done.stderr}')
    for args in (['--version'], ['-V'], ['version']):
        done = tool.run(*args)
        if done.returncode or not re.fullmatch(r'dpaeumgmt \(Verbatim\) \d+\.\d+\.\d+\n', done.stdout):
            raise peers.Failure(f'{args}: {done.stdout}{done.stderr}')
    usage = {
        '': 'what is to be done', 'groups info': "unknown command 'groups'", 'eu_group': 'which subcommand',
        'eu_group list': "eu_group has no subcommand 'list'", 'partition apply -d mlx5_0': "no subcommand 'apply'",
        'eu_group info': 'needs --dpa_device', 'eu_group info -d': 'requires an argument', 'eu_group info more -d x': 'one word too many',
        'eu_group create -d mlx5_0 -n a': 'needs --range_eus', 'eu_group create -d mlx5_0 -r 1': 'needs --name_group',
        'eu_group destroy -d mlx5_0': 'needs --id_group or --name_group', 'eu_group apply -d mlx5_0': 'needs --file_groups',
        'eu_group query -d mlx5_0 -g 1 -n a': 'give one of them', 'eu_group query -d mlx5_0 -p 1': 'has no use for --id_partition',
        'eu_group query -d mlx5_0 -g x': 'not the number of a group', 'eu_group query -d mlx5_0 -g -1': 'not the number of a group',
        'eu_group query -d mlx5_0 -d mlx5_1': 'given twice', 'partition create -d mlx5_0 -v 1 -r 1': 'needs --max_num_eu_group',
        'partition create -d mlx5_0 -v 1 -m 1': 'needs --range_eus', 'partition create -d mlx5_0 -r 1 -m 1': 'needs --vhca_list',
        'partition destroy -d mlx5_0': 'needs --id_partition', 'eu_group info --nonsense': 'unrecognized option',
    }
    for line, reason in usage.items():
        tool.refused(line, reason, code=2)
    tool.refused('eu_group info -d mlx5_9', "there is no adapter 'mlx5_9'")
    tool.refused('eu_group info -d mlx4_0', 'mlx4_0 has no accelerator')


def check_info(tool):
    tool.ok('eu_group info -d mlx5_0', 'Max number of DPA EU groups: 15\nMax number of DPA EUs in one DPA EU group: 190\n'
            'Max DPA EU number available to use: 190\nMax EU group name length is 15 chars\n')
    tool.json('eu_group info --dpa_device mlx5_2',
              {'max_eu_groups': 15, 'max_eus_in_group': 20, 'max_eus': 20, 'max_name_length': 15})
    tool.ok('partition info -d mlx5_0', 'Max number of DPA EU partitions: 15\n'
            'Max number of VHCAs associated with a single partition: 32\nMax number of DPA EU groups: 15\n'
            'Note- an allocation of a partition consumes from the number of DPA EU *groups* available to create\n'
            'Max number of DPA EUs available to use: 190\n')
    tool.json('partition info -d mlx5_0', {'max_partitions': 15, 'max_vhcas_in_partition': 32, 'max_eu_groups': 15, 'max_eus': 190})
    tool.ok('info chip -d mlx5_0', 'num_cores: 12\neu_num: 16\nmax_threads: 65536\nmax_threads_per_process: 16384\n'
            'thread_stack_size: 8192\nusable_eus: 190\n')
    tool.ok('info status -d mlx5_0', 'root: 1\nprocesses: 0\nnumber_of_partitions: 0\nnumber_of_root_groups: 0\neus: 190\n'
            'eus_in_no_group: 190\n')
    tool.ok('info vhca -d mlx5_0', 'VHCA ID  Device           EU partition\n0        mlx5_0           default\n'
            '1        mlx5_1           default\n3        mlx5_2           default\n')
    tool.ok('eu_group query -d mlx5_0', 'In total there are 0 EU groups configured.\n')
    tool.json('eu_group query -d mlx5_0', {'eu_groups': []})
    tool.ok('partition -d mlx5_0 query', 'In total there are 0 EU partitions configured.\n')
    if os.listdir(tool.shm):
        raise peers.Failure(f'looking made {os.listdir(tool.shm)}')


def check_groups(tool):
    first = 'EU group ID: 1\nEU group name: hello world\nMember EUs are: 6,7,8,16,55,70\n'
    done = tool.run('eu_group', 'create', '-d', 'mlx5_0', '-n', 'hello world', '-r', '6-8,16,55,70')
    if done.stdout != 'Group created successfully-\n' + first or done.returncode:
        raise peers.Failure(done.stdout + done.stderr)
    tool.json('eu_group create --dpa_device mlx5_0 --name_group b --range_eus 0', {'eu_group': {'id': 2, 'name': 'b', 'eus': [0]}})
    tool.ok('eu_group query -d mlx5_0', f'1) {first}\n2) EU group ID: 2\nEU group name: b\nMember EUs are: 0\n\n'
            'In total there are 2 EU groups configured.\n')
    tool.ok('eu_group query -d mlx5_0 --id_group 2', 'EU group ID: 2\nEU group name: b\nMember EUs are: 0\n')
    tool.json('eu_group query -d mlx5_0 -n b', {'eu_group': {'id': 2, 'name': 'b', 'eus': [0]}})
    create = 'eu_group create -d mlx5_0'
    for line, reason in {
            f'{create} -n c -r 5-6': r'EU 6 is in EU group 1 \(hello world\)', f'{create} -n b -r 1': 'an EU group 2 of the name b',
            f'{create} -n c -r 190': 'EU 190 does not exist; EUs are numbered 0 to 189', f'{create} -n c -r 9-8': 'begins with the smaller',
            f'{create} -n c -r 8,8': 'EU 8 is named twice', f'{create} -n c -r x': 'not a list of EUs',
            f'{create} -n c -r 1,': 'not a list of EUs', f'{create} -n a234567890123456 -r 1': '1 to 15 characters, this one 16',
            'eu_group query -d mlx5_0 -g 3': 'no EU group 3 on mlx5_0', 'eu_group query -d mlx5_0 -n c': "no EU group 'c'",
            'eu_group query -d mlx5_1 -g 1': 'no EU group 1 on mlx5_1', 'eu_group destroy -d mlx5_0 -g 0': 'no EU group 0',
            'eu_group destroy -d mlx5_0 -g 65535': 'no EU group 65535', 'eu_group destroy -d mlx5_1 -n b': "no EU group 'b'",
    }.items():
        tool.refused(line, reason)
    for name, reason in ((['', '1 to 15']), ('a\nb', 'printable'), (' a', 'neither begins nor ends'), ('\u00e4', 'printable')):
        tool.refused(['eu_group', 'create', '-d', 'mlx5_0', '-n', name, '-r', '9'], reason)
    for number in range(3, 16):
        tool.run('eu_group', 'create', '-d', 'mlx5_0', '-n', f'g{number}', '-r', str(100 + number))
    tool.refused(f'{create} -n more -r 99', 'mlx5_0 has 15 EU groups; there cannot be more')
    tool.ok('eu_group destroy -d mlx5_0 -g 1', 'Group with group id: 1, was destroyed successfully\n')
    tool.json('eu_group destroy -d mlx5_0 --name_group b', {'destroyed_eu_group': 2})
    for number in range(3, 16):
        tool.run('eu_group', 'destroy', '-d', 'mlx5_0', '-g', str(number))
    if os.listdir(tool.shm):
        raise peers.Failure(f'nothing is configured, and there is {os.listdir(tool.shm)}')


def check_apply(tool):
    good = '{"eu_groups": [{"name": "hg1", "range": "178-180"}, {"name": "hg2", "range": "2-4"}]}'
    shown = ('1) EU group ID: 1\nEU group name: hg1\nMember EUs are: 178,179,180\n\n'
             '2) EU group ID: 2\nEU group name: hg2\nMember EUs are: 2,3,4\n\nIn total there are 2 EU groups configured.\n')
    tool.run('eu_group', 'create', '-d', 'mlx5_0', '-n', 'old', '-r', '2,178')
    tool.ok(f'eu_group apply -d mlx5_0 --file_groups {tool.groups(good)}', shown)
    tool.ok('eu_group apply -d mlx5_0 -f -', shown, input=good)
    nested = '[' * 5000
    for text, reason in (
            ('', 'not JSON'), ('{', 'not JSON: line 1'), ('{\n\n"eu_groups": x}', 'not JSON: line 3'), ('[]', r'not \{"eu_groups"'),
            ('7', r'not \{"eu_groups"'), ('{}', r'not \{"eu_groups"'), ('{"eu_groups": {}}', r'not \{"eu_groups"'),
            ('{"EU_GROUPS": []}', r'not \{"eu_groups"'), ('{"eu_groups": [], "x": 1}', r'not \{"eu_groups"'),
            ('{"eu_groups": []} x', 'not JSON'), ('{"eu_groups": [], "eu_groups": []}', r'not \{"eu_groups"'),
            ('{"eu_groups": [1]}', 'group 1 of the file is not'), ('{"eu_groups": [{"name": "a"}]}', 'group 1 of the file is not'),
            ('{"eu_groups": [{"name": "a", "name": "b"}]}', '"range" is missing'),
            ('{"eu_groups": [{"name": 1, "range": "1"}]}', '"name" is not a string'),
            ('{"eu_groups": [{"name": "a", "range": 1}]}', '"range" is not a string'),
            ('{"eu_groups": [{"name": "a", "range": "1"}, {"name": "b", "range": "1"}]}', r'group 2 of the file: EU 1 is in EU group 1 \(a\)'),
            ('{"eu_groups": [{"name": "a", "range": "1"}, {"name": "a", "range": "2"}]}', 'group 2 of the file: there is an EU group'),
            ('{"eu_groups": [{"name": "a", "range": "190"}]}', 'EU 190 does not exist'),
            ('{"eu_groups": [{"name": "a", "range": ""}]}', 'not a list of EUs'),
            ('{"eu_groups": [{"name": "a\\u0000b", "range": "1"}]}', 'NUL character'),
            ('{"eu_groups": [{"name": "a\\nb", "range": "1"}]}', 'printable'),
            (b'{"eu_groups": []}\0', 'NUL character'), (b'\xff\xfe', 'not JSON'), (nested, 'not JSON'),
            ('{"eu_groups": [' + '{},' * 100000 + '{}]}', 'group 1 of the file is not'), (b' ' * (1 << 21), 'longer than'),
            ('{"eu_groups": [' + ','.join(f'{{"name": "g{n}", "range": "{n}"}}' for n in range(16)) + ']}', 'there cannot be more')):
        tool.refused(f'eu_group apply -d mlx5_0 -f {tool.groups(text)}', reason)
    tool.refused('eu_group apply -d mlx5_0 -f /no/such/file', 'No such file')
    tool.refused('eu_group apply -d mlx5_0 -f /', 'Is a directory')
    empty = tool.groups('{"eu_groups": []}')
    tool.ok(f'eu_group apply -d mlx5_0 -f {empty}', 'In total there are 0 EU groups configured.\n')


def check_partitions(tool):
    first = ('EU Partition ID: 1\nMaximal number of groups: 1\nThe partition has a total of 2 associated VHCA IDs, namely: 1,3\n'
             "Partition's member EUs are: 10,11,12\n")
    create = 'partition create -d mlx5_0'
    tool.ok(f'{create} -v 1,3 -r 10-12 -m 1', 'Partition created successfully-\n' + first)
    tool.ok('partition query -d mlx5_0', f'1) {first}\nIn total there are 1 EU partitions configured.\n')
    tool.ok('partition query -d mlx5_0 -p 1', first)
    tool.json('partition query -d mlx5_0 -p 1', {'partition': {'id': 1, 'max_eu_groups': 1, 'eus': [10, 11, 12], 'vhcas': [
        {'id': 1, 'device': 'mlx5_1'}, {'id': 3, 'device': 'mlx5_2'}]}})
    for line, reason in {
            f'{create} -v 1 -r 20 -m 1': 'mlx5_1 is in EU partition 1 of mlx5_0', f'{create} -v 0 -r 20 -m 1': 'mlx5_0 manages the partitions',
            f'{create} -v 2 -r 20 -m 1': 'VHCA 2 is mlx4_0, which has no accelerator', f'{create} -v 4 -r 20 -m 1': 'VHCA 4 does not exist',
            f'{create} -v x -r 20 -m 1': 'not a list of VHCAs', f'{create} -v 0-40 -r 20 -m 1': 'at most 32 VHCAs',
            'partition create -d mlx5_1 -v 0 -r 0 -m 1': 'mlx5_1 is in EU partition 1 of mlx5_0 and cannot have partitions itself',
            'partition destroy -d mlx5_0 -p 2': 'no EU partition 2', 'partition query -d mlx5_0 -p 2': 'no EU partition 2',
            'eu_group create -d mlx5_0 -n a -r 12': 'EU 12 belongs to EU partition 1',
            'eu_group create -d mlx5_1 -n a -r 3': 'EU 3 does not exist; EUs are numbered 0 to 2',
    }.items():
        tool.refused(line, reason)
    tool.ok('eu_group info -d mlx5_1', 'Max number of DPA EU groups: 1\nMax number of DPA EUs in one DPA EU group: 3\n'
            'Max DPA EU number available to use: 3\nMax EU group name length is 15 chars\n')
    tool.ok('info status -d mlx5_1', 'root: 0\nprocesses: 0\nnumber_of_partitions: 0\nnumber_of_groups: 0\neus: 3\neus_in_no_group: 3\n')
    tool.ok('info vhca -d mlx5_0', 'VHCA ID  Device           EU partition\n0        mlx5_0           default\n'
            '1        mlx5_1           1 of mlx5_0\n3        mlx5_2           1 of mlx5_0\n')
    tool.ok('eu_group create -d mlx5_1 -n a -r 0-2', 'Group created successfully-\nEU group ID: 1\nEU group name: a\nMember EUs are: 0,1,2\n')
    tool.refused('partition destroy -d mlx5_0 -p 1', 'mlx5_1 has EU groups in EU partition 1')
    tool.ok('eu_group destroy -d mlx5_1 -n a', 'Group with group id: 1, was destroyed successfully\n')
    tool.ok('partition destroy -d mlx5_0 -p 1', 'Partition with partition id: 1, was destroyed successfully\n')
    tool.run(*f'{create} -v 1 -r 0 -m 14'.split())
    tool.refused(f'{create} -v 3 -r 1 -m 2', '1 of the 15 EU groups of mlx5_0 are free, not 2')
    for number in (0, 16):
        tool.refused(f'{create} -v 3 -r 1 -m {number}', '1 to 15 EU groups')
    tool.json('partition destroy -d mlx5_0 -p 1', {'destroyed_partition': 1})


def check_two_at_once(tool):
    """Fifteen of thirty commands that run at the same time get a group; none is lost, and none is there twice."""
    commands = [subprocess.Popen([TOOL, 'eu_group', 'create', '-d', 'mlx5_0', '-n', f'g{n}', '-r', str(n)], env=tool.env,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for n in range(30)]
    won = sum(command.wait(timeout=60) == 0 for command in commands)
    there = json.loads(tool.run('eu_group', 'query', '-d', 'mlx5_0', '--json').stdout)['eu_groups']
    if won != 15 or [group['id'] for group in there] != list(range(1, 16)):
        raise peers.Failure(f'{won} commands succeeded, and there is {there}')
    # Killed at any moment they leave a whole store.
    for number in range(30):
        command = subprocess.Popen([TOOL, 'eu_group', 'apply', '-d', 'mlx5_0', '-f',
                                    tool.groups(json.dumps({'eu_groups': [{'name': f'k{number}', 'range': '0'}]}))],
                                   env=tool.env, stdout=subprocess.PIPE)
        if number % 3:
            command.stdout.read(number % 3)
        command.send_signal(signal.SIGKILL)
        command.communicate()
        if tool.run('eu_group', 'query', '-d', 'mlx5_0').returncode:
            raise peers.Failure('a killed command left a store that is not whole')
    tool.run('eu_group', 'apply', '-d', 'mlx5_0', '-f', '-', input='{"eu_groups": []}')


def check_slow_file(tool):
    """A file that comes slowly keeps nobody from the store."""
    with subprocess.Popen([TOOL, 'eu_group', 'apply', '-d', 'mlx5_0', '-f', '-'], env=tool.env, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as slow:
        slow.stdin.write('{"eu_groups": [')
        slow.stdin.flush()
        for number in range(3):  # it has begun by the last one
            tool.run('eu_group', 'create', '-d', 'mlx5_0', '-n', f'slow{number}', '-r', str(number))
            time.sleep(.3)
        if len(json.loads(tool.run('eu_group', 'query', '-d', 'mlx5_0', '--json').stdout)['eu_groups']) != 3:
            raise peers.Failure('another command was kept from the store')
        if slow.communicate(']}', timeout=60)[0] != 'In total there are 0 EU groups configured.\n' or slow.returncode:
            raise peers.Failure(f'apply: {slow.returncode}')


def check_entries(tool):
    """Entries of the registry file as programs write them (src/meet/registry_file.h): each counts while the lock of its slot
    is held, and one that no program could have written counts for nothing."""
    tool.run('eu_group', 'create', '-d', 'mlx5_0', '-n', 'a', '-r', '0-3')
    slot, generation, slots, most = 5, 7, 256, 1 << 16
    cases = ((slot + 1, generation, 'mlx5_0', 3, 3), (slot + 1, generation, 'mlx5_0', 1 << 31, most),
             (slot + 1, generation + 1, 'mlx5_0', 3, 0), (slot + 2, generation, 'mlx5_0', 3, 0), (slots + 1, generation, 'mlx5_0', 3, 0),
             (0, generation, 'mlx5_0', 3, 0), (slot + 1, generation, 'mlx5_0' + 'x' * 26, 3, 0), (slot + 1, generation, 'mlx5_1', 3, 0))
    with open(os.path.join(os.path.dirname(tool.store()), 'registry'), 'r+b', buffering=0) as registry:
        for owner, of, card, processes, wanted in cases:
            registry.seek(64 + 64 * slot)
            registry.write(struct.pack('<II', os.getpid(), generation))
            registry.seek(64 + 64 * slots)
            registry.write(struct.pack('<II32sII', owner, of, card.encode(), 2, processes))
            fcntl.lockf(registry, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
            said = json.loads(tool.run('info', 'status', '-d', 'mlx5_0', '--json').stdout)
            if said['processes'] != wanted:
                raise peers.Failure(f'{owner} {of} {card} {processes}: {said}')
            if wanted:
                tool.refused('partition create -d mlx5_0 -v 1 -r 10-20 -m 1',
                             f'{wanted} device processes run on mlx5_0, one of process {os.getpid()}$')
                tool.refused('eu_group destroy -d mlx5_0 -n a', f'EU group 1 is in use by process {os.getpid()}$')
            fcntl.lockf(registry, fcntl.LOCK_UN, 1, slot)
            said = json.loads(tool.run('info', 'status', '-d', 'mlx5_0', '--json').stdout)
            if said['processes']:
                raise peers.Failure(f'a process that is gone: {said}')
    tool.run('eu_group', 'destroy', '-d', 'mlx5_0', '-n', 'a')
    if os.listdir(tool.shm):
        raise peers.Failure(f'there is still {os.listdir(tool.shm)}')


def check_blocked_output(tool):
    """A reader of what is printed that does not read keeps nobody from the registry."""
    tool.run('eu_group', 'create', '-d', 'mlx5_0', '-n', 'a', '-r', '0-189')
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b'x' * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    with subprocess.Popen([TOOL, 'eu_group', 'query', '-d', 'mlx5_0'], env=tool.env, stdout=writer) as stuck, \
         subprocess.Popen([TOOL, 'eu_group', 'destroy', '-d', 'mlx5_0', '-g', '9'], env=tool.env, stderr=writer) as refused:
        for _ in range(2):  # both have begun by then
            time.sleep(.3)
            tool.run('eu_group', 'create', '-d', 'mlx5_1', '-n', 'b', '-r', '0')
            tool.ok('eu_group destroy -d mlx5_1 -n b', 'Group with group id: 1, was destroyed successfully\n')
        os.close(writer)
        with open(reader, 'rb') as text:
            text.read()
        if stuck.wait(60) != 0 or refused.wait(60) != 1:
            raise peers.Failure(f'exit codes {stuck.returncode}, {refused.returncode}')
    tool.run('eu_group', 'destroy', '-d', 'mlx5_0', '-n', 'a')


def check_store(tool):
    """What lies under the store's name and is not one is never taken for one."""
    tool.run('eu_group', 'create', '-d', 'mlx5_0', '-n', 'a', '-r', '0-3')
    path = tool.store()
    whole = tool.files()[path]
    for bad in (b'', whole[:-1], whole + b'\n', whole.replace(b'0-3', b'0-4'), os.urandom(100), b'x' * (2 << 20)):
        with open(path, 'wb') as out:
            out.write(bad)
        for line in ('eu_group query -d mlx5_0', 'eu_group create -d mlx5_0 -n b -r 9', 'partition query -d mlx5_0'):
            tool.refused(line, r'/eu-groups is damaged and not used: .*; remove that file')
    os.unlink(path)
    tool.ok('eu_group query -d mlx5_0', 'In total there are 0 EU groups configured.\n')
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    os.symlink('/etc/passwd', path)
    tool.refused('eu_group create -d mlx5_0 -n a -r 0-3', 'is damaged and not used: Operation not permitted')
    os.unlink(path)
    tool.run('eu_group', 'create', '-d', 'mlx5_0', '-n', 'a', '-r', '0-3')
    if os.stat(path).st_mode & 0o777 != 0o600 or os.stat(os.path.dirname(path)).st_mode & 0o777 != 0o700:
        raise peers.Failure('others can read the store')
    tool.run('eu_group', 'destroy', '-d', 'mlx5_0', '-n', 'a')
    done = subprocess.run([TOOL, 'eu_group', 'query', '-d', 'mlx5_0'], env={**tool.env, 'VERBATIM_SHM_DIR': '/no/such'},
                          capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 1 or 'VERBATIM_SHM_DIR=/no/such' not in done.stderr:
        raise peers.Failure(done.stdout + done.stderr)


def check_users(tool):
    """Users do not see each other's groups, and cannot keep each other from having some. Only root can be two users."""
    if os.geteuid():
        return
    nobody = 65534
    os.chmod(tool.folder, 0o755)
    os.chmod(tool.shm, 0o1777)
    create = ('eu_group', 'create', '-d', 'mlx5_0', '-n', 'a', '-r', '0-3')
    for user in (0, nobody):
        done = tool.run(*create, user=user, group=user)
        if done.returncode:
            raise peers.Failure(f'user {user}: {done.stderr}')
    for user in (0, nobody):
        tool.ok('eu_group destroy -d mlx5_0 -n a', 'Group with group id: 1, was destroyed successfully\n', user=user, group=user)
    # The name of root's directory, taken by another user first.
    tool.run(*create)
    (folder,) = os.listdir(tool.shm)
    tool.run('eu_group', 'destroy', '-d', 'mlx5_0', '-n', 'a')
    planted = os.path.join(tool.shm, folder)
    os.mkdir(planted)
    with open(os.path.join(planted, 'eu-groups'), 'w', encoding='ascii') as text:
        text.write('verbatim-eus 1\n')
    os.chown(planted, nobody, nobody)
    tool.ok('eu_group query -d mlx5_0', 'In total there are 0 EU groups configured.\n')
    if tool.run(*create).returncode or sorted(os.listdir(tool.shm)) != [folder, folder + '-1']:
        raise peers.Failure(f'there is {os.listdir(tool.shm)}')
    tool.run('eu_group', 'destroy', '-d', 'mlx5_0', '-n', 'a')


def run():
    with tempfile.TemporaryDirectory() as folder:
        tool = Tool(folder)
        for check in (check_front, check_info, check_groups, check_apply, check_partitions, check_two_at_once, check_slow_file, check_entries,
                      check_blocked_output, check_store, check_users):
            check(tool)


peers.main(run)
