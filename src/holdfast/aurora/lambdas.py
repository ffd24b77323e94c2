"""The entry points that Lambda calls. They share one `Functions` object for each Lambda container."""

import logging
from functools import cache

from holdfast.aurora.handlers import Event, Functions, Handler, Response, create_functions
from holdfast.aurora.machine import Function


@cache
def _get_functions() -> Functions:
    # Lambda's own handler writes whatever passes this level; its default is WARNING.
    logging.getLogger("holdfast").setLevel(logging.INFO)
    return create_functions()


def _define(function: Function) -> Handler:
    """Return the entry point of a function."""

    def call(event: Event, context: object) -> Response:
        return _get_functions().find(function)(event, context)

    return call


update_schedule = _define(Function.UPDATE_SCHEDULE)
schedule_scaling = _define(Function.SCHEDULE_SCALING)
modify_instance = _define(Function.MODIFY_INSTANCE)
check_instance_status = _define(Function.CHECK_INSTANCE_STATUS)
get_cluster_instances = _define(Function.GET_CLUSTER_INSTANCES)
failover_cluster = _define(Function.FAILOVER_CLUSTER)
send_notification = _define(Function.SEND_NOTIFICATION)
