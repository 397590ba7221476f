"""Model files that are damaged, and files that somebody has made up.

Every altered byte is refused, by the library's own error. Where the checksum is made to fit again,
a file is refused or holds a model that can be used: it may be wrong, but it answers or raises an
exception. Nothing hangs, nothing takes more memory than the file has bytes for, nothing is
executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import json
import pickle
import re
import struct
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
import safetensors.numpy

import seqmed
from seqmed import SeqMED, model_file
from seqmed.model_file import FORMAT, ModelFileError
from seqmed.model_file.models import CLASSES, ModelEncoder
from tests.data.make_golden import FOLDER

ORIGINALS = {path.stem: path.read_bytes() for path in sorted(FOLDER.glob("*.safetensors"))}
DAMAGED = 500


# -- taking files apart ---------------------------------------------------------------------------


def loaded(content):
    with model_file.refusals("a file"):
        return model_file.build(*model_file.open_header(content))[0]


def split(content):
    """Return the safetensors header, and the bytes of the tensors without the checksum."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length : -32]


def sealed(body):
    """Return a file whose checksum fits."""
    return body + hashlib.sha256(body).digest()


def joined(header, data):
    """Return the file of a header and tensors, its checksum fitting."""
    text = json.dumps(header).encode()
    return sealed(struct.pack("<Q", len(text)) + text + data)


def document_of(content):
    return json.loads(split(content)[0]["__metadata__"]["seqmed"])


def with_document(content, document):
    """Return the file with another document; a string is taken as it is."""
    header, data = split(content)
    text = document if isinstance(document, str) else json.dumps(document)
    return joined({**header, "__metadata__": {"seqmed": text}}, data)


def tensor_names(header):
    return [name for name in header if name not in ("__metadata__", "sha256")]


# -- damage ---------------------------------------------------------------------------------------


def flipped(content, generator):
    place = int(generator.integers(len(content)))
    changed = bytearray(content)
    changed[place] ^= 1 << int(generator.integers(8))
    return bytes(changed)


def cut_off(content, generator):
    return content[: int(generator.integers(len(content)))]


def grown(content, generator):
    place = int(generator.integers(len(content) + 1))
    return content[:place] + generator.bytes(int(generator.integers(1, 50))) + content[place:]


def with_a_hole(content, generator):
    start = int(generator.integers(len(content) - 1))
    return content[:start] + content[start + int(generator.integers(1, 64)) :]


def blanked(content, generator):
    start = int(generator.integers(len(content) - 64))
    return content[:start] + b"\xff" * 64 + content[start + 64 :]


def with_the_header_of_another(content, generator):
    other = ORIGINALS[generator.choice([*ORIGINALS])]
    other = other if other != content else ORIGINALS[f"format-{FORMAT}-SeqMED"][::-1]
    (length,) = struct.unpack("<Q", content[:8])
    return other[: 8 + length] + content[8 + length :]


def with_a_huge_shape(content, generator):
    size = str(int(generator.integers(10**6, 2**62))).encode()
    return re.sub(rb'"shape":\[\d*', b'"shape":[' + size, content, count=1)


def with_a_path_for_a_name(content, generator):
    name = b'"../../../etc/passwd"' if generator.random() < 0.5 else b'"/dev/zero"'
    return content.replace(b'"model.0"', name)


DAMAGES = (
    flipped, cut_off, grown, with_a_hole, blanked, with_the_header_of_another, with_a_huge_shape,
    with_a_path_for_a_name,
)  # fmt: skip


def test_damaged_files_are_refused(tmp_path):
    generator = np.random.default_rng(1)
    path = tmp_path / "damaged.model"
    for number in range(DAMAGED):
        content = [*ORIGINALS.values()][number % len(ORIGINALS)]
        damage = DAMAGES[number % len(DAMAGES)]
        changed = damage(content, generator)
        assert changed != content
        path.write_bytes(changed)
        with pytest.raises(ModelFileError, match=r"damaged\.model cannot be loaded") as refusal:
            seqmed.load(path)
        assert re.search("checksum|not a seqmed model file", str(refusal.value))


def zipped():
    """Return a zip file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model", "content" * 50)
    return file.getvalue()


NO_MODELS = {
    "empty": b"",
    "few bytes": b"model",
    "text": b"This is a text of more than thirty-two bytes, and about no model.\n",
    "csv": b"a,b,label\n" + b"1.0,2.0,spam\n" * 20,
    "json": b'{"__metadata__":{"seqmed":"not quite"}}',
    "zip": zipped(),
    "pickle": pickle.dumps(list(range(100))),
    "braces": b"{}",
    "zeros": bytes(1000),
    "eight zeros": bytes(8),
    "safetensors": safetensors.numpy.save({"weight": np.zeros(9)}),
    "safetensors with metadata": safetensors.numpy.save({"w": np.zeros(9)}, {"format": "pt"}),
}


@pytest.mark.parametrize("name", NO_MODELS)
def test_a_file_that_is_no_model_is_called_so(name, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(NO_MODELS[name])
    for call in (seqmed.load, model_file.read):
        with pytest.raises(
            ModelFileError, match="not a seqmed model file, expected one"
        ) as refusal:
            call(path)
        assert "checksum" not in str(refusal.value)


def test_a_model_that_was_cut_off_is_refused():
    content = min(ORIGINALS.values(), key=len)
    for changed in (content[:20], content[: len(content) // 2], content[:-1], content + b"more"):
        with pytest.raises(ModelFileError, match=r"does not match its content.*complete copy"):
            loaded(changed)


def test_every_single_byte_counts():
    content = min(ORIGINALS.values(), key=len)
    assert loaded(content).classes_.size
    changed = bytearray(content)
    for place in range(len(content)):
        changed[place] ^= 1
        with pytest.raises(ModelFileError, match=r"checksum|not a seqmed model file"):
            loaded(bytes(changed))
        changed[place] ^= 1
    assert bytes(changed) == content


# -- forgery --------------------------------------------------------------------------------------

ODD = (
    None, True, False, 0, 1, -1, 2, 3, 2**31, 2**63, 10**30, 1.5, -0.5, 1e308, 5e-324, "", "x",
    "nan", "../../etc/passwd", "SeqMED", "SeqLapMED", "Posterior", "RBF", "precomputed", "linear",
    "rows", "spectral", [], {}, [1], {"node": 0}, {"node": 5}, {"node": -1}, {"node": 10**9},
    {"float": "nan"}, {"float": "inf"}, {"class": "os.system"}, {"class": "SeqMED"}, {"tuple": []},
    {"dict": []}, {"dict": [["a", 1], ["a", 2]]}, {"dict": [[[], 1]]},
)  # fmt: skip
ODD_FLOATS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1.0, 1e308, -1e308, 5e-324, 2.5)
ODD_INTEGERS = (-1, -2, 0, 1, 5, 2**40, -(2**63), 2**63 - 1)


def places(value, path=()):
    """Yield the way to every part of a JSON document but the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in items:
        yield (*path, key)
        if isinstance(part, dict | list):
            yield from places(part, (*path, key))


def holder(document, path):
    for key in path[:-1]:
        document = document[key]
    return document, path[-1]


def picked(choices, generator):
    return choices[int(generator.integers(len(choices)))]


def with_another_document(content, generator):
    """Change one to three parts of the document: something odd, another part, none, a bit more."""
    document = document_of(content)
    for _ in range(int(generator.integers(1, 4))):
        ways = list(places(document))
        parent, key = holder(document, picked(ways, generator))
        value, change = parent[key], int(generator.integers(5))
        if change == 0:
            parent[key] = picked(ODD, generator)
        elif change == 1:
            other, place = holder(document, picked(ways, generator))
            parent[key] = json.loads(json.dumps(other[place]))
        elif change == 2:
            parent.pop(key)
        elif change == 3 and type(value) in (int, float):
            parent[key] = value + int(generator.integers(-3, 4))
        elif change == 3 and isinstance(value, list):
            value.append(value[0] if value else 0)
        elif change == 3 and isinstance(value, dict):
            value["more"] = 1
        else:
            other, place = holder(document, picked(ways, generator))
            if other is parent:
                parent[key], parent[place] = parent[place], parent[key]
    return with_document(content, document)


def with_another_number(content, generator):
    """Change an entry of a tensor."""
    header, data = split(content)
    occupied = [name for name in tensor_names(header) if 0 not in header[name]["shape"]]
    entry = header[picked(occupied, generator)]
    start, end = entry["data_offsets"]
    data, width = bytearray(data), int(entry["dtype"][1:]) // 8
    place = start + width * int(generator.integers((end - start) // width))
    if entry["dtype"] in ("F64", "F32"):
        with np.errstate(over="ignore"):
            odd = np.array(picked(ODD_FLOATS, generator)).astype(f"<f{width}")
        data[place : place + width] = odd.tobytes()
    elif entry["dtype"] in ("I64", "I32"):
        odd = np.array(picked(ODD_INTEGERS, generator)).astype(f"<i{width}")
        data[place : place + width] = odd.tobytes()
    else:
        data[place] = int(generator.integers(256))
    return joined(header, bytes(data))


def with_another_shape(content, generator):
    header, data = split(content)
    entry = header[picked(tensor_names(header), generator)]
    shape = entry["shape"]
    sizes = [picked((0, 1, 2**40, 2**62, 10**15), generator) for _ in shape]
    others = (shape[::-1], [int(np.prod(shape))], [*shape, 1], sizes)
    entry["shape"] = picked([each for each in others if each != shape], generator)
    return joined(header, data)


def with_another_type(content, generator):
    header, data = split(content)
    types = ("F64", "I64", "U64", "F32", "BF16", "BOOL", "U8", "F8_E4M3", "C64")
    entry = header[picked(tensor_names(header), generator)]
    entry["dtype"] = picked([each for each in types if each != entry["dtype"]], generator)
    return joined(header, data)


def with_other_names(content, generator):
    header, data = split(content)
    names = tensor_names(header)
    first = picked(names, generator)
    others = [name for name in (*names, "../../x", "", "sha256 ") if name != first]
    second = picked(others, generator)
    header[first], header[second] = header.get(second, header[first]), header[first]
    return joined(header, data)


def with_a_bit_flipped(content, generator):
    return sealed(flipped(content[:-32], generator))


FORGERIES = (
    with_another_document, with_another_document, with_another_number, with_another_shape,
    with_another_type, with_other_names, with_a_bit_flipped,
)  # fmt: skip


def use(model):
    """Ask a model all there is to ask, and have it learn a batch and a late label."""
    width = getattr(model, "n_features_in_", None)
    if width is None or width > 1000:
        return
    X = np.arange(3.0 * width).reshape(3, width) % 7
    for method in ("predict", "predict_proba", "decision_std"):
        with contextlib.suppress(Exception):
            assert len(getattr(model, method)(X)) == 3
    for options in ({}, {"new_points": False}):  # compiled code follows its lists
        with contextlib.suppress(Exception):
            y = np.array([*model.classes_[:1].tolist(), None, None], dtype=object)
            model.partial_fit(X, y, **options)


@pytest.mark.filterwarnings("ignore")  # of numbers near the largest there is
@pytest.mark.parametrize("number", [350, pytest.param(3500, marks=pytest.mark.exhaustive)])
def test_forged_files_are_refused_or_hold_a_model(number):
    generator = np.random.default_rng(number)
    outcomes = {forge: [0, 0] for forge in FORGERIES}
    for place in range(number):
        forge = FORGERIES[place % len(FORGERIES)]
        content = forge(picked([*ORIGINALS.values()], generator), generator)
        try:
            model = loaded(content)
        except ModelFileError:
            outcomes[forge][0] += 1
        else:
            outcomes[forge][1] += 1
            use(model)
    # both happen, or the forgeries would test nothing
    assert all(refused > number / 100 for refused, _ in outcomes.values())
    assert sum(used for _, used in outcomes.values()) > number / 10


# -- forgeries with a plan ------------------------------------------------------------------------


def estimator(name, parameters=None, state=None):
    """Return the node of an estimator; parameters that are not given have their defaults."""
    arguments = inspect.signature(CLASSES[name]).parameters if name in CLASSES else {}
    defaults = {
        each.name: each.default for each in arguments.values() if each.default is not each.empty
    }
    written = ModelEncoder("model").encode_named(defaults, name) | (parameters or {})
    return {"estimator": {"class": name, "parameters": written, "state": state or {}}}


def document(nodes=None, extra=None, extra_nodes=(), **members):
    """Return the document of a file that holds a model that has learned nothing."""
    return {
        "format": FORMAT,
        "library": "0.1.0",
        "about": {"classes": None, "n_features": None, "n_batches": None},
        "model": [estimator("SeqMED")] if nodes is None else list(nodes),
        "extra": [*extra_nodes, {"value": extra}],
        **members,
    }


def made(text, tensors=None, entry="seqmed"):
    """Return a file with a document, whose checksum fits."""
    text = text if isinstance(text, str) else json.dumps(text)
    room = np.zeros(32, dtype=np.uint8)
    return sealed(safetensors.numpy.save({**(tensors or {}), "sha256": room}, {entry: text})[:-32])


def array(kind, tensor):
    """Return a file that keeps one array with a model."""
    node = {"array": [kind, "extra.0"]}
    return made(
        document(extra={"dict": [["a", {"node": 0}]]}, extra_nodes=[node]), {"extra.0": tensor}
    )


def rows(shape, data, indices, indptr):
    """Return a file that keeps sparse rows with a model."""
    parts = {"data": np.array(data), "indices": np.array(indices), "indptr": np.array(indptr)}
    nodes = [{"array": ["plain", f"extra.{name}"]} for name in parts]
    places = {name: {"node": place} for place, name in enumerate(parts)}
    nodes.append({"csr": {"shape": shape, **places}})
    tensors = {f"extra.{name}": part for name, part in parts.items()}
    return made(document(extra={"dict": [["a", {"node": 3}]]}, extra_nodes=nodes), tensors)


def parameters(name="SeqMED", **given):
    return made(document([estimator(name, given)]))


def matryoshka():
    """Searches in pipelines in searches, each twice in the next: 2**30 in all, were they copied."""
    nodes = [estimator("SeqMED")]
    for place in range(0, 60, 2):
        nodes.append(estimator("StreamPipeline", {"steps": [{"tuple": ["m", {"node": place}]}]}))
        inner = {"node": place + 1}
        grid = {"dict": [["x", [inner]]]}
        nodes.append(estimator("PrequentialSearch", {"estimator": inner, "param_grid": grid}))
    return made(document(nodes))


def deep(depth):
    return "[" * depth + "]" * depth


def filled(text):
    """Return a document with some text in the place of what was kept."""
    return json.dumps(document(extra="HERE")).replace('"HERE"', text)


RECORD = {"record": {"type": "Popen", "fields": {"args": "true"}}}
PLANS = {
    "an old version": (made(document(format=2)), "format 2, written by seqmed '0.1.0'.*learn"),
    "a newer version": (
        made(document(format=FORMAT + 1, library="7.1")),
        f"format {FORMAT + 1}, written by seqmed '7.1'.*install the version that wrote it",
    ),
    "no version": (made({}), "format None"),
    "nearly a version": (made(document(format=3.0)), r"format 3\.0"),
    "a member more": (made(document(more=1)), "unknown: .*more"),
    "a member less": (made({"format": FORMAT}), "missing: .*about"),
    "no document": (made("null"), "is a NoneType, expected an object"),
    "NaN": (made('{"format": NaN}'), "format nan"),
    "NaN as a value": (made(filled("NaN")), "not finite"),
    "a long number": (made('{"format": ' + "9" * 5000 + "}"), "digits"),
    "a deep document": (made(deep(100_000)), "recursion"),
    "a deep value": (made(filled(deep(990))), "recursion"),
    "no entry": (made("{}", entry="pt"), "no header"),
    "no checksum": (sealed(safetensors.numpy.save({"a": np.zeros(9)})[:-32]), "not a checksum"),
    "a long header": (sealed(struct.pack("<Q", 2**63) + b"{}" + bytes(40)), "declared with"),
    "another class": (parameters("os.system"), "a 'os.system', expected one of"),
    "a transformer": (parameters("StandardScaler"), "holds a StandardScaler"),
    "no estimator": (made(document([{"names": []}])), "holds a ndarray"),
    "an unknown node": (made(document([{"pickle": "cos"}])), "unknown kind 'pickle'"),
    "an unknown record": (made(document([RECORD])), "a record 'Popen'"),
    "a node of two kinds": (made(document([{"names": [], "array": []}])), "an object of one key"),
    "an unknown parameter": (parameters(D=1), "unknown: .*'D'"),
    "a missing parameter": (parameters("StreamPipeline"), "missing: .*'steps'"),
    "no parameters": (
        made(document([{"estimator": {"class": "SeqMED", "state": {}}}])),
        "missing: .*'parameters'",
    ),
    "a wrong parameter": (parameters(C=-1.0), "'C' parameter"),
    "a record for a kernel": (parameters(kernel=None), "'kernel' parameter"),
    "estimators in estimators": (matryoshka(), "nested more than"),
    "half a state": (
        made(document([estimator("SeqMED", state={"n_features_in_": 3})])), "missing: .*_state"
    ),
    "a missing tensor": (
        made(document(extra_nodes=[{"array": ["plain", "../x"]}])), r"'\.\./x' is missing"
    ),
    "an estimator as extra": (made(document(extra_nodes=[estimator("SeqMED")])), "unknown kind"),
    "a class as extra": (made(document(extra={"class": "SeqMED"})), "'class' was found"),
    "a list as extra": (made(document(extra=[1])), "expected a dict"),
    "a key that is a list": (made(document(extra={"dict": [[[], 1]]})), "unhashable"),
    "a node of itself": (
        made(document([estimator("SeqMED", {"C": {"node": 0}})])), "a node has the number 0"
    ),
    "a number that is too large": (made(filled("1e999")), "not finite"),
    "an unknown kind of array": (array("pickle", np.zeros(1)), "declared as 'pickle'"),
    "a mask of floats": (array("mask", np.zeros(1)), "declared as 'mask'"),
    "a mask of large numbers": (array("mask", np.full(1, 2, np.uint8)), "declared as 'mask'"),
    "text beyond Unicode": (array("text", np.full((1, 1), 0x110000, np.uint32)), "declared as"),
    "text without letters": (array("text", np.zeros((5, 0), np.uint32)), "declared as 'text'"),
    "endless text": (array("text", np.zeros((0, 2**40), np.uint32)), "declared as 'text'"),
    "a column too far": (rows([1, 2], [1.0], [2], [0, 1]), "do not fit together"),
    "a column before the first": (rows([1, 2], [1.0], [-1], [0, 1]), "do not fit together"),
    "rows that end before they begin": (rows([2, 2], [1.0], [0], [0, 2, 1]), "do not fit"),
    "rows that are not there": (rows([2**40, 2], [1.0], [0], [0, 1]), "do not fit together"),
    "a negative number of rows": (rows([-1, 2], [1.0], [0], [0, 1]), "a size has the number -1"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "reason"), PLANS.values(), ids=PLANS)
def test_planned_forgeries_are_refused_for_their_reason(content, reason):
    with pytest.raises(ModelFileError, match=reason):
        loaded(content)


def test_the_plans_would_succeed_without_their_flaw():
    assert loaded(made(document())).C == SeqMED().C
    assert loaded(parameters(C=3.0)).C == 3.0
    assert type(loaded(array("text", np.full((1, 1), 65, np.uint32)))) is SeqMED
    assert type(loaded(rows([1, 2], [1.0], [1], [0, 1]))) is SeqMED


def test_huge_sizes_take_no_memory():
    header, data = split(ORIGINALS[f"format-{FORMAT}-SeqMED"])
    tracemalloc.start()
    try:
        for size in (10**6, 10**9, 2**40, 2**62, 2**63 - 1):
            for shape in ([size], [size, size], [1, size], [0, size]):
                for name in tensor_names(header):
                    changed = {**header, name: {**header[name], "shape": shape}}
                    with pytest.raises(ModelFileError):
                        loaded(joined(changed, data))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(data)


AUDITED = """
import sys
from seqmed import load
from seqmed.model_file import ModelFileError, read
for path in sys.argv[2:]:
    load(path)  # whatever the library itself needs is imported and compiled now
events = []
sys.addaudithook(lambda event, arguments: events.append((event, *map(str, arguments))))
for path in sys.argv[1:]:
    try:
        load(path)
        read(path)
    except ModelFileError:
        pass
for event in list(events):
    print(*event)
"""
HARMLESS = ("open", "object.__getattr__", "builtins.id")


def test_nothing_is_executed(tmp_path):
    """What python itself sees of a load is that the file is opened."""
    forged = tmp_path / "forged"
    forged.write_bytes(made(document([estimator("os.system", {"command": "touch /tmp/x"})])))
    originals = [FOLDER / f"{name}.safetensors" for name in ORIGINALS]
    result = subprocess.run(
        [sys.executable, "-c", AUDITED, forged, *originals],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    events = [line.split() for line in result.stdout.splitlines()]
    opened = {words[1] for words in events if words[0] == "open"}
    assert opened == {str(forged), *map(str, originals)}
    assert {words[0] for words in events} <= set(HARMLESS)
