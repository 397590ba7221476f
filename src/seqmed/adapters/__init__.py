"""Adapters to libraries that learn row by row: river and CapyMOA."""
