"""Where the next six calls go: `python zones.py`."""

import sys

from holdfast import Zone
from holdfast.calls import Endpoints, NoEndpoint
from holdfast.status import ZoneTracker

ADDRESSES = {
    Zone("use1-az1"): ["http://10.0.1.10", "http://10.0.1.11"],
    Zone("use1-az2"): ["http://10.0.2.10"],
    Zone("use1-az3"): ["http://10.0.3.10", "http://10.0.3.11"],
}

with ZoneTracker("http://127.0.0.1:8470") as tracker:
    endpoints = Endpoints(ADDRESSES, tracker, "shop")
    tracker.wait(5)  # for the first answer; before it, no zone counts as out
    for _ in range(6):
        try:
            zone, address = endpoints.next()
        except NoEndpoint as error:
            sys.exit(str(error))
        print(zone, address)
