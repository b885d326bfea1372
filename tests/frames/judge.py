#!/usr/bin/env python3
"""Frames judged by scapy: what our parser, checksums, segmentation, edits and flow rules do, frame by frame.

usage: judge.py PROGRAM PART [SEED [COUNT]]

PROGRAM is frames_judge, which answers a line for a line. PART: facts, sums, hash, segments, edits, modify, match. Frames
are random with a fixed seed; a failure prints the frame, and the same arguments show it again.
"""
import ipaddress
import logging
import random
import subprocess
import sys
import zlib

logging.getLogger('scapy').setLevel(logging.ERROR)
try:
    from scapy.config import conf
    conf.use_pcap = False
    from scapy.layers.l2 import Ether, Dot1Q, Dot1AD, GRE, ARP
    from scapy.layers.inet import IP, TCP, UDP, ICMP, IPOption_NOP
    from scapy.layers.inet6 import (IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting,
                                    IPv6ExtHdrFragment, ICMPv6EchoRequest)
    from scapy.layers.vxlan import VXLAN
    from scapy.packet import Raw, NoPayload
    from scapy.contrib.mpls import MPLS
except ImportError as reason:
    print(f'skipped: python3-scapy is not installed ({reason})')
    sys.exit(77)

TAGS = (Dot1Q, Dot1AD)
EXTENSIONS = (IPv6ExtHdrDestOpt, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, IPv6ExtHdrFragment)


class Program:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        self.process.stdin.write(' '.join(w.hex() or '-' if isinstance(w, bytes) else str(w) for w in words) + '\n')
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


# --- random frames ---------------------------------------------------------------------------------------------------

def mac(rnd):
    return ':'.join(f'{rnd.randrange(256):02x}' for _ in range(6))


def ip4(rnd):
    return '.'.join(str(rnd.randrange(1, 255)) for _ in range(4))


def ip6(rnd):
    return ':'.join(f'{rnd.randrange(1, 65536):x}' for _ in range(8))


def port(rnd):
    """Not one of those that mean a tunnel."""
    return rnd.randrange(10000, 65536)


def payload(rnd, longest=200):
    return Raw(rnd.randbytes(rnd.choice([0, 1, 2, 3, rnd.randrange(longest)])))


def tags(rnd):
    packet = None
    for _ in range(rnd.choice([0, 0, 0, 1, 1, 2])):
        tag = rnd.choice(TAGS)(vlan=rnd.randrange(4096), prio=rnd.randrange(8), id=rnd.randrange(2))
        packet = packet / tag if packet else tag
    return packet


def ethernet(rnd):
    packet = Ether(src=mac(rnd), dst=mac(rnd))
    more = tags(rnd)
    return packet / more if more else packet


def ip_header(rnd, proto=None, fragments=True):
    if rnd.random() < 0.5:
        options = [IPOption_NOP()] * rnd.choice([0, 0, 0, 4, 8])
        ip = IP(src=ip4(rnd), dst=ip4(rnd), ttl=rnd.randrange(256), tos=rnd.randrange(256), id=rnd.randrange(65536),
                options=options)
        if proto is not None:
            ip.proto = proto
        if fragments and rnd.random() < 0.08:
            ip.flags, ip.frag = rnd.choice([(1, 0), (1, 100), (0, 200)])
        return ip
    packet = IPv6(src=ip6(rnd), dst=ip6(rnd), hlim=rnd.randrange(256), tc=rnd.randrange(256), fl=rnd.randrange(1 << 20))
    last = packet
    if fragments:
        for _ in range(rnd.choice([0, 0, 0, 1, 2])):
            kind = rnd.choice(EXTENSIONS[:3])
            last = kind(addresses=[]) if kind is IPv6ExtHdrRouting else kind()
            packet = packet / last
        if rnd.random() < 0.08:
            last = IPv6ExtHdrFragment(offset=rnd.choice([0, 25]), m=1, id=7)
            packet = packet / last
    if proto is not None:
        last = packet.lastlayer()
        last.nh = proto
    return packet


def is_fragment(packet):
    if IP in packet and (packet[IP].frag or int(packet[IP].flags) & 1):
        return True
    return IPv6ExtHdrFragment in packet and bool(packet[IPv6ExtHdrFragment].offset or packet[IPv6ExtHdrFragment].m)


def transport(rnd, version, only=None):
    kind = only or rnd.choice(['tcp', 'tcp', 'udp', 'udp', 'icmp', 'esp', 'other'])
    if kind == 'tcp':
        options = [('NOP', None)] * rnd.choice([0, 0, 4, 12])
        return TCP(sport=port(rnd), dport=port(rnd), seq=rnd.randrange(1 << 32), ack=rnd.randrange(1 << 32),
                   flags=rnd.randrange(512), window=rnd.randrange(65536), options=options)
    if kind == 'udp':
        return UDP(sport=port(rnd), dport=port(rnd))
    if kind == 'icmp':
        if version == 6:
            return ICMPv6EchoRequest(id=rnd.randrange(65536), seq=rnd.randrange(65536))
        return ICMP(type=8, code=rnd.randrange(4), id=rnd.randrange(65536), seq=rnd.randrange(65536))
    return Raw(rnd.randbytes(16))


def network(rnd, only=None, fragments=True, longest=200):
    """IP and what it carries."""
    raw = {'esp': 50, 'other': 253}
    kind = only or rnd.choice(['tcp', 'tcp', 'udp', 'udp', 'icmp', 'esp', 'other'])
    ip = ip_header(rnd, raw.get(kind), fragments)
    version = 4 if IP in ip else 6
    if kind == 'icmp' and version == 6:
        ip.lastlayer().nh = 58
    return ip / transport(rnd, version, kind) / payload(rnd, longest)


class Made:
    """A frame and what is known of it because it was made so."""

    def __init__(self, packet, tunnel='none', inner=None, header=None):
        self.packet, self.tunnel, self.inner, self.header = packet, tunnel, inner, header
        self.bytes = bytes(packet)
        self.inner_len = len(bytes(inner)) if inner is not None else 0


def udp_tunnel(rnd, dport, chksum=None):
    ip = ip_header(rnd, fragments=False)
    return ip / UDP(sport=port(rnd), dport=dport, chksum=chksum)


def gtp_header(rnd, inner):
    """By hand: lengths of what follows the first eight bytes."""
    teid = rnd.randrange(1 << 32)
    kind = rnd.choice(['plain', 'seq', 'ext'])
    more = b''
    flags = 0x30
    if kind == 'seq':
        flags, more = 0x32, rnd.randbytes(3) + b'\0'
    elif kind == 'ext':
        flags, more = 0x34, rnd.randbytes(3) + b'\x85' + b'\x01' + rnd.randbytes(2) + b'\0'
    length = len(more) + len(inner)
    return bytes([flags, 255]) + length.to_bytes(2, 'big') + teid.to_bytes(4, 'big') + more


def make(rnd, tunnel=None, only=None, fragments=True, longest=200):
    """A random frame; tunnel: its kind, or any."""
    tunnel = tunnel or rnd.choice(['none'] * 6 + ['vxlan', 'vxlan-gpe', 'geneve', 'gtpu', 'gre', 'nvgre', 'ip', 'mpls', 'arp', 'mpls-l2', 'roce',
                                                    'gre-mpls', 'vxlan-mpls'])
    inner3 = network(rnd, only, fragments, longest)
    version = 4 if isinstance(inner3, IP) else 6
    kind3 = 0x800 if version == 4 else 0x86dd
    if tunnel == 'none':
        return Made(ethernet(rnd) / inner3)
    if tunnel == 'arp':
        return Made(ethernet(rnd) / ARP(psrc=ip4(rnd), pdst=ip4(rnd)))
    if tunnel == 'mpls-l2':
        label = MPLS(label=rnd.randrange(1 << 20), cos=rnd.randrange(8), s=1, ttl=64)
        return Made(Ether(src=mac(rnd), dst=mac(rnd), type=0x8847) / label / inner3)
    if tunnel == 'roce':
        bth = rnd.randbytes(12)
        return Made(ethernet(rnd) / udp_tunnel(rnd, 4791) / Raw(bth + rnd.randbytes(20)), header=bth)
    label = MPLS(label=rnd.randrange(1 << 20), cos=rnd.randrange(8), s=1, ttl=rnd.randrange(256))
    if tunnel == 'gre-mpls':
        header = bytes(GRE(proto=0x8847)) + bytes(label)
        return Made(ethernet(rnd) / ip_header(rnd, 47, fragments=False) / Raw(header + bytes(inner3)), 'gre', inner3, header)
    if tunnel == 'vxlan-mpls':
        inner, header = Ether(src=mac(rnd), dst=mac(rnd), type=0x8847) / label / inner3, bytes(VXLAN(vni=7, flags=8))
        return Made(ethernet(rnd) / udp_tunnel(rnd, 4789) / Raw(header + bytes(inner)), 'vxlan', inner, header)
    inner2 = ethernet(rnd) / inner3
    if tunnel == 'vxlan':
        header = bytes(VXLAN(vni=rnd.randrange(1 << 24), flags=8))
        inner, up = inner2, udp_tunnel(rnd, 4789)
    elif tunnel == 'vxlan-gpe':
        inner, nxt = rnd.choice([(inner2, 3), (inner3, 1 if version == 4 else 2)])
        header = bytes([0x0c, 0, 0, nxt]) + rnd.randrange(1 << 24).to_bytes(3, 'big') + b'\0'
        up = udp_tunnel(rnd, 4790)
    elif tunnel == 'geneve':
        inner, proto = rnd.choice([(inner2, 0x6558), (inner3, kind3)])
        option = rnd.choice([b'', b'\x01\x02\x80\x01' + rnd.randbytes(4), b'\x01\x03\x80\x00\x01\x02\x80\x02' + rnd.randbytes(8),
                             b'\x01\x03\x80\x1f' + bytes(124) + b'\x01\x02\x80\x07' + rnd.randbytes(28)])
        header = bytes([len(option) // 4, rnd.choice([0, 0x80])]) + proto.to_bytes(2, 'big') + rnd.randrange(1 << 24).to_bytes(3, 'big') + b'\0' + option
        up = udp_tunnel(rnd, 6081)
    elif tunnel == 'gtpu':
        inner = inner3
        header = gtp_header(rnd, bytes(inner3))
        up = udp_tunnel(rnd, 2152)
    elif tunnel in ('gre', 'nvgre'):
        inner, proto = (inner2, 0x6558) if tunnel == 'nvgre' else rnd.choice([(inner2, 0x6558), (inner3, kind3)])
        gre = GRE(proto=proto, key_present=1, key=rnd.randrange(1 << 32))
        if tunnel == 'gre':
            gre = GRE(proto=proto, key_present=rnd.randrange(2), chksum_present=rnd.randrange(2), seqnum_present=1,
                      key=rnd.randrange(1 << 32), sequence_number=rnd.randrange(1 << 32), version=rnd.randrange(2))
        header, up = bytes(gre), ip_header(rnd, 47, fragments=False)
    elif tunnel == 'ip':
        inner, header, up = inner3, b'', ip_header(rnd, 4 if version == 4 else 41, fragments=False)
    else:  # MPLS over UDP
        inner = inner3
        header = bytes(MPLS(label=rnd.randrange(1 << 20), cos=rnd.randrange(8), s=0, ttl=3)) + bytes(MPLS(label=5, s=1, ttl=64))
        up = udp_tunnel(rnd, 6635)
    return Made(ethernet(rnd) / up / Raw(header + bytes(inner)), tunnel, inner, header)


# --- what scapy says of a frame --------------------------------------------------------------------------------------

def layers(packet):
    while not isinstance(packet, NoPayload):
        yield packet
        packet = packet.payload


def describe(packet, at, end):
    """Facts of one level that begins at an offset."""
    facts = dict(has_l2=0, vlans=0, ethertype=0, ip=0, protocol=0, l4='none', l3_at=0, l4_at=0, fragment=0, options=0)
    names = {TCP: 'tcp', UDP: 'udp', ICMP: 'icmp', ICMPv6EchoRequest: 'icmpv6'}
    for layer in layers(packet):
        size = len(bytes(layer)) - len(bytes(layer.payload))
        if isinstance(layer, (Ether,) + TAGS):
            facts['has_l2'] = 1
            facts['ethertype'] = int.from_bytes(bytes(layer)[12:14] if isinstance(layer, Ether) else bytes(layer)[2:4], 'big')
            if isinstance(layer, TAGS):
                index = facts['vlans']
                facts[f'vlan{index}'] = layer.prio << 13 | layer.id << 12 | layer.vlan
                facts[f'type{index}'] = 0x88a8 if isinstance(layer, Dot1AD) else 0x8100
                facts['vlans'] += 1
        elif isinstance(layer, (IP, IPv6)):
            facts.update(ip=layer.version if isinstance(layer, IPv6) else 4, l3_at=at)
            facts['protocol'] = bytes(layer)[9 if isinstance(layer, IP) else 6]
            facts['options'] = int(isinstance(layer, IP) and size > 20)
            facts['fragment'] = int(is_fragment(packet))
        elif isinstance(layer, EXTENSIONS):
            facts['protocol'], facts['options'] = bytes(layer)[0], 1
        elif facts['ip'] and not facts['fragment'] and not facts['l4_at']:
            l4 = next((name for kind, name in names.items() if isinstance(layer, kind)), None)
            if facts['protocol'] == 50:
                l4 = 'esp'
            if l4:
                facts.update(l4=l4, l4_at=at)
        at += size
    facts['end'] = end
    return facts


def expected_facts(made):
    whole = made.bytes
    outer = describe(made.packet, 0, len(whole))
    if made.inner is None:
        return dict(tunnel='none', has_inner=0), outer, None
    inner = describe(made.inner, len(whole) - made.inner_len, len(whole))
    return dict(tunnel=made.tunnel, has_inner=1), outer, inner


def same(what, frame, expected, got):
    if expected != got:
        raise AssertionError(f'{what}\n  frame    {frame.hex()}\n  expected {expected}\n  got      {got}')


# --- parts -----------------------------------------------------------------------------------------------------------

def facts(program, rnd):
    made = make(rnd)
    pad = rnd.choice([0, 0, 7])
    answer = dict(item.split('=') for item in program.ask('parse', made.bytes + bytes(pad)).split())
    general, outer, inner = expected_facts(made)
    for prefix, level in ('', general), ('outer.', outer), ('inner.', inner or {}):
        for name, value in level.items():
            if name == 'end' and pad and not outer['ip']:
                value += pad
            same(prefix + name, made.bytes, str(value), answer[prefix + name])
    same('bad', made.bytes, '0', answer['outer.bad'])


def csum(data):
    if len(data) % 2:
        data += b'\0'
    total = sum(int.from_bytes(data[i:i + 2], 'big') for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def places(made):
    """(flag, offset of the checksum) for all that the frame has."""
    _, outer, inner = expected_facts(made)
    for level, l3, l4 in (outer, 0x40, 0x80), (inner, 0x10, 0x20):
        if not level or not level['ip']:
            continue
        yield l3, level['l3_at'] + 10 if level['ip'] == 4 else 0
        if level['l4'] in ('tcp', 'udp'):
            yield l4, level['l4_at'] + (16 if level['l4'] == 'tcp' else 6)


def sums(program, rnd):
    made = make(rnd)
    data = made.bytes
    where = dict(places(made))
    right, total, fcs = map(int, program.ask('verify', data).split())
    same('right', data, sum(where), right)
    same('sum', data, csum(data[14:]), total)
    same('fcs', data, zlib.crc32(data), fcs)
    # Wrong ones are seen. (An outer L4 sum covers the inner levels too.)
    flag, at = rnd.choice(list(where.items()) or [(0, 0)])
    if at:
        wrong = bytearray(data)
        wrong[at + 1] ^= 0x55
        right = int(program.ask('verify', bytes(wrong)).split()[0])
        if not (flag & 0xa0 and int.from_bytes(wrong[at:at + 2], 'big') == 0):
            same(f'wrong {flag:x}', bytes(wrong), 0, right & flag)
    # Erase all, fill in, and it is what scapy made.
    empty = bytearray(data)
    for at in where.values():
        if at:
            empty[at:at + 2] = rnd.randbytes(2)
    same('filled', data, data.hex(), program.ask('fill', 0xf0, bytes(empty)))
    # The same by offsets.
    _, outer, inner = expected_facts(made)
    inner = inner or dict(l3_at=0, l4_at=0, ip=0, l4='none')
    known = [level for level in (outer, inner) if level['l4'] in ('tcp', 'udp', 'none')]
    if len(known) == 2 and not any(level.get('fragment') for level in known) and \
            not any(level[n] % 2 or level[n] > 510 for level in known for n in ('l3_at', 'l4_at')):
        flags = (inner['ip'] == 6) | (inner['l4'] == 'udp') << 1 | (outer['ip'] == 6) << 4 | (outer['l4'] == 'udp') << 5
        answer = program.ask('swp', 0xf0, outer['l3_at'] // 2, outer['l4_at'] // 2, inner['l3_at'] // 2,
                             inner['l4_at'] // 2, int(flags), bytes(empty))
        same('swp', data, data.hex(), answer)


def toeplitz(key, data):
    wide = int.from_bytes(key, 'big')
    result = 0
    for i in range(len(data) * 8):
        if data[i // 8] >> (7 - i % 8) & 1:
            result ^= wide >> (len(key) * 8 - 32 - i) & 0xffffffff
    return result


def hash_fields(made, fields, symmetric):
    _, outer, inner = expected_facts(made)
    level = inner if fields & 1 << 31 else outer
    data, kind = b'', 0
    if not level or not level['ip']:
        return data, kind
    four, at = level['ip'] == 4, level['l3_at']
    size, begin = (4, at + 12) if four else (16, at + 8)

    def pair(first, size, src, dst):
        a, b = made.bytes[first:first + size], made.bytes[first + size:first + 2 * size]
        if src and dst and symmetric:
            a, b = bytes(x | y for x, y in zip(a, b)), bytes(x ^ y for x, y in zip(a, b))
        return (a if src else b'') + (b if dst else b'')

    src, dst = fields >> (0 if four else 2) & 1, fields >> (1 if four else 3) & 1
    data += pair(begin, size, src, dst)
    kind |= src * (1 if four else 2) | dst * (1 if four else 2) << 2
    if level['l4'] in ('tcp', 'udp'):
        tcp = level['l4'] == 'tcp'
        src, dst = fields >> (4 if tcp else 6) & 1, fields >> (5 if tcp else 7) & 1
        data += pair(level['l4_at'], 2, src, dst)
        kind |= (src << 4 | dst << 6) * (1 if tcp else 2)
    elif level['l4'] == 'esp' and fields >> 8 & 1:
        data += made.bytes[level['l4_at']:level['l4_at'] + 4]
        kind |= 0xf0
    return data, kind


def hashes(program, rnd):
    made = make(rnd)
    key, fields, symmetric = rnd.randbytes(40), rnd.randrange(512) | rnd.choice([0, 1 << 31]), rnd.randrange(2)
    data, kind = hash_fields(made, fields, symmetric)
    same('hash', made.bytes, f'{toeplitz(key, data)} {kind}', program.ask('hash', fields, symmetric, key, made.bytes))


def segments(program, rnd):
    tunnel = rnd.choice(['none', 'none', 'vxlan', 'geneve', 'gtpu', 'gre', 'nvgre', 'ip'])
    made = make(rnd, tunnel, 'tcp', fragments=False, longest=20000)
    _, outer, inner = expected_facts(made)
    level = inner or outer
    header = level['l4_at'] + (made.bytes[level['l4_at'] + 12] >> 4) * 4
    mss = rnd.choice([1, 100, 536, 1460, 8000, 30000])
    if len(made.bytes) // mss > 300:
        mss = 1460
    words = program.ask('lso', header, mss, 0xf0, made.bytes).split()[1:]
    data = made.bytes[header:]
    count = max(1, -(-len(data) // mss))
    same('segments', made.bytes, count, len(words))
    for index, word in enumerate(words):
        part = data[index * mss:(index + 1) * mss]
        expected = bytearray(made.bytes[:header] + part)
        total = len(expected)

        def put(at, value, size=2):
            expected[at:at + size] = (value % (1 << 8 * size)).to_bytes(size, 'big')

        for one in (outer, inner):
            if not one:
                continue
            at = one['l3_at']
            if one['ip'] == 4:
                put(at + 2, total - at)
                put(at + 4, int.from_bytes(expected[at + 4:at + 6], 'big') + index)
            else:
                put(at + 4, total - at - 40)
            if one['l4'] == 'udp':
                put(one['l4_at'] + 4, total - one['l4_at'])
        if tunnel == 'gtpu':
            put(outer['l4_at'] + 10, total - outer['l4_at'] - 16)
        tcp = level['l4_at']
        put(tcp + 4, int.from_bytes(expected[tcp + 4:tcp + 8], 'big') + index * mss, 4)
        expected[tcp + 13] &= 0xff if index == count - 1 else 0xf6
        expected[tcp + 13] &= 0xff if index == 0 else 0x7f
        got = bytes.fromhex(word)
        # All but the sums is as expected; the sums are what scapy makes of it, innermost first.
        for one in (inner, outer):
            if one:
                refill(expected, one)
        same(f'segment {index} of {count}, mss {mss}', made.bytes, bytes(expected).hex(), got.hex())


def refill(data, level):
    """Sums of one level by scapy: rebuild from the IP header on."""
    at = level['l3_at']
    kind = IP if level['ip'] == 4 else IPv6
    packet = kind(bytes(data[at:]))
    if kind is IP:
        del packet.chksum
    l4 = packet.getlayer(TCP if level['l4'] == 'tcp' else UDP)
    if level['l4'] in ('tcp', 'udp') and l4 is not None:
        del l4.chksum
        # What a tunnel carries is bytes here: scapy must not make it anew.
        l4.remove_payload()
        end = level['l4_at'] + (l4.dataofs * 4 if level['l4'] == 'tcp' else 8)
        l4.add_payload(Raw(bytes(data[end:])))
    elif kind is IP:
        size = packet.ihl * 4
        packet.remove_payload()
        packet.add_payload(Raw(bytes(data[at + size:])))
    else:
        return
    data[at:] = bytes(packet)


def edits(program, rnd):
    made = make(rnd, 'none')
    data = made.bytes
    kind, tag = rnd.choice([0x8100, 0x88a8]), rnd.randrange(65536)
    pushed = data[:12] + kind.to_bytes(2, 'big') + tag.to_bytes(2, 'big') + data[12:]
    same('push', data, pushed.hex(), program.ask('push', kind, tag, data))
    same('pop', pushed, data.hex(), program.ask('pop', pushed))
    same('pad', data, (data + bytes(max(0, 60 - len(data)))).hex(), program.ask('pad', data))
    # Encapsulation: the whole frame, made by scapy at once.
    inner = make(rnd, 'none', fragments=False)
    vxlan = bytes(VXLAN(vni=rnd.randrange(1 << 24), flags=8))
    outer = ethernet(rnd) / udp_tunnel(rnd, 4789, chksum=0)
    expected = bytes(outer / Raw(vxlan + inner.bytes))
    template = bytearray(expected[:len(expected) - len(inner.bytes)])
    ip = describe(outer, 0, 0)
    template[ip['l4_at'] + 4:ip['l4_at'] + 6] = b'\0\0'
    at = ip['l3_at']
    if ip['ip'] == 4:
        template[at + 2:at + 4] = template[at + 10:at + 12] = b'\0\0'
    else:
        template[at + 4:at + 6] = b'\0\0'
    same('to L2 tunnel', inner.bytes, expected.hex(), program.ask('reformat', 1, bytes(template), inner.bytes))
    same('from L2 tunnel', expected, inner.bytes.hex(), program.ask('reformat', 0, b'', expected))
    # L3 tunnels: GRE or GTP-U in front of IP.
    l3 = inner.packet.getlayer(IP) or inner.packet.getlayer(IPv6)
    l2_len = len(inner.bytes) - len(bytes(l3))
    l2 = bytes(Ether(src=mac(rnd), dst=mac(rnd), type=0x800 if isinstance(l3, IP) else 0x86dd))
    gre = bytes(GRE(proto=0x800 if isinstance(l3, IP) else 0x86dd))
    outer = ethernet(rnd) / ip_header(rnd, 47, fragments=False)
    expected = bytes(outer / Raw(gre + bytes(l3)))
    template = expected[:len(expected) - len(bytes(l3))]
    same('to L3 tunnel', inner.bytes, expected.hex(), program.ask('reformat', 3, template, inner.bytes))
    same('from L3 tunnel', expected, (l2 + inner.bytes[l2_len:]).hex(), program.ask('reformat', 2, l2, expected))
    same('no tunnel', inner.bytes, 'error 22', program.ask('reformat', 0, b'', inner.bytes))


# --- header modification ---------------------------------------------------------------------------------------------

def part_of_mac(name, low):
    def get(p):
        value = int(getattr(p[Ether], name).replace(':', ''), 16)
        return value & 0xffff if low else value >> 16

    def put(p, value):
        old = int(getattr(p[Ether], name).replace(':', ''), 16)
        new = (old & ~0xffff) | value if low else (old & 0xffff) | value << 16
        text = f'{new:012x}'
        setattr(p[Ether], name, ':'.join(text[i:i + 2] for i in range(0, 12, 2)))
    return get, put


def simple(layer, name, shift=0, width=16):
    mask = (1 << width) - 1

    def get(p):
        return int(getattr(p[layer], name)) >> shift & mask if layer in p else None

    def put(p, value):
        old = int(getattr(p[layer], name))
        setattr(p[layer], name, (old & ~(mask << shift)) | value << shift)
    return get, put


def address(layer, name, part):
    def numbers(p):
        text = getattr(p[layer], name)
        if layer is IP:
            return [int.from_bytes(bytes(map(int, text.split('.'))), 'big')]
        whole = int(ipaddress.ip_address(text))
        return [whole >> 96, whole >> 64 & 0xffffffff, whole >> 32 & 0xffffffff, whole & 0xffffffff]

    def get(p):
        return numbers(p)[part] if layer in p else None

    def put(p, value):
        all_of = numbers(p)
        all_of[part] = value
        whole = 0
        for one in all_of:
            whole = whole << 32 | one
        setattr(p[layer], name, str(ipaddress.IPv4Address(whole) if layer is IP else ipaddress.IPv6Address(whole)))
    return get, put


def either(first, second):
    def get(p):
        value = first[0](p)
        return second[0](p) if value is None else value

    def put(p, value):
        (second if first[0](p) is None else first)[1](p, value)
    return get, put


FIELDS = {
    0x1: (part_of_mac('src', False), 32), 0x2: (part_of_mac('src', True), 16), 0x4: (part_of_mac('dst', False), 32),
    0x5: (part_of_mac('dst', True), 16), 0x6: (either(simple(IP, 'tos', 2, 6), simple(IPv6, 'tc', 2, 6)), 6),
    0x7: (simple(TCP, 'flags', 0, 9), 9), 0x8: (simple(TCP, 'sport'), 16), 0x9: (simple(TCP, 'dport'), 16),
    0xa: (simple(IP, 'ttl', 0, 8), 8), 0xb: (simple(UDP, 'sport'), 16), 0xc: (simple(UDP, 'dport'), 16),
    0x15: (address(IP, 'src', 0), 32), 0x16: (address(IP, 'dst', 0), 32), 0x47: (simple(IPv6, 'hlim', 0, 8), 8),
    0x59: (simple(TCP, 'seq', 0, 32), 32), 0x5b: (simple(TCP, 'ack', 0, 32), 32),
    0x73: (either(simple(IP, 'tos', 0, 2), simple(IPv6, 'tc', 0, 2)), 2),
    **{0xd + i: (address(IPv6, 'src', i), 32) for i in range(4)},
    **{0x11 + i: (address(IPv6, 'dst', i), 32) for i in range(4)},
}
# As judge.c sets them: A, B, C0 to C7. Their fields, and (in misc2) their bits.
REGISTER_VALUES = [0x11223344, 0x55667788, 0x99aabbcc, 0xddeeff00, 0x01020304, 0x12131415, 0x23242526, 0x34353637, 0x45464748,
                   0x56575859]
REGISTERS = {0x49: 0, 0x50: 1, **{0x51 + i: 2 + i for i in range(8)}}
REGISTER_BITS = [0x180, 0x1a0] + [0x160 - 0x20 * i for i in range(8)]


def first_vid():
    def get(p):
        tag = next((layer for layer in layers(p) if isinstance(layer, TAGS)), None)
        return tag.vlan if tag is not None else None

    def put(p, value):
        next(layer for layer in layers(p) if isinstance(layer, TAGS)).vlan = value
    return get, put


FIELDS[0x17] = (first_vid(), 12)


def ethertype():
    def last(p):
        return [layer for layer in layers(p) if isinstance(layer, (Ether,) + TAGS)][-1]

    def put(p, value):
        last(p).type = value
    return (lambda p: last(p).type), put


FIELDS[0x3] = (ethertype(), 16)


def modify_teid(program, rnd):
    made = make(rnd, 'gtpu')
    teid = rnd.randrange(1 << 32)
    outer = expected_facts(made)[1]
    expected = bytearray(made.bytes)
    expected[outer['l4_at'] + 12:outer['l4_at'] + 16] = teid.to_bytes(4, 'big')
    refill(expected, outer)
    answer = program.ask('modify', bytes([0x10, 0x6e, 0, 0]) + teid.to_bytes(4, 'big'), made.bytes).split()
    same('TEID', made.bytes, bytes(expected).hex(), answer[0])


def modify(program, rnd):
    if rnd.random() < 0.1:
        modify_teid(program, rnd)
    made = make(rnd, 'none', rnd.choice(['tcp', 'udp', 'icmp']), fragments=False)
    packet = Ether(made.bytes)
    registers = list(REGISTER_VALUES)
    actions = b''

    def get(field):
        return registers[REGISTERS[field]] if field in REGISTERS else FIELDS[field][0][0](packet)

    def put(field, value):
        if field in REGISTERS:
            registers[REGISTERS[field]] = value
        else:
            FIELDS[field][0][1](packet, value)

    def width(field):
        return 32 if field in REGISTERS else FIELDS[field][1]

    everything = list(FIELDS) + list(REGISTERS)
    for _ in range(rnd.randrange(1, 9)):
        kind, field = rnd.choice([1, 2, 3]), rnd.choice(everything)
        old = get(field)
        if kind == 1:
            length = rnd.randrange(1, width(field) + 1)
            offset, data = rnd.randrange(width(field) - length + 1), rnd.randrange(1 << 32)
            actions += (kind << 28 | field << 16 | offset << 8 | length % 32).to_bytes(4, 'big') + data.to_bytes(4, 'big')
            mask = (1 << length) - 1
            new = old is not None and (old & ~(mask << offset)) | (data & mask) << offset
        elif kind == 2:
            data = rnd.choice([1, 0xff, 0xffffffff, rnd.randrange(1 << 32)])
            actions += (kind << 28 | field << 16).to_bytes(4, 'big') + data.to_bytes(4, 'big')
            new = old is not None and (old + data) % (1 << width(field))
        else:
            source = rnd.choice(everything)
            length = rnd.randrange(1, min(width(field), width(source)) + 1)
            offset = rnd.randrange(width(field) - length + 1)
            begin = rnd.randrange(width(source) - length + 1)
            actions += (kind << 28 | source << 16 | begin << 8 | length % 32).to_bytes(4, 'big')
            actions += (field << 16 | offset << 8).to_bytes(4, 'big')
            mask, value = (1 << length) - 1, get(source)
            if value is None:
                continue
            new = old is not None and (old & ~(mask << offset)) | (value >> begin & mask) << offset
        if old is not None:
            put(field, new)
    for kind in IP, TCP, UDP, ICMPv6EchoRequest:
        if kind in packet:
            name = 'cksum' if kind is ICMPv6EchoRequest else 'chksum'
            delattr(packet[kind], name)
    answer = program.ask('modify', actions, made.bytes).split()
    same(f'modify {actions.hex()}', made.bytes, bytes(packet).hex(), answer[0])
    same('registers', made.bytes, registers, [int(word) for word in answer[1:]])


# --- match fields ----------------------------------------------------------------------------------------------------

def level_values(data, level, base):
    """{bit offset: (width, value)} of fte_match_set_lyr_2_4."""
    def number(at, size):
        return int.from_bytes(data[at:at + size], 'big')

    values = {0x80: (8, level['protocol']), 0x93: (4, level['ip']), 0x92: (1, level['fragment']),
              0x70: (16, level.get('vlan0', 0)), 0x90: (1, level.get('type0') == 0x8100), 0x91: (1, level.get('type0') == 0x88a8)}
    if level['has_l2']:
        at = level['l2_at']
        values.update({0x0: (32, number(at + 6, 4)), 0x20: (16, number(at + 10, 2)), 0x40: (32, number(at, 4)),
                       0x60: (16, number(at + 4, 2)), 0x30: (16, level['ethertype'])})
    at = level['l3_at']
    if level['ip'] == 4:
        values.update({0x88: (6, data[at + 1] >> 2), 0x8e: (2, data[at + 1] & 3), 0xd0: (4, data[at] & 0xf), 0xd8: (8, data[at + 8]),
                       0x100: (128, number(at + 12, 4)), 0x180: (128, number(at + 16, 4)), 0xd4: (1, 1), 0xd6: (1, 1)})
    elif level['ip'] == 6:
        tc = number(at, 2) >> 4 & 0xff
        values.update({0x88: (6, tc >> 2), 0x8e: (2, tc & 3), 0xd0: (4, 0), 0xd8: (8, data[at + 7]),
                       0x100: (128, number(at + 8, 16)), 0x180: (128, number(at + 24, 16)), 0xd4: (1, 1), 0xd6: (1, 0)})
    tcp, udp = level['l4'] == 'tcp', level['l4'] == 'udp'
    at = level['l4_at']
    values.update({0x97: (9, number(at + 12, 2) & 0x1ff if tcp else 0), 0xd5: (1, level['l4'] != 'none'), 0xd7: (1, tcp or udp),
                   0xa0: (16, number(at, 2) if tcp else 0), 0xb0: (16, number(at + 2, 2) if tcp else 0),
                   0xe0: (16, number(at, 2) if udp else 0), 0xf0: (16, number(at + 2, 2) if udp else 0)})
    return {base + bit: value for bit, value in values.items()}


def tunnel_values(made, outer, inner):
    header = made.header or b''
    misc, misc2, misc3, misc5 = 0x200, 0x600, 0x800, 0xc00

    def word(index, size=4):
        return int.from_bytes(header[index:index + size], 'big')

    values = {}
    if made.tunnel == 'vxlan':
        values = {misc + 0xa0: (24, word(4, 3))}
    elif made.tunnel == 'vxlan-gpe':
        values = {misc3 + 0x88: (24, word(4, 3)), misc3 + 0xa0: (8, header[3]), misc3 + 0xa8: (8, header[0])}
    elif made.tunnel == 'geneve':
        options = header[8:]
        at = options.find(b'\x01\x02\x80')
        values = {misc + 0xc0: (24, word(4, 3)), misc + 0x12a: (6, header[0] & 0x3f), misc + 0x130: (16, word(2, 2)),
                  misc + 0xdf: (1, header[1] >> 7), misc + 0xde: (1, at >= 0),
                  misc3 + 0x120: (32, int.from_bytes(options[at + 4:at + 8], 'big') if at >= 0 else 0)}
    elif made.tunnel == 'gtpu':
        values = {misc3 + 0x140: (32, word(4)), misc3 + 0x160: (8, header[1]), misc3 + 0x168: (8, header[0]),
                  misc3 + 0x1c0: (32, word(0)), misc3 + 0x180: (32, word(8) if header[0] & 7 else 0),
                  misc3 + 0x1a0: (32, word(12) if header[0] & 4 else 0)}
    elif made.tunnel in ('gre', 'nvgre'):
        gre = GRE(header[:1] + b'\0' + header[2:])  # of version 0, or it would be PPTP's to scapy
        values = {misc: (1, gre.chksum_present), misc + 2: (1, gre.key_present), misc + 3: (1, gre.seqnum_present),
                  misc + 0x70: (16, gre.proto), misc + 0x80: (32, gre.key or 0)}
        if gre.proto == 0x8847:
            values[misc2 + 0x40] = (32, word(4))
    elif made.tunnel == 'mpls':
        values = {misc2 + 0x60: (32, word(0))}
    elif made.header:  # RoCE
        values = {misc + 0xb8: (8, header[0]), misc + 0x148: (24, word(5, 3))}
    if made.tunnel in ('vxlan', 'vxlan-gpe', 'geneve', 'gtpu'):
        behind = made.bytes[made.bytes.index(header):]
        values.update({misc5 + 0x80 + 8 * at: (32, int.from_bytes(behind[at:at + 4], 'big')) for at in range(0, 16, 4)})
    if inner and inner['ethertype'] == 0x8847:
        values[misc2 + 0x20] = (32, int.from_bytes(made.bytes[inner['l2_at'] + 14:][:4], 'big'))
    return values


def misc_values(made, outer, inner):
    data = made.bytes
    none = dict(ip=0, l4='none', l4_at=0, l3_at=0, vlans=0)

    def number(at, size):
        return int.from_bytes(data[at:at + size], 'big')

    values = {0x208: (24, 0x123456), 0x230: (16, 0x789a)}
    values.update({0x600 + bit: (32, value) for bit, value in zip(REGISTER_BITS, REGISTER_VALUES)})
    for level, flow, spi, seq, ack, tag, bits in (
            (outer, 0x2ec, 0x380, 0x820, 0x860, 0x240, (0x260, 0x262)), (inner or none, 0x30c, 0x360, 0x800, 0x840, 0x250, (0x261, 0x263))):
        tcp = level['l4'] == 'tcp'
        values.update({flow: (20, number(level['l3_at'], 4) & 0xfffff if level['ip'] == 6 else 0),
                       spi: (32, number(level['l4_at'], 4) if level['l4'] == 'esp' else 0),
                       seq: (32, number(level['l4_at'] + 4, 4) if tcp else 0), ack: (32, number(level['l4_at'] + 8, 4) if tcp else 0),
                       tag: (16, level.get('vlan1', 0)), bits[0]: (1, level.get('type1') == 0x8100),
                       bits[1]: (1, level.get('type1') == 0x88a8)})
    at, icmp, icmp6 = outer['l4_at'], outer['l4'] == 'icmp', outer['l4'] == 'icmpv6'
    values.update({0x8c0: (32, number(at + 4, 4) if icmp else 0), 0x8e0: (32, number(at + 4, 4) if icmp6 else 0),
                   0x900: (8, data[at] if icmp else 0), 0x908: (8, data[at + 1] if icmp else 0),
                   0x910: (8, data[at] if icmp6 else 0), 0x918: (8, data[at + 1] if icmp6 else 0)})
    if outer['ethertype'] == 0x8847:
        values[0x600] = (32, number(14, 4))
    return values


def match(program, rnd):
    made = make(rnd)
    _, outer, inner = expected_facts(made)
    outer['l2_at'] = 0
    values = level_values(made.bytes, outer, 0)
    if inner:
        inner['l2_at'] = len(made.bytes) - made.inner_len
        values.update(level_values(made.bytes, inner, 0x400))
    values.update(misc_values(made, outer, inner))
    values.update(tunnel_values(made, outer, inner))
    everything = list(values)
    for chosen in [[bit] for bit in rnd.sample(everything, 8)] + [rnd.sample(everything, rnd.randrange(1, 8)) for _ in range(4)]:
        mask = value = criteria = 0
        for bit in chosen:
            width, number = values[bit]
            some = rnd.choice([(1 << width) - 1, rnd.randrange(1, 1 << width)])
            mask |= some << (4096 - bit - width)
            value |= (int(number) & some) << (4096 - bit - width)
            criteria |= 1 << bit // 512
        bits = [i for i in range(4096) if mask >> i & 1]
        other = value ^ 1 << rnd.choice(bits)
        same(f'match {[hex(b) for b in chosen]}', made.bytes, 'hit',
             program.ask('match', criteria, mask.to_bytes(512, 'big'), value.to_bytes(512, 'big'), made.bytes))
        same(f'no match {[hex(b) for b in chosen]}', made.bytes, 'miss',
             program.ask('match', criteria, mask.to_bytes(512, 'big'), other.to_bytes(512, 'big'), made.bytes))


PARTS = {'facts': (facts, 3000), 'sums': (sums, 1000), 'hash': (hashes, 1000), 'segments': (segments, 400), 'edits': (edits, 500),
         'modify': (modify, 2000), 'match': (match, 500)}


def main():
    program, part = Program(sys.argv[1]), PARTS[sys.argv[2]]
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    count = int(sys.argv[4]) if len(sys.argv) > 4 else part[1]
    for index in range(count):
        try:
            part[0](program, random.Random(seed * 1000003 + index))
        except AssertionError as reason:
            print(f'frame {index} of seed {seed}: {reason}')
            return 1
    print(f'{count} frames')
    return 0


if __name__ == '__main__':
    sys.exit(main())
