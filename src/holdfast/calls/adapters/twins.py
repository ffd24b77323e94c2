"""An error of Holdfast as one of another library as well, so that callers' `except` clauses go on working. Pure."""

from collections.abc import Iterable

from holdfast._errors import HoldfastError


def twin_of(
    error: HoldfastError, twins: Iterable[tuple[type[HoldfastError], type[HoldfastError]]]
) -> HoldfastError | None:
    """The error as the class that stands beside its own: same words, same cause, same notes. None: it has no twin."""
    for kind, twin in twins:
        if isinstance(error, kind):
            other = twin(str(error))
            for note in getattr(error, "__notes__", ()):
                other.add_note(note)
            other.__cause__ = error.__cause__
            return other
    return None
