"""Zone statuses as objects in an S3 bucket: the store with the fewest parts that can fail."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holdfast._clock import Clock
from holdfast._errors import EngineError, EngineUnavailable, InvalidValue, NotAllowed, SettingsError
from holdfast._types import ZoneState, ZoneStatus
from holdfast.engines.aws.conditional_write import ConditionFailed, write_conditionally
from holdfast.status.stores import STATUS_STORES, StatusStoreType, StoreResources
from holdfast.status.stores.aws import AwsStatusStore
from holdfast.status.stores.rules import ABSENT_VERSION, build_conflict, check_status, expire_status
from holdfast.status.stores.s3_object import (
    MAX_CONTENT_BYTES,
    SUFFIX,
    build_key,
    build_status,
    encode_content,
    parse_content,
    parse_key,
)

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

# S3's answers if a condition does not hold, the object is gone, or a conflicting request is in progress:
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html and conditional-deletes.html there.
_CONDITION_FAILED_CODES = frozenset(
    {"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "404", "409", "412"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredObject:
    status: ZoneStatus
    tag: str
    write: str | None


class S3StatusStore(AwsStatusStore):
    """Zone statuses below one prefix of one bucket. Thread-safe; see `holdfast.StatusStore`.

    Stores only zones that are out or draining: a zone is brought in by deleting its object, and a returning zone is
    stored as in. Do not put other objects below the prefix.
    """

    def __init__(self, session: "AwsSession", bucket: str, clock: Clock, prefix: str = "") -> None:
        super().__init__(f"bucket {bucket}", clock)
        self._session = session
        self._bucket = bucket
        self._prefix = prefix

    def read(self) -> Sequence[ZoneStatus]:
        return [found.status for found in self._read_all()]

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        key = build_key(self._prefix, check_status(status).zone, status.workload)
        found = self._find(key)
        if expected != (ABSENT_VERSION if found is None else found.status.version):
            raise build_conflict(status, expected)
        stored = replace(status, version=self._versions.next(key, expected))
        if not status.state.is_out:
            stored = replace(stored, state=ZoneState.IN, share=None)  # an absent object has no other state
        done = self._put(key, stored, found) if status.state.is_out else found is None or self._remove(key, found)
        if not done:
            raise build_conflict(status, expected)
        return stored

    def expire(self, now: float) -> Sequence[ZoneStatus]:
        changed = []
        for found in self._read_all():
            status = found.status
            key = build_key(self._prefix, status.zone, status.workload)
            if status.has_expired(now) and self._remove(key, found):
                changed.append(expire_status(status, now, self._versions.next(key, status.version)))
        return changed

    @property
    def _client(self) -> Any:
        return self._session.client("s3")

    def _read_all(self) -> list[_StoredObject]:
        with self._translate_errors():
            listed = self._session.paginate("s3", "list_objects_v2", Bucket=self._bucket, Prefix=self._prefix)
            keys = [entry["Key"] for entry in listed if entry["Key"].endswith(SUFFIX)]
        found = [self._find(key) for key in keys if self._is_valid_key(key)]
        return [each for each in found if each is not None]  # an object deleted since the listing means in

    def _is_valid_key(self, key: str) -> bool:
        try:
            parse_key(self._prefix, key)
        except InvalidValue as error:
            self._warn(repr(key), error)
            return False
        return True

    def _find(self, key: str) -> _StoredObject | None:
        try:
            with self._translate_errors():
                reply = self._client.get_object(Bucket=self._bucket, Key=key)
                content = parse_content(_read_body(reply))
        except ConditionFailed:
            return None
        zone, workload = parse_key(self._prefix, key)
        status = build_status(zone, workload, content, reply["LastModified"])
        self._versions.observe(key, status.version)
        return _StoredObject(status=status, tag=reply["ETag"], write=None if content is None else content.write)

    def _put(self, key: str, status: ZoneStatus, found: _StoredObject | None) -> bool:
        write_id = uuid4().hex
        condition = {"IfNoneMatch": "*"} if found is None else {"IfMatch": found.tag}
        request = partial(
            self._client.put_object,
            Bucket=self._bucket,
            Key=key,
            Body=encode_content(status, write_id),
            ContentType="application/json",
            CacheControl="no-store",  # otherwise a health check behind a cache would see outdated zones
            **condition,
        )
        return self._write(request, lambda now: now is not None and now.write == write_id, key)

    def _remove(self, key: str, found: _StoredObject) -> bool:
        request = partial(self._client.delete_object, Bucket=self._bucket, Key=key, IfMatch=found.tag)
        return self._write(request, lambda now: now is None, key)

    def _write(
        self, request: Callable[[], object], is_written: Callable[[_StoredObject | None], bool], key: str
    ) -> bool:
        """Send a conditional write; return whether it took effect, even if the first reply was lost."""

        def send() -> None:
            with self._translate_errors():
                request()

        return write_conditionally(send, partial(self._find, key), is_written, f"{key} of {self._resource}")

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate S3's errors into Holdfast's, with the bucket and what to do."""
        known = self._client.exceptions
        try:
            yield
        except known.NoSuchBucket as error:
            raise SettingsError(
                f"S3 bucket {self._bucket} does not exist: check its name and the account, or create it, as private"
            ) from error
        except NotAllowed as error:
            raise NotAllowed(
                f"{error}. For bucket {self._bucket} allow s3:ListBucket, and GetObject, PutObject and DeleteObject "
                f"for {self._prefix}*"
            ) from error
        except known.ClientError as error:
            if error.response["Error"]["Code"] in _CONDITION_FAILED_CODES:
                raise ConditionFailed(error) from error
            raise EngineError(f"S3 refused a request for bucket {self._bucket}: {error}") from error


def _read_body(reply: Any) -> bytes:
    """Return the content of an object, or nothing if it is too large to be Holdfast's."""
    with reply["Body"] as body:
        if reply["ContentLength"] > MAX_CONTENT_BYTES:
            return b""
        try:
            content: bytes = body.read()
        except Exception as error:
            raise EngineUnavailable(f"AWS s3 GetObject: the reply was incomplete ({error})") from error
        return content


def _open(address: str, resources: StoreResources) -> S3StatusStore:
    bucket, _, prefix = address.partition("/")
    return S3StatusStore(resources.aws(), bucket, resources.clock, prefix=f"{prefix.rstrip('/')}/" if prefix else "")


STATUS_STORES.register("s3")(
    StatusStoreType(
        "s3:BUCKET or s3:BUCKET/PREFIX",
        # https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
        r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[!-~]+)?",
        _open,
        permissions=("s3:DeleteObject", "s3:GetObject", "s3:ListBucket", "s3:PutObject"),
    )
)
