import math
import subprocess
import sys

import pytest

from holdfast import InvalidValue
from holdfast.engines.postgres import PostgresOptions
from tests.table import rows

URL = "postgresql://me:secret@db.example:5433/orders"


@rows(
    ("field", "value", "named"),
    [
        ("min_connections", -1, "min_connections is -1"),
        ("max_connections", 0, "max_connections is 0"),
        ("max_connections", 1, "not less than min_connections, which is 2"),
        ("timeout", -0.5, "timeout is -0.5"),
        ("timeout", math.nan, "timeout is nan"),
        ("timeout", math.inf, "timeout is inf"),
        ("statement_timeout", 0.0, "statement_timeout is 0.0"),
        ("statement_timeout", math.nan, "statement_timeout is nan"),
        ("application_name", "", "application_name is ''"),
        ("application_name", "x" * 64, "expected 1 to 63 characters"),
        ("application_name", "tab\t", "printable ASCII"),
        ("application_name", "Ähm", "printable ASCII"),
    ],
)
def test_a_bad_value_is_named(field: str, value: object, named: str) -> None:
    given: dict[str, object] = {"url": URL, "min_connections": 2, field: value}
    with pytest.raises(InvalidValue, match=named):
        PostgresOptions(**given)  # type: ignore[arg-type]


@rows(
    "url",
    [
        "secret",
        "",
        "host=db.example password=secret",
        "mysql://me:secret@db.example/orders",
        "postgresql://me:100%secret@db.example/orders",
        "postgresql://me:p@secret@db.example/orders?nonsense=secret",
        "postgresql://db.example/orders?nonsense=secret",
        "postgresql://me:p/secret@db.example/orders",
        "postgresql://me:12/secret@db.example/orders",
        "postgresql://me:p@secret@db.example/orders",
        "postgresql://me:p#secret@db.example:port/orders",
        "postgresql://me:[secret@db.example/orders?nonsense",
    ],
)
def test_a_bad_url_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(InvalidValue, match="postgresql://user:password@host:5432/database") as caught:
        PostgresOptions(url=url)
    assert "me:" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_password_is_in_no_repr() -> None:
    options = PostgresOptions(url=URL)
    assert "secret" not in repr(options)
    assert "secret" not in options.location


@rows(
    ("url", "place"),
    [
        (URL, "db.example:5433/orders"),
        ("postgres://db.example/orders", "db.example:5432/orders"),
        ("postgresql://me@/", "localhost:5432/me"),
        ("postgresql:///orders?host=/run/postgresql", "/run/postgresql:5432/orders"),
        ("postgresql://a:1,b:2/orders", "a:1,b:2/orders"),
        ("postgresql://a,b/orders?port=7", "a:7,b:7/orders"),
        ("postgresql://me:12%2F%40%3Fsecret@db.example/orders", "db.example:5432/orders"),
        ("postgresql://a,b:2/orders", "a:5432,b:2/orders"),
        ("postgresql://[::1]:5432/orders", "::1:5432/orders"),
    ],
)
def test_the_place_says_which_server_and_database(url: str, place: str) -> None:
    assert PostgresOptions(url=url).location == place


def test_a_missing_driver_says_what_to_install() -> None:
    program = "import sys; sys.modules['psycopg'] = None; import holdfast.engines.postgres"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "MissingExtra: the PostgreSQL engine needs the extra 'postgres'" in run.stderr
