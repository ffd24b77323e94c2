"""Secrets of the settings are read when they are used, and never printed."""

import pickle
from pathlib import Path

import pytest

from holdfast import InvalidValue, SettingsError
from holdfast._secret import Secret, check_url, require_reference


def test_a_secret_is_a_text_a_variable_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", " abc\n")
    (tmp_path / "token").write_text("def\n")
    assert Secret("plain").reveal() == "plain"
    assert Secret("env:TOKEN").reveal() == "abc"
    assert Secret(f"file:{tmp_path / 'token'}").reveal() == "def"


def test_a_secret_is_masked_and_says_where_it_is() -> None:
    shown = {
        "hunter2": "****",
        "https://hooks.example:8443/services/hunter2": "https://hooks.example/****",
        "https://user:hunter2@hooks.example": "https://hooks.example/****",
        "http://[hunter2": "****",
        "env:TOKEN": "env:TOKEN",
        "file:/run/token": "file:/run/token",
    }
    for text, expected in shown.items():
        assert str(Secret(text)) == expected
        assert repr(Secret(text)) == f"Secret({expected!r})"
    assert Secret("a") == pickle.loads(pickle.dumps(Secret("a")))
    assert Secret("a") != Secret("b")
    assert len({Secret("a"), Secret("a")}) == 1


def test_a_missing_secret_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    rows = {
        "env:NO_SUCH_VARIABLE": "environment variable NO_SUCH_VARIABLE is not set, or empty",
        f"file:{tmp_path / 'none'}": f"file {tmp_path / 'none'} cannot be read: No such file or directory",
        f"file:{tmp_path / 'empty'}": f"file {tmp_path / 'empty'} is empty",
        f"file:{tmp_path / 'binary'}": f"file {tmp_path / 'binary'} cannot be read: it is no UTF-8 text",
    }
    for text, complaint in rows.items():
        with pytest.raises(SettingsError) as raised:
            Secret(text).reveal()
        assert str(raised.value) == complaint


def test_secrets_in_the_settings_are_refused_where_a_reference_is_needed() -> None:
    require_reference("password", None)
    require_reference("password", Secret("env:P"))
    with pytest.raises(InvalidValue, match="password: expected env:NAME or file:PATH"):
        require_reference("password", Secret("hunter2"))
    assert check_url("https://host/path?x=1") == "https://host/path?x=1"
