"""Every measured number of docs/results.md and of the README's text, from the files of
benchmarks/results: name -> text. `docs/results.template` names them."""

import json
import re
import runpy
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from squid.benchmark.summary import Line, Spread, published, read_results, summarise_results
from squid.config import Selection
from squid.evaluation.confounds import LEAST
from squid.evaluation.metrics import Estimate, auc
from squid.evaluation.paired import difference
from squid.evaluation.record import Result, read_record

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
NAME = re.compile(r"\{\{(.+?)\}\}")
SEEDS = {"0 to 4": range(5), "20 to 24": range(20, 25)}
"""The two groups of seeds of our recipe."""
NAMED = ("ours", "vae", "auto_encoder", "mkd", "fusion", "ae_u", "synthetic_lesions")
"""Rows of NIH that the text names; it sums up the others."""
KINDS = ("flipped", "misordered", "missing", "novel")
RIVALS: tuple[tuple[str, Selection], ...] = (
    ("cutpaste", "final"),
    ("mkd", "final"),
    ("reference_1000", "best_epoch"),
    ("reference", "best_epoch"),
)
"""Rows of ZhangLab that our recipe is compared with by the paired test."""


def filled(template: str) -> str:
    """A template with its numbers, its prose wrapped anew; a name that no file gives is an
    error."""
    known = numbers()
    parts = []
    for part in template.split("\n\n"):
        text = NAME.sub(lambda found: known[found[1]], part)
        prose = text != part and not text.startswith(("|", "```", "- "))
        parts.append(_wrapped(text) if prose else text)
    return "\n\n".join(parts)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def numbers() -> dict[str, str]:
    """All of them."""
    results, trivial = read_results([RESULTS / "jobs"])
    lines = summarise_results(results)
    found = {name: text for line in lines for name, text in _row(line)}
    for one in trivial:
        for measure, value in one.measures.items():
            found[f"{one.section} trivial {one.name} {measure}"] = f"{value:.1f}"
    nih = [one for one in results if one.section == "nih"]
    aucs = sorted(100 * one["final"].auc for one in nih if one.row not in NAMED)
    found["nih others"] = f"{aucs[0]:.1f} to {aucs[-1]:.1f}"
    ours = [one for one in results if _ours(one)]
    paper = published("zhanglab", "squid")
    found |= {f"paper {name}": f"{spread:.1f}" for name, spread in paper.items()}
    found |= dict(_times(results))
    found |= dict(_paired(results))
    found |= _beside("strata.py")["numbers"](lines)
    found |= dict(_rsna())
    found |= _beside("boxes.py")["numbers"]()
    found |= _beside("rsna.py")["numbers"](lines)
    found |= dict(_seeds(ours))
    found |= dict(_snapshots(ours))
    found |= dict(_ensembles())
    found |= dict(_stops())
    found |= dict(_studies())
    found |= dict(_digits())
    found |= dict(_speed())
    return found


Named = Iterator[tuple[str, str]]


def _row(line: Line) -> Named:
    """Measures of a benchmark's row over its seeds, with intervals where it has one seed."""
    name = f"{line.section} {line.row} {line.selection}"
    yield f"{name} n", str(len(line.seeds))
    for measure in ("auc", "accuracy", "f1"):
        yield f"{name} {measure}", f"{line.measure(measure):.1f}"
    yield f"{name} false alarms", f"{line.false_alarms:.1f}"
    yield f"{name} found", f"{line.found:.1f}"
    if line.adjusted is not None:
        yield f"{name} adjusted", f"{line.adjusted:.1f}"
    if line.late_auc_range is not None:
        yield f"{name} late range", f"{line.late_auc_range:.1f}"
    (first, *others), seconds = line.results, line.training_seconds
    yield f"{name} seconds", f"{seconds:.0f}"
    if not others:
        evaluation = first[line.selection]
        yield f"{name} interval", _interval(evaluation.metrics["healthy"].auc)
        for finding, group in evaluation.findings.items():
            yield f"{name} {finding}", _interval(group.auc)
            yield f"{name} {finding} images", str(group.count)
        for group_name, read in evaluation.rsna_class.items():
            yield f"{name} rsna {group_name}", _interval(read.auc)
            yield f"{name} rsna {group_name} images", f"{read.anomalous} against {read.normal}"
    if line.restored is not None:
        yield f"{name} restored", f"{line.restored:.0f}"
        digits = first["final"].digits[0]
        assert digits.restoration is not None
        yield f"{name} faithfulness", _percent(digits.restoration.faithfulness)


def _times(results: Sequence[Result]) -> Named:
    """From the shortest to the longest training of several rows."""
    gpu = [one for one in results if "CPU" not in one.provenance.device]
    others = [one for one in gpu if one.recipe.method.name != "squid"]
    for section in ("zhanglab", "nih"):
        seconds = _seconds(one for one in others if one.section == section)
        yield f"{section} others seconds", f"{seconds[0]:.0f} to {seconds[-1]:.0f}"
    digits = _seconds(one for one in gpu if one.section == "digitanatomy")
    yield "digitanatomy seconds", f"{digits[0]:.0f} to {digits[-1]:.0f}"
    cpu = _seconds(one for one in results if one.section == "nih" and one not in gpu)
    yield "nih cpu minutes", f"{cpu[0] / 60:.0f} to {cpu[-1] / 60:.0f}"
    for name, seeds in SEEDS.items():
        own = _seconds(one for one in gpu if _ours(one) and one.seed in seeds)
        yield f"seeds {name} seconds", f"{own[0]:.0f} to {own[-1]:.0f}"


def _seconds(results: Iterable[Result]) -> list[float]:
    return sorted(one.cost.training_seconds for one in results)


def _ours(result: Result) -> bool:
    return (result.section, result.row) == ("zhanglab", "ours")


def _paired(results: Sequence[Result]) -> Named:
    """Our recipe minus other rows of ZhangLab, over all images and within deciles of sharpness."""

    def scores(row: str, selection: Selection) -> Any:
        own = [one for one in results if (one.section, one.row) == ("zhanglab", row)]
        assert all(one.evaluations.images == images for one in own)
        return np.array([one[selection].array for one in own])  # (seeds, n)

    images = next(one for one in results if _ours(one)).evaluations.images
    groups = {"all": [""] * len(images.name), "within": images.strata["sharpness"]}
    for row, selection in RIVALS:
        pair = scores("ours", "final"), scores(row, selection)
        for name, group in groups.items():
            found = difference(*pair, images.labels, group, least=LEAST)
            assert found is not None
            value, low, high = (100 * one for one in dict(found.difference).values())
            yield f"paired {row} {name}", f"{value:+.1f} ({low:+.1f} to {high:+.1f})"


def _rsna() -> Named:
    """Validation images of RSNA, by which the parts of the fusion were chosen."""
    rows = _read("studies/rsna-validation-parts.json")["rows"]
    by_row: dict[str, list[Mapping[str, Any]]] = {}
    for one in rows:
        by_row.setdefault(f"rsna {one['section']} {one['call']} {one['row']}", []).append(one)
    for name, found in by_row.items():
        yield f"{name} n", str(len(found))
        yield f"{name} auc", f"{Spread.of(one['auc']['value'] for one in found):.1f}"
        adjusted = Spread.of(one["adjusted"]["sharpness"] for one in found)
        yield f"{name} adjusted", f"{adjusted:.1f}"
        first = {key: value / 100 for key, value in found[0]["auc"].items()}
        yield f"{name} interval", _interval(Estimate(**first))
        for view, value in found[0]["within_view"].items():
            yield f"{name} {view}", f"{value:.1f}"
    fused = by_row["rsna rsna third fusion of three"]
    yield "rsna fusion seconds", f"{max(one['training_seconds'] for one in fused):.0f}"
    yield "rsna fusion each", ", ".join(f"{one['auc']['value']:.1f}" for one in fused)
    squid = read_record(Result, RESULTS / "studies/validation-128-rsna_pa-squid_all-seed-0.json")
    final = squid["final"]
    assert final.confounds is not None
    within = final.confounds.covariates["sharpness"].adjusted
    assert within is not None
    yield "rsna squid all interval", _interval(final.metrics["healthy"].auc)
    yield "rsna squid all adjusted", f"{100 * within.value:.1f}"
    yield from _lungs()
    yield "rsna settings", str(len({(one["section"], one["row"]) for one in rows}))
    yield "rsna normal", str(fused[0]["normal"])
    yield "rsna anomalous", str(fused[0]["anomalous"])


def _lungs() -> Named:
    """What it is worth to count within the lungs, on validation images."""
    study = _read("studies/validation-lungs.json")
    for name, one in study["sets"].items():
        for step in ("before", "logarithm", "lungs"):
            yield f"lungs {name} {step}", f"{100 * one[step]['fusion']:.1f}"
        yield f"lungs {name} images", f"{one['normal']} and {one['anomalous']}"
    for name, value in study["squid with uncertainty and lesions, RSNA PA, 100 epochs"].items():
        yield f"lungs squid {name}", f"{100 * value:.1f}"
    lesions = study["synthetic lesions at 64 pixels, RSNA PA and NIH, bf16 on a CPU"]
    for place, aucs in lesions.items():
        for name, value in aucs.items():
            yield f"lesions {place} {name}", f"{100 * value:.1f}"


def _seeds(ours: Sequence[Result]) -> Named:
    """The two groups of seeds of our recipe."""
    selections: tuple[Selection, ...] = ("final", "snapshot_mean")
    for name, seeds in SEEDS.items():
        five = [one for one in ours if one.seed in seeds]
        yield f"seeds {name}", f"{Spread.of(100 * one['final'].auc for one in five):.1f}"
        for selection in selections:
            together = np.mean([one[selection].array for one in five], axis=0)
            value = auc(together, five[0].evaluations.images.labels)
            yield f"seeds {name} together {selection}", f"{100 * value:.1f}"


def _snapshots(ours: Sequence[Result]) -> Named:
    """Single epochs before score distillation, and how the mean of snapshots moves."""
    aucs = [100 * value for one in ours if one.curve for value in one.curve.auc]
    yield "single epochs mean", f"{fmean(aucs):.0f}"
    yield "single epochs from", f"{min(aucs):.0f}"
    yield "single epochs to", f"{max(aucs):.0f}"
    bytes_ = [one.cost.run_bytes for one in ours if one.cost.run_bytes]
    yield "run folder MB", f"{max(bytes_) / 1e6:.0f}"


def _ensembles() -> Named:
    """Several run folders together, and our recipe with the fusion."""
    together = _read("studies/rows-zhanglab-ours-fusion.json")
    for measure in ("auc", "adjusted"):
        yield f"ours and fusion {measure}", f"{Spread(**together[measure]):.1f}"
    pairs = _read("studies/ensembles-zhanglab-ours-2.json")
    for measure, spread in pairs["final"]["ensembles"].items():
        yield f"pairs {measure}", f"{Spread(**spread):.1f}"
    yield "every pair auc", f"{pairs['final']['every']['auc']:.1f}"
    yield "every pair count", str(pairs["final"]["every"]["count"])
    yield "all members auc", f"{pairs['final']['all']['auc']:.1f}"


def _stops() -> Named:
    """Trainings stopped at four epochs."""
    for folders in (1, 2, 5):
        spread = _read(f"studies/ensembles-zhanglab-stops-{folders}.json")["range"]
        yield f"stops {folders}", f"{Spread(spread['mean'], spread['std']):.1f}"
        yield f"stops {folders} each", ", ".join(f"{one:.1f}" for one in spread["each"])
    members, minutes = [], []
    for seed in SEEDS["20 to 24"]:
        stops = _read(f"studies/stops-zhanglab-seed-{seed}.json")
        minutes.append(stops["minutes"])
        for by_epoch in stops["auc of members"]:
            members.append(100 * (max(by_epoch.values()) - min(by_epoch.values())))
    yield "stops member from", f"{min(members):.1f}"
    yield "stops member to", f"{max(members):.1f}"
    yield "stops minutes", f"{fmean(minutes):.0f}"


def _studies() -> Named:
    """Agreement, sharpness and calibration at the site."""
    agreement = _read("studies/agreement-zhanglab-ours.json")
    for selection in ("final", "snapshot_mean", "best_epoch"):
        yield f"agreement {selection}", f"{agreement[selection]['all']:.2f}"
    followed = _read("studies/sharpness-zhanglab.json")["correlation with minus sharpness"]
    for group in ("all", "healthy"):
        values = [one["final"][group] for one in followed.values()]
        yield f"sharpness {group} from", f"{min(values):.2f}"
        yield f"sharpness {group} to", f"{max(values):.2f}"
    site = _read("studies/site-calibration.json")["half of the site's"]
    yield "site false alarms", f"{Spread(**site['false_alarms']):.1f}"
    yield "site found", f"{Spread(**site['found']):.1f}"


def _digits() -> Named:
    """DigitAnatomy, four trainings."""
    queues = _read("studies/digitanatomy-queues.json")
    demo = _read("studies/demo-2026-11-15.json")
    yield "digits demo minutes", f"{demo['train_seconds'] / 60:.0f}"
    false_alarms = 1 - demo["metrics"]["specificity"]["value"]
    yield "digits demo false alarms", _percent(false_alarms)
    trainings = {
        "demo": {"sparse": demo},
        "full": queues["4000 slots, k = 10, smoothed"],
        "2000": queues["recipe"],
        "pixel": queues["pixel-level in-painting"],
    }
    for name, training in trainings.items():
        found = training["sparse"]
        digits, auc = found["digits"][0], found["metrics"]["auc"]
        yield f"digits {name} interval", _interval(Estimate(**auc))
        yield f"digits {name} auc", _percent(auc["value"])
        for group in ("kinds", "kinds_alone"):
            values = [digits[group][kind]["auc"]["value"] for kind in KINDS]
            yield f"digits {name} {group}", ", ".join(map(_percent, values))
        shares = digits["restoration"]
        three = [_percent(shares[cells]) for cells in ("anomalous", "untouched", "blank")]
        yield f"digits {name} restored", ", ".join(three)
        yield f"digits {name} faithfulness", _percent(shares["faithfulness"])
        yield f"digits {name} cells", _percent(max(digits["localisation"].values()))
        if "paper" in training:
            every = training["paper"]["auc"]["value"]
            yield f"digits {name} every cell", f"{100 * every:.2f}"
            yield f"digits {name} seconds", f"{training['train_seconds']:.0f}"


def _speed() -> Named:
    """Training steps and scoring."""
    gpu, cpu = _read("speed/speed-cuda.json"), _read("speed/speed-cpu.json")
    fast = _pick(gpu["step"], compile=True, cuda_graph=True)
    yield "step fast", f"{fast['ms']:.2f}"
    yield "step memory", f"{fast['peak_MiB'] / 1024:.1f}"
    replayed = _pick(gpu["step"], compile=False, cuda_graph=True, precision="bf16")
    yield "step replayed", f"{replayed['ms']:.2f}"
    steps = _read("speed/speed-cuda-steps.json")["step"]
    yield "step authors", f"{_pick(steps, recipe='reference')['ms']:.2f}"
    equality = _read("speed/equality.json")["validation_auc"]
    for form in ("fast", "plain"):
        yield f"equal {form}", f"{Spread.of(100 * o['averaged'] for o in equality[form]):.1f}"
    many = _pick(gpu["score"], variant="compiled, CUDA graph", batch=256)
    yield "score many", f"{round(many['images_per_second'], -2):,.0f}"
    one = _pick(gpu["score"], variant="compiled, CUDA graph", batch=1)
    yield "score one", f"{one['ms']:.2f}"
    files = _read("speed/speed-cuda-files.json")
    scored = _pick(files["files"], work="decoded and scored")
    yield "files share", f"{100 * scored['share']:.0f}"
    yield "files per second", f"{scored['files_per_second']:.0f}"
    for name, variant in (("single", "one"), ("twenty", "a panel of twenty")):
        plain = _pick(files["deployable"], variant=variant, batch=256)
        yield f"score {name}", f"{round(plain['images_per_second'], -2):,.0f}"
    authors = _pick(cpu["step"], recipe="reference")["ms"]
    first = _pick(cpu["score"], variant="authors' order", batch=1)
    for precision in ("float32", "bf16"):
        step = _pick(cpu["step"], recipe="ours", precision=precision)["ms"]
        yield f"cpu step {precision}", f"{authors / step:.2f}"
        eager = _pick(cpu["score"], variant="eager", precision=precision, batch=16)
        gain = eager["images_per_second"] / first["images_per_second"]
        yield f"cpu score {precision}", f"{gain:.2f}"
    folders = _read("speed/speed-cuda-deployable.json")["deployable"]
    names = {"two": "two", "one": "one", "plain": "one, without score distillation"}
    ms = {
        (name, batch): _pick(folders, variant=variant, batch=batch)["ms"]
        for name, variant in names.items()
        for batch in (1, 256)
    }
    for (name, batch), value in ms.items():
        yield f"folder {name} {batch}", f"{value:.1f}" if batch > 1 else f"{value:.2f}"
    yield "folder ratio", f"{ms['two', 256] / ms['one', 256]:.2f}"
    yield "folder ratio plain", f"{ms['two', 256] / ms['plain', 256]:.2f}"


def _beside(name: str) -> Mapping[str, Any]:
    """What a script in this folder defines."""
    return runpy.run_path(str(Path(__file__).with_name(name)))


def _pick(rows: Sequence[Mapping[str, Any]], **wanted: Any) -> Mapping[str, Any]:
    """The first row with these values."""
    return next(row for row in rows if all(row.get(k) == v for k, v in wanted.items()))


def _read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def _interval(estimate: Estimate) -> str:
    value, low, high = (100 * one for one in (estimate.value, estimate.low, estimate.high))
    return f"{value:.1f} ({low:.1f} to {high:.1f})"


def _percent(share: float | None) -> str:
    """100 without decimals, as there is nothing after it."""
    assert share is not None
    return "100" if share == 1 else f"{100 * share:.1f}"
