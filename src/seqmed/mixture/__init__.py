"""The mixture of a margin expert, a graph expert and a linear expert, weighted by evidence."""
