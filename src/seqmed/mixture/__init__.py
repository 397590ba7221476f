"""The mixture of a margin and a graph: experts, evidence, weight."""
