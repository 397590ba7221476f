"""Labeling: a page on which people label the most informative rows while the model learns.

A label goes this way: the server checks the request (`server`). The desk makes an event of it, and
appends it to the label log (`desk`, `log`). The labels of all rows are a fold over the log
(`ledger`), and so are accuracies and the agreement of people. The learner follows the log in a
thread of its own (`learner`), and chooses the next rows in rounds (`queue`) from a sample of the
files (`pool`). The desk deals them as cards, and the page shows these and the numbers (`page`).
"""
