"""The paper's three figures as data: which stream, which curves, which parameters are tried.

Each method chooses its parameters from its own small grid on validation streams, which share
neither batches nor test points with the trials. ISOLET has one fixed setting and no choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path

from seqmed.experiments import curves, isolet
from seqmed.experiments.curves import Curve, Parameters
from seqmed.experiments.data import Stream, categorical_stream, sphere_stream

# Streams drawn for trials and for validation differ in this part of their seed.
TRIALS, VALIDATION = 0, 1
# Batches of a validation stream after which a method that retrains on everything is judged.
JUDGED_RETRAININGS = 3
QUICK_TRIALS = 3
QUICK_GRID_STEP = 2
QUICK_RETRAIN_EVERY = 6


@dataclass(frozen=True)
class Method:
    """One curve of a figure.

    Parameters
    ----------
    label : as in the legend.
    curve : computes it.
    fixed : parameters it always has.
    grid : parameters to choose from, empty for no choice.
    retrains : whether it goes back to all data so far, and so costs more with every batch.
    """

    label: str
    curve: Curve
    fixed: Parameters = field(default_factory=dict)
    grid: tuple[Parameters, ...] = ({},)
    retrains: bool = False


@dataclass(frozen=True)
class Figure:
    """One figure of the paper.

    Parameters
    ----------
    name, title : for files and for readers.
    stream : makes the stream of a seed.
    methods : curves by short name.
    n_batches, trials : as the paper has them.
    seed : first part of all its seeds.
    validation_streams : how many streams the choice of parameters rests on; 0 for no choice.
    retrain_every : batches between two evaluations of methods that retrain on everything.
    """

    name: str
    title: str
    stream: Callable[[tuple[int, ...]], Stream]
    methods: dict[str, Method]
    n_batches: int
    trials: int
    seed: int
    validation_streams: int = 3
    retrain_every: int = 1

    def wanted(self, method: Method) -> tuple[int, ...]:
        """Return the batches after which a method is scored in a trial; the last always is."""
        step = self.retrain_every if method.retrains else 1
        return tuple(range((self.n_batches - 1) % step, self.n_batches, step))

    def judged(self, method: Method) -> tuple[int, ...]:
        """Return the batches whose mean accuracy decides between parameters: all, if cheap."""
        step = self.n_batches // JUDGED_RETRAININGS if method.retrains else 1
        return tuple(range((self.n_batches - 1) % step, self.n_batches, step))

    def trial_stream(self, trial: int) -> Stream:
        """Return the stream of a trial."""
        return self.stream((self.seed, TRIALS, trial))

    def validation_stream(self, number: int) -> Stream:
        """Return a stream to choose parameters on."""
        return self.stream((self.seed, VALIDATION, number))


def grid(**choices: tuple) -> tuple[Parameters, ...]:
    """Return all combinations of the values given for each parameter."""
    return tuple(dict(zip(choices, values, strict=True)) for values in product(*choices.values()))


SVM_BOUNDS = (0.01, 0.1, 1.0, 10.0, 100.0)
MED_BOUNDS = (1.05, 1.5, 3.0, 10.0, 100.0)
SPHERE_BOUNDS = (1.5, 10.0, 100.0, 1000.0)
SPHERE_BETAS = (0.005, 0.05, 0.5, 5.0, 50.0)
# Retraining on all rows so far takes most of the time of a run: some batches will do.
CATEGORICAL_RETRAIN_EVERY, SPHERE_RETRAIN_EVERY = 3, 5
# RBF widths 1 and 10 of the paper, as gamma = 1 / (2 width^2).
SPHERE_GAMMA, ISOLET_GAMMA = 0.5, 0.005


def figure1() -> Figure:
    """Categorical simulation, fully labeled."""
    return Figure(
        name="figure1",
        title="Categorical simulation, fully labeled",
        stream=categorical_stream,
        methods={
            "seqmed": Method("SeqMED", curves.sequential_med, grid=grid(C=MED_BOUNDS)),
            "independent": Method(
                "SVM, each batch alone", curves.independent_svm, grid=grid(C=SVM_BOUNDS)
            ),
            "full_svm": Method("Full SVM", curves.full_svm, grid=grid(C=SVM_BOUNDS), retrains=True),
            "full_med": Method("Full MED", curves.full_med, grid=grid(C=MED_BOUNDS), retrains=True),
        },
        n_batches=30,
        trials=100,
        seed=1,
        retrain_every=CATEGORICAL_RETRAIN_EVERY,
    )


def laplacian_methods(fixed: Parameters, bounds: tuple, betas: tuple) -> dict[str, Method]:
    """Return the curves of figures 2 and 3."""
    both = grid(C=bounds, beta=betas)
    return {
        "spectral": Method(
            "SeqLapMED, spectral",
            curves.sequential_lapmed,
            {**fixed, "recursion": "spectral"},
            both,
        ),
        "landmarks": Method(
            "SeqLapMED, landmarks",
            curves.sequential_lapmed,
            {**fixed, "recursion": "landmarks"},
            both,
        ),
        "beta0": Method(
            "SeqLapMED, beta = 0",
            curves.sequential_lapmed,
            {**fixed, "beta": 0.0},
            grid(C=bounds),
        ),
        "independent": Method("LapSVM, each batch alone", curves.independent_lapsvm, fixed, both),
        "full_lapsvm": Method("Full LapSVM", curves.full_lapsvm, fixed, both, retrains=True),
        "full_lapmed": Method("Full LapMED", curves.full_lapmed, fixed, both, retrains=True),
    }


def figure2() -> Figure:
    """Sphere simulation, one label in ten, as in the paper."""
    fixed = {
        "gamma": SPHERE_GAMMA, "n_neighbors": 20, "weights": "heat", "heat_width": 0.01,
    }  # fmt: skip
    return Figure(
        name="figure2",
        title="Ball in a shell, 10 labels in 100",
        stream=sphere_stream,
        methods=laplacian_methods(fixed, SPHERE_BOUNDS, SPHERE_BETAS),
        n_batches=30,
        trials=100,
        seed=2,
        retrain_every=SPHERE_RETRAIN_EVERY,
    )


def figure2b() -> Figure:
    """Sphere simulation with two labels in a hundred: a setting in which the geometry helps."""
    fixed = {
        "gamma": SPHERE_GAMMA, "n_neighbors": 20, "weights": "heat", "heat_width": "auto",
    }  # fmt: skip
    return Figure(
        name="figure2b",
        title="Ball in a shell, 2 labels in 100",
        stream=partial(sphere_stream, labels=2),
        methods=laplacian_methods(fixed, SPHERE_BOUNDS, SPHERE_BETAS),
        n_batches=30,
        trials=100,
        seed=3,
        retrain_every=SPHERE_RETRAIN_EVERY,
    )


def figure3(data_dir: Path | None = None, *, exact: bool = False) -> Figure:
    """ISOLET, A to M against N to Z, the setting of the paper."""
    fixed = {
        "gamma": ISOLET_GAMMA, "n_neighbors": 10, "weights": "binary", "heat_width": "auto",
    }  # fmt: skip
    methods = laplacian_methods(fixed, (100.0,), (0.5,))
    if exact:
        methods["exact"] = Method(
            "SeqLapMED, exact",
            curves.sequential_lapmed,
            {**fixed, "recursion": "exact"},
            grid(C=(100.0,), beta=(0.5,)),
        )
    return Figure(
        name="figure3",
        title="ISOLET, A-M against N-Z, one speaker in five labeled",
        stream=partial(_isolet, data_dir),
        methods=methods,
        n_batches=24,
        trials=1,
        seed=4,
        validation_streams=0,
    )


def _isolet(data_dir: Path | None, seed: tuple[int, ...]) -> Stream:
    return isolet.isolet_stream(isolet.load_arrays(data_dir, download=False))


def quick(figure: Figure) -> Figure:
    """Return a figure of a few minutes at most: fewer trials, streams, choices and retrainings."""
    return replace(
        figure,
        trials=min(figure.trials, QUICK_TRIALS),
        methods={
            name: replace(method, grid=method.grid[::QUICK_GRID_STEP])
            for name, method in figure.methods.items()
        },
        validation_streams=min(figure.validation_streams, 1),
        retrain_every=max(figure.retrain_every, QUICK_RETRAIN_EVERY),
    )
