"""Labels, deploys, states and resources are read from small CSV files."""

import math
from collections.abc import Callable

import pytest

from holdfast._errors import InvalidValue
from holdfast._types import Operation, Zone, ZoneState
from holdfast.replay.tables import Label, parse_deployments, parse_labels, parse_resources, parse_states
from holdfast.telemetry.context import Deployment, SharedResource
from tests.table import rows


def test_labels_have_a_time_a_kind_and_what_failed() -> None:
    rows = ("", "5,9,Isolated,z1,,", "# later", "10,,shared,,db,", "11,12,instance,z1,,i-1")
    text = "\n".join(("\ufeffstart,end,kind,zone,resource,instance", *rows))
    assert parse_labels("l.csv", text) == [
        Label(start=5, end=9, kind="isolated", zone=Zone("z1")),
        Label(start=10, end=math.inf, kind="shared", resource="db"),
        Label(start=11, end=12, kind="instance", zone=Zone("z1"), instance="i-1"),
    ]
    assert parse_labels("l.csv", "kind,start\r\nregional,1970-01-01T00:00:05Z\r\n")[0].start == 5


def test_deploys_states_and_resources_are_read() -> None:
    assert parse_deployments("d.csv", "start,end,zone\n5,9,z1\n6,8,\n") == [
        Deployment(Zone("z1"), 5, 9),
        Deployment(None, 6, 8),
    ]
    (state,) = parse_states("s.csv", "start,end,zone,state\n5,9,z1,OUT\n")
    assert (state.start, state.end, state.zone, state.state) == (5, 9, "z1", ZoneState.OUT)
    assert parse_resources("r.csv", "resource,operation,zone\ndb,a/w,\nq,a/b,\ndb,a/r,z1\n") == [
        SharedResource("db", (Operation("a", "w"), Operation("a", "r")), Zone("z1")),
        SharedResource("q", (Operation("a", "b"),), None),
    ]


@rows(
    ("parse", "text", "complaint"),
    [
        (parse_labels, "", "t.csv: it is empty: expected a header with start, kind"),
        (parse_labels, "start,zone\n", "t.csv, line 1: the header has no column kind"),
        (parse_labels, "start,kind\n5\n", "t.csv, line 2: expected 2 fields, found 1"),
        (parse_labels, "start,kind\nx,isolated\n", "t.csv, line 2: 'x' is no time"),
        (parse_labels, "start,kind\n5,\n", "line 2: kind is blank"),
        (parse_labels, "start,kind\n5,regional\n6,isolatedd\n", "line 3: kind 'isolatedd': did you mean isolated?"),
        (parse_labels, "start,kind\n5,zonal\n6,share\n", "line 3: kind 'share': did you mean shared? Known kinds are "),
        (parse_labels, "start,kind,zone\n5,isolated,\n", "line 2: zone is blank"),
        (parse_labels, "start,end,kind\n5,4,regional\n", "line 2: end is before start"),
        (parse_labels, "start,kind\n5," + "x" * 140_000, "line 2: field larger"),
        (parse_states, "start,zone,state\n5,,out\n", "line 2: zone is blank"),
        (parse_states, "start,zone,state\n5,z,away\n", "state 'away': expected in, draining, out, returning"),
        (parse_resources, "resource,operation\n,a/b\n", "line 2: resource is blank"),
        (parse_resources, "resource,operation\ndb,b\n", "line 2: operation 'b'"),
    ],
)
def test_a_bad_row_is_named_by_its_line(parse: Callable[[str, str], object], text: str, complaint: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        parse("t.csv", text)
    assert complaint in str(raised.value)
