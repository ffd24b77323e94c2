"""An error of Holdfast as one of another library as well, so that callers' `except` clauses go on working. Pure."""

from collections.abc import Iterable

from holdfast._errors import HoldfastError


def twin_of(
    error: HoldfastError, twins: Iterable[tuple[type[HoldfastError], type[HoldfastError]]]
) -> HoldfastError | None:
    """The error as the class that stands beside its own: same words, same cause, same notes. None: it has no twin.

    Whatever else was left on it goes along, such as the sign of the call that raised it.
    """
    for kind, twin in twins:
        if isinstance(error, kind):
            other = twin(str(error))
            vars(other).update(vars(error))
            if hasattr(error, "__notes__"):
                other.__notes__ = [*error.__notes__]
            other.__cause__ = error.__cause__
            return other
    return None
