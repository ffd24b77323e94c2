"""One settings file, `holdfast.toml`, decoded into frozen values; environment variables override it.

May import the base and the parts' own option values. Start reading at `settings.py` for what can be set, and at
`load.py` for where a value comes from.
"""

from holdfast.config.load import DEFAULT_FILE, FILE_VARIABLE, LoadedSettings, load
from holdfast.config.queues import LimitSettings, QueueSettings, TenantSettings
from holdfast.config.settings import (
    DatabaseSettings,
    DatabaseUrl,
    LogSettings,
    MetricsSettings,
    QueueUrl,
    ServerSettings,
    Settings,
    TelemetrySettings,
    WorkloadSettings,
)

__all__ = [
    "DEFAULT_FILE",
    "FILE_VARIABLE",
    "DatabaseSettings",
    "DatabaseUrl",
    "LimitSettings",
    "LoadedSettings",
    "LogSettings",
    "MetricsSettings",
    "QueueSettings",
    "QueueUrl",
    "ServerSettings",
    "Settings",
    "TelemetrySettings",
    "TenantSettings",
    "WorkloadSettings",
    "load",
]
