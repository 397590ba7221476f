"""Factorisations and triangular products."""
