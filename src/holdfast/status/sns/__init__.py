"""Zone statuses over Amazon SNS: the server publishes, hosts subscribe at boot, and believe only what SNS signed.

May import the base and the AWS engine; cryptography is imported nowhere else. Start reading at `receiver.py`; what
makes a message genuine is in `message.py`.
"""

from holdfast._errors import MissingExtra

try:
    import cryptography as _cryptography  # noqa: F401 - only asked whether they are there

    import holdfast.engines.aws as _aws  # noqa: F401
except ImportError as error:
    raise MissingExtra("the SNS channel", "sns") from error

from holdfast.status.sns.receiver import SnsPublisher, SnsReceiver, subscribe, unsubscribe

__all__ = ["SnsPublisher", "SnsReceiver", "subscribe", "unsubscribe"]
