"""benchmarks/together.py: what it makes of kept results."""

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
LABELS = [0, 0, 1, 1]


@pytest.fixture
def together(monkeypatch, tmp_path):
    """Calls the script with results of these scores; what it writes."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from together import main

    def call(*scores, folders, fingerprints="aaaaaaaa"):
        files = []
        for seed, said in enumerate(scores):
            result = {"section": "made", "row": "up", "seed": seed, "commit": "none"}
            result |= {"fingerprint": fingerprints[seed], "scores": {"label": LABELS} | said}
            files.append(tmp_path / f"{seed}.json")
            files[-1].write_text(json.dumps(result))
        options = ["--folders", str(folders), "--out", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", ["together.py", *map(str, files), *options])
        main()
        return json.loads((tmp_path / f"together-made-up-{folders}.json").read_text())

    return call


def test_folders_that_are_wrong_in_different_places_are_right_together(together):
    one, other = {"last": [3.0, 0.0, 2.0, 2.0]}, {"last": [0.0, 3.0, 2.0, 2.0]}
    assert together(one, other, folders=1)["last"]["auc of each"] == [50.0, 50.0]
    found = together(one, other, folders=2)
    assert found["last"]["auc of each"] == [100.0]
    assert "range" not in found


def test_ensembles_share_no_folder_and_one_too_many_is_left_out(together):
    right, wrong = {"last": [0.0, 0.0, 1.0, 1.0]}, {"last": [1.0, 1.0, 0.0, 0.0]}
    found = together(right, right, wrong, wrong, right, folders=2)
    assert found["last"]["auc of each"] == [100.0, 0.0]
    assert found["last"]["ensembles"]["auc"]["mean"] == 50.0
    assert found["last"]["all"]["auc"] == 100.0


def test_readings_at_several_epochs_are_so_far_apart(together):
    moves = {"240": [0.0, 0.0, 1.0, 1.0], "300": [2.0, 0.0, 1.0, 1.0]}
    stays = {"240": [0.0, 0.0, 1.0, 1.0], "300": [0.0, 0.0, 1.0, 1.0]}
    found = together(moves, stays, folders=1)["range"]
    assert found["each"] == [50.0, 0.0]
    assert found["mean"] == 25.0


@pytest.mark.parametrize(
    ("folders", "fingerprints", "sentence"),
    [
        (3, "aa", "3 at a time cannot be taken of 2 results"),
        (0, "aa", "0 at a time"),
        (1, "ab", "different splits"),
    ],
)
def test_a_mistake_is_a_sentence(together, capsys, folders, fingerprints, sentence):
    said = {"last": [0.0, 0.0, 1.0, 1.0]}
    with pytest.raises(SystemExit):
        together(said, said, folders=folders, fingerprints=fingerprints)
    assert sentence in capsys.readouterr().err
