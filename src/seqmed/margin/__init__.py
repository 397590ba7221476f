"""The margin learner: maximum entropy discrimination, carried from batch to batch."""
