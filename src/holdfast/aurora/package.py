"""The zip of the Lambda functions: their modules, found by their imports, and nothing else. Lambda provides boto3."""

import ast
import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import holdfast

ENTRY = "holdfast.aurora.lambdas"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold."""
_READABLE_FILE = 0o100644 << 16


@dataclass(frozen=True, slots=True)
class Package:
    """A zip."""

    content: bytes

    def get_key(self, prefix: str) -> str:
        """Return the key of the zip in a bucket. It changes with the content."""
        return f"holdfast/{prefix}/{hashlib.sha256(self.content).hexdigest()}.zip"


def build_package() -> Package:
    """Return the zip of all functions. The same code always gives the same bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, path in sorted(find_modules().items()):
            inside = name.replace(".", "/") + ("/__init__.py" if path.name == "__init__.py" else ".py")
            entry = zipfile.ZipInfo(inside, _EPOCH)
            entry.external_attr = _READABLE_FILE
            entry.create_system = 3  # the attributes are those of Unix, wherever the zip is made
            # Stored, because the bytes of compressed data depend on the version of zlib.
            archive.writestr(entry, path.read_bytes())
    return Package(file.getvalue())


def find_modules(entry: str = ENTRY) -> dict[str, Path]:
    """Return the modules of Holdfast that `entry` imports, directly or through others, with their files."""
    found: dict[str, Path] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        path = _find_file(name)
        if path is None or name in found:
            continue
        found[name] = path
        waiting += [name.rpartition(".")[0], *_find_imports(ast.parse(path.read_bytes()))]
    return found


def _find_file(module: str) -> Path | None:
    """Return the file of a module of Holdfast, or None for any other name."""
    root = Path(holdfast.__file__).parents[1]
    path = root.joinpath(*module.split("."))
    if not module.startswith("holdfast"):
        return None
    return next((file for file in (path / "__init__.py", path.with_name(path.name + ".py")) if file.exists()), None)


def _find_imports(node: ast.AST) -> Iterator[str]:
    """Yield all names that a module imports, except for the type checker. Some are not modules, but names in one."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (module, *(f"{module}.{each.name}" for each in names))
            case _:
                yield from _find_imports(child)
