"""Where the events of calls go; each sink fulfils `holdfast.Sink`: it never raises, and waits for nobody far away.

What is written to a stream, and what a handler of logs does, happens in the thread that makes the call: as long as that
takes, the call waits.

May import the rest of calls. Each is imported by its own name: `logs`, `prometheus`, `opentelemetry` (an extra), `emf`
for CloudWatch, `outcomes` for the detectors, and `several` for more than one. Give it to `Dependency(sink=...)`.
"""
