"""The exporters that come with Holdfast: one module each, registered by name. May import the rest of `metrics`."""
