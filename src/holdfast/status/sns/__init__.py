"""Zone statuses over Amazon SNS: the server publishes, hosts subscribe at start and accept only signed messages.

May import the base and the AWS engine; cryptography is imported nowhere else. Start reading at `receiver.py`; the
checks that a message is genuine are in `message.py`.
"""

from holdfast._errors import MissingExtra

try:
    import cryptography as _cryptography  # noqa: F401 - imported only to check that it is installed

    import holdfast.engines.aws as _aws  # noqa: F401
except ImportError as error:
    raise MissingExtra("the SNS channel", "sns") from error

from holdfast.status.sns.receiver import SnsPublisher, SnsReceiver, subscribe, unsubscribe

__all__ = ["SnsPublisher", "SnsReceiver", "subscribe", "unsubscribe"]
