#!/usr/bin/env python3
"""RoCE judged by scapy: Ethernet, IP, UDP, BTH, AETH, CNP and the ICRC are scapy's, the other headers are read and made here.

usage: roce.py PROGRAM encode|decode [SEED [COUNT]]

PROGRAM is frames_roce. encode: what our encoder makes is what scapy reads. decode: what scapy makes is what our decoder reads.
Packets are random with a fixed seed; a failure prints the packet, and the same arguments show it again.
"""
import random
import struct
import sys
import zlib

from judge import Ether, Dot1Q, IP, IPv6, UDP, Raw, Program, ip4, ip6, mac, same
from scapy.contrib.roce import AETH, BTH, GRH, cnp

V1, IPV4, IPV6 = range(3)
FIRST, LAST, IMM, INVALIDATE, SOLICITED, ACK_REQ = (1 << i for i in range(6))
ONLY = FIRST | LAST
(SEND, WRITE, READ, COMPARE_SWAP, FETCH_ADD, MASKED_COMPARE_SWAP, MASKED_FETCH_ADD, ACK, READ_RESPONSE,
 ATOMIC_RESPONSE), CNP = range(1, 11), 0x40
RC, UC, UD, XRC_SEND, XRC_RECV = 2, 3, 4, 9, 10

# The headers of each operation, by the low five bits of the opcode; IBTA table 38.
NAMES = {0x00: (SEND, FIRST, ''), 0x01: (SEND, 0, ''), 0x02: (SEND, LAST, ''), 0x03: (SEND, LAST | IMM, 'imm'), 0x04: (SEND, ONLY, ''),
         0x05: (SEND, ONLY | IMM, 'imm'), 0x06: (WRITE, FIRST, 'reth'), 0x07: (WRITE, 0, ''), 0x08: (WRITE, LAST, ''),
         0x09: (WRITE, LAST | IMM, 'imm'), 0x0a: (WRITE, ONLY, 'reth'), 0x0b: (WRITE, ONLY | IMM, 'reth imm'), 0x0c: (READ, ONLY, 'reth'),
         0x0d: (READ_RESPONSE, FIRST, 'aeth'), 0x0e: (READ_RESPONSE, 0, ''), 0x0f: (READ_RESPONSE, LAST, 'aeth'),
         0x10: (READ_RESPONSE, ONLY, 'aeth'), 0x11: (ACK, ONLY, 'aeth'), 0x12: (ATOMIC_RESPONSE, ONLY, 'aeth before'),
         0x13: (COMPARE_SWAP, ONLY, 'atomic'), 0x14: (FETCH_ADD, ONLY, 'atomic'), 0x16: (SEND, LAST | INVALIDATE, 'ieth'),
         0x17: (SEND, ONLY | INVALIDATE, 'ieth')}
WITH_DATA = (SEND, WRITE, READ_RESPONSE)
FAMILIES = {0x00: RC, 0x20: UC, 0x60: UD, 0xa0: XRC_SEND}
SIZES = {'deth': 8, 'xrceth': 4, 'reth': 16, 'atomic': 28, 'aeth': 4, 'before': 8, 'imm': 4, 'ieth': 4}
# Fields of a header, 0 where it is not there.
FIELDS = {'deth': ('qkey', 'sqpn'), 'xrceth': ('srqn',), 'reth': ('va', 'rkey', 'dma_len'), 'atomic': ('va', 'rkey', 'swap_add', 'compare'),
          'aeth': ('syndrome', 'msn'), 'before': ('swap_add',), 'imm': ('imm',), 'ieth': ('inv_rkey',)}


def headers_of(opcode):
    """Of a packet of the specification, in their order."""
    op, _, names = NAMES[opcode & 0x1f]
    front = {0x60: ['deth'], 0xa0: ['xrceth'] if op < ACK else []}.get(opcode & 0xe0, [])
    return front + names.split()


def read_header(name, data, op):
    if name == 'deth':
        return {'qkey': int.from_bytes(data[:4], 'big'), 'sqpn': int.from_bytes(data[5:], 'big')}
    if name == 'xrceth':
        return {'srqn': int.from_bytes(data[1:4], 'big')}
    if name == 'aeth':
        return {'syndrome': AETH(data).syndrome, 'msn': AETH(data).msn}
    if name == 'imm':
        return {'imm': data.hex()}
    values = dict(zip(FIELDS[name], struct.unpack({'reth': '>QII', 'atomic': '>QIQQ', 'before': '>Q', 'ieth': '>I'}[name], data)))
    if op == FETCH_ADD:
        same('reserved', data, values.pop('compare'), 0)
    return values


def make_header(name, rnd, op, want):
    """Bytes of a header, whose fields are added to want."""
    if name == 'deth':
        want.update(qkey=rnd.getrandbits(32), sqpn=rnd.getrandbits(24))
        return struct.pack('>II', want['qkey'], want['sqpn'])
    if name == 'xrceth':
        want['srqn'] = rnd.getrandbits(24)
        return struct.pack('>I', want['srqn'])
    if name == 'aeth':
        want.update(syndrome=rnd.randrange(0x80), msn=rnd.getrandbits(24))
        return bytes(AETH(syndrome=want['syndrome'], msn=want['msn']))
    if name == 'imm':
        data = rnd.randbytes(4)
        want['imm'] = data.hex()
        return data
    data = rnd.randbytes(SIZES[name])
    values = dict(zip(FIELDS[name], struct.unpack({'reth': '>QII', 'atomic': '>QIQQ', 'before': '>Q', 'ieth': '>I'}[name], data)))
    if op == FETCH_ADD:
        values['compare'] = 0  # reserved: whatever stands there
    want.update(values)
    return data


def icrc_by_hand(network, kind):
    """Where scapy has none: of bytes from the GRH or IPv6 header on."""
    data = bytearray(network)
    data[0:4] = b'\x6f\xff\xff\xff'
    data[7] = 0xff
    bth = 40
    if kind == IPV6:
        data[46:48] = b'\xff\xff'
        bth = 48
    data[bth + 4] = 0xff
    return struct.pack('<I', zlib.crc32(b'\xff' * 8 + data))


def fields(answer):
    return {name: value if name in ('dmac', 'smac', 'sgid', 'dgid', 'imm', 'data', 'frame') else int(value)
            for name, value in (word.split('=') for word in answer.split())}


def gid(address):
    if '.' in address:
        return '0' * 20 + 'ffff' + bytes(int(part) for part in address.split('.')).hex()
    return bytes(int(part) for word in address.split(':') for part in divmod(int(word or '0', 16), 256)).hex()


def expect(what, frame, got, want):
    for name, value in want.items():
        same(f'{what}: {name}', frame, value, got[name])


# --- what we make ----------------------------------------------------------------------------------------------------

def check_network(data, packet, given):
    """What is in front of the BTH; where that begins and ends."""
    same('MACs', data, given['dmac'] + given['smac'], packet.dst.replace(':', '') + packet.src.replace(':', ''))
    at = 14
    if given['tagged']:
        same('tag', data, given['vlan'], packet[Dot1Q].prio << 13 | packet[Dot1Q].id << 12 | packet[Dot1Q].vlan)
        at = 18
    if given['network'] == IPV4:
        ip = packet[IP]
        same('IPv4', data, [given[n] for n in ('tclass', 'hops', 'id', 'sgid', 'dgid')] + [2 * given['df'], 5, 17, len(data) - at],
             [ip.tos, ip.ttl, ip.id, gid(ip.src), gid(ip.dst), int(ip.flags), ip.ihl, ip.proto, ip.len])
        again = ip.copy()
        del again.chksum
        same('IPv4 checksum', data, IP(bytes(again)).chksum, ip.chksum)
        return at, at + 28
    if given['network'] == IPV6:
        ip = packet[IPv6]
        same('IPv6', data, [given[n] for n in ('tclass', 'hops', 'flow', 'sgid', 'dgid')] + [17, len(data) - at - 40],
             [ip.tc, ip.hlim, ip.fl, data[at + 8:at + 24].hex(), data[at + 24:at + 40].hex(), ip.nh, ip.plen])
        return at, at + 48
    grh = packet[GRH]
    same('GRH', data, [6] + [given[n] for n in ('tclass', 'hops', 'flow', 'sgid', 'dgid')] + [0x1b, len(data) - at - 40],
         [grh.ipver, grh.tclass, grh.hoplmt, grh.flowlabel, f'{grh.sgid:032x}', f'{grh.dgid:032x}', grh.nexthdr, grh.paylen])
    return at, at + 40


def check_icrc(data, at, kind):
    if kind == IPV4:
        packet = IP(data[at:])
        packet[BTH].icrc = None
        right = bytes(packet)[-4:]
    else:
        right = icrc_by_hand(data[at:-4], kind)
    same('ICRC', data, right.hex(), data[-4:].hex())


def encode(program, rnd):
    answer = 'refused'
    while answer == 'refused':  # operation, transport and flags that do not go together
        answer = program.ask('encode', rnd.randbytes(300))
    given = fields(answer)
    data = bytes.fromhex(given['frame'])
    packet = Ether(data)
    at, begin = check_network(data, packet, given)
    check_icrc(data, at, given['network'])
    if given['network'] != V1:
        udp = packet[UDP]
        same('UDP', data, [given['sport'], 4791, len(data) - begin + 8, 0], [udp.sport, udp.dport, udp.len, udp.chksum])
    bth = BTH(data[begin:begin + 12] + data[-4:])
    asks = bool(given['flags'] & ACK_REQ) and given['op'] < ACK and given['transport'] & 0x7f in (RC, XRC_SEND)
    same('BTH', data, [bool(given['flags'] & SOLICITED), given['migreq'], -len(given['data']) // 2 % 4, 0, given['pkey'], given['fecn'],
                       given['becn'] or given['op'] == CNP, 0, given['dqpn'], asks, given['reserved'], given['psn']],
         [bth.solicited, bth.migreq, bth.padcount, bth.version, bth.pkey, bth.fecn, bth.becn, bth.resv6, bth.dqpn, bth.ackreq,
          bth.resv7, bth.psn])
    if bth.opcode >= 0xc0:
        return  # ours, tests/unit/test_roce.c
    rest = data[begin + 12:-4]
    if bth.opcode == 0x81:
        same('CNP', data, '00' * 16, rest.hex())
        return
    op, flags, _ = NAMES[bth.opcode & 0x1f]
    same('operation', data, [given['op'], given['flags'] & 15 if op in WITH_DATA else ONLY], [op, flags])
    same('transport', data, given['transport'] & 0x7f, XRC_RECV if bth.opcode >= 0xa0 and op >= ACK else FAMILIES[bth.opcode & 0xe0])
    for name in headers_of(bth.opcode):
        expect(name, data, given, read_header(name, rest[:SIZES[name]], op))
        rest = rest[SIZES[name]:]
    same('data', data, given['data'] + '00' * bth.padcount, rest.hex())


# --- what scapy makes ------------------------------------------------------------------------------------------------

def make_network(rnd, want):
    """Layers up to UDP or GRH, without lengths; the fields are added to want."""
    source, target = mac(rnd), mac(rnd)
    want.update(dmac=target.replace(':', ''), smac=source.replace(':', ''), tagged=rnd.randrange(2), vlan=0, network=rnd.randrange(3),
                tclass=rnd.randrange(256), hops=rnd.randrange(256), flow=rnd.getrandbits(20), sport=rnd.randrange(0xc000, 0x10000), id=0, df=0)
    packet = Ether(src=source, dst=target)
    if want['tagged']:
        want['vlan'] = rnd.getrandbits(16)
        packet = packet / Dot1Q(prio=want['vlan'] >> 13, id=want['vlan'] >> 12 & 1, vlan=want['vlan'] & 0xfff)
    source, target = [(ip4 if want['network'] == IPV4 else ip6)(rnd) for _ in range(2)]
    want.update(sgid=gid(source), dgid=gid(target))
    if want['network'] == IPV4:
        want.update(flow=0, id=rnd.getrandbits(16), df=rnd.randrange(2))
        packet = packet / IP(src=source, dst=target, tos=want['tclass'], ttl=want['hops'], id=want['id'], flags=2 * want['df'])
    elif want['network'] == IPV6:
        packet = packet / IPv6(src=source, dst=target, tc=want['tclass'], hlim=want['hops'], fl=want['flow'])
    else:
        want['sport'] = 0
        return packet / GRH(tclass=want['tclass'], flowlabel=want['flow'], nexthdr=0x1b, hoplmt=want['hops'],
                            sgid=int(want['sgid'], 16), dgid=int(want['dgid'], 16))
    # A checksum, as kernels fill one in, or none.
    return packet / (UDP(sport=want['sport'], dport=4791) if rnd.randrange(2) else UDP(sport=want['sport'], dport=4791, chksum=0))


def finish(packet, kind):
    """Bytes, with lengths, ICRC and checksums."""
    at = len(packet) - len(packet[{V1: GRH, IPV4: IP, IPV6: IPv6}[kind]])
    if kind == V1:
        packet[GRH].paylen = len(packet[BTH])
        data = bytes(packet)
        return data[:-4] + icrc_by_hand(data[at:-4], kind)
    if kind == IPV4:
        return bytes(packet)  # scapy's ICRC, and checksums over it
    data = bytes(packet)
    packet[BTH].icrc = struct.unpack('>I', icrc_by_hand(data[at:-4], kind))[0]
    return bytes(packet)


def decode(program, rnd):
    want = {name: 0 for names in FIELDS.values() for name in names}
    want['imm'] = '00000000'
    packet = make_network(rnd, want)
    kind = want['network']
    want.update(dqpn=rnd.getrandbits(24), psn=rnd.getrandbits(24), pkey=rnd.getrandbits(16), migreq=rnd.randrange(2), fecn=rnd.randrange(2),
                becn=rnd.randrange(2), reserved=rnd.randrange(128))
    if kind != V1 and rnd.randrange(20) == 0:
        want.update(op=CNP, transport=0, flags=ONLY, pkey=0xffff, psn=0, migreq=0, fecn=0, becn=1, reserved=0, data='')
        bth = cnp(want['dqpn'])
    else:
        family = rnd.choice(list(FAMILIES))
        code = rnd.choice([4, 5] if family == 0x60 else [c for c in NAMES if family != 0x20 or c < 12])
        op, flags, _ = NAMES[code]
        want.update(op=op, transport=XRC_RECV if family == 0xa0 and op >= ACK else FAMILIES[family], flags=flags)
        solicited, asks = rnd.randrange(2), rnd.randrange(2)
        want['flags'] |= SOLICITED * solicited | ACK_REQ * (asks and op < ACK and want['transport'] in (RC, XRC_SEND))
        body = b''.join(make_header(name, rnd, op, want) for name in headers_of(family | code))
        data = rnd.randbytes(rnd.choice([0, 1, 2, 3, 4, 100, 255, 1024, 4095, 4096])) if op in WITH_DATA else b''
        want['data'] = data.hex()
        bth = BTH(opcode=family | code, solicited=solicited, migreq=want['migreq'], padcount=-len(data) % 4, pkey=want['pkey'],
                  fecn=want['fecn'], becn=want['becn'], resv6=rnd.randrange(64), dqpn=want['dqpn'], ackreq=asks, resv7=want['reserved'],
                  psn=want['psn']) / Raw(body + data + bytes(-len(data) % 4))
        if kind == V1:
            want['transport'] |= 0x80
    frame = finish(packet / bth, kind)
    answer = program.ask('decode', frame)
    assert not answer.startswith('error'), f'{answer}: {frame.hex()}'
    expect('decoded', frame, fields(answer), want)
    damaged = bytearray(frame)
    damaged[rnd.randrange(len(frame) - 4, len(frame))] ^= 1 << rnd.randrange(8)
    assert program.ask('decode', bytes(damaged)) in ('error icrc', 'error udp-checksum'), f'{damaged.hex()}'


def main():
    program, part = Program(sys.argv[1]), {'encode': encode, 'decode': decode}[sys.argv[2]]
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 1000
    for index in range(count):
        try:
            part(program, random.Random(seed * 1000003 + index))
        except AssertionError as reason:
            print(f'packet {index} of seed {seed}: {reason}')
            return 1
    print(f'{count} packets')
    return 0


if __name__ == '__main__':
    sys.exit(main())
