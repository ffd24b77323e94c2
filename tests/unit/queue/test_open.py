"""Backends are found by the scheme of an address."""

from pathlib import Path

import pytest

from holdfast import InvalidValue, NotFound, SettingsError
from holdfast.queue import Queue, Worker, open_backend
from holdfast.queue.backend import QueueChange
from holdfast.queue.backends.memory import MemoryBackend
from holdfast.queue.backends.sql import SqlBackend
from holdfast.queue.open import BACKENDS, get_backend_kind
from tests.unit.queue.toy import installed


def test_the_built_in_ones_are_there() -> None:
    assert BACKENDS.names() == ("memory", "postgres", "postgresql", "sqlite")


def test_each_is_opened_by_its_address(tmp_path: Path) -> None:
    with open_backend("memory:") as memory, open_backend(f"sqlite:{tmp_path / 'work.sqlite'}") as sqlite:
        assert isinstance(memory, MemoryBackend)
        assert isinstance(sqlite, SqlBackend)


@pytest.mark.parametrize("url", ["mysql://user:secret@host/name", "work.sqlite", "", "memory"])
def test_an_unknown_scheme_is_told_with_those_that_are_known_and_without_a_password(url: str) -> None:
    with pytest.raises(InvalidValue, match="expected one of memory:, postgres:, postgresql:, sqlite:") as told:
        open_backend(url)
    assert "secret" not in str(told.value)


def test_one_from_outside_is_used_as_the_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = installed(monkeypatch)
    handled: list[str] = []
    mail = Queue("mail", "toy:box?secret")

    @mail.job
    def welcome(address: str) -> None:
        handled.append(address)
        worker.request_stop()

    welcome.to("tenant").send("a@example.com")
    worker = Worker(mail)
    worker.run()
    assert (handled, mail.address, list(backend.list_queues())) == (["a@example.com"], "toy:box", ["mail"])


def test_one_that_cannot_be_loaded_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(name: str) -> None:
        raise SettingsError(f"the queue backend {name!r} cannot be loaded from broken:kind")

    monkeypatch.setattr(BACKENDS, "get", get)
    monkeypatch.setattr(BACKENDS, "names", lambda: ("broken",))
    with pytest.raises(SettingsError, match="cannot be loaded"):
        get_backend_kind("broken:x")


class TestRequireQueues:
    """To ask whether there are queues makes none."""

    def test_a_file_that_is_not_there_is_not_made(self, tmp_path: Path) -> None:
        url = f"sqlite:{tmp_path / 'work.sqlite'}"
        with pytest.raises(NotFound, match="there is no file"):
            get_backend_kind(url).require_queues(url, timeout=1.0)
        assert not list(tmp_path.iterdir())

    def test_queues_in_a_file_are_found(self, tmp_path: Path) -> None:
        url = f"sqlite:{tmp_path / 'work.sqlite'}"
        with open_backend(url) as backend:
            backend.change("mail", QueueChange(), create=True)
        get_backend_kind(url).require_queues(url, timeout=1.0)

    def test_nobody_else_has_what_is_in_memory(self) -> None:
        with pytest.raises(NotFound, match="memory"):
            get_backend_kind("memory:").require_queues("memory:", timeout=1.0)
