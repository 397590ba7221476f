"""The files of a release agree with each other: versions, Pythons, checks, licence."""

import re
import tomllib

import pytest
import yaml

import seqmed
from tests.support.documents import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
FORMS = sorted(
    path for path in (ROOT / ".github/ISSUE_TEMPLATE").iterdir() if path.stem != "config"
)
PYTHONS = [
    match[1] for each in PROJECT["classifiers"]
    if (match := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each))
]  # fmt: skip


def commands_of(target):
    """Return the commands of a target in the Makefile."""
    (recipe,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()]


def steps_of(job):
    return [step["run"] for step in WORKFLOW["jobs"][job]["steps"] if "run" in step]


def test_the_version_is_written_in_one_place_and_cited():
    assert "version" in PROJECT["dynamic"]
    assert CITATION["version"] == seqmed.__version__
    changes = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", changes, re.MULTILINE)
    assert newest is not None
    assert newest[1] == seqmed.__version__


def test_the_citation_describes_the_package_and_the_paper():
    assert CITATION["cff-version"] == "1.2.0"
    assert CITATION["title"].startswith(f"{PROJECT['name']}: ")
    assert CITATION["title"].lower().endswith(PROJECT["description"].lower())
    assert CITATION["license"] == PROJECT["license"]
    assert CITATION["authors"] == PROJECT["authors"]
    (paper,) = CITATION["references"]
    assert paper["title"] in " ".join((ROOT / "README.md").read_text().split())
    assert [author["family-names"] for author in paper["authors"]] == ["Hou", "Hero"]


def test_the_oldest_python_is_the_lowest_that_is_allowed():
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    assert sorted(PYTHONS, key=lambda version: int(version[2:])) == PYTHONS


@pytest.mark.parametrize("job", ["test", "wheel"])
def test_the_workflow_tests_all_pythons_on_three_systems(job):
    matrix = WORKFLOW["jobs"][job]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert {system.split("-")[0] for system in matrix["system"]} == {"ubuntu", "macos", "windows"}


def test_the_workflow_installs_on_the_oldest_and_the_newest_python():
    assert f'make dist PYTHONS="{PYTHONS[0]} {PYTHONS[-1]}"' in steps_of("dist")
    (setup,) = [
        step["with"] for step in WORKFLOW["jobs"]["dist"]["steps"]
        if "setup-python" in step.get("uses", "")
    ]  # fmt: skip
    assert setup["python-version"].split() == [PYTHONS[0], PYTHONS[-1]]


def test_the_workflow_runs_what_there_is():
    names = [step.split()[1] for job in WORKFLOW["jobs"] for step in steps_of(job)
             if step.startswith("make ")]  # fmt: skip
    assert {"check", "test", "dist"} <= {*names}
    for name in names:
        assert re.search(rf"^{name}:", MAKEFILE, re.MULTILINE), f"there is no make {name}"
    on_windows = next(step for step in steps_of("test") if "pytest" in step)
    assert '-m "not exhaustive"' in on_windows  # as in `make test`
    assert any('-m "not exhaustive"' in command for command in commands_of("test"))
    for step in steps_of("wheel"):
        for path in re.findall(r"tests/\S+", step):
            assert (ROOT / path).is_file()


def test_pre_commit_checks_what_make_checks():
    configured = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (repository,) = configured["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == commands_of("check")
    assert all(hook["language"] == "system" for hook in repository["hooks"])
    assert not any(hook["pass_filenames"] for hook in repository["hooks"])  # of the whole tree


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_forms_for_issues_are_short_and_complete(path):
    form = yaml.safe_load(path.read_text())
    assert form["name"]
    assert form["description"]
    assert 1 <= len(form["body"]) <= 3
    names = [field["id"] for field in form["body"]]
    assert len({*names}) == len(names)
    assert all(field["attributes"]["label"] for field in form["body"])
    assert form["body"][0]["validations"]["required"]


def test_extras_name_packages_that_are_pinned():
    """`make` installs the development's packages at fixed versions."""
    pinned = {
        canonical(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().split()
    }
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    names = {canonical(re.match(r"[\w.-]+", each)[0]) for each in wanted} - {PROJECT["name"]}
    assert names <= pinned


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()
