#!/usr/bin/env python3
"""`verbatim cable` as users of scapy, tcpreplay and tcpdump meet it: files into a port and out of it.

usage: test_cable.py FRAME_PORT PROGRAMS

PROGRAMS is the folder of the test programs, of which some are run for their RDMA traffic.

Everything runs in a shared-memory folder of its own, so that no other process of this host meets its frames.
"""
import logging
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time

import peers

logging.getLogger('scapy').setLevel(logging.ERROR)
try:
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import ICMP, IP, TCP, UDP
    from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
    from scapy.layers.l2 import ARP, Dot1Q, Ether
    from scapy.layers.vxlan import VXLAN
    from scapy.utils import PcapReader, rdpcap, wrpcap
except ImportError:
    Ether = None

VERBATIM = os.path.join(peers.stage(), 'bin', 'verbatim')
SECONDS = 60


class Host:
    """Programs that meet each other and nobody else."""

    def __init__(self, folder):
        self.folder = folder
        shm = os.path.join(folder, 'shm')
        os.mkdir(shm)
        self.env = {'PATH': os.environ['PATH'], 'LANG': 'C', 'TZ': 'UTC', 'VERBATIM_SHM_DIR': shm,
                    'LD_LIBRARY_PATH': os.path.join(peers.stage(), 'lib')}
        for name in ('ASAN_OPTIONS', 'TSAN_OPTIONS', 'UBSAN_OPTIONS'):
            if name in os.environ:
                self.env[name] = os.environ[name]
        self.started = []

    def path(self, name):
        return os.path.join(self.folder, name)

    def popen(self, *argv, **options):
        process = subprocess.Popen(argv, env=self.env, stdin=options.pop('stdin', subprocess.PIPE),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.started.append(process)
        return process

    def call(self, *args, **options):
        return subprocess.run([VERBATIM, 'cable', *args], env=self.env, capture_output=True, timeout=SECONDS,
                              check=False, stdin=options.pop('stdin', subprocess.DEVNULL), **options)

    def replay(self, *args, code=0, stderr=None):
        done = self.call('replay', *args)
        expect(done, code, stderr=stderr)
        return done.stdout.decode()

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def expect(done, code, stdout=None, stderr=None):
    """Exit code, and a pattern in each output; without a pattern the output of errors must be empty."""
    said, complained = done.stdout.decode(), done.stderr.decode()
    what = ' '.join(done.args[1:])
    if done.returncode != code:
        raise peers.Failure(f'{what}: exit code {done.returncode}, not {code}\n{said}{complained}')
    if stdout and not re.search(stdout, said, re.M):
        raise peers.Failure(f'{what}: no {stdout!r} in:\n{said}')
    if stderr is None and complained or stderr and not re.search(stderr, complained, re.M):
        raise peers.Failure(f'{what}: {"nothing" if stderr is None else repr(stderr)} expected in:\n{complained}')


def same(got, wanted, what):
    if got != wanted:
        raise peers.Failure(f'{what}: {got!r}, not {wanted!r}')


class Lines:
    """The lines of a pipe, each within a bounded time."""

    def __init__(self, pipe):
        self.pipe, self.rest = pipe, b''

    def next(self, seconds=SECONDS):
        deadline = time.monotonic() + seconds
        while b'\n' not in self.rest:
            if not select.select([self.pipe], [], [], max(0, deadline - time.monotonic()))[0]:
                return None
            more = os.read(self.pipe.fileno(), 65536)
            if not more:
                return None
            self.rest += more
        line, self.rest = self.rest.split(b'\n', 1)
        return line.decode()


class Port:
    """A program with a queue pair and a flow."""

    def __init__(self, host, device, *options):
        self.process = host.popen(sys.argv[1], device, *options)
        self.lines = Lines(self.process.stdout)
        same(self.lines.next(), 'ready', f'{device}: program')

    def send(self, frame):
        self.process.stdin.write(b'send ' + bytes(frame).hex().encode() + b'\n')
        self.process.stdin.flush()

    def get(self, count):
        lines = [self.lines.next() for _ in range(count)]
        if None in lines:
            raise peers.Failure(f'only {lines.index(None)} of {count} frames arrived')
        return [bytes.fromhex(line.split()[1]) for line in lines]

    def end(self):
        """What came beside what was asked for."""
        said, complained = self.process.communicate(timeout=SECONDS)
        same(self.process.returncode, 0, f'program: {complained.decode()}')
        return [bytes.fromhex(line.split()[1]) for line in (self.lines.rest + said).decode().splitlines()]


class Dump:
    def __init__(self, host, *args):
        self.process = host.popen(VERBATIM, 'cable', 'dump', *args)
        self.errors = Lines(self.process.stderr)
        line = self.errors.next() or ''
        if not line.startswith(f'listening on {args[0]}, link-type EN10MB'):
            raise peers.Failure(f'dump: {line!r}')

    def end(self, number=signal.SIGINT, code=0):
        """(standard output, captured, seen, lost)"""
        if number:
            self.process.send_signal(number)
        said, complained = self.process.communicate(timeout=SECONDS)
        complained = self.errors.rest.decode() + complained.decode()
        same(self.process.returncode, code, f'dump: {complained}')
        match = re.search(r'^(\d+) frames captured\n(\d+) frames seen on \w+\n(\d+) frames lost', complained, re.M)
        if not match:
            raise peers.Failure(f'dump: no statistics in {complained!r}')
        self.complained = complained
        return (said, *map(int, match.groups()))


def padded(frame):
    return bytes(frame).ljust(60, b'\0')


def numbered(count, port=5000):
    return [Ether(src='02:00:00:00:00:01', dst='02:00:00:00:00:02') / IP(src='10.0.0.1', dst='10.0.0.2')
            / UDP(sport=7, dport=port + i % 2) / struct.pack('>I', i) for i in range(count)]


def write_pcap(path, frames, gap=0.0):
    for i, frame in enumerate(frames):
        frame.time = 10000000 + i * gap
    wrpcap(path, frames)


def write_pcapng(path, frames, link=1):
    def block(kind, body):
        body = body.ljust(-(-len(body) // 4) * 4, b'\0')
        return struct.pack('<II', kind, len(body) + 12) + body + struct.pack('<I', len(body) + 12)

    with open(path, 'wb') as out:
        out.write(block(0x0a0d0d0a, struct.pack('<IHHq', 0x1a2b3c4d, 1, 0, -1)))
        out.write(block(1, struct.pack('<HHI', link, 0, 0)))
        for i, frame in enumerate(map(bytes, frames)):
            out.write(block(6, struct.pack('<IIIII', 0, 0, i, len(frame), len(frame)) + frame))


def pcap_bytes(frames, link=1, lengths=None):
    out = struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, link)
    for i, frame in enumerate(frames):
        out += struct.pack('<IIII', i, 0, len(frame), lengths[i] if lengths else len(frame)) + frame
    return out


def check_programs(host):
    """Flows of all processes on that adapter see the frames, and nobody else does."""
    frames = numbered(40)
    write_pcap(host.path('a.pcap'), frames)
    write_pcapng(host.path('a.pcapng'), frames)
    wanted = [padded(f) for f in frames]
    for name in ('a.pcap', 'a.pcapng'):
        everything, half, other = Port(host, 'mlx5_0'), Port(host, 'mlx5_0', '5001'), Port(host, 'mlx5_1')
        said = host.replay(host.path(name), '--to', 'mlx5_0')
        same(said, f'40 frames, {sum(map(len, frames))} bytes replayed to mlx5_0\n', name)
        same(everything.get(40), wanted, f'{name}: all flows')
        same(half.get(20), wanted[1::2], f'{name}: UDP port 5001')
        same(everything.end() + half.end() + other.end(), [], f'{name}: frames that nobody sent')
    on4 = Port(host, 'mlx4_0')
    with open(host.path('a.pcap'), 'rb') as file:
        expect(host.call('replay', '-', '--to', 'mlx4_0', stdin=file), 0, stdout='^40 frames')
    same(on4.get(40), wanted, 'standard input')
    same(on4.end(), [], 'standard input: more')
    host.replay(host.path('a.pcap'), '--to', 'mlx5_0')  # nobody listens


def check_round_trip(host):
    """What dump writes is what was replayed, of every length."""
    frames = [Ether(dst='02:00:00:00:00:02') / bytes(n % 256 for n in range(size - 14))
              for size in (14, 15, 59, 60, 61, 64, 1499, 1514, 4096, 9000, 9215, 9216)]
    write_pcap(host.path('sizes.pcap'), frames)
    dump = Dump(host, 'mlx5_1', '-w', host.path('seen.pcap'))
    host.replay(host.path('sizes.pcap'), '--to', 'mlx5_1', '--loop', '5')
    before = time.time()
    same(dump.end()[1:], (60, 60, 0), 'sizes')
    seen = rdpcap(host.path('seen.pcap'))
    same([bytes(p) for p in seen], [padded(f) for f in frames] * 5, 'sizes')
    stamps = [float(p.time) for p in seen]
    if stamps != sorted(stamps) or not before - 3600 < stamps[0] < before + 1:
        raise peers.Failure(f'time stamps: {stamps}')
    with open(host.path('seen.pcap'), 'rb') as file:
        same(file.read(4), struct.pack('<I', 0xa1b23c4d), 'a file with nanoseconds')
    # and what dump has written can be replayed
    dump = Dump(host, 'mlx5_1', '-w', '-', '-c', '60')
    host.replay(host.path('seen.pcap'), '--to', 'mlx5_1', '--rate', 'max')
    same([bytes(p) for p in PcapReader(dump.process.stdout)], [padded(f) for f in frames] * 5, 'in a pipe')
    same(dump.end(number=0)[1:], (60, 60, 0), 'in a pipe')


def check_pipe_is_live(host):
    """A reader of a pipe has a frame when it was seen, not when there are many."""
    dump = Dump(host, 'mlx5_0', '-w', '-')
    reader = PcapReader(dump.process.stdout)
    for frame in numbered(3):
        write_pcap(host.path('one.pcap'), [frame])
        host.replay(host.path('one.pcap'), '--to', 'mlx5_0')
        same(bytes(reader.read_packet()), padded(frame), 'frame in a pipe')
    same(dump.end(signal.SIGTERM)[1:], (3, 3, 0), 'live pipe')


def check_two_processes(host):
    """Sent and received frames of a port, whoever has it open."""
    mac = [f'02:00:00:00:01:0{i}' for i in range(3)]
    dump, out = Dump(host, 'mlx5_0', '-w', host.path('both.pcap')), Dump(host, 'mlx5_0', '-Q', 'out')
    arrives = Dump(host, 'mlx5_0', '--direction', 'in')
    here, other = Port(host, 'mlx5_0'), Port(host, 'mlx5_1')
    first = Ether(src=mac[0], dst='ff:ff:ff:ff:ff:ff', type=0x88b5) / b'1'.ljust(60)
    second = Ether(src=mac[1], dst=mac[0], type=0x88b5) / b'2'.ljust(60)
    here.send(first)
    other.get(1)
    other.send(second)
    here.get(1)
    same(here.end() + other.end(), [], 'more frames')
    same(dump.end()[1:], (2, 2, 0), 'both directions')
    same([bytes(p) for p in rdpcap(host.path('both.pcap'))], [bytes(first), bytes(second)], 'both directions')
    for side, name, source in ((out, 'Out', mac[0]), (arrives, 'In ', mac[1])):
        said, captured, seen, lost = side.end()
        same((captured, seen, lost), (1, 2, 0), name)
        if not re.fullmatch(rf'\d\d:\d\d:\d\d\.\d{{6}} {name} {source} > .*\n', said.decode()):
            raise peers.Failure(f'{name}: {said}')


def check_lines(host):
    a, b = '02:00:00:00:00:01', '02:00:00:00:00:02'
    eth = Ether(src=a, dst=b)
    cases = [
        (Ether(src=a, dst='ff:ff:ff:ff:ff:ff') / ARP(hwsrc=a, psrc='10.0.0.1', pdst='10.0.0.2'),
         f'{a} > ff:ff:ff:ff:ff:ff, ethertype ARP (0x0806), length 60: Request who-has 10.0.0.2 tell 10.0.0.1, length 46'),
        (eth / ARP(op=2, hwsrc=a, psrc='10.0.0.1', pdst='10.0.0.2'), 'length 60: Reply 10.0.0.1 is-at ' + a + ', length 46'),
        (eth / IP(src='10.0.0.1', dst='10.0.0.2') / ICMP(id=7, seq=3) / bytes(56),
         f'{a} > {b}, ethertype IPv4 (0x0800), length 98: 10.0.0.1 > 10.0.0.2: ICMP echo request, id 7, seq 3, length 64'),
        (eth / IP(src='10.0.0.1', dst='10.0.0.2') / UDP(sport=1, dport=53) / b'abc', '10.0.0.1.1 > 10.0.0.2.53: UDP, length 3'),
        (eth / IP(src='10.0.0.1', dst='10.0.0.2') / TCP(sport=1, dport=80, flags='PA', seq=5, ack=9, window=77) / b'abcd',
         '10.0.0.1.1 > 10.0.0.2.80: Flags [P.], seq 5:9, ack 9, win 77, length 4'),
        (eth / IPv6(src='fd00::1', dst='fd00::2') / ICMPv6EchoRequest(id=1, seq=2),
         'ethertype IPv6 (0x86dd), length 62: fd00::1 > fd00::2: ICMP6, echo request, id 1, seq 2, length 8'),
        (eth / Dot1Q(vlan=5, prio=3) / IP(src='10.0.0.1', dst='10.0.0.2', proto=89) / bytes(20),
         'ethertype 802.1Q (0x8100), length 60: vlan 5, p 3, ethertype IPv4 (0x0800), 10.0.0.1 > 10.0.0.2: ip-proto-89, length 20'),
        (eth / IP(src='10.0.0.1', dst='10.0.0.2', frag=5) / bytes(40), 'ip-proto-0, length 40, fragment'),
        (eth / IP(src='1.1.1.1', dst='2.2.2.2') / UDP(sport=9) / VXLAN(vni=5) / Ether(src=b, dst=a)
         / IP(src='10.0.0.1', dst='10.0.0.2') / UDP(sport=1, dport=2),
         f'1.1.1.1.9 > 2.2.2.2.4789: UDP, length 50, vxlan: {b} > {a}, ethertype IPv4 (0x0800), length 42: '
         '10.0.0.1.1 > 10.0.0.2.2: UDP, length 0'),
        (eth / IP(src='10.0.0.1', dst='10.0.0.2', len=2000) / UDP(), 'IP, header is wrong or cut'),
        (Ether(src=a, dst=b, type=0x88b5) / bytes(50), 'ethertype Unknown (0x88b5), length 64: 50 bytes'),
    ]
    write_pcap(host.path('lines.pcap'), [frame for frame, _ in cases])
    dump = Dump(host, 'mlx5_0', '-c', str(len(cases)))
    host.replay(host.path('lines.pcap'), '--to', 'mlx5_0')
    lines = dump.end(number=0)[0].decode().splitlines()
    same(len(lines), len(cases), 'lines')
    for line, (_, wanted) in zip(lines, cases):
        if not line.endswith(wanted) or ' In  ' + a not in line:
            raise peers.Failure(f'{line!r} does not end in {wanted!r}')


def check_filter(host):
    write_pcap(host.path('a.pcap'), numbered(40))
    dump = Dump(host, 'mlx5_0', '-c', '5', '-w', host.path('odd.pcap'), 'udp', 'port', '5001', 'and', 'not', 'vlan')
    whole = Dump(host, 'mlx5_0', 'udp port 5000')
    host.replay(host.path('a.pcap'), '--to', 'mlx5_0')
    same(dump.end(number=0)[1], 5, 'frames of a filter with -c')
    same([p[UDP].dport for p in rdpcap(host.path('odd.pcap'))], [5001] * 5, 'ports that a filter lets pass')
    same(whole.end()[1:], (20, 40, 0), 'frames of a filter')
    expect(host.call('dump', 'mlx5_0', 'udp', 'prot', '5'), 2, stderr="filter 'udp prot 5': .*; man pcap-filter")


def check_rate(host):
    """Never faster than asked for; how much slower depends on what else the machine does."""
    frames = numbered(41)
    write_pcap(host.path('rate.pcap'), frames, gap=0.01)
    size = len(frames[0]) * 8
    for options, least in (([], 0.4), (['--rate', '200'], 0.2), (['--rate', '0.2kpps'], 0.2),
                           (['--rate', f'{size * 100}bit'], 0.4), (['--rate', f'{size / 10}Kbit', '--loop', '2'], 0.81),
                           (['--rate', 'max'], 0)):
        start = time.monotonic()
        host.replay(host.path('rate.pcap'), '--to', 'mlx5_0', *options)
        if time.monotonic() - start < least:
            raise peers.Failure(f'{options}: {time.monotonic() - start:.3f} s, not {least} s')
    write_pcap(host.path('rate.pcap'), frames, gap=-3600)  # a clock that was set back
    host.replay(host.path('rate.pcap'), '--to', 'mlx5_0')
    for rate in ('0', '-5', 'fast', '5bps', '', 'nan', '1e99', '0x10'):
        expect(host.call('replay', host.path('rate.pcap'), '--to', 'mlx5_0', '--rate=' + rate), 2, stderr='is not a rate; allowed: ')


def check_loop(host):
    write_pcap(host.path('a.pcap'), numbered(4))
    same(host.replay(host.path('a.pcap'), '--to', 'mlx5_0', '--loop', '1000')[:12], '4000 frames,', '--loop')
    for number in (signal.SIGINT, signal.SIGTERM):
        dump = Dump(host, 'mlx5_0', '-c', '400', '-w', '/dev/null')
        endless = host.popen(VERBATIM, 'cable', 'replay', host.path('a.pcap'), '--to', 'mlx5_0', '--loop', '0')
        dump.end(number=0)
        endless.send_signal(number)
        said, complained = endless.communicate(timeout=SECONDS)
        same((endless.returncode, complained), (0, b''), 'an endless replay that was ended')
        if int(said.split()[0]) < 400:
            raise peers.Failure(f'--loop 0: {said}')
    waits = host.popen(VERBATIM, 'cable', 'replay', '-', '--to', 'mlx5_0')  # for the end of its input
    waits.stdin.write(b'x')
    waits.stdin.flush()
    peers.poll_until(lambda: caught(waits, signal.SIGINT), SECONDS, 'replay: catches signals')
    waits.send_signal(signal.SIGINT)
    same((waits.communicate(timeout=SECONDS)[1], waits.returncode),
         (b'verbatim cable replay: -: Interrupted system call\n', 1), 'a replay that was ended in its input')
    for loop in ('-1', 'x', '1.5', ''):
        expect(host.call('replay', host.path('a.pcap'), '--to', 'mlx5_0', '--loop=' + loop), 2, stderr='number of rounds')


def caught(process, number):
    with open(f'/proc/{process.pid}/status', encoding='ascii') as status:
        return int(re.search(r'^SigCgt:\s*(\w+)', status.read(), re.M)[1], 16) >> (number - 1) & 1


def check_bad_files(host):
    good = [bytes(f) for f in numbered(3)]
    whole, head = pcap_bytes(good), len(pcap_bytes([]))
    cases = {
        'empty': (b'', 'not a pcap or pcapng file'),
        'text': (b'hello, this is no capture file at all', 'not a pcap or pcapng file'),
        'short-head': (whole[:20], 'not a pcap or pcapng file'),
        'cut-head-of-packet': (whole[:-len(good[2]) - 8], 'packet 3: truncated dump file.*\n.*nothing was replayed'),
        'cut-packet': (whole[:-5], 'packet 3: truncated dump file.*\n.*nothing was replayed'),
        'huge-packet': (whole[:head + 8] + b'\xff' * 8 + whole[head + 16:], 'packet 1: .*\n.*nothing was replayed'),
        'other-link': (pcap_bytes(good, link=113), r'link type LINUX_SLL \(113\), not of Ethernet'),
        'raw-ip': (pcap_bytes(good, link=101), r'link type RAW \(12\), not of Ethernet'),
    }
    dump = Dump(host, 'mlx5_0')
    for name, (content, message) in cases.items():
        with open(host.path(name), 'wb') as out:
            out.write(content)
        for loop in ('1', '0'):
            same(host.replay(host.path(name), '--to', 'mlx5_0', '--loop', loop, code=1, stderr=message), '', name)
    write_pcapng(host.path('ng'), good)
    with open(host.path('ng'), 'r+b') as out:
        out.truncate(os.path.getsize(out.name) - 20)
    host.replay(host.path('ng'), '--to', 'mlx5_0', code=1, stderr='packet 3: ')
    host.replay(host.path('missing'), '--to', 'mlx5_0', code=1, stderr='missing: No such file or directory')
    host.replay(host.folder, '--to', 'mlx5_0', code=1, stderr='Is a directory')
    same(dump.end()[1:], (0, 0, 0), 'frames of bad files')
    for loop in ('1', '0'):  # no frames: nothing to wait for
        with open(host.path('none'), 'wb') as out:
            out.write(pcap_bytes([]))
        same(host.replay(host.path('none'), '--to', 'mlx5_0', '--loop', loop), '0 frames, 0 bytes replayed to mlx5_0\n', 'no frames')


def check_odd_frames(host):
    """Frames that no wire carries are left out and counted; the others come."""
    frames = [bytes(13), bytes(14), b'\1' * 9216, b'\2' * 9217, b'']
    with open(host.path('odd'), 'wb') as out:
        out.write(pcap_bytes(frames))
    dump = Dump(host, 'mlx5_0', '-w', host.path('odd-seen'))
    said = host.replay(host.path('odd'), '--to', 'mlx5_0', '--loop', '2', '--rate', 'max', code=1, stderr=
                       '3 frames of the file were left out: 2 shorter than 14 bytes, 1 longer than 9216; the first is packet 1 with 13 ')
    same(said, '4 frames, 18460 bytes replayed to mlx5_0\n', 'odd frames')
    same(dump.end()[1:], (4, 4, 0), 'odd frames')
    same([bytes(p) for p in rdpcap(host.path('odd-seen'))], [padded(frames[1]), frames[2]] * 2, 'odd frames')
    with open(host.path('cut'), 'wb') as out:
        out.write(pcap_bytes([bytes(64)], lengths=[1500]))
    host.replay(host.path('cut'), '--to', 'mlx5_0', stderr='1 frames of the file are cut')


def check_usage(host):
    for args, message in ((['replay'], 'which file'), (['replay', 'a'], 'to which adapter'), (['replay', 'a', 'b', '--to', 'x'], 'one file'),
                          (['dump'], 'which adapter'), (['dump', 'mlx5_0', '-c', '0'], 'number of frames'),
                          (['dump', 'mlx5_0', '-Q', 'up'], 'not a direction'), ([], 'which command'), (['tcpdump'], 'unknown command')):
        expect(host.call(*args), 2, stderr=message)
    write_pcap(host.path('a.pcap'), numbered(1))
    for name, message in (('mlx5_7', "there is no adapter 'mlx5_7'; there are: mlx5_0, mlx5_1, mlx4_0$"),
                          ('hbl_0', "'hbl_0' has no port for raw Ethernet frames; there are: mlx5_0")):
        expect(host.call('dump', name), 1, stderr=message)
        expect(host.call('replay', host.path('a.pcap'), '--to', name), 1, stderr=message)
    expect(host.call('dump', 'mlx5_0', '-w', '/no/such/file'), 1, stderr='/no/such/file: No such file')
    for command in ([], ['dump'], ['replay']):
        expect(host.call(*command, '--help'), 0, stdout='^Usage: verbatim cable ')


def check_full_disk(host):
    write_pcap(host.path('a.pcap'), numbered(1))
    done = host.call('dump', 'mlx5_0', '-w', '/dev/full')
    expect(done, 1, stderr='/dev/full|No space left on device')
    # lines into a full standard output
    with open('/dev/full', 'wb') as full:
        process = subprocess.Popen([VERBATIM, 'cable', 'dump', 'mlx5_0'], env=host.env, stdout=full, stderr=subprocess.PIPE)
    errors = Lines(process.stderr)
    errors.next()
    host.replay(host.path('a.pcap'), '--to', 'mlx5_0')
    complained = process.communicate(timeout=SECONDS)[1].decode()
    same(process.returncode, 1, 'dump into a full disk')
    if 'standard output: No space left on device' not in errors.rest.decode() + complained:
        raise peers.Failure(f'dump into a full disk: {complained}')


def check_nothing_is_lost_silently(host):
    """A dump that is stopped loses frames; it and replay know how many."""
    write_pcap(host.path('a.pcap'), numbered(100))
    stopped, other = Dump(host, 'mlx5_0', '-w', '/dev/null'), Dump(host, 'mlx5_0', '-w', '/dev/null')
    stopped.process.send_signal(signal.SIGSTOP)
    done = host.call('replay', host.path('a.pcap'), '--to', 'mlx5_0', '--rate', 'max', '--loop', '100')
    stopped.process.send_signal(signal.SIGCONT)
    expect(done, 0, stdout='^10000 frames', stderr='frames were lost by processes that do not take them')
    lost = int(re.search(rb': (\d+) frames were lost', done.stderr)[1])
    peers.poll_until(lambda: not pending(stopped, host), SECONDS, 'what was kept is read')
    _, captured, seen, missed = stopped.end()
    same((seen, missed), (captured, lost), 'of a stopped dump')
    # What waited for it was lost with the sender, unless it had begun to read.
    if captured + missed != 10000 and '\n1 processes ended before anything that they sent was read\n' not in stopped.complained:
        raise peers.Failure(f'lost silently: {stopped.complained}')
    same(other.end()[1:], (10000, 10000, 0), 'of one beside it')


def pending(dump, host):
    """Whether it still reads: it is asleep when it has read everything."""
    with open(f'/proc/{dump.process.pid}/stat', encoding='ascii') as stat:
        if stat.read().rsplit(')', 1)[1].split()[0] != 'S':
            return True
    time.sleep(0.2)
    return False


def check_kill(host):
    """kill -9 of replay and dump, again and again: programs and other dumps go on."""
    frames = numbered(20)
    write_pcap(host.path('a.pcap'), frames)
    port, dump = Port(host, 'mlx5_0', '6000'), Dump(host, 'mlx5_0', '-w', host.path('kill.pcap'), 'udp port 6000')
    for i in range(6):
        victims = [Dump(host, 'mlx5_0', '-w', '-').process, host.popen(
            VERBATIM, 'cable', 'replay', host.path('a.pcap'), '--to', 'mlx5_0', '--rate', 'max', '--loop', '0')]
        victims[0].stdout.read(1000 * (i + 1))
        for victim in victims if i % 2 else reversed(victims):
            victim.kill()
            victim.communicate()
        last = numbered(1, 6000)
        write_pcap(host.path('last.pcap'), last)
        host.replay(host.path('last.pcap'), '--to', 'mlx5_0')
        same(port.get(1), [padded(last[0])], 'a program after kill -9')
    same(port.end(), [], 'frames that nobody sent')
    _, captured, _, lost = dump.end()
    same((captured, lost), (6, 0), 'a dump after kill -9')
    if re.search(r'verbatim', subprocess.run([VERBATIM, 'ps'], env=host.env, capture_output=True, text=True, check=True).stdout):
        raise peers.Failure('killed processes are still listed')


def check_rdma(host):
    """Packets of queue pairs, where they are asked for; scapy computes their ICRC, too."""
    for name, opcode in (('wr_api', 0x04), ('ud_networks', 0x64)):
        without, dump = Dump(host, 'mlx5_0'), Dump(host, 'mlx5_0', '--rdma', '-w', host.path('rdma.pcap'), 'udp', 'port', '4791')
        program = host.popen(os.path.join(sys.argv[2], name))
        _, complained = program.communicate(timeout=SECONDS)
        same(program.returncode, 0, f'{name}: {complained.decode()}')
        same(without.end()[1:], (0, 0, 0), 'without --rdma')
        dump.end()
        seen = set()
        for frame in rdpcap(host.path('rdma.pcap')):
            if IP not in frame:
                continue
            icrc = frame[BTH].icrc
            frame[BTH].icrc = None
            same(Ether(bytes(frame))[BTH].icrc, icrc, f'{name}: ICRC of {frame!r}')
            seen.add(frame[BTH].opcode)
        if opcode not in seen:
            raise peers.Failure(f'{name}: no opcode {opcode} in {seen}')


def check_order(host):
    """Frames of several processes are written in the order in which they were sent, with that time, however late they are read."""
    asker, answerer = Port(host, 'mlx5_0', '5000'), Port(host, 'mlx5_1', '5001')
    dump = Dump(host, 'mlx5_0', '-w', host.path('order.pcap'))
    dump.process.send_signal(signal.SIGSTOP)
    times, wanted = [], []
    for i in range(30):
        question, answer = (Ether(src=f'02:00:00:00:00:0{s}', dst=f'02:00:00:00:00:0{3 - s}') / IP(src='10.0.0.1', dst='10.0.0.2')
                            / UDP(sport=7, dport=5002 - s) / struct.pack('>I', i) for s in (1, 2))
        for sender, receiver, frame in ((asker, answerer, question), (answerer, asker, answer)):
            before = time.time_ns()
            sender.send(frame)
            same(receiver.get(1), [padded(frame)], 'a question or an answer')
            times.append((before, time.time_ns()))
            wanted.append(padded(frame))
    dump.process.send_signal(signal.SIGCONT)
    peers.poll_until(lambda: not pending(dump, host), SECONDS, 'what was kept is read')
    same(dump.end()[1:], (60, 60, 0), 'questions and answers')
    with PcapReader(host.path('order.pcap')) as frames:
        seen = [(bytes(frame), int(frame.time * 10 ** 9)) for frame in frames]
    same([frame for frame, _ in seen], wanted, 'the order of questions and answers')
    for i, (_, ns) in enumerate(seen):
        # The clocks of the capture and of this program are read at two moments.
        if not times[i][0] - 10 ** 6 <= ns <= times[i][1] + 10 ** 6:
            raise peers.Failure(f'frame {i}: {ns} ns, but it was sent between {times[i][0]} and {times[i][1]}')


def check_rdma_order(host):
    """A program that answers each message: its messages are written between those of the other."""
    port = peers.Port()
    dump = Dump(host, 'mlx5_0', '--rdma', '-w', host.path('order.pcap'), 'udp', 'port', '4791')
    runtime = peers.sanitizer(peers.stage()) or ''
    before = ['env', f'LD_PRELOAD={runtime}'] if 'libtsan' in runtime else []  # as in peers.World
    argv = [*before, VERBATIM, 'run', '--', 'stdbuf', '-oL', 'ibv_rc_pingpong', '-d', 'mlx5_0', '-g', '1', '-s', '64', '-n', '200',
            '-p', str(port.number)]
    server = host.popen(*argv)
    peers.poll_until(lambda: port.listening() or server.poll() is not None, SECONDS, 'ibv_rc_pingpong: listening')
    # It reads when there is something of both; a program that ends waits for it.
    dump.process.send_signal(signal.SIGSTOP)
    client = host.popen(*argv, 'localhost')
    select.select([client.stdout], [], [], SECONDS)  # its first line comes before its first message
    time.sleep(0.05)
    dump.process.send_signal(signal.SIGCONT)
    for program in (client, server):
        said, complained = program.communicate(timeout=SECONDS)
        same(program.returncode, 0, f'ibv_rc_pingpong: {said.decode()}{complained.decode()}')
    same(dump.end()[3], 0, 'lost packets')
    frames = rdpcap(host.path('order.pcap'))
    sends = [frame[BTH].dqpn for frame in frames if BTH in frame and frame[BTH].opcode == 4]
    same(len(sends), 400, 'messages')
    if any(a == b for a, b in zip(sends, sends[1:])):
        raise peers.Failure(f'messages are not answered one by one: {sends}')
    times = [frame.time for frame in frames]
    if times != sorted(times):
        raise peers.Failure('times go back')


def run():
    if not Ether:
        raise peers.Skip('python3-scapy is not installed')
    for check in (check_usage, check_programs, check_round_trip, check_pipe_is_live, check_two_processes, check_lines, check_filter,
                  check_rate, check_loop, check_bad_files, check_odd_frames, check_full_disk, check_nothing_is_lost_silently,
                  check_kill, check_rdma, check_order, check_rdma_order):
        with tempfile.TemporaryDirectory(prefix='verbatim-cable-') as folder:
            host = Host(folder)
            try:
                check(host)
            except Exception:
                print(f'in {check.__name__}:')
                raise
            finally:
                host.close()


peers.main(run)
