"""A service that fails twice and then responds: `python prices.py`."""

from holdfast.calls import Dependency

pricing = Dependency("pricing")
trouble = [ConnectionResetError("gone"), TimeoutError("too slow")]


@pricing.call(idempotent=True)
def price(sku: str) -> float:
    """Stands for a request over the network."""
    if trouble:
        raise trouble.pop(0)
    return {"ABC": 9.95}[sku]


print(price("ABC"), f"{pricing.tokens:.0f} tokens left")
