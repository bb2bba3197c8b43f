"""What the package depends on: lower bounds, a lock that agrees, the audit's answer."""

import importlib.util
import json
import re
import tomllib
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def declared(*extras: str) -> list[Requirement]:
    """What the package and these extras name, without the package itself."""
    texts = [*PROJECT["dependencies"]]
    for extra in extras:
        texts += PROJECT["optional-dependencies"][extra]
    named = [Requirement(text) for text in texts]
    return [one for one in named if one.name != PROJECT["name"]]


def locked() -> dict[str, Version]:
    """The version of each package in the lock."""
    found = re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in found}


@pytest.mark.parametrize("wanted", declared(*PROJECT["optional-dependencies"]), ids=str)
def test_every_dependency_has_a_lower_bound_that_holds_here(wanted: Requirement) -> None:
    bounds = [Version(one.version) for one in wanted.specifier if one.operator == ">="]
    assert len(bounds) == 1
    assert wanted.specifier.contains(metadata.version(wanted.name))


def test_the_lock_holds_what_is_declared() -> None:
    versions = locked()
    for wanted in declared("export", "dicom"):
        assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), wanted
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pinned = Requirement(line)
            assert pinned.specifier.contains(versions[pinned.name]), line


def test_the_lock_holds_all_that_they_need_in_turn() -> None:
    """Otherwise pip would look for the rest, and refuse what has no hash."""
    versions = locked()
    for name in versions:
        for text in metadata.requires(name) or []:
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                assert canonicalize_name(needed.name) in versions, f"{name} needs {needed}"


def test_every_version_has_hashes_and_none_is_for_a_gpu() -> None:
    entries = re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) == len(locked()) > 50
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry) for entry in entries)
    assert not [name for name in locked() if re.match("nvidia|cuda|triton", name)]
    # Where packages come from is the installer's choice, not the file's.
    assert not re.search(r"://|--(extra-)?index-url|^--find-links", LOCK, re.MULTILINE)


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_audit_asks_for_every_version_of_the_lock(audit: ModuleType) -> None:
    wanted = dict(line.split("==") for line in audit.pins(LOCK))
    assert wanted == {name: version.public for name, version in locked().items()}


def test_the_audit_tells_a_hole_from_an_index_without_advisories(audit: ModuleType) -> None:
    unknown = {"name": "a", "skip_reason": "not found on PyPI"}
    hole = {"id": "CVE-1", "fix_versions": ["2.1"]}
    bad = {"name": "b", "version": "2.0", "vulns": [hole]}
    assert audit.holes_in(json.dumps({"dependencies": [unknown]})) == (0, [])
    report = json.dumps({"dependencies": [unknown, {**bad, "vulns": []}]})
    assert audit.holes_in(report) == (1, [])
    found = audit.holes_in(json.dumps({"dependencies": [unknown, bad]}))
    assert found == (1, ["b 2.0: CVE-1, fixed in 2.1"])


def test_the_audit_is_skipped_where_it_gets_no_report(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for report, said in [("", "gave no report"), ('{"dependencies": []}', "no advisories")]:
        monkeypatch.setattr(audit, "asked", lambda *_, report=report: report)
        assert audit.main() == 0
        assert said in capsys.readouterr().out
