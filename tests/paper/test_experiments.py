"""The experiments' data, curves and bookkeeping; the figures themselves are run, not tested."""

import io
import os
import zipfile

import numpy as np
import pytest

from paper import curves, data, figures, report, trials
from paper.data import UNLABELED, categorical_stream, sphere_stream
from paper.figures import Figure, Method
from seqmed import SeqGraphMED, SeqLapMED

LABEL_COLUMN = 3


def tiny_stream(seed):
    return sphere_stream(seed, n_batches=4, n_test=60, size=30, labels=6)


def half_right(stream, parameters, wanted):
    for batch in wanted:
        yield curves.Score(parameters["C"] / 10 + batch / 100, 0.01)


def tiny_figure(**changes):
    """A figure that takes moments: one invented curve and one real one."""
    graph = {"gamma": 0.5, "n_neighbors": 5, "weights": "heat", "heat_width": "auto"}
    settings = {
        "name": "figure2",
        "title": "tiny",
        "stream": tiny_stream,
        "methods": {
            "made_up": Method("made up", half_right, grid=figures.grid(C=(1.0, 3.0, 2.0))),
            "landmarks": Method(
                "landmarks", curves.sequential_lapmed, graph, figures.grid(C=(10.0,), beta=(0.1,))
            ),
        },
        "n_batches": 4,
        "trials": 2,
        "seed": 9,
        "validation_streams": 1,
    }
    return Figure(**{**settings, **changes})


def silent(what, done, total):
    assert done <= total


class TestSimulations:
    def test_categorical_follows_its_description(self):
        stream = categorical_stream((0, 0), n_batches=30)
        sizes = [len(batch.y) for batch in stream.batches]
        assert min(sizes) >= 97
        assert max(sizes) <= 103
        X = stream.so_far(29).X
        assert X.shape[1] == 200
        assert set(np.unique(X)) == {0.0, 1.0, 2.0, 3.0, 4.0}
        share_of_zero = (X == 0).mean(axis=0)
        assert share_of_zero[:100].min() > 0.85
        assert share_of_zero[100:].max() < 0.9
        y = stream.so_far(29).y
        difference = np.abs((X[y == 0] == 0).mean(axis=0) - (X[y == 1] == 0).mean(axis=0))
        assert difference[150:].mean() == pytest.approx(0.12, abs=0.01)
        assert difference[:150].mean() < 0.03

    def test_sphere_follows_its_description(self):
        stream = sphere_stream((0, 0))
        assert len(stream.batches) == 30
        for batch in stream.batches:
            assert batch.shown.sum() == 10
            assert set(batch.y[batch.shown]) == {0, 1}
            assert (batch.labels[~batch.shown] == UNLABELED).all()
        radius = np.linalg.norm(stream.X_test, axis=1)
        assert radius[stream.y_test == 0].max() <= 0.55
        assert radius[stream.y_test == 1].min() >= 0.45
        assert radius.max() <= 1.0

    @pytest.mark.parametrize("make", [categorical_stream, sphere_stream])
    def test_a_seed_is_a_stream(self, make):
        first, again, other = make((1, 2)), make((1, 2)), make((1, 3))
        assert np.array_equal(first.X_test, again.X_test)
        assert np.array_equal(first.batches[3].X, again.batches[3].X)
        assert not np.array_equal(first.X_test, other.X_test)


class TestCurves:
    @pytest.mark.parametrize("beta", [0.0, 0.7])
    def test_the_textbook_laplacian_machine_is_ours(self, beta):
        stream = tiny_stream((5, 5))
        batch = stream.batches[0]
        parameters = {
            "C": 10.0, "beta": beta, "gamma": 0.5, "n_neighbors": 5,
            "weights": "heat", "heat_width": "auto",
        }  # fmt: skip
        model = SeqLapMED(recursion="exact", bias="exact", **parameters)
        model.fit(batch.X, batch.labels)
        textbook = curves.laplacian_machine(batch, parameters, slack_shape=1.0)
        np.testing.assert_allclose(
            model.decision_function(stream.X_test), textbook(stream.X_test), atol=2 * model.tol
        )

    def test_only_wanted_batches_are_scored(self):
        stream = tiny_stream((5, 6))
        parameters = {"C": 10.0, "beta": 0.1, "gamma": 0.5}

        def accuracies(wanted):
            scores = curves.sequential_lapmed(stream, parameters, wanted)
            return [score.accuracy for score in scores]

        all_four = accuracies(range(4))
        assert accuracies((1, 3)) == [all_four[1], all_four[3]]

    def test_the_mixture_optimises_all_multipliers_of_its_margin(self):
        stream = tiny_stream((5, 11))
        parameters = {"C": 10.0, "beta": 5.0, "gamma": 0.5, "n_landmarks": 20}
        margin = SeqLapMED(bias="exact", window=None, lag=None, random_state=0, **parameters)
        model, expected, weights = SeqGraphMED(margin, random_state=0), [], []
        for batch in stream.batches:
            model.partial_fit(batch.X, batch.labels, classes=[0, 1])
            expected.append(model.score(stream.X_test, stream.y_test))
            weights.append(model.graph_weight_)
        scores = list(curves.graph_mixture(stream, parameters, range(4)))
        assert [score.accuracy for score in scores] == pytest.approx(expected)
        assert max(weights) > 0  # else a margin alone would pass

    def test_unknown_parameters_are_refused(self):
        stream = tiny_stream((5, 7))
        parameters = {
            "C": 1.0, "beta": 0.0, "gamma": 0.5, "n_neighbors": 5, "weights": "heat",
            "heat_width": "auto", "typo": 1,
        }  # fmt: skip
        with pytest.raises(ValueError, match="typo"):
            curves.laplacian_machine(stream.batches[0], parameters)


class TestRunning:
    def test_parameters_are_chosen_on_validation_streams_only(self, tmp_path):
        outcome = trials.run(tiny_figure(), trials=2, jobs=1, folder=tmp_path, report=silent)
        assert outcome.chosen["made_up"] == {"C": 3.0}
        assert [entry["parameters"]["C"] for entry in outcome.validation["made_up"]] == [1, 3, 2]
        assert outcome.curves["landmarks"].shape == (2, 4)
        figure = tiny_figure()
        trial, validation = figure.trial_stream(0), figure.validation_stream(0)
        assert not np.array_equal(trial.X_test, validation.X_test)

    @pytest.mark.exhaustive
    def test_one_process_and_two_give_the_same_numbers(self, tmp_path):
        one, two = (
            trials.run(
                tiny_figure(), trials=2, jobs=jobs, folder=tmp_path / str(jobs), report=silent
            )
            for jobs in (1, 2)
        )
        for name in one.curves:
            assert np.array_equal(one.curves[name], two.curves[name])

    def test_finished_work_is_not_done_again(self, tmp_path):
        figure = tiny_figure()
        first = trials.run(figure, trials=1, jobs=1, folder=tmp_path, report=silent)
        stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("figure2/*.json")}
        second = trials.run(figure, trials=2, jobs=1, folder=tmp_path, report=silent)
        assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
        assert np.array_equal(first.curves["landmarks"][0], second.curves["landmarks"][0])
        assert second.trials == 2

    def test_an_interrupted_run_leaves_its_finished_trials(self, tmp_path):
        figure = tiny_figure()
        assert trials.collect(figure, trials=2, folder=tmp_path) is None
        whole = trials.run(figure, trials=2, jobs=1, folder=tmp_path, report=silent)
        task = trials.trial_tasks(figure, whole.chosen, 2)[-1]
        trials.path_of(tmp_path, figure, task).unlink()
        part = trials.collect(figure, trials=2, folder=tmp_path)
        assert part.trials == 1
        assert np.array_equal(part.curves["landmarks"], whole.curves["landmarks"][:1])

    def test_changed_settings_are_other_results(self, tmp_path, monkeypatch):
        task = trials.make_task("made_up", {"C": 1.0}, False, 0, (0, 1))
        paths = {
            trials.path_of(tmp_path, tiny_figure(), task),
            trials.path_of(tmp_path, tiny_figure(), task._replace(parameters=(("C", 2.0),))),
            trials.path_of(tmp_path, tiny_figure(), task._replace(stream=1)),
            trials.path_of(tmp_path, tiny_figure(), task._replace(validation=True)),
            trials.path_of(tmp_path, tiny_figure(), task._replace(wanted=(0,))),
            trials.path_of(tmp_path, tiny_figure(seed=10), task),
        }
        monkeypatch.setattr(trials, "fingerprint", lambda: "other code")
        paths.add(trials.path_of(tmp_path, tiny_figure(), task))
        assert len(paths) == 7

    def test_a_failing_curve_is_reported(self, tmp_path):
        broken = tiny_figure(methods={"landmarks": Method("x", curves.full_lapsvm, {"C": 1.0})})
        with pytest.raises(KeyError, match="beta"):
            trials.run(broken, trials=1, jobs=1, folder=tmp_path, report=silent)


class TestReporting:
    def outcome(self, count):
        rng = np.random.default_rng(0)
        figure = figures.figure2(ours=True)
        levels = {
            "spectral": 0.8, "landmarks": 0.9, "beta0": 0.8, "independent": 0.6, "ours": 0.948,
            "ours_landmarks": 0.9, "ours_mixture": 0.945,
        }  # fmt: skip
        runs = {
            name: levels.get(name, 0.95) + 0.01 * rng.random((count, 30)) for name in figure.methods
        }
        chosen = {
            name: {**method.fixed, **method.grid[0]} for name, method in figure.methods.items()
        }
        times = {name: np.full((count, 30), 0.1) for name in figure.methods}
        times["ours"][:] = 0.02
        return trials.FigureResult(figure, chosen, {}, runs, times, 60.0)

    def test_claims_tell_what_is_there(self):
        told = {claim.text: claim for claim in report.claims(self.outcome(20))}
        holds = [claim.holds for claim in told.values()]
        assert holds == [True, False, True, False, True, False, True]
        ours = next(claim for text, claim in told.items() if text.startswith("seqmed: averaged"))
        assert "an update takes 20.0 % of the time of Full Lap" in ours.numbers
        landmarks = next(claim for text, claim in told.items() if "landmarks" in text)
        assert landmarks.numbers.startswith("+10.")

    @pytest.mark.parametrize("count", [1, 3])
    def test_files_are_written(self, tmp_path, count):
        outcome = self.outcome(count)
        paths = report.draw_figure(outcome, tmp_path / "out")
        assert [path.suffix for path in paths] == [".png", ".svg"]
        assert all(path.stat().st_size > 10_000 for path in paths)
        report.write_numbers([outcome], tmp_path / "out" / "results.json")
        missing = ["figure3 not run: no data"]
        report.write_report([outcome], missing, tmp_path / "out", tmp_path / "RESULTS.md")
        text = (tmp_path / "RESULTS.md").read_text()
        assert missing[0] in text
        assert ("not testable with one run" in text) == (count == 1)
        assert "(out/figure2.png)" in text
        assert "nan" not in text
        assert "| ms per update |" in text

    def test_a_choice_at_the_end_of_its_grid_is_marked(self):
        grid = figures.grid(C=(1.0, 2.0, 3.0), beta=(0.5,))
        assert report.choices(grid, {"C": 3.0, "beta": 0.5}) == ["C=3*", "beta=0.5"]
        assert report.choices(grid, {"C": 2.0, "beta": 0.5}) == ["C=2", "beta=0.5"]

    def test_drawing_twice_gives_the_same_picture(self, tmp_path):
        outcome = self.outcome(3)
        first = report.draw_figure(outcome, tmp_path / "a")[1].read_bytes()
        assert report.draw_figure(outcome, tmp_path / "b")[1].read_bytes() == first


def lzw(content: bytes) -> bytes:
    """Compress as the old Unix `compress` does, with 9-bit codes only: enough for a short text."""
    table = {bytes([value]): value for value in range(256)}
    codes, word = [], b""
    for value in content:
        longer = word + bytes([value])
        if longer in table:
            word = longer
            continue
        codes.append(table[word])
        if len(table) < 400:
            table[longer] = len(table) + 1  # 256 is the code that clears the table
        word = bytes([value])
    codes.append(table[word])
    bits = sum(code << (9 * place) for place, code in enumerate(codes))
    return b"\x1f\x9d\x90" + bits.to_bytes((9 * len(codes) + 7) // 8, "little")


class TestIsolet:
    def test_published_format_is_read(self):
        rows = "0.1234, -1.0000, 0.5, 1.\n-0.0001, 1.0000, 0.25, 26.\n"
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w") as archive:
            archive.writestr("isolet1+2+3+4.data.Z", lzw(rows.encode()))
            archive.writestr("isolet5.data.Z", lzw(rows.splitlines()[0].encode()))
        arrays = data.from_archive(held.getvalue())
        assert arrays["X_train"].tolist() == [[1234, -10000, 5000], [-1, 10000, 2500]]
        assert arrays["y_train"].tolist() == [1, 26]
        assert arrays["X_test"].tolist() == [[1234, -10000, 5000]]
        assert {name: arrays[name].dtype for name in arrays} == data.TYPES

    def test_other_data_are_refused(self, tmp_path):
        arrays = {
            "X_train": np.zeros((2, 3), np.int16), "y_train": np.zeros(2, np.int8),
            "X_test": np.zeros((1, 3), np.int16), "y_test": np.zeros(1, np.int8),
        }  # fmt: skip
        data.store(arrays, tmp_path / data.FILE)
        with pytest.raises(ValueError, match=r"X_train differs from the published ISOLET.*order"):
            data.load_isolet(tmp_path, download=False)

    def test_a_damaged_file_is_refused(self, tmp_path):
        (tmp_path / data.FILE).write_bytes(b"PK not really")
        with pytest.raises(ValueError, match="cannot be read"):
            data.load_isolet(tmp_path, download=False)

    def test_missing_data_are_named(self, tmp_path, monkeypatch):
        monkeypatch.delenv("SEQMED_DATA", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        with pytest.raises(data.NoDataError, match=r"isolet\.npz"):
            data.load_isolet(None, download=False)

    def test_no_network_is_said(self, tmp_path, monkeypatch):
        monkeypatch.delenv("SEQMED_DATA", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

        def unreachable():
            raise OSError("network is unreachable")

        monkeypatch.setattr(data, "from_uci", unreachable)
        with pytest.raises(data.NoDataError, match="UCI: network is unreachable"):
            data.load_isolet(None)
        assert not list(tmp_path.rglob("*.npz"))

    def test_speakers_fill_the_rows(self):
        speaker = data.speakers()
        assert speaker.size == 6238 + 1559
        assert speaker[6237] == 119
        assert speaker[6238] == 120

    @pytest.mark.skipif(
        "SEQMED_DATA" not in os.environ, reason="needs ISOLET; SEQMED_DATA names its folder"
    )
    def test_the_stream_of_the_paper(self):
        stream = data.isolet_stream(data.load_isolet(download=False))
        sizes = [len(batch.y) for batch in stream.batches]
        assert [number for number, size in enumerate(sizes, 1) if size != 260] == [21, 23]
        assert sum(sizes) == 6238
        for batch in stream.batches:
            labels = batch.y[batch.shown]
            assert labels.size == 52
            assert labels.mean() == 0.5
        assert stream.X_test.shape == (1559, 617)
        held_out = data.isolet_validation_stream(data.load_isolet(download=False))
        assert len(held_out.batches) == 18
        assert np.array_equal(held_out.batches[17].X, stream.batches[17].X)
        assert np.array_equal(held_out.X_test[:260], stream.batches[18].X)
        shuffled = data.isolet_random_stream(data.load_isolet(download=False), (0, 1))
        assert sum(len(batch.y) for batch in shuffled.batches) + len(shuffled.y_test) == 7797
        assert np.abs(stream.X_test).max() <= 1.0
