"""`holdfast aurora template` and `package` write files; `deploy` and `remove` never act without being confirmed."""

import json
import zipfile
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run

STACK = ["--prefix", "shop", "--network", "none"]


def test_the_template_and_the_zip_agree_on_the_key(run: Run) -> None:
    template = run("aurora", "template", *STACK).result
    package = run("aurora", "package", "--prefix", "shop", "--output", "functions.zip", "--json").result
    assert template["Resources"]["ModifyInstance"]["Properties"]["Code"]["S3Key"] == package["key"]
    assert package["bytes"] == Path("functions.zip").stat().st_size
    assert "holdfast/aurora/handlers.py" in zipfile.ZipFile("functions.zip").namelist()
    again = run("aurora", "package", "--prefix", "shop", "--output", "functions.zip")
    assert (again.code, "functions.zip exists already" in again.err) == (1, True)
    forced = run("aurora", "package", "--prefix", "shop", "--output", "functions.zip", "--force")
    assert forced.out == f"functions.zip: {package['bytes']} bytes, key {package['key']}\n"


def test_every_option_reaches_the_template(run: Run) -> None:
    words = [
        "--prefix",
        "shop",
        "--network",
        "existing",
        "--subnet",
        "subnet-0123abcd",
        "--security-group",
        "sg-0123abcd",
    ]
    words += ["--scheduler", "scheduler", "--database", "orders*", "--email", "ops@example.com"]
    written = run("aurora", "template", *words, "--autoscaling-pattern", "extra-.*", "--output", "shop.json")
    assert (written.code, written.out) == (0, "")
    assert (
        "shop.json expects the zip of `holdfast aurora package` in CodeBucket, with the key holdfast/shop/"
        in written.err
    )
    text = Path("shop.json").read_text()
    assert set(json.loads(text)["Parameters"]) == {"CodeBucket", "Subnets", "SecurityGroups"}
    for expected in (
        "subnet-0123abcd",
        "sg-0123abcd",
        "ScheduleGroup",
        "cluster:orders*",
        "ops@example.com",
        "extra-.*",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["deploy", *STACK], "add --yes"),
        (["remove", "--prefix", "shop"], "add --yes"),
        (["deploy", "--prefix", "Shop", "--network", "none", "--yes"], "--prefix is 'Shop'"),
        (["package", "--prefix", "../../x", "--output", "functions.zip"], "--prefix is '../../x': expected up to 30"),
        (["remove", "--prefix", "", "--yes"], "--prefix is ''"),
        (["clusters", "--prefix", "shop-"], "--prefix is 'shop-'"),
        (["run", "shop", "--prefix", "Shop", "--class", "db.t4g.medium", "--dry-run"], "--prefix is 'Shop'"),
        (["template", *STACK, "--output", "."], ". is a folder"),
        (["template", "--prefix", "shop"], "--network"),
        (["template", "--prefix", "shop", "--network", "existing"], "at least one subnet"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_done(run: Run, words: list[str], expected: str) -> None:
    ran = run("aurora", *words)
    assert ran.code == 2
    assert expected in ran.err
