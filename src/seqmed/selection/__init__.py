"""Choice of parameters: prequential search, and cross-validation with missing labels."""
