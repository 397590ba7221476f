"""Label propagation on a GPU: time beside the bare matrix products, accuracy, and memory.

    python benchmarks/gpu.py [--device cuda] [--parts graph,stream,predict] [--usps FILE.npz]
        [--small] [--out FILE.json] [--scores FILE.npz] [--compare FILE.npz] [--wheels FOLDER]

Times are wall-clock seconds of whole calls of `fit`, `partial_fit` and `predict`, with validation
and copies from the host, and those of the work on the device alone. A bare matrix product is one of
the same rows in single precision, measured in the same run; the results are written and not read.

The rows of the parts ``graph``, ``stream``, ``predict``, ``accuracy`` and ``more`` are made up: ten
classes, each on a curved surface of nine dimensions in 128 columns, with noise. ``probe`` times the
operations that a search consists of. With ``--device cpu`` only ``accuracy`` and ``more`` run, for
comparison: ``--scores`` writes the scores of the test rows, which ``--compare`` reads.

The machine may lack a package: wheels of packages that cannot be imported are unpacked from the
folder ``--wheels``. Without numba, compiled functions run as they are. The graph on a device does
not use them, and what does is left out.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import platform
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

COLUMNS, CLASSES, LABELS = 128, 10, 100
# Dimension and size of the surfaces, and standard deviation of the noise.
SURFACE, REACH, NOISE = 9, np.float32(2.1), np.float32(0.3)
PARTS = ("probe", "graph", "stream", "predict", "accuracy", "more", "margin")
ON_CPU = ("accuracy", "more")
SIZES = {
    "graph": [(60_000, 784), (2**20, COLUMNS)],
    "stream": [(10**6, 10_000, 8)],
    "predict": [(131_072, 10**6)],
    "accuracy": [10**5],
    "more": [10**4, 10**5, 10**6],
    "margin": [(13_000, 10**5)],
}
SMALL = {
    "graph": [(3000, 784), (5000, COLUMNS)],
    "stream": [(5000, 500, 4)],
    "predict": [(2000, 10_000)],
    "accuracy": [3000],
    "more": [1000, 3000],
    "margin": [(1000, 2000)],
}


# -- packages --------------------------------------------------------------------------------------


def unpack_missing(folder: str | None) -> None:
    """Unpack the wheels of packages that cannot be imported, and make up for a missing numba."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
    place = tempfile.mkdtemp()
    sys.path.append(place)
    for wheel in sorted(Path(folder).glob("*.whl")) if folder else []:
        name = wheel.name.split("-")[0].replace("scikit_learn", "sklearn")
        if importlib.util.find_spec(name) is None:
            with zipfile.ZipFile(wheel) as file:
                file.extractall(place)
            importlib.invalidate_caches()
    if importlib.util.find_spec("numba") is None:
        stub = ModuleType("numba")
        stub.njit = lambda *_, **__: lambda function: function
        sys.modules["numba"] = stub


def has_numba() -> bool:
    """Whether functions are compiled."""
    return hasattr(sys.modules.get("numba") or importlib.import_module("numba"), "__version__")


# -- rows ------------------------------------------------------------------------------------------


def manifolds(n: int, p: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n rows (n, p) on curved surfaces, a surface for each class, and their classes."""
    shape, rng = np.random.default_rng(0), np.random.default_rng((1, seed))
    classes = rng.integers(CLASSES, size=n)
    rows = np.empty((n, p))
    mix = shape.normal(size=(48, p)).astype(np.float32) / np.sqrt(48)
    for code in range(CLASSES):
        turn = shape.normal(size=(SURFACE, 48)).astype(np.float32)
        shift = shape.uniform(0, 2 * np.pi, size=48).astype(np.float32)
        own = np.flatnonzero(classes == code)
        for part in np.array_split(own, max(1, own.size // 2**16)):
            places = rng.random((part.size, SURFACE), dtype=np.float32) * REACH
            clean = np.sin(places @ turn + shift) @ mix
            rows[part] = clean + NOISE * rng.standard_normal((part.size, p), dtype=np.float32)
    return rows, classes


def with_labels(classes: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Return labels of n random rows, -1 for the others; every class has some."""
    rng, labels = np.random.default_rng((2, seed)), np.full(classes.size, -1)
    for code in range(CLASSES):
        own = rng.permutation(np.flatnonzero(classes == code))[: n // CLASSES]
        labels[own] = code
    return labels


# -- measurements ----------------------------------------------------------------------------------


class Bench:
    """A device, and its clock and memory."""

    def __init__(self, name: str) -> None:
        import torch

        self.name, self.torch = name, torch
        self.device = torch.device(name.removeprefix("torch:"))
        self.cuda = self.device.type == "cuda"

    def clock(self) -> float:
        """Return the time when the device has finished."""
        if self.cuda:
            self.torch.cuda.synchronize()
        return time.perf_counter()

    def seconds(self, work: Any, rounds: int = 3) -> float:
        """Return the median time of a function, after a first call."""
        work()
        found = []
        for _ in range(rounds):
            start = self.clock()
            work()
            found.append(self.clock() - start)
        return float(np.median(found))

    def reset(self) -> None:
        """Forget the largest memory so far."""
        if self.cuda:
            self.torch.cuda.empty_cache()
            self.torch.cuda.reset_peak_memory_stats()

    def peak(self) -> float | None:
        """Return the largest memory since `reset`, in GB."""
        return self.torch.cuda.max_memory_allocated() / 1e9 if self.cuda else None

    def product(self, m: int, n: int, p: int) -> float:
        """Return the seconds of the products of m and n rows, in strips."""
        torch = self.torch
        n = -(-n // 1024) * 1024
        strip = max(1, min(m, (2**29 if self.cuda else 2**23) // n))
        left = torch.randn((strip, p), device=self.device)
        right = torch.randn((n, p), device=self.device)
        out = torch.empty((strip, n), device=self.device)
        count = min(-(-m // strip), 40)  # enough of them, if there are very many

        def work() -> None:
            for _ in range(count):
                torch.mm(left, right.T, out=out)

        return self.seconds(work) * m / (strip * count)


def describe(bench: Bench | None) -> dict[str, Any]:
    """Return the machine and the versions."""
    import scipy
    import sklearn

    found = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "device": "cpu" if bench is None else bench.name,
    }
    if bench is not None:
        torch = bench.torch
        found |= {"torch": torch.__version__, "threads": torch.get_num_threads()}
        if bench.cuda:
            found["card"] = torch.cuda.get_device_name(bench.device)
            found["cuda"] = torch.version.cuda
    return found


def probe(bench: Bench, small: bool) -> dict[str, Any]:
    """Return milliseconds of the operations of a search: strips of 512 queries, 2^20 rows."""
    from seqmed.graph import device

    torch = bench.torch
    m, n, p = (64, 2**13, COLUMNS) if small else (512, 2**20, COLUMNS)
    left = torch.randn((m, p), device=bench.device)
    right = torch.randn((n, p), device=bench.device)
    squares = right.square().sum(dim=1)
    out = torch.empty((m, n), device=bench.device)
    torch.mm(left, right.T, out=out)
    limits = torch.full((n,), float(out.amin()) * 0.9, device=bench.device)
    own = torch.arange(m, device=bench.device)
    keys = torch.randint(0, 2**60, (n, 16), device=bench.device).sort(dim=1).values
    values = torch.randn((n, CLASSES), device=bench.device)
    weights = torch.rand((n, 10), device=bench.device)
    slots = torch.randint(0, n, (n, 10), device=bench.device)
    edges = device.symmetric(slots, weights)

    def groups(rows: int) -> Any:
        return lambda: out.view(m, rows, n // rows).amin(dim=1)

    def inner(rows: int) -> Any:
        return lambda: out.view(m, n // rows, rows).amin(dim=2)

    minima = groups(128)()
    works = {
        "product": lambda: torch.mm(left, right.T, out=out),
        "product, new memory": lambda: torch.mm(left, right.T),
        "addmm": lambda: torch.addmm(squares, left, right.T),
        "addmm, memory given": lambda: torch.addmm(squares, left, right.T, out=out),
        "product, then norms": lambda: torch.mm(left, right.T, out=out).add_(squares),
        "minima of 64 (strided)": groups(64),
        "minima of 128 (strided)": groups(128),
        "minima of 256 (strided)": groups(256),
        "minima of 1024 (strided)": groups(1024),
        "minima of 128 (adjacent)": inner(128),
        "minima of 1024 (adjacent)": inner(1024),
        "topk 24 of the minima of 128": lambda: minima.topk(24, 1, largest=False, sorted=False),
        "topk 24 of all": lambda: out.topk(24, 1, largest=False, sorted=False),
        "smallest 24": lambda: device.smallest(out, 24),
        "near": lambda: out < limits,
        "near, counted": lambda: (out < limits).sum(dim=1),
        "near, found": lambda: (out < limits).nonzero(),
        "norms added": lambda: out.add_(own[:, None]),
        "sort lists": lambda: keys[: n // 8].sort(dim=1),
        "matrix of the graph": lambda: device.symmetric(slots, weights),
        "product with the graph": lambda: edges.times(values),
        "copy of the rows": lambda: right.clone(),
    }
    host = np.random.default_rng(0).random((min(n, 2**20), p))
    works["1 GB of doubles from the host"] = lambda: torch.from_numpy(host).to(bench.device)
    return {name: 1000 * bench.seconds(work, 5) for name, work in works.items()}


def graph(bench: Bench, n: int, p: int) -> dict[str, Any]:
    """Return times of the labels of n rows: everything, and the work on the device alone."""
    from seqmed import GraphPropagation
    from seqmed.graph import device

    torch = bench.torch
    X, classes = manifolds(n, p, 0)
    labels = with_labels(classes, LABELS, 0)
    bench.reset()
    model = GraphPropagation(graph_memory=n, random_state=0, device=bench.name)
    GraphPropagation(graph_memory=2000, random_state=0, device=bench.name).fit(
        X[:2000], with_labels(classes[:2000], LABELS, 0)
    )
    start = bench.clock()
    model.fit(X, labels)
    total = bench.clock() - start
    memory = bench.peak()
    rows = model._state.graph.rows
    every = device.DeviceStored(rows.points[:n], rows.squares[:n])

    own = torch.arange(n, device=bench.device)
    start = bench.clock()
    with rows.computing():
        rows.nearest(every, own, rows.list_length)
    searching = bench.clock() - start
    del every, rows
    scores = model.predict_proba(X[:5000])
    again = GraphPropagation(graph_memory=n, random_state=0, device=bench.name).fit(X, labels)
    same = bool((again.predict_proba(X[:5000]) == scores).all())
    del again
    product = bench.product(n, n, p)
    solving = solve_seconds(bench, model)
    return {
        "rows": n,
        "columns": p,
        "fit": total,
        "search": searching,
        "solve": solving,
        "n_iter": model.n_iter_,
        "product": product,
        "(search + solve) / product": (searching + solving) / product,
        "fit / product": total / product,
        "gigabytes": memory,
        "same twice": same,
        "accuracy": accuracy_of(model, p, 1),
    }


def solve_seconds(bench: Bench, model: Any) -> float:
    """Return the seconds of solving the system of a model from zero."""
    from dataclasses import replace

    from seqmed.graph.propagation import solved
    from seqmed.numeric.arrays import no_indices

    state = model._state.graph
    state = replace(
        state,
        solution=state.solution * 0.0,
        influence=state.influence * 0.0,
        solved_label_weights=state.solved_label_weights * 0.0,
    )
    return bench.seconds(lambda: solved(state, no_indices(), labels_changed=True), 3)


def accuracy_of(model: Any, p: int, seed: int) -> float:
    """Return the accuracy on 10,000 further rows."""
    X, classes = manifolds(10_000, p, 1000 + seed)
    return float((model.predict(X) == classes).mean())


def stream(bench: Bench, n: int, size: int, count: int) -> dict[str, Any]:
    """Return times of batches of ``size`` rows into a graph of n rows."""
    from seqmed import GraphPropagation

    X, classes = manifolds(n + size * (count + 1), COLUMNS, 0)
    labels = with_labels(classes, LABELS * (n + size * (count + 1)) // n, 0)
    model = GraphPropagation(graph_memory=n, random_state=0, device=bench.name)
    model.fit(X[:n], labels[:n])
    bench.reset()
    seconds, steps, entered = [], [], []
    for start in range(n, n + size * (count + 1), size):
        rows = slice(start, start + size)
        before = bench.clock()
        model.partial_fit(X[rows], labels[rows])
        seconds.append(bench.clock() - before)
        steps.append(model.n_iter_)
        entered.append(model.update_info_.n_entered)
    product = bench.product(size, n, COLUMNS)
    typical = float(np.median(seconds[1:]))
    return {
        "kept": n,
        "batch": size,
        "seconds": seconds,
        "median": typical,
        "rows a second": size / typical,
        "n_iter": steps,
        "entered": entered,
        "product": product,
        "median / product": typical / product,
        "gigabytes": bench.peak(),
        "accuracy": accuracy_of(model, COLUMNS, 1),
    }


def predict(bench: Bench, n: int, m: int) -> dict[str, Any]:
    """Return times of predicting m rows by n kept rows."""
    from seqmed import GraphPropagation

    X, classes = manifolds(n, COLUMNS, 0)
    model = GraphPropagation(graph_memory=n, random_state=0, device=bench.name)
    model.fit(X, with_labels(classes, LABELS, 0))
    X, classes = manifolds(m, COLUMNS, 1)
    bench.reset()
    model.predict(X[: m // 10])
    seconds = []
    for _ in range(3):
        start = bench.clock()
        found = model.predict(X)
        seconds.append(bench.clock() - start)
    state = model._state.graph
    start = bench.clock()
    stored = state.rows.store(X)
    storing = bench.clock() - start
    start = bench.clock()
    lists = state.rows.search(stored)
    searching = bench.clock() - start
    start = bench.clock()
    state.mean_influence(lists)
    means = bench.clock() - start
    product = bench.product(m, n, COLUMNS)
    return {
        "kept": n,
        "predicted": m,
        "predict": seconds,
        "store": storing,
        "search": searching,
        "means": means,
        "product": product,
        "predict / product": float(np.median(seconds)) / product,
        "search / product": searching / product,
        "gigabytes": bench.peak(),
        "accuracy": float((found == classes).mean()),
    }


def accuracy(name: str, n: int, usps: str | None, scores: str | None) -> list[dict[str, Any]]:
    """Return the accuracy with all rows kept, on made-up rows and on USPS digits."""
    from seqmed import GraphPropagation, SeqGraphMED

    sets = {}
    X, y = manifolds(n, COLUMNS, 0)
    X_test, y_test = manifolds(10_000, COLUMNS, 1)
    sets[f"made up, {n} rows"] = (X, y, X_test, y_test, (LABELS, 10 * LABELS))
    if usps is not None:
        with np.load(usps) as file:
            X, y, end = file["X"].astype(float), file["y"].astype(int), int(file["n_train"])
        sets["USPS"] = (X[:end], y[:end], X[end:], y[end:], (70, 360))
    found, kept = [], {}
    for data, (X, y, X_test, y_test, counts) in sets.items():
        for count in counts:
            labels = with_labels(y, count, 0)
            models = {
                "GraphPropagation, fit": (GraphPropagation, {}, None),
                "GraphPropagation, stream": (GraphPropagation, {}, 1000),
                "SeqGraphMED, core, stream": (SeqGraphMED, {"experts": ()}, 500),
            }
            for kind, (make, more, size) in models.items():
                if make is SeqGraphMED and (data != "USPS" or not has_numba()):
                    continue
                model = make(graph_memory=len(X) + 1, random_state=0, device=name, **more)
                start = time.perf_counter()
                if size is None:
                    model.fit(X, labels)
                else:
                    for first in range(0, len(X), size):
                        rows = slice(first, first + size)
                        model.partial_fit(X[rows], labels[rows])
                seconds = time.perf_counter() - start
                values = model.decision_function(X_test)
                right = float((model.predict(X_test) == y_test).mean())
                entry = {"data": data, "labels": count, "model": kind}
                found.append({**entry, "accuracy": right, "seconds": seconds})
                kept[" ".join((data, str(count), kind))] = values.astype(np.float32)
    if scores is not None:
        np.savez_compressed(scores, **kept)
    return found


def compare(first: str, second: str) -> list[dict[str, Any]]:
    """Compare the scores of two runs; decisions differ by rounding if the best two are close."""
    found = []
    with np.load(first) as ours, np.load(second) as theirs:
        pairs = {name: (ours[name], theirs[name]) for name in ours if name in theirs}
    for name, (one, other) in pairs.items():
        different = one.argmax(axis=1) != other.argmax(axis=1)
        best = np.sort(one, axis=1)[:, -2:]
        gaps = (best[:, 1] - best[:, 0]) / np.abs(best).max(axis=1)
        found.append(
            {
                "scores": name,
                "rows": len(one),
                "largest difference": float(np.abs(one - other).max()),
                "other decisions": int(different.sum()),
                "of these not close": int((different & (gaps > 1e-4)).sum()),
                "largest gap of these": float(gaps[different].max(initial=0.0)),
            }
        )
    return found


def more(name: str, sizes: list[int], seeds: int) -> list[dict[str, Any]]:
    """Return the accuracy by the number of kept rows, of the same stream and labels."""
    from seqmed import GraphPropagation

    found = []
    for seed in range(seeds):
        X, y = manifolds(sizes[-1], COLUMNS, seed)
        labels = with_labels(y, LABELS, seed)
        X_test, y_test = manifolds(10_000, COLUMNS, 1000 + seed)
        for size in sizes:
            # labeled rows are kept in all cases
            others = np.flatnonzero(labels < 0)[: size - LABELS]
            rows = np.sort(np.append(others, np.flatnonzero(labels >= 0)))
            model = GraphPropagation(graph_memory=size, random_state=0, device=name)
            start = time.perf_counter()
            model.fit(X[rows], labels[rows])
            seconds = time.perf_counter() - start
            right = float((model.predict(X_test) == y_test).mean())
            found.append({"kept": size, "seed": seed, "accuracy": right, "seconds": seconds})
    return found


def margin(bench: Bench, n: int, m: int) -> dict[str, Any]:
    """Return times of predicting m rows with SeqGraphMED without refitted experts."""
    from seqmed import SeqGraphMED

    X, classes = manifolds(n, COLUMNS, 0)
    model = SeqGraphMED(graph_memory=n, random_state=0, device=bench.name, experts=())
    labels = with_labels(classes, 5 * LABELS, 0)
    start = bench.clock()
    for first in range(0, n, 1000):
        model.partial_fit(X[first : first + 1000], labels[first : first + 1000])
    learning = bench.clock() - start
    X, classes = manifolds(m, COLUMNS, 1)
    seconds = bench.seconds(lambda: model.predict(X))
    right = float((model.predict(X) == classes).mean())
    return {"kept": n, "predicted": m, "learn": learning, "predict": seconds, "accuracy": right}


# -- the program -----------------------------------------------------------------------------------


def main() -> None:
    """Run the parts and write their results, also after a failure of one of them."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="It needs torch: pip install '.[gpu]'."
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, torch:cpu or cpu")
    parser.add_argument("--parts", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--usps", help="usps.npz")
    parser.add_argument("--small", action="store_true", help="small sizes, for a first look")
    parser.add_argument("--seeds", type=int, default=3, help="draws of the part `more`")
    parser.add_argument("--most", type=int, help="largest number of rows of the part `more`")
    parser.add_argument("--out", help="write the results there as JSON")
    parser.add_argument("--scores", help="file for the scores of the part `accuracy`: NAME.npz")
    parser.add_argument("--compare", help="such a file, to compare with")
    parser.add_argument("--wheels", help="folder of wheels of missing packages")
    given = parser.parse_args()
    unpack_missing(given.wheels)
    bench = None if given.device == "cpu" else Bench(given.device)
    sizes = SMALL if given.small else SIZES
    results: dict[str, Any] = {"machine": describe(bench)}
    print(json.dumps(results["machine"]))
    for part in given.parts.split(","):
        if bench is None and part not in ON_CPU:
            continue
        if part == "margin" and not has_numba():  # the margin is solved on the CPU
            continue
        start = time.perf_counter()
        try:
            if part == "probe":
                results[part] = probe(bench, given.small)
            elif part == "accuracy":
                (size,) = sizes[part]
                results[part] = accuracy(given.device, size, given.usps, given.scores)
            elif part == "more":
                chosen = [each for each in sizes[part] if each <= (given.most or each)]
                results[part] = more(given.device, chosen, given.seeds)
            else:
                run = {"graph": graph, "stream": stream, "predict": predict, "margin": margin}[part]
                results[part] = [run(bench, *size) for size in sizes[part]]
        except Exception as error:  # the other parts may still work
            results[part] = {"error": f"{type(error).__name__}: {error}"}
            import traceback

            traceback.print_exc()
        print(part, f"{time.perf_counter() - start:.1f} s")
        print(json.dumps(results[part], indent=1), flush=True)
        if given.out:
            Path(given.out).write_text(json.dumps(results, indent=1) + "\n")
    if given.compare and given.scores:
        results["compared"] = compare(given.compare, given.scores)
        print(json.dumps(results["compared"], indent=1))
        if given.out:
            Path(given.out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
