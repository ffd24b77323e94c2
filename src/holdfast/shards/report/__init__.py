"""Reports on an assignment of tenants to workers and on the effects of failures: as numbers, and as pictures.

May import the fleet, the base and NumPy, which shards alone do not need. Everything is pure. Start reading at
`report.py` for the results, and at `table.py` for the input.
"""

from holdfast._errors import MissingExtra

try:
    import numpy as _numpy  # noqa: F401 - only to see whether it is installed
except ImportError as error:
    raise MissingExtra("the report on shards (holdfast shards report, blast-radius)", "shards") from error

from holdfast.shards.report.blast_radius import (
    BlastRadius,
    WorstCase,
    WorstCases,
    compute_blast_radius,
    find_worst_cases,
)
from holdfast.shards.report.load import Load, LoadRange, SharedHost, compute_headroom, compute_load, map_to_hosts
from holdfast.shards.report.overlap import NeighbourPair, Overlaps, count_overlaps, find_worst_neighbours
from holdfast.shards.report.picture import draw_histogram, draw_matrix
from holdfast.shards.report.report import Report, build_report
from holdfast.shards.report.table import AssignmentTable, build_table

__all__ = [
    "AssignmentTable",
    "BlastRadius",
    "Load",
    "LoadRange",
    "NeighbourPair",
    "Overlaps",
    "Report",
    "SharedHost",
    "WorstCase",
    "WorstCases",
    "build_report",
    "build_table",
    "compute_blast_radius",
    "compute_headroom",
    "compute_load",
    "count_overlaps",
    "draw_histogram",
    "draw_matrix",
    "find_worst_cases",
    "find_worst_neighbours",
    "map_to_hosts",
]
