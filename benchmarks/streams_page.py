"""Write the tables of docs/streams.md from results.

    python benchmarks/streams.py --out benchmarks/results/streams.json
    python benchmarks/streams_page.py [--check]

With --check nothing is written: the program fails if the page differs from the results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from common import make_parser, markdown, standard_error, with_tables

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "streams.json"
PAGE = HERE.parent / "docs" / "streams.md"
OURS, EXPERTS = "SeqGraphMED", ("SeqMED", "GraphPropagation")
SCALINGS, SHARES = ("raw", "standardised"), ("0.01", "0.05", "0.1")
# Points that SeqGraphMED may be below the best of the others, beside two standard errors.
ALLOWED = 1.0


def complete(cells: dict[str, Any]) -> dict[str, Any]:
    """Return the results of the seeds that all methods of a stream have; their number is named."""
    found: dict[str, Any] = {}
    for stream, by_scaling in cells.items():
        runs = [
            run for by_share in by_scaling.values() for cell in by_share.values()
            for run in cell.values()
        ]  # fmt: skip
        seeds = set.intersection(*(set(run["accuracies"]) for run in runs))
        has_run = [OURS in by_scaling.get(k, {}).get(s, {}) for k in SCALINGS for s in SHARES]
        if not seeds or not all(has_run):
            continue
        label = f"{stream}, {len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
        found[label] = {
            scaling: {
                share: {
                    name: {"accuracies": {seed: run["accuracies"][seed] for seed in sorted(seeds)}}
                    for name, run in cell.items()
                }
                for share, cell in by_share.items()
            }
            for scaling, by_share in by_scaling.items()
        }
    return found


def methods_of(stream: dict[str, Any], scaling: str, share: str) -> dict[str, dict[str, float]]:
    """Return the accuracies of every method, by seed; of raw rows where the scale is no matter."""
    return {
        name: run["accuracies"]
        for name, run in (stream["raw"][share] | stream[scaling].get(share, {})).items()
    }


def mean(accuracies: dict[str, float]) -> float:
    """Return the mean over seeds."""
    return float(np.mean(list(accuracies.values())))


def best_of(found: dict[str, dict[str, float]], names: list[str]) -> str:
    """Return the method with the largest mean."""
    return max(names, key=lambda name: mean(found[name]))


def loss(found: dict[str, dict[str, float]], rival: str) -> tuple[float, float]:
    """Return by how much a method is ahead of SeqGraphMED, and the paired standard error."""
    differences = [found[rival][seed] - found[OURS][seed] for seed in found[OURS]]
    return float(np.mean(differences)), standard_error(differences)


def overview(cells: dict[str, Any]) -> str:
    """Return SeqGraphMED, the best of its experts and the best peer, for every stream and scale."""
    rows = []
    for stream, by_scaling in cells.items():
        for scaling in SCALINGS:
            ours, experts, peers, names = [], [], [], []
            for share in by_scaling["raw"]:
                found = methods_of(by_scaling, scaling, share)
                others = [name for name in found if name not in (OURS, *EXPERTS)]
                peer = best_of(found, others)
                ours.append(mean(found[OURS]))
                experts.append(mean(found[best_of(found, list(EXPERTS))]))
                peers.append(mean(found[peer]))
                names.append(peer)
            texts = [
                " / ".join(bold(value, [*both, value]) for value, *both in zip(*order, strict=True))
                for order in (
                    (ours, experts, peers), (experts, ours, peers), (peers, ours, experts),
                )
            ]  # fmt: skip
            rows.append([f"{stream}, {scaling}", *texts, ", ".join(dict.fromkeys(names))])
    return markdown(["", OURS, "best expert alone", "best peer", "which"], rows)


def bold(value: float, values: list[float]) -> str:
    """Return a number as text, in bold if no other is larger."""
    text = f"{value:.1f}"
    return f"**{text}**" if text == f"{max(values):.1f}" else text


def verdict(cells: dict[str, Any]) -> str:
    """Return in how many cells SeqGraphMED is behind by more than what is allowed, and where."""
    behind, significant, total = [], 0, 0
    for stream, by_scaling in cells.items():
        for scaling in SCALINGS:
            for share in by_scaling["raw"]:
                found = methods_of(by_scaling, scaling, share)
                rival = best_of(found, [name for name in found if name != OURS])
                points, error = loss(found, rival)
                total += 1
                significant += points > ALLOWED + 2 * error
                if points > ALLOWED:
                    where = f"{stream}, {scaling}, {float(share):.0%}"
                    spread = f" ± {error:.1f}" if len(found[OURS]) > 1 else ""
                    behind.append([where, rival, f"{points:.1f}{spread}"])
    text = (
        f"In {total - len(behind)} of {total} cells SeqGraphMED is at most one point below the "
        f"best other method. In {significant} cells it is behind by more than one point and two "
        "paired standard errors. With few seeds these errors are rough. The cells with more than "
        "one point:"
    )
    return f"{text}\n\n" + markdown(["", "best method", "points behind"], behind)


def all_methods(cells: dict[str, Any]) -> str:
    """Return the mean accuracy of every method on every stream."""
    names = list(dict.fromkeys(
        name for stream in cells.values() for share in stream["raw"].values() for name in share
    ))  # fmt: skip
    rows = []
    for name in names:
        for scaling in SCALINGS:
            row = [f"{name}, {scaling}" if scaling in scalings(cells, name) else ""]
            if not row[0]:
                continue
            for by_scaling in cells.values():
                runs = [share.get(name) for share in by_scaling[scaling].values()]
                known = [f"{mean(run['accuracies']):.1f}" for run in runs if run]
                row.append(" / ".join(known))
            rows.append(row)
    return markdown(["", *cells], rows)


def scalings(cells: dict[str, Any], name: str) -> list[str]:
    """Return the scales on which a method was run."""
    stream = next(iter(cells.values()))
    return [kind for kind in SCALINGS if any(name in share for share in stream[kind].values())]


def main() -> None:
    """Replace the tables, or check them."""
    parser = make_parser(__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on differences")
    check = parser.parse_args().check
    cells = complete(json.loads(RESULTS.read_text())["cells"])
    tables = {
        "streams": f"{overview(cells)}\n\n{verdict(cells)}",
        "streams all methods": all_methods(cells),
    }
    text = with_tables(PAGE, tables)
    if not check:
        PAGE.write_text(text)
    elif text != PAGE.read_text():
        raise SystemExit(f"{PAGE.name} differs from benchmarks/results: run {Path(__file__).name}.")


if __name__ == "__main__":
    main()
