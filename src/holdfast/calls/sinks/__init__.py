"""Where the events of calls go; each sink fulfils `holdfast.Sink`: it never raises and never blocks.

May import the rest of calls. Each is imported by its own name: `logs`, `prometheus`, `opentelemetry` (an extra), `emf`
for CloudWatch, `outcomes` for the detectors, and `several` for more than one. Give it to `Dependency(sink=...)`.
"""
