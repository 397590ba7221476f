"""Whatever goes wrong is said in one line, with an exit code, and without a traceback."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pyarrow import feather, parquet
from pyarrow.csv import read_csv
from pyarrow.json import read_json

import seqmed as library
from tests.support.command import LEARN, PATIENCE, make_rows, popen, restore, seqmed


@pytest.fixture
def folder(learned):
    """The folder as it was before all tests."""
    return restore(*learned)


def refused(folder, *arguments, **options):
    """Run a command that must be refused; return the one line it says."""
    result = seqmed(folder, *arguments, **options)
    lines = [line for line in result.err.splitlines() if not line.startswith("seqmed: warning: ")]
    assert result.code == 2, result
    assert len(lines) == 1, lines
    assert lines[0].startswith("seqmed: ")
    assert result.out == ""
    return lines[0]


def add(folder, line, name="rows.csv"):
    with (folder / name).open("a") as file:
        file.write(line + "\n")


def test_a_bad_row_stops_or_is_skipped_and_counted(folder):
    add(folder, "1,oops,3,setosa,60")
    said = refused(folder, *LEARN, 20)
    assert "rows.csv, line 62: not a number in column 'b', got 'oops'" in said
    assert "--on-error skip" in said
    result = seqmed(folder, *LEARN, 20, "--on-error", "skip")
    assert result.code == 0
    assert "skipped 1 bad row: not a number; for example rows.csv, line 62" in result.err
    assert '"skipped": 1' in seqmed(folder, "inspect", "model", "--json").out


def test_a_missing_column(folder):
    (folder / "other.csv").write_text("a,b,kind\n1,2,setosa\n")
    for command in ("learn", "predict", "evaluate"):
        assert "other.csv has no column 'c'" in refused(folder, command, "model", "other.csv")


def test_a_misspelled_label_column(tmp_path):
    make_rows(tmp_path / "rows.csv", 10)
    result = seqmed(tmp_path, "learn", "model", "rows.csv", "--label", "Kind")
    assert result.code == 2
    assert "rows.csv has no column 'Kind'" in result.err
    assert "did you mean 'kind'?" in result.err
    assert len(result.err.splitlines()) == 1, "warnings about other columns hide the error"
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--label", "id"), "made with --label 'kind', not 'id': leave the option out"),
        (("--no-scale",), "the model was made without --no-scale, which cannot be added"),
        (("--features", "a,b"), "the model was made without --features, which cannot be added"),
        (("--numeric", "id"), "the model was made without --numeric id, which cannot be added"),
        (("--na", "?"), "the model was made without --na, which cannot be added or changed: leave"),
        (("--C", "3"), "the model was made with C=10.0, which cannot be changed to 3: leave"),
        (("--seed", "7"), "the model was made with random_state=0, which cannot be changed to 7"),
        (("--estimator", "seqmed"), "made with estimator='seqgraphmed', which cannot be changed"),
        (("--param", "n_neighbors=3"), "made with n_neighbors=10, which cannot be changed to 3"),
        (("--graph-memory", "3"), "made with graph_memory='auto', which cannot be changed to 3"),
        (("--experts", "auto"), "made with experts=(), which cannot be changed to 'auto': leave"),
        (("--forgetting", "0.5"), "made with forgetting='auto', which cannot be changed to 0.5"),
        (
            ("--param", "kernal=rbf"),
            "SeqGraphMED has no parameter 'kernal' to set: did you mean kernel",
        ),
        (("--param", "unlabeled=0"), "SeqGraphMED has no parameter 'unlabeled' to set"),
        (("--param", "beta=1"), "SeqGraphMED has no parameter 'beta' to set"),
        (
            ("--param", "n_neighbours=3"),
            "no parameter 'n_neighbours' to set: did you mean n_neighbors",
        ),
        (("--param", "degree"), "--param got 'degree', expected NAME=VALUE"),
    ],
)
def test_choices_of_a_model_cannot_be_changed(folder, option, said):
    before = (folder / "model").read_bytes()
    assert said in refused(folder, "learn", "model", "rows.csv", *option)
    assert (folder / "model").read_bytes() == before


def test_the_same_choices_again_are_accepted(tmp_path):
    make_rows(tmp_path / "rows.csv", 60)
    choices = (
        "--features", "a,c", "--no-scale", "--categorical", "b", "--na", "?,-",
        "--C", "5", "--param", "beta=0.1", "--gamma", "0.5", "--param", "lag=none", "--budget",
        "200", "--param", "averaging=true", "--forgetting", ".9", "--class-weight", "balanced",
        "--seed", "3", "--param", "n_neighbors=4", "--estimator", "seqlapmed",
    )  # fmt: skip
    for _ in range(2):
        result = seqmed(tmp_path, "learn", "model", "rows.csv", "--label", "kind", *choices)
        assert result.code == 0, result.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--C", "-3"), "C"),
        (("--kernel", "sigmoid"), "kernel"),
        (("--budget", "few"), "budget"),
        (("--estimator", "seqmed", "--param", "beta=1"), "SeqMED has no parameter 'beta'"),
        (("--estimator", "graphpropagation", "--C", "1"), "GraphPropagation has no parameter 'C'"),
        (("--kernel", "precomputed"), "precomputed"),
        (("--param", "mixture=2"), "mixture"),
        (("--graph-memory", "1"), "graph_memory"),
        (("--estimator", "seqmed", "--experts", "none"), "SeqMED has no parameter 'experts'"),
        (("--C", "0.5", "--param", "slack_shape=1"), "C=0.5, expected C > slack_shape=1"),
        (("--features", "a,z"), "no column 'z'"),
        (("--drop", "a", "--features", "a"), "named twice"),
    ],
)
def test_a_new_model_with_impossible_choices(tmp_path, options, said):
    make_rows(tmp_path / "rows.csv", 20)
    assert said in refused(tmp_path, "learn", "model", "rows.csv", "--label", "kind", *options)
    assert not (tmp_path / "model").exists()


def test_a_new_model_needs_labels(tmp_path):
    make_rows(tmp_path / "rows.csv", 20)
    assert "add --label COLUMN" in refused(tmp_path, "learn", "model", "rows.csv")


def test_no_rows_at_all(tmp_path):
    (tmp_path / "rows.csv").write_text("a,kind\n")
    said = refused(tmp_path, "learn", "model", "rows.csv", "--label", "kind")
    assert "no row to learn from" in said


def test_a_class_that_looks_like_a_typo_is_learned_with_a_warning(folder):
    add(folder, "1,2,3,setsoa,60")
    result = seqmed(folder, *LEARN, 20)
    assert result.code == 0
    assert "warning: rows.csv, row 61: class 'setsoa' is new and similar to 'setosa'" in result.err
    assert "4 classes" in result.out


def test_a_typo_among_the_first_rows(tmp_path):
    make_rows(tmp_path / "rows.csv", 60, labeled=1)
    add(tmp_path, "1,2,3,Setosa,60")
    result = seqmed(tmp_path, *LEARN, 100)
    assert result.code == 0
    assert result.err.count("warning") == 1
    assert "row 61: class 'Setosa' is new and similar to 'setosa'" in result.err


def test_a_label_of_another_type(tmp_path):
    (tmp_path / "rows.csv").write_text("a,kind\n1,0\n2,1\n3,0\n")
    assert seqmed(tmp_path, "learn", "model", "rows.csv", "--label", "kind").code == 0
    add(tmp_path, "4,maybe")
    said = refused(tmp_path, "learn", "model", "rows.csv")
    assert "label of another type in column 'kind', got 'maybe'" in said


def test_a_corrupt_model(folder):
    content = bytearray((folder / "model").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "model").write_bytes(content)
    for command in (LEARN[:3], ("predict", "model", "rows.csv"), ("inspect", "model")):
        said = refused(folder, *command)
        assert "model cannot be loaded: its checksum does not match its content" in said
    assert (folder / "model").read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"no model\n" * 10])
def test_a_file_that_is_no_model(folder, content):
    (folder / "model").write_bytes(content)
    for command in (LEARN[:3], ("predict", "model", "rows.csv"), ("inspect", "model")):
        assert "a seqmed model file, expected one that" in refused(folder, *command)
    assert (folder / "model").read_bytes() == content


def test_links_in_a_circle_as_a_model(folder):
    (folder / "model").unlink()
    (folder / "model").symlink_to("model")
    assert "model: Too many levels of symbolic links: remove the circular link" in refused(
        folder, *LEARN, 20
    )
    assert (folder / "model").is_symlink()
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def test_a_model_of_another_make(folder):
    library.save(library.SeqMED().fit([[0.0], [1.0]], [0, 1]), folder / "plain")
    said = refused(folder, "predict", "plain", "rows.csv")
    assert "plain holds a SeqMED, expected a fitted pipeline that takes tables: make it" in said
    pipeline = library.load(folder / "model")
    library.save(pipeline, folder / "other", extra={"row": 3})
    assert "other: the stored progress has ['row']" in refused(folder, "inspect", "other")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("inspect", "nothing"), "nothing does not exist: check the path"),
        (("predict", "model", "nothing.csv"), "nothing.csv does not exist"),
        (("predict", "model", "model"), "model ends in '', expected one of"),
        (("predict", "model", "rows.csv", "-o", "x.doc"), "x.doc ends in '.doc', expected one of"),
        (("predict", "model", "rows.csv", "-o", "no/x.csv"), "no/x.csv: No such file or directory"),
        (("predict", "model", "rows.csv", "--keep", "row"), "'row' cannot be copied"),
        (("predict", "model", "rows.csv", "--keep", "z"), "no column 'z'"),
        (("learn", "no/model", "rows.csv", "--label", "kind"), "No such file or directory"),
        (("evaluate", "model", "rows.csv", "--plot", "x.doc"), "doc"),
        (("query", "model", "rows.csv", "-n", "1000"), "expected at least 1000"),
    ],
)
def test_what_cannot_be_done(folder, arguments, said):
    assert said in refused(folder, *arguments)


def test_nothing_is_left_of_an_output_that_failed(folder):
    add(folder, "1,2,oops,,60")
    assert "oops" in refused(folder, "predict", "model", "rows.csv", "-o", "out.csv")
    assert not [path for path in folder.iterdir() if "out.csv" in path.name]


def test_labels_are_needed_to_evaluate(folder):
    make_rows(folder / "blank.csv", 10, labeled=0)
    assert "none of 10 rows has a label" in refused(folder, "evaluate", "model", "blank.csv")


def test_a_traceback_with_debug(folder):
    result = seqmed(folder, "predict", "model", "nothing.csv", "--debug")
    assert result.code == 2
    assert "Traceback" in result.err
    assert result.err.splitlines()[-1].startswith("seqmed: nothing.csv does not exist")


def test_a_plot_needs_a_log(folder):
    """The log is checked before rows are learned."""
    make_rows(folder / "rows.csv", 20, start=60)
    before = (folder / "model").read_bytes()
    plot = (*LEARN, 20, "--plot", "x.png")
    assert "--plot draws the file of --log: add --log FILE" in refused(folder, *plot)
    (folder / "text").write_text("no log\n")
    assert "text is not a log of seqmed learn" in refused(folder, *plot, "--log", "text")
    assert (folder / "model").read_bytes() == before
    assert not (folder / "x.png").exists()


def without_matplotlib(folder, *arguments):
    """Run a command, or a program, where matplotlib is not installed."""
    script = (
        "import sys, runpy; sys.modules['matplotlib'] = None; sys.argv = sys.argv[1:]\n"
        "name = sys.argv[0]\n"
        "run = runpy.run_path if name.endswith('.py') else runpy.run_module\n"
        "run(name, run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip


@pytest.mark.parametrize("command", [("evaluate",), ("learn", "--log", "log")], ids=lambda c: c[0])
def test_a_plot_without_matplotlib_is_refused_before_anything_is_read(folder, command):
    result = without_matplotlib(
        folder, "seqmed", *command, "model", "nothing.csv", "--plot", "x.png"
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("seqmed: figures need matplotlib")
    assert "pip install '.[plot]'" in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_the_command_imports_is_installed_with_the_package():
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    needed = {each.split(">")[0] for each in settings["project"]["dependencies"]}
    assert {"typer", "rich", "pyarrow"} <= needed
    assert set(settings["project"]["optional-dependencies"]) == {
        "plot", "bench", "capymoa", "dask", "docs", "dev", "gpu",
    }  # fmt: skip


def test_a_model_that_is_being_taught_is_locked(folder):
    first = popen(
        folder, "learn", "model", "-", "--batch-size", "5",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert "cannot be resumed" in first.stderr.readline()  # it holds the lock from here on
    make_rows(folder / "more.csv", 10, seed=1)
    assert "model is locked by another seqmed learn" in refused(
        folder, "learn", "model", "more.csv"
    )
    assert seqmed(folder, "predict", "model", "more.csv").code == 0
    out, err = first.communicate((folder / "more.csv").read_text(), timeout=PATIENCE)
    assert first.returncode == 0, err
    assert "70 rows" in out
    assert seqmed(folder, "learn", "model", "more.csv").code == 0
    assert not (folder / ".model.lock").exists()


def test_a_lock_that_was_left_behind_locks_nothing(folder):
    (folder / ".model.lock").write_text("")
    assert seqmed(folder, *LEARN, 20).code == 0
    assert not (folder / ".model.lock").exists()


def test_whoever_reads_the_predictions_may_stop(folder):
    make_rows(folder / "many.csv", 20_000, labeled=0)  # several blocks of rows
    process = popen(
        folder, "predict", "model", "many.csv", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline().startswith(b"file,row,label")
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(PATIENCE) == 141


def test_help_imports_nothing_heavy():
    script = (
        "import sys; sys.argv = ['seqmed', *sys.argv[1:]]\n"
        "from seqmed.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numba', 'pyarrow', 'matplotlib', 'sklearn', 'scipy', 'numpy', 'pandas'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    for arguments in (["--help"], ["learn", "--help"], ["predict", "--help"]):
        subprocess.run(
            [sys.executable, "-c", script, *arguments], check=True, stdout=subprocess.DEVNULL
        )


def test_file_names_that_are_no_text(folder):
    strange = Path(os.fsdecode(b"caf\xe9"))
    data = folder / strange
    data.mkdir()
    table = read_csv(make_rows(folder / "x.csv", 40))
    parquet.write_table(table, folder / "x.parquet")
    feather.write_feather(table, folder / "x.feather")
    for kind in ("csv", "parquet", "feather"):
        (folder / f"x.{kind}").rename(data / f"{strange}.{kind}")
    model, log = f"{strange}.model", f"{strange}.log"
    learn = ("learn", model, strange, "--label", "kind", "--drop", "id", "--log", log)
    assert "120 rows" in seqmed(folder, *learn).out
    assert "no new rows" in seqmed(folder, *learn).out
    seen = json.loads(seqmed(folder, "inspect", model, "--json").out)
    assert seen["file"]["path"] == r"caf\xe9.model"
    shown = {rf"caf\xe9/caf\xe9.{kind}" for kind in ("csv", "feather", "parquet")}
    for kind in ("csv", "jsonl", "parquet"):
        out = folder / f"{strange}.{kind}"
        assert seqmed(folder, "predict", model, strange, "-o", out.name).code == 0
        with out.open("rb") as file:
            found = {"csv": read_csv, "jsonl": read_json, "parquet": parquet.read_table}[kind](file)
        assert set(found["file"].to_pylist()) == shown
    for arguments in (("inspect", model), ("query", model, strange, "-n", "3")):
        assert r"caf\xe9" in seqmed(folder, *arguments).out
    plot = f"{strange}.png"
    assert seqmed(folder, "evaluate", model, strange, "--plot", plot).code == 0
    assert (folder / plot).read_bytes().startswith(b"\x89PNG")
    for arguments in (("predict", model, f"{strange}.gone"), ("inspect", f"{strange}.gone")):
        assert "gone does not exist" in refused(folder, *arguments)
