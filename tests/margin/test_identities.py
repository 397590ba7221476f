"""The identities of the method, through the public estimators."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC

from seqmed import SeqMED
from tests.reference import naive
from tests.support.gaussian_streams import (
    GAMMA,
    RECURSIONS,
    TOL,
    UNLABELED,
    Rows,
    assert_close,
    awkward_stream,
    dot,
    either_bias,
    kernels_over_time,
    learn,
    make_batch,
    make_stream,
    marked,
    new_points,
    reference_scores,
    seq_lap,
    seq_med,
    smoothings,
    three_class_stream,
)

# LIBSVM trains on kernel values in single precision, relative rounding 6e-8, times coefficients
# that add up to some tens.
SAME_AS_LIBSVM = 1e-6


# -- one batch -------------------------------------------------------------------------------------


@pytest.mark.parametrize("slack_shape", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("C", [3.0, 10.0, 200.0])
def test_one_batch_of_seqmed_is_med(C, slack_shape):
    stream = [make_batch(60, 60, seed=1)]
    model = learn(seq_med(C=C, slack_shape=slack_shape), stream)
    expected = reference_scores(
        stream, new_points(), [naive.rbf(GAMMA)], bound=C, slack_shape=slack_shape
    )
    assert_close(model.decision_function(new_points()), expected)


@pytest.mark.parametrize("recursion", RECURSIONS)
@pytest.mark.parametrize("weights", ["heat", "binary"])
def test_one_batch_of_seqlapmed_is_lapmed(recursion, weights):
    stream = [make_batch(60, 14, seed=2)]
    model = seq_lap(recursion=recursion, weights=weights)
    learn(model, stream)
    batches = smoothings(stream, [0.5], weights=weights)
    kernels = [naive.unrolled_kernel(naive.rbf(GAMMA), batches)]
    expected = reference_scores(stream, new_points(), kernels)
    assert_close(model.decision_function(new_points()), expected)


@either_bias
@pytest.mark.parametrize("make", [seq_med, seq_lap])
def test_fit_is_one_batch(make, bias):
    rows = make_batch(50, 20, seed=3)
    one = learn(make(bias=bias), [rows])
    other = make(bias=bias)
    other.fit(rows.points, marked(rows.labels, other))
    assert np.array_equal(
        one.decision_function(new_points()), other.decision_function(new_points())
    )
    # and forgets what came before
    learn(other, [make_batch(30, 20, seed=4)])
    other.fit(rows.points, marked(rows.labels, other))
    assert np.array_equal(
        one.decision_function(new_points()), other.decision_function(new_points())
    )


@pytest.mark.parametrize("C", [0.5, 10.0, 100.0])
@pytest.mark.parametrize("kernel", ["linear", "poly"])
def test_slack_shape_zero_is_the_support_vector_machine(kernel, C):
    # multiples of 1/8: LIBSVM's single precision holds these kernel values without rounding
    rows = make_batch(80, 80, seed=5)
    points = np.round(8 * rows.points) / 8
    options = {"kernel": kernel, "gamma": 0.5, "degree": 2, "coef0": 1.0, "C": C}
    model = SeqMED(slack_shape=0, bias="exact", tol=TOL, **options).fit(points, rows.labels)
    machine = SVC(tol=TOL, **options).fit(points, rows.labels)
    assert_close(model.decision_function(new_points()), machine.decision_function(new_points()))


def single(values):
    """Round to single precision, which LIBSVM does anyway."""
    return values.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("C", [0.5, 10.0, 100.0])
def test_slack_shape_zero_is_the_machine_on_given_kernel_values(C, weighted):
    rows = make_batch(80, 80, seed=6)
    kernel = naive.rbf(GAMMA)
    table = single(kernel(rows.points, rows.points))
    weights = np.random.default_rng(7).uniform(0.2, 3.0, size=80) if weighted else None
    model = SeqMED(kernel="precomputed", C=C, slack_shape=0, bias="exact", tol=TOL)
    model.fit(table, rows.labels, sample_weight=weights)
    machine = SVC(kernel="precomputed", C=C, tol=TOL)
    machine.fit(table, rows.labels, sample_weight=weights)
    new = kernel(new_points(), rows.points)
    assert_close(model.decision_function(new), machine.decision_function(new))


def test_slack_shape_zero_with_smoothness_is_the_laplacian_machine():
    rows = make_batch(60, 16, seed=8)
    model = seq_lap(slack_shape=0).fit(rows.points, rows.labels)
    kernel = naive.unrolled_kernel(naive.rbf(GAMMA), smoothings([rows], [0.5]))
    known = rows.labels != UNLABELED
    machine = SVC(kernel="precomputed", C=10.0, tol=TOL)
    machine.fit(kernel(rows.points[known], rows.points[known]), rows.labels[known])
    assert_close(
        model.decision_function(new_points()),
        machine.decision_function(kernel(new_points(), rows.points[known])),
        SAME_AS_LIBSVM,
    )


# -- whole streams against the reference -----------------------------------------------------------


@pytest.mark.parametrize("slack_shape", [0.3, 1.0])
def test_a_stream_of_seqmed_is_that_of_the_reference(slack_shape):
    stream = make_stream(seed=1)
    model = seq_med(slack_shape=slack_shape)
    kernel = naive.rbf(GAMMA)
    for t, rows in enumerate(stream):
        learn(model, [rows])
        expected = reference_scores(
            stream[: t + 1], new_points(), [kernel] * (t + 1), slack_shape=slack_shape
        )
        assert_close(model.decision_function(new_points()), expected)


@pytest.mark.parametrize("recursion", RECURSIONS)
def test_a_stream_of_seqlapmed_is_that_of_the_reference(recursion):
    stream = make_stream(seed=2)
    model = seq_lap(recursion=recursion)
    batches = smoothings(stream, [0.5] * 4)
    kernels = kernels_over_time(recursion, naive.rbf(GAMMA), batches)
    for t, rows in enumerate(stream):
        learn(model, [rows])
        expected = reference_scores(stream[: t + 1], new_points(), kernels[: t + 1])
        assert_close(model.decision_function(new_points()), expected)


def test_a_stream_with_few_landmarks_is_that_of_the_reference():
    stream = make_stream(seed=3)
    model = seq_lap(recursion="landmarks", n_landmarks=30)
    batches = smoothings(stream, [0.5] * 4)
    kernels, landmarks = [], []
    for t, rows in enumerate(stream):
        learn(model, [rows])
        # the reference takes only the choice of landmarks from the library
        landmarks.append(model.posterior_.recursion.basis.landmarks)
        kernels.append(naive.moving_landmark_kernel(naive.rbf(GAMMA), landmarks, batches[: t + 1]))
        expected = reference_scores(stream[: t + 1], new_points(), kernels)
        assert_close(model.decision_function(new_points()), expected)
    assert [each.shape[0] for each in landmarks] == [22, 30, 30, 30]
    # the first batch has been replaced in part, and every batch has its share
    for rows in stream:
        own = sum(point.tolist() in rows.points.tolist() for point in landmarks[-1])
        assert 0 < own < 22


@pytest.mark.parametrize("recursion", [None, *RECURSIONS])
def test_awkward_batches_are_those_of_the_reference(recursion):
    stream = awkward_stream(seed=4)
    if recursion is None:
        model = seq_med()
        kernels = [naive.rbf(GAMMA)] * len(stream)
    else:
        model = seq_lap(recursion=recursion)
        batches = smoothings(stream, [0.5] * len(stream))
        kernels = kernels_over_time(recursion, naive.rbf(GAMMA), batches)
    for t, rows in enumerate(stream):
        learn(model, [rows])
        expected = reference_scores(stream[: t + 1], new_points(), kernels[: t + 1])
        assert_close(model.decision_function(new_points()), expected)


@pytest.mark.parametrize("slack_shape", [0.0, 1.0])
@pytest.mark.parametrize("recursion", RECURSIONS)
def test_a_stream_of_machines_per_class_is_that_of_the_reference(recursion, slack_shape):
    """A known bias of -1: no label, one class, one row and two classes, all by the same dual."""
    stream = awkward_stream(seed=4)
    model = seq_lap(recursion=recursion, bias="auto", slack_shape=slack_shape)
    batches = smoothings(stream, [0.5] * len(stream))
    kernels = kernels_over_time(recursion, naive.rbf(GAMMA), batches)
    machines = naive.ClassMachines(slack_shape=slack_shape, lag=1)
    for rows, kernel in zip(stream, kernels, strict=True):
        learn(model, [rows])
        known = rows.labels != UNLABELED
        if known.any():
            machines.learn(kernel, rows.points[known], rows.labels[known], np.ones(known.sum()), 10)
        else:  # the last labels are learned again in the new kernel
            machines.kernel = kernel
            machines.solve()
        scores = machines.class_scores(new_points())
        assert_close(model.decision_function(new_points()), scores[:, 1] - scores[:, 0])


def test_beta_may_differ_from_batch_to_batch():
    stream, betas = make_stream(seed=5), [0.5, 3.0, 0.1, 1.0]
    for recursion in RECURSIONS:
        model = seq_lap(recursion=recursion)
        for rows, beta in zip(stream, betas, strict=True):
            learn(model.set_params(beta=beta), [rows])
        kernels = kernels_over_time(recursion, naive.rbf(GAMMA), smoothings(stream, betas))
        assert_close(
            model.decision_function(new_points()), reference_scores(stream, new_points(), kernels)
        )


@either_bias
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_landmarks_that_are_all_points_are_exact(wrap, bias):
    stream = make_stream(seed=6)
    exact = learn(seq_lap(recursion="exact", bias=bias), stream, wrap=wrap)
    landmarks = seq_lap(recursion="landmarks", n_landmarks=85, bias=bias)
    learn(landmarks, stream, wrap=wrap)
    assert_close(landmarks.decision_function(new_points()), exact.decision_function(new_points()))
    assert_close(landmarks.decision_std(new_points()), exact.decision_std(new_points()))


@either_bias
def test_smoothness_changes_the_scores(bias):
    # all the identities above would hold for a model that ignored its unlabeled rows
    stream = make_stream(seed=7)
    for recursion in RECURSIONS:
        models = (seq_lap(recursion=recursion, beta=beta, bias=bias) for beta in (0.0, 0.5))
        scores = [learn(model, stream).decision_function(new_points()) for model in models]
        assert np.abs(scores[0] - scores[1]).max() > 0.05


# -- beta = 0 --------------------------------------------------------------------------------------


@either_bias
@pytest.mark.parametrize("recursion", RECURSIONS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_without_smoothing_seqlapmed_is_seqmed(recursion, n_classes, kernel, bias):
    stream = make_stream(n_classes=n_classes, seed=8)
    plain = learn(seq_med(kernel=kernel, bias=bias), stream)
    smooth = learn(seq_lap(kernel=kernel, beta=0.0, recursion=recursion, bias=bias), stream)
    # the same operations in the same order
    assert np.array_equal(
        smooth.decision_function(new_points()), plain.decision_function(new_points())
    )
    assert np.array_equal(smooth.decision_std(new_points()), plain.decision_std(new_points()))
    assert np.array_equal(smooth.intercept_, plain.intercept_)


# -- linear kernel ---------------------------------------------------------------------------------


LINEAR_CASES = [
    pytest.param(recursion, wrap, n_classes, id=f"{recursion}-{name}-{n_classes}")
    for recursion in [None, *RECURSIONS]
    for wrap, name in [(np.asarray, "dense"), (sp.csr_array, "csr")]
    for n_classes in (2, 3)
    if not (recursion == "spectral" and name == "csr")
]


@either_bias
@pytest.mark.parametrize(("recursion", "wrap", "n_classes"), LINEAR_CASES)
def test_a_linear_kernel_is_its_explicit_weights(recursion, wrap, n_classes, bias):
    stream = make_stream(n_classes=n_classes, seed=9)
    new = new_points()
    if recursion is None:
        explicit, implicit = (seq_med(kernel=kernel, bias=bias) for kernel in ("linear", dot))
    else:
        explicit = seq_lap(kernel="linear", recursion=recursion, bias=bias)
        implicit = seq_lap(kernel=dot, recursion=recursion, bias=bias)
    for rows in stream:
        learn(explicit, [rows], wrap=wrap)
        learn(implicit, [rows], wrap=wrap)
        scores = explicit.decision_function(wrap(new))
        assert_close(scores, implicit.decision_function(wrap(new)))
        assert_close(explicit.intercept_, implicit.intercept_)
        assert_close(explicit.decision_std(wrap(new)), implicit.decision_std(wrap(new)))
        by_hand = new @ explicit.coef_.T + explicit.intercept_
        if bias == "auto":
            by_hand = explicit.class_scale_ * (by_hand + 1)
            by_hand = by_hand if n_classes == 3 else by_hand[:, 1:] - by_hand[:, :1]
        # the same sum taken in another order
        assert_close(scores, by_hand[:, 0] if n_classes == 2 else by_hand, 1e-12)
        machines = 1 if n_classes == 2 and bias == "exact" else n_classes
        assert explicit.coef_.shape == (machines, 3)


@either_bias
@pytest.mark.parametrize("recursion", [None, "landmarks", "spectral"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_memory_of_a_linear_kernel_is_constant(recursion, n_classes, bias):
    if recursion is None:
        model = seq_med(kernel="linear", bias=bias)
    else:
        model = seq_lap(kernel="linear", recursion=recursion, n_landmarks=25, bias=bias)
    lengths = []
    for t in range(8):
        learn(model, [make_batch(20, 10, n_classes, seed=500 + t)])
        posterior = model.posterior_
        machines = posterior.intercepts.size
        assert posterior.support.points.shape == (machines, 3)
        assert posterior.support.coefficients.shape == (machines, machines)
        assert [part.points.shape for part in posterior.mean_parts] == [(machines, 3)]
        lengths.append(len(pickle.dumps(model)))
    # landmarks are full after two batches, the spectral form begins with the third; integers of the
    # registry take a byte or two more as they grow, kept rows would take hundreds
    assert max(lengths[5:]) <= max(lengths[2:5]) + 64


# -- order and weights -----------------------------------------------------------------------------


def either_model(recursion, **options):
    """Return SeqMED for no recursion, else SeqLapMED."""
    return seq_med(**options) if recursion is None else seq_lap(recursion=recursion, **options)


@either_bias
@pytest.mark.parametrize("recursion", [None, *RECURSIONS])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_order_of_rows_inside_a_batch_does_not_matter(recursion, n_classes, bias):
    stream = make_stream(n_classes=n_classes, seed=10)
    generator = np.random.default_rng(11)
    shuffled = [rows.part(generator.permutation(rows.labels.size)) for rows in stream]
    models = [either_model(recursion, bias=bias) for _ in range(2)]
    scores = [
        learn(model, each).decision_function(new_points())
        for model, each in zip(models, (stream, shuffled), strict=True)
    ]
    assert_close(*scores)


def weighted_stream(seed, lowest):
    generator = np.random.default_rng(seed)
    return [
        Rows(
            rows.points,
            rows.labels,
            generator.integers(lowest, 4, size=rows.labels.size).astype(float),
        )
        for rows in make_stream(seed=seed)
    ]


def repeated(stream):
    """Return every row as often as its weight, rows of weight 0 left out."""
    return [
        Rows(again.points, again.labels, np.ones(again.labels.size))
        for rows in stream
        for again in [rows.part(np.repeat(np.arange(rows.labels.size), rows.weights.astype(int)))]
    ]


WEIGHT_OPTIONS = [
    pytest.param({}, id="plain"),
    pytest.param({"gamma": "scale"}, id="gamma-scale"),
    pytest.param({"slack_shape": 0}, id="svm"),
    pytest.param({"class_weight": "balanced"}, id="balanced"),
    pytest.param({"bias": "auto"}, id="auto"),
    pytest.param({"bias": "auto", "class_weight": "balanced"}, id="auto-balanced"),
    pytest.param({"kernel": "linear"}, id="linear"),
]


@pytest.mark.parametrize("options", WEIGHT_OPTIONS)
@pytest.mark.parametrize("recursion", [None, *RECURSIONS])
@pytest.mark.parametrize("lowest", [1, 0])
def test_a_weight_is_a_repeated_row_and_zero_a_missing_one(recursion, options, lowest):
    stream = weighted_stream(12, lowest)
    assert any((rows.weights == lowest).any() for rows in stream)

    def make():
        if recursion is None:
            return seq_med(**options)
        return seq_lap(recursion=recursion, **options)

    weighted = learn(make(), stream, weighted=True)
    plain = learn(make(), repeated(stream))
    assert_close(weighted.decision_function(new_points()), plain.decision_function(new_points()))
    assert_close(weighted.decision_std(new_points()), plain.decision_std(new_points()))


def test_weights_scale_both_parts_of_the_slack_prior():
    stream = [
        Rows(rows.points, rows.labels, np.random.default_rng(13).uniform(0.3, 3.0, size=n))
        for rows in make_stream(seed=13)
        for n in [rows.labels.size]
    ]
    model = learn(seq_med(), stream, weighted=True)
    expected = reference_scores(stream, new_points(), [naive.rbf(GAMMA)] * 4)
    assert_close(model.decision_function(new_points()), expected)


@either_bias
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_a_weight_is_a_repeated_row_in_either_format(wrap, bias):
    stream = weighted_stream(14, 0)
    weighted, plain = (seq_lap(gamma="scale", bias=bias) for _ in range(2))
    learn(weighted, stream, weighted=True, wrap=wrap)
    learn(plain, repeated(stream), wrap=wrap)
    assert_close(weighted.decision_function(new_points()), plain.decision_function(new_points()))


def test_a_weight_is_a_repeated_row_for_the_other_parameters_too():
    stream = weighted_stream(15, 0)
    options = {"beta": None, "gamma_A": 0.002, "gamma_I": 0.3}
    weighted = learn(seq_lap(**options), stream, weighted=True)
    plain = learn(seq_lap(**options), repeated(stream))
    assert_close(weighted.decision_function(new_points()), plain.decision_function(new_points()))


# -- several classes -------------------------------------------------------------------------------


@pytest.mark.parametrize("recursion", [None, *RECURSIONS])
def test_several_classes_are_one_against_the_rest_each(recursion):
    stream = three_class_stream(16)

    def make():
        if recursion is None:
            return seq_med()
        return seq_lap(recursion=recursion)

    together = learn(make(), stream, classes=[0, 1, 2])
    scores = together.decision_function(new_points())
    assert scores.shape == (40, 3)
    for label in range(3):
        relabeled = [
            Rows(
                rows.points,
                np.where(rows.labels == UNLABELED, UNLABELED, rows.labels == label),
                rows.weights,
            )
            for rows in stream
        ]
        alone = learn(make(), relabeled, classes=[0, 1])
        assert_close(scores[:, label], alone.decision_function(new_points()))
        assert_close(together.intercept_[label], alone.intercept_[0])
        assert_close(together.decision_std(new_points()), alone.decision_std(new_points()))
    assert np.array_equal(together.predict(new_points()), scores.argmax(axis=1))


@either_bias
@pytest.mark.parametrize("recursion", [None, *RECURSIONS])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize(
    "arrivals",
    [
        pytest.param([[0, 1], [0, 1, 2], [1, 2], [0, 1, 2]], id="two-then-three"),
        pytest.param([[1, 2], [0, 1, 2], [0, 2], [0, 1, 2]], id="the-first-comes-last"),
        pytest.param([[1], [0, 1, 2], [0, 2], [0, 1, 2]], id="one-then-three"),
        pytest.param([[1], [0], [0, 1], [0, 1, 2]], id="one-by-one"),
        pytest.param([[0], [0, 2], [1, 2], [0, 1, 2]], id="the-middle-comes-last"),
    ],
)
def test_classes_may_be_discovered_or_declared(recursion, kernel, arrivals, bias):
    stream = []
    for t, classes in enumerate(arrivals):
        rows = make_batch(20, 11, 3, seed=1700 + t, classes=classes)
        # a first batch of only 1 and -1 is refused as ambiguous: call the classes 2, 3, 4
        labels = np.where(rows.labels == UNLABELED, UNLABELED, rows.labels + 2)
        stream.append(Rows(rows.points, labels, rows.weights))

    def make():
        return either_model(recursion, kernel=kernel, bias=bias)

    declared = learn(make(), stream, classes=[2, 3, 4])
    discovered = learn(make(), stream)
    assert np.array_equal(discovered.classes_, declared.classes_)
    assert_close(
        discovered.decision_function(new_points()), declared.decision_function(new_points())
    )
    assert np.array_equal(discovered.predict(new_points()), declared.predict(new_points()))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("options", [{}, {"bias": "auto"}], ids=["exact", "auto"])
def test_two_classes_may_be_discovered_one_by_one(first, options):
    stream = [
        make_batch(20, 11, seed=1800 + t, classes=classes)
        for t, classes in enumerate([[first], [first], [1 - first], [0, 1], [0, 1]])
    ]
    declared, discovered = seq_med(**options), seq_med(**options)
    for t, rows in enumerate(stream):
        learn(declared, [rows], classes=[0, 1])
        learn(discovered, [rows])
        assert np.array_equal(discovered.predict(new_points()), declared.predict(new_points()))
        if t >= 2:
            assert_close(
                discovered.decision_function(new_points()),
                declared.decision_function(new_points()),
            )


@pytest.mark.parametrize("recursion", [None, "exact"])
def test_a_class_declared_late_begins_at_minus_one(recursion):
    first, silent = make_batch(20, 11, seed=1850), make_batch(18, 0, seed=1851)
    early, late = (seq_med() if recursion is None else seq_lap(recursion=recursion) for _ in "ab")
    learn(early, [first, silent], classes=[0, 1, 2])
    learn(learn(late, [first]), [silent], classes=[0, 1, 2])
    scores = late.decision_function(new_points())
    assert np.array_equal(scores[:, 2], np.full(40, -1.0))
    assert_close(scores, early.decision_function(new_points()))
    assert 2 not in late.predict(new_points())


# -- the paper's other parameters ------------------------------------------------------------------


@pytest.mark.parametrize("recursion", RECURSIONS)
def test_the_other_parameters_are_c_and_beta_by_formula(recursion):
    stream, gamma_A, gamma_I = make_stream(seed=19), 0.004, 0.2
    given = seq_lap(recursion=recursion, beta=None, gamma_A=gamma_A, gamma_I=gamma_I)
    learn(given, stream)
    computed = seq_lap(recursion=recursion)
    bounds, betas = [], []
    for rows in stream:
        n, n_labeled = rows.labels.size, int((rows.labels != UNLABELED).sum())
        bounds.append(1 / (2 * n_labeled * gamma_A))
        betas.append(gamma_I / (2 * gamma_A * n**2))
        learn(computed.set_params(C=bounds[-1], beta=betas[-1]), [rows])
    assert_close(given.decision_function(new_points()), computed.decision_function(new_points()))
    kernels = kernels_over_time(recursion, naive.rbf(GAMMA), smoothings(stream, betas))
    expected = reference_scores(stream, new_points(), kernels, bound=bounds)
    assert_close(given.decision_function(new_points()), expected)


# -- bias ------------------------------------------------------------------------------------------


def test_a_batch_of_one_class_teaches_nothing_under_a_diffuse_bias():
    model = learn(seq_med(), make_stream(seed=21)[:2])
    before, intercept = model.decision_function(new_points()), model.intercept_.copy()
    learn(model, [make_batch(15, 9, seed=2110, classes=[1])])
    assert_close(model.decision_function(new_points()), before, 1e-13)  # the order of a sum
    assert np.array_equal(model.intercept_, intercept)
    assert np.isnan(model.duality_gap_)


@pytest.mark.parametrize("recursion", [None, *RECURSIONS])
@pytest.mark.parametrize("C", [2.0, 10.0])
def test_the_median_bias_is_the_papers_rule(recursion, C):
    stream = make_stream(seed=22)
    if recursion is None:
        model = seq_med(bias="median", C=C)
        kernels = [naive.rbf(GAMMA)] * 4
    else:
        model = seq_lap(bias="median", C=C, recursion=recursion)
        batches = smoothings(stream, [0.5] * 4)
        kernels = kernels_over_time(recursion, naive.rbf(GAMMA), batches)
    exact = seq_med(C=C) if recursion is None else seq_lap(C=C, recursion=recursion)
    differences = []
    for t, rows in enumerate(stream):
        learn(model, [rows])
        learn(exact, [rows])
        expected = reference_scores(
            stream[: t + 1], new_points(), kernels[: t + 1], bound=C, bias_rule="median"
        )
        assert_close(model.decision_function(new_points()), expected)
        differences.append(abs(model.intercept_[0] - exact.intercept_[0]))
    if C == 2.0:
        assert max(differences) > 0.01  # a rule of its own


@pytest.mark.parametrize("slack_shape", [0.3, 1.0])
def test_the_exact_bias_is_implied_by_every_support_vector(slack_shape):
    rows = make_batch(60, 60, seed=23)
    model = seq_med(slack_shape=slack_shape).fit(rows.points, rows.labels)
    signs = np.where(rows.labels == 1, 1.0, -1.0)
    position = {tuple(point): i for i, point in enumerate(rows.points.tolist())}
    carriers = [position[tuple(point)] for point in model.support_vectors_.tolist()]
    multipliers = np.zeros(60)
    multipliers[carriers] = np.abs(model.dual_coef_[0])
    margins = signs * model.decision_function(rows.points)
    expected = 1 - slack_shape / (10.0 - multipliers)
    active = multipliers > 0
    assert active.any()
    assert not active.all()
    # the KKT conditions, to the tolerance of the solver and the rounding of its sums
    assert np.abs(margins - expected)[active].max() <= 10 * TOL
    assert (margins[~active] >= expected[~active] - 10 * TOL).all()


# -- spread ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("recursion", [None, *RECURSIONS])
def test_the_spread_is_the_root_of_the_newest_kernel(recursion):
    stream = make_stream(seed=24)
    if recursion is None:
        model = seq_med(kernel="poly", degree=2, coef0=1.0)
    else:
        model = seq_lap(kernel="poly", degree=2, coef0=1.0, recursion=recursion)
    base = naive.polynomial(GAMMA, 2, 1.0)
    kernels = kernels_over_time(recursion, base, smoothings(stream, [0.5] * 4))
    for rows, kernel in zip(stream, kernels, strict=True):
        learn(model, [rows])
        variance = np.diagonal((base if recursion is None else kernel)(new_points(), new_points()))
        np.testing.assert_allclose(model.decision_std(new_points()) ** 2, variance, rtol=1e-10)


# -- streams that are interrupted ------------------------------------------------------------------


@either_bias
@pytest.mark.parametrize("recursion", [None, *RECURSIONS])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_stream_cut_by_pickling_is_the_uncut_one(recursion, kernel, n_classes, bias):
    stream = make_stream(n_classes=n_classes, seed=25)
    options = {"kernel": kernel, "gamma": "scale", "degree": 2, "coef0": 1.0, "bias": bias}

    def make():
        if recursion is None:
            return seq_med(**options)
        return seq_lap(recursion=recursion, n_landmarks=30, **options)

    uncut = learn(make(), stream)
    cut = make()
    for rows in stream:
        cut = pickle.loads(pickle.dumps(learn(cut, [rows])))
    assert np.array_equal(
        cut.decision_function(new_points()), uncut.decision_function(new_points())
    )
    assert np.array_equal(cut.decision_std(new_points()), uncut.decision_std(new_points()))
    assert cut.n_batches_ == 4


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_a_stream_of_counts_cut_by_pickling_is_the_uncut_one(wrap):
    generator = np.random.default_rng(26)
    stream = []
    for _ in range(3):
        labels = np.arange(30) % 2
        rates = np.where(labels[:, None] == 1, [3.0, 1.0, 2.0, 0.5], [1.0, 3.0, 2.0, 0.5])
        counts = generator.poisson(rates * generator.gamma(1.0, size=(30, 4))).astype(float)
        stream.append(Rows(counts, np.where(np.arange(30) < 14, labels, UNLABELED), np.ones(30)))
    uncut = learn(seq_lap(kernel="tfidf"), stream, wrap=wrap)
    cut = seq_lap(kernel="tfidf")
    for rows in stream:
        cut = pickle.loads(pickle.dumps(learn(cut, [rows], wrap=wrap)))
    new = wrap(stream[0].points)
    assert np.array_equal(cut.decision_function(new), uncut.decision_function(new))
