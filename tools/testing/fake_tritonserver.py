"""Stands in for tritonserver where a test needs it to misbehave.

What it does is said by the environment variable FAKE_TRITONSERVER, a comma-separated list of:
  die         print a line and end with code 3
  never-ready answer "not ready" for ever
  stubborn    ignore SIGTERM and SIGINT
"""

import http.server
import os
import signal
import sys


def main() -> None:
    """Serves /v2/health/ready and the repository's index until a signal comes."""
    behaviour = set(os.environ.get("FAKE_TRITONSERVER", "").split(","))
    flags = dict(argument.lstrip("-").split("=", 1) for argument in sys.argv[1:])
    print("fake server with", " ".join(sys.argv[1:]), flush=True)
    if "die" in behaviour:
        print("E1129 failed to load 'm': tensor x is missing", file=sys.stderr, flush=True)
        sys.exit(3)
    if "stubborn" in behaviour:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    else:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: leave(number))
    ready = 400 if "never-ready" in behaviour else 200

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(ready)
            self.end_headers()

        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'[{"name": "m", "version": "1", "state": "READY"}, {"name": "x"}]')

        def log_message(self, *_: object) -> None:
            pass

    address = (flags["http-address"], int(flags["http-port"]))
    http.server.HTTPServer(address, Handler).serve_forever()


def leave(number: int) -> None:
    """Ends as a server does that was asked to."""
    print("fake server got signal", number, flush=True)
    sys.exit(0)


if __name__ == "__main__":
    main()
