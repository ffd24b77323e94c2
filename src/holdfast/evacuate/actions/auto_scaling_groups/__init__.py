"""Remove the subnets of a zone from Auto Scaling groups.

Start reading at `action.py`; the rule for balancers without cross-zone load balancing is in
`holdfast.evacuate.zonal_traffic`.
"""

from holdfast.evacuate.actions.auto_scaling_groups.action import AutoScalingGroups

__all__ = ["AutoScalingGroups"]
