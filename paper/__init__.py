"""The three experiments of the paper: python -m paper."""
