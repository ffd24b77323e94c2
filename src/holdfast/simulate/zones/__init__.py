"""Simulate a service in several zones, with labelled failures."""
