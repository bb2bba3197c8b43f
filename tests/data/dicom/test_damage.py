"""Damaged and crafted files are read or refused with a reason, in little time and memory."""

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("imagecodecs", reason="the extra dicom is not installed")

ROOT = Path(__file__).resolve().parents[3]
MUTATIONS = 200
RECORD = ROOT / "benchmarks/results/studies/dicom-damage.json"


@pytest.fixture
def damage(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    return import_module("damage")


def test_every_file_is_read_or_refused_with_a_reason(damage: ModuleType) -> None:
    *mutated, crafted = damage.attack(MUTATIONS)
    assert [cost.wrong for cost in (*mutated, crafted)] == [[]] * (len(mutated) + 1)
    # Neither all refused at the first look nor all read: the faults reach the decoders.
    assert 0.2 < sum(cost.read for cost in mutated) / MUTATIONS < 0.8
    assert sum(cost.read + cost.refused for cost in mutated) == MUTATIONS
    assert crafted.refused == len(damage.crafted()) - 1
    assert max(cost.megabytes for cost in (*mutated, crafted)) < damage.MEGABYTES
    # They also reach the reader of headers for DICOM results, and the results.
    assert sum(cost.headers for cost in mutated) / MUTATIONS > 0.2
    assert sum(cost.results for cost in mutated) >= 5


def test_the_recorded_attack_kept_the_limits(damage: ModuleType) -> None:
    record = json.loads(RECORD.read_text("utf-8"))
    mutations, crafted = record["mutations"], record["crafted"]
    assert mutations["count"] == mutations["read"] + mutations["refused"] >= 10_000
    assert mutations["results"] >= 500
    assert crafted["count"] == crafted["read"] + crafted["refused"] == len(damage.crafted())
    assert record["limits"] == {"seconds": damage.SECONDS, "megabytes": damage.MEGABYTES}
    assert 0 < record["slowest"]["seconds"] < damage.SECONDS
    assert 0 < max(record["megabytes"].values()) < damage.MEGABYTES
    assert record["wrong"] == []
    assert record["commit"]


def test_a_mutation_is_known_by_its_number(damage: ModuleType) -> None:
    assert list(damage.mutations(7, 9)) == list(damage.mutations(7, 9))
    assert len({data for _, data in damage.mutations(0, 5)}) == 5


def test_what_goes_wrong_is_named(damage: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(data: bytes, name: str) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(damage, "read_image", fail)
    assert damage.read_all(iter([("a file", b"")])).wrong == ["a file: MemoryError: no room"]
