"""Find the pure modules, and check with an import-linter contract that they are pure.

A pure module only decides. It has no I/O, clock, randomness, thread or driver of its own; a store, a sink or a time may
be passed in. The word "Pure." in its docstring marks it. The coverage gate reads the mark through `scripts/pure`, and
the linter through PureContract.
"""

import ast
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

_MARK = re.compile(r"\bPure\.")


def is_pure(source: Path) -> bool:
    """Return whether the docstring of the module at `source` carries the mark."""
    return _MARK.search(ast.get_docstring(_parse(source)) or "") is not None


def pure_modules(folder: Path) -> list[Path]:
    """Return the files of all pure modules below `folder`, in order."""
    return [path for path in sorted(folder.rglob("*.py")) if is_pure(path)]


class PureContract(Contract):
    """A contract that forbids pure modules to import external modules that are not `allowed`, even indirectly.

    It lists allowed modules, not forbidden ones, so that it needs no edit to refuse the next driver. A name covers
    everything below it: `urllib.parse` covers `from urllib.parse import quote`, but not `import urllib.request`.
    Imports for the type checker only do not count, because they are not executed, nor do the packages that contain a
    module. The imports of our own modules that are `allowed` are not checked.
    """

    allowed = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002 - the base class has them
        sources = {name: path for root in self.session_options["root_packages"] for name, path in _sources(root)}
        imports = {name: sorted(set(_imports(path))) for name, path in sources.items()}
        chains = [
            chain
            for name, path in sorted(sources.items())
            if is_pure(path) and (chain := self._shortest_chain(name, imports))
        ]
        return ContractCheck(kept=not chains, metadata={"chains": chains})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for module, *path in check.metadata["chains"]:
            output.print_error(f"{module} is marked as pure, but imports {' -> '.join(path)}", bold=False)
        output.new_line()

    def _shortest_chain(self, module: str, imports: dict[str, list[str]]) -> tuple[str, ...] | None:
        """Return the shortest chain of imports from `module` to a name that is not allowed, or None."""
        allowed: set[str] = set(self.allowed)  # type: ignore[call-overload]
        roots = {name.partition(".")[0] for name in imports}
        waiting: list[tuple[str, ...]] = [(module,)]
        seen = {module}
        for chain in waiting:  # grows while it is read: breadth first
            for name in imports[chain[-1]]:
                if name.partition(".")[0] not in roots:
                    if allowed.isdisjoint(_prefixes(name)):
                        return (*chain, name)
                    continue
                # `from package import name` imports a module of that name, or else a name from the package itself.
                found = name if name in imports else name.rpartition(".")[0]
                if found not in seen and found not in allowed:
                    seen.add(found)
                    waiting.append((*chain, found))
        return None


def _sources(root: str) -> Iterator[tuple[str, Path]]:
    """Yield the name and the file of every module of the package `root`."""
    found = find_spec(root)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"there is no package {root}")
    folder = Path(found.origin).parent
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        yield ".".join((root, *(parts[:-1] if parts[-1] == "__init__" else parts))), path


def _imports(source: Path) -> Iterator[str]:
    """Yield the imports of a module, including those inside functions: `a.b.c` for `from a.b import c`."""
    waiting: list[ast.AST] = [_parse(source)]
    for node in waiting:
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{name.name}" for name in names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise):
                waiting += otherwise
            case _:
                waiting += ast.iter_child_nodes(node)


def _prefixes(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts) + 1)}


def _parse(source: Path) -> ast.Module:
    return ast.parse(source.read_text(encoding="utf-8"), str(source))


if __name__ == "__main__":
    sys.stdout.writelines(f"{path}\n" for path in pure_modules(Path("src")))
