"""The dual problem of one update and its solver."""
