"""The report of one run."""

from functools import cached_property
from typing import Any

from squid.config import Device
from squid.data.image_set import Splits
from squid.detector import Detector
from squid.errors import RunError, SquidError
from squid.evaluation.digits import DigitMeasures
from squid.evaluation.metrics import Metrics
from squid.report import charts, memories, scored, tables
from squid.report.figures import heatmap_scales
from squid.report.page import Html, details, facts, figure, join, note, page, section, tag
from squid.report.scored import Scored
from squid.report.style import Chart
from squid.run import Run

TILES = ("auc", "sensitivity", "specificity")
"""The measures at the top of the page."""


class Single:
    """Gathers a page; `charts` are the figures it shows."""

    def __init__(self, run: Run, device: Device = "auto", splits: Splits | None = None) -> None:
        self.run, self.given = run, splits
        self.recipe = run.recipe
        self.environment = _environment(run)
        self.detector = Detector.load(run.path, device=device)
        self.calibration = self.detector.calibration
        self.threshold = self.calibration.threshold(self.recipe.false_positive_rate)
        self.title = self.recipe.title or run.name
        self.charts: list[Chart] = []

    def page(self) -> str:
        kept = self.run.metrics
        parts = [self._header(), self._tiles(kept) if kept else evaluate_first(self.run)]
        parts.append(self._origin())
        if kept:
            parts += [self._detection(kept), self._digits(kept), self._images(kept)]
        parts += [self._training(), self._memories()]
        return page(f"{self.title} · SQUID report", *parts)

    @cached_property
    def splits(self) -> Splits | str:
        """The images of the recipe, or why they cannot be shown."""
        try:
            splits = self.given or self.recipe.data.load(self.recipe.method.size)
        except SquidError as error:
            return f"The images could not be read again: {error}"
        before, now = self.environment.get("data"), splits.fingerprint
        if before not in (None, now):
            return f"The images changed since the training (fingerprint {now}, then {before})."
        return splits

    def _show(self, chart: Chart) -> Html:
        self.charts.append(chart)
        return figure(chart)

    # ---------------------------------------------------------------- sections

    def _header(self) -> Html:
        recipe, name = self.recipe, self.run.name
        lead = f"{recipe.method.name} on {recipe.data.name}, seed {recipe.seed} · run {name}"
        return join([tag("h1", self.title), tag("p", lead, class_="lead")])

    def _tiles(self, kept: dict[str, Any]) -> Html:
        metrics = Metrics.model_validate(kept["metrics"])
        tiles = []
        for name in TILES:
            estimate = getattr(metrics, name)
            bounds = f"{metrics.level:.0%}: {estimate.low:.3f} to {estimate.high:.3f}"
            value = tag("b", f"{estimate.value:.3f}")
            lines = tag("span", tables.MEASURE_NAMES[name]), value, tag("span", bounds)
            tiles.append(tag("div", *lines, class_="tile"))
        return tag("div", *tiles, class_="tiles")

    def _origin(self) -> Html:
        recipe, known, calibration = self.recipe, self.environment, self.calibration
        splits = self.splits if isinstance(self.splits, Splits) else None
        counts = f"{calibration.count} training images, {calibration.heldout} {calibration.source}"
        pairs = {
            "Recipe": recipe.title or None,
            "Method": recipe.method.name,
            "Data": recipe.data.name,
            "Image size": f"{recipe.method.size} x {recipe.method.size} pixels",
            "Seed": recipe.seed,
            "Data fingerprint": known.get("data"),
            "Calibrated on": counts,
            "Squid": known.get("version"),
            "Commit": known.get("commit"),
            "PyTorch": known.get("torch"),
            "Python": known.get("python"),
            "Device": known.get("device"),
        }
        made = tables.splits_table(known["splits"], splits) if "splits" in known else Html()
        warnings = [note(text) for text in splits.warnings] if splits else []
        whole = details("The whole recipe", tag("pre", recipe.to_toml()))
        return section("What was trained on what", facts(pairs), made, *warnings, whole)

    def _detection(self, kept: dict[str, Any]) -> Html:
        metrics, found = Metrics.model_validate(kept["metrics"]), Scored.of(kept)
        thresholds = self._thresholds(metrics)
        findings = {} if kept.get("digits") else kept["findings"]  # which has its own tables
        return section(
            "How well it detects",
            tables.metrics_table(metrics),
            tables.threshold_note(metrics, self.calibration),
            tables.findings_table(findings) if findings else Html(),
            self._show(charts.roc_chart(metrics, found, thresholds)),
            self._show(charts.scores_chart(found, thresholds)),
        )

    def _thresholds(self, metrics: Metrics) -> dict[str, float]:
        rate = f"{self.recipe.false_positive_rate:.0%}"
        thresholds = {f"verdict: {rate} of held-out normals": self.threshold}
        if metrics.threshold.kind == "paper" and metrics.threshold.value is not None:
            thresholds["paper: best accuracy"] = metrics.threshold.value
        return thresholds

    def _digits(self, kept: dict[str, Any]) -> Html:
        if not kept.get("digits"):
            return Html()
        measures = [DigitMeasures.model_validate(values) for values in kept["digits"]]
        return section("DigitAnatomy, measured", tables.digit_tables(measures))

    def _images(self, kept: dict[str, Any]) -> Html:
        if isinstance(self.splits, str):
            return section("Images", note(self.splits))
        found, test = Scored.of(kept), self.splits.test
        sheets = scored.choose(found, self.threshold)
        shown = [scored.examples(self.detector, test, found, sheet.places) for sheet in sheets]
        scales = heatmap_scales(example for examples in shown for example in examples)
        parts: list[Html] = []
        for chosen, examples in zip(sheets, shown, strict=True):
            picture = self._show(charts.sheet_chart(chosen, examples, scales))
            names = tables.images_table(found, chosen.places, self.calibration)
            parts += [tag("h3", chosen.title), picture, details("These images", names)]
        return section("Images", *parts)

    def _training(self) -> Html:
        history = self.run.history
        if not history:
            return Html()
        return section("Training", self._show(charts.training_chart(history)))

    def _memories(self) -> Html:
        if isinstance(self.splits, str):
            return Html()
        watched = memories.watch(self.detector, self.splits.train.pixels)
        if not watched:
            return Html()
        return section(
            "Memories",
            self._show(charts.memory_map_chart(watched)),
            self._show(charts.slot_use_chart(watched)),
            tables.memories_table(watched),
        )


def _environment(run: Run) -> dict[str, Any]:
    """A converted run may have none."""
    try:
        return run.environment
    except RunError:
        return {}


def evaluate_first(run: Run) -> Html:
    """What to do where there are no numbers yet."""
    command = tag("code", f"squid evaluate {run.path}")
    return note("Not evaluated yet: ", command, " makes the numbers.")
