"""`seqmed predict`: labels, probabilities, scores and spread of rows."""

from __future__ import annotations

from seqmed.cli import options
from seqmed.cli.errors import for_people


def predict(
    model: options.Model,
    data: options.Data,
    output: options.Output = options.STANDARD_OUTPUT,
    to: options.To = None,
    force: options.Force = False,
    keep: options.Keep = None,
    file_format: options.InputFormat = None,
    on_error: options.BadRows = options.OnError.stop,
    debug: options.Debug = False,
) -> None:
    """Predict rows: labels, probabilities, scores, spread.

    A column of labels in DATA is not looked at. OUT is there as a whole, or not at all.
    """
    with for_people(debug):
        from seqmed.cli import predicting

        predicting.predict(
            model,
            data,
            output=output,
            to=options.name_of(to),
            force=force,
            keep=options.column_names(keep),
            file_format=options.name_of(file_format),
            on_error=on_error.value,
        )
