"""As much of curl as the documentation uses, for machines that have none."""

import argparse
import signal
import sys
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

TIMED_OUT = 28  # as curl says it


def main() -> int:
    parser = argparse.ArgumentParser(prog="curl")
    parser.add_argument("-s", "--silent", action="store_true")
    parser.add_argument("-N", "--no-buffer", action="store_true")
    parser.add_argument("-X", "--request")
    parser.add_argument("-H", "--header", action="append", default=[])
    parser.add_argument("-d", "--data")
    parser.add_argument("--data-binary")
    parser.add_argument("-m", "--max-time", type=int, default=0)
    parser.add_argument("url")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _time_out)
    signal.alarm(options.max_time)
    url = urlsplit(options.url)
    headers = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in options.header)}
    data = _data(options)
    method = options.request or ("GET" if data is None else "POST")
    connection = HTTPConnection(str(url.hostname), url.port or 80)
    connection.request(method, url.path or "/", data, headers)
    reply = connection.getresponse()
    while chunk := reply.read1():
        sys.stdout.write(chunk.decode())
        sys.stdout.flush()
    connection.close()
    return 0


def _data(options: argparse.Namespace) -> str | None:
    """What is sent; `@name` is the content of a file, of which `-d` alone drops the ends of lines."""
    data: str | None = options.data if options.data_binary is None else options.data_binary
    if data is None or not data.startswith("@"):
        return data
    content = Path(data[1:]).read_text(encoding="utf-8")
    return content if options.data is None else content.replace("\n", "")


def _time_out(_: int, __: FrameType | None) -> None:
    sys.exit(TIMED_OUT)


if __name__ == "__main__":
    sys.exit(main())
