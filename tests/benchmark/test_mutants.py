"""benchmarks/mutants.py: its list of faults fits the code, and a fault is taken out again."""

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from squid.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("mutants")


def test_every_old_text_occurs_once_and_every_test_file_exists(mutants: ModuleType) -> None:
    for mutant in mutants.read_mutants():
        mutant.source(ROOT)  # refuses a text that occurs more than once, or not at all
        assert mutant.new != mutant.old
        files = [word for word in mutant.tests.split() if word.endswith(".py")]
        assert files
        assert all((ROOT / file).is_file() for file in files), mutant.name
        # A selection of tests that were renamed since would choose none.
        chosen = re.findall(r"\w+", mutant.tests.partition(" -k ")[2])
        texts = "".join((ROOT / file).read_text(encoding="utf-8") for file in files)
        methods = {*METHODS, "and", "or", "not"}
        assert all(word in texts or word in methods for word in chosen), mutant.name


def test_a_fault_is_taken_out_again(mutants: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "sign.py"
    file.write_text("SIGN = 1\n")
    mutant = mutants.Mutant("sign", "sign.py", old="= 1", new="= -1", tests="test_sign.py")
    with mutant.applied(tmp_path):
        assert file.read_text() == "SIGN = -1\n"
    assert file.read_text() == "SIGN = 1\n"


@pytest.fixture
def sign(tmp_path: Path) -> Path:
    """A project of one number, with a test that sees its sign and one that does not."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "sign.py").write_text("SIGN = 1\n")
    (tmp_path / "test_sign.py").write_text(
        "import sign\n\n"
        "def test_sign():\n    assert sign.SIGN == 1\n\n"
        "def test_name():\n    assert sign.SIGN\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


@pytest.mark.parametrize(
    ("tests", "outcome"), [("sign", "killed"), ("name", "survived"), ("other", "broken")]
)
def test_a_fault_is_killed_or_survives(
    mutants: ModuleType, sign: Path, tests: str, outcome: str
) -> None:
    arguments = f"test_sign.py -k test_{tests}"
    mutant = mutants.Mutant("sign", "src/sign.py", "= 1", "= -1", arguments)
    assert mutants.run_mutant(mutant, sign)[0] == outcome


@pytest.mark.parametrize("limit", ["LIMIT", "TIMEOUT"])
def test_tests_above_the_limit_kill_nothing(
    mutants: ModuleType, sign: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(mutants, limit, 0.01)
    mutant = mutants.Mutant("sign", "src/sign.py", "= 1", "= -1", "test_sign.py -k test_sign")
    assert mutants.run_mutant(mutant, sign)[0] == "slow"


def test_tests_that_fail_or_are_slow_without_a_fault_stop_the_run(mutants: ModuleType) -> None:
    mutants._stop_unless_sound({"a.py": (0, 59.0)})
    with pytest.raises(SystemExit, match=r"do not pass without a fault:\nb.py"):
        mutants._stop_unless_sound({"a.py": (0, 1.0), "b.py": (1, 1.0)})
    with pytest.raises(SystemExit, match=r"more than 60 s:\na.py: 61 s"):
        mutants._stop_unless_sound({"a.py": (0, 61.0)})


def test_a_text_that_occurs_twice_is_refused(mutants: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "sign.py").write_text("SIGN = 1\nOTHER = 1\n")
    mutant = mutants.Mutant("sign", "sign.py", "= 1", "= -1", "test_sign.py")
    with pytest.raises(ValueError, match="occurs 2 times"):
        mutant.source(tmp_path)
