#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Speaks to QEMU: qmp.py SOCKET save FILE (stops the guest, writes its memory, ends QEMU) or qmp.py SOCKET resume (after -incoming)."""
import json
import socket
import sys
import time

wire = socket.socket(socket.AF_UNIX)
for attempt in range(100):
    try:
        wire.connect(sys.argv[1])
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit("qmp: nothing listens at " + sys.argv[1])
lines = wire.makefile("r")
lines.readline()  # its greeting


def ask(command, **arguments):
    """What it returns; events that come in between are of no interest."""
    wire.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
    for line in lines:
        answer = json.loads(line)
        if "error" in answer:
            sys.exit("qmp: %s: %s" % (command, answer["error"]["desc"]))
        if "return" in answer:
            return answer["return"]
    sys.exit("qmp: %s: QEMU is gone" % command)


def migrated():
    """Waits for the end of a migration, whichever way it goes."""
    for _ in range(1200):
        state = ask("query-migrate").get("status")
        if state == "completed":
            return
        if state in ("failed", "cancelled"):
            break
        time.sleep(0.1)
    sys.exit("qmp: the memory was not moved: %s" % state)


ask("qmp_capabilities")
if sys.argv[2] == "save":
    ask("stop")
    ask("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
    ask("migrate", uri="exec:cat >'%s'" % sys.argv[3])
    migrated()
    ask("quit")
else:
    migrated()
    ask("cont")
