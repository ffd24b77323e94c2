"""What an assignment of tenants to workers means when things fail: as numbers, and as pictures.

May import the fleet, the base and NumPy, which nobody needs who only has shards. Everything is pure. Start reading at
`report.py` for what there is to know, and at `table.py` for what goes in.
"""

from holdfast._errors import MissingExtra

try:
    import numpy as _numpy  # noqa: F401 - only asked whether it is there
except ImportError as error:
    raise MissingExtra("reports on shards", "shards") from error

from holdfast.shards.report.blast import Blast, Peak, Worst, blast, worst
from holdfast.shards.report.load import Load, Range, SharedHost, by_host, load, slack
from holdfast.shards.report.overlap import Neighbours, Overlaps, overlaps, worst_neighbours
from holdfast.shards.report.picture import histogram, matrix
from holdfast.shards.report.report import Report, report
from holdfast.shards.report.table import Table, table_of

__all__ = [
    "Blast",
    "Load",
    "Neighbours",
    "Overlaps",
    "Peak",
    "Range",
    "Report",
    "SharedHost",
    "Table",
    "Worst",
    "blast",
    "by_host",
    "histogram",
    "load",
    "matrix",
    "overlaps",
    "report",
    "slack",
    "table_of",
    "worst",
    "worst_neighbours",
]
