"""Where the time of a training iteration goes: by kind of kernel, and the slowest ones.

python benchmarks/profiling.py [--device cuda] [--no-compile] [--no-cuda-graph] [--precision bf16]

It is not called profile.py, because next to speed.py that would hide the standard library's module,
which torch imports.
"""

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path

import torch
from speed import Trainer, provenance, show
from torch.profiler import ProfilerActivity, profile

from squid.methods.squid.config import SquidConfig
from squid.train.step import StepForm

PAIRS = 5
KINDS = {
    "optimiser": r"Adam|multi_tensor",
    "convolution": r"fprop|dgrad|wgrad|convol|cudnn|nchw|nhwc",
    "matrix product": r"gemm|gemv|nvjet|addmm|bmm|mkl",
    "reduction": r"triton_red|triton_per|batch_norm|reduce",
    "pointwise": r"triton_poi|elementwise|vectorized",
    "copy and fill": r"Memset|Memcpy|memset|copy_|fill_",
}


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), "other")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cuda = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    for name in ("--compile", "--cuda-graph"):
        parser.add_argument(name, action=argparse.BooleanOptionalAction, default=cuda)
    parser.add_argument("--precision", default="bf16" if cuda else "float32")
    parser.add_argument("--width", type=int, default=SquidConfig().width, help="less for a trial")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    form = StepForm(options.compile, options.cuda_graph)
    trainer = Trainer(SquidConfig(width=options.width), form, options.precision, options.device)
    trainer.pair(5)  # compiles, captures and fills caches
    on_gpu = options.device == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity], acc_events=True) as profiler:
        trainer.pair(PAIRS)
        if on_gpu:
            torch.cuda.synchronize()
    times: dict[str, float] = {}
    counts: dict[str, float] = {}
    for event in profiler.key_averages():
        spent = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        if spent > 0:
            times[event.key] = spent / (2 * PAIRS)
            counts[event.key] = event.count / (2 * PAIRS)
    report(times, counts, options)


def report(times: dict[str, float], counts: dict[str, float], options: argparse.Namespace) -> None:
    """Microseconds and launches per iteration."""
    kinds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for name, spent in times.items():
        kinds[kind_of(name)][0] += spent
        kinds[kind_of(name)][1] += counts[name]
    total = sum(times.values())
    by_kind = [
        {"kind": kind, "us": us, "share_%": 100 * us / total, "launches": launches}
        for kind, (us, launches) in sorted(kinds.items(), key=lambda item: -item[1][0])
    ]
    slowest = [
        {"us": spent, "launches": counts[name], "kernel": name[:100]}
        for name, spent in sorted(times.items(), key=lambda item: -item[1])[:30]
    ]
    show(f"{total / 1000:.2f} ms in kernels per iteration", by_kind)
    show("slowest", slowest)
    if options.out is not None:
        result = {**provenance(options.device), "kinds": by_kind, "slowest": slowest}
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
