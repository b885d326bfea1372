#!/bin/sh
# SPDX-License-Identifier: MIT
# Write a capture file (pcap) to standard output: what a machine 10.7.0.1 would send to the packet processor.
set -eu

bytes() { # HEX...
	for byte in "$@"; do
		printf '%b' "\\0$(printf %03o "0x$byte")"
	done
}

frame() { # HEX...: a record of its own: no time, its length twice, itself
	length=$(printf '%02x' $#)
	bytes 00 00 00 00  00 00 00 00  "$length" 00 00 00  "$length" 00 00 00  "$@"
}

peer="02 00 00 00 00 0a" peer_ip="0a 07 00 01"
us="02 42 7e 7f eb 02" our_ip="0a 07 00 02"

# The magic number of little endian, version 2.4, 64 KiB at most, Ethernet.
bytes d4 c3 b2 a1  02 00 04 00  00 00 00 00  00 00 00 00  00 00 01 00  01 00 00 00

# ARP: who has 10.7.0.2?
frame ff ff ff ff ff ff $peer 08 06  00 01 08 00 06 04 00 01  $peer $peer_ip  00 00 00 00 00 00 $our_ip

# ICMP: echo request 1, "verbatim ping"
frame $us $peer 08 00  45 00 00 29 00 00 40 00 40 01 26 c4 $peer_ip $our_ip  08 00 53 29 00 4d 00 01 \
	76 65 72 62 61 74 69 6d 20 70 69 6e 67

# UDP from port 4000 to port 7000: "hello, accelerator"
frame $us $peer 08 00  45 00 00 2e 00 00 40 00 40 11 26 af $peer_ip $our_ip  0f a0 1b 58 00 1a 5d 29 \
	68 65 6c 6c 6f 2c 20 61 63 63 65 6c 65 72 61 74 6f 72
