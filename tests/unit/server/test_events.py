"""What a stream of events looks like to whoever listens."""

import asyncio

import pytest

from holdfast.server.push import Hub
from holdfast.server.routes import events


def test_a_stream_says_hello_then_what_happens_then_that_it_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> list[str]:
        hub = Hub()
        stream = events._messages(hub)
        written = [(await anext(stream)).encode().decode()]
        hub.publish("zone", '{"zone": "use1-az1"}')
        written.append((await anext(stream)).encode().decode())
        written.append((await anext(stream)).encode().decode())
        hub.close()
        written += [message.encode().decode() async for message in stream]
        return written

    monkeypatch.setattr(events, "_PING_SECONDS", 0.001)
    hello, event, quiet = asyncio.run(story())
    assert hello.splitlines() == ["event: hello", "data: {}", ""]
    assert event.splitlines() == ["id: 1", "event: zone", 'data: {"zone": "use1-az1"}', ""]
    assert quiet.splitlines() == [": still here", ""]  # a comment: no browser makes an event of it
