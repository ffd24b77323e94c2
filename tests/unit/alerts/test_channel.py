"""The options of channels: clear errors, and no secret in any of them."""

import json

import pytest

from holdfast import InvalidValue, SettingsError
from holdfast.alerts import CHANNELS, AlertEvent, AlertMessage, ChannelContext
from holdfast.alerts.channel import parse_channel_options
from holdfast.alerts.channels.webhook import encode_header, format_pagerduty
from tests.table import every_row
from tests.unit.alerts.world import START, verdict

EMAIL: dict[str, object] = {"host": "mail", "sender": "a@b.example", "recipients": ["c@d.example"]}
SECRET = "hunter2"


def no_aws() -> None:
    raise AssertionError("not needed")


def test_wrong_options_are_named_without_their_secrets() -> None:
    rows: list[tuple[str, dict[str, object], str]] = [
        ("webhook", {}, "options.url: expected an address"),
        ("webhook", {"url": 3}, "options.url: Expected `str`, got `int`"),
        ("webhook", {"url": f"ftp://host/{SECRET}"}, "options.url: expected an address"),
        ("webhook", {"url": f"https:///{SECRET}"}, "options.url: expected an address"),
        ("webhook", {"url": f"http://[::1/{SECRET}"}, "options.url: expected an address"),
        ("webhook", {"url": f"http://host:99999/{SECRET}"}, "options.url: expected an address"),
        ("webhook", {"url": f"http://host/ {SECRET}"}, "options.url: expected an address"),
        ("webhook", {"url": f"http://user:{SECRET}@host/"}, "options.url: expected an address"),
        ("webhook", {"url": "http://host", "address": "x"}, "options.address: unknown option of channel webhook"),
        ("webhook", {"url": "http://host", "format": "teams"}, "options.format: Invalid enum value 'teams'"),
        ("webhook", {"url": "http://host", "secret": SECRET}, "options.secret: expected env:NAME or file:PATH"),
        ("webhook", {"url": "http://h", "secret": "env:X", "format": "slack"}, "options.secret: expected it only"),
        ("webhook", {"format": "pagerduty"}, "options.routing_key: needed with"),
        ("webhook", {"format": "pagerduty", "routing_key": SECRET}, "options.routing_key: expected env:NAME"),
        ("webhook", {"url": "http://host", "routing_key": "env:KEY"}, "options.routing_key: needed with"),
        ("email", {}, "options: Object missing required field `host`"),
        ("email", EMAIL | {"recipients": []}, "options.recipients: Expected `array` of length >= 1"),
        ("email", EMAIL | {"sender": "nobody"}, "options.sender: Expected `str` matching regex"),
        ("email", EMAIL | {"username": "u", "password": SECRET}, "options.password: expected env:NAME"),
        ("email", EMAIL | {"username": "u"}, "options.password: expected both"),
        (
            "email",
            EMAIL | {"username": "u", "password": "env:P", "security": "none"},
            "options.security: expected starttls or tls",
        ),
        ("sns", {"topic": "alerts"}, "options.topic: Expected `str` matching regex"),
        ("stdout", {"color": True}, "options.color: unknown option of channel stdout, expected none"),
    ]

    def check(row: tuple[str, dict[str, object], str]) -> None:
        channel, options, complaint = row
        with pytest.raises(InvalidValue) as raised:
            parse_channel_options(channel, options)
        assert str(raised.value).startswith(complaint)
        assert SECRET not in str(raised.value)

    every_row(rows, check)


def test_an_unknown_channel_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingsError, match="no alert channel is called 'pager': expected one of email, sns, stdout"):
        parse_channel_options("pager", {})


def test_a_missing_secret_is_named_when_the_channel_is_opened() -> None:
    options = parse_channel_options("webhook", {"url": "env:HOOK_URL_THAT_IS_NOT_SET"})
    with pytest.raises(SettingsError, match="environment variable HOOK_URL_THAT_IS_NOT_SET is not set, or empty"):
        CHANNELS.get("webhook")(options, ChannelContext(open_aws=no_aws))  # type: ignore[arg-type]


def test_a_url_from_the_environment_is_checked_when_the_channel_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_URL", f"hooks.example/{SECRET}")
    options = parse_channel_options("webhook", {"url": "env:HOOK_URL"})
    with pytest.raises(InvalidValue, match="url: expected an address") as raised:
        CHANNELS.get("webhook")(options, ChannelContext(open_aws=no_aws))  # type: ignore[arg-type]
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("is_json", [True, False])
def test_standard_output_gets_one_line_for_each_message(is_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    context = ChannelContext(open_aws=no_aws, writes_json=is_json)  # type: ignore[arg-type]
    channel = CHANNELS.get("stdout")(parse_channel_options("stdout", {}), context)
    shown = AlertMessage(alert="log", event=AlertEvent.OPENED, number=1, verdict=verdict(summary="a\nb"))
    channel.send(shown, 1.0)
    [line] = capsys.readouterr().out.splitlines()
    if is_json:
        assert json.loads(line)["since"] == START
    else:
        assert line.startswith(r"shop: verdict isolated (use1-az1): a\nb | Workload: shop | ")


def test_long_or_odd_keys_fit_into_headers_and_pagerduty() -> None:
    long = AlertMessage(alert="on-call", event=AlertEvent.OPENED, number=1, verdict=verdict("x" * 300))
    event = format_pagerduty(long, "key")
    assert len(str(event["dedup_key"])) == 64
    assert "links" not in event
    assert encode_header("über") != "über"
    assert encode_header("plain") == "plain"
