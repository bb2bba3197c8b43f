"""The pieces of a page: HTML, choice of images, figures, memories."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from squid.calibration import UNCALIBRATED
from squid.data.folder import Folder
from squid.detector import Detector
from squid.evaluation.record import TestImages
from squid.methods import build
from squid.methods.squid.config import SquidConfig
from squid.nn.memory import MemoryMatrix, MemoryQueue, Shrinkage
from squid.recipe import Recipe
from squid.report.examples import SHOWN, choose, one_of_each, shorten
from squid.report.figures.curves import Curve, roc, score_histogram
from squid.report.figures.images import Example, sheet
from squid.report.figures.training import loss_columns, training_curves
from squid.report.memories import (
    MemoryReads,
    effective_slots,
    embed,
    memory_map,
    memory_reads,
    slot_distance,
)
from squid.report.page import Html, table, tag
from squid.report.style import Chart, canvas

LABELS = np.array([0, 0, 0, 0, 1, 1, 1, 1])
SCORES = np.array([0.1, 0.2, 0.3, 0.9, 0.15, 0.6, 0.8, 0.95])
HISTORY = [
    {"stage": "train", "epoch": "1", "rate.critic": "0.1", "critic.gap": "-2.0", "seconds": "1.0"},
    {"stage": "train", "epoch": "2", "rate.critic": "0.05", "critic.gap": "", "seconds": "1.0"},
]


def test_html_escapes_once() -> None:
    inner = tag("b", "a < b", title='"quoted"')
    assert inner == '<b title="&quot;quoted&quot;">a &lt; b</b>'
    assert tag("p", inner, " & ", class_="x") == f'<p class="x">{inner} &amp; </p>'
    assert isinstance(inner, Html)


def test_columns_without_digits_are_words() -> None:
    rows = [("a", "by labels", "92.1 ± 0.7", "-"), ("b", "", "closed form", "vgg16")]
    made = table(("Row", "Selection", "AUC", "Backbone"), rows, caption="")
    assert made.count('<th scope="col" class="word">') == 2  # of the row's name and the selection
    assert made.count('<td class="word">') == 2
    assert '<td class="word">by labels</td>' in made


def test_extremes_and_mistakes_are_chosen() -> None:
    names = tuple(str(i) for i in range(8))
    images = TestImages(name=names, label=tuple(LABELS), finding=("",) * 8)
    chosen = {sheet.name: sheet.places for sheet in choose(images, SCORES, 0.5)}
    assert chosen["most-anomalous"] == [7, 3, 6, 5, 2, 1]
    assert chosen["most-normal"] == [0, 4, 1, 2, 5, 6]
    assert chosen["missed"] == [4]
    assert chosen["false-alarms"] == [3]
    perfect = choose(images, LABELS.astype(float), 0.5)
    assert [sheet.name for sheet in perfect] == ["most-anomalous", "most-normal"]


def test_every_finding_is_among_the_missed() -> None:
    findings = ["effusion"] * 10 + ["nodule|effusion", "hernia"]
    chosen = one_of_each(list(range(12)), findings)
    assert chosen == [0, 1, 2, 3, 10, 11]
    assert len(chosen) == SHOWN
    many = [f"finding {i}" for i in range(30)]
    assert one_of_each(list(range(30)), many) == list(range(12))


def test_names_are_shortened_in_the_middle() -> None:
    assert shorten("patient00012.png") == "patient00012.png"
    short = shorten("a-very-long-folder/patient00012.png")
    assert len(short) <= 20
    assert short.startswith("a-very")
    assert short.endswith("00012.png")
    assert shorten("a\nb") == "a?b"


def test_operating_point_lies_where_the_threshold_puts_it() -> None:
    (axes,) = roc([Curve("run", SCORES, LABELS)], {"threshold": 0.5}).axes
    point = next(line for line in axes.lines if line.get_label() == "threshold")
    assert point.get_xydata().tolist() == [[0.25, 0.75]]


def test_histograms_are_shares_of_their_class() -> None:
    scores, labels = np.append(SCORES, 0.4), np.append(LABELS, 0)
    (axes,) = score_histogram(scores, labels, {"threshold": 0.5}).axes
    for container in axes.containers:
        assert sum(bar.get_height() for bar in container) == pytest.approx(1.0)


def test_anomalous_cells_are_outlined_in_place() -> None:
    cells = np.zeros(9, dtype=np.int64)
    cells[5] = 2  # second row, third column
    image = np.zeros((12, 12))
    examples = [Example(image, "$plain"), Example(image, "marked", cells=cells)]
    (axes,) = sheet(examples).axes
    (frame,) = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    gap = 1
    assert frame.get_xy() == (12 + gap + 8 - 0.5, 4 - 0.5)
    assert (frame.get_width(), frame.get_height()) == (4, 4)


def test_sheet_has_a_row_per_kind_of_picture_and_wraps() -> None:
    image = np.full((16, 16), 0.5)
    plain = sheet([Example(image, "")])
    full = Example(image, "", reconstruction=image, heatmaps={"residual": image, "memory": image})
    assert [text.get_text() for text in plain.axes[0].texts] == ["", "input"]
    names = [text.get_text() for text in sheet([full]).axes[0].texts]
    assert names == ["", "input", "reconstruction", "residual", "memory distance"]
    assert len(sheet([full] * 7, columns=3).axes) == 3


def test_losses_below_zero_are_plotted() -> None:
    assert loss_columns(HISTORY) == ["critic.gap"]
    losses, rates = training_curves(HISTORY).axes
    assert losses.get_yscale() == "symlog"
    np.testing.assert_array_equal(losses.lines[0].get_xydata(), [[1.0, -2.0], [2.0, np.nan]])
    assert rates.get_yscale() == "log"


def test_no_line_bridges_the_epochs_of_another_stage() -> None:
    values = ["2.0", "1.0", "", "2.0"]
    history = [{"rate.critic": "0.1", "critic.gap": value} for value in values]
    losses, _ = training_curves(history).axes
    np.testing.assert_array_equal(losses.lines[0].get_ydata(), [2.0, 1.0, np.nan, 2.0])
    assert losses.get_yscale() == "log"


def test_a_chart_has_a_light_and_a_dark_face(tmp_path: Path) -> None:
    made = []

    def plot():
        made.append(figure := canvas(1, 1))
        return figure

    chart = Chart("empty", "nothing", "Nothing to see.", plot)
    assert chart.light != chart.dark
    light, dark = (to_rgba(figure.get_facecolor()) for figure in made)
    assert min(light[:3]) > 0.9
    assert max(dark[:3]) < 0.2
    chart.save(tmp_path)
    again = (tmp_path / "empty.svg").read_bytes()
    chart.save(tmp_path)
    assert (tmp_path / "empty.svg").read_bytes() == again


def test_memories_of_members_have_names_of_their_own() -> None:
    config = SquidConfig(size=32, width=8, depth=3, slots=8, matrix_slots=8, heads=2, members=2)
    recipe = Recipe(data=Folder(root=Path()), method=config)
    detector = Detector(build(config), UNCALIBRATED, recipe, device="cpu")
    pixels = torch.randint(0, 256, (4, 1, 32, 32), dtype=torch.uint8)
    names = [memory.name for memory in memory_reads(detector, pixels)]
    assert names[0] == "In-painting block, member 1"
    assert names[-1] == "Student memory 1, member 2"
    assert len(set(names)) == len(names) == 4


def test_memory_reads_are_counted_and_change_nothing(trained: Path, recipe: Recipe) -> None:
    detector = Detector.load(trained, device="cpu")
    before = {name: value.clone() for name, value in detector.method.state_dict().items()}
    reads = memory_reads(detector, recipe.data.load(48).train.pixels)
    config = detector.recipe.method
    assert [memory.queue for memory in reads] == [True, False, False]
    for memory in reads:
        assert memory.use.shape == (9, 20)
        np.testing.assert_allclose(memory.use.sum(1), config.k)  # each read takes the k nearest
        assert memory.features.shape[1] == memory.slots.shape[1]
    after = detector.method.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    queue = next(m for m in detector.method.modules() if isinstance(m, MemoryQueue))
    assert not queue._forward_pre_hooks
    first, second = embed(reads[0]), embed(reads[0])
    np.testing.assert_array_equal(first.slots, second.slots)
    assert first.slots.shape == (180, 2)


def reads_of(memory: MemoryQueue | MemoryMatrix, tokens: torch.Tensor) -> MemoryReads:
    features, slots = tokens.flatten(0, 1), memory.slots.detach().flatten(0, 1)
    return MemoryReads(
        name="Memory",
        queue=isinstance(memory, MemoryQueue),
        features=features.numpy(),
        slots=slots.numpy(),
        use=np.ones((memory.slots.shape[0], memory.slots.shape[1])),
    )


def test_slots_of_a_queue_are_features_and_random_ones_lie_apart() -> None:
    """The distance is that of the features' own space, and the figure shows it."""
    tokens = torch.randn(40, 4, 16, generator=torch.Generator().manual_seed(0))
    queue = MemoryQueue(4, 20, 16, Shrinkage(k=5))
    assert slot_distance(reads_of(queue, tokens)) > 0.1, "its first slots are random"
    queue.keep(tokens)
    queue.commit()
    full = reads_of(queue, tokens)
    assert slot_distance(full) < 1e-5
    matrix = MemoryMatrix(4, 20, 16, Shrinkage(k=5))
    with torch.no_grad():
        matrix.slots.copy_(30 * torch.randn(4, 20, 16, generator=torch.Generator().manual_seed(1)))
    apart = reads_of(matrix, tokens)
    assert slot_distance(apart) > 5
    figure = memory_map([embed(full), embed(apart)])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[0] == "Memory: queue, distance 0.00"
    assert titles[1] == f"Memory: matrix, distance {slot_distance(apart):.2f}"
    # Other features of the same kind: as far as features are from each other.
    same = replace(apart, slots=np.random.default_rng(2).normal(size=(80, 16)).astype(np.float32))
    assert slot_distance(same) == pytest.approx(1.0, abs=0.1)


def test_effective_slots_are_those_equally_read() -> None:
    use = np.zeros((2, 8))
    use[:, :4] = 0.25
    assert effective_slots(use) == pytest.approx(4.0)
    use[0] = [1.0, 0, 0, 0, 0, 0, 0, 0]
    assert effective_slots(use) == pytest.approx(2.5)


def test_a_figure_replaces_a_planted_link_and_does_not_follow_it(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "roc.png").symlink_to(victim)
    (tmp_path / "figures" / "roc.svg").hardlink_to(victim)
    Chart("roc", "", "", lambda: canvas(2, 2)).save(tmp_path / "figures")
    assert victim.read_text() == "precious"
    assert (tmp_path / "figures" / "roc.png").read_bytes().startswith(b"\x89PNG")
