"""The classifiers: SeqGraphMED, SeqMED, SeqLapMED and GraphPropagation."""
