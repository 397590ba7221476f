"""Pipelines for streams, and drift of their input."""
