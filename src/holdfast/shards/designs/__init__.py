"""Designs: shards of which no two share more than a stated number of workers, by construction and without a search.

A design deals in numbers only: workers are 0 to `workers` - 1, shards 0 to `capacity` - 1. Pure. Start reading at
`design.py`; each other module is one construction.
"""

from holdfast.shards.designs.design import Design, Disjoint, Families, Pairs, Tuples
from holdfast.shards.designs.parity import Parity
from holdfast.shards.designs.polynomials import Polynomials
from holdfast.shards.designs.quadruples import Quadruples

__all__ = ["Design", "Disjoint", "Families", "Pairs", "Parity", "Polynomials", "Quadruples", "Tuples"]
