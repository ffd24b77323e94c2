"""The settings: the file `holdfast.toml`, overridden by environment variables, decoded into frozen values.

May import the base and the option classes of the parts. Start reading at `settings.py`, which defines all settings;
`load.py` reads them.
"""

from holdfast.config.alerts import AlertSettings, HeartbeatSettings
from holdfast.config.canaries import CanarySettings
from holdfast.config.load import DEFAULT_SETTINGS_FILE, SETTINGS_FILE_VARIABLE, LoadedSettings, load
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
    "DEFAULT_SETTINGS_FILE",
    "SETTINGS_FILE_VARIABLE",
    "AlertSettings",
    "CanarySettings",
    "DatabaseSettings",
    "DatabaseUrl",
    "HeartbeatSettings",
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
