# SPDX-License-Identifier: GPL-2.0-or-later
"""A name server and an HTTPS origin for ./quickstart, which writes down what credential it was sent: names.py DNS-ADDRESS ADDRESS DIRECTORY NAME...
The directory has cert and key; each request is a line of its file `seen`."""
import http.server
import os
import socket
import socketserver
import ssl
import struct
import sys
import threading

dns, address, directory, *names = sys.argv[1:]


def answer(question):
    """An address for the names that are known, for all types but A nothing."""
    at, labels = 12, []
    while question[at]:
        labels.append(question[at + 1:at + 1 + question[at]].decode("latin-1"))
        at += 1 + question[at]
    known = ".".join(labels).lower() in names
    record = known and question[at + 1:at + 3] == b"\0\1"
    head = question[:2] + struct.pack(">5H", 0x8180 if known else 0x8183, 1, 1 if record else 0, 0, 0)
    return head + question[12:at + 5] + (b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton(address) if record else b"")


def name_server():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((dns, 53))
    while True:
        question, peer = s.recvfrom(4096)
        try:
            s.sendto(answer(question), peer)
        except IndexError:
            pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with open(directory + "/seen", "a") as f:
            f.write("%s %s\n" % (self.headers.get("Host"), self.headers.get("Authorization")))
        body = b"origin by name"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *unused):
        pass


threading.Thread(target=name_server, daemon=True).start()
socketserver.ThreadingTCPServer.daemon_threads = True
server = socketserver.ThreadingTCPServer((address, 443), Handler)  # HTTPServer would ask the DNS for its own name, which nobody here answers
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(directory + "/cert", directory + "/key")
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
os.umask(0o077)
server.serve_forever()
