"""The report of one run."""

import os
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property

from squid.config import Device
from squid.data.image_set import Splits
from squid.detector import Detector
from squid.errors import RunError, SquidError
from squid.evaluation.default_heatmap import heatmaps_at_chance
from squid.evaluation.evaluate import read_evaluations
from squid.evaluation.percent import rate_percent
from squid.evaluation.record import Evaluation, Evaluations
from squid.nn.lungs import what_counts
from squid.report import examples, figures, memories, tables
from squid.report.cautions import cautions
from squid.report.figures.images import HEATMAP_NAMES, Example, heatmap_scales
from squid.report.overview import cards, choose_groups
from squid.report.page import (
    Html,
    alarm,
    details,
    facts,
    figure,
    join,
    note,
    page,
    section,
    side_by_side,
    tag,
)
from squid.report.style import Chart
from squid.run import Environment, Run


class DamagedRecordWarning(UserWarning):
    """A page is made without a file of its run, because the file is damaged."""


class RunPage:
    """Gathers a page; `charts` are the figures it shows."""

    def __init__(self, run: Run, device: Device = "auto") -> None:
        self.run, self.recipe = run, run.recipe
        self.environment = _environment(run)
        # With torch: reads of memories are recorded by hooks, which other backends do not have.
        self.detector = Detector.load(run, device=device, backend="torch")
        self.calibration = self.detector.calibration
        self.threshold = self.calibration.threshold(self.recipe.false_positive_rate)
        self.title = self.recipe.title or run.name
        self.charts: list[Chart] = []

    def page(self) -> str:
        record = self.record
        parts = [self._header(), *map(alarm, self.cautions)]
        # Sections that need numbers are left out of a run that is not evaluated yet.
        if record:
            parts += [cards(record.final.metrics["healthy"]), self._first_images(record)]
            parts += [self._detection(record), self._images(record), self._digits(record.final)]
        else:
            parts.append(evaluate_first(self.run))
        parts += [self._training(), self._memories(), self._origin()]
        return page(f"{self.title} · SQUID report", *parts)

    @cached_property
    def record(self) -> Evaluations | None:
        return read_evaluations(self.run)

    @cached_property
    def cautions(self) -> list[str]:
        """What makes the page unfit to rely on."""
        return cautions(self.record, self.splits)

    @property
    def has_pictures(self) -> bool:
        return not isinstance(self.splits, str)

    @cached_property
    def splits(self) -> Splits | str:
        """The images of the recipe, or why they cannot be shown."""
        try:
            splits = self.recipe.data.load(self.recipe.method.size)
        except SquidError as error:
            return f"The images could not be read again: {error}"
        before = self.environment.data if self.environment else None
        now = splits.fingerprint
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

    def _first_images(self, record: Evaluations) -> Html:
        """Two images of each kind of answer, with the heatmap that is the method's first choice."""
        if isinstance(self.splits, str):
            return Html()
        groups = choose_groups(record.images, record.final.array, self.threshold)
        chance = heatmaps_at_chance(record.final)
        kind = next((k for k in self.detector.heatmap_kinds if k not in chance), None)
        shown = [
            [examples.plain(one, kind) for one in self._examples(record, group.places)]
            for group in groups
        ]
        scales = heatmap_scales(one for group in shown for one in group)
        parts = []
        for group, images in zip(groups, shown, strict=True):
            heading = tag("h3", group.title)
            if not images:
                parts.append(join([heading, tag("p", group.caption)]))
                continue
            chart = figures.sheet_chart(
                group.name, group.title, group.caption, images, scales, wide=False
            )
            parts.append(join([heading, self._show(chart)]))
        return side_by_side(*parts)

    def _examples(self, record: Evaluations, places: Sequence[int]) -> list[Example]:
        assert isinstance(self.splits, Splits)
        titles = examples.example_titles(record.images, record.final.array)
        return examples.examples(self.detector, self.splits.test, titles, places) if places else []

    def _origin(self) -> Html:
        recipe, known, calibration = self.recipe, self.environment, self.calibration
        splits = self.splits if isinstance(self.splits, Splits) else None
        counts = f"{calibration.count} training images, {calibration.heldout} {calibration.source}"
        pairs: dict[str, object] = {
            "Recipe": recipe.title or None,
            "Method": recipe.method.name,
            "Data": recipe.data.name,
            "Image size": f"{recipe.method.size} x {recipe.method.size} pixels",
            "Counts": what_counts(self.detector.method) or None,
            "Seed": recipe.seed,
            "Calibrated on": counts,
        }
        made = Html()
        if known is not None:
            pairs |= {
                "Data fingerprint": known.data,
                "Squid": known.version,
                "Commit": known.commit,
                "PyTorch": known.torch,
                "Python": known.python,
                "Device": known.device,
            }
            made = tables.splits_table(known.splits, splits)
        warnings = [note(text) for text in splits.warnings] if splits else []
        whole = details("The whole recipe", tag("pre", recipe.to_toml()))
        return section("What was trained on what", facts(pairs), made, *warnings, whole)

    def _detection(self, record: Evaluations) -> Html:
        final, images = record.final, record.images
        thresholds = self._thresholds(final)
        findings = {} if final.digits else final.findings  # DigitAnatomy has tables of its own
        return section(
            "How well it detects",
            side_by_side(
                self._show(figures.roc_chart(final, images, thresholds)),
                self._show(figures.scores_chart(final, images, thresholds)),
            ),
            side_by_side(
                tables.metrics_table(final.metrics),
                join(
                    [
                        tables.threshold_note(final.metrics, self.calibration),
                        tables.confounds_section(final) if final.confounds else Html(),
                    ]
                ),
            ),
            tables.findings_table(findings) if findings else Html(),
            tables.rsna_class_table(final.rsna_class) if final.rsna_class else Html(),
            tables.localisation_table(final.localisation) if final.localisation else Html(),
        )

    def _thresholds(self, evaluation: Evaluation) -> dict[str, float]:
        rate = rate_percent(self.recipe.false_positive_rate)
        best = evaluation.metrics["best_accuracy"].threshold.value
        assert best is not None
        return {f"{rate} of held-out healthy images": self.threshold, "best accuracy": best}

    def _digits(self, evaluation: Evaluation) -> Html:
        if not evaluation.digits:
            return Html()
        return section("DigitAnatomy, measured", tables.digit_tables(evaluation.digits))

    def _images(self, record: Evaluations) -> Html:
        if isinstance(self.splits, str):
            return Html()
        scores, chance = record.final.array, heatmaps_at_chance(record.final)
        sheets = examples.choose(record.images, scores, self.threshold)
        whole = [self._examples(record, sheet.places) for sheet in sheets]
        shown = [[examples.without(one, chance) for one in sheet] for sheet in whole]
        # One scale for all sheets, so that a colour means the same in each of them.
        scales = heatmap_scales(one for sheet in shown for one in sheet)
        parts: list[Html] = []
        for sheet, images in zip(sheets, shown, strict=True):
            chart = figures.sheet_chart(sheet.name, sheet.title, sheet.caption, images, scales)
            names = tables.images_table(record.images, scores, sheet.places, self.calibration)
            parts += [tag("h3", sheet.title), self._show(chart), details("These images", names)]
        return section("Images", *parts, *self._at_chance(whole[0], chance))

    def _at_chance(self, images: list[Example], chance: Mapping[str, str]) -> list[Html]:
        """Heatmaps that find nothing, folded away with the reason."""
        parts = []
        for kind, reason in chance.items():
            name = HEATMAP_NAMES[kind]
            shown = [examples.plain(one, kind) for one in images]
            chart = figures.sheet_chart(
                f"chance-{kind}",
                f"{name}, at chance",
                f"The most anomalous images. Do not read this heatmap: {reason}.",
                shown,
                heatmap_scales(shown),
            )
            title = f"Not shown above: {name}, which points nowhere in particular ({reason})"
            parts.append(details(title, self._show(chart)))
        return parts

    def _training(self) -> Html:
        history = self.run.history
        if not history:
            return Html()
        return section("Training", self._show(figures.training_chart(history)))

    def _memories(self) -> Html:
        if isinstance(self.splits, str):
            return Html()
        # Empty for a method without memories.
        reads = memories.memory_reads(self.detector, self.splits.train.pixels)
        if not reads:
            return Html()
        return section(
            "Memories",
            self._show(figures.memory_map_chart(reads)),
            self._show(figures.slot_use_chart(reads)),
            tables.memories_table(reads),
        )


def _environment(run: Run) -> Environment | None:
    """None for a run converted from the authors' checkpoints, and with a warning where it is
    damaged."""
    try:
        return run.environment
    except RunError as error:
        if os.path.lexists(run.path / "environment.json"):
            warnings.warn(str(error), DamagedRecordWarning, stacklevel=2)
        return None


def evaluate_first(run: Run) -> Html:
    """What to do where there are no numbers yet."""
    command = tag("code", f"squid evaluate {run.path}")
    return note("Not evaluated yet: ", command, " makes the numbers.")
