"""Results of trainings, for scripts that look at them again."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Result = dict[str, Any]


def results_parser(doc: str) -> argparse.ArgumentParser:
    """With the files to read as `results` and the folder to write to as `out`."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+", metavar="RESULT.json")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    return parser


def read_results(paths: Sequence[Path]) -> list[Result]:
    return [json.loads(path.read_text()) for path in paths]
