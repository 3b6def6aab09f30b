# SPDX-License-Identifier: GPL-2.0-or-later
"""Asks one question of the DNS and prints the code, the addresses (or "-") and the texts of extended errors.
question.py NAME [A|AAAA|TXT [udp|tcp [SERVER]]]"""
import ipaddress
import socket
import struct
import sys

name = sys.argv[1]
kind = {"A": 1, "AAAA": 28, "TXT": 16}[sys.argv[2] if len(sys.argv) > 2 else "A"]
tcp = len(sys.argv) > 3 and sys.argv[3] == "tcp"
server = sys.argv[4] if len(sys.argv) > 4 else "169.254.0.1"
labels = b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0"
query = struct.pack(">HHHHHH", 4242, 0x0100, 1, 0, 0, 1) + labels + struct.pack(">HH", kind, 1) + b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0)


def ask():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM)
    s.settimeout(3)
    s.connect((server, 53))
    if not tcp:
        s.send(query)
        return s.recv(4096)
    s.sendall(struct.pack(">H", len(query)) + query)
    data = b""
    while len(data) < 2 or len(data) < 2 + struct.unpack(">H", data[:2])[0]:
        more = s.recv(4096)
        if not more:
            break
        data += more
    return data[2:]


def skip_name(data, at):
    while data[at] and data[at] < 192:
        at += data[at] + 1
    return at + (2 if data[at] >= 192 else 1)


try:
    data = ask()
except ConnectionRefusedError:
    print("refused")
    sys.exit()
except OSError:
    print("no answer")
    sys.exit()
flags, counts = struct.unpack(">H", data[2:4])[0], struct.unpack(">HHHH", data[4:12])
at = 12
for _ in range(counts[0]):
    at = skip_name(data, at) + 4
addresses, texts = [], []
for _ in range(sum(counts[1:])):
    at = skip_name(data, at)
    rr, _, _, size = struct.unpack(">HHIH", data[at:at + 10])
    body = data[at + 10:at + 10 + size]
    at += 10 + size
    if rr in (1, 28):
        addresses.append(str(ipaddress.ip_address(body)))
    while rr == 41 and len(body) >= 4:
        option, length = struct.unpack(">HH", body[:4])
        if option == 15:
            texts.append(body[6:4 + length].decode(errors="replace"))
        body = body[4 + length:]
code = {0: "NOERROR", 2: "SERVFAIL", 3: "NXDOMAIN", 5: "REFUSED"}.get(flags & 15, str(flags & 15))
print(code, " ".join(addresses) or "-", " ".join(texts))
