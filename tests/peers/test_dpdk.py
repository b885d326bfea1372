#!/usr/bin/env python3
"""Debian's dpdk-testpmd on two of our adapters, with the options of DPDK's own guides: it finds them on the PCI bus, drives
their rings, and forwards frames that `verbatim cable` lets arrive and records.

usage: test_dpdk.py [--nobody] mlx5|mlx4

A DPDK port needs a network interface of Ethernet, and the frames shall meet no one else: all of it runs in a network
namespace of its own, with a veth pair for interfaces.
"""
import argparse
import glob
import logging
import os
import re
import shutil
import signal
import subprocess
import sys

import peers

logging.getLogger('scapy').setLevel(logging.ERROR)
try:
    from scapy.layers.inet import IP, TCP, UDP
    from scapy.layers.l2 import Dot1Q, Ether
    from scapy.utils import rdpcap, wrpcap
except ImportError:
    Ether = None

MACS = ('02:00:00:00:00:10', '02:00:00:00:00:11')
STRANGER, SENDER, GROUP = '02:00:00:00:00:77', '02:00:00:00:00:99', '01:00:5e:01:02:03'
PROMPT = 'testpmd> '


def enter_namespace():
    """This script once more, in a network namespace with two interfaces."""
    if os.environ.get('VERBATIM_TEST_NETNS'):
        return
    unshare = ['unshare', '--net'] + (['--user', '--map-root-user'] if os.geteuid() else [])
    made = subprocess.run(unshare + ['ip', 'link', 'add', 'v0', 'type', 'veth', 'peer', 'v1'], capture_output=True, text=True,
                          check=False)
    if made.returncode:
        raise peers.Skip(f'no network namespace with a veth pair: {made.stderr.strip()}')
    os.environ['VERBATIM_TEST_NETNS'] = '1'
    os.execvp(unshare[0], unshare + [sys.executable, os.path.abspath(__file__)] + sys.argv[1:])


def add_interfaces():
    for command in (f'ip link add v0 address {MACS[0]} type veth peer v1 address {MACS[1]}', 'ip link set lo up',
                    'ip link set v0 up', 'ip link set v1 up'):
        subprocess.run(command.split(), check=True)


class Host:
    """The configuration, and the frames of its two ports."""

    def __init__(self, world, form):
        self.world = world
        self.names = [f'{form}_0', f'{form}_1']
        config = ''.join(f'[adapter {name}]\ninterface = v{i}\ncable = {name}\n' for i, name in enumerate(self.names))
        with open(self.path('verbatim.conf'), 'w', encoding='ascii') as out:
            out.write(config)
        os.chmod(world.home, 0o755)

    def path(self, name):
        return os.path.join(self.world.home, name)

    def popen(self, *args):
        return subprocess.Popen([os.path.join(self.world.tree, 'bin', 'verbatim'), 'cable', *args], cwd=self.world.home,
                                env=self.world.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                **self.world.ids)

    def replay(self, port, frames):
        wrpcap(self.path('in.pcap'), frames)
        process = self.popen('replay', 'in.pcap', '--to', self.names[port], '--rate', 'max')
        said, complained = process.communicate(timeout=self.world.seconds)
        if process.returncode or not said.startswith(f'{len(frames)} '):
            raise peers.Failure(f'replay to {self.names[port]}: {said}{complained}')

    def dump(self, port, count):
        """What the port sends, until there are so many frames."""
        process = self.popen('dump', self.names[port], '-Q', 'out', '-c', str(count), '-w', f'out{port}.pcap')
        line = process.stderr.readline()
        if not line.startswith('listening on'):
            raise peers.Failure(f'dump: {line}')
        return process

    def dumped(self, process, port):
        try:
            process.wait(self.world.seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        process.communicate()
        return [bytes(frame) for frame in rdpcap(self.path(f'out{port}.pcap'))]


def cores():
    """Two logical cores, as its guides want, on what processors there are: one for commands, one that polls."""
    there = sorted(os.sched_getaffinity(0))
    return ['-l', f'{there[0]},{there[1]}'] if len(there) > 1 else ['--lcores', f'0@{there[0]},1@{there[0]}']


class Testpmd:
    """An interactive testpmd; commands are done one after the other."""

    def __init__(self, host, eal, options):
        self.host = host
        world = host.world
        program = shutil.which('dpdk-testpmd')
        if not program:
            raise peers.Skip('dpdk-testpmd is not installed (package dpdk-dev)')
        self.log = open(host.path('testpmd.log'), 'w+b')
        # What it would put below /var/run goes into our folder.
        environment = {**world.environment(), 'RUNTIME_DIRECTORY': world.home, 'XDG_RUNTIME_DIR': world.home}
        self.process = subprocess.Popen(world.command(['stdbuf', '-oL', program, *cores(), '--no-telemetry', *eal, '--',
                                                       '-i', '--no-lsc-interrupt', *options]),
                                        stdin=subprocess.PIPE, stdout=self.log, stderr=subprocess.STDOUT, cwd=world.home,
                                        env=environment, **world.ids)
        self.wait_for(lambda text: PROMPT in text, 'its prompt')

    @property
    def output(self):
        with open(self.log.name, 'rb') as log:
            return log.read().decode(errors='replace').replace('\r', '')

    def wait_for(self, found, what):
        peers.poll_until(lambda: found(self.output) or self.process.poll() is not None, self.host.world.seconds,
                         f'testpmd: {what}')
        if not found(self.output):
            raise peers.Failure(f'testpmd ended with {self.process.returncode} before {what}')

    def do(self, command):
        """What it says to a command."""
        start = len(self.output)
        self.process.stdin.write(command.encode() + b'\n')
        self.process.stdin.flush()
        self.wait_for(lambda text: PROMPT in text[start:], f'an answer to {command!r}')
        said = self.output[start:].partition(PROMPT)[0]
        if re.search(r'Bad arguments|Command not found|[Cc]aught .*error|Invalid', said):
            raise peers.Failure(f'testpmd: {said}')
        return said

    def stats(self, port):
        said = self.do(f'show port stats {port}')
        return {key: int(value) for key, value in re.findall(r'([RT]X-\w+):\s+(\d+)', said)}

    def wait_received(self, port, count):
        peers.poll_until(lambda: self.stats(port)['RX-packets'] >= count, 30,
                         f'testpmd: {count} frames at port {port}, of which came {self.stats(port)}')

    def interrupts_served(self):
        """Whether DPDK's thread of interrupts sleeps; what woke it up before is done then."""
        for task in glob.glob(f'/proc/{self.process.pid}/task/*/stat'):
            with open(task, encoding='ascii') as stat:
                name, state = re.search(r'\((.*)\) (\S)', stat.read()).groups()
            if name == 'eal-intr-thread':
                return state == 'S'
        raise peers.Failure('testpmd has no thread of interrupts')

    def quit(self):
        """End it, one port after the other. The end of a port wakes the thread of interrupts, which then waits anew for
        the descriptors of all others, and net_mlx4 closes async_fd before it takes it from that thread's list: where the
        next port ends just then the thread panics with "Error adding fd", with a card of hardware as well."""
        self.do('port stop all')
        self.do('port close 0')
        peers.poll_until(self.interrupts_served, self.host.world.seconds, 'testpmd: its thread of interrupts')
        self.process.stdin.write(b'quit\n')
        self.process.stdin.flush()
        if self.process.wait(self.host.world.seconds):
            raise peers.Failure(f'testpmd: exit code {self.process.returncode}')

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()


def same(got, wanted, what):
    if got != wanted:
        raise peers.Failure(f'{what}: {got!r}, not {wanted!r}')


def udp(dst, i, size=18, dport=53, tag=None):
    head = Ether(src=SENDER, dst=dst) / Dot1Q(vlan=tag) if tag else Ether(src=SENDER, dst=dst)
    return head / IP(src=f'10.0.{i >> 8}.{i & 255}', dst='10.1.0.1') / UDP(sport=1000 + i, dport=dport) / (b'%c' % (i & 255) * size)


def check_forwarding(host, pmd):
    """Frames of all lengths through the program, both ways at once, unchanged, and those of one sender in order."""
    frames = [udp(STRANGER, i % 20, 18 + i * 7 % 1455) for i in range(200)]

    def by_sender(data):
        return sorted(data, key=lambda frame: frame[26:30])

    pmd.do('set fwd io')
    pmd.do('start')
    dumps = [host.dump(port, len(frames)) for port in (1, 0)]
    for port in (0, 1):
        host.replay(port, frames)
    for dump, port in zip(dumps, (1, 0)):
        got, wanted = by_sender(host.dumped(dump, port)), by_sender(map(bytes, frames))
        same(len(got), len(wanted), f'frames that port {port} forwarded')
        for is_frame, frame in zip(got, wanted):
            same(is_frame.hex(), frame.hex(), f'a frame that port {port} forwarded')
    pmd.do('stop')
    for port in (0, 1):
        stats = pmd.stats(port)
        same([stats[key] for key in ('RX-packets', 'TX-packets', 'RX-missed', 'RX-errors', 'RX-nombuf', 'TX-errors')],
             [200, 200, 0, 0, 0, 0], f'counters of port {port}')
        same(stats['RX-bytes'], sum(map(len, frames)), f'bytes of port {port}')


class Packet:
    def __init__(self, match, queue):
        self.source, self.target, rest = match[1].lower(), match[2].lower(), match[3]
        self.queue = queue
        found = re.search(r'RSS hash=0x([0-9a-f]+)', rest)
        self.hash = int(found[1], 16) if found else None
        found = re.search(r'FDIR matched ID=0x([0-9a-f]+)', rest)
        self.mark = int(found[1], 16) if found else None
        self.kind = re.search(r'hw ptype: (.*?) +- sw', rest)[1]
        self.sound = []

    def add_flags(self, line):
        """ol_flags come in a line of their own: which checksums are right."""
        self.sound = [layer for layer in ('IP', 'L4') if f'F_RX_{layer}_CKSUM_GOOD' in line]


def receive(host, pmd, frames, count):
    """The packets, as the program tells them, of which so many shall come and no more. The last one has to."""
    start = len(pmd.output)
    host.replay(0, frames)

    def packets():
        queue, found = None, []
        for line in pmd.output[start:].splitlines():
            match = re.search(r'port 0/queue (\d+): received', line)
            if match:
                queue = int(match[1])
            match = re.search(r'src=([0-9A-Fa-f:]{17}) - dst=([0-9A-Fa-f:]{17}) - (.*length=.*)', line)
            if match:
                found.append(Packet(match, queue))
            if 'ol_flags:' in line and found:
                found[-1].add_flags(line)
        return found

    # The last one is there when its line of flags is, to its end.
    peers.poll_until(lambda: len(re.findall(r'ol_flags:.*\n', pmd.output[start:])) >= count, 30, f'testpmd: {count} packets; there are {len(packets())}')
    same(len(packets()), count, 'packets')
    return packets()


def check_filters(host, pmd):
    """In promiscuous mode everything arrives; else what is for this station, and groups as they are wanted."""
    frames = [udp(STRANGER, 1), udp(GROUP, 2), udp('ff:ff:ff:ff:ff:ff', 3), udp(MACS[0], 4)]
    for promiscuous, groups, wanted in (('on', 'off', [0, 1, 2, 3]), ('off', 'off', [2, 3]), ('off', 'on', [1, 2, 3]),
                                        ('on', 'on', [0, 1, 2, 3]), ('off', 'off', [2, 3])):
        pmd.do(f'set promisc 0 {promiscuous}')
        pmd.do(f'set allmulti 0 {groups}')
        got = [packet.target for packet in receive(host, pmd, frames, len(wanted))]
        same(sorted(got), sorted(frames[i].dst for i in wanted), f'promiscuous {promiscuous}, groups {groups}')
    pmd.do('set promisc 0 on')


def check_headers(host, pmd):
    """What the card tells of a packet: its headers, and whether its checksums are right."""
    for command in ('stop', 'port stop all', *(f'port config 0 rx_offload {layer}_cksum on' for layer in ('ipv4', 'udp', 'tcp')),
                    'port start all', 'start'):
        pmd.do(command)
    for frame, kind, sound in ((udp(MACS[0], 1), 'L4_UDP', ['IP', 'L4']),
                               (Ether(src=SENDER, dst=MACS[0]) / IP(dst='10.1.0.1') / TCP(dport=80), 'L4_TCP', ['IP', 'L4']),
                               (Ether(src=SENDER, dst=MACS[0]) / IP(dst='10.1.0.1') / UDP(dport=7, chksum=1), 'L4_UDP', ['IP']),
                               (Ether(src=SENDER, dst=MACS[0]) / IP(dst='10.1.0.1', chksum=1) / UDP(dport=7), 'L4_UDP', ['L4'])):
        packet, = receive(host, pmd, [frame], 1)
        if kind not in packet.kind or 'L3_IPV4' not in packet.kind:
            raise peers.Failure(f'{frame.summary()}: {packet.kind}')
        same(packet.sound, sound, f'checksums of {frame.summary()}')


def toeplitz(key, data):
    value, window, bits = 0, int.from_bytes(key, 'big'), len(key) * 8
    for i in range(len(data) * 8):
        if data[i // 8] >> (7 - i % 8) & 1:
            value ^= window >> (bits - 32 - i) & 0xffffffff
    return value


def check_hashes(host, pmd, key, ports):
    """Each packet has the hash that Microsoft's document gives it, of its addresses or of its ports, too, and goes to the
    queue of its hash."""
    frames = [udp(MACS[0], i) for i in range(16)]
    for i in range(16, 24):
        frames.append(Ether(src=SENDER, dst=MACS[0]) / IP(src=f'10.0.0.{i}', dst='10.1.0.1') / TCP(sport=i, dport=80))
    queues = set()
    for frame in frames:
        packet, = receive(host, pmd, [frame], 1)
        data = bytes(frame)[26:34] + (bytes(frame)[34:38] if ports else b'')
        value = toeplitz(key, data)
        # net_mlx4 takes the number from the CQE as it is: in network order.
        told = value if host.names[0].startswith('mlx5') else int.from_bytes(value.to_bytes(4, 'little'), 'big')
        same(packet.hash, told, f'hash of {frame.summary()}')
        same(packet.queue, value & 1, f'queue of {frame.summary()}')
        queues.add(packet.queue)
    same(queues, {0, 1}, 'queues')


def check_rss(host, pmd):
    """As the port is configured; and by a rule with a key of its own. net_mlx4 has only the latter."""
    if host.names[0].startswith('mlx5'):
        for ports in (False, True):
            said = pmd.do('show port 0 rss-hash key')
            check_hashes(host, pmd, bytes.fromhex(re.search(r'RSS key:\s*([0-9A-Fa-f]+)', said)[1]), ports)
            for command in ('stop', 'port stop all', 'port config all rss all', 'port start all', 'start'):
                pmd.do(command)
    key = bytes(range(7, 47))
    for kind in ('udp', 'tcp'):
        create(pmd, f'eth dst is {MACS[0]} / ipv4 / {kind} / end actions rss queues 0 1 end types ipv4-{kind} end key {key.hex()} key_len 40 / end')
    check_hashes(host, pmd, key, True)
    pmd.do('flow flush 0')


def create(pmd, rule):
    """Its number."""
    said = pmd.do(f'flow create 0 ingress pattern {rule}')
    match = re.search(r'Flow rule #(\d+) created', said)
    if not match:
        raise peers.Failure(f'testpmd: {said}')
    return match[1]


def check_rules(host, pmd, form):
    """Rules that match decide the queue, drop, mark and count; without them all is as before."""
    marks = form == 'mlx5'
    rules = [f'eth dst is {MACS[0]} / ipv4 / udp dst is 4242 / end actions {"mark id 7 / " if marks else ""}queue index 1 / end',
             f'eth dst is {MACS[0]} / ipv4 / udp dst is 666 / end actions drop / end',
             f'eth dst is {MACS[0]} / ipv4 dst is 10.9.9.9 / end actions queue index 0 / end']
    if marks:
        rules.append('eth / vlan vid is 5 / end actions count / queue index 1 / end')
    numbers = [create(pmd, rule) for rule in rules]
    many = range(24)
    hit = receive(host, pmd, [udp(MACS[0], i, dport=4242) for i in many], len(many))
    same({(packet.queue, packet.mark) for packet in hit}, {(1, 7 if marks else None)}, 'what rule 4242 hit')
    other = receive(host, pmd, [udp(MACS[0], i, dport=666) for i in many] + [udp(MACS[0], 1)], 1)
    same(other[0].mark, None, 'a mark without a rule')
    frames = [udp(MACS[0], i) for i in many]
    for frame in frames:
        frame[IP].dst = '10.9.9.9'
    same({packet.queue for packet in receive(host, pmd, frames, len(many))}, {0}, 'what the rule of an address hit')
    if marks:
        tagged = receive(host, pmd, [udp(MACS[0], i, tag=5) for i in many], len(many))
        same({packet.queue for packet in tagged}, {1}, 'what the rule of a VLAN hit')
        said = pmd.do(f'flow query 0 {numbers[3]} count')
        same(re.findall(r'(hits|bytes): (\d+)', said), [('hits', str(len(many))), ('bytes', str(len(many) * 64))], 'count')
    pmd.do('flow flush 0')
    again = receive(host, pmd, [udp(MACS[0], i, dport=port) for i in many for port in (4242, 666)], 2 * len(many))
    same({packet.mark for packet in again}, {None}, 'marks without rules')
    same({packet.queue for packet in again}, {0, 1}, 'queues without rules')


def check_all(host, args):
    pmd = Testpmd(host, ['-m', '256', '--no-huge'], ['--total-num-mbufs=4096', '--rxq=2', '--txq=2'])
    try:
        check_forwarding(host, pmd)
        pmd.do('set fwd rxonly')
        pmd.do('set verbose 1')
        pmd.do('start')
        check_filters(host, pmd)
        check_rss(host, pmd)
        check_rules(host, pmd, args.format)
        check_headers(host, pmd)
        pmd.do('stop')
        pmd.quit()
    except peers.Failure:
        print(pmd.output[-20000:])
        raise
    finally:
        pmd.end()


def run():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--nobody', action='store_true')
    parser.add_argument('format')
    args = parser.parse_args()
    if not Ether:
        raise peers.Skip('scapy is not installed (python3-scapy)')
    if peers.sanitizer(peers.stage()):
        raise peers.Skip('dpdk-testpmd cannot load libraries with a sanitizer')
    enter_namespace()
    add_interfaces()
    with peers.World(args.nobody) as world:
        check_all(Host(world, args.format), args)


peers.main(run)
