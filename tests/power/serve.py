# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs hostctl for somebody outside of the machine that loses its power, who keeps the notes. On standard input one question a line,
{id, words}; on standard output one answer a line, {id, code, out, err}, as each comes to its end.
"""
import json
import sys
import threading

import power

lock = threading.Lock()


def answer(question):
    result = power.hostctl(*question["words"], timeout=300)
    text = json.dumps(dict(id=question["id"], code=result.returncode, out=result.stdout, err=result.stderr))
    with lock:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


print("ready", flush=True)
for line in sys.stdin:
    threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
