"""Pipelines that learn from a stream, and the drift of their input."""
