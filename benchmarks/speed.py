"""How fast SQUID trains and scores here: one table from one run, with the machine's floors.

    python benchmarks/speed.py [--device cuda] [--sections step,score,...] [--width 32]

Times are medians over repeats after warm-up; numbers to keep are those of the default width. An
iteration is the mean over a pair of them: two updates of the discriminator and one of the
generator. Floors: counted floating-point operations over the measured rate of a large matrix
product, and counted bytes of weights and optimiser state over the measured copy bandwidth.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

from squid.calibration import UNCALIBRATED
from squid.config import Device, Precision
from squid.data.decode import cores, stream
from squid.data.folder import Folder
from squid.data.image import read_resized
from squid.data.store import Augment, ImageStore
from squid.detector import Detector
from squid.inference.batches import BATCH_SIZE
from squid.inference.onnx import OnnxBackend, export_onnx
from squid.inference.torch import Replay, capture
from squid.methods import build
from squid.methods.base import Stage
from squid.methods.squid import Squid
from squid.methods.squid.config import SquidConfig
from squid.methods.squid.losses import StudentPass
from squid.nn.memory import MemoryQueue, Shrinkage
from squid.places import data_folder
from squid.recipe import Recipe
from squid.run import commit
from squid.train.engine import Engine
from squid.train.sampler import Sampler
from squid.train.step import Step, StepForm, make_step

Row = dict[str, Any]
EAGER = StepForm(compile=False, cuda_graph=False)
GRAPH = StepForm(compile=False, cuda_graph=True)
COMPILED = StepForm(compile=True, cuda_graph=False)
BOTH = StepForm(compile=True, cuda_graph=True)
IMAGES = data_folder() / "zhanglab_originals"
RESULTS = Path(__file__).parent / "results" / "speed"
ROUNDS = 3
REFERENCE = {
    "conv_bias": True,
    "forwards": "separate",
    "queue_update": "generator",
    "topk": "authors",
}
"""The authors' order of work: two generator forwards, teacher always on."""
DEPLOYABLE: dict[str, Row] = {
    "one, without score distillation": {},
    "one": {"target_updates": 1},
    "two": {"target_updates": 1, "members": 2},
}
"""The cost of a score depends on whether there are target updates, not on their number."""


def seconds(call: Callable[[], object], device: torch.device, repeats: int = 20) -> float:
    """Median wall time of one call, the device waited for."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        _wait(device)
        began = time.perf_counter()
        call()
        _wait(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _peak(device: torch.device) -> float | None:
    return torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else None


class Trainer:
    """A stage of SQUID ready to be stepped on random images."""

    def __init__(
        self,
        config: SquidConfig,
        form: StepForm,
        precision: Precision,
        device: Device,
        *,
        nchw: bool = False,
    ) -> None:
        self.engine = Engine(device, precision=precision)
        if self.engine.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        torch.manual_seed(0)
        self.method = Squid(config).to(self.engine.device).train()
        if not nchw:
            self.method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        pixels = torch.randint(0, 256, (256, 1, config.size, config.size), dtype=torch.uint8)
        store = ImageStore(pixels, self.engine.device)
        self.stage: Stage = self.method.stages()[0]
        self.step: Step = make_step(form, self.method, self.stage, store, self.engine)
        self.sampler = Sampler(
            self.method, Augment(), seed=0, stage=0, images=256, device=self.engine.device
        )
        self.count = 0

    def pair(self, n: int = 1) -> None:
        """`n` pairs of iterations."""
        for _ in range(2 * n):
            step = self.count % (256 // self.stage.batch_size)
            draws = self.sampler.draw(self.count, step, self.stage.batch_size)
            self.step(draws, tuple(self.count % o.every == 0 for o in self.stage.objectives))
            self.count += 1


def iteration(
    config: SquidConfig, form: StepForm, precision: Precision, device: Device, *, nchw: bool = False
) -> Row:
    """Milliseconds of one iteration, with the peak memory."""
    trainer = Trainer(config, form, precision, device, nchw=nchw)
    began = time.perf_counter()
    trainer.pair(4 if form.cuda_graph else 2)  # the steps before the capture, and the capture
    _wait(trainer.engine.device)
    start_up = time.perf_counter() - began
    cuda = trainer.engine.device.type == "cuda"
    pairs = 10 if form.cuda_graph else 2 if cuda else 1
    per_pair = seconds(lambda: trainer.pair(pairs), trainer.engine.device, 5 if cuda else 3) / pairs
    return {
        **form._asdict(),
        "precision": precision,
        "ms": 500 * per_pair,
        "images_per_second": 2 * trainer.stage.batch_size / per_pair,
        "peak_MiB": _peak(trainer.engine.device),
        "start_up_s": start_up,
    }


def steps(device: Device, width: int) -> Iterator[Row]:
    """Each form of the step, ours and in the authors' order of work."""
    forms: list[tuple[StepForm, Precision]] = [(EAGER, "float32"), (EAGER, "bf16")]
    if device == "cuda":
        forms = [
            (BOTH, "bf16"),
            (GRAPH, "bf16"),
            (GRAPH, "float32"),
            *reversed(forms),
            (COMPILED, "bf16"),
        ]
    for form, precision in forms:
        yield {"recipe": "ours", **iteration(SquidConfig(width=width), form, precision, device)}
    form, precision = forms[0]
    reference = SquidConfig(width=width, **REFERENCE)
    plain = device == "cpu"
    yield {"recipe": "reference", **iteration(reference, form, precision, device, nchw=plain)}


def scoring(device: Device, width: int) -> list[Row]:
    """Images scored per second from memory, by batch and variant."""
    where = torch.device(device)
    method = Squid(SquidConfig(width=width)).to(where).eval()
    method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    rows = []
    if device == "cpu":
        rows = [_scored("authors' order", "float32", 1, authors_order(width))]
    with TemporaryDirectory() as folder:
        for batch in (1, 16, 256) if device == "cuda" else (1, 16):
            images = torch.rand(batch, 1, 128, 128, device=where)
            rows += _variants(method, images, Path(folder) / "model.onnx")
    for row in rows:
        row["gain"] = row["images_per_second"] / rows[0]["images_per_second"]
    return rows


def deployable(device: Device, width: int) -> Iterator[Row]:
    """Time and weights of the steadier scores against those of one network; not compiled."""
    where = torch.device(device)
    precision: Precision = "bf16" if device == "cuda" else "float32"
    alone: dict[int, float] = {}
    for name, change in DEPLOYABLE.items():
        method = build(SquidConfig.model_validate({"width": width, **change})).to(where).eval()
        method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        state = method.state_dict().items()
        needed = [value for key, value in state if not key.startswith(method.training_only)]
        megabytes = sum(value.nbytes for value in needed) / 1e6
        for batch in (1, 256) if device == "cuda" else (1, 16):
            images = torch.rand(batch, 1, 128, 128, device=where)
            half = torch.autocast(device, torch.bfloat16, enabled=precision == "bf16")
            with torch.no_grad(), half:
                score = Replay(method.score, images) if device == "cuda" else method.score
                row = _scored(name, precision, batch, partial(score, images), device)
            ratio = row["ms"] / alone.setdefault(batch, row["ms"])
            yield {**row, "ratio": ratio, "weights_MB": megabytes}


def authors_order(width: int) -> Callable[[], object]:
    """One image at a time, NCHW, with the teacher's pass and an autograd graph."""
    method = Squid(SquidConfig(width=width, conv_bias=True)).eval()
    images = torch.rand(1, 1, 128, 128)

    def score() -> torch.Tensor:
        bottleneck, skips = method._encode(images)
        reconstruction, features = method.student(method._inpaint(bottleneck), skips)
        method._teacher_pass(StudentPass(reconstruction, features, None, bottleneck, skips))
        logits: torch.Tensor = method.discriminator(reconstruction, "image")
        return logits

    return score


def _variants(method: Squid, images: torch.Tensor, onnx: Path) -> list[Row]:
    """The ways to score one batch of images."""
    batch, kind = len(images), images.device.type
    rows = []
    variants: list[tuple[str, str, Callable[[torch.Tensor], object]]] = []
    variants += [("eager", "float32", method.score), ("eager", "bf16", method.score)]
    if kind == "cuda":
        compiled = torch.compile(method.score, dynamic=False)
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            replayed = Replay(compiled, images)
        variants += [("compiled", "bf16", compiled), ("compiled, CUDA graph", "bf16", replayed)]
    else:
        if not onnx.exists():
            export_onnx(method, onnx, size=128)
        backend = OnnxBackend(onnx)
        variants += [("ONNX Runtime", "float32", lambda batch: backend.run(batch, "score"))]
    for name, precision, score in variants:
        half = torch.autocast(kind, torch.bfloat16, enabled=precision == "bf16")
        with torch.no_grad(), half:
            rows.append(_scored(name, precision, batch, partial(score, images), kind))
    return rows


def _scored(
    name: str, precision: str, batch: int, call: Callable[[], object], device: str = "cpu"
) -> Row:
    took = seconds(call, torch.device(device), 20 if device == "cuda" else 7)
    return {
        "variant": name,
        "precision": precision,
        "batch": batch,
        "ms": 1000 * took,
        "images_per_second": batch / took,
    }


def scaling(device: Device, width: int) -> Iterator[Row]:
    """Cost against image size at 64-pixel patches, slots, and grid; not compiled, which would take
    longer than all of it."""
    sizes = (64, 128, 256, 512) if device == "cuda" else (64, 128)
    slots = (50, 100, 200, 500, 1000, 2000) if device == "cuda" else (50, 200)
    form = GRAPH if device == "cuda" else EAGER
    precision: Precision = "bf16" if device == "cuda" else "float32"
    width = width if device == "cuda" else min(width, 8)
    variants: list[tuple[str, int, dict[str, Any]]] = []
    variants += [
        ("size", s, {"size": s, "grid": s // 64, "decoder_memory": "patch"}) for s in sizes
    ]
    variants += [("slots", n, {"slots": n, "matrix_slots": n}) for n in slots]
    variants += [("grid", g, {"grid": g, "decoder_memory": "patch"}) for g in (1, 2, 4)]
    for what, value, change in variants:
        config = SquidConfig(width=width, **change)
        yield {"against": what, "value": value, **iteration(config, form, precision, device)}


def memory(device: Device, width: int) -> list[Row]:
    """A lookup by position against one shared memory of the same total size, and the update of the
    queue, by its length; the same for every width."""
    rows = []
    where = torch.device(device)
    shrink = Shrinkage(kind="gumbel", of="softmax", k=5, topk="paper", threshold=0.0)
    for slots in (200, 1000, 5000):
        features = torch.rand(16, 4, 2048, device=where)
        for positions, n in ((4, slots), (1, 4 * slots)):
            queue = MemoryQueue(positions, n, 2048, shrink).to(where).train()
            calls: list[Callable[[], object]] = [partial(queue, features), queue.commit]
            with torch.no_grad():
                read, write = (
                    seconds(capture(call)[0].replay if device == "cuda" else call, where)
                    for call in calls
                )
            rows.append(
                {
                    "slots_per_position": slots,
                    "positions": positions,
                    "read_us": 1e6 * read,
                    "update_us": 1e6 * write,
                }
            )
    return rows


def files(device: Device, width: int) -> list[Row]:
    """JPEG files from disk: decoding alone, on all cores, against scoring the same files.

    Medians over rounds, because the speed of the cores itself changes with time.
    """
    originals = sorted(IMAGES.rglob("*.jpeg"))
    if not originals:
        return [{"skipped": f"no .jpeg file under {IMAGES}"}]
    cuda = device == "cuda"
    paths = (originals * 200)[: 6144 if cuda else 128]
    detector = _untrained(device, width)
    detector.score(paths[:1])
    # A GPU captures the graph of full batches in the first long list.
    detector.score(paths if cuda else paths[: BATCH_SIZE[device]])
    with ProcessPoolExecutor(cores(), get_context("spawn")) as pool:
        list(pool.map(_decode, paths[: 4 * cores()], chunksize=1))  # starts the processes
        works: dict[str, Callable[[], object]] = {
            "decoded by processes": lambda: list(pool.map(_decode, paths, chunksize=8)),
            "decoded ahead": lambda: list(stream(paths, 128, 256, for_gpu=cuda)),
            "decoded and scored": lambda: detector.score(paths),
        }
        rounds = [[rate(work, len(paths)) for work in works.values()] for _ in range(ROUNDS)]
    return [
        {
            "work": work,
            "files_per_second": statistics.median(speeds),
            "share": statistics.median(
                s / alone for s, (alone, *_) in zip(speeds, rounds, strict=True)
            ),
            "rounds": [round(speed) for speed in speeds],
        }
        for work, speeds in zip(works, zip(*rounds, strict=True), strict=True)
    ]


def _decode(path: Path) -> None:
    torch.set_num_threads(1)
    read_resized(path, 128)


def _untrained(device: Device, width: int) -> Detector:
    precision: Precision = "bf16" if device == "cuda" else "float32"
    config = SquidConfig(width=width)
    recipe = Recipe(data=Folder(root=Path()), method=config)
    return Detector(Squid(config), UNCALIBRATED, recipe, device=device, precision=precision)


def rate(call: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    call()
    return count / (time.perf_counter() - began)


def floors(device: Device, width: int) -> list[Row]:
    """The best that the machine can do, and the work that an iteration of ours has to do."""
    rate, bandwidth = arithmetic_rate(device), copy_rate(device)
    trainer = Trainer(SquidConfig(width=width), EAGER, "float32", device)
    trainer.pair()
    with FlopCounterMode(display=False) as counter:
        trainer.pair()
    operations = counter.get_total_flops() / 2
    parameters = sum(p.numel() for p in trainer.method.parameters())
    # Adam reads p, g, m, v and writes p, m, v, four bytes each, in every second iteration.
    state_bytes = parameters * 4 * 7 / 2
    return [
        {
            "matmul_TFLOPs": rate / 1e12,
            "copy_GBs": bandwidth / 1e9,
            "GFLOP_per_iteration": operations / 1e9,
            "arithmetic_floor_ms": 1e3 * operations / rate,
            "optimiser_floor_ms": 1e3 * state_bytes / bandwidth,
        }
    ]


def arithmetic_rate(device: Device) -> float:
    """Operations per second of a large matrix product."""
    where, n = torch.device(device), 8192 if device == "cuda" else 1024
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    a, b = (torch.randn(n, n, device=where, dtype=dtype) for _ in range(2))
    return 2 * n**3 / seconds(lambda: a @ b, where)


def copy_rate(device: Device) -> float:
    """Bytes read and written per second by a large copy."""
    where = torch.device(device)
    source = torch.randn(2**28 if device == "cuda" else 2**24, device=where)
    target = torch.empty_like(source)
    return 2 * source.nbytes / seconds(lambda: target.copy_(source), where)


SECTIONS: dict[str, Callable[[Device, int], Iterable[Row]]] = {
    "floors": floors,
    "step": steps,
    "score": scoring,
    "deployable": deployable,
    "files": files,
    "memory": memory,
    "scaling": scaling,
}


def show(title: str, rows: list[Row]) -> None:
    table = Table(title=title)
    for column in rows[0]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()))
    Console(width=160).print(table)


def provenance(device: Device) -> Row:
    """The circumstances that belong to a number."""
    cuda = device == "cuda"
    name = torch.cuda.get_device_name() if cuda else f"CPU x{torch.get_num_threads()}"
    return {
        "command": " ".join(["python", "benchmarks/" + Path(sys.argv[0]).name, *sys.argv[1:]]),
        "date": date.today().isoformat(),
        "commit": commit(),
        "torch": torch.__version__,
        "device": name,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--width", type=int, default=SquidConfig().width, help="less for a trial")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    result: Row = provenance(options.device)
    file = options.out / f"speed-{options.device}.json"
    options.out.mkdir(parents=True, exist_ok=True)
    for section in options.sections.split(","):
        result[section] = []
        for row in SECTIONS[section](options.device, options.width):
            result[section].append(row)
            # After every row, so that an interrupted benchmark loses nothing.
            file.write_text(json.dumps(result, indent=2) + "\n")
        show(f"{section} ({result['device']})", result[section])


if __name__ == "__main__":
    main()
