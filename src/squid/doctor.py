"""What of SQUID works on this machine: versions, extras, decoders, devices, data and a self-test.

Nothing heavy is imported before its own check, so that a torch that cannot be loaded is a line of
the result and not the end of it.
"""

import platform
import re
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from typing import NamedTuple

from packaging.requirements import Requirement

from squid.places import VARIABLE, data_folder
from squid.version import __version__

PACKAGE = "squid-radiography"
BACKENDS = {"onnx": ("onnxruntime", "export")}
"""Backends beside torch: what they import, and the extra that brings it."""

SELF_TEST = {
    "data": {"name": "digitanatomy", "train": 8, "validation": 10, "test": 2},
    "method": {
        **{"name": "auto_encoder", "size": 48, "channels": [4, 8], "hidden": 16, "latent": 4},
        **{"epochs": 1, "batch_size": 4},
    },
    "train": {"augment": False},
}
"""A recipe that trains in less than a second."""


class Check(NamedTuple):
    """One line of the result."""

    section: str
    name: str
    works: bool
    found: str
    """What is there, or what is wrong with it."""
    required: bool = False
    """Whether SQUID cannot be used without it."""
    remedy: str = ""
    """The command or the page that helps; '' where nothing has to be done."""


def examine() -> list[Check]:
    """All checks, in the order in which a reader wants them."""
    sections: dict[str, Callable[[], Iterator[Check]]] = {
        "versions": _versions,
        "extras": _extras,
        "DICOM": _decoders,
        "devices": _devices,
        "backends": _backends,
        "data": _data,
        "self-test": _self_test,
    }
    found: list[Check] = []
    for section, checks in sections.items():
        try:
            found += checks()
        # A broken installation can raise anything; the other sections still say what they find.
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
            found.append(Check(section, "check", False, wrong, True, _install()))
    return found


def usable(checks: list[Check]) -> bool:
    """Whether everything that is required works."""
    return all(check.works for check in checks if check.required)


def _versions() -> Iterator[Check]:
    """Python, SQUID, and what SQUID always needs."""
    yield Check("versions", "python", True, platform.python_version(), required=True)
    yield Check("versions", "squid", True, __version__, required=True)
    if _metadata() is None:
        unknown = "a source tree that is not installed: what it needs is not known"
        yield Check("versions", PACKAGE, False, unknown, remedy="pip install -e .")
    for requirement in _requirements(""):
        yield _installed("versions", requirement, "", required=True)


def _extras() -> Iterator[Check]:
    """Each extra with the packages it lacks."""
    for extra in _declared("Provides-Extra"):
        checks = [_installed("extras", one, extra) for one in _requirements(extra)]
        lacking = [f"{check.name} ({check.found})" for check in checks if not check.works]
        found = f"lacks {', '.join(lacking)}" if lacking else "complete"
        yield Check("extras", extra, not lacking, found, remedy=_install(extra) if lacking else "")


def _installed(section: str, wanted: Requirement, extra: str, *, required: bool = False) -> Check:
    """Whether a distribution is there in a version that is wanted."""
    try:
        version = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return Check(section, wanted.name, False, "not installed", required, _install(extra))
    if not wanted.specifier.contains(version, prereleases=True):
        found = f"{version}, but {wanted.specifier} is needed"
        return Check(section, wanted.name, False, found, required, _install(extra))
    return Check(section, wanted.name, True, version, required)


def _requirements(extra: str) -> Iterator[Requirement]:
    """What the package, or one of its extras, needs on this machine."""
    for wanted in map(Requirement, _declared("Requires-Dist")):
        always = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
        chosen = wanted.marker is not None and wanted.marker.evaluate({"extra": extra})
        # An extra that is made of others names the package itself: those extras have own lines.
        if wanted.name != PACKAGE and (chosen and not always if extra else always):
            yield wanted


def _declared(field: str) -> list[str]:
    """The entries of one field of the installed package's metadata."""
    declared = _metadata()
    return [] if declared is None else declared.get_all(field) or []


def _metadata() -> metadata.PackageMetadata | None:
    try:
        return metadata.metadata(PACKAGE)
    except metadata.PackageNotFoundError:
        return None


def _install(extra: str = "") -> str:
    return f"pip install '{PACKAGE}[{extra}]'" if extra else f"pip install --upgrade {PACKAGE}"


def _decoders() -> Iterator[Check]:
    """What decodes the pixels of each DICOM transfer syntax."""
    from squid.data.dicom.pixels import SYNTAXES

    missing = ""
    try:
        codecs = import_module("squid.data.dicom.codecs")
    except ImportError as error:
        missing = f"{error.name} is not installed"
    for uid, syntax in SYNTAXES.items():
        if not syntax.plugin:
            yield Check("DICOM", syntax.name, True, f"read without a decoder ({uid})")
        elif not missing and codecs.has_plugin(uid, syntax.plugin):
            yield Check("DICOM", syntax.name, True, f"{syntax.plugin} ({uid})")
        else:
            lacks = f"{missing or f'{syntax.plugin} does not load'} ({uid})"
            yield Check("DICOM", syntax.name, False, lacks, remedy=_install("dicom"))


def _devices() -> Iterator[Check]:
    import torch

    from squid.data.decode import cores

    threads = f"{cores()} cores, torch computes with {torch.get_num_threads()} threads"
    yield Check("devices", "cpu", True, threads, required=True)
    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for CPUs"
        yield Check("devices", "cuda", False, f"no CUDA device is usable; this torch is {built}")
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        memory = f"{about.total_memory / 2**30:.0f} GiB, compute {about.major}.{about.minor}"
        yield Check("devices", f"cuda:{number}", True, f"{about.name}, {memory}")


def _backends() -> Iterator[Check]:
    """Torch is required; the others are imported, since a package can be there and not load."""
    import torch

    yield Check("backends", "torch", True, torch.__version__, required=True)
    for name, (module, extra) in BACKENDS.items():
        try:
            version = str(import_module(module).__version__)
            yield Check("backends", name, True, f"{module} {version}")
        except Exception as error:
            yield Check("backends", name, False, _first_line(error), remedy=_install(extra))


def _data() -> Iterator[Check]:
    """The data folder and the datasets in it; nothing of it is required."""
    from squid.data import DATASETS
    from squid.data.base import FileDataConfig

    folder = data_folder()
    if not folder.is_dir():
        absent = f"{folder} is not there"
        remedy = f"make that folder, or set {VARIABLE} to the one that holds your datasets"
        yield Check("data", "data folder", False, absent, remedy=remedy)
        return
    remedy = f"get it from its publisher (SQUID downloads nothing) and unpack it into {folder}"
    free = shutil.disk_usage(folder).free / 2**30
    yield Check("data", "data folder", True, f"{folder}, {free:.0f} GiB free")
    for name, config in DATASETS.items():
        if issubclass(config, FileDataConfig) and config.folders:
            here = [folder / one for one in config.folders if (folder / one).exists()]
            found = here[0].name if here else f"no {' or '.join(map(str, config.folders))} there"
            yield Check("data", name, bool(here), found, remedy="" if here else remedy)


def _self_test() -> Iterator[Check]:
    """A detector trained on made images scores them twice alike and shows where it looked."""
    import numpy as np

    from squid.config import parse
    from squid.recipe import Recipe
    from squid.train import Engine, Monitor
    from squid.training import fit_detector

    recipe = parse(Recipe, SELF_TEST, "the self-test")
    splits = recipe.data.load(recipe.method.size)
    detector = fit_detector(recipe, splits, engine=Engine(), monitor=Monitor())
    images = splits.test.pixels
    scores, heat = detector.score(images), detector.explain(images)
    wrong = [
        *["scores are not finite"] * (not np.isfinite(scores).all()),
        *["the same images got other scores"] * (not np.allclose(scores, detector.score(images))),
        *["heatmaps are not finite"] * (not np.isfinite(heat).all()),
    ]
    found = "; ".join(wrong) or f"trained, scored and explained {len(images)} images"
    yield Check("self-test", str(detector.device), not wrong, found, True, "")


def _first_line(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)).strip()[:200] or type(error).__name__
