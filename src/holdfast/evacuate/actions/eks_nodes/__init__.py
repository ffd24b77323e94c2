"""Keep pods away from the nodes of a zone, through the Kubernetes API of EKS clusters.

Start reading at `action.py`; the rules are in `taints.py`, `pods.py` and `node_pools.py`.
"""

from holdfast.evacuate.actions.eks_nodes.action import EksNodes

__all__ = ["EksNodes"]
