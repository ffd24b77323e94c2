"""Credentials are kept alike in every engine."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier
from typing import TypeAlias

import psycopg
import pytest

from holdfast import Conflict, CredentialRefused, NotFound
from holdfast.engines import Database
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.server.credentials import MIGRATIONS, SUBSYSTEM, Credential, CredentialStore, Role
from holdfast.testing import FakeClock

Open: TypeAlias = Callable[[], Database]

AT_ONCE = 4


def ascii_start(text: str) -> str:
    return ascii(text[:13])


class CredentialStoreConformance:
    """What a credential store promises, whatever it is kept in."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def store(self, open_database: Open, clock: FakeClock) -> CredentialStore:
        return CredentialStore(open_database(), clock)

    def test_a_token_is_known_by_its_credential(self, store: CredentialStore) -> None:
        for role, tenant, workloads in (
            (Role.OPERATOR, None, ()),
            (Role.VIEWER, None, ()),
            (Role.TENANT, "tenant-1", ()),
            (Role.SENDER, None, ("shop", "cart")),
            (Role.TRACKER, None, ()),
        ):
            credential, token = store.create(role, tenant=tenant, workloads=workloads, note="for a test")
            assert store.verify(token) == credential
            assert (credential.role, credential.tenant, credential.note) == (role, tenant, "for a test")
            assert credential.workloads == workloads

    def test_credentials_of_the_previous_release_have_no_workloads(self, open_database: Open, clock: FakeClock) -> None:
        database = open_database()
        database.migrate(SUBSYSTEM, MIGRATIONS[:1])
        insert = "insert into holdfast_credential (id, role, note, digest, created_at) values ($1, $2, $3, $4, $5)"
        values = ("0" * 12, "operator", "old", "0" * 64, 1.0)
        database.write(lambda transaction: transaction.execute(insert, values))
        [old] = CredentialStore(database, clock).list()
        assert (old.role, old.note, old.workloads) == (Role.OPERATOR, "old", ())

    def test_what_is_not_revoked_is_valid(self, store: CredentialStore, open_database: Open, clock: FakeClock) -> None:
        one, other = (store.create(Role.VIEWER)[0].id for _ in range(2))
        assert store.list_valid_ids() == {one, other}
        CredentialStore(open_database(), clock).revoke(one)
        assert store.list_valid_ids() == {other}

    def test_the_last_operator_is_kept_where_that_is_asked_for(self, store: CredentialStore) -> None:
        first, second = (store.create(Role.OPERATOR)[0].id for _ in range(2))
        viewer = store.create(Role.VIEWER)[0].id
        for revoked in (first, viewer, first):
            assert store.revoke(revoked, keep_operator=True).revoked_at is not None
        with pytest.raises(Conflict, match=f"`holdfast credential revoke {second}` on the server's machine"):
            store.revoke(second, keep_operator=True)
        assert store.has_operator()
        assert store.revoke(second).revoked_at is not None
        assert store.revoke(second, keep_operator=True).revoked_at is not None, "again, which changes nothing"

    def test_operators_who_revoke_each_other_at_once_leave_one(
        self, store: CredentialStore, open_database: Open, clock: FakeClock
    ) -> None:
        ids = [store.create(Role.OPERATOR)[0].id for _ in range(AT_ONCE)]
        stores = [CredentialStore(open_database(), clock) for _ in range(AT_ONCE)]
        barrier = Barrier(AT_ONCE)

        def revoke(store: CredentialStore, credential_id: str) -> int:
            barrier.wait(30)
            try:
                store.revoke(credential_id, keep_operator=True)
            except Conflict:
                return 0
            return 1

        with ThreadPoolExecutor(AT_ONCE) as threads:
            assert sum(threads.map(revoke, stores, ids)) == AT_ONCE - 1
        assert store.has_operator()

    def test_credentials_are_kept_when_the_database_is_opened_again(
        self, store: CredentialStore, open_database: Open, clock: FakeClock
    ) -> None:
        credential, token = store.create(Role.VIEWER)
        again = CredentialStore(open_database(), clock)
        assert again.list() == [credential]
        assert again.verify(token) == credential

    def test_all_are_listed_oldest_first_with_the_revoked_ones(self, store: CredentialStore, clock: FakeClock) -> None:
        made: list[Credential] = []
        for note in ("one", "two", "three"):
            made.append(store.create(Role.VIEWER, note=note)[0])
            clock.advance(1)
        revoked = store.revoke(made[1].id)
        assert store.list() == [made[0], revoked, made[2]]
        assert [credential.created_at for credential in store.list()] == sorted(
            credential.created_at for credential in made
        )

    def test_text_comes_back_as_it_went_in(self, store: CredentialStore) -> None:
        note = "Ä\N{GRINNING FACE} '\"\\ $1 %s [bold]"
        tenant = "t" * 256
        credential, token = store.create(Role.TENANT, tenant=tenant, note=note)
        assert store.list() == [credential]
        assert (store.verify(token).note, store.verify(token).tenant) == (note, tenant)
        assert type(credential.tenant) is str  # nothing that an encoder would not know

    def test_a_revoked_token_is_refused_by_its_name(self, store: CredentialStore, clock: FakeClock) -> None:
        credential, token = store.create(Role.OPERATOR)
        clock.advance(5)
        revoked = store.revoke(credential.id)
        assert revoked.revoked_at == clock.wall()
        with pytest.raises(CredentialRefused, match=f"credential {credential.id} has been revoked"):
            store.verify(token)

    def test_a_wrong_secret_for_a_revoked_token_is_not_told_that_it_was_revoked(self, store: CredentialStore) -> None:
        credential, _ = store.create(Role.OPERATOR)
        store.revoke(credential.id)
        with pytest.raises(CredentialRefused, match="unknown credential"):
            store.verify(f"hf_{credential.id}_{'0' * 64}")

    def test_revoking_again_changes_nothing(self, store: CredentialStore, clock: FakeClock) -> None:
        credential, _ = store.create(Role.VIEWER)
        once = store.revoke(credential.id)
        clock.advance(60)
        assert store.revoke(credential.id) == once
        assert store.list() == [once]

    @pytest.mark.parametrize(
        "unknown", ["000000000000", "", "x", "é", "a\0b", "\udcff", "0" * 100_000], ids=ascii_start
    )
    def test_what_does_not_exist_cannot_be_revoked(self, store: CredentialStore, unknown: str) -> None:
        credential, _ = store.create(Role.VIEWER)
        with pytest.raises(NotFound, match="there is no credential"):
            store.revoke(unknown)
        assert store.list() == [credential]

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda _: "",
            lambda _: "nonsense",
            lambda _: "hf",
            lambda _: "hf_",
            lambda _: "hf__",
            lambda token: token[:-1],
            lambda token: token[:-1] + ("0" if token[-1] != "0" else "1"),
            lambda token: token + "0",
            lambda token: token + "_",
            lambda token: token.upper(),
            lambda token: " " + token,
            lambda token: "xx" + token[2:],
            lambda token: "hf_000000000000_" + token.split("_")[2],
            lambda token: "hf_" + token.split("_")[1] + "_",
            lambda token: "hf_" + token.split("_")[1],
            lambda token: token.split("_")[2],
            lambda token: token + "x" * 1_000_000,
            lambda token: "hf_" + "x" * 1_000_000,
            lambda token: token + "é",
            lambda token: "hf_é_" + token.split("_")[2],
            lambda token: token + "\ud800",
            lambda token: "hf_\ud800_" + token.split("_")[2],
            lambda token: "hf_a\0b_" + token.split("_")[2],
        ],
        ids=lambda _: "",
    )
    def test_every_other_token_is_refused_in_the_same_words(
        self, store: CredentialStore, spoil: Callable[[str], str]
    ) -> None:
        _, token = store.create(Role.OPERATOR)
        with pytest.raises(CredentialRefused) as caught:
            store.verify(spoil(token))
        assert str(caught.value) == (
            "unknown credential: send one that `holdfast credential create` printed for the store of this server"
        )

    def test_the_first_operator_is_made_once(self, store: CredentialStore) -> None:
        assert not store.has_operator()
        token = store.create_first_operator()
        assert token is not None
        assert store.verify(token).role is Role.OPERATOR
        assert store.has_operator()
        assert store.create_first_operator() is None
        assert len(store.list()) == 1

    def test_others_than_operators_do_not_keep_the_first_operator_from_being_made(self, store: CredentialStore) -> None:
        store.create(Role.VIEWER)
        store.create(Role.TENANT, tenant="tenant-1")
        revoked, _ = store.create(Role.OPERATOR)
        store.revoke(revoked.id)
        assert not store.has_operator()
        assert store.create_first_operator() is not None

    def test_of_several_that_start_at_once_one_makes_the_first_operator(
        self, store: CredentialStore, open_database: Open, clock: FakeClock
    ) -> None:
        stores = [CredentialStore(open_database(), clock) for _ in range(AT_ONCE)]
        barrier = Barrier(AT_ONCE * 2)

        def start(store: CredentialStore) -> str | None:
            barrier.wait(30)
            return store.create_first_operator()

        with ThreadPoolExecutor(AT_ONCE * 2) as threads:
            # Two threads for each, as one store is shared by threads, too.
            tokens = [token for token in threads.map(start, stores * 2) if token is not None]
        assert len(tokens) == 1
        assert len(store.list()) == 1
        assert store.verify(tokens[0]).role is Role.OPERATOR


class TestSqliteCredentialStore(CredentialStoreConformance):
    @pytest.fixture
    def open_database(self, tmp_path: Path) -> Iterator[Open]:
        with ExitStack() as opened:
            yield lambda: opened.enter_context(SqliteDatabase(tmp_path / "server.sqlite", timeout=30))


class TestPostgresCredentialStore(CredentialStoreConformance):
    @pytest.fixture
    def open_database(self, postgres_url: str) -> Iterator[Open]:
        schema = f"credentials_{uuid.uuid4().hex}"
        options = PostgresOptions(url=f"{postgres_url}?options=-csearch_path%3D{schema}")
        with psycopg.connect(postgres_url, autocommit=True) as connection, ExitStack() as opened:
            connection.execute(f"create schema {schema}".encode())
            yield lambda: opened.enter_context(PostgresDatabase(options))
            opened.close()
            connection.execute(f"drop schema {schema} cascade".encode())
