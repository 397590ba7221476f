"""Adapters to libraries that learn row by row, such as river."""
