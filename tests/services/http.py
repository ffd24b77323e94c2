"""The least that shows a web service to be up."""

from http.client import HTTPConnection


def get(port: int, path: str) -> bytes:
    """The body of a good answer from loopback; past any proxy, and raises on everything else."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        body = reply.read()
    finally:
        connection.close()
    if reply.status != 200:
        raise ConnectionError(f"{path} answered {reply.status}")
    return body
