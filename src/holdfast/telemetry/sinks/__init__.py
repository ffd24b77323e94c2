"""Where telemetry goes; each sink fulfils `holdfast.Sink`: it never raises and never waits."""
