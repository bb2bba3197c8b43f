"""Programs that are not ours are missed loudly, by `.ci/run` and by the tests that need them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from ..parts import REQUIRED, need

ROOT = Path(__file__).resolve().parents[2]
NOT_THERE = "no-such-program-of-ours"


def test_a_test_is_skipped_without_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED, raising=False)
    need("sh", package="dash")
    with pytest.raises(pytest.skip.Exception, match=f"{NOT_THERE} is not installed"):
        need("sh", NOT_THERE, package="ours")
    with pytest.raises(pytest.skip.Exception, match="sh is not installed"):
        need("sh", package="dash", present=False)


def test_a_test_fails_without_a_program_where_all_are_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(REQUIRED, "1")
    need("sh", package="dash")
    with pytest.raises(pytest.fail.Exception, match=f"{NOT_THERE} is not installed"):
        need(NOT_THERE, package="ours")


def ci(folder: Path, **stubs: str) -> subprocess.CompletedProcess[str]:
    """`.ci/run` with these programs alone; each notes its call in a file."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", folder / ".ci/run")
    programs = folder / "programs"
    programs.mkdir()
    for name in ("bash", "dirname"):
        (programs / name).symlink_to(shutil.which(name) or "")
    for name in ("apt-get", "service", "make", "python3"):
        end = stubs.get(name.replace("-", "_"), "true")
        (programs / name).write_text(
            f'#!/bin/sh\necho "{name} $1 ${REQUIRED}" >> {folder}/calls\n{end}\n'
        )
        (programs / name).chmod(0o755)
    return subprocess.run(
        ["bash", str(folder / ".ci/run")],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_ci_ends_where_packages_cannot_be_reached(tmp_path: Path) -> None:
    done = ci(tmp_path, apt_get='[ "$1" != update ]')
    assert done.returncode != 0
    assert (tmp_path / "calls").read_text().split() == ["apt-get", "update"]


def test_ci_says_what_is_still_missing_and_lets_its_tests_fail(tmp_path: Path) -> None:
    done = ci(tmp_path)
    assert done.returncode == 0
    assert "MISSING AFTER INSTALLATION: chromium chromedriver dcm2pnm dciodvfy" in done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[:2] for call in calls[:2]] == [
        ["apt-get", "update"],
        ["apt-get", "install"],
    ]
    assert calls[-1] == "make test 1"
