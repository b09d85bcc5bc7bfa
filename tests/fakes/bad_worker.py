"""A worker that fails in the way its first argument names; standard library alone."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def answer(to, **fields):
    print(json.dumps({"id": to["id"], **fields}), flush=True)


def main():
    way = sys.argv[1]
    if way == "deaf":
        time.sleep(600)
    for line in sys.stdin:
        request = json.loads(line)
        if request["call"] == "close" and way != "stubborn":
            answer(request, closed=True)
            return
        if way == "segv":
            sys.stderr.write("about to fail\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGSEGV)
        elif way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif way == "exit":
            sys.exit("no such device")
        elif way == "hang":
            time.sleep(600)
        elif way == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            answer(request, ok=True)
            while True:
                time.sleep(600)
        elif way == "flood":
            for _ in range(2000):
                sys.stderr.write("x" * 1000)
            sys.stderr.write("\nlast words\n")
            sys.stderr.flush()
            answer(request, ok=True)
        elif way == "garbage":
            print("loading model ... 100 %", flush=True)
        elif way == "half-hello":
            answer(request, protocol=1)
        elif way == "list":
            print("[1, 2]", flush=True)
        elif way == "wrong-id":
            answer({"id": 99}, ok=True)
        elif way == "two-lines":
            print('{"id": 1, "ok": true}\n{"id": 1}', flush=True)
        elif way == "half-line":
            sys.stdout.write('{"id": 1, "o')
            sys.stdout.flush()
            sys.exit(3)
        elif way == "closes-stdout":
            os.close(1)
            time.sleep(600)
        elif way == "error":
            answer(request, error={"type": "bad_request", "message": "no such thing"})
        elif way == "null-id-error":
            answer({"id": None}, error={"type": "bad_request", "message": "unreadable"})
        elif way == "child":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            answer(request, child=child.pid)
        elif way == "echo":
            answer(request, request=request, env=os.environ.get("FAKE"), cwd=str(Path.cwd()))
        else:
            sys.exit("unknown way " + way)


main()
