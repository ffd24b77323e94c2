"""AWS: sessions, clients that are made once and shared, assumed roles, pages, and errors that say what to do.

May import the base only; boto3 is imported nowhere else. Start reading at `session.py`; what an error of botocore
means to a caller is in `errors.py`.
"""

from holdfast._errors import MissingExtra

try:
    import boto3 as _boto3  # noqa: F401 - only asked whether it is there
except ImportError as error:
    raise MissingExtra("the AWS engine", "aws") from error

from holdfast.engines.aws.session import AwsOptions, AwsSession

__all__ = ["AwsOptions", "AwsSession"]
