#!/usr/bin/env python3
"""Walks the include graph of src/ and fails on an include that goes up or sideways.

usage: includes.py SOURCE_ROOT

Calls go down only: api, card, fabric, meet, host, base, and api, dpa, host, base. A folder shows the others a few headers (SHOWN); all else
in it is its own. Prints one TAP line per rule that files keep, and names file, line and header of each that does not.
"""
import os
import re
import sys

HOST = ['host', 'host/shared', 'host/trap']
CARD_ROOMS = ['card/queue', 'card/transport', 'card/memory', 'card/ether', 'card/fault', 'card/emulation']
CARD = ['card', *CARD_ROOMS, 'card/format', 'card/hbl', 'fabric', 'packet', 'packet/frame', 'steer', 'control/record', 'control/ask', 'control/show', *HOST, 'base']

# Folder: the folders below it, whose headers it may use.
BELOW = {
    'base': [],
    'host': ['base'],
    'host/patch': ['host', 'base'],
    'host/trap': ['host', 'host/patch', 'base'],
    'host/shared': ['host', 'base'],
    'host/memory': ['host', 'host/shared', 'base'],
    'host/preload': ['card', 'card/hbl', 'host', 'base'],
    'meet': ['host', 'host/patch', 'base'],
    'control/record': ['base'],
    'control/ask': ['host', 'base'],
    'control/show': ['meet', 'host', 'base'],
    'packet/frame': ['base'],
    'packet': ['packet/frame', 'base'],
    'steer': ['packet/frame', 'base'],
    'fabric': ['packet', 'control/record', 'control/ask', 'control/show', 'meet', *HOST, 'base'],
    'card/format': ['packet/frame', 'host', 'base'],
    **{room: CARD for room in CARD_ROOMS},
    'card': CARD,
    'card/hbl': ['card', 'card/format', 'card/transport', 'fabric', 'packet', 'control/record', 'control/show', *HOST, 'base'],
    'dpa': ['dpa/observe', 'control/record', 'control/show', *HOST, 'base'],
    'dpa/observe': ['dpa', *HOST, 'base'],
    'gdb': ['dpa', 'dpa/observe', 'control/ask', *HOST, 'base'],
    'device': [],
    'api': ['card', *CARD_ROOMS, 'base'],
    'api/ibverbs': ['api', 'card', *CARD_ROOMS, 'card/hbl', *HOST, 'base'],
    'api/mlx4': ['api', 'api/ibverbs', 'card', *CARD_ROOMS, 'base'],
    'api/mlx5': ['api', 'api/ibverbs', 'card', *CARD_ROOMS, 'steer', 'base'],
    'api/hbl': ['api', 'api/ibverbs', 'card', *CARD_ROOMS, 'card/hbl', 'base'],
    'api/emulation': ['api', 'card', *CARD_ROOMS, 'base'],
    'api/flexio': ['api', 'api/ibverbs', 'card', *CARD_ROOMS, 'dpa', 'dpa/observe', 'gdb', 'device',
                   'control/record', 'control/show', 'meet', *HOST, 'base'],
    'api/dpa_stats': ['control/show', 'base'],
    'tools': ['card', *CARD_ROOMS, 'fabric', 'packet/frame', 'dpa', 'gdb', 'control/record', 'control/ask', 'control/show', 'meet',
              *HOST, 'host/patch', 'host/preload', 'base'],
}

# What a folder shows to those above it; base shows everything.
SHOWN = {
    'host': {'fault.h', 'heap.h', 'real.h', 'rights.h', 'signals.h', 'thread.h', 'wait.h'},
    'host/patch': {'patch.h', 'sites.h', 'store.h'},
    'host/trap': {'trap.h'},
    'host/shared': {'arena.h', 'born.h', 'shared.h'},
    'host/preload': {'rows.h'},
    'meet': {'eus.h', 'registry.h', 'registry_dir.h'},
    'control/show': {'monitor.h', 'dpa.h', 'layout.h'},
    'control/record': {'timeline.h'},
    'control/ask': {'ask.h', 'client.h', 'socket.h'},
    'fabric': {'fabric.h', 'direct.h', 'entries.h', 'function.h', 'host.h', 'lend.h'},
    'card/format': {'format.h', 'mlx4.h', 'mlx5.h', 'hbl.h'},
    'card': {'card.h', 'notes.h', 'alarm.h', 'burst.h', 'deferred.h', 'sink.h', 'state.h'},
    'card/queue': {'counter_set.h', 'cq.h', 'doorbell.h', 'eq.h', 'listen.h', 'qp.h', 'srq.h', 'umem.h'},
    'card/memory': {'mr.h'},
    'card/transport': {'pace.h', 'reliable.h'},
    'card/ether': {'flow.h'},
    'card/fault': {'inject.h'},
    'card/emulation': {'emulation.h'},
    'packet': {'packet.h', 'roce.h'},
    'packet/frame': {'frame.h', 'bytes.h'},
    'steer': {'steer.h'},
    'api': {'devx.h', 'edge.h'},
    'card/hbl': {'hbl.h', 'sink.h'},
    'dpa': {'dpa.h'},
    'dpa/observe': {'debug.h'},
    'gdb': {'listen.h', 'link.h'},
    'device': {'rtos.h'},
    'api/ibverbs': {'accessors.h'},
}

# Folders that are one to the rules between them: inside, what is shown to others does not count.
HOUSES = [{'card', *CARD_ROOMS}, {'dpa', 'dpa/observe'}]

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def folder_of(path):
    """The folder of BELOW that a file of src/ belongs to."""
    parts = os.path.dirname(path).split(os.sep)
    for depth in range(len(parts), 0, -1):
        if '/'.join(parts[:depth]) in BELOW:
            return '/'.join(parts[:depth])
    return None


def files(root):
    for base, _, names in os.walk(root):
        for name in names:
            if name.endswith(('.c', '.h', '.S')):
                yield os.path.relpath(os.path.join(base, name), root)


def target(root, path, include):
    """The file of src/ that an include names, or None for one of the system or of include/."""
    for place in (os.path.join(os.path.dirname(path), include), include):
        if os.path.exists(os.path.join(root, place)):
            return os.path.normpath(place)
    return None


def judge(path, to):
    """What is wrong with this include, or None."""
    mine, theirs = folder_of(path), folder_of(to)
    if mine == theirs:
        return None
    if theirs not in BELOW[mine]:
        return f'{mine} is not above {theirs}'
    if any(mine in house and theirs in house for house in HOUSES):
        return None
    if theirs in SHOWN and os.path.basename(to) not in SHOWN[theirs]:
        return f'{os.path.basename(to)} is {theirs}\'s own'
    return None


def main():
    root = os.path.join(sys.argv[1], 'src')
    wrong, checked = [], 0
    for path in sorted(files(root)):
        if folder_of(path) is None:
            wrong.append(f'{path}: its folder is not in this test\'s table')
            continue
        with open(os.path.join(root, path), encoding='utf-8') as source:
            for number, line in enumerate(source, 1):
                match = INCLUDE.match(line)
                to = match and target(root, path, match[1])
                if not to:
                    continue
                checked += 1
                fault = judge(path, to) if folder_of(to) else f'{to}: its folder is not in the table'
                if fault:
                    wrong.append(f'{path}:{number}: {match[1]}: {fault}')
    print('1..1')
    for text in wrong:
        print('# ' + text)
    print(('not ok' if wrong or not checked else 'ok') + f' 1 - {checked} includes go down')
    return 1 if wrong or not checked else 0


if __name__ == '__main__':
    sys.exit(main())
