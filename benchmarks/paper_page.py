"""Write the table of the paper's claims of README.md from results/results.json.

    make paper
    python benchmarks/paper_page.py [--check]

With --check nothing is written: the program fails if the page differs from the results.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from common import make_parser, markdown, with_tables

ROOT = Path(__file__).parent.parent
README, RESULTS = ROOT / "README.md", ROOT / "results" / "results.json"
# Claims on the figures, by the start of their texts; figure3b has six orders of ISOLET.
CLAIMS = {
    "Sequential learning is better than each batch alone": {
        "figure1": "SeqMED is above", "figure2": "SeqLapMED (spectral) is above",
        "figure3": "SeqLapMED (spectral) is above",
    },
    "It is at most one point below full retraining": {
        "figure1": "SeqMED is at most", "figure2": "SeqLapMED (spectral) is at most",
        "figure3": "SeqLapMED (spectral) is at most",
    },
    "Unlabeled rows add accuracy, spectral": {
        "figure2": "Unlabeled data add accuracy to sequential learning (spectral",
        "figure3": "Unlabeled data add accuracy to sequential learning (spectral",
    },
    "Unlabeled rows add accuracy, landmarks (ours)": {
        "figure2": "Unlabeled data add accuracy to sequential learning (landmarks",
        "figure3": "Unlabeled data add accuracy to sequential learning (landmarks",
    },
    "Ours is at most one point below full retraining": {
        "figure1": "seqmed: averaged is", "figure2": "seqmed: averaged",
        "figure3b": "seqmed: landmarks, all",
    },
}  # fmt: skip
COLUMNS = {"1": ["figure1"], "2": ["figure2"], "3": ["figure3", "figure3b"]}
VERDICTS = {True: "yes", False: "**no**", None: "one run"}
NUMBER = re.compile(r"[+-]\d+\.\d+(?: ± \d+\.\d+)?")


def cell(figures: dict[str, Any], name: str, start: str) -> str:
    """Return whether a claim on a figure holds, with its first number."""
    (claim,) = (each for each in figures[name]["claims"] if each["text"].startswith(start))
    found = NUMBER.search(claim["numbers"])
    assert found is not None, claim
    orders = " (six orders)" if name == "figure3b" else ""
    return f"{VERDICTS[claim['holds']]}: {found[0]}{orders}"


def claims_table(figures: dict[str, Any]) -> str:
    """Return the claims, and whether they hold in every figure."""
    rows = []
    for claim, places in CLAIMS.items():
        cells = [
            "".join(cell(figures, name, places[name]) for name in names if name in places)
            for names in COLUMNS.values()
        ]
        rows.append([claim, *cells])
    return markdown(["claim", *(f"figure {each}" for each in COLUMNS)], rows)


def main() -> None:
    """Replace the table, or check it."""
    parser = make_parser(__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on differences")
    check = parser.parse_args().check
    table = claims_table(json.loads(RESULTS.read_text())["figures"])
    text = with_tables(README, {"paper claims": table})
    if not check:
        README.write_text(text)
    elif text != README.read_text():
        raise SystemExit("README.md differs from results/results.json: run paper_page.py.")


if __name__ == "__main__":
    main()
