# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets and ClientHellos by hand, for egress_table.py and network_attack.py: what no honest stack sends."""
import socket, struct

V4, V6, ARP, VLAN, QINQ = b"\x08\0", b"\x86\xdd", b"\x08\x06", b"\x81\0", b"\x88\xa8"


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def ip4(source, target, protocol, body, options=b"", offset=0, more=False, ident=1, ttl=64):
    size = 20 + len(options)
    head = struct.pack("!BBHHHBBH4s4s", 0x40 | size // 4, 0, size + len(body), ident, offset // 8 | (0x2000 if more else 0), ttl, protocol, 0,
                       socket.inet_aton(source), socket.inet_aton(target)) + options
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body


def ip6(source, target, protocol, body, hops=64):
    return struct.pack("!IHBB", 0x60000000, len(body), protocol, hops) + socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, target) + body


def sums(source, target, protocol, body, at):
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    pseudo = socket.inet_pton(family, source) + socket.inet_pton(family, target) + struct.pack("!II", len(body), protocol)
    return body[:at] + struct.pack("!H", checksum(pseudo + body) or 0xffff) + body[at + 2:]


def udp(source, target, port, payload, sport=4444):
    return sums(source, target, 17, struct.pack("!HHHH", sport, port, 8 + len(payload), 0) + payload, 6)


def tcp(source, target, port, flags, payload=b"", options=b"", sport=4445):
    return sums(source, target, 6, struct.pack("!HHIIBBHHH", sport, port, 1000, 0, (5 + len(options) // 4) << 4, flags, 8192, 0, 0) + options + payload, 16)


def icmp(kind, code, rest, payload):
    body = struct.pack("!BBH", kind, code, 0) + rest + payload
    return body[:2] + struct.pack("!H", checksum(body)) + body[4:]


def icmp6(source, target, kind, code, rest, payload):
    return sums(source, target, 58, struct.pack("!BBH", kind, code, 0) + rest + payload, 2)


def arp(operation, mac, sender, target):
    return struct.pack("!HHBBH6s4s6s4s", 1, 0x800, 6, 4, operation, mac, socket.inet_aton(sender), b"\0" * 6, socket.inet_aton(target))


def extension(kind, body):
    return struct.pack("!HH", kind, len(body)) + body


def server_names(*names):
    each = b"".join(b"\0" + struct.pack("!H", len(n)) + n for n in names)
    return extension(0, struct.pack("!H", len(each)) + each)


def client_hello(extensions, tag, records=1, version=0x0301):
    """With the tag in its random bytes, in as many TLS records."""
    body = struct.pack("!H", 0x0303) + tag.ljust(32, b"r")[:32] + b"\0" + struct.pack("!HHH", 4, 0x1301, 0x1302) + b"\1\0"
    extensions += extension(43, b"\x02\x03\x04") + extension(10, b"\0\x02\0\x1d")
    message = body + struct.pack("!H", len(extensions)) + extensions
    message = b"\1" + struct.pack("!I", len(message))[1:] + message
    step = -(-len(message) // records)
    return b"".join(b"\x16" + struct.pack("!HH", version, len(message[i:i + step])) + message[i:i + step] for i in range(0, len(message), step))
