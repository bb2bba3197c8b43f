"""The figures of a report, each as a `Chart` with a caption that says how to read it."""

from collections.abc import Mapping, Sequence
from functools import partial

from squid.evaluation.percent import percent
from squid.evaluation.record import Evaluation, TestImages
from squid.report import memories
from squid.report.figures.curves import Curve, roc, score_histogram
from squid.report.figures.images import Example, sheet
from squid.report.figures.training import History, compared_training, training_curves
from squid.report.style import Chart

Thresholds = Mapping[str, float]


def roc_chart(evaluation: Evaluation, images: TestImages, thresholds: Thresholds) -> Chart:
    curve = Curve(f"AUC {percent(evaluation.auc)} %", evaluation.array, images.labels)
    return Chart(
        name="roc",
        alt=f"ROC curve with an AUC of {percent(evaluation.auc)} %",
        caption="ROC: each point of the line is a threshold. The nearer to the upper left corner, "
        "the better; the dotted line is guessing. Each mark is a threshold of this "
        "detector.",
        plot=partial(roc, [curve], thresholds),
    )


def scores_chart(evaluation: Evaluation, images: TestImages, thresholds: Thresholds) -> Chart:
    return Chart(
        name="scores",
        alt="Histograms of the scores of normal and of anomalous test images",
        caption="Scores of both classes of test images, each as a share of its class. What lies "
        "right of the dashed line is flagged; the less the two overlap, the better.",
        plot=partial(score_histogram, evaluation.array, images.labels, thresholds),
    )


def sheet_chart(
    name: str,
    title: str,
    caption: str,
    examples: Sequence[Example],
    scales: Mapping[str, tuple[float, float]],
    *,
    wide: bool = True,
) -> Chart:
    words = [caption]
    if scales:
        words.append("The brighter, the more anomalous, on one scale for all sheets.")
    if any(example.cells is not None and example.cells.any() for example in examples):
        words.append("Outlined: the cells that are known to be anomalous.")
    return Chart(
        name=name,
        alt=f"{title}: {len(examples)} test images with reconstructions and heatmaps",
        caption=" ".join(words),
        plot=partial(sheet, examples, scales=scales),
        wide=wide,
    )


def training_chart(history: History) -> Chart:
    seconds = sum(float(row["seconds"] or 0) for row in history)
    time = f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
    return Chart(
        name="training",
        alt="Losses of each objective and learning rates by epoch",
        caption=f"Weighted losses, a mean over each epoch, on log scales; {len(history)} epochs in "
        f"{time}. Losses of two adversaries balance rather than fall.",
        plot=partial(training_curves, history),
        wide=True,
    )


def memory_map_chart(reads: Sequence[memories.MemoryReads]) -> Chart:
    planes = [memories.embed(memory) for memory in reads]
    return Chart(
        name="memory-map",
        alt="t-SNE of memory slots among the features of training images",
        caption="t-SNE of the features with which training images read each memory (grey) and of "
        "its slots, all positions together. Slots of a queue are copies of features and should lie "
        "among them; slots of a matrix are learned and may lie apart. Distances between far "
        "groups mean nothing. In the titles: the mean distance of a slot to its nearest feature, "
        "in units of that of a feature to its nearest other one, in the space of the features: 0 "
        "for copies, about 1 for slots as near as features are to each other.",
        plot=partial(memories.memory_map, planes),
        wide=True,
    )


def slot_use_chart(reads: Sequence[memories.MemoryReads]) -> Chart:
    return Chart(
        name="slot-use",
        alt="How often each slot of each region is read",
        caption="How often each slot is among those read by training images. A row per region, a "
        "position of the image in a space-aware memory; blank slots were never read. A few bright "
        "slots and no others mean that nearly all reads return the same.",
        plot=partial(memories.slot_use, reads),
        wide=True,
    )


def compared_roc_chart(curves: Sequence[Curve]) -> Chart:
    return Chart(
        name="comparison-roc",
        alt=f"ROC curves of {len(curves)} runs",
        caption="ROC: each point of a line is a threshold; the nearer to the upper left corner, "
        "the better. Seeds of one recipe share a colour.",
        plot=partial(roc, curves),
    )


def compared_training_chart(histories: Mapping[str, History], colours: Mapping[str, str]) -> Chart:
    return Chart(
        name="comparison-training",
        alt="Losses of each run by epoch",
        caption="Weighted losses, a mean over each epoch, on log scales; a line per run that has "
        "the loss, in the colours of the ROC. Losses of different methods do not compare.",
        plot=partial(compared_training, histories, colours),
        wide=True,
    )
