"""Speed, side by side with what people use today: every number is a ratio taken in one run.

Sections (--only NAME for one):

- solver: the dual, over scikit-learn's SVC (LIBSVM) on the same precomputed Gram matrix, to the
  same tolerance; slack_shape 0 is the same problem, 1 is MED;
- precomputed: `SeqMED.fit` over `SVC.fit` on the same kernel matrix, with one machine as SVC has,
  and with the default of one per class; the best of many turns;
- lapmed: a fit on 4000 rows with ten labels, over a LapSVM that inverts dense matrices, and over
  scikit-learn's LabelSpreading;
- stream: whole streams. Figure 1 over retraining SVC at every batch; ISOLET on landmarks over
  retraining a dense LapSVM at every batch (needs SEQMED_DATA); 16000 rows in 20 batches within a
  budget, over Nystroem + SGD, RBFSampler + SGD and river, with accuracies;
- predict: many rows, over the bare products and exponentials they need; one row, over SVC;
- memory: bytes of the state and update time of a bounded model along a stream, and peak memory;
- startup: importing the classifiers over importing `sklearn.svm`, and a first fit once compiled
  code is cached;
- threads: the same work with as many threads as there are, over one thread;
- growth: how cost grows with rows, columns, batches, landmarks and classes, over what theory says.

Clock time, medians of at least five, the two sides taking turns, with as many threads as a user
gets who sets nothing. "must" and "aim" are the targets; a ratio below 1 is a win. (Retraining on
ISOLET, minutes, is timed once, at every third batch, which stands for its neighbours too.)

    python benchmarks/speed.py [--only NAME] [--quick] [--out FILE.json]
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import data_file, make_parser, print_table, write_json
from scipy.linalg import inv
from sklearn.datasets import make_classification
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from paper import data
from seqmed import SeqLapMED, SeqMED
from seqmed.kernels import RBF, TfIdf
from seqmed.margin import laplacian as graphs
from seqmed.margin.dual.problem import DualProblem
from seqmed.margin.dual.smo import solve

REPEATS = 5


class Result(NamedTuple):
    """One line of the table: what, our seconds, theirs, and the ratio asked for and hoped for."""

    what: str
    ours: float
    theirs: float
    must: float | None = None
    aim: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float:
        """Our time over theirs."""
        return self.ours / self.theirs


def taking_turns(
    ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int = REPEATS
) -> tuple[float, float]:
    """Return the median seconds of two calls that take turns, each called once before."""
    mine, other = medians((ours, theirs), repeats)
    return mine, other


def medians(calls: Sequence[Callable[[], Any]], repeats: int = REPEATS) -> list[float]:
    """Return the median seconds of calls that take turns, each called once before."""
    for call in calls:
        call()
    times = [[seconds_of(call) for call in calls] for _ in range(repeats)]
    return np.median(times, axis=0).tolist()


def shortest(calls: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """Return the shortest time of calls that take turns, each called once before."""
    for call in calls:
        call()
    return np.min([[seconds_of(call) for call in calls] for _ in range(repeats)], axis=0).tolist()


def two_classes(n: int) -> tuple[Any, Any]:
    """Return n standardised rows of 30 features, and their classes, 0 or 1."""
    X, y = make_classification(n, 30, n_informative=15, class_sep=0.7, flip_y=0.02, random_state=0)
    return StandardScaler().fit_transform(X), y


# -- sections --------------------------------------------------------------------------------------


def solver(quick: bool) -> Iterator[Result]:
    """The dual against LIBSVM."""
    for n in (100, 260, 1000) if quick else (100, 260, 1000, 3000, 10000):
        X, y = two_classes(n)
        gram = RBF(1 / 30)(X, X)
        signs = np.where(y == 1, 1.0, -1.0)
        for C in (2.0, 10.0, 1000.0):
            for tol in (1e-3, 1e-6):
                calls = [
                    partial(solve, problem(gram, signs, C, shape), tol=tol) for shape in (0, 1)
                ]
                machine = SVC(C=C, kernel="precomputed", tol=tol)
                *ours, theirs = medians((*calls, partial(machine.fit, gram, y)))
                for shape, mine in enumerate(ours):
                    name = f"n {n}, C {C:g}, tol {tol:g}, shape {shape}"
                    yield Result(name, mine, theirs, 0.7, 0.35)
    X, y = two_classes(3000 if quick else 20000)
    ours = seconds_of(lambda: SeqMED(gamma=1 / 30, bias="exact").fit(X, y))
    theirs = seconds_of(lambda: SVC(C=10.0, gamma=1 / 30).fit(X, y))
    yield Result(f"fit, n {y.size}, kernel included", ours, theirs, note="timed once")


def precomputed(quick: bool) -> Iterator[Result]:
    """A fit on a kernel matrix against LIBSVM."""
    X, y = two_classes(1000 if quick else 3000)
    gram = RBF(1 / 30)(X, X)
    for C in (10.0, 1000.0):
        models = {
            "one machine": SeqMED("precomputed", C=C, bias="exact"),
            "a machine per class": SeqMED("precomputed", C=C),
            "SVC": SVC(kernel="precomputed", C=C),
        }
        calls = [partial(model.fit, gram, y) for model in models.values()]
        *ours, theirs = shortest(calls, 3 * REPEATS)
        for name, mine in zip(models, ours, strict=False):
            yield Result(f"fit, n {y.size}, C {C:g}, {name}", mine, theirs, 1.0, 0.7)


def problem(gram: Any, signs: Any, C: float, shape: int) -> DualProblem:
    """Return the dual of one batch, with no past."""
    n = signs.size
    return DualProblem(
        gram=gram, signs=signs, prior_scores=np.zeros(n),
        bounds=np.full(n, C), shapes=np.full(n, float(shape)),
    )  # fmt: skip


def lapmed(quick: bool) -> Iterator[Result]:
    """One semi-supervised fit."""
    n = 1000 if quick else 4000
    X, y = two_classes(n)
    shown = np.zeros(n, dtype=bool)
    shown[:10] = True
    labels = np.where(shown, y, -1)

    def dense_lapsvm():
        kernel = RBF(1 / 30)
        neighbours = graphs.find_neighbours(kernel, X, 10)
        graph_parameters = graphs.GraphParameters(heat_width=graphs.measure_heat_width(neighbours))
        laplacian = graphs.laplacian_of(
            graphs.weight_matrix(neighbours, graph_parameters), "normalized"
        )
        gram = kernel(X, X)
        inverse = inv(np.eye(n) + 0.02 * (laplacian @ gram))
        deformed = gram @ inverse
        machine = SVC(C=10.0, kernel="precomputed").fit(deformed[np.ix_(shown, shown)], y[shown])
        return machine.predict(deformed[:, shown])

    def landmarks():
        model = SeqLapMED(gamma=1 / 30, random_state=0)
        return model.fit(X, labels).predict(X)

    def spreading():
        return LabelSpreading(kernel="knn", n_neighbors=10).fit(X, labels).predict(X)

    times = taking_turns(landmarks, dense_lapsvm)
    yield Result(f"fit, n {n}, landmarks, over dense LapSVM", *times, 1 / 10, 1 / 30)
    yield Result(f"fit, n {n}, landmarks, over LabelSpreading", *taking_turns(landmarks, spreading))


def stream(quick: bool) -> Iterator[Result]:
    """Whole streams."""
    yield from categorical(quick)
    yield from letters(quick)
    yield from bounded_pass(quick)


def categorical(quick: bool) -> Iterator[Result]:
    """Figure 1's stream, against retraining."""
    parts = data.categorical_stream((5, 0), n_batches=10 if quick else 30).batches
    kernel = TfIdf().freeze(parts[0].X, np.ones(len(parts[0].y)))

    def ours(**options):
        model = SeqMED("tfidf", C=1.5, bias="exact", window=None, **options)
        for part in parts:
            model.partial_fit(part.X, part.y)

    def retrained():
        for last in range(1, len(parts) + 1):
            X = np.concatenate([part.X for part in parts[:last]])
            y = np.concatenate([part.y for part in parts[:last]])
            SVC(kernel="linear", C=1.0).fit(np.asarray(kernel.coordinates(X)), y)

    times = taking_turns(lambda: ours(lag=1, averaging=True), retrained, REPEATS)
    yield Result("figure 1, averaged, over retraining SVC", *times, 1 / 15, 1 / 40)
    times = taking_turns(lambda: ours(lag=10), retrained, 3)
    yield Result("figure 1, lag 10, over retraining SVC", *times)


def letters(quick: bool) -> Iterator[Result]:
    """ISOLET's stream, against retraining a dense LapSVM."""
    if "SEQMED_DATA" not in os.environ:
        print("ISOLET is left out: SEQMED_DATA names no folder.", flush=True)
        return
    arrays = data.load_isolet(data_file("isolet.npz").parent, download=False)
    parts = data.isolet_stream(arrays).batches[: 6 if quick else 24]

    def ours(**options):
        model = SeqLapMED(
            gamma=0.005, C=100.0, bias="exact", window=None, random_state=0, **options
        )
        for part in parts:
            model.partial_fit(part.X, part.labels)

    def retrained(last):
        X = np.concatenate([part.X for part in parts[:last]])
        labels = np.concatenate([part.labels for part in parts[:last]])
        shown = labels != -1
        kernel = RBF(0.005)
        neighbours = graphs.find_neighbours(kernel, X, 10)
        graph_parameters = graphs.GraphParameters(heat_width=graphs.measure_heat_width(neighbours))
        laplacian = graphs.laplacian_of(
            graphs.weight_matrix(neighbours, graph_parameters), "normalized"
        )
        gram = kernel(X, X)
        deformed = gram @ inv(np.eye(len(X)) + laplacian @ gram)
        SVC(C=100.0, kernel="precomputed").fit(deformed[np.ix_(shown, shown)], labels[shown])

    own = {"beta": 0.5}
    streams = [partial(ours, **own, lag=1), partial(ours, **own, lag=10)]
    theirs, mine = 0.0, []
    for last in range(2, len(parts) + 1, 3):
        # each stands for the batch before and after it too: of a cubic 1 % is missing
        theirs += 3 * seconds_of(partial(retrained, last))
        mine.append([seconds_of(each) for each in streams])
    for lag, seconds in zip((1, 10), np.median(mine, axis=0).tolist(), strict=True):
        name = f"isolet, landmarks, lag {lag}, over retraining LapSVM"
        yield Result(name, seconds, theirs, 1 / 50, 1 / 200)


def bounded_pass(quick: bool) -> Iterator[Result]:
    """One pass in constant memory, against features and stochastic gradients.

    Half of our budget are landmarks, which is what theirs are to Nystroem.
    """
    from river import linear_model, preprocessing  # a peer, not needed by the other sections

    n = 5000 if quick else 20000
    X, y = two_classes(n)
    cut = n - n // 5
    batches = [slice(start, start + cut // 20) for start in range(0, cut, cut // 20)]
    gamma = 1.0 / (30 * X[:cut].var())

    def ours(budget, seed=0):
        model = SeqMED(
            gamma=gamma, C=10.0, lag=1, averaging=True, budget=budget, tol=0.1, random_state=seed
        )
        for rows in batches:
            model.partial_fit(X[rows], y[rows], classes=[0, 1])
        return model

    def on_features(kind):
        features = kind(gamma=gamma, n_components=500, random_state=0).fit(X[batches[0]])
        model = SGDClassifier(random_state=0)
        for rows in batches:
            model.partial_fit(features.transform(X[rows]), y[rows], classes=[0, 1])
        return lambda rows: model.predict(features.transform(rows))

    def by_rows():
        model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
        for row, label in zip(X[:cut].tolist(), y[:cut].tolist(), strict=True):
            model.learn_one(dict(enumerate(row)), label)
        return model

    def by_rows_labels(model):
        return [model.predict_one(dict(enumerate(row))) for row in X[cut:].tolist()]

    def score(predict):
        return 100 * float(np.mean(predict(X[cut:]) == y[cut:]))

    full = score(SVC(C=10.0, gamma=gamma).fit(X[:cut], y[:cut]).predict)
    their_scores = {kind: score(on_features(kind)) for kind in (Nystroem, RBFSampler)}
    for budget, kind, must, aim in (
        (1000, Nystroem, 1.0, 0.5),
        (800, Nystroem, None, None),
        (1600, Nystroem, None, None),
        (1000, RBFSampler, None, None),
    ):
        repeats = REPEATS if must is None else 3 * REPEATS  # it is close: let noise average out
        times = taking_turns(partial(ours, budget), partial(on_features, kind), repeats)
        name = f"one pass of {cut} rows, budget {budget}, over {kind.__name__}(500) + SGD"
        mine = [score(ours(budget, seed).predict) for seed in range(REPEATS)]
        note = (
            f"accuracy {np.mean(mine):.2f} % ({min(mine):.2f} to {max(mine):.2f} over {REPEATS} "
            f"seeds); theirs {their_scores[kind]:.2f} %, SVC on all rows {full:.2f} %"
        )
        yield Result(name, *times, must, aim, note)
    times = taking_turns(partial(ours, 1000), by_rows, 3)
    note = (
        f"accuracy of theirs {100 * np.mean(np.array(by_rows_labels(by_rows())) == y[cut:]):.2f} %"
    )
    name = f"one pass of {cut} rows, budget 1000, over river's LogisticRegression"
    yield Result(name, *times, note=note)


def predict(quick: bool) -> Iterator[Result]:
    """Predictions, many rows at once and one at a time."""
    X, y = two_classes(3000)
    model = SeqMED(gamma=1 / 30, C=10.0, bias="exact").fit(X, y)
    points, weights = model.support_vectors_, model.dual_coef_.T.copy()
    machine = SVC(gamma=1 / 30, C=10.0).fit(X, y)
    many = np.random.default_rng(0).normal(size=(2000 if quick else 20000, 30))
    norms = np.einsum("ij,ij->i", points, points)

    def bare():
        for start in range(0, len(many), 2000):
            rows = many[start : start + 2000]
            values = rows @ points.T
            values *= 2.0
            values -= norms
            values -= np.einsum("ij,ij->i", rows, rows)[:, None]
            values /= 30
            np.exp(values, out=values) @ weights

    times = taking_turns(lambda: model.decision_function(many), bare)
    note = f"{len(many) / times[0]:.0f} rows per second, {len(points)} support vectors"
    yield Result("many rows, over their bare arithmetic", *times, 1.3, 1.1, note)
    one = many[:1]

    def hundred(model):
        for _ in range(100):
            model.decision_function(one)

    times = taking_turns(lambda: hundred(model), lambda: hundred(machine))
    note = f"{len(points)} support vectors, theirs {machine.n_support_.sum()}"
    yield Result("one row, a hundred times, over SVC", *times, 1.5, 1.0, note)


def memory(quick: bool) -> Iterator[Result]:
    """A bounded model along a long stream."""
    n_batches = 300 if quick else 1000
    rng = np.random.default_rng(0)
    model = SeqMED(gamma=0.03, budget=300, random_state=0)
    seconds, sizes, resident = [], [], []
    for _ in range(n_batches):
        X = rng.normal(size=(200, 20))
        y = (X[:, 0] + 0.5 * rng.normal(size=200) > 0).astype(float)
        y[20:] = np.nan
        begun = time.perf_counter()
        model.partial_fit(X, y)
        seconds.append(time.perf_counter() - begun)
        sizes.append(model.posterior_.nbytes)
        resident.append(resident_megabytes())
    late, early = np.median(seconds[-50:]), np.median(seconds[100:150])
    note = (
        f"state {sizes[99]} bytes after 100 updates and {sizes[-1]} at the end; memory of the "
        f"process {resident[99]:.0f} and {resident[-1]:.0f} MB"
    )
    name = f"updates {n_batches - 49} to {n_batches} over 101 to 150"
    yield Result(name, float(late), float(early), 1.1, 1.0, note)


def startup(quick: bool) -> Iterator[Result]:
    """Importing, and the first fit."""

    def run(code: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    times = taking_turns(run("from seqmed import SeqLapMED"), run("from sklearn.svm import SVC"))
    yield Result("import of the classifiers, over sklearn.svm", *times, 1.2, 1.05)
    fit = "import numpy as np; X = np.eye(20); y = np.arange(20) % 2; "
    ours = run(fit + "from seqmed import SeqMED; SeqMED().fit(X, y)")
    theirs = run(fit + "from sklearn.svm import SVC; SVC().fit(X, y)")
    yield Result("process with a first fit, over SVC", *taking_turns(ours, theirs))


def threads(quick: bool) -> Iterator[Result]:
    """Threads as they come, over one."""
    X, y = two_classes(1000 if quick else 4000)
    few = np.where(np.arange(y.size) % 10 == 0, y, -1)
    fitted = SeqMED(gamma=1 / 30).fit(X, y)

    def small_updates():
        model = SeqLapMED(gamma=1 / 30, random_state=0)
        for start in range(0, 1000, 50):
            rows = slice(start, start + 50)
            model.partial_fit(X[rows], few[rows], classes=[0, 1])

    def one_fit():
        SeqMED(gamma=1 / 30).fit(X, y)

    def landmarks():
        SeqLapMED(gamma=1 / 30, random_state=0).fit(X, few)

    def scores():
        fitted.decision_function(X)

    def alone(call):
        with threadpool_limits(1):
            call()

    for name, call in (
        ("20 updates of 50 rows, default", small_updates),
        (f"SeqMED.fit, {y.size} labels", one_fit),
        (f"SeqLapMED.fit on landmarks, {y.size} rows", landmarks),
        (f"scores of {y.size} rows", scores),
    ):
        times = taking_turns(call, partial(alone, call))
        yield Result(f"{name}, over one thread", *times, 1.1, 1.0)


def growth(quick: bool) -> Iterator[Result]:
    """Growth of the cost; "theirs" is the smaller problem, and the note states theory's ratio."""
    rng = np.random.default_rng(0)

    def labeled(n, p=30, classes=2):
        X = rng.normal(size=(n, p))
        return X, np.argmax(X[:, :classes] + 0.5 * rng.normal(size=(n, classes)), axis=1)

    def fits(model, X, y):
        return partial(model.fit, X, y)

    def stream_of(model, n_batches):
        def run():
            learner = model()
            for _ in range(n_batches):
                X, y = labeled(100)
                learner.partial_fit(X, np.where(np.arange(100) < 20, y, -1))

        return run

    sizes = (500, 2000) if quick else (1000, 4000)
    large, small = (labeled(n) for n in reversed(sizes))
    times = taking_turns(fits(SeqMED(gamma=1 / 30), *large), fits(SeqMED(gamma=1 / 30), *small))
    note = "expected 16: cost grows as n^2"
    yield Result(f"SeqMED.fit, n {sizes[1]} over {sizes[0]}", *times, note=note)
    wide, narrow = labeled(1000, 960), labeled(1000, 240)
    times = taking_turns(fits(SeqMED(gamma=1e-3), *wide), fits(SeqMED(gamma=4e-3), *narrow))
    yield Result(
        "SeqMED.fit, p 960 over 240", *times, note="expected 1 to 4: only the kernel depends on p"
    )
    few = [np.where(np.arange(y.size) < 20, y, -1) for _, y in (large, small)]

    def on_landmarks(m):
        return SeqLapMED(gamma=1 / 30, n_landmarks=m, random_state=0)

    times = taking_turns(
        fits(on_landmarks(800), large[0], few[0]), fits(on_landmarks(200), large[0], few[0])
    )
    note = "expected 4 or more: cost grows as n m to n m^2 + m^3"
    yield Result("landmarks, m 800 over 200", *times, note=note)
    times = taking_turns(
        fits(on_landmarks(200), large[0], few[0]), fits(on_landmarks(200), small[0], few[1])
    )
    note = "expected 4 to 16: the neighbour search grows as n^2, the rest as n"
    yield Result(f"landmarks, n {sizes[1]} over {sizes[0]}", *times, note=note)
    for name, model, theory in (
        (
            "default",
            partial(SeqLapMED, gamma=1 / 30, random_state=0),
            "expected 4 or more: cost per batch grows until the window is full",
        ),
        (
            "lag None",
            partial(SeqLapMED, gamma=1 / 30, random_state=0, window=None),
            "expected 4 to 16: cost per batch grows with the number of batches",
        ),
    ):
        times = taking_turns(stream_of(model, 40), stream_of(model, 10), 1)
        yield Result(f"stream, {name}, 40 batches over 10", *times, note=theory)
    many, two = labeled(1000, 30, 16), labeled(1000, 30, 2)
    times = taking_turns(fits(SeqMED(gamma=1 / 30), *many), fits(SeqMED(gamma=1 / 30), *two))
    note = "expected 1 to 16: one kernel matrix for all classes, one dual per class"
    yield Result("SeqMED.fit, 16 classes over 2", *times, note=note)


SECTIONS = {
    "solver": solver, "precomputed": precomputed, "lapmed": lapmed, "stream": stream,
    "predict": predict, "memory": memory, "startup": startup, "threads": threads, "growth": growth,
}  # fmt: skip


def seconds_of(call: Callable[[], Any]) -> float:
    """Return the seconds a call takes."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def resident_megabytes() -> float:
    """Return the memory of this process; NaN where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return float("nan")
    return pages * resource.getpagesize() / 2**20


def verdict(result: Result) -> str:
    """Return whether a ratio reaches what is asked for."""
    if result.must is None or result.aim is None:
        return ""
    if result.ratio <= result.aim:
        return "aim"
    return "must" if result.ratio <= result.must else "MISSED"


def main():
    """Run the sections, print their tables and write them as JSON."""
    parser = make_parser(__doc__)
    parser.add_argument("--only", choices=list(SECTIONS), help="one section")
    parser.add_argument("--quick", action="store_true", help="smaller, for a first look")
    parser.add_argument("--out", help="write the results there as JSON")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {}
    for name in [options.only] if options.only else SECTIONS:
        print(f"\n{name}", flush=True)
        results = list(SECTIONS[name](options.quick))
        print_table(
            ("", "seconds", "theirs", "ratio", "must", "aim", "reached", ""),
            [
                (
                    each.what, f"{each.ours:.4g}", f"{each.theirs:.4g}", f"{each.ratio:.3f}",
                    "" if each.must is None else f"{each.must:.3g}",
                    "" if each.aim is None else f"{each.aim:.3g}", verdict(each), each.note,
                )
                for each in results
            ],
        )  # fmt: skip
        found[name] = [each._asdict() | {"ratio": each.ratio} for each in results]
        write_json(options.out, {"quick": options.quick, "sections": found})


if __name__ == "__main__":
    main()
