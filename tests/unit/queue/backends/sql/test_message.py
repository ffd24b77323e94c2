"""What a database can hold at all."""

from holdfast.queue.backends.sql.message import is_storable


def test_text_that_no_database_holds_need_not_be_looked_for() -> None:
    assert is_storable("any text, even ü")
    assert not is_storable("a\0b")
    assert not is_storable("\ud800")
