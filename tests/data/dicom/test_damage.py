"""Damaged and crafted files are read or refused with a reason, in little time and memory."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("imagecodecs", reason="the extra dicom is not installed")

ROOT = Path(__file__).resolve().parents[3]
MUTATIONS = 200


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


def test_a_mutation_is_known_by_its_number(damage: ModuleType) -> None:
    assert list(damage.mutations(7, 9)) == list(damage.mutations(7, 9))
    assert len({data for _, data in damage.mutations(0, 5)}) == 5


def test_what_goes_wrong_is_named(damage: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(data: bytes, name: str) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(damage, "read_image", fail)
    assert damage.read_all(iter([("a file", b"")])).wrong == ["a file: MemoryError: no room"]
