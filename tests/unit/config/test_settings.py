"""What can be set: frozen values that show no secret."""

import copy
import re
import traceback

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.config import DatabaseSettings, DatabaseUrl, LogSettings, QueueUrl, ServerSettings, Settings
from holdfast.config.settings import AgentSettings, AwsSettings, StatusSettings, WorkloadSettings

SECRET = "hunter2"
TOPIC = "arn:aws:sns:us-east-1:123456789012:zones"


def test_a_server_without_credentials_cannot_ask_for_one_to_read_statuses() -> None:
    closed = StatusSettings(allow_anonymous_reads=False)
    Settings(status=closed)
    with pytest.raises(
        InvalidValue,
        match=r"server\.allow_anonymous is true and status\.allow_anonymous_reads is false: .* would have no effect",
    ):
        Settings(server=ServerSettings(allow_anonymous=True), status=closed)


def test_the_defaults_are_safe_and_need_nothing_installed() -> None:
    settings = Settings()
    assert settings.server.host == "127.0.0.1"
    assert settings.server.allow_anonymous is False
    assert settings.server.shutdown_timeout == 2.0
    assert settings.database.url == DatabaseUrl("sqlite:")
    assert settings.status.store == "database"
    assert settings.agent.host == "127.0.0.1"
    assert settings.agent.when_silent == "keep"
    assert (settings.agent.file, settings.agent.hook, settings.agent.sns_topic) == (None, None, None)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Settings(), "server"),
        (ServerSettings(), "port"),
        (LogSettings(), "level"),
        (DatabaseSettings(), "url"),
        (AwsSettings(), "region"),
        (StatusSettings(), "store"),
        (AgentSettings(), "zone"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, msgspec.Struct) else value,
)
def test_no_setting_can_be_changed_after_it_was_read(value: msgspec.Struct, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(value, name, None)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:", "sqlite:"),
        ("postgresql://host/name", "postgresql://host/name"),
        ("postgresql:///name", "postgresql:///name"),
        ("postgres://user@host:5432/name", "postgres://user@host:5432/name"),
        ("postgresql://user:hunter2@host:5432/name", "postgresql://user:****@host:5432/name"),
        ("postgresql://:hunter2@host/name", "postgresql://:****@host/name"),
        ("postgresql://user:@host/name", "postgresql://user:****@host/name"),
        ("postgresql://user:a:hunter2@host/name", "postgresql://user:****@host/name"),
        ("postgresql://user:hunter2%40%2F@[::1]:5432/name", "postgresql://user:****@[::1]:5432/name"),
        ("postgresql://user:\u2100hunter2@host/name", "postgresql://user:****@host/name"),
        ("postgresql://one:1,two:2/name", "postgresql://one:1,two:2/name"),
        (
            "postgresql://user@host/name?sslmode=require&password=hunter2&sslpassword=hunter2&options=-cx%3Dy",
            "postgresql://user@host/name?sslmode=require&password=****&sslpassword=****&options=-cx%3Dy",
        ),
        ("postgresql://host/?PassWord=hunter2&p%61ssword=hunter2", "postgresql://host/?PassWord=****&p%61ssword=****"),
        ("postgresql://host/?oauth_client_secret=hunter2", "postgresql://host/?oauth_client_secret=****"),
    ],
)
def test_a_database_url_is_shown_without_its_passwords_and_revealed_only_on_request(url: str, shown: str) -> None:
    value = DatabaseUrl(url)
    assert str(value) == shown
    assert repr(value) == f"DatabaseUrl({shown!r})"
    settings = Settings(database=DatabaseSettings(url=value))
    assert SECRET not in f"{value} {value!r} {settings} {settings!r}"
    assert value.reveal() == url
    assert value.scheme == url.partition(":")[0]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "one without a scheme"),
        ("holdfast.sqlite", "one without a scheme"),
        ("user:hunter2@host/name", "one without a scheme"),
        ("mysql://user:hunter2@host/name", "an address with the scheme 'mysql'"),
        ("PostgreSQL://user:hunter2@host/name", "an address with the scheme 'PostgreSQL'"),
        ("sqlite:/var/lib/holdfast.sqlite", "expected 'sqlite:' alone"),
        ("sqlite://user:hunter2@host", "expected 'sqlite:' alone"),
        ("postgresql:user:hunter2@host/name", "postgresql://user:password@host/name"),
        # Which part of these is the password cannot be told; libpq and the RFC disagree.
        ("postgresql://user:hun/ter2@host/name", "%2F"),
        ("postgresql://user:hun#ter2@host/name", "%23"),
        ("postgresql://user:hun?ter2@host/name", "%3F"),
        ("postgresql://user:hun@ter2@host/name", "%40"),
        ("postgresql://user@host/name?password=hun@ter2", "%40"),
    ],
)
def test_an_address_that_is_refused_is_told_by_what_is_expected_and_without_its_password(
    url: str, message: str
) -> None:
    with pytest.raises(InvalidValue, match=re.escape(message)) as caught:
        DatabaseUrl(url)
    told = "".join(traceback.format_exception_only(caught.value))
    assert "expected" in told
    assert "hun" not in told
    assert "ter2" not in told


# Neither part of what is shown around it, nor a character that must be written as %XX.
PASSWORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="@/?#*"), min_size=6).filter(
    lambda text: text not in "DatabaseUrl('postgresql://user:****@host:5432/name?sslmode=require')"
)


@given(PASSWORDS, st.sampled_from(["", "?sslmode=require"]))
def test_no_password_is_ever_shown(password: str, query: str) -> None:
    url = DatabaseUrl(f"postgresql://user:{password}@host:5432/name{query}")
    assert str(url) == f"postgresql://user:****@host:5432/name{query}"
    assert password not in repr(url)


@given(st.text(max_size=30))
def test_any_text_is_taken_or_refused_as_invalid(text: str) -> None:
    for candidate in (text, f"postgresql://{text}"):
        try:
            url = DatabaseUrl(candidate)
        except InvalidValue:
            continue
        assert url.reveal() == candidate


def test_equal_urls_are_equal_and_hash_alike_and_unequal_secrets_tell_them_apart() -> None:
    one, other = DatabaseUrl("postgresql://user:one@host/name"), DatabaseUrl("postgresql://user:other@host/name")
    assert str(one) == str(other)
    assert one != other
    assert one == copy.copy(one)
    assert len({one, copy.copy(one), other}) == 2
    assert one != "postgresql://user:one@host/name"


@pytest.mark.parametrize("store", ["database", "dynamodb:zones", "s3:some-bucket", "s3:some-bucket/a/prefix/"])
def test_statuses_are_kept_in_the_database_in_dynamodb_or_in_s3(store: str) -> None:
    assert StatusSettings(store=store).store == store


@pytest.mark.parametrize(
    ("stores", "form"),
    [
        (["", "sqlite"], r"the address of a store \(database, dynamodb, s3\)"),
        (["database:", "database:x"], "database"),
        (["dynamodb", "dynamodb:", "dynamodb:a/b"], "dynamodb:TABLE"),
        (["s3:", "s3:Bucket", "s3://bucket", "s3:bucket/"], "s3:BUCKET or s3:BUCKET/PREFIX"),
    ],
)
def test_any_other_store_is_refused_with_the_form_that_it_should_have(stores: list[str], form: str) -> None:
    for store in stores:
        with pytest.raises(InvalidValue, match=f"store: expected {form}, found {store!r}"):
            StatusSettings(store=store)


@pytest.mark.parametrize("topic", ["", "zones", TOPIC + ".fifo", TOPIC.replace("sns", "sqs"), TOPIC + "\n"])
def test_a_topic_is_named_by_its_arn(topic: str) -> None:
    with pytest.raises(InvalidValue, match="sns_topic: expected an ARN like arn:aws:sns:"):
        StatusSettings(sns_topic=topic)
    with pytest.raises(InvalidValue, match="sns_topic: expected an ARN like arn:aws:sns:"):
        AgentSettings(sns_topic=topic, sns_endpoint="http://127.0.0.1/sns")
    assert StatusSettings(sns_topic=TOPIC).sns_topic == TOPIC


def test_an_agent_needs_somebody_to_tell_it() -> None:
    with pytest.raises(InvalidValue, match="endpoints: expected at least one, found none"):
        AgentSettings(endpoints=())
    assert AgentSettings(endpoints=(), sns_topic=TOPIC, sns_endpoint="http://127.0.0.1/sns").endpoints == ()


@pytest.mark.parametrize("half", [{"sns_topic": TOPIC}, {"sns_endpoint": "http://127.0.0.1/sns"}])
def test_an_agent_is_reached_by_sns_with_a_topic_and_an_address_or_not_at_all(half: dict[str, str]) -> None:
    with pytest.raises(InvalidValue, match="sns_topic and sns_endpoint: expected both or neither"):
        AgentSettings(**half)  # type: ignore[arg-type]


def test_an_endpoint_must_not_count_as_silent_between_two_pulls() -> None:
    with pytest.raises(InvalidValue, match="at least twice the poll_interval"):
        AgentSettings(poll_interval=10.0, stale_after=15.0)
    assert AgentSettings(poll_interval=7.5, stale_after=15.0).stale_after == 15.0


@pytest.mark.parametrize("zone", ["us-east-1a", "zone_a", ""])
def test_zones_of_a_workload_are_ids_that_every_store_takes(zone: str) -> None:
    with pytest.raises(InvalidValue, match="AZ-ID"):
        WorkloadSettings(name="shop", region="us-east-1", zones=("use1-az1", zone))


class TestQueueUrl:
    def test_it_is_shown_without_its_password(self) -> None:
        url = QueueUrl("postgresql://anna:hunter2@db.test/work")
        assert (str(url), repr(url)) == ("postgresql://db.test/work", "QueueUrl('postgresql://db.test/work')")
        assert url.reveal() == "postgresql://anna:hunter2@db.test/work"

    def test_equal_ones_are_equal(self) -> None:
        one, same, other = QueueUrl("memory:"), QueueUrl("memory:"), QueueUrl("sqlite:work.sqlite")
        assert one == same != other
        assert {one, same, other} == {one, other}
        assert one != "memory:"

    def test_an_unknown_scheme_is_refused(self) -> None:
        with pytest.raises(InvalidValue, match=r"no queue backend for redis:\.\.\.: expected one of memory:"):
            QueueUrl("redis://user:hunter2@host")
