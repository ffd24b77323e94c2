"""Find the queues that `module:queue` names on the command line."""

from collections.abc import Sequence
from types import ModuleType

from holdfast._errors import InvalidValue
from holdfast._imports import import_target
from holdfast.queue import Queue


def find_queues(targets: Sequence[str]) -> list[Queue]:
    """Return the queues that `targets` name, in order. Raise InvalidValue for a target that is wrong."""
    found: list[Queue] = []
    for target in targets:
        queue = _find(target)
        if any(other.name == queue.name for other in found):
            raise InvalidValue(f"{target}: queue {queue.name} is given twice; expected every queue once")
        found.append(queue)
    return found


def _find(target: str) -> Queue:
    module, path = import_target(target, noun="QUEUE", example="jobs:mail")
    if not path:
        raise InvalidValue(f"{target}: expected MODULE:QUEUE; {_describe_queues(module)}")
    value: object = module
    for step in path.split("."):
        try:
            value = getattr(value, step)
        except AttributeError as error:
            raise InvalidValue(
                f"{target}: there is no {path} in {module.__name__}; {_describe_queues(module)}"
            ) from error
    if not isinstance(value, Queue):
        raise InvalidValue(
            f"{target} is of type {type(value).__name__}: expected a holdfast.queue.Queue; {_describe_queues(module)}"
        )
    if not value.jobs and value.handler is None:
        raise InvalidValue(
            f"{target}: queue {value.name} has no jobs and no handler; expected functions with @{path}.job, or one "
            f"with @{path}.handle, in {module.__name__} or in a module that it imports"
        )
    return value


def _describe_queues(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Queue)]
    if not names:
        return f"there is no queue in {module.__name__}"
    known = "the queue in {} is {}" if len(names) == 1 else "queues in {} are {}"
    return known.format(module.__name__, ", ".join(f"{module.__name__}:{name}" for name in names))
