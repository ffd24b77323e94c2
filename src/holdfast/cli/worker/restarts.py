"""When a process that has died is started again. Pure."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""One that dies at once must not keep a machine busy with starting; and not be forgotten when its trouble is over."""
STEADY_SECONDS = 60.0
"""One that ran for this long was all right: its death has nothing to do with the one before."""


def next_pause(deaths: int, ran: float) -> tuple[int, float]:
    """Deaths in a row after one more, and the seconds before the next start, twice as many each time."""
    deaths = 1 if ran >= STEADY_SECONDS else deaths + 1
    return deaths, min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(deaths - 1, 16))
