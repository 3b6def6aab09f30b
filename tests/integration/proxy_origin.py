# SPDX-License-Identifier: GPL-2.0-or-later
"""The internet of the proxy's test: one server on all addresses, with TLS and without. Each connection and request becomes a line of the log.
usage: proxy_origin.py LOG CERT KEY ADDRESS..."""
import base64
import hashlib
import http.server
import socket
import socketserver
import ssl
import sys
import threading
import time

log_path, cert, key, *addresses = sys.argv[1:]
log_lock = threading.Lock()


def log(*words):
    with log_lock, open(log_path, "a") as f:
        f.write(" ".join(str(w) for w in words) + "\n")


def local(sock):
    address, port = sock.getsockname()[:2]
    return address, port


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120

    def log_message(self, *args):
        pass

    def say(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        digest, n = hashlib.sha256(), 0
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline().strip(), 16):
                data = self.rfile.read(size)
                digest.update(data)
                n += len(data)
                self.rfile.readline()
            self.rfile.readline()
        left = int(self.headers.get("Content-Length", 0))
        while left:
            data = self.rfile.read(min(left, 1 << 16))
            if not data:
                break
            digest.update(data)
            n += len(data)
            left -= len(data)
        return n, digest.hexdigest()

    def do(self):
        address, port = local(self.connection)
        log("request", address, port, self.headers.get("Host", "-"), self.command, self.path, getattr(self.connection, "seen_sni", "-"))
        path = self.path.split("?")[0]
        if path == "/upload":
            self.say(("%d %s" % self.body()).encode())
        elif path == "/headers":
            self.say(str(self.headers).encode())
        elif path == "/big":
            n = int(self.path.split("=")[1])
            self.send_response(200)
            self.send_header("Content-Length", str(n))
            self.end_headers()
            block = b"x" * (1 << 18)
            while n:
                self.wfile.write(block[:min(n, len(block))])
                n -= min(n, len(block))
        elif path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for i in range(int(self.path.split("=")[1])):
                self.wfile.write(b"data: %d\n\n" % i)
                time.sleep(0.2)
            self.close_connection = True
        elif path == "/socket":
            self.websocket()
        else:
            self.say(f"hello from {address}\n".encode())

    def websocket(self):
        accept = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept.decode())
        self.end_headers()
        self.close_connection = True
        while data := self.connection.recv(4096):
            self.connection.sendall(data)

    do_GET = do_POST = do_PUT = do_OPTIONS = do_HEAD = do


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 256
    tls = None

    def finish_request(self, request, client):
        address, port = local(request)
        log("accept", address, port)
        try:
            if self.tls:
                request = self.tls.wrap_socket(request, server_side=True)
            Handler(request, client, self)
            if self.tls:  # clients of today take an end without TLS's own word for it as an attack
                request.settimeout(2)
                request.unwrap()
        except (OSError, ssl.SSLError, ValueError) as e:
            log("failed", address, port, type(e).__name__)
        finally:
            try:
                request.close()
            except OSError:
                pass


class Raw(Server):
    """A stream that is told how long it is in its first bytes: "NNN\\n", then that many come; behind a ClientHello on the proxied port."""

    def finish_request(self, request, client):
        data = b""
        while b"SEND " not in data or not data.endswith(b"\n"):
            piece = request.recv(65536)
            if not piece:
                return
            data += piece
        n = int(data.split(b"SEND ")[1])
        block = bytes(1 << 20)
        while n:
            n -= request.send(memoryview(block)[:min(n, len(block))])
        request.close()


class Server6(Server):
    address_family = socket.AF_INET6


def serve(port, tls, address, kind=Server):
    server = (Server6 if ":" in address else kind)((address, port), None)
    if tls:
        server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.tls.load_cert_chain(cert, key)

        def seen(sock, name, context):
            sock.seen_sni = name
            log("sni", *local(sock), name)
        server.tls.sni_callback = seen
    threading.Thread(target=server.serve_forever, daemon=True).start()


for one in addresses:
    serve(443, True, one)
    serve(80, False, one)
    serve(9000, False, one)
    serve(9443, True, one)
    serve(9001, False, one, Raw)
log("ready")
threading.Event().wait()
