"""The three figures of the paper: their streams, curves and parameter grids.

The parameters of each method are chosen from its grid on validation streams, which share neither
batches nor test points with the trials. On ISOLET, the methods of the paper and SeqGraphMED have
the parameters of the paper. The parameters of the other methods are chosen by learning the first 90
speakers and scoring the speakers of isolet4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path

from paper import curves, data
from paper.curves import Curve, Parameters
from paper.data import TrialStream, categorical_stream, sphere_stream

# Second number in the seed of a stream.
TRIALS, VALIDATION = 0, 1
# Batches of a validation stream after which a retrained method is scored.
JUDGED_RETRAININGS = 3


@dataclass(frozen=True)
class Method:
    """One curve of a figure.

    Parameters
    ----------
    label : name in the legend.
    curve : function that computes it.
    fixed : fixed parameters.
    grid : parameters to choose from.
    retrains : whether it is retrained on all batches so far.
    """

    label: str
    curve: Curve
    fixed: Parameters = field(default_factory=dict)
    grid: tuple[Parameters, ...] = ({},)
    retrains: bool = False

    @property
    def choices(self) -> list[Parameters]:
        """All parameters of every entry of the grid."""
        return [{**self.fixed, **point} for point in self.grid]


@dataclass(frozen=True)
class Figure:
    """One figure of the paper.

    Parameters
    ----------
    name, title : name of its files, and title.
    stream : returns the stream of a seed.
    methods : curves by short name.
    n_batches, trials : as in the paper.
    seed : first number in the seed of every stream.
    validation_streams : number of streams on which parameters are chosen.
    validation_batches : batches of such a stream; None for ``n_batches``.
    retrain_every : batches between two evaluations of retrained methods.
    """

    name: str
    title: str
    stream: Callable[[tuple[int, ...]], TrialStream]
    methods: dict[str, Method]
    n_batches: int
    trials: int
    seed: int
    validation_streams: int = 3
    validation_batches: int | None = None
    retrain_every: int = 1

    def wanted(self, method: Method) -> tuple[int, ...]:
        """Return the batches after which a method is scored in a trial, including the last."""
        step = self.retrain_every if method.retrains else 1
        return tuple(range((self.n_batches - 1) % step, self.n_batches, step))

    def judged(self, method: Method) -> tuple[int, ...]:
        """Return the batches whose mean accuracy is compared to choose parameters."""
        batches = self.validation_batches or self.n_batches
        step = batches // JUDGED_RETRAININGS if method.retrains else 1
        return tuple(range((batches - 1) % step, batches, step))

    def trial_stream(self, trial: int) -> TrialStream:
        """Return the stream of a trial."""
        return self.stream((self.seed, TRIALS, trial))

    def validation_stream(self, number: int) -> TrialStream:
        """Return a validation stream."""
        return self.stream((self.seed, VALIDATION, number))


def grid(**choices: tuple[float, ...]) -> tuple[Parameters, ...]:
    """Return all combinations of the values of each parameter."""
    return tuple(dict(zip(choices, values, strict=True)) for values in product(*choices.values()))


SVM_BOUNDS = (0.01, 0.1, 1.0, 10.0, 100.0)
MED_BOUNDS = (1.05, 1.5, 3.0, 10.0, 100.0)
SPHERE_BOUNDS = (1.5, 10.0, 100.0, 1000.0)
SPHERE_BETAS = (0.005, 0.05, 0.5, 5.0, 50.0)
# Retraining takes most of the time of a run, so it is done only for some batches.
CATEGORICAL_RETRAIN_EVERY, SPHERE_RETRAIN_EVERY = 3, 5
# The learners of the paper: each batch is optimised once, and the last mean is used.
PAPER: Parameters = {"lag": 1, "averaging": False}
# More landmarks do not help in three dimensions.
SPHERE_LANDMARKS = 200
# RBF widths 1 and 10 of the paper, as gamma = 1 / (2 width^2).
SPHERE_GAMMA, ISOLET_GAMMA = 0.5, 0.005


def figure1(*, ours: bool = False) -> Figure:
    """Categorical simulation, fully labeled."""
    learner, bounds, machines = curves.sequential_med, grid(C=MED_BOUNDS), grid(C=SVM_BOUNDS)
    averaged: Parameters = {"lag": 1, "averaging": True}
    bounded: Parameters = {"lag": 3, "averaging": True, "budget": 600}
    added = {
        "ours": Method("seqmed: averaged", learner, averaged, bounds),
        "ours_bounded": Method("seqmed: averaged, lag 3, 600 points", learner, bounded, bounds),
    }
    return Figure(
        name="figure1",
        title="Categorical simulation, fully labeled",
        stream=categorical_stream,
        methods={
            "seqmed": Method("SeqMED", learner, PAPER, bounds),
            **(added if ours else {}),
            "independent": Method("SVM, each batch alone", curves.independent_svm, grid=machines),
            "full_svm": Method("Full SVM", curves.full_svm, grid=machines, retrains=True),
            "full_med": Method("Full MED", curves.full_med, grid=bounds, retrains=True),
        },
        n_batches=30,
        trials=100,
        seed=1,
        retrain_every=CATEGORICAL_RETRAIN_EVERY,
    )


def laplacian_methods(
    fixed: Parameters, bounds: tuple[float, ...], betas: tuple[float, ...], n_landmarks: int = 500
) -> dict[str, Method]:
    """Return the curves of figures 2 and 3."""
    both, learner = grid(C=bounds, beta=betas), curves.sequential_lapmed
    spectral = {**PAPER, **fixed, "recursion": "spectral"}
    landmarks = {**PAPER, **fixed, "n_landmarks": n_landmarks, "recursion": "landmarks"}
    alone = {**PAPER, **fixed, "beta": 0.0}
    return {
        "spectral": Method("SeqLapMED, spectral", learner, spectral, both),
        "landmarks": Method("SeqLapMED, landmarks", learner, landmarks, both),
        "beta0": Method("SeqLapMED, beta = 0", learner, alone, grid(C=bounds)),
        "independent": Method("LapSVM, each batch alone", curves.independent_lapsvm, fixed, both),
        "full_lapsvm": Method("Full LapSVM", curves.full_lapsvm, fixed, both, retrains=True),
        "full_lapmed": Method("Full LapMED", curves.full_lapmed, fixed, both, retrains=True),
    }


def sphere_figure(name: str, labels: int, heat_width: float | str, seed: int, ours: bool) -> Figure:
    """Return the sphere simulation with a number of labels in a batch of 100."""
    fixed = {
        "gamma": SPHERE_GAMMA, "n_neighbors": 20, "weights": "heat", "heat_width": heat_width,
    }  # fmt: skip
    choice = grid(C=SPHERE_BOUNDS, beta=(0.0, 0.005, 0.5, 50.0))
    landmarks = {**fixed, "n_landmarks": SPHERE_LANDMARKS}
    bounded = {**landmarks, "lag": 3, "averaging": True, "budget": 400}
    whole = {**landmarks, "lag": None, "averaging": False}
    learner = curves.sequential_lapmed
    added = {
        "ours": Method("seqmed: averaged, lag 3, 400 points", learner, bounded, choice),
        "ours_landmarks": Method("seqmed: landmarks, all multipliers", learner, whole, choice),
        "ours_mixture": Method(
            "seqmed: SeqGraphMED, landmarks", curves.graph_mixture, landmarks, choice
        ),
    }
    methods = laplacian_methods(fixed, SPHERE_BOUNDS, SPHERE_BETAS, SPHERE_LANDMARKS)
    return Figure(
        name=name,
        title=f"Ball in a shell, {labels} labels in 100",
        stream=partial(sphere_stream, labels=labels),
        methods={**methods, **(added if ours else {})},
        n_batches=30,
        trials=100,
        seed=seed,
        retrain_every=SPHERE_RETRAIN_EVERY,
    )


def figure2(*, ours: bool = False) -> Figure:
    """Sphere simulation, one label in ten, as in the paper."""
    return sphere_figure("figure2", labels=10, heat_width=0.01, seed=2, ours=ours)


def figure2b(*, ours: bool = False) -> Figure:
    """Sphere simulation with two labels in a hundred, where the geometry helps."""
    return sphere_figure("figure2b", labels=2, heat_width="auto", seed=3, ours=ours)


ISOLET_GRAPH: Parameters = {
    "gamma": ISOLET_GAMMA, "n_neighbors": 10, "weights": "binary", "heat_width": "auto",
}  # fmt: skip
ISOLET_BOUNDS, ISOLET_BETAS = (10.0, 100.0), (0.5, 1.5, 4.5)


def isolet_additions() -> dict[str, Method]:
    """Return the curves of figure 3 that are not in the paper."""
    kernel = {"gamma": ISOLET_GAMMA, "n_neighbors": 10, "averaging": False}
    choice = grid(C=ISOLET_BOUNDS, beta=ISOLET_BETAS)
    landmarks = {**kernel, "weights": "binary", "lag": None, "n_landmarks": 500}
    return {
        "ours_landmarks": Method(
            "seqmed: landmarks, all multipliers", curves.sequential_lapmed, landmarks, choice
        ),
        "ours_beta0": Method(
            "seqmed: beta = 0, all multipliers", curves.sequential_lapmed,
            {**kernel, "lag": None, "beta": 0.0}, grid(C=ISOLET_BOUNDS),
        ),
        "ours_bounded": Method(
            "seqmed: landmarks, 900 points in all", curves.sequential_lapmed,
            {**landmarks, "budget": 900}, choice,
        ),
        "ours_mixture": Method(
            "seqmed: SeqGraphMED, landmarks", curves.graph_mixture,
            {**ISOLET_GRAPH, "n_landmarks": 500}, grid(C=(100.0,), beta=(0.5,)),
        ),
    }  # fmt: skip


def full_chosen() -> Method:
    """Return full retraining with the grid of `isolet_additions`."""
    choice = grid(C=ISOLET_BOUNDS, beta=ISOLET_BETAS)
    return Method("Full LapSVM, tuned", curves.full_lapsvm, ISOLET_GRAPH, choice, retrains=True)


def figure3(data_dir: Path | None = None, *, exact: bool = False, ours: bool = False) -> Figure:
    """ISOLET, A to M against N to Z, as in the paper."""
    methods = laplacian_methods(ISOLET_GRAPH, (100.0,), (0.5,))
    if exact:
        methods["exact"] = Method(
            "SeqLapMED, exact",
            curves.sequential_lapmed,
            {**PAPER, **ISOLET_GRAPH, "recursion": "exact"},
            grid(C=(100.0,), beta=(0.5,)),
        )
    return Figure(
        name="figure3",
        title="ISOLET, A-M against N-Z, one speaker in five labeled",
        stream=partial(_isolet, data_dir),
        methods={
            **methods,
            **({**isolet_additions(), "full_chosen": full_chosen()} if ours else {}),
        },
        n_batches=24,
        trials=1,
        seed=4,
        validation_streams=1,
        validation_batches=18,
    )


def figure3b(data_dir: Path | None = None) -> Figure:
    """ISOLET in six random orders of all 150 speakers, against full retraining."""
    return Figure(
        name="figure3b",
        title="ISOLET, six random orders of the 150 speakers",
        stream=partial(_isolet, data_dir, reordered=True),
        methods={
            **isolet_additions(),
            "full_chosen": full_chosen(),
        },
        n_batches=24,
        trials=6,
        seed=5,
        validation_streams=1,
        validation_batches=18,
    )


def _isolet(data_dir: Path | None, seed: tuple[int, ...], reordered: bool = False) -> TrialStream:
    arrays = data.load_isolet(data_dir, download=False)
    if seed[1] == VALIDATION:
        return data.isolet_validation_stream(arrays)
    return data.isolet_random_stream(arrays, seed) if reordered else data.isolet_stream(arrays)


# A quick run: trials, step through a grid, batches of a validation stream, and batches between two
# retrainings.
QUICK_TRIALS, QUICK_GRID_STEP, QUICK_VALIDATION, QUICK_RETRAIN_EVERY = 3, 2, 12, 12


def quick(figure: Figure) -> Figure:
    """Return a figure with fewer trials, streams, parameters and retrainings, for a quick run."""
    return replace(
        figure,
        trials=min(figure.trials, QUICK_TRIALS),
        methods={
            name: replace(method, grid=method.grid[::QUICK_GRID_STEP])
            for name, method in figure.methods.items()
        },
        validation_streams=min(figure.validation_streams, 1),
        validation_batches=min(figure.validation_batches or figure.n_batches, QUICK_VALIDATION),
        retrain_every=max(figure.retrain_every, QUICK_RETRAIN_EVERY),
    )
