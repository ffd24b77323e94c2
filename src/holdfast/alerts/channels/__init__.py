"""The built-in channels of alerts, one module each. Each registers itself with `holdfast.alerts.CHANNELS`."""
