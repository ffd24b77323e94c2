"""The zip of the functions."""

import io
import zipfile

from holdfast.aurora.machine import Function
from holdfast.aurora.package import build_package, find_modules


def test_it_contains_the_modules_that_the_functions_import_and_no_others() -> None:
    base = {"holdfast", "holdfast._clock", "holdfast._errors", "holdfast._multi_sink", "holdfast._types"}
    engines = {"holdfast.engines", "holdfast.engines.database", "holdfast.engines.migrations", "holdfast.engines.aws"}
    engines |= {"holdfast.engines.aws.errors", "holdfast.engines.aws.session"}
    parts = ("cluster", "handlers", "lambdas", "machine", "notification", "rules", "schedule")
    aurora = {"holdfast.aurora", *(f"holdfast.aurora.{part}" for part in parts)}
    assert set(find_modules()) == base | engines | aurora


def test_an_import_for_the_type_checker_brings_nothing_along() -> None:
    assert "holdfast.metrics.exporters.emf" not in find_modules("holdfast.metrics")
    assert "holdfast.config" in find_modules("holdfast.cli.output")  # imported in a function


def test_it_depends_on_nothing_but_the_code() -> None:
    with zipfile.ZipFile(io.BytesIO(build_package().content)) as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
    assert {entry.create_system for entry in entries} == {3}
    assert build_package().get_key("shop") == build_package().get_key("shop")


def test_every_function_has_an_entry_point() -> None:
    from holdfast.aurora import lambdas

    assert all(callable(getattr(lambdas, function.replace("-", "_"))) for function in Function)
