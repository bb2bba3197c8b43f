"""Each figure of a page with its words: what it shows and how to read it."""

from collections.abc import Mapping, Sequence
from functools import partial

from squid.evaluation.metrics import Metrics
from squid.report import memories
from squid.report.figures import Curve, Example, roc, score_histogram, sheet
from squid.report.scored import Chosen, Scored
from squid.report.style import Chart
from squid.report.training import History, compared_training, training_curves

Thresholds = Mapping[str, float]


def roc_chart(metrics: Metrics, scored: Scored, thresholds: Thresholds) -> Chart:
    curve = Curve(f"AUC {metrics.auc.value:.3f}", scored.scores, scored.labels)
    return Chart(
        name="roc",
        alt=f"ROC curve with an AUC of {metrics.auc.value:.3f}",
        caption="ROC: each point of the line is a threshold. The nearer to the upper left corner, "
        "the better; the dotted line is guessing. The mark is where the threshold puts this "
        "detector.",
        draw=partial(roc, [curve], thresholds),
    )


def scores_chart(scored: Scored, thresholds: Thresholds) -> Chart:
    return Chart(
        name="scores",
        alt="Histograms of the scores of normal and of anomalous test images",
        caption="Scores of both classes of test images, each as a share of its class. What lies "
        "right of the dashed line is called anomalous; the less the two overlap, the better.",
        draw=partial(score_histogram, scored.scores, scored.labels, thresholds),
    )


def sheet_chart(
    chosen: Chosen, examples: Sequence[Example], scales: Mapping[str, tuple[float, float]]
) -> Chart:
    words = [chosen.caption]
    if scales:
        words.append("The brighter, the more anomalous, on one scale for all sheets.")
    if any(example.cells is not None and example.cells.any() for example in examples):
        words.append("Outlined: the cells that are known to be anomalous.")
    return Chart(
        name=chosen.name,
        alt=f"{chosen.title}: {len(examples)} test images and what the method made of them",
        caption=" ".join(words),
        draw=partial(sheet, examples, scales=scales),
        wide=True,
    )


def training_chart(history: History) -> Chart:
    seconds = sum(float(row["seconds"] or 0) for row in history)
    time = f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
    return Chart(
        name="training",
        alt="Losses of each objective and learning rates by epoch",
        caption=f"Weighted losses, a mean over each epoch, on log scales; {len(history)} epochs in "
        f"{time}. Losses of two adversaries balance rather than fall.",
        draw=partial(training_curves, history),
        wide=True,
    )


def memory_map_chart(watched: Sequence[memories.Watched]) -> Chart:
    planes = [memories.embed(memory) for memory in watched]
    return Chart(
        name="memory-map",
        alt="t-SNE of memory slots among the features of training images",
        caption="t-SNE of what training images ask of each memory (grey) and of its slots, all "
        "positions together. Slots of a queue are copies of features and should lie among them; "
        "slots of a matrix are learned and may lie apart. Distances between far groups mean "
        "nothing.",
        draw=partial(memories.memory_map, planes),
        wide=True,
    )


def slot_use_chart(watched: Sequence[memories.Watched]) -> Chart:
    return Chart(
        name="slot-use",
        alt="How often each slot of each region is read",
        caption="How often each slot is among those read by training images. A row per region, a "
        "position of the image in a space-aware memory; blank slots were never read. A few bright "
        "slots and no others mean that the memory nearly always answers the same.",
        draw=partial(memories.slot_use, watched),
        wide=True,
    )


def compared_roc_chart(curves: Sequence[Curve]) -> Chart:
    return Chart(
        name="comparison-roc",
        alt=f"ROC curves of {len(curves)} runs",
        caption="ROC: each point of a line is a threshold; the nearer to the upper left corner, "
        "the better. Seeds of one recipe share a colour.",
        draw=partial(roc, curves),
    )


def compared_training_chart(histories: Mapping[str, History], colours: Mapping[str, str]) -> Chart:
    return Chart(
        name="comparison-training",
        alt="Losses of each run by epoch",
        caption="Weighted losses, a mean over each epoch, on log scales; a line per run that has "
        "the loss, in the colours of the ROC. Losses of different methods do not compare.",
        draw=partial(compared_training, histories, colours),
        wide=True,
    )
