"""The three experiments of the paper: data, curves, figures, and what they show."""
