"""What exists is documented, and what is documented exists."""

import posixpath
from pathlib import Path

import pytest

from tests.docs import checks, facts
from tests.docs.facts import Failure, Route, Setting
from tests.docs.pages import ROOT, Page, parse, paths, read


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    return {page.name: page for page in map(read, paths())}


def test_every_command_and_option_is_documented(pages: dict[str, Page]) -> None:
    assert checks.check_commands(facts.commands(), pages["docs/reference/commands.md"]) == []


def test_no_page_calls_a_command_or_option_that_does_not_exist(pages: dict[str, Page]) -> None:
    assert checks.check_calls(facts.commands(), pages.values()) == []


def test_every_setting_is_documented(pages: dict[str, Page]) -> None:
    assert checks.check_settings(facts.settings(), pages["docs/reference/settings.md"]) == []


def test_no_page_names_a_setting_or_variable_that_does_not_exist(pages: dict[str, Page]) -> None:
    assert checks.check_setting_names(facts.settings(), pages.values()) == []


def test_every_public_name_is_documented(pages: dict[str, Page]) -> None:
    assert checks.check_names(facts.public_names(), pages["docs/reference/library.md"]) == []


def test_every_error_is_documented(pages: dict[str, Page]) -> None:
    assert checks.check_errors(facts.errors(), pages["docs/reference/errors.md"]) == []


def test_every_route_is_documented(pages: dict[str, Page]) -> None:
    assert checks.check_routes(facts.routes(), pages["docs/reference/http.md"]) == []


def test_no_page_names_a_path_that_does_not_exist(pages: dict[str, Page]) -> None:
    assert checks.check_paths(facts.routes(), pages.values()) == []


def test_every_exit_code_is_documented(pages: dict[str, Page]) -> None:
    assert checks.check_exit_codes(facts.exit_codes(), pages["docs/reference/commands.md"]) == []


@pytest.mark.parametrize("page", facts.OPTIONS)
def test_every_field_of_options_is_documented(pages: dict[str, Page], page: str) -> None:
    assert checks.check_options(facts.options(page), pages[page]) == []


def test_every_make_target_is_documented(pages: dict[str, Page]) -> None:
    guides = [pages["README.md"], pages["CONTRIBUTING.md"]]
    assert checks.check_targets(facts.targets(), guides, pages.values()) == []


def test_the_layers_are_drawn_as_they_are_enforced(pages: dict[str, Page]) -> None:
    assert checks.check_layers(facts.layers(), pages["ARCHITECTURE.md"]) == []


def test_links_between_files_lead_somewhere(pages: dict[str, Page]) -> None:
    links = {Path(name).parent / link.partition("#")[0] for name, page in pages.items() for link in page.links}
    files = [posixpath.normpath(link) for link in links if (ROOT / link).exists()]
    assert checks.check_links(pages.values(), files) == []


def test_no_page_names_a_file_that_does_not_exist(pages: dict[str, Page]) -> None:
    assert checks.check_files(pages.values(), lambda name: (ROOT / name).exists()) == []


def test_the_menu_of_the_site_leads_to_every_page(pages: dict[str, Page]) -> None:
    written = {name.removeprefix("docs/") for name in pages if name.startswith("docs/")}
    assert checks.differ("page", written, facts.navigation()) == []


def test_the_facts_are_found() -> None:
    """A walk that finds nothing would let everything pass."""
    assert {"--role", "--tenant", "--json"} <= facts.commands()["holdfast credential create"]
    assert "TARGET" in facts.commands()["holdfast backup"]
    assert facts.settings()["server.port"] == Setting("HOLDFAST_SERVER__PORT", "8470", frozenset({"0", "65535"}))
    assert facts.settings()["log.level"].limits == {"debug", "info", "warning", "error"}
    assert facts.settings()["telemetry.bin_seconds"] == Setting(
        "HOLDFAST_TELEMETRY__BIN_SECONDS", "10.0", frozenset({"0.5", "600"})
    )
    assert facts.settings()["workload[].name"] == Setting("-", "required", frozenset({"1", "128"}))
    assert facts.settings()["workload[].zones"] == Setting("-", "required", frozenset({"2", "32"}))
    assert facts.settings()["workload[].detector.consecutive_windows"] == Setting("-", "2", frozenset())
    assert facts.packages() == set(facts.PACKAGES)
    assert "SqliteDatabase" in facts.public_names()["holdfast.engines.sqlite"]
    assert "ServerSink" in facts.public_names()["holdfast.telemetry.sinks.server"]
    assert "logger" not in facts.public_names()["holdfast.telemetry.sinks.server"]
    assert facts.public_names()["holdfast.testing.plugin"] == {"CallsUnderTest", "holdfast_calls"}
    assert facts.errors()["DatabaseLocked"] == Failure("database-locked", 503, 3)
    assert facts.errors()["NoEndpoint"] == Failure("no-endpoint", 503, 3)
    assert facts.routes()["GET /v1/whoami"].needs_credential
    assert not facts.routes()["GET /health"].needs_credential
    assert facts.routes()["GET /openapi.json"] == facts.routes()["GET /"] == Route(False, frozenset())
    assert not any(path.startswith("GET /openapi/") for path in facts.routes())
    assert facts.routes()["GET /v1/status/socket"] == Route(False, frozenset())
    assert facts.routes()["PUT /v1/zones/{zone}"].needs_credential
    assert "DynamoStatusStore" in facts.public_names()["holdfast.status.stores.dynamodb"]
    assert {0, 1, 2, 130} <= facts.exit_codes()
    assert facts.options("docs/reference/engines.md")["PostgresOptions"]["max_connections"] == "10"
    assert {"test", "demo"} <= facts.targets()
    assert ["server"] in facts.layers()
    assert "index.md" in facts.navigation()


COMMANDS = {"holdfast go": {"--far", "FILE"}, "holdfast show all": {"--json"}}
GO = "## `holdfast go`\n\n|a|b|\n|-|-|\n|`--far`|x|\n|`FILE`|x|\n\n```console\n$ holdfast go --far\n```\n"
SHOW = "## `holdfast show all`\n\n|a|b|\n|-|-|\n|`--json`|x|\n\n```console\n$ holdfast show all\n```\n"


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        (GO + SHOW, []),
        (GO, ["command holdfast show all is not documented"]),
        (GO + SHOW + "## `holdfast stop`", ["command holdfast stop does not exist"]),
        (GO.replace("|`--far`|x|\n", "") + SHOW, ["option of holdfast go --far is not documented"]),
        (GO.replace("FILE", "PLACE") + SHOW, [
            "option of holdfast go FILE is not documented", "option of holdfast go PLACE does not exist"]),
        (GO.replace("```console", "```text") + SHOW, ["holdfast go has no example"]),
    ],
)  # fmt: skip
def test_commands_are_compared(text: str, complaints: list[str]) -> None:
    assert checks.check_commands(COMMANDS, parse("page.md", text)) == complaints


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("`holdfast go --far x`", None),
        ("`holdfast go --help`", None),
        ("`holdfast --version`", None),
        ("`holdfast show`", None),
        ("```console\n$ a=$(holdfast show all --json)\n```", None),
        ("the holdfast word in a sentence, `holdfast.engines`", None),
        ("`holdfast stop`", "no such command"),
        ("`holdfast show none`", "no such command"),
        ("`holdfast go --near`", "no option --near"),
        ("```console\n$ a=$(holdfast show all --far)\n```", "no option --far"),
        ("```console\n$ true | holdfast stop\n```", "no such command"),
    ],
)
def test_calls_are_compared(text: str, problem: str | None) -> None:
    complaints = checks.check_calls(COMMANDS, [parse("page.md", text)])
    assert [complaint.rpartition(": ")[2] for complaint in complaints] == ([problem] if problem else [])


SETTINGS = {
    "log.size": Setting("HOLDFAST_LOG__SIZE", "10", frozenset({"1", "99"})),
    "tree[].leaf.color": Setting("-", "required", frozenset()),
}
SIZE = "|a|b|c|d|e|\n|-|-|-|-|-|\n|`log.size`|`HOLDFAST_LOG__SIZE`|number, 1 to 99|`10`|How large.|\n"
COLOR = "|`tree[].leaf.color`|-|text|required|Its color.|\n"


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        (SIZE + COLOR, []),
        (COLOR, ["setting log.size is not documented"]),
        (SIZE, ["setting tree[].leaf.color is not documented"]),
        (SIZE + COLOR + "|`log.color`|`X`|text|`1`|x|", ["setting log.color does not exist"]),
        (SIZE.replace("`10`", "`20`") + COLOR, ["setting log.size is 10 by default, not `20`"]),
        (SIZE.replace("99", "98") + COLOR, ["setting log.size: 'number, 1 to 98' does not say 99"]),
        (SIZE.replace("__SIZE", "_SIZE") + COLOR, [
            "setting log.size is set by HOLDFAST_LOG__SIZE, not `HOLDFAST_LOG_SIZE`"]),
        (SIZE.replace("How large.", "") + COLOR, ["setting log.size has no description"]),
        (SIZE + COLOR.replace("|-|", "|`HOLDFAST_TREE__0__LEAF__COLOR`|"), [
            "setting tree[].leaf.color is set by -, not `HOLDFAST_TREE__0__LEAF__COLOR`"]),
        (SIZE + COLOR.replace("required", "`1`"), ["setting tree[].leaf.color is required by default, not `1`"]),
    ],
)  # fmt: skip
def test_settings_are_compared(text: str, complaints: list[str]) -> None:
    text = text if text.startswith("|a|") else SIZE.partition("|`")[0] + text
    assert checks.check_settings(SETTINGS, parse("page.md", text)) == complaints


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        ("`log.size` and `HOLDFAST_LOG__SIZE=1`, `HOLDFAST_SETTINGS`, `other.size`", []),
        ("`tree[].leaf.color`, `tree[0].leaf.color`, `tree[].leaf`", []),
        ("`log.sizes`", ["page.md: no setting log.sizes"]),
        ("`tree[1].leaf.size`", ["page.md: no setting tree[1].leaf.size"]),
        ("`tree[].stem`", ["page.md: no setting tree[].stem"]),
        ("`tree.leaf.color`", ["page.md: no setting tree.leaf.color"]),
        ("`HOLDFAST_LOG__SIZES`", ["page.md: no variable HOLDFAST_LOG__SIZES"]),
        ("```ini\n[Service]\nEnvironment=HOLDFAST_LOG=1\n```", ["page.md: no variable HOLDFAST_LOG"]),
    ],
)
def test_names_of_settings_are_compared(text: str, complaints: list[str]) -> None:
    assert checks.check_setting_names(SETTINGS, [parse("page.md", text)]) == complaints


def test_public_names_are_compared() -> None:
    page = parse("page.md", "## `holdfast.a`\n\n|n|w|\n|-|-|\n|`One`||\n|`Three`|x|\n\n## `holdfast.c`\n")
    assert checks.check_names({"holdfast.a": {"One", "Two"}, "holdfast.b": set()}, page) == [
        "module holdfast.b is not documented",
        "module holdfast.c does not exist",
        "name in holdfast.a Two is not documented",
        "name in holdfast.a Three does not exist",
        "holdfast.a.One has no description",
    ]


def test_errors_are_compared() -> None:
    head = "|c|s|h|e|w|\n|-|-|-|-|-|\n"
    there = {"Lost": Failure("lost", 404, 1), "Full": Failure("full", 507, 1)}
    good = "|`Lost`|`lost`|404|1|Look.|\n|`Full`|`full`|507|1|Wait.|\n"
    assert checks.check_errors(there, parse("page.md", head + good)) == []
    wrong = "|`Lost`|`lost`|400|1||\n|`Gone`|`gone`|410|1|x|\n"
    complaints = checks.check_errors(there, parse("page.md", head + wrong))
    assert [complaint.partition(",")[0] for complaint in complaints] == [
        "error Full is not documented",
        "error Gone does not exist",
        "error Lost is Failure(slug='lost'",
        "error Lost has no advice",
    ]


def test_routes_are_compared() -> None:
    head = "|r|w|e|d|\n|-|-|-|-|\n"
    there = {"GET /a": Route(needs_credential=False, errors=frozenset()), "PUT /b": Route(True, frozenset({401, 503}))}
    good = "|`GET /a`|everybody||x|\n|`PUT /b`|operator|401, 503|x|\n"
    assert checks.check_routes(there, parse("page.md", head + good)) == []
    wrong = "|`GET /a`|viewer|||\n|`GET /b`|operator|401|x|\n|`PUT /b`|operator|401|x|\n"
    assert checks.check_routes(there, parse("page.md", head + wrong)) == [
        "route GET /b does not exist",
        "route GET /a: it is not true that 'viewer' may use it",
        "route GET /a has no description",
        "error of PUT /b 503 is not documented",
    ]


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        ("`/v1/a/{id}`, `DELETE /v1/a/1`, `/v1/b` and `/etc/passwd`", []),
        ("```console\n$ curl -s http://127.0.0.1:8470/v1/a/$id\n```", []),
        ("`/v1/c`", ["page.md: no route /v1/c"]),
        ("`/v1/a/1/2`", ["page.md: no route /v1/a/1/2"]),
        ("```console\n$ curl -s http://127.0.0.1:8470/v2/a\n```", ["page.md: no route /v2/a"]),
    ],
)
def test_paths_are_compared(text: str, complaints: list[str]) -> None:
    there = {"DELETE /v1/a/{id}": Route(True, frozenset()), "GET /v1/b": Route(True, frozenset())}
    assert checks.check_paths(there, [parse("page.md", text)]) == complaints


def test_exit_codes_are_compared() -> None:
    page = parse("page.md", "## Exit codes\n\n|code|what|\n|-|-|\n|`0`|done|\n|`7`|x|\n")
    assert checks.check_exit_codes({0, 1}, page) == ["exit code 1 is not documented", "exit code 7 does not exist"]
    assert checks.check_exit_codes({0}, parse("page.md", "")) == ["exit code 0 is not documented"]


def test_options_are_compared() -> None:
    page = parse("page.md", "## `Options`\n\n|f|d|w|\n|-|-|-|\n|`size`|`1`|x|\n|`color`|`2`|x|\n")
    assert checks.check_options({"Options": {"size": "2", "name": "''"}, "Others": {"a": "1"}}, page) == [
        "field of Options name is not documented",
        "field of Options color does not exist",
        "Options.size is '2' by default, not '`1`'",
        "field of Others a is not documented",
    ]


def test_targets_are_compared() -> None:
    guide = parse("guide.md", "Say `make one`.\n\n```console\n$ make two ARGS=x\n```\n")
    other = parse("other.md", "`make three` and `make four`")
    assert checks.check_targets({"one", "two", "three"}, [guide], [guide, other]) == [
        "target three is not documented",
        "other.md: no target four",
    ]


@pytest.mark.parametrize(
    ("drawing", "complaints"),
    [
        ("a   remarks\nb c\n(d)", []),
        ("a\nb\n(d)", ["layer b | c is not drawn"]),
        ("a\nb c\nd", ["layer (d) is not drawn"]),
        ("b c\na\n(d)", ["layers are out of order"]),
        ("a\nb c\n(d)\nelse", ["layers are out of order"]),
    ],
)
def test_layers_are_compared(drawing: str, complaints: list[str]) -> None:
    page = parse("page.md", f"## Layers\n\n```text\n{drawing}\n```\n")
    assert checks.check_layers([["a"], ["b", "c"], ["(d)"]], page) == complaints


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("b.md", None),
        ("b.md#the-second-part", None),
        ("#a-page", None),
        ("../LICENSE", None),
        ("https://example.com/nowhere", None),
        ("c.md", "c.md leads nowhere"),
        ("../b.md", "../b.md leads nowhere"),
        ("b.md#the-third-part", "b.md#the-third-part names no heading of docs/b.md"),
        ("#nothing", "#nothing names no heading of docs/a.md"),
    ],
)
def test_links_are_followed(link: str, complaint: str | None) -> None:
    pages = [parse("docs/a.md", f"# A page\n\n[text]({link})"), parse("docs/b.md", "## The second part")]
    assert checks.check_links(pages, ["LICENSE"]) == ([f"docs/a.md: {complaint}"] if complaint else [])


def test_pictures_are_looked_for() -> None:
    page = parse("docs/a.md", "![what it shows](assets/a.svg) ![another](assets/b.svg)")
    assert checks.check_links([page], ["docs/assets/a.svg"]) == ["docs/a.md: assets/b.svg leads nowhere"]


def test_files_are_looked_for() -> None:
    page = parse("page.md", "`src/a.py`, `src/b.py`, `tests/` and `other/c.py`")
    assert checks.check_files([page], {"src/a.py", "tests/"}.__contains__) == ["page.md: no file src/b.py"]
