#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""gRPC for tests/integration/secrets.sh: a server that tells what it saw, and a client that asks it, both streaming."""
import sys
import time
from concurrent import futures

import grpc


def both(messages, context):
    key = dict(context.invocation_metadata()).get("x-key", "-").encode()
    context.set_trailing_metadata((("x-end", "of the stream"),))
    for message in messages:
        yield message + b" " + key


def server(address, port, certificate, key):
    with open(certificate, "rb") as c, open(key, "rb") as k:
        credentials = grpc.ssl_server_credentials([(k.read(), c.read())])
    s = grpc.server(futures.ThreadPoolExecutor(8))
    s.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", {"Both": grpc.stream_stream_rpc_method_handler(both)}),))
    s.add_secure_port(f"{address}:{port}", credentials)
    s.start()
    s.wait_for_termination()


def client(port, ca, name, token):
    """Three messages, each after the answer to the one before. Prints the answers, the status and the trailer."""
    answered = []

    def messages():
        for i in range(3):
            while len(answered) < i:
                time.sleep(0.01)
            yield b"message %d" % i
    with open(ca, "rb") as f:
        credentials = grpc.ssl_channel_credentials(f.read())
    options = (("grpc.ssl_target_name_override", name), ("grpc.default_authority", name), ("grpc.enable_http_proxy", 0))
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        call = channel.stream_stream("/test.Test/Both")(messages(), metadata=(("x-key", token),), timeout=20)
        try:
            for answer in call:
                answered.append(answer)
                print(answer.decode())
            print("OK", dict(call.trailing_metadata()).get("x-end"))
        except grpc.RpcError as e:
            print(e.code().name)


if __name__ == "__main__":
    {"server": server, "client": client}[sys.argv[1]](*sys.argv[2:])
