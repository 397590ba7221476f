"""The three experiments of the paper: data, curves, figures, runs and reports."""
