"""Labeling: a page on which people label the most informative rows while the model learns.

The label log is the truth (`log`). The state of all labels is a fold over it, and so are the
accuracies and the agreement of people (`ledger`). Rows to be labeled are a sample of the files
(`pool`). The learner follows the log in a thread of its own (`learner`), and chooses the next rows
in rounds (`queue`). People open pages, get cards and act on them (`desk`). The contents of the page
are made by `page`. The app answers requests (`app`), in the server behind its guard (`server`).
"""
