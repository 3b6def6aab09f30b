#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The other ends of tests/integration/secrets.sh: origins that write down what reaches them, a front in hostd-proxy's place, and a load."""
import http.client
import http.server
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time


def origin(address, port, certificate, record):
    """Answers with what it was sent, and appends it to the record."""
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            length = self.headers.get("content-length")
            size = 0
            if length:
                left = int(length)
                while left > 0:
                    left -= len(self.rfile.read(min(left, 65536)))
                size = int(length)
            elif self.headers.get("transfer-encoding") == "chunked":
                while True:
                    n = int(self.rfile.readline(), 16)
                    size += len(self.rfile.read(n))
                    self.rfile.readline()
                    if n == 0:
                        break
            text = json.dumps({"line": self.requestline, "headers": self.headers.items(), "body": size}).encode() + b"\n"
            with open(record, "ab") as f:
                f.write(text)
            self.send_response(200, "Fine " + (self.headers.get("authorization") or "") if "/echo" in self.path else None)
            if "/slow" in self.path:
                time.sleep(2)
            if "/echo" in self.path:
                self.echo()
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def echo(self):
            """What it was sent, in headers; and some that are nothing to anybody."""
            sent, long, query = self.headers.get("authorization") or "-", self.headers.get("x-long") or "-", self.path.partition("?")[2]
            value = sent.rpartition(" ")[2]
            self.send_header("Location", f"https://elsewhere.example.com/?k={value}&{query}")
            self.send_header("Set-Cookie", "first=1; Path=/")
            self.send_header("Set-Cookie", f"second={value}; Path=/")
            self.send_header("Set-Cookie", f"third=3, {sent}")
            self.send_header("X-Both", f"{value}{value} {long}{value}|{long}")
            self.send_header("X-" + value.lower().rstrip("="), "in the name")
            self.send_header("X-Odd", "\xff\x80\xe9 %41 [secret] \\ \"")
            self.send_header("X-Empty", "")
            self.send_header("X-Part", value[:-1])
            self.send_header("X-Many", " ".join([value] * 40))
        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_CONNECT = do_TRACE = answer

        def log_message(self, *args):
            pass
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = http.server.ThreadingHTTPServer((address, int(port)), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *args: None  # a client that hangs up is part of the test
    server.request_queue_size = 128
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


def git_origin(address, port, certificate, record, repositories):
    """git's own HTTP backend behind TLS; each request line goes to the record."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            with open(record, "a") as f:
                f.write(f"{self.headers['host']} {self.requestline}\n")
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.headers.get("transfer-encoding") == "chunked":
                while n := int(self.rfile.readline(), 16):
                    body += self.rfile.read(n)
                    self.rfile.readline()
                self.rfile.readline()
            env = dict(os.environ, GIT_PROJECT_ROOT=repositories, GIT_HTTP_EXPORT_ALL="1", PATH_INFO=path, QUERY_STRING=query, REQUEST_METHOD=self.command,
                       CONTENT_TYPE=self.headers.get("content-type") or "", HTTP_CONTENT_ENCODING=self.headers.get("content-encoding") or "", REMOTE_USER="me",
                       GIT_PROTOCOL=self.headers.get("git-protocol") or "", CONTENT_LENGTH=str(len(body)))
            out = subprocess.run(["git", "http-backend"], env=env, input=body, stdout=subprocess.PIPE, check=False).stdout
            head, _, rest = out.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
            self.send_response(int(headers.pop("Status", "200 OK").split()[0]))
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest)
        do_GET = do_POST = do_HEAD = answer

        def log_message(self, *args):
            pass
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = http.server.ThreadingHTTPServer((address, int(port)), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *args: None
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


def header(address, port, name):
    tlv = b""
    if name != "-":
        tlv = b"\x02" + struct.pack("!H", len(name)) + name.encode()
    body = socket.inet_aton("192.0.2.7") + socket.inet_aton(address) + struct.pack("!HH", 40000, int(port)) + tlv
    return b"\r\n\r\n\0\r\nQUIT\n" + bytes([0x21, 0x11]) + struct.pack("!H", len(body)) + body


def pump(a, b):
    try:
        while data := a.recv(262144):
            b.sendall(data)
    except OSError:
        pass
    for s, how in ((b, socket.SHUT_WR), (a, socket.SHUT_RD)):
        try:
            s.shutdown(how)
        except OSError:
            pass


def front(port, path, address, to, name="-"):
    """Hands each connection to the socket, with the address that it is for."""
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=128)
    while True:
        client = listener.accept()[0]
        inner = socket.socket(socket.AF_UNIX)
        try:
            inner.connect(path)
            inner.sendall(header(address, to, name))
        except OSError:
            client.close()
            continue
        for pair in ((client, inner), (inner, client)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def load(port, ca, placeholder, stop, out):
    """Requests without a pause, on kept and on new connections, until there is a file `stop`; how many failed, and every credential that the origin saw, in order."""
    context = ssl.create_default_context(cafile=ca)
    failed, seen, lock = [], [], threading.Lock()

    def client(keep):
        connection = None
        while not os.path.exists(stop):
            try:
                if connection is None:
                    connection = http.client.HTTPSConnection("api.example.com", int(port), context=context, timeout=20)
                    raw = socket.create_connection(("127.0.0.1", int(port)), timeout=20)
                    connection.sock = context.wrap_socket(raw, server_hostname="api.example.com")
                connection.request("GET", "/v1/x", headers={"Authorization": "Bearer " + placeholder})
                reply = connection.getresponse()
                body = reply.read()
                got = dict(json.loads(body)["headers"]).get("authorization") if reply.status == 200 else None
                with lock:
                    seen.append(got)
                    if reply.status != 200 or not got or not got.startswith("Bearer value-"):
                        failed.append(f"{reply.status} {got}")
                if not keep:
                    connection.close()
                    connection = None
            except Exception as e:  # whatever a client would see as a failure
                with lock:
                    failed.append(repr(e))
                connection = None
    threads = [threading.Thread(target=client, args=(i % 2 == 0,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    with open(out, "w") as f:
        json.dump({"requests": len(seen), "failed": failed, "values": sorted(set(map(str, seen)))}, f)


def raw(port, ca, name, path):
    """Sends the bytes of a file over TLS with the name as SNI; prints the answer's first line, or "closed"."""
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    with socket.create_connection(("127.0.0.1", int(port)), timeout=10) as plain, context.wrap_socket(plain, server_hostname=name or None) as s:
        with open(path, "rb") as f:
            s.sendall(f.read())
        answer = b""
        try:
            while b"\r\n" not in answer and (data := s.recv(4096)):
                answer += data
        except (OSError, ssl.SSLError):
            pass
    print(answer.split(b"\r\n")[0].decode(errors="replace") or "closed")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
