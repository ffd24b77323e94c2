"""`holdfast queue` on PostgreSQL: by its address, and as the database of the settings."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast.queue import Limits, OutgoingMessage, QueuePolicy, open_backend
from holdfast.queue.backend import Bury, LeaseRequest, QueueChange, Settlement
from tests.integration.server.process import holdfast


@pytest.fixture
def queue(postgres_url: str) -> str:
    """A queue of this test alone."""
    name = f"mail-{uuid4()}"
    with open_backend(postgres_url) as backend:
        backend.change(name, QueueChange(), create=True)
    return name


def test_messages_are_sent_seen_put_back_and_swept(tmp_path: Path, postgres_url: str, queue: str) -> None:
    def result(*words: str) -> Any:
        finished = holdfast("queue", *words, "--backend", postgres_url, "--json", directory=tmp_path)
        assert (finished.returncode, finished.stderr) == (0, "")
        return json.loads(finished.stdout)

    (tmp_path / "lines").write_text("a\nb\nc\n")
    assert result("send", queue, "lines", "--tenant", "t", "--lines") == {
        "queue": queue,
        "sent": 3,
        "duplicates": 0,
        "spilled": 0,
    }
    assert queue in result("list")
    with open_backend(postgres_url) as backend:
        held = backend.lease(LeaseRequest(queue=queue, count=2, lease=60.0)).deliveries
        backend.settle([Settlement(one.receipt, Bury("KeyError: 'x'")) for one in held])
    [depth] = result("depth", queue)
    assert (depth["ready"], depth["dead"]) == (1, 2)
    assert result("redrive", queue, "--reason", "KeyError", "--rate", "1000")["count"] == 2
    assert result("redrive", queue, "--all")["count"] == 0
    assert result("limits", queue, "t", "--spill-rate", "5")["limits"]["spill_rate"] == 5.0
    assert result("sweep", queue, "--before", "1h")["dropped"] == 0


def test_a_database_without_queues_gets_no_tables_by_looking(tmp_path: Path, postgres_url: str) -> None:
    schema = f"empty_{uuid4().hex}"
    at = f"{postgres_url}{'&' if '?' in postgres_url else '?'}options=-csearch_path%3D{schema}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}")
        (tmp_path / "holdfast.toml").write_text(f'[database]\nurl = "{at}"\n')
        for words in (["list", "--backend", at], ["depth", "--backend", at], ["list"]):
            looked = holdfast("queue", *words, "--json", directory=tmp_path)
            assert looked.returncode == 1
            told = json.loads(looked.stderr)
            assert (told["error"], told["detail"][:23]) == ("not-found", "there are no queues in ")
        found = connection.execute("select count(*) from pg_tables where schemaname = %s", (schema,)).fetchone()
        assert found == (0,)
        connection.execute(f"drop schema {schema} cascade")


def test_queues_of_the_settings_are_made_in_the_database_of_the_settings(tmp_path: Path, postgres_url: str) -> None:
    name = f"mail-{uuid4()}"
    (tmp_path / "holdfast.toml").write_text(
        f'[database]\nurl = "{postgres_url}"\n[[queue]]\nname = "{name}"\nlanes = 8\n'
        '[[queue.tenant]]\nname = "t"\nlimits = { spill_rate = 5 }\n'
    )
    (tmp_path / "body").write_text("x")
    sent = holdfast("queue", "send", name, "body", "--tenant", "t", directory=tmp_path)
    assert (sent.returncode, sent.stderr) == (0, "")
    with open_backend(postgres_url) as backend:
        look = backend.inspect(name, tenants=["t"])
        assert look.policy == QueuePolicy(lanes=8)
        assert [(one.ready, one.limits) for one in look.tenants] == [(1, Limits(spill_rate=5.0))]
        backend.send(name, [OutgoingMessage(tenant="t", body=b"x")])
