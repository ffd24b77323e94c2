"""The detectors that come with Holdfast: one module each, registered by name."""
