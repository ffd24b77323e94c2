"""AWS: sessions, shared clients, assumed roles, pagination, and errors that say what to do.

May import the base only; boto3 is imported nowhere else. Start reading at `session.py`; `errors.py` translates the
errors of botocore.
"""

from holdfast._errors import MissingExtra

try:
    import boto3 as _boto3  # noqa: F401 - only to check that it is installed
except ImportError as error:
    raise MissingExtra("the AWS engine", "aws") from error

from holdfast.engines.aws.session import AwsOptions, AwsSession

__all__ = ["AwsOptions", "AwsSession"]
