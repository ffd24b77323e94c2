"""Roles, tokens, and what is kept of them. What every engine must do alike is in the conformance tests."""

import hmac
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import CredentialRefused, InvalidValue
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.server.credentials import Credential, CredentialStore, Role
from holdfast.testing import FakeClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "server.sqlite"


@pytest.fixture
def database(path: Path) -> Iterator[SqliteDatabase]:
    with SqliteDatabase(path) as database:
        yield database


@pytest.fixture
def store(database: SqliteDatabase) -> CredentialStore:
    return CredentialStore(database, FakeClock())


class Compared:
    """Stands in for the comparison in constant time, and notes what was compared."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []
        self._real = hmac.compare_digest

    def __call__(self, one: str, other: str) -> bool:
        self.pairs.append((one, other))
        return self._real(one, other)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Compared:
    compared = Compared()
    monkeypatch.setattr("hmac.compare_digest", compared)
    return compared


@pytest.mark.parametrize(
    ("role", "needed", "enough"),
    [
        (Role.OPERATOR, Role.OPERATOR, True),
        (Role.OPERATOR, Role.VIEWER, True),
        (Role.OPERATOR, Role.TENANT, True),
        (Role.VIEWER, Role.OPERATOR, False),
        (Role.VIEWER, Role.VIEWER, True),
        (Role.VIEWER, Role.TENANT, False),
        (Role.TENANT, Role.OPERATOR, False),
        (Role.TENANT, Role.VIEWER, False),
        (Role.TENANT, Role.TENANT, True),
        (Role.OPERATOR, Role.SENDER, True),
        (Role.SENDER, Role.SENDER, True),
        (Role.SENDER, Role.TRACKER, False),
        (Role.SENDER, Role.VIEWER, False),
        (Role.VIEWER, Role.SENDER, False),
        (Role.TRACKER, Role.TRACKER, True),
        (Role.TRACKER, Role.VIEWER, False),
    ],
)
def test_an_operator_may_do_everything_and_everybody_else_what_their_role_may(
    role: Role, needed: Role, enough: bool
) -> None:
    assert role.includes(needed) is enough


def test_a_token_names_its_credential_and_has_a_secret_of_256_bits(store: CredentialStore) -> None:
    credential, token = store.create(Role.VIEWER)
    assert re.fullmatch(rf"hf_{credential.id}_[0-9a-f]{{64}}", token)
    assert re.fullmatch(r"[0-9a-f]{12}", credential.id)


def test_no_two_tokens_are_alike(store: CredentialStore) -> None:
    tokens = [store.create(Role.VIEWER)[1] for _ in range(20)]
    assert len({token.split("_")[1] for token in tokens}) == 20
    assert len({token.split("_")[2] for token in tokens}) == 20


def test_the_secret_of_a_token_is_nowhere_in_the_database(
    store: CredentialStore, database: SqliteDatabase, path: Path
) -> None:
    tokens = [store.create(Role.OPERATOR)[1], store.create(Role.TENANT, tenant="tenant-1", note="a note")[1]]
    first = SqliteDatabase(path.with_name("first.sqlite"))
    tokens.append(CredentialStore(first, FakeClock()).create_first_operator() or "")
    rows = database.read(lambda transaction: transaction.execute("select * from holdfast_credential"))
    first.close()
    database.close()
    files = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"a note" in files
    for token in tokens:
        secret = token.split("_")[2]
        assert secret not in repr(rows)
        assert secret.encode() not in files
        assert bytes.fromhex(secret) not in files


def test_a_credential_shows_no_secret_and_cannot_be_changed(store: CredentialStore) -> None:
    credential, token = store.create(Role.VIEWER)
    assert token.split("_")[2] not in repr(credential)
    with pytest.raises(FrozenInstanceError):
        credential.role = Role.OPERATOR  # type: ignore[misc]


@pytest.mark.parametrize(
    ("role", "tenant"),
    [(Role.OPERATOR, "tenant-1"), (Role.VIEWER, "tenant-1"), (Role.TENANT, None), (Role.VIEWER, "")],
)
def test_a_tenant_belongs_to_role_tenant_and_to_no_other(
    store: CredentialStore, role: Role, tenant: str | None
) -> None:
    with pytest.raises(InvalidValue, match=f"role {role} (needs a|has no) tenant.*--tenant"):
        store.create(role, tenant=tenant)
    assert store.list() == []


@pytest.mark.parametrize("tenant", ["", "x" * 257, "\udcff", "a\0b"])
def test_a_tenant_that_is_none_is_refused(store: CredentialStore, tenant: str) -> None:
    with pytest.raises(InvalidValue, match="tenant"):
        store.create(Role.TENANT, tenant=tenant)
    assert store.list() == []


@pytest.mark.parametrize("workloads", [["shop"], ["shop", "cart.v2"]])
def test_workloads_belong_to_role_sender_and_to_no_other(store: CredentialStore, workloads: list[str]) -> None:
    for role in Role:
        if role is not Role.SENDER:
            with pytest.raises(InvalidValue, match=f"role {role} has no workloads, found shop.*--workload"):
                store.create(role, tenant="tenant-1" if role is Role.TENANT else None, workloads=workloads)
    with pytest.raises(InvalidValue, match=r"role sender needs a workload.*--workload"):
        store.create(Role.SENDER)
    assert store.list() == []
    credential, _ = store.create(Role.SENDER, workloads=workloads * 2)
    assert credential.workloads == tuple(workloads)


@pytest.mark.parametrize("workload", ["", "a b", "shop\n", "\udcff", "x" * 129])
def test_a_workload_that_is_none_is_refused(store: CredentialStore, workload: str) -> None:
    with pytest.raises(InvalidValue, match="workload"):
        store.create(Role.SENDER, workloads=["shop", workload])
    assert store.list() == []


@pytest.mark.parametrize("note", ["\udcff", "a\0b", "a\nb", "\x1b[31m", "\x9b", "x" * 201, "a\u202eb", "a\u2066b"])
def test_a_note_that_no_database_could_keep_or_no_terminal_show_is_refused(store: CredentialStore, note: str) -> None:
    with pytest.raises(InvalidValue, match="expected"):
        store.create(Role.VIEWER, note=note)
    assert store.list() == []


def test_a_good_token_is_compared_in_constant_time(store: CredentialStore, compared: Compared) -> None:
    credential, token = store.create(Role.VIEWER)
    assert store.verify(token) == credential
    assert len(compared.pairs) == 1


@pytest.mark.parametrize("token", ["hf_000000000000_", "hf_000000000000_" + "0" * 64, "", "nonsense", "hf__", "hf_é_é"])
def test_an_unknown_id_takes_the_same_comparison_as_a_wrong_secret(
    store: CredentialStore, compared: Compared, token: str
) -> None:
    credential, _ = store.create(Role.VIEWER)
    for attempt in (token, f"hf_{credential.id}_{'0' * 64}"):
        with pytest.raises(CredentialRefused):
            store.verify(attempt)
    (unknown, nobody), (wrong, stored) = compared.pairs
    assert {len(digest) for digest in (unknown, nobody, wrong, stored)} == {64}
    assert unknown != nobody


def test_no_secret_fits_an_unknown_id_not_even_one_that_compares_equal(
    store: CredentialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hmac.compare_digest", lambda *_: True)
    with pytest.raises(CredentialRefused, match="unknown credential"):
        store.verify("hf_000000000000_" + "0" * 64)


@settings(deadline=None, max_examples=50)
@given(st.text(st.characters(), max_size=100))
def test_no_text_that_was_not_handed_out_is_let_in(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    with SqliteDatabase(tmp_path_factory.getbasetemp() / "property.sqlite") as database:
        store = CredentialStore(database, FakeClock())
        for attempt in (text, f"hf_{text}", f"hf_{'0' * 12}_{text}"):
            with pytest.raises(CredentialRefused, match="unknown credential"):
                store.verify(attempt)


FIRST = """
    import sys
    from pathlib import Path
    from holdfast._clock import SystemClock
    from holdfast.engines.sqlite import SqliteDatabase
    from holdfast.server.credentials import CredentialStore

    sys.stdin.readline()
    with SqliteDatabase(sys.argv[1], timeout=30) as database:
        print(CredentialStore(database, SystemClock()).create_first_operator())
"""


def test_of_several_processes_that_start_at_once_one_makes_the_first_operator(
    store: CredentialStore, path: Path
) -> None:
    command = [sys.executable, "-c", textwrap.dedent(FIRST), str(path)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    printed = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    tokens = [text for text in printed if text != "None"]
    assert len(tokens) == 1
    assert store.verify(tokens[0]).role is Role.OPERATOR
    assert len(store.list()) == 1


def test_a_credential_is_equal_to_what_is_listed_of_it(store: CredentialStore) -> None:
    clock = FakeClock()
    expected = Credential(id="x", role=Role.TENANT, tenant="tenant-1", note="n", created_at=clock.wall())
    credential, _ = store.create(Role.TENANT, tenant="tenant-1", note="n")
    assert store.list() == [credential]
    assert (credential.role, credential.tenant, credential.note, credential.created_at, credential.revoked_at) == (
        expected.role,
        expected.tenant,
        expected.note,
        expected.created_at,
        None,
    )
