"""Compares what there is with what the documentation says. Pure: facts and pages in, complaints out."""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tests.docs.facts import Failure, Route, Setting
from tests.docs.pages import Page, Section, plain

EVERY_COMMAND = {"--help", "-h", "--version"}
OTHER_VARIABLES = {
    "HOLDFAST_SETTINGS",
    "HOLDFAST_CHROMIUM",
    "HOLDFAST_TOKEN",
    "HOLDFAST_HOST",
    "HOLDFAST_NODE_NAME",
}
HOOK_VARIABLES = {"HOLDFAST_ZONE", "HOLDFAST_WORKLOAD", "HOLDFAST_STATE", "HOLDFAST_ZONES_OUT"}
"""What a hook of the agent is told by."""

_CALL = re.compile(r"(?:^|[\s(;|&])holdfast ([^)|;&<>\n]+)")
_VARIABLE = re.compile(r"\bHOLDFAST_[A-Z][A-Z_]*")
_ADDRESS = re.compile(r"http://127\.0\.0\.1:8470(/[\w/{}$.-]*)")
_PATH = re.compile(r"(?:[A-Z]+ )?(/(?:v1|health|ready|status/|openapi|page)[\w/{}.-]*)")
_FILE = re.compile(r"(?:\.ci|benchmarks|docs|examples|requirements|scripts|src|tests)/[\w./-]*")
_MAKE = re.compile(r"(?:^|\s)make ([a-z]+(?:-[a-z]+)*)")


def check_commands(commands: Mapping[str, set[str]], page: Page) -> list[str]:
    """Each command has a section `holdfast name`, with a table of its options and arguments, and an example."""
    documented = {plain(section.heading): section for section in page.sections if "`holdfast " in section.heading}
    complaints = differ("command", set(commands), set(documented))
    for command, words in commands.items():
        if section := documented.get(command):
            complaints += differ(f"option of {command}", words, first_cells(section))
            if not any(command in block.text for block in section.blocks if block.language == "console"):
                complaints.append(f"{command} has no example")
    return complaints


def check_calls(commands: Mapping[str, set[str]], pages: Iterable[Page]) -> list[str]:
    """Wherever a command is called, it exists, and so do its options."""
    complaints = []
    for page in pages:
        for text in (*page.code, *page.commands):
            for call in _CALL.findall(text):
                complaints += [f"{page.name}: `holdfast {call}`: {problem}" for problem in _problems(commands, call)]
    return complaints


def _problems(commands: Mapping[str, set[str]], call: str) -> list[str]:
    words = call.split()
    if words[0] in {"...", *EVERY_COMMAND}:
        return []
    for length in range(len(words), 0, -1):
        known = commands.get(" ".join(["holdfast", *words[:length]]))
        if known is not None:
            flags = {word.partition("=")[0] for word in words[length:] if word.startswith("-")}
            return [f"no option {flag}" for flag in sorted(flags - known - EVERY_COMMAND)]
    is_group = any(command.startswith(f"holdfast {' '.join(words)} ") for command in commands)
    return [] if is_group else ["no such command"]


def check_settings(settings: Mapping[str, Setting], page: Page) -> list[str]:
    """Each setting has a row: setting, environment variable, type and range, default, what it does."""
    rows = {plain(row[0]): row for section in page.sections for row in section.rows if row[0].startswith("`")}
    complaints = differ("setting", set(settings), set(rows))
    for name, (variable, default, limits) in settings.items():
        if name not in rows:
            continue
        _, said_variable, said_type, said_default, purpose = rows[name]
        if plain(said_variable) != variable:
            complaints.append(f"setting {name} is set by {variable}, not {said_variable}")
        if plain(said_default) != default:
            complaints.append(f"setting {name} is {default} by default, not {said_default}")
        missing = limits - set(re.findall(r"[\w.]+", said_type))
        if missing:
            complaints.append(f"setting {name}: {said_type!r} does not say {', '.join(sorted(missing))}")
        if not purpose:
            complaints.append(f"setting {name} has no description")
    return complaints


def check_setting_names(settings: Mapping[str, Setting], pages: Iterable[Page]) -> list[str]:
    """Wherever a setting or a variable is named, it exists."""
    variables = {setting.variable for setting in settings.values()} | OTHER_VARIABLES | HOOK_VARIABLES
    tables = {name[:end] for name in settings for end in range(len(name)) if name[end] == "."}
    heads = {table.partition(".")[0].removesuffix("[]") for table in tables}
    complaints = []
    for page in pages:
        blocks = [block.text for block in page.blocks]
        for text in (*page.code, *blocks):
            complaints += [f"{page.name}: no variable {word}" for word in set(_VARIABLE.findall(text)) - variables]
        for code in page.code:
            # An element of a list may be named by its position; settings.md names all of them at once.
            name = re.sub(r"\[\d+\]", "[]", code)
            head, dot, _ = name.partition(".")
            is_known = name in settings or name in tables
            if dot and head.removesuffix("[]") in heads and re.fullmatch(r"[a-z_.[\]]+", name) and not is_known:
                complaints.append(f"{page.name}: no setting {code}")
    return complaints


def check_names(names: Mapping[str, set[str]], page: Page) -> list[str]:
    """Each public module has a section of its name, with a row of two cells for each public name."""
    documented = {plain(section.heading): section for section in page.sections if "`holdfast" in section.heading}
    complaints = differ("module", set(names), set(documented))
    for module, words in names.items():
        if section := documented.get(module):
            complaints += differ(f"name in {module}", words, first_cells(section))
            complaints += [f"{module}.{plain(row[0])} has no description" for row in section.rows if not row[1]]
    return complaints


def check_errors(errors: Mapping[str, Failure], page: Page) -> list[str]:
    """Each error class has a row: class, slug, HTTP status, exit code, what to do."""
    rows = {plain(row[0]): row for section in page.sections for row in section.rows if row[0].startswith("`")}
    complaints = differ("error", set(errors), set(rows))
    for name, failure in errors.items():
        if name in rows:
            _, slug, status, code, advice = rows[name]
            said = (plain(slug), status, code)
            if said != (failure.slug, str(failure.status), str(failure.exit_code)):
                complaints.append(f"error {name} is {failure}, not {said}")
            if not advice:
                complaints.append(f"error {name} has no advice")
    return complaints


def check_routes(routes: Mapping[str, Route], page: Page) -> list[str]:
    """Each route has a row: route, who may, errors, what it does."""
    rows = {plain(row[0]): row for section in page.sections for row in section.rows if re.match(r"`[A-Z]+ /", row[0])}
    complaints = differ("route", set(routes), set(rows))
    for name, route in routes.items():
        if name in rows:
            _, who, errors, purpose = rows[name]
            if (who != "everybody") != route.needs_credential:
                complaints.append(f"route {name}: it is not true that {who!r} may use it")
            said = {int(status) for status in re.findall(r"\d+", errors)}
            complaints += differ(f"error of {name}", route.errors, said)
            if not purpose:
                complaints.append(f"route {name} has no description")
    return complaints


def check_paths(routes: Mapping[str, Route], pages: Iterable[Page]) -> list[str]:
    """Wherever a path of the server is named, it exists."""
    known = [re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route.partition(" ")[2])) for route in routes]
    complaints = []
    for page in pages:
        named = [path for code in page.code if (match := _PATH.fullmatch(code)) for path in match.groups()]
        called = [path for command in page.commands for path in _ADDRESS.findall(command)]
        complaints += [
            f"{page.name}: no route {path}"
            for path in (*named, *called)
            if not any(re.fullmatch(pattern, path) for pattern in known)
        ]
    return complaints


def check_exit_codes(codes: Collection[int], page: Page) -> list[str]:
    """The section `Exit codes` has a row for each code."""
    section = page.section("Exit codes")
    said = {int(word) for word in first_cells(section) if word.isdigit()} if section else set()
    return differ("exit code", set(codes), said)


def check_options(options: Mapping[str, Mapping[str, str]], page: Page) -> list[str]:
    """Each class of options has a section of its name, with a row for each field: field, default, what it does."""
    complaints = []
    for name, fields in options.items():
        section = page.section(f"`{name}`")
        rows = {plain(row[0]): row for row in section.rows if row[0].startswith("`")} if section else {}
        complaints += differ(f"field of {name}", set(fields), set(rows))
        for field in fields.keys() & rows.keys():
            if plain(rows[field][1]) != fields[field]:
                complaints.append(f"{name}.{field} is {fields[field]!r} by default, not {rows[field][1]!r}")
    return complaints


def check_targets(targets: Collection[str], guides: Iterable[Page], pages: Iterable[Page]) -> list[str]:
    """Each target of the Makefile is named in a guide, and none is named anywhere that does not exist."""

    def named(page: Page) -> set[str]:
        return {target for text in (*page.code, *page.commands) for target in _MAKE.findall(text)}

    said = {target for page in guides for target in named(page)}
    complaints = [f"target {target} is not documented" for target in sorted(set(targets) - said)]
    return complaints + [
        f"{page.name}: no target {target}" for page in pages for target in sorted(named(page) - set(targets))
    ]


def check_layers(layers: Sequence[Sequence[str]], page: Page) -> list[str]:
    """The section `Layers` begins with a drawing of them: one line for each, with remarks."""
    section = page.section("Layers")
    lines = section.blocks[0].text.splitlines() if section and section.blocks else []
    known = {name for layer in layers for name in layer}
    drawn = [[word for word in line.split() if word in known] for line in lines]
    wanted = [f"layer {' | '.join(layer)}" for layer in layers if list(layer) not in drawn]
    return [f"{layer} is not drawn" for layer in wanted] or ([] if drawn == layers else ["layers are out of order"])


def check_links(pages: Collection[Page], files: Collection[str]) -> list[str]:
    """Links between files lead to a file, and to a heading where they name one."""
    by_name = {page.name: page for page in pages}
    complaints = []
    for page in pages:
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page.name), target)) if target else page.name
            if path not in by_name and path not in files:
                complaints.append(f"{page.name}: {link} leads nowhere")
            elif anchor and anchor not in by_name[path].anchors:
                complaints.append(f"{page.name}: {link} names no heading of {path}")
    return complaints


def check_files(pages: Iterable[Page], exists: Callable[[str], bool]) -> list[str]:
    """Wherever a file or a folder of the project is named, it exists."""
    return [
        f"{page.name}: no file {code}"
        for page in pages
        for code in page.code
        if _FILE.fullmatch(code) and not exists(code)
    ]


def differ(what: str, there: Collection[str] | Collection[int], said: Collection[str] | Collection[int]) -> list[str]:
    """What is not documented, and what is documented but does not exist."""
    missing = [f"{what} {word} is not documented" for word in sorted(set(map(str, there)) - set(map(str, said)))]
    invented = [f"{what} {word} does not exist" for word in sorted(set(map(str, said)) - set(map(str, there)))]
    return missing + invented


def first_cells(section: Section) -> set[str]:
    """The code in the first cells of a section's tables."""
    return {plain(row[0]) for row in section.rows if row[0].startswith("`")}
