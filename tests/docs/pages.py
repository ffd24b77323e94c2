"""What the documentation says: its pages, and the blocks, tables, links and code in them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]

_PARSER = MarkdownIt("commonmark").enable("table")
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: `language title="file name"`."""

    language: str
    text: str
    line: int
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """What stands below one heading, up to the next."""

    heading: str
    rows: list[list[str]] = field(default_factory=list)
    """The cells of its tables, as they are written."""
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file, taken apart."""

    name: str
    sections: list[Section] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    """What stands between single backticks in the running text."""

    @property
    def blocks(self) -> list[Block]:
        return [block for section in self.sections for block in section.blocks]

    @property
    def commands(self) -> list[str]:
        """Every command of its console blocks."""
        return [command for block in self.blocks if block.language == "console" for command, _ in steps(block.text)]

    @property
    def anchors(self) -> set[str]:
        """What a link to a heading may name."""
        return {slug(section.heading) for section in self.sections}

    def section(self, heading: str) -> Section | None:
        return next((section for section in self.sections if section.heading == heading), None)


def paths() -> list[Path]:
    """Every file that is held to what it says."""
    top = [ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def read(path: Path, root: Path = ROOT) -> Page:
    return parse(str(path.relative_to(root)), path.read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Page:
    page = Page(name, [Section("")])
    tokens = _PARSER.parse(text)
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            page.sections.append(Section(tokens[number + 1].content))
        elif token.type == "tr_open":
            page.sections[-1].rows.append([cell.content for cell in _row(tokens[number:])])
        elif token.type == "fence":
            language, _, rest = token.info.strip().partition(" ")
            title = _TITLE.search(rest)
            line = token.map[0] + 1 if token.map else 0
            page.sections[-1].blocks.append(Block(language, token.content, line, title[1] if title else None))
        for child in token.children or ():
            if child.type == "link_open":
                page.links.append(str(child.attrs["href"]))
            elif child.type == "image":
                page.links.append(str(child.attrs["src"]))
            elif child.type == "code_inline":
                page.code.append(child.content)
    return page


def _row(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        if token.type == "tr_close":
            return
        if token.type == "inline":
            yield token


def steps(text: str) -> list[tuple[str, str]]:
    """The commands of a console block (`$ command`, continued by `> `), each with the output that follows it."""
    found: list[tuple[list[str], list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif not found:
            raise ValueError(f"a console block starts with a command, `$ ...`, not with {line!r}")
        elif line.startswith("> ") and not found[-1][1]:
            found[-1][0].append(line[2:])
        else:
            found[-1][1].append(line)
    return [("\n".join(command), "\n".join(output)) for command, output in found]


def plain(cell: str) -> str:
    """A cell or a heading that is one piece of code, without its backticks."""
    return cell[1:-1] if len(cell) > 1 and cell.startswith("`") and cell.endswith("`") else cell


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())
