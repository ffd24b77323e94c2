"""From a file, the environment and options to settings, with errors that people can act on."""

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast import SettingsError
from holdfast.config import DEFAULT_SETTINGS_FILE, SETTINGS_FILE_VARIABLE, DatabaseUrl, Settings, load
from holdfast.config.load import format_variable_name, list_setting_types
from holdfast.config.paths import ANY_INDEX, SettingPath, format_path
from holdfast.queue import Limits, OverMaxRate, QueuePolicy

Write = Callable[[str], Path]

TOPIC = "arn:aws:sns:us-east-1:123456789012:zones"
PLACES = [place for place in list_setting_types() if ANY_INDEX not in place]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads a settings file that happens to lie where it is run."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        file = tmp_path / "some.toml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


def complaint(file: Path | None, environment: Mapping[str, str] | None = None, **options: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load(file, environment or {}, **options)
    return str(caught.value)


def test_without_anything_the_defaults_are_in_effect() -> None:
    loaded = load(environment={})
    assert loaded.settings == Settings()
    assert loaded.file is None
    assert {origin for _, _, origin in loaded.list_effective()} == {"default"}


def test_a_file_sets_what_it_names_and_leaves_the_rest(write: Write) -> None:
    file = write(
        'data_directory = "data"\n[server]\nhost = "::1"\nport = 0\nallow_anonymous = true\nshutdown_timeout = 3\n'
        '[log]\nlevel = "debug"\n[database]\nurl = "postgresql://user:hunter2@host/name"\n'
    )
    settings = load(file, {}).settings
    assert settings.data_directory == Path("data")
    assert (settings.server.host, settings.server.port, settings.server.allow_anonymous) == ("::1", 0, True)
    assert settings.server.shutdown_timeout == 3.0
    assert isinstance(settings.server.shutdown_timeout, float)
    assert (settings.log.level, settings.log.format) == ("debug", "auto")
    assert settings.database.url == DatabaseUrl("postgresql://user:hunter2@host/name")
    assert settings.database.max_connections == 10


def test_an_empty_file_is_a_file_with_nothing_to_say(write: Write) -> None:
    file = write("")
    loaded = load(file, {})
    assert loaded.settings == Settings()
    assert loaded.file == file


def test_the_file_here_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("[server]\nport = 1\n")
    loaded = load(environment={})
    assert loaded.settings.server.port == 1
    assert loaded.file == DEFAULT_SETTINGS_FILE


def test_a_variable_names_the_file_and_an_argument_names_it_instead(write: Write, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("[server]\nport = 1\n")
    (tmp_path / "named.toml").write_text("[server]\nport = 2\n")
    environment = {SETTINGS_FILE_VARIABLE: str(tmp_path / "named.toml")}
    assert load(environment=environment).settings.server.port == 2
    assert load(write("[server]\nport = 3\n"), environment).settings.server.port == 3


def test_an_empty_variable_names_no_file(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("[server]\nport = 1\n")
    assert load(environment={SETTINGS_FILE_VARIABLE: ""}).settings.server.port == 1


def test_by_default_it_is_the_environment_of_the_process_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SERVER__PORT", "7")
    assert load().settings.server.port == 7


class TestWhatOverrides:
    FILE = "[server]\nport = 1\nhost = 'file'\nallow_anonymous = true\n[log]\nlevel = 'error'\n"

    def test_an_option_comes_before_the_environment_before_the_file_before_the_default(self, write: Write) -> None:
        environment = {"HOLDFAST_SERVER__PORT": "2", "HOLDFAST_SERVER__HOST": "environment"}
        options: dict[SettingPath, Any] = {("server", "port"): 3, ("server", "allow_anonymous"): None}
        file = write(self.FILE)
        loaded = load(file, environment, options)
        server = loaded.settings.server
        assert (server.port, server.host, server.allow_anonymous, server.shutdown_timeout) == (
            3,
            "environment",
            True,
            2.0,
        )
        origins = {format_path(place): origin for place, _, origin in loaded.list_effective()}
        assert origins["server.port"] == "command line"
        assert origins["server.host"] == "environment variable HOLDFAST_SERVER__HOST"
        assert origins["server.allow_anonymous"] == str(file)
        assert origins["server.shutdown_timeout"] == "default"
        assert origins["log.level"] == str(file)

    def test_every_setting_has_a_variable(self) -> None:
        values = {
            "data_directory": "x",
            "server.host": "x",
            "server.port": "1",
            "server.allow_anonymous": "false",  # true would contradict status.allow_anonymous_reads
            "server.public_url": "https://x",
            "server.max_connections": "100",
            "server.shutdown_timeout": "1.5",
            "server.advertise": "http://10.0.0.1:8470",
            "server.lease_seconds": "20.5",
            "log.level": "error",
            "log.format": "text",
            "database.url": "postgresql://host/name",
            "database.timeout": "1",
            "database.max_connections": "1",
            "telemetry.bin_seconds": "5",
            "telemetry.max_operations": "10",
            "telemetry.max_instances": "20",
            "telemetry.max_series": "30",
            "telemetry.server": "http://x",
            "metrics.export": "emf,prometheus:9464",
            "aws.region": "x",
            "aws.profile": "x",
            "aws.role_arn": "x",
            "aws.external_id": "x",
            "aws.endpoint_url": "x",
            "aws.address_endpoint": "x",
            "status.store": "dynamodb:zones",
            "status.refresh_interval": "2",
            "status.allow_anonymous_reads": "false",
            "status.sns_topic": TOPIC,
            "agent.zone": "use1-az1",
            "agent.workload": "x",
            "agent.endpoints": "x,y",
            "agent.poll_interval": "2",
            "agent.stale_after": "6",
            "agent.when_silent": "own_zone_out",
            "agent.host": "x",
            "agent.port": "1",
            "agent.file": "x",
            "agent.hook": "x y",
            "agent.hook_timeout": "3",
            "agent.sns_topic": TOPIC,
            "agent.sns_endpoint": "x",
            "evacuation.mode": "automatic",
            "evacuation.detectors": "threshold,outlier",
            "evacuation.journal": "dynamodb:runs",
            "heartbeat.url": "env:beat",
            "heartbeat.interval": "30",
            "queue_backend": "postgresql://host/name",
        }
        loaded = load(environment={format_variable_name(place): values[format_path(place)] for place in PLACES})
        assert {format_path(place): str(value).lower() for place, value, _ in loaded.list_effective()} == {
            **values,
            "evacuation.action[0].name": "status",
            "database.timeout": "1.0",
            "telemetry.bin_seconds": "5.0",
            "metrics.export": "('emf', 'prometheus:9464')",
            "evacuation.detectors": "('threshold', 'outlier')",
            "status.refresh_interval": "2.0",
            "agent.endpoints": "('x', 'y')",
            "agent.poll_interval": "2.0",
            "agent.stale_after": "6.0",
            "agent.hook_timeout": "3.0",
            "heartbeat.interval": "30.0",
        }
        assert {origin for _, _, origin in loaded.list_effective() if origin != "default"} == {
            f"environment variable {format_variable_name(place)}" for place in PLACES
        }

    @pytest.mark.parametrize(
        ("name", "text", "place", "value"),
        [
            ("HOLDFAST_SERVER__PORT", "0", ("server", "port"), 0),
            ("HOLDFAST_SERVER__PORT", "8471\n", ("server", "port"), 8471),
            ("HOLDFAST_SERVER__ALLOW_ANONYMOUS", "true", ("server", "allow_anonymous"), True),
            ("HOLDFAST_SERVER__ALLOW_ANONYMOUS", "false", ("server", "allow_anonymous"), False),
            ("HOLDFAST_SERVER__SHUTDOWN_TIMEOUT", "3", ("server", "shutdown_timeout"), 3.0),
            ("HOLDFAST_SERVER__SHUTDOWN_TIMEOUT", "0.5", ("server", "shutdown_timeout"), 0.5),
            ("HOLDFAST_DATA_DIRECTORY", "2024", ("data_directory",), "2024"),
            ("HOLDFAST_DATA_DIRECTORY", "true", ("data_directory",), "true"),
            ("HOLDFAST_DATA_DIRECTORY", "a b", ("data_directory",), "a b"),
            ("HOLDFAST_SERVER__HOST", "127001", ("server", "host"), "127001"),
            ("HOLDFAST_LOG__LEVEL", "debug", ("log", "level"), "debug"),
        ],
    )
    def test_a_variable_is_read_as_the_kind_of_value_that_its_setting_has(
        self, name: str, text: str, place: SettingPath, value: object
    ) -> None:
        found = {place: value for place, value, _ in load(environment={name: text}).list_effective()}[place]
        assert found == value
        assert type(found) is type(value)

    @pytest.mark.parametrize(
        ("name", "text", "expected"),
        [
            ("HOLDFAST_SERVER__PORT", "http", 'server.port: expected a whole number, found "http"'),
            ("HOLDFAST_SERVER__PORT", "", 'server.port: expected a whole number, found ""'),
            ("HOLDFAST_SERVER__PORT", "8470\nallow_anonymous = true", "server.port: expected a whole number, found"),
            pytest.param(
                "HOLDFAST_SERVER__PORT", "9" * 5000, "server.port: expected a whole number, found", id="digits"
            ),
            pytest.param(
                "HOLDFAST_SERVER__PORT", "[" * 5000, "server.port: expected a whole number, found", id="nesting"
            ),
            ("HOLDFAST_SERVER__PORT", "70000", "server.port: expected a whole number <= 65535, found 70000"),
            ("HOLDFAST_SERVER__PORT", "[1]", "server.port: expected a whole number, found a list"),
            ("HOLDFAST_SERVER__ALLOW_ANONYMOUS", "yes", 'server.allow_anonymous: expected true or false, found "yes"'),
            ("HOLDFAST_SERVER__SHUTDOWN_TIMEOUT", "nan", "server.shutdown_timeout: expected a number > 0.0, found nan"),
            ("HOLDFAST_LOG__LEVEL", "loud", "log.level: expected one of debug, info, warning, error, found"),
        ],
    )
    def test_a_wrong_variable_is_named_with_its_setting_and_what_was_found(
        self, name: str, text: str, expected: str
    ) -> None:
        assert complaint(None, {name: text}).startswith(f"environment variable {name}: {expected}")

    @pytest.mark.parametrize(
        ("text", "elements"),
        [
            ("http://a:1", ["http://a:1"]),
            ("http://a:1,http://b:2", ["http://a:1", "http://b:2"]),
            ("http://a:1 http://b:2", ["http://a:1", "http://b:2"]),
            (" http://a:1 ,\n\thttp://b:2,, ", ["http://a:1", "http://b:2"]),
            ("[1]", ["[1]"]),
        ],
    )
    def test_a_list_is_written_with_commas_or_spaces_between_its_elements(
        self, text: str, elements: list[str], write: Write
    ) -> None:
        loaded = load(write("[agent]\nendpoints = ['http://file:1']\n"), {"HOLDFAST_AGENT__ENDPOINTS": text})
        assert loaded.settings.agent.endpoints == tuple(elements)

    def test_an_option_may_be_a_list(self) -> None:
        options: dict[SettingPath, Any] = {("agent", "endpoints"): ["http://a:1", "http://b:2"]}
        loaded = load(environment={"HOLDFAST_AGENT__ENDPOINTS": "http://c:3"}, options=options)
        assert loaded.settings.agent.endpoints == ("http://a:1", "http://b:2")

    @pytest.mark.parametrize(
        ("environment", "expected"),
        [
            ({"HOLDFAST_AGENT__ENDPOINTS": " "}, "agent.endpoints: expected at least one, found none"),
            ({"HOLDFAST_AGENT__SNS_TOPIC": TOPIC}, "agent: sns_topic and sns_endpoint: expected both or neither"),
            ({"HOLDFAST_STATUS__STORE": "paper"}, "status.store: expected the address of a store (database, "),
        ],
    )
    def test_what_does_not_go_together_is_told_with_the_variable_that_set_it(
        self, environment: dict[str, str], expected: str, write: Write
    ) -> None:
        (name,) = environment
        told = f"environment variable {name}: {expected}"
        assert complaint(None, environment).startswith(told)
        assert complaint(write("[server]\nport = 1\n"), environment).startswith(told)

    def test_what_does_not_go_together_in_a_table_of_the_file_is_told_with_its_line(self, write: Write) -> None:
        file = write("[server]\nport = 1\n[agent]\nendpoints = []\n")
        assert complaint(file, {"HOLDFAST_LOG__LEVEL": "info"}) == (
            f"{file}, line 4: agent.endpoints: expected at least one, found none"
        )

    def test_a_wrong_option_is_told_from_a_wrong_file(self, write: Write) -> None:
        told = complaint(write(self.FILE), options={("server", "port"): 70_000})
        assert told == "command line: server.port: expected a whole number <= 65535, found 70000"

    @pytest.mark.parametrize(
        ("name", "suggestion"),
        [
            ("HOLDFAST_SERVER__PROT", "did you mean HOLDFAST_SERVER__PORT?"),
            ("HOLDFAST_SEVER__PORT", "did you mean HOLDFAST_SERVER__PORT?"),
            ("HOLDFAST_server__port", "known here: HOLDFAST_AGENT__ENDPOINTS, "),
            ("HOLDFAST_QUITE__ANOTHER", "known here: HOLDFAST_AGENT__ENDPOINTS, "),
        ],
    )
    def test_a_variable_that_names_no_setting_is_refused_with_a_suggestion(self, name: str, suggestion: str) -> None:
        told = complaint(None, {name: "1"})
        assert told.startswith(f"environment variable {name} names no setting; {suggestion}")

    @pytest.mark.parametrize(
        "name",
        [
            "HOLDFAST_PORT",
            "HOLDFAST_SERVER_PORT",
            "HOLDFAST_SERVER_SERVICE_HOST",
            "HOLDFAST_PORT_8470_TCP_ADDR",
            "OTHER_SERVER__PORT",
            "PATH",
        ],
    )
    def test_variables_that_an_orchestrator_sets_for_a_service_of_that_name_are_ignored(self, name: str) -> None:
        assert load(environment={name: "tcp://10.0.0.1:8470"}).settings == Settings()


class TestWhatIsWrong:
    @pytest.mark.parametrize(
        ("text", "line", "expected"),
        [
            ("[server]\nport = '80'", 2, 'server.port: expected a whole number, found "80"'),
            ("[server]\nport = 80.5", 2, "server.port: expected a whole number, found 80.5"),
            ("[server]\nport = true", 2, "server.port: expected a whole number, found true"),
            ("[server]\nport = 1979-05-27", 2, "server.port: expected a whole number, found 1979-05-27"),
            ("[server]\n\nport = -1", 3, "server.port: expected a whole number >= 0, found -1"),
            ("[server]\nport = 65_536", 2, "server.port: expected a whole number <= 65535, found 65536"),
            ("[server]\nhost = 1", 2, "server.host: expected text, found 1"),
            ("[server]\nhost = ['a']", 2, "server.host: expected text, found a list"),
            ("[server]\nallow_anonymous = 'no'", 2, 'server.allow_anonymous: expected true or false, found "no"'),
            ("[server]\nshutdown_timeout = 0", 2, "server.shutdown_timeout: expected a number > 0.0, found 0"),
            (
                "[server]\nadvertise = 'host'",
                2,
                "server.advertise: address 'host': expected one such as http://127.0.0.1:8470",
            ),
            ("[server]\nshutdown_timeout = inf", 2, "server.shutdown_timeout: expected a number <= 86400.0, found inf"),
            ("[server]\nshutdown_timeout = {}", 2, "server.shutdown_timeout: expected a number, found a table"),
            ("[database]\nmax_connections = 0", 2, "database.max_connections: expected a whole number >= 1, found 0"),
            ("[database]\ntimeout = 1e9", 2, "database.timeout: expected a number <= 86400.0, found 1000000000.0"),
            ("[log]\nlevel = 'loud'", 2, 'log.level: expected one of debug, info, warning, error, found "loud"'),
            ("[log]\nformat = 3", 2, "log.format: expected text, found 3"),
            ("log = 3", 1, "log: expected a table, found 3"),
            ("[[server]]\nport = 1", 1, "server: expected a table, found a list"),
            ("data_directory = 3", 1, "data_directory: expected text, found 3"),
            ("[database]\nurl = 3", 2, "database.url: expected text, found 3"),
            (
                "[database]\nurl = 'sqlite:/x'",
                2,
                "database.url: expected 'sqlite:' alone, found more: the files are stored in data_directory",
            ),
        ],
    )
    def test_an_error_names_file_line_place_what_was_found_and_what_is_expected(
        self, write: Write, text: str, line: int, expected: str
    ) -> None:
        file = write(text)
        assert complaint(file) == f"{file}, line {line}: {expected}"

    @pytest.mark.parametrize(
        ("text", "line", "place", "advice"),
        [
            ("[server]\nprot = 1", 2, "server.prot", "did you mean port?"),
            ("[servr]\nport = 1", 1, "servr", "did you mean server?"),
            ("data_dir = 'x'", 1, "data_dir", "did you mean data_directory?"),
            (
                "[gauges.push]\nurl = 'x'",
                1,
                "gauges",
                (
                    "known here: agent, alert, aws, data_directory, database, evacuation, heartbeat, log, metrics, "
                    "queue, queue_backend, server, status, telemetry, workload"
                ),
            ),
            (
                "[server.tls]\nfile = 'x'",
                1,
                "server.tls",
                (
                    "known here: advertise, allow_anonymous, host, lease_seconds, max_connections, port, public_url, "
                    "shutdown_timeout"
                ),
            ),
            ("log.colour = 1", 1, "log.colour", "known here: format, level"),
        ],
    )
    def test_an_unknown_setting_is_refused_with_the_nearest_known_one(
        self, write: Write, text: str, line: int, place: str, advice: str
    ) -> None:
        file = write(text)
        assert complaint(file) == f"{file}, line {line}: {place}: there is no such setting; {advice}"

    def test_a_variable_cannot_reach_into_what_the_file_says_is_no_table(self, write: Write) -> None:
        file = write("server = 3\n")
        told = complaint(file, {"HOLDFAST_SERVER__PORT": "1"})
        assert told == f"{file}, line 1: server: expected a table, found 3"

    def test_a_file_that_does_not_exist_is_named(self, tmp_path: Path) -> None:
        file = tmp_path / "nowhere.toml"
        expected = f"{file} does not exist: name an existing settings file, or leave it out"
        assert complaint(file) == expected
        assert complaint(None, {SETTINGS_FILE_VARIABLE: str(file)}) == expected

    def test_a_folder_is_no_settings_file(self, tmp_path: Path) -> None:
        assert complaint(tmp_path).startswith(f"cannot read {tmp_path}: ")

    def test_a_file_that_may_not_be_read_is_named(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        file = write("")
        file.chmod(0)
        if os.access(file, os.R_OK):  # root may read everything: let the system refuse all the same

            def refuse(path: Path, **_: object) -> str:
                raise PermissionError(13, "Permission denied", str(path))

            monkeypatch.setattr(Path, "read_text", refuse)
        assert re.fullmatch(rf"cannot read {re.escape(str(file))}: .*Permission denied.*", complaint(file))

    def test_a_file_that_is_not_utf_8_is_named(self, tmp_path: Path) -> None:
        file = tmp_path / "latin.toml"
        file.write_bytes('data_directory = "ä"'.encode("latin-1"))
        assert complaint(file).startswith(f"cannot read {file}: 'utf-8' codec can't decode byte 0xe4")

    @pytest.mark.parametrize(
        ("text", "where"),
        [
            ("[server\nport = 1", "line 1"),
            ("[server]\nport == 1", "line 2"),
            ("port = 1\nport = 2", ""),
            ("port = " + "9" * 5000, ""),
            ("port = " + "[" * 5000, ""),
        ],
        ids=["header", "value", "twice", "number", "nesting"],
    )
    def test_a_file_that_is_not_toml_is_named_with_the_line(self, write: Write, text: str, where: str) -> None:
        file = write(text)
        told = complaint(file)
        assert told.startswith(f"{file} is not valid TOML: ")
        assert where in told


class TestWhatIsSecret:
    URL = "postgresql://user:hunter2@host/name?sslpassword=hunter2"

    def test_no_secret_is_shown_by_what_was_loaded(self, write: Write) -> None:
        for loaded in (
            load(write(f"database.url = '{self.URL}'"), {}),
            load(None, {"HOLDFAST_DATABASE__URL": self.URL}),
        ):
            assert loaded.settings.database.url.reveal() == self.URL
            assert "hunter2" not in f"{loaded} {loaded!r} {loaded.settings} {list(loaded.list_effective())}"
            shown = {format_path(place): value for place, value, _ in loaded.list_effective()}["database.url"]
            assert shown == "postgresql://user:****@host/name?sslpassword=****"

    @pytest.mark.parametrize(
        ("text", "environment"),
        [
            ("database.url = 'postgresql://user:hunter2#@host'", {}),
            ("database.url = 'https://user:hunter2@host'", {}),
            ("database.url = ['postgresql://user:hunter2@host']", {}),
            ("database.url = { url = 'postgresql://user:hunter2@host' }", {}),
            ("database.max_connections = 'postgresql://user:hunter2@host'", {}),
            ("database.max_connections = 'postgresql://user:hunter2/@host'", {}),
            ("database = 'postgresql://user:hunter2@host'", {}),
            ("", {"HOLDFAST_DATABASE__URL": "user:hunter2@host/name"}),
            ("", {"HOLDFAST_DATABASE__TIMEOUT": "postgresql://user:hunter2@host"}),
            ("", {"HOLDFAST_DATABASE__URI": "postgresql://user:hunter2@host"}),
        ],
    )
    def test_no_error_shows_a_secret(self, write: Write, text: str, environment: dict[str, str]) -> None:
        told = complaint(write(text), environment)
        assert "database" in told.lower()
        assert "hunter2" not in told


def test_what_was_loaded_cannot_be_changed() -> None:
    loaded = load(environment={})
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.file = Path("other")  # type: ignore[misc]


WORKLOAD = "[[workload]]\nname = 'shop'\nregion = 'us-east-1'\nzones = ['use1-az1', 'use1-az2']\n"
END = "'use1-az2']\n"


class TestMistakes:
    def test_settings_that_contradict_each_other_are_told_with_their_file_if_there_is_one(self, write: Write) -> None:
        variables = {"HOLDFAST_SERVER__ALLOW_ANONYMOUS": "true", "HOLDFAST_STATUS__ALLOW_ANONYMOUS_READS": "false"}
        expected = "server.allow_anonymous is true and status.allow_anonymous_reads is false"
        with pytest.raises(SettingsError, match=f"^{expected}"):
            load(environment=variables)
        file = write("[server]\nallow_anonymous = true\n[status]\nallow_anonymous_reads = false\n")
        assert complaint(file).startswith(f"{file}: {expected}")

    @pytest.mark.parametrize("name", ["HOLDFAST_LOG_LEVEL", "HOLDFAST_DATABASE_URL", "HOLDFAST_SERVER_PORT"])
    def test_one_underscore_where_two_belong_is_told(self, name: str) -> None:
        with pytest.raises(SettingsError, match=rf"{name} names no setting; did you mean HOLDFAST_[A-Z]+__[A-Z]+\?"):
            load(environment={name: "x"})

    @pytest.mark.parametrize("scheme", ["tcp", "udp", "sctp"])
    def test_what_kubernetes_sets_is_not_taken_for_a_mistake(self, scheme: str) -> None:
        assert load(environment={"HOLDFAST_SERVER_PORT": f"{scheme}://10.0.0.1:8470"}).settings == Settings()

    def test_an_address_in_a_misspelt_variable_is_told_without_its_password(self) -> None:
        with pytest.raises(SettingsError, match=r"did you mean HOLDFAST_DATABASE__URL\?") as caught:
            load(environment={"HOLDFAST_DATABASE_URL": "postgresql://user:hunter2@host/name"})
        assert "hunter2" not in str(caught.value)

    def test_the_home_directory_is_found(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        loaded = load(environment={"HOLDFAST_DATA_DIRECTORY": "~/data"})
        assert loaded.settings.data_directory == tmp_path / "data"

    @pytest.mark.parametrize("host", ["", "http://127.0.0.1", "a b"])
    def test_a_host_that_is_none_is_refused(self, host: str) -> None:
        with pytest.raises(SettingsError, match=r"server\.host: expected text matching"):
            load(environment={"HOLDFAST_SERVER__HOST": host})

    def test_an_empty_path_is_refused(self) -> None:
        with pytest.raises(SettingsError, match="data_directory: expected a path, found nothing"):
            load(environment={"HOLDFAST_DATA_DIRECTORY": ""})


class TestLists:
    def write(self, folder: Path, text: str) -> Path:
        file = folder / "holdfast.toml"
        file.write_text(text)
        return file

    def test_every_element_is_a_frozen_value_with_its_own_defaults(self, tmp_path: Path) -> None:
        text = WORKLOAD + "[workload.detector]\nfalse_isolations = 2\n" + WORKLOAD.replace("shop", "cart")
        shop, cart = load(self.write(tmp_path, text), {}).settings.workload
        assert (shop.name, shop.zones, shop.detector["false_isolations"]) == ("shop", ("use1-az1", "use1-az2"), 2.0)
        assert (cart.name, cart.detector["false_isolations"]) == ("cart", 0.2)

    def test_statuses_that_are_faults_are_5xx_unless_told(self, tmp_path: Path) -> None:
        text = WORKLOAD + "fault_statuses = ['5xx', '429']\n" + WORKLOAD.replace("shop", "cart")
        shop, cart = load(self.write(tmp_path, text), {}).settings.workload
        assert (shop.fault_statuses, cart.fault_statuses) == (("5xx", "429"), ("5xx",))

    def test_origins_tell_the_elements_apart(self, tmp_path: Path) -> None:
        text = WORKLOAD + WORKLOAD.replace("shop", "cart") + "[workload.detector]\nfalse_isolations = 3\n"
        file = self.write(tmp_path, text)
        shown = {format_path(place): (value, origin) for place, value, origin in load(file, {}).list_effective()}
        assert shown["workload[0].detector.false_isolations"] == (0.2, "default")
        assert shown["workload[1].detector.false_isolations"] == (3.0, str(file))

    @pytest.mark.parametrize(
        ("change", "line", "complaint"),
        [
            (("'shop'", "3"), 2, "workload[0].name: expected text, found 3"),
            (("region", "regoin"), 3, "workload[0].regoin: there is no such setting; did you mean region?"),
            (("'use1-az2'", "7"), 4, "workload[0].zones[1]: expected text, found 7"),
            (("['use1-az1', 'use1-az2']", "'use1-az1'"), 4, "workload[0].zones: expected a list, found"),
            (("'use1-az2'", "'use1-az1'"), 4, "workload[0].zones: expected every zone once, found use1-az1, use1-az1"),
            ((", 'use1-az2'", ""), 4, "workload[0].zones: expected at least 2 zones, found 1"),
            (("[[workload]]", "[workload]"), 1, "workload: expected a list, found a table: write [[workload]], not ["),
            (
                (END, END + "[workload.canary]\n"),
                5,
                "workload[0].canary: expected a list, found a table: write [[workload.canary]], not [workload.canary]",
            ),
            (
                ("zones = ['use1-az1', ", "zones = ['euw1-az1', "),
                4,
                "workload[0].zones: euw1-az1 is a zone of eu-west-1",
            ),
            (
                ("['use1-az1', 'use1-az2']", f"{[f'use1-az{number}' for number in range(33)]}"),
                4,
                "workload[0].zones: expected at most 32 zones, found 33",
            ),
            (("'shop'", "'a b'"), 2, "workload[0].name: expected text matching regex"),
            (
                (END, END + "fault_statuses = ['5xx', '3xx']\n"),
                5,
                "workload[0].fault_statuses: '3xx' is no status that can be a fault: expected 4xx, 5xx, or a single",
            ),
            ((END, END + "fault_statuses = []\n"), 5, "workload[0].fault_statuses: no status would be a fault"),
            ((END, END + "fault_statuses = [429]\n"), 5, "workload[0].fault_statuses[0]: expected text, found 429"),
            (
                (END, END + "detector = {name = 'oracle'}\n"),
                5,
                "workload[0].detector.name: no detector is called 'oracle': expected one of",
            ),
            ((END, END + "detector = {name = 3}\n"), 5, "workload[0].detector.name: expected text, found 3"),
            (
                (END, END + "detector = {windoes = 3}\n"),
                5,
                "workload[0].detector.windoes: unknown option of detector calibrated",
            ),
            (
                (END, END + "detector = {name = 'threshold', consecutive_windows = 'x'}\n"),
                5,
                "workload[0].detector.consecutive_windows: expected a whole number, found text",
            ),
            (
                (END, END + "detector = {name = 'threshold', consecutive_windows = 0}\n"),
                5,
                "workload[0]: detector.consecutive_windows is 0: expected 1 or more",
            ),
        ],
    )
    def test_what_is_wrong_in_an_element_is_named_with_its_place(
        self, tmp_path: Path, change: tuple[str, str], line: int, complaint: str
    ) -> None:
        file = self.write(tmp_path, WORKLOAD.replace(*change))
        with pytest.raises(SettingsError) as caught:
            load(file, {})
        assert str(caught.value).startswith(f"{file}, line {line}: {complaint}")

    def test_a_setting_that_is_missing_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match=r"holdfast.toml, line 1: workload\[0\].zones is missing$"):
            load(self.write(tmp_path, "[[workload]]\nname = 'shop'\nregion = 'us-east-1'\n"), {})

    def test_a_name_that_is_given_twice_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match="expected every workload's name once, found shop, shop"):
            load(self.write(tmp_path, WORKLOAD * 2), {})

    def test_an_element_has_no_variable(self) -> None:
        with pytest.raises(SettingsError, match="names no setting"):
            load(environment={"HOLDFAST_WORKLOAD__NAME": "x"})


QUEUE = """[[queue]]
name = "mail"
lease = 5
spill_above = "none"
[queue.limits]
spill_rate = 3
[[queue.tenant]]
name = "tenant-ä"
limits = { concurrency = 2, over_max_rate = "delay" }
"""


class TestQueues:
    def test_a_queue_has_the_defaults_of_every_queue_and_what_is_set(self, write: Write) -> None:
        (queue,) = load(write(QUEUE), {}).settings.queue
        assert queue.name == "mail"
        assert queue.policy == QueuePolicy(lease=5.0, spill_above=None, limits=Limits(spill_rate=3.0))
        assert type(queue.policy) is QueuePolicy, "what is kept knows nothing of settings"
        assert queue.own_limits == {"tenant-ä": Limits(concurrency=2, over_max_rate=OverMaxRate.DELAY)}
        assert {type(limits) for limits in [queue.policy.limits, *queue.own_limits.values()]} == {Limits}
        (plain,) = load(write("[[queue]]\nname = 'x'"), {}).settings.queue
        assert (plain.policy, plain.own_limits) == (QueuePolicy(), {})

    def test_every_setting_of_a_queue_is_shown_with_its_default_and_its_origin(self, write: Write) -> None:
        file = write(QUEUE)
        shown = {format_path(place): (value, origin) for place, value, origin in load(file, {}).list_effective()}
        expected = {f"queue[0].{name}" for name in QueuePolicy.__struct_fields__ if name != "limits"}
        for table in ("queue[0].limits", "queue[0].tenant[0].limits"):
            expected |= {f"{table}.{name}" for name in Limits.__struct_fields__}
        expected |= {"queue[0].name", "queue[0].tenant[0].name"}
        assert {name for name in shown if name.startswith("queue[")} == expected
        assert shown["queue[0].lanes"] == (128, "default")
        assert shown["queue[0].lease"] == (5.0, str(file))
        assert shown["queue[0].spill_above"] == (None, str(file))
        assert shown["queue[0].limits.over_max_rate"] == ("refuse", "default")
        assert shown["queue[0].tenant[0].limits.over_max_rate"] == ("delay", str(file))

    @pytest.mark.parametrize(
        ("change", "line", "expected"),
        [
            (("lease = 5", "lease = 'x'"), 3, 'queue[0].lease: expected a number, found "x"'),
            (("lease = 5", "lanes = 0"), 3, "queue[0]: lanes 0: expected a whole number from 1 to 4096"),
            (("lease = 5", "lanes_per_tenant = 3\nlanes = 2"), 3, "queue[0]: lanes_per_tenant 3: expected "),
            (("lease = 5", "lesse = 5"), 3, "queue[0].lesse: there is no such setting; did you mean lease?"),
            (('"none"', '"never"'), 4, 'queue[0].spill_above: expected a whole number or "none", found "never"'),
            (("lease = 5", "lease = 'none'"), 3, 'queue[0].lease: expected a number, found "none"'),
            (("spill_rate = 3", "spill_rate = -3"), 6, "queue[0].limits: spill_rate -3.0: expected a number from "),
            (
                ("spill_rate = 3", "spil_rate = 3"),
                6,
                "queue[0].limits.spil_rate: there is no such setting; did you mean spill_rate?",
            ),
            (
                ('"delay"', '"x"'),
                9,
                'queue[0].tenant[0].limits.over_max_rate: expected one of refuse, delay, found "x"',
            ),
            (("concurrency = 2", "concurrency = 0"), 9, "queue[0].tenant[0].limits: concurrency 0: expected "),
            (('"tenant-ä"', f'"{"ä" * 129}"'), 8, "queue[0].tenant[0]: name 'ä"),
            (('"tenant-ä"', '"a\\u0000"'), 8, "queue[0].tenant[0]: name 'a\\x00': expected at most 256 UTF-8 bytes"),
            (('"mail"', '"a b"'), 2, "queue[0].name: expected text matching regex"),
        ],
    )
    def test_what_is_wrong_with_a_queue_is_told_with_its_line_and_what_is_expected(
        self, write: Write, change: tuple[str, str], line: int, expected: str
    ) -> None:
        assert change[0] in QUEUE
        file = write(QUEUE.replace(*change))
        assert complaint(file).startswith(f"{file}, line {line}: {expected}")

    def test_a_queue_and_a_tenant_are_there_once(self, write: Write) -> None:
        assert "expected every queue's name once, found mail, mail" in complaint(write(QUEUE * 2))
        tenant = '[[queue.tenant]]\nname = "t"\nlimits = {}\n'
        assert "queue[0]: expected every tenant's name once, found t, t" in complaint(
            write(f'[[queue]]\nname = "x"\n{tenant * 2}')
        )

    def test_a_file_may_be_called_none(self, write: Write) -> None:
        assert load(write("[agent]\nfile = 'none'\nworkload = 'none'\n"), {}).settings.agent.file == Path("none")

    def test_text_that_may_be_left_out_is_told_as_text(self, write: Write) -> None:
        assert complaint(write("[aws]\nregion = 3")).endswith("aws.region: expected text, found 3")
