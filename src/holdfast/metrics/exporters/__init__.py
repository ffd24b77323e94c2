"""The exporters that come with Holdfast, one module each, registered under its name. May import the rest of metrics."""
