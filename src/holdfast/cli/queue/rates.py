"""Compute how fast a queue changes between two snapshots, and format times for people. Pure."""

from holdfast.queue.backend import QueueSnapshot


def compute_rate(before: QueueSnapshot | None, now: QueueSnapshot) -> float | None:
    """Return how fast the number of waiting messages grows, per second; None without an earlier snapshot."""
    if before is None:
        return None
    return _rate(before.totals.waiting, now.totals.waiting, now.at - before.at)


def compute_tenant_rates(before: QueueSnapshot | None, now: QueueSnapshot) -> dict[str, float]:
    """Return how fast the number of waiting messages grows, for every tenant that both snapshots list."""
    if before is None:
        return {}
    then = {tenant.tenant: tenant.waiting for tenant in before.tenants}
    found = {
        tenant.tenant: _rate(then[tenant.tenant], tenant.waiting, now.at - before.at)
        for tenant in now.tenants
        if tenant.tenant in then
    }
    return {tenant: rate for tenant, rate in found.items() if rate is not None}


def seconds_until_empty(waiting: int, rate: float | None) -> float | None:
    """Return the estimated seconds until no message waits, or None if their number does not fall."""
    return waiting / -rate if waiting and rate is not None and rate < 0 else None


def _rate(then: int, now: int, seconds: float) -> float | None:
    return (now - then) / seconds if seconds > 0 else None


def format_age(seconds: float | None) -> str:
    """Return a time span for people, in at most two units."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for unit, size, below, part in (("d", 86_400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{unit}{rest}{below}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def format_rate(rate: float | None) -> str:
    """Return a rate of change for people, with its sign."""
    if rate is None:
        return ""
    return "0" if abs(rate) < 0.05 else f"{rate:+,.1f}"
