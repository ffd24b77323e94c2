"""Remove the subnets of a zone from ECS services.

Start reading at `action.py`; the rules about deployments are in `deployments.py`.
"""

from holdfast.evacuate.actions.ecs_services.action import EcsServices

__all__ = ["EcsServices"]
