"""Options and habits that the commands on calls share: pictures, and progress at a terminal."""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

from cyclopts import Parameter

from holdfast._errors import Conflict, InvalidValue
from holdfast.cli.output import new_file

Item = TypeVar("Item")

Svg: TypeAlias = Annotated[Path | None, Parameter(help="A new file for a picture.")]
Force: TypeAlias = Annotated[bool, Parameter(negative="", help="Overwrite the file of --svg.")]


def draw(path: Path | None, picture: Callable[[], str], *, force: bool) -> None:
    """Write a picture, if one is wanted."""
    if path is None:
        return
    drawn = picture().encode()  # first, so that no empty file stays where it cannot be drawn
    with new_file(path, force=force) as file:
        file.write(drawn)


def check_svg(path: Path | None, *, force: bool) -> None:
    """Refuse at once, and not after a long run, what could not be written then."""
    if path is None and force:
        raise InvalidValue("--force is for the file of --svg")
    if path is not None and path.exists() and not force:
        raise Conflict(f"{path} exists already: remove it, or overwrite it with --force")


def told(items: Iterable[Item], count: int, what: str) -> Iterator[Item]:
    """The same items; at a terminal, how many of them are done."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(what, total=count)
        for item in items:
            progress.advance(task)
            yield item
