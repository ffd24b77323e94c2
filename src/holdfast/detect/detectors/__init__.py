"""The detectors that come with Holdfast: one module for each, which registers itself under its own name."""
