"""Keys by which a message is known again, each for its own time."""

from holdfast.queue.backends.memory.keys import Keys, Known


def test_a_key_is_forgotten_when_its_time_is_over() -> None:
    keys = Keys()
    keys.keep(1, "a", Known(message=7, lane=0, expires=100))
    keys.keep(2, "a", Known(message=8, lane=0, expires=200))
    keys.forget(100)
    assert keys.find(1, "a") is None
    assert keys.find(2, "a") == Known(message=8, lane=0, expires=200)
    assert len(keys) == 1


def test_a_shorter_time_holds_for_those_that_are_known_too() -> None:
    keys = Keys()
    keys.keep(1, "a", Known(message=7, lane=0, expires=100))
    keys.keep(1, "b", Known(message=8, lane=0, expires=50))
    keys.end_by(60)
    assert keys.find(1, "a") == Known(message=7, lane=0, expires=60)
    assert keys.find(1, "b") == Known(message=8, lane=0, expires=50)
    keys.forget(60)
    assert len(keys) == 0


def test_it_is_known_which_tenants_have_keys() -> None:
    keys = Keys()
    for name, expires in (("a", 100), ("b", 300)):
        keys.keep(1, name, Known(message=expires, lane=0, expires=expires))
    keys.end_by(200)
    assert (keys.has_any(1), keys.has_any(2)) == (True, False)
    keys.forget(100)
    assert keys.has_any(1)
    keys.forget(200)
    assert not keys.has_any(1)
