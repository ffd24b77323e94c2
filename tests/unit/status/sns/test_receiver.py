"""A host believes what SNS signed for its topic, once, in order, and nothing else."""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from holdfast import EngineUnavailable, HoldfastError, InvalidValue, NotAllowed, Zone, ZoneState, ZoneStatus
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.status.sns import SnsReceiver, subscribe
from holdfast.testing import FakeClock
from tests.unit.status.sns.signer import CERTIFICATE_URL, HOST, TOPIC, Signer, at, body, certificate

NOW = 1_750_000_000.0
DAY = 86_400.0
SIGNER = Signer(begin=NOW - DAY, end=NOW + DAY)  # a key takes a tenth of a second
OTHER = Signer(begin=NOW - DAY, end=NOW + DAY)


def status(version: int = 1, *, zone: str = "az1", workload: str | None = None, since: float = NOW) -> ZoneStatus:
    return ZoneStatus(
        zone=Zone(zone), workload=workload, state=ZoneState.OUT, since=since, by="test", reason="test", version=version
    )


def text(known: ZoneStatus) -> str:
    return msgspec.json.encode(known).decode()


class Host:
    """A receiver, and what it reported."""

    def __init__(self, fetch: Callable[[str], bytes] = SIGNER.fetch, **options: Any) -> None:
        self.clock = FakeClock(wall=NOW)
        self.reported: list[ZoneStatus] = []
        self.receiver = SnsReceiver(TOPIC, self.report, clock=self.clock, fetch=fetch, **options)

    def report(self, known: ZoneStatus) -> None:
        self.reported.append(known)

    def take(self, envelope: dict[str, Any]) -> None:
        self.receiver.receive(body(envelope))

    def told(self, known: ZoneStatus) -> None:
        self.take(SIGNER.notification(text(known), self.clock.wall()))


def test_a_status_that_was_published_is_reported() -> None:
    host = Host()
    known = ZoneStatus(
        zone=Zone("az1"),
        workload="shop",
        state=ZoneState.OUT,
        since=NOW,
        by="é",
        reason="ü\n",
        expires=NOW + 9,
        version=3,
    )
    host.take(SIGNER.notification(text(known), NOW, MessageAttributes={"out": {"Type": "String", "Value": "false"}}))
    host.take(SIGNER.notification(text(status()), NOW, Subject="zone az1"))
    assert host.reported == [known, status()]


def test_sha1_is_believed_only_where_it_is_allowed() -> None:
    envelope = SIGNER.notification(text(status()), NOW, version="1")
    with pytest.raises(NotAllowed, match="SHA-1"):
        Host().take(envelope)
    host = Host(allow_sha1=True)
    host.take(envelope)
    host.take(SIGNER.notification(text(status(2)), NOW, version="2"))
    assert host.reported == [status(), status(2)]


def test_a_signature_is_not_taken_for_one_of_another_version() -> None:
    host = Host(allow_sha1=True)
    for version, other in (("1", "2"), ("2", "1")):
        with pytest.raises(NotAllowed, match="signature"):
            host.take({**SIGNER.notification(text(status()), NOW, version=version), "SignatureVersion": other})
    assert not host.reported


def test_a_message_that_somebody_else_signed_is_refused() -> None:
    host = Host()
    with pytest.raises(NotAllowed, match="signature"):
        host.take(OTHER.notification(text(status()), NOW))
    assert not host.reported


SIGNED_NOTIFICATION = SIGNER.notification(text(status()), NOW, Subject="zone")
SIGNED_CONFIRMATION = SIGNER.confirmation(NOW)


@given(
    data=st.data(),
    envelope=st.sampled_from([SIGNED_NOTIFICATION, SIGNED_CONFIRMATION]),
    version=st.sampled_from(["1", "2"]),
)
def test_any_change_of_what_was_signed_is_refused(data: st.DataObject, envelope: dict[str, Any], version: str) -> None:
    envelope = SIGNER.sign(envelope, version)
    signed = sorted(envelope.keys() - {"SigningCertURL"})
    name = data.draw(st.sampled_from(signed))
    value = envelope[name]
    place = data.draw(st.integers(0, len(value)))
    changed = data.draw(
        st.one_of(
            st.text(max_size=20),
            st.characters(codec="utf-8").map(lambda character: value[:place] + character + value[place:]),
            st.characters(codec="utf-8").map(lambda character: value[:place] + character + value[place + 1 :]),
            st.just(value[:place] + value[place + 1 :]),
            st.just(None),
            # What still looks right.
            st.just(at(NOW + 1)),
            st.sampled_from(["Notification", "SubscriptionConfirmation", "UnsubscribeConfirmation", "1", "2"]),
        ).filter(lambda changed: changed != value)
    )
    fetched: list[str] = []

    def fetch(url: str) -> bytes:
        fetched.append(url)
        return SIGNER.certificate

    host = Host(fetch, allow_sha1=True)
    with pytest.raises((NotAllowed, InvalidValue)):
        host.take({**envelope, name: changed})
    assert not host.reported
    assert set(fetched) <= {CERTIFICATE_URL}


@pytest.mark.parametrize("name", ["Subject", "Token", "SubscribeURL", "MessageAttributes"])
def test_a_field_that_was_added_is_refused_or_ignored(name: str) -> None:
    host = Host()
    envelope = {**SIGNER.notification(text(status()), NOW), name: {} if name == "MessageAttributes" else "added"}
    if name == "Subject":
        with pytest.raises(NotAllowed, match="signature"):
            host.take(envelope)
    else:
        host.take(envelope)
        assert host.reported == [status()]


@given(st.binary() | st.dictionaries(st.sampled_from(sorted(SIGNED_CONFIRMATION)), st.text()).map(
    lambda fields: json.dumps({**SIGNED_CONFIRMATION, **fields}).encode()
))  # fmt: skip
def test_whatever_is_posted_nothing_but_an_error_of_holdfast_is_raised(posted: bytes) -> None:
    try:
        Host().receiver.receive(posted)
    except HoldfastError:
        return
    assert json.loads(posted) == SIGNED_CONFIRMATION


@pytest.mark.parametrize("junk", ["", "null", "{}", '{"zone": "az1"}', "[" * 50_000, '{"zone": 1, "out": "yes"}'])
def test_what_is_genuine_but_no_status_is_invalid(junk: str) -> None:
    host = Host()
    with pytest.raises(InvalidValue, match="contains no zone status"):
        host.take(SIGNER.notification(junk, NOW))
    assert not host.reported


def test_a_message_of_another_topic_is_refused_however_genuine() -> None:
    fetched = len(SIGNER.fetched)
    for topic in (f"{TOPIC}2", TOPIC.replace("123456789012", "210987654321"), TOPIC.replace("eu-west-1", "eu-west-2")):
        with pytest.raises(NotAllowed, match=f"expected {TOPIC}"):
            Host().take(SIGNER.notification(text(status()), NOW, TopicArn=topic))
        with pytest.raises(NotAllowed, match=f"expected {TOPIC}"):
            Host().take(SIGNER.confirmation(NOW, TopicArn=topic))
    assert len(SIGNER.fetched) == fetched


def test_nothing_is_fetched_from_a_host_that_the_message_chose() -> None:
    fetched: list[str] = []

    def fetch(url: str) -> bytes:
        fetched.append(url)
        return OTHER.certificate

    for url in ("https://sns.eu-west-1.amazonaws.com.evil.test/a.pem", f"http{HOST.removeprefix('https')}/a.pem"):
        with pytest.raises(NotAllowed, match="certificate at"):
            Host(fetch).take(OTHER.notification(text(status()), NOW, SigningCertURL=url))
    assert not fetched


@pytest.mark.parametrize("moment", [NOW - DAY - 1, NOW + DAY + 1])
def test_a_certificate_counts_only_while_it_is_valid(moment: float) -> None:
    host = Host()
    host.told(status())
    host.clock.jump_wall(moment - NOW)
    with pytest.raises(NotAllowed, match="certificate is valid from"):
        host.told(status(2))
    assert host.reported == [status()]


def test_a_certificate_for_another_kind_of_key_is_refused() -> None:
    content = certificate(ec.generate_private_key(ec.SECP256R1()), NOW - DAY, NOW + DAY)
    with pytest.raises(NotAllowed, match="RSA"):
        Host(lambda _: content).take(SIGNER.notification(text(status()), NOW))


@pytest.mark.parametrize("content", [b"", b"<html>", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_proves_nothing(content: bytes) -> None:
    with pytest.raises(NotAllowed, match="no certificate"):
        Host(lambda _: content).take(SIGNER.notification(text(status()), NOW))


def test_a_certificate_is_fetched_once_though_many_threads_need_it() -> None:
    fetched: list[str] = []
    together = threading.Barrier(2)

    def fetch(url: str) -> bytes:
        fetched.append(url)
        with suppress(threading.BrokenBarrierError):
            together.wait(0.2)  # long enough for another one to begin, if it could
        return SIGNER.certificate

    host = Host(fetch)
    envelopes = [SIGNER.notification(text(status(version)), NOW) for version in range(1, 9)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(host.take, envelopes))
    assert fetched == [CERTIFICATE_URL]


def test_only_so_many_certificates_are_kept() -> None:
    signer = Signer(begin=NOW - DAY, end=NOW + DAY)
    host = Host(signer.fetch)
    urls = [f"{HOST}/SimpleNotificationService-{number}.pem" for number in range(17)]
    for url in [*urls, urls[16], urls[0]]:
        host.take(signer.notification(text(status()), NOW, SigningCertURL=url))
    assert signer.fetched == [*urls, urls[0]]


def test_a_certificate_that_cannot_be_had_now_is_fetched_again_for_the_next_delivery() -> None:
    answers: list[Callable[[], bytes]] = []

    def fetch(url: str) -> bytes:
        return answers.pop(0)()

    def fail() -> bytes:
        raise TimeoutError("timed out")

    host = Host(fetch)
    answers += [fail, lambda: SIGNER.certificate]
    envelope = SIGNER.notification(text(status()), NOW)
    with pytest.raises(EngineUnavailable, match=CERTIFICATE_URL):
        host.take(envelope)
    host.take(envelope)
    assert host.reported == [status()]


@pytest.mark.parametrize("seconds", [3601.0, -3601.0])
def test_a_message_that_is_far_from_now_is_refused_because_it_could_be_played_again(seconds: float) -> None:
    host = Host()
    with pytest.raises(NotAllowed, match="Is the clock right"):
        host.take(SIGNER.notification(text(status()), NOW - seconds))
    assert not host.reported


def test_a_message_that_is_late_by_less_than_the_limit_is_taken() -> None:
    host = Host(max_age=10.0)
    host.take(SIGNER.notification(text(status()), NOW - 10))
    host.take(SIGNER.notification(text(status(2)), NOW + 10))
    assert host.reported == [status(), status(2)]
    with pytest.raises(NotAllowed):
        host.take(SIGNER.notification(text(status(3)), NOW - 11))


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_an_age_that_limits_nothing_is_invalid(seconds: float) -> None:
    with pytest.raises(InvalidValue, match="max_age"):
        Host(max_age=seconds)


def test_a_repeat_is_dropped() -> None:
    host = Host()
    envelope = SIGNER.notification(text(status()), NOW)
    for _ in range(3):
        host.take(envelope)
    assert host.reported == [status()]


def test_a_repeat_is_reported_once_though_it_comes_to_many_threads_at_a_time() -> None:
    host = Host()
    envelope = SIGNER.notification(text(status()), NOW)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(host.take, [envelope] * 64))
    assert host.reported == [status()]


def test_repeats_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.status.sns.receiver._MAX_REMEMBERED", 2)
    host = Host()
    envelopes = [SIGNER.notification(text(status(zone=f"az{number}")), NOW) for number in range(3)]
    for number in (0, 1, 1, 2, 2, 0):
        host.take(envelopes[number])
    assert [known.zone for known in host.reported] == ["az0", "az1", "az2", "az0"]


def test_an_older_status_never_follows_a_newer_one() -> None:
    host = Host()
    for known in (status(2), status(1), status(2, since=NOW - 1), status(3, since=NOW - 5), status(3, since=NOW)):
        host.told(known)
    assert host.reported == [status(2), status(3, since=NOW - 5), status(3, since=NOW)]


def test_each_zone_and_workload_has_versions_of_its_own() -> None:
    host = Host()
    told = [status(5), status(1, zone="az2"), status(1, workload="shop"), status(2, workload="other")]
    for known in told:
        host.told(known)
    assert host.reported == told


def test_in_many_threads_versions_are_reported_in_order() -> None:
    host = Host()
    envelopes = [SIGNER.notification(text(status(version)), NOW) for version in range(1, 65)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(host.take, envelopes))
    versions = [known.version for known in host.reported]
    assert versions == sorted(versions)
    assert versions[-1] == 64


def test_a_report_that_takes_its_time_is_not_overtaken_by_a_newer_status() -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def report(known: ZoneStatus) -> None:
        begun.set()
        if known.version == 1:
            assert go_on.wait(10)
        done.append(known.version)

    receiver = SnsReceiver(TOPIC, report, clock=FakeClock(wall=NOW), fetch=SIGNER.fetch)
    slow, quick = (
        threading.Thread(target=receiver.receive, args=(body(SIGNER.notification(text(status(version)), NOW)),))
        for version in (1, 2)
    )
    slow.start()
    assert begun.wait(10)
    quick.start()
    quick.join(0.2)  # long enough to overtake, if it could
    go_on.set()
    slow.join()
    quick.join()
    assert done == [1, 2]


def test_a_status_that_could_not_be_reported_is_taken_when_it_is_delivered_again() -> None:
    reported: list[ZoneStatus] = []

    def report(known: ZoneStatus) -> None:
        reported.append(known)
        if len(reported) == 1:
            raise OSError("disk full")

    receiver = SnsReceiver(TOPIC, report, clock=FakeClock(wall=NOW), fetch=SIGNER.fetch)
    posted = body(SIGNER.notification(text(status()), NOW))
    with pytest.raises(OSError, match="disk full"):
        receiver.receive(posted)
    receiver.receive(posted)
    assert reported == [status()] * 2


def test_without_a_session_a_subscription_is_confirmed_at_its_address_once() -> None:
    signer = Signer(begin=NOW - DAY, end=NOW + DAY)
    host = Host(signer.fetch)
    envelope = signer.confirmation(NOW)
    host.take(envelope)
    host.take(envelope)
    assert signer.fetched == [CERTIFICATE_URL, envelope["SubscribeURL"]]
    assert not host.reported


def test_a_subscription_is_not_confirmed_at_an_address_elsewhere_however_genuine() -> None:
    signer = Signer(begin=NOW - DAY, end=NOW + DAY)
    with pytest.raises(NotAllowed, match="SubscribeURL"):
        Host(signer.fetch).take(signer.confirmation(NOW, SubscribeURL="https://evil.test/?Action=ConfirmSubscription"))
    assert signer.fetched == [CERTIFICATE_URL]


def test_a_confirmation_that_failed_is_tried_again_for_the_next_delivery_and_tells_no_secret() -> None:
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        if url == CERTIFICATE_URL:
            return SIGNER.certificate
        asked.append(url)
        if len(asked) == 1:
            raise OSError("connection refused")
        return b""

    host = Host(fetch)
    envelope = SIGNER.confirmation(NOW)
    with pytest.raises(EngineUnavailable, match=f"confirmation for {TOPIC}") as caught:
        host.take(envelope)
    assert envelope["Token"] not in str(caught.value)
    host.take(envelope)
    assert asked == [envelope["SubscribeURL"]] * 2


def test_the_end_of_a_subscription_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    signer = Signer(begin=NOW - DAY, end=NOW + DAY)
    with caplog.at_level(logging.WARNING, "holdfast.status"):
        Host(signer.fetch).take(signer.confirmation(NOW, "UnsubscribeConfirmation"))
    assert f"the subscription to {TOPIC} has ended" in caplog.text
    assert signer.fetched == [CERTIFICATE_URL]


def test_where_it_is_not_known_which_certificates_to_trust_there_is_no_receiver() -> None:
    with pytest.raises(InvalidValue, match="aws-iso"):
        SnsReceiver("arn:aws-iso:sns:us-iso-east-1:123456789012:zones", lambda _: None)
    with pytest.raises(InvalidValue, match="FIFO"):
        SnsReceiver(f"{TOPIC}.fifo", lambda _: None)


@pytest.mark.parametrize("endpoint", ["", "host", "ftp://host/", "http://", "https://[half", "mailto:operator@host"])
def test_only_an_address_of_the_web_can_be_subscribed(endpoint: str) -> None:
    with closing(AwsSession(AwsOptions(region="eu-west-1"))) as session, pytest.raises(InvalidValue, match="endpoint"):
        subscribe(session, TOPIC, endpoint)


def test_without_cryptography_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['cryptography'] = None\nimport holdfast.status.sns"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtra: the SNS channel needs the extra 'sns'" in ended.stderr
