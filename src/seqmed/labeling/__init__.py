"""Labeling: a page on which people label the most informative rows while the model learns.

The label log is the truth (`events`, `log`). The state of all labels is a fold over it (`ledger`),
and so are the accuracies and the agreement of people (`measures`). Rows to be labeled are a sample
of the files (`rows`). The learner follows the log (`learner`), chooses the next rows in rounds
(`queue`), and runs in a thread (`background`). People open pages (`sessions`), get cards (`dealer`)
and act on them (`desk`). The contents of the page are made by `page`. The app answers requests
(`app`) behind the checks of `guard`, in the server (`server`).
"""
