"""The graph expert: label propagation over a bounded sample of a stream."""
