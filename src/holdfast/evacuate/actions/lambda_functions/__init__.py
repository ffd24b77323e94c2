"""Remove the subnets of a zone from Lambda functions.

Start reading at `action.py`.
"""

from holdfast.evacuate.actions.lambda_functions.action import LambdaFunctions

__all__ = ["LambdaFunctions"]
