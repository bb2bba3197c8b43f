"""Run folders that were damaged, or made to deceive: refused, or the same answer as before."""

import hashlib
import json
import math
import os
import random
import re
import shutil
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from safetensors.torch import load, save

from attacks.command import baseline, same, scores
from attacks.images import damaged
from attacks.process import Outcome, squid
from attacks.record import Setting, Tally

Change = Callable[[Path], object]
LARGE = 2**40
"""Bytes of a file with nothing in it, which takes no room on the disk."""


def weights(setting: Setting) -> Tally:
    """`model.safetensors`: single bits, numbers that are none, other types, missing tensors."""
    named = {name: _on("model.safetensors", change) for name, change in _weight_changes().items()}
    return _attack(setting, "run folder: weights", named, "model.safetensors", 150)


def calibration(setting: Setting) -> Tally:
    """`calibration.json`: impossible and missing numbers, other types, torn files."""
    named = {
        f"{key} = {value!r}": _json("calibration.json", key, value)
        for key in ("mean", "std", "count", "thresholds", "heldout", "heldout_scores")
        for value in (float("nan"), float("inf"), -1, "x", None, [], {}, [1e999], {"0.1": -1e308})
    }
    return _attack(setting, "run folder: calibration", named, "calibration.json", 100)


def recipe(setting: Setting) -> Tally:
    """`recipe.toml`: numbers that ask for all memory, names that are paths, nested tables."""
    named = {
        **{name: _key(name, value) for name, value in KEYS.items()},
        **{f"data {str(data)[:40]}": _data(data) for data in (*DATA, slow_patient(setting))},
        **{text[:20]: _first_line(text) for text in TEXTS},
    }
    tally = _attack(setting, "run folder: recipe", named, "recipe.toml", 100)
    for what, change in setting.some(named).items():
        if what == "method.epochs":  # a training without end is what it asks for
            continue
        run = Path(shutil.copytree(setting.run, setting.folder / "run"))
        change(run)
        outcome = squid("train", run / "recipe.toml", "--out", setting.folder / "new")
        tally.answered += tally.note(outcome, f"training with {what}")
        shutil.rmtree(setting.folder / "new", ignore_errors=True)
        shutil.rmtree(run)
    return tally


def onnx(setting: Setting) -> Tally:
    """`model.onnx`: of another network, with outside data, torn; listed in the manifest, so that
    all but the first scoring look into it."""
    named: dict[str, Change] = {
        **{name: _graph(*steps) for name, steps in GRAPHS.items()},
        "junk": lambda run: (run / "model.onnx").write_bytes(b"junk" * 99),
        "empty": lambda run: (run / "model.onnx").write_bytes(b""),
        "outside data": lambda run: (run / "model.onnx").write_bytes(_outside_graph(run)),
        "a folder": lambda run: (run / "model.onnx").mkdir(),
        "a pipe": lambda run: os.mkfifo(run / "model.onnx"),
    }
    listed = {name: _listed(change) for name, change in named.items()}
    return _attack(setting, "run folder: ONNX file", listed, None, 0)


def _listed(change: Change) -> Change:
    def changed(run: Path) -> None:
        change(run)
        _append(run, f"{'0' * 64}  model.onnx\n")

    return changed


def manifest(setting: Setting) -> Tally:
    """`MANIFEST.sha256` itself, and files it covers that are no files."""
    named: dict[str, Change] = {
        "no manifest": lambda run: (run / "MANIFEST.sha256").unlink(),
        "empty": lambda run: (run / "MANIFEST.sha256").write_text(""),
        "names outside": lambda run: _append(run, f"{'0' * 64}  ../../../etc/passwd\n"),
        "endless": lambda run: os.truncate(run / "MANIFEST.sha256", LARGE),
        "not text": lambda run: (run / "MANIFEST.sha256").write_bytes(b"\xff\0" * 999),
        **{
            f"{file}: {kind}": _instead(file, make)
            for file in ("MANIFEST.sha256", "model.safetensors", "recipe.toml", "calibration.json")
            for kind, make in INSTEAD.items()
        },
    }
    return _attack(setting, "run folder: manifest", named, "MANIFEST.sha256", 60)


def _is_small(path: Path) -> bool:
    return not path.is_symlink() and path.is_file() and path.stat().st_size < LARGE


INSTEAD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "zeros without end": lambda path: path.symlink_to("/dev/zero"),
    "a terabyte": lambda path: _sparse(path),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, LARGE)


def _instead(file: str, make: Callable[[Path], object]) -> Change:
    def change(run: Path) -> None:
        (run / file).unlink()
        make(run / file)

    return change


def _append(run: Path, text: str) -> None:
    path = run / "MANIFEST.sha256"
    path.write_text(path.read_text() + text)


KEYS: dict[str, object] = {
    "method.width": 99_999_999,
    "method.members": 100_000,
    "method.size": 1_000_000_000,
    "method.discriminator_width": 99_999_999,
    "method.slots": 1_000_000_000_000,
    "method.heads": 1_000_000,
    "method.depth": 60,
    "method.grid": 1_000_000,
    "method.batch_size": 2**62,
    "method.epochs": 2**62,
    "method.name": "../../etc/passwd",
    "data.name": "/dev/zero",
    "seed": math.inf,
    "title": "x" * 10**6,
    "x": [],
}
FOLDER = {"name": "folder", "root": "/dev/zero"}
DATA: tuple[dict[str, str], ...] = (
    {},
    {"patient": "("},
    {"root": "\0"},
    {"root": "../" * 2_000},
)


def slow_patient(setting: Setting) -> dict[str, str]:
    """An expression that takes exponential time on the names of a folder of images."""
    folder = setting.folder / "long names"
    folder.mkdir()
    for number, image in enumerate(sorted(setting.images.iterdir())):
        shutil.copy(image, folder / f"{'a' * 200}!{number}.png")
    return {"patient": "(a|aa)+$", "root": str(folder)}


TEXTS = (".".join("a" * 50_000) + " = 1", "x = " + "[" * 50_000, "x = " + "{a=" * 5_000)


def _attack(
    setting: Setting, name: str, named: dict[str, Change], file: str | None, full: int
) -> Tally:
    """The named changes, and `full` random kinds of damage of one file."""
    tally, good = Tally(name), baseline(setting)
    changes = setting.some(named)
    if file is not None:
        for number in range(setting.times(full)):
            rng = setting.random(f"{name}/{number}")
            changes[f"damage {number}"] = _on(file, _damage(rng))
    for what, change in changes.items():
        run = Path(shutil.copytree(setting.run, setting.folder / "run"))
        change(run)
        outcome = squid("score", run, setting.images, "--format", "csv")
        if tally.note(outcome, what):
            tally.answer(same(scores(outcome.out), good), f"{what}: another answer, exit code 0")
        # Without right checksums another answer may be the folder's own, but it must be one.
        outcome = squid("score", run, setting.images, "--format", "csv", "--unverified")
        _answer(tally, outcome, f"{what}, unverified")
        _sign(run)
        outcome = squid("score", run, setting.images, "--format", "csv")
        _answer(tally, outcome, f"{what}, with its own checksums")
        shutil.rmtree(run)
    return tally


def _answer(tally: Tally, outcome: Outcome, what: str) -> None:
    if tally.note(outcome, what):
        found = [score for score, _ in scores(outcome.out).values()]
        finite = bool(found) and all(map(math.isfinite, found))
        tally.answer(finite, f"{what}: a score that is no number, or none")


def _sign(run: Path) -> None:
    """Checksums of the files as they are now, as whoever made the folder can write them."""
    path = run / "MANIFEST.sha256"
    if not _is_small(path):
        return
    lines = []
    for name in re.findall(r"^\S+  (\S+)$", path.read_text(errors="replace"), re.MULTILINE):
        if _is_small(run / name):
            lines.append(f"{hashlib.sha256((run / name).read_bytes()).hexdigest()}  {name}\n")
    path.write_text("".join(lines))


def _on(file: str, change: Callable[[bytes], bytes]) -> Change:
    return lambda run: (run / file).write_bytes(change((run / file).read_bytes()))


def _damage(rng: random.Random) -> Callable[[bytes], bytes]:
    return lambda data: damaged(data, rng)[1]


def _json(file: str, key: str, value: object) -> Change:
    def change(run: Path) -> None:
        record = json.loads((run / file).read_text())
        record[key] = value
        (run / file).write_text(json.dumps(record))

    return change


def _key(name: str, value: object) -> Change:
    """Another value of one key of the recipe."""

    def change(recipe: dict[str, Any]) -> None:
        table, _, key = name.rpartition(".")
        (recipe[table] if table else recipe)[key] = value

    return _recipe(change)


def _recipe(change: Callable[[dict[str, Any]], object]) -> Change:
    def changed(run: Path) -> None:
        path = run / "recipe.toml"
        recipe = tomllib.loads(path.read_text())
        change(recipe)
        path.write_text(tomli_w.dumps(recipe))

    return changed


def _first_line(text: str) -> Change:
    def change(run: Path) -> None:
        path = run / "recipe.toml"
        path.write_text(f"{text}\n{path.read_text()}")

    return change


def _data(data: Mapping[str, str]) -> Change:
    """The recipe of images in a folder."""
    return _recipe(lambda recipe: recipe.update(data={**FOLDER, **data}))


def _weight_changes() -> dict[str, Callable[[bytes], bytes]]:
    return {
        "NaN everywhere": _tensors(lambda t: torch.full_like(t, torch.nan)),
        "infinite": _tensors(lambda t: torch.full_like(t, torch.inf)),
        "zeros": _tensors(torch.zeros_like),
        "twice as large": _tensors(lambda t: t * 2),
        "float64": _tensors(lambda t: t.double()),
        "int64": _tensors(lambda t: t.long()),
        "scalars": _tensors(lambda t: t.flatten()[:1].clone()),
        "empty": lambda data: b"",
        "header of 2^62 bytes": lambda data: (2**62).to_bytes(8, "little") + data[8:],
        "pickle": lambda data: b"\x80\x04cos\nsystem\n(S'touch owned'\ntR.",
        "numpy": lambda data: np.zeros(9).tobytes(),
        "cut": lambda data: data[: len(data) // 2],
    }


def _tensors(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        tensors = load(data).items()
        return save({n: change(t).contiguous() if t.is_floating_point() else t for n, t in tensors})

    return changed


Step = tuple[str, str, str]
"""An operator, its inputs in one text, its output."""
GRAPHS: dict[str, tuple[Step, ...]] = {
    "always zero": (("Mul", "mean zero", "score"),),
    "the mean": (("Identity", "mean", "score"),),
    "no number": (("Div", "zero zero", "nan"), ("Mul", "mean nan", "score")),
    "one score": (("ReduceMean", "mean", "score"),),
    "a scalar": (("ReduceMean", "mean", "one"), ("Squeeze", "one", "score")),
    "a column": (("Unsqueeze", "mean column", "score"),),
    "shapes that do not fit": (("Add", "mean three", "score"),),
    "another output": (("Identity", "mean", "other"),),
    "another input": (("Identity", "pictures", "score"),),
}
"""Graphs after the mean of each image."""


def _graph(*steps: Step) -> Change:
    return lambda run: (run / "model.onnx").write_bytes(_bytes_of(run, *steps))


def _bytes_of(run: Path, *steps: Step) -> bytes:
    """A graph that says it was made from the weights of this run."""
    from onnx import TensorProto, helper, numpy_helper

    given = "pictures" if any("pictures" in taken for _, taken, _ in steps) else "images"
    image = helper.make_tensor_value_info(given, TensorProto.FLOAT, ["n", 1, "h", "w"])
    score = helper.make_tensor_value_info(steps[-1][2], TensorProto.FLOAT, None)
    constants = {
        "zero": np.zeros(1, np.float32),
        "three": np.ones(3, np.float32),
        "axes": np.array([1, 2, 3]),
        "column": np.array([1]),
    }
    nodes = [helper.make_node("ReduceMean", [given, "axes"], ["mean"], keepdims=0)]
    nodes += [helper.make_node(name, taken.split(), [out]) for name, taken, out in steps]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "graph", [image], [score], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    digest = hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
    helper.set_model_props(model, {"squid.weights": digest})
    return bytes(model.SerializeToString())


def _outside_graph(run: Path) -> bytes:
    """Always zero, but the zero lies in a file of the system."""
    import onnx

    model = onnx.load_from_string(_bytes_of(run, *GRAPHS["always zero"]))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "../../../../etc/passwd"), ("offset", "0"), ("length", "4")):
        tensor.external_data.add(key=key, value=value)
    return bytes(model.SerializeToString())
