#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The other ends of tests/integration/interceptor.c: an origin that echoes after an upgrade, and clients in hostd-proxy's place."""
import os
import socket
import ssl
import struct
import sys
import threading
import time


def head(s):
    data = b""
    while b"\r\n\r\n" not in data:
        more = s.recv(4096)
        if not more:
            raise OSError("closed")
        data += more
    return data.decode()


def field(text, name):
    for line in text.split("\r\n"):
        if line.lower().startswith(name + ":"):
            return line.split(":", 1)[1].strip()
    return "-"


def serve(context, raw):
    try:
        s = context.wrap_socket(raw, server_side=True)
        while True:
            text = head(s)
            key = field(text, "x-key")
            saw = key[::-1]  # what is as it was sent is replaced on its way back
            if "upgrade: websocket" in text.lower():
                s.sendall(f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\nX-Saw: {saw}\r\n\r\n".encode())
                while data := s.recv(4096):
                    s.sendall(data)
                return
            s.sendall(f"HTTP/1.1 200 OK\r\nX-Saw: {saw}\r\nX-Plain: {key}\r\nContent-Length: 0\r\n\r\n".encode())
    except (OSError, ssl.SSLError):
        pass


def origin(certificate):
    """Tells each what it saw in X-Key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 443))
    while True:
        threading.Thread(target=serve, args=(context, listener.accept()[0]), daemon=True).start()


def connect(front, name):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    s.connect(front)
    tlv = b"\x02" + struct.pack("!H", len(name)) + name.encode()
    body = socket.inet_aton("192.0.2.7") + socket.inet_aton("127.0.0.1") + struct.pack("!HH", 40000, 443) + tlv
    s.sendall(b"\r\n\r\n\0\r\nQUIT\n" + bytes([0x21, 0x11]) + struct.pack("!H", len(body)) + body)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(s, server_hostname=name)


def note(path, text):
    with open(path + ".new", "w") as f:
        f.write(text)
    os.rename(path + ".new", path)


def stream(front, name, token, path):
    """An upgraded connection: PATH has what the origin saw and how often it echoed, and "end" when it was cut."""
    saw, n = "-", 0
    try:
        s = connect(front, name)
        s.sendall(f"GET /ws HTTP/1.1\r\nHost: {name}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nX-Key: {token}\r\n\r\n".encode())
        saw = field(head(s), "x-saw")[::-1]
        while True:
            s.sendall(b"tick")
            if not s.recv(16):
                break
            n += 1
            note(path, f"{n} {saw}")
            time.sleep(0.05)
    except (OSError, ssl.SSLError) as e:
        saw += f" {e}"
    note(path, f"end {n} {saw}")


def once(front, name, token, path):
    """One request: PATH has its status, what the origin saw, and what of it came back as it was."""
    try:
        s = connect(front, name)
        s.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\nX-Key: {token}\r\n\r\n".encode())
        text = head(s)
        note(path, text.split(" ")[1] + " " + field(text, "x-saw")[::-1] + " " + field(text, "x-plain"))
    except (OSError, ssl.SSLError):
        note(path, "closed")


if __name__ == "__main__":
    {"origin": origin, "stream": stream, "once": once}[sys.argv[1]](*sys.argv[2:])
