"""Credentials of the server: roles, tokens, and the store of their digests.

A token is `hf_<id>_<secret>`. Its secret has 256 random bits, so a single SHA-256 protects it: slow password hashes
are needed only for secrets that can be guessed. Only the digest is stored; the token is shown once.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast._clock import Clock
from holdfast._errors import Conflict, CredentialRefused, InvalidValue, NotFound
from holdfast._names import CONTROL_CHARACTERS, check_workload_name
from holdfast._types import Tenant
from holdfast.engines import Database, Migration, Row, Transaction

SUBSYSTEM = "server"

MIGRATIONS = (
    Migration(
        1,
        "credentials",
        (
            """create table holdfast_credential (
                id text primary key,
                role text not null,
                tenant text,
                note text not null,
                digest text not null,
                created_at double precision not null,
                revoked_at double precision
            )""",
        ),
    ),
    Migration(2, "workloads of senders", ("alter table holdfast_credential add column workloads text",)),
)

_COLUMNS = "id, role, tenant, workloads, note, created_at, revoked_at"
_LIST = f"select {_COLUMNS} from holdfast_credential order by created_at, id"  # noqa: S608 - our own names
_FIND = f"select {_COLUMNS}, digest from holdfast_credential where id = $1"  # noqa: S608
_LIST_VALID = "select id from holdfast_credential where revoked_at is null"
_INSERT = (
    "insert into holdfast_credential (id, role, tenant, workloads, note, created_at, digest) "
    "values ($1, $2, $3, $4, $5, $6, $7)"
)
_REVOKE = f"update holdfast_credential set revoked_at = coalesce(revoked_at, $1) where id = $2 returning {_COLUMNS}"  # noqa: S608
_COUNT_OPERATORS = "select count(*) from holdfast_credential where role = 'operator' and revoked_at is null"

# Counting and then writing is atomic in SQLite, which has one writer. PostgreSQL needs a lock.
_LOCK_STATEMENTS = {"postgres": "lock table holdfast_credential in share row exclusive mode"}

_PREFIX = "hf"
_TOKEN = re.compile(r"hf_([0-9a-f]{12})_[0-9a-f]{64}")
MAX_NOTE_LENGTH = 200
NOTE_PATTERN = rf"^[^{CONTROL_CHARACTERS}]*$"
"""No control characters: notes are shown on operators' terminals."""
_ID = re.compile("[0-9a-f]{12}")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_DUMMY_DIGEST = hashlib.sha256(secrets.token_bytes(32)).hexdigest()
"""The digest to compare with if the id is unknown, so that refusing it takes as long as for a wrong secret."""


def mask_tokens(text: str) -> str:
    """Return the text with the secret of every token masked, for logs and responses."""
    return _TOKEN.sub(r"hf_\1_****", text)


class Role(StrEnum):
    """What a credential may do: operators everything, viewers read all but credentials, tenants their own work.

    Senders send the telemetry of their workloads, and trackers read zone statuses; neither may do anything else.
    """

    OPERATOR = "operator"
    VIEWER = "viewer"
    TENANT = "tenant"
    SENDER = "sender"
    TRACKER = "tracker"

    def includes(self, needed: "Role") -> bool:
        """Return whether this role may do everything that `needed` may."""
        return self is Role.OPERATOR or self is needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A credential, without its secret."""

    id: str
    role: Role
    tenant: str | None
    workloads: tuple[str, ...] = ()
    """Whose telemetry a sender may send."""
    note: str
    created_at: float
    revoked_at: float | None = None


class CredentialStore:
    """A store that creates, lists, revokes and verifies credentials. Thread-safe."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        database.migrate(SUBSYSTEM, MIGRATIONS)

    def create(
        self, role: Role, *, tenant: str | None = None, workloads: Sequence[str] = (), note: str = ""
    ) -> tuple[Credential, str]:
        """Return a new credential and its token, which is not stored.

        Only role tenant has a `tenant`, and needs it. Only role sender has `workloads`, and needs at least one.
        """
        credential, token, digest = self._new_credential(role, tenant, workloads, note)
        self._database.write(lambda transaction: _insert(transaction, credential, digest))
        return credential, token

    def create_first_operator(self) -> str | None:
        """Create an operator if there is none, and return its token, or else None. Several processes may call it."""
        credential, token, digest = self._new_credential(Role.OPERATOR, None, (), "created at the first start")

        def insert_if_first(transaction: Transaction) -> bool:
            self._lock(transaction)
            if _has_operator(transaction):
                return False
            _insert(transaction, credential, digest)
            return True

        return token if self._database.write(insert_if_first) else None

    def has_operator(self) -> bool:
        """Return whether there is an operator that is not revoked."""
        return self._database.read(_has_operator)

    def list(self) -> list[Credential]:
        """Return all credentials, including revoked ones, oldest first."""
        return [_credential(row) for row in self._database.read(lambda transaction: transaction.execute(_LIST))]

    def list_valid_ids(self) -> frozenset[str]:
        """Return the ids of all credentials that are not revoked."""
        return frozenset(row[0] for row in self._database.read(lambda transaction: transaction.execute(_LIST_VALID)))

    def revoke(self, credential_id: str, *, keep_operator: bool = False) -> Credential:
        """Revoke the credential with this id or token, and return it. May be repeated. Raise NotFound.

        With `keep_operator`, raise Conflict if no operator would be left.
        """
        now = self._clock.wall()
        if token := _TOKEN.fullmatch(credential_id):
            credential_id = token[1]

        def run(transaction: Transaction) -> list[Row]:
            if keep_operator:
                self._lock(transaction)
            had_operator = keep_operator and _has_operator(transaction)
            rows = transaction.execute(_REVOKE, (now, credential_id))
            if had_operator and not _has_operator(transaction):
                raise Conflict(
                    f"credential {credential_id} is the last operator's: create another one first, "
                    f"or run `holdfast credential revoke {credential_id}` on the server's machine"
                )
            return rows

        # A database may not accept other text.
        rows = self._database.write(run) if _ID.fullmatch(credential_id) else []
        if not rows:
            raise NotFound(f"there is no credential {credential_id!r}: `holdfast credential list` shows them")
        return _credential(rows[0])

    def verify(self, token: str) -> Credential:
        """Return the credential of a token. Raise CredentialRefused, without saying which part is wrong."""
        prefix, _, rest = token.partition("_")
        credential_id, _, secret = rest.partition("_")
        rows: list[Row] = []
        if _ID.fullmatch(credential_id):
            rows = self._database.read(lambda transaction: transaction.execute(_FIND, (credential_id,)))
        *columns, digest = rows[0] if rows else (_DUMMY_DIGEST,)
        is_right = hmac.compare_digest(_digest(secret), digest)
        if not (is_right and rows and prefix == _PREFIX):
            raise CredentialRefused(
                "unknown credential: send one that `holdfast credential create` printed for the store of this server"
            )
        credential = _credential(tuple(columns))
        if credential.revoked_at is not None:
            raise CredentialRefused(f"credential {credential.id} has been revoked: ask an operator for a new one")
        return credential

    def _lock(self, transaction: Transaction) -> None:
        if lock := _LOCK_STATEMENTS.get(self._database.dialect):
            transaction.execute(lock)

    def _new_credential(
        self, role: Role, tenant: str | None, workloads: Sequence[str], note: str
    ) -> tuple[Credential, str, str]:
        if role is Role.TENANT and tenant is None:
            raise InvalidValue("role tenant needs a tenant: name it with --tenant")
        if role is not Role.TENANT and tenant is not None:
            raise InvalidValue(f"role {role} has no tenant, found tenant {tenant!r}: leave out --tenant")
        if role is Role.SENDER and not workloads:
            raise InvalidValue("role sender needs a workload: name each one with --workload")
        if role is not Role.SENDER and workloads:
            raise InvalidValue(f"role {role} has no workloads, found {', '.join(workloads)}: leave out --workload")
        if len(note) > MAX_NOTE_LENGTH or not re.search(NOTE_PATTERN, note):
            raise InvalidValue(
                f"note {note[:MAX_NOTE_LENGTH]!r}: expected up to {MAX_NOTE_LENGTH} characters, no control characters"
            )
        if _UNSTORABLE.search(note + (tenant or "")):
            raise InvalidValue(f"note {note!r}, tenant {tenant!r}: expected Unicode text without NUL")
        credential_id, secret = secrets.token_hex(6), secrets.token_hex(32)
        owner = None if tenant is None else str(Tenant(tenant))  # check the name, but store plain text
        credential = Credential(
            id=credential_id,
            role=role,
            tenant=owner,
            workloads=tuple(dict.fromkeys(map(check_workload_name, workloads))),
            note=note,
            created_at=self._clock.wall(),
        )
        return credential, f"{_PREFIX}_{credential_id}_{secret}", _digest(secret)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _credential(row: Row) -> Credential:
    fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
    workloads = tuple((fields["workloads"] or "").split())
    return Credential(**fields | {"role": Role(fields["role"]), "workloads": workloads})


def _insert(transaction: Transaction, credential: Credential, digest: str) -> None:
    workloads = " ".join(credential.workloads) or None  # no name contains a space
    rest = (credential.note, credential.created_at, digest)
    transaction.execute(_INSERT, (credential.id, str(credential.role), credential.tenant, workloads, *rest))


def _has_operator(transaction: Transaction) -> bool:
    ((count,),) = transaction.execute(_COUNT_OPERATORS)
    return bool(count)
