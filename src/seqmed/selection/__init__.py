"""Choosing parameters, splits and rows to label."""
