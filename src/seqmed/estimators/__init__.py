"""The classifiers: parameters, documentation, validation."""
