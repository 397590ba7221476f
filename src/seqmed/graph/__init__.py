"""Graphs: the Laplacian of a batch, the graph over kept rows, label propagation."""
