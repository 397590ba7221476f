"""The documentation of public classes and functions agrees with the code."""

import ast
import inspect
import pkgutil
import re
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler

import seqmed
from seqmed import (
    GraphPropagation,
    PrequentialSearch,
    SemiSupervisedSplit,
    SeqGraphMED,
    SeqLapMED,
    SeqMED,
    StreamPipeline,
    TableEncoder,
)
from seqmed.selection import queries
from tests.support.documents import ROOT

X = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])
Y = (X["a"] > 0).to_numpy().astype(int)

PUBLIC = [getattr(seqmed, name) for name in seqmed.__all__]
CLASSES = [each for each in PUBLIC if inspect.isclass(each) and not issubclass(each, Warning)]

# Fitted models of every class. Together they have every attribute, whatever it depends on.
FITTED = {
    SeqMED: [SeqMED(), SeqMED("linear")],
    SeqLapMED: [SeqLapMED(), SeqLapMED("linear")],
    GraphPropagation: [GraphPropagation()],
    SeqGraphMED: [SeqGraphMED()],
    StreamPipeline: [StreamPipeline([("scale", StandardScaler()), ("model", SeqMED())])],
    PrequentialSearch: [PrequentialSearch(SeqMED(), {"C": [1.5, 10.0]})],
    TableEncoder: [TableEncoder()],
}


def sections(thing):
    """Return the sections of a docstring in numpydoc format, by title; "" is what comes first."""
    lines, found, title = inspect.getdoc(thing).splitlines(), {"": []}, ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if following and set(following) == {"-"}:
            title = line
            found[title] = []
        elif not line or set(line) != {"-"}:
            found[title].append(line)
    return found


def entries(lines):
    """Return the entries of a section: name to the text after the colon, and the description."""
    found, name = {}, None
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        if line and not line.startswith(" "):
            name, _, kind = line.partition(" : ")
            found[name] = [re.sub(r"\s+", " ", kind), ""]
        elif name is not None:
            found[name][1] += line.strip() + " "
    return found


def parameters(thing):
    found = sections(thing)
    return entries(found.get("Parameters", []) + found.get("Other Parameters", []))


def documented_default(kind):
    text = re.search(r"default=(.*)$", kind)
    if text is None:
        return inspect.Parameter.empty
    return np.inf if text[1] == "inf" else ast.literal_eval(text[1])


def public_methods(kind):
    """Return the public methods that this package defines."""
    for name, method in inspect.getmembers(kind, callable):
        if not name.startswith("_") and method.__module__.startswith("seqmed."):
            yield pytest.param(method, id=f"{kind.__name__}.{name}")


METHODS = [method for kind in CLASSES for method in public_methods(kind)]
FUNCTIONS = [pytest.param(getattr(queries, name), id=name) for name in queries.__all__]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_constructor_parameter_is_documented_with_its_default(kind):
    signature = inspect.signature(kind).parameters
    documented = parameters(kind)
    assert list(documented) == list(signature)
    for name, parameter in signature.items():
        assert documented_default(documented[name][0]) == parameter.default, name
        assert documented[name][1], f"{name} has no description"


@pytest.mark.parametrize("kind", CLASSES)
def test_a_class_docstring_is_complete(kind):
    found = sections(kind)
    assert found[""][0].endswith(".")
    needed = {"Parameters", "See Also", "Examples"}
    assert needed | ({"Attributes"} if kind in FITTED else set()) <= set(found)
    for name, (_, text) in parameters(kind).items():
        assert not re.match(r"as in `?(Seq|Graph|Pipeline)", text, re.IGNORECASE), name


@pytest.mark.parametrize("function", [*METHODS, *FUNCTIONS])
def test_every_argument_of_a_function_is_documented(function):
    signature = inspect.signature(function).parameters
    found = {name.strip("*"): entry for name, entry in parameters(function).items()}
    assert list(found) == [name for name in signature if name != "self"]
    for name, (kind, text) in found.items():
        assert kind, f"{name} has no type"
        assert text, f"{name} has no description"
        default = documented_default(kind)
        optional = default is not inspect.Parameter.empty
        assert not optional or default == signature[name].default
    assert {"Returns", "Yields"} & set(sections(function))


def fitted_attributes(model):
    """Return the public attributes of a fitted model, properties included."""
    own = {name for name in vars(model) if name.endswith("_")}
    properties = {
        name
        for name, value in inspect.getmembers(type(model), lambda each: isinstance(each, property))
        if name.endswith("_")
    }
    return {name for name in own | properties if not name.startswith("_")}


@pytest.mark.parametrize("kind", FITTED)
def test_fitted_attributes_are_those_documented(kind):
    documented = entries(sections(kind)["Attributes"])
    models = [model.fit(X, Y) for model in FITTED[kind]]
    for name, (form, text) in documented.items():
        assert form, f"{name} has no type"
        assert text, f"{name} has no description"
        missing = [model for model in models if not hasattr(model, name)]
        assert len(missing) < len(models), f"no model has {name}"
        assert not missing or "available" in text, f"{name} is not always available"
    for model in models:
        assert fitted_attributes(model) <= set(documented)


def test_splits_have_no_fitted_attributes():
    """Otherwise they would belong to `FITTED`."""
    assert set(CLASSES) - set(FITTED) == {SemiSupervisedSplit}


class TestResolvedValues:
    """The values used for "auto", "scale" and None can be read from a fitted model."""

    def test_margin_classifiers(self):
        points = X.to_numpy()
        model = SeqLapMED().fit(points, Y)
        assert model.gamma_ == pytest.approx(1.0 / (2 * points.var()))
        assert (model.update_info_.C, model.update_info_.beta) == (10.0, 0.01)
        assert model.posterior_.graph_parameters.heat_width > 0
        assert model.posterior_.landmarks.size == 40
        other = SeqLapMED(gamma="auto", beta=0.5, heat_width=0.3, budget=10).fit(points, Y)
        assert other.gamma_ == 0.5
        assert other.update_info_.beta == 0.5
        assert other.posterior_.graph_parameters.heat_width == 0.3
        assert other.posterior_.landmarks.size == 5

    def test_the_papers_weights(self):
        labels = np.where(np.arange(40) < 10, Y, -1)
        model = SeqLapMED(gamma_A=0.01, gamma_I=0.4).fit(X, labels)
        assert pytest.approx(1 / (2 * 10 * 0.01)) == model.update_info_.C
        assert model.update_info_.beta == pytest.approx(0.4 / (2 * 0.01 * 40**2))
        model.retract(X[:3])
        assert (
            pytest.approx(1 / (2 * 10 * 0.01)) == model.update_info_.C
        )  # multipliers keep their bound

    def test_attributes_that_do_not_apply(self):
        with pytest.raises(AttributeError, match="only available with kernel='rbf'"):
            _ = SeqMED("linear").fit(X, Y).gamma_
        for model in (SeqMED(), SeqLapMED(), GraphPropagation(), SeqGraphMED()):
            names = [each for each in fitted_attributes(model) if hasattr(model, each)]
            assert not names, "before fit"

    @pytest.mark.parametrize("kind", [GraphPropagation, SeqGraphMED])
    def test_metric(self, kind):
        from scipy.sparse import csr_array

        from seqmed.kernels import RBF

        assert kind().fit(X, Y).metric_ == "euclidean"
        assert kind().fit(csr_array(np.abs(X.to_numpy())), Y).metric_ == "cosine"
        assert isinstance(kind(metric=RBF(0.5)).fit(X, Y).metric_, RBF)

    @pytest.mark.parametrize(
        ("given", "class_weight", "resolved"),
        [
            ("auto", None, "evidence"),
            ("auto", "balanced", "uniform"),
            ("auto", {0: 2.0}, "evidence"),
            ("evidence", "balanced", "evidence"),
            ("uniform", None, "uniform"),
        ],
    )
    def test_class_prior(self, given, class_weight, resolved):
        model = SeqGraphMED(class_prior=given, class_weight=class_weight)
        assert model.fit(X, Y).class_prior_ == resolved


# the command itself, and an adapter to a library that may be missing
NOT_IMPORTED = ("__main__", "adapters.capymoa")


def test_exported_names_exist():
    """`from module import *` would fail otherwise."""
    found = pkgutil.walk_packages(seqmed.__path__, "seqmed.")
    for name in (each.name for each in found if not each.name.endswith(NOT_IMPORTED)):
        module = import_module(name)
        missing = [each for each in getattr(module, "__all__", ()) if not hasattr(module, each)]
        assert not missing, name


def test_the_guide_shows_the_defaults():
    page = (ROOT / "docs/guide/choosing-parameters.md").read_text()
    parameters = inspect.signature(SeqGraphMED).parameters
    shown = {}
    for names, values in re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", page, re.MULTILINE):
        defaults = (ast.literal_eval(value) for value in values.replace("`", "").split(", "))
        if "()" not in values:  # an estimator made from other parameters
            shown |= dict(zip(re.findall(r"\w+", names), defaults, strict=True))
    assert {"forgetting", "metric", "n_neighbors", "alpha"} <= shown.keys()
    assert shown == {name: parameters[name].default for name in shown}
