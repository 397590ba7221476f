"""The mixture of a margin expert and a graph expert: experts, evidence and weight."""
