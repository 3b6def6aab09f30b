# SPDX-License-Identifier: GPL-2.0-or-later
"""A web server at ADDRESS on 80 and 443 that answers with NAME, and says what it was asked by whom: origin.py ADDRESS NAME DIRECTORY."""
import http.server
import socket
import ssl
import sys
import threading

address, name, directory = sys.argv[1:]


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
    daemon_threads = True


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        print(name, address, self.headers.get("Host"), self.client_address[0], flush=True)
        body = name.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(port, context):
    server = Server((address, port), Handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(directory + "/cert", directory + "/key")
threading.Thread(target=serve, args=(80, None), daemon=True).start()
serve(443, tls)
