"""Which statements a work may run."""

import pytest

from holdfast import InvalidValue
from holdfast.engines.database import require_portable
from tests.table import rows


@rows(
    "sql",
    [
        "select $1, $2, $1",
        "select '?', ':name', '; x', '$9' -- ? ; commit\n;",
        'select "a?b" /* :name ; $7 */',
        "insert into item values ($1) on conflict do nothing",
        "select case when $1 then 2 end",
        "create table ending (beginning text)",
        "select $1::text",
        "do $body$ begin raise exception 'as told'; end $body$",
        "select $$ ; ? commit $$, $1",
    ],
)
def test_what_every_engine_takes_is_taken(sql: str) -> None:
    require_portable(sql)


@pytest.mark.parametrize("sql", ["select ?", "select ?1", "select :name", "select 1; select 2", "select 1;x"])
def test_other_parameters_and_further_statements_are_refused(sql: str) -> None:
    with pytest.raises(InvalidValue, match="as every engine accepts them"):
        require_portable(sql)


@pytest.mark.parametrize("sql", ["select $2, $1", "select $2", "select $1, $3", "select $0"])
def test_parameters_out_of_order_are_refused(sql: str) -> None:
    with pytest.raises(InvalidValue, match=r"in the order \$1, \$2"):
        require_portable(sql)


@rows(
    "sql",
    [
        "begin",
        "  COMMIT;",
        "end transaction",
        "rollback",
        "/* well */ rollback",
        "-- well\ncommit",
        "savepoint a",
        "release a",
        "start transaction",
        "abort",
        "prepare transaction 'a'",
        "insert or rollback into item values (1)",
    ],
)
def test_the_transaction_is_left_to_the_engine(sql: str) -> None:
    with pytest.raises(InvalidValue, match="must not begin, commit or roll back"):
        require_portable(sql)
