"""The results of a benchmark on disk, found by what was run: a job has its result once any job of
the same identity has one, in another section, another call, or on another machine."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from squid.benchmark.plan import Job, Plan, identity
from squid.durable import write_text
from squid.errors import RunError
from squid.evaluation.record import Result, read_keys, read_record

RESULT = "result.json"
TRIVIAL_FILE = "trivial.json"


def read_result(folder: Path) -> Result | None:
    """The result in a job's folder."""
    path = folder / RESULT
    return read_record(Result, path) if path.is_file() else None


def finished(job: Job) -> bool:
    """Whether the job's own folder has its result; the result of another recipe is refused."""
    result = read_result(job.folder)
    # A folder may be left over from an earlier version of the benchmark file.
    if result is not None and _identity(result) != identity(job.recipe, job.split):
        raise RunError(
            f"{job.folder} holds the result of another recipe or split; remove it or choose "
            "another --out."
        )
    return result is not None


class ResultStore:
    """The results of a plan: those below its folder, and those in a flat folder of kept ones."""

    def __init__(self, plan: Plan, kept: Path | None = None) -> None:
        self.plan, self.kept = plan, kept
        self._found: dict[str, Result] = {}
        self._files: dict[str, Path] = {}  # in the kept folder
        for path in sorted(plan.out.rglob(RESULT)):
            result = read_record(Result, path)
            self._found.setdefault(_identity(result), result)
        for path in sorted(kept.glob("*.json")) if kept is not None and kept.is_dir() else []:
            if "recipe" in read_keys(path):
                result = read_record(Result, path)
                self._found.setdefault(_identity(result), result)
                self._files[_identity(result)] = path

    def find(self, job: Job) -> Result | None:
        """A job's result, in the places of this plan; None where it has to be run."""
        finished(job)  # refuses a folder of another recipe
        result = self._found.get(identity(job.recipe, job.split))
        return result and _moved(result, job)

    def add(self, job: Job) -> Result:
        """The result that a job has just left in its folder."""
        result = read_result(job.folder)
        assert result is not None
        self._found[_identity(result)] = result
        self.keep(job)
        return _moved(result, job)

    def keep(self, job: Job) -> None:
        """Writes a job's result into the kept folder, one file for each identity, with the places
        of this plan and those it had before."""
        key = identity(job.recipe, job.split)
        if self.kept is None or key not in self._found:
            return
        result = self._found[key]
        places = dict.fromkeys([*result.places, *job.places])
        kept = result.model_copy(update={"also": tuple(places)[1:]})
        path = self._files.setdefault(key, self.kept / f"{job.name.replace('/', '-')}.json")
        if kept != result or not path.is_file():
            self.kept.mkdir(parents=True, exist_ok=True)
            write_text(path, kept.model_dump_json() + "\n")
        self._found[key] = kept

    def keep_trivial(self) -> None:
        """Copies the trivial scores of each section into the kept folder."""
        for section in self.plan.sections if self.kept is not None else ():
            made = self.plan.out / section / TRIVIAL_FILE
            if self.kept is not None and made.is_file():
                self.kept.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(made, self.kept / f"{section}-{TRIVIAL_FILE}")

    def results(self) -> Iterator[Result]:
        """One for each place of each job that has a result, in the order of the tables."""
        for section in self.plan.sections:
            for job in self.plan.of(section):
                result = self._found.get(identity(job.recipe, job.split))
                if result is not None:
                    yield _moved(result, job)


def _identity(result: Result) -> str:
    return identity(result.recipe, result.evaluations.split)


def _moved(result: Result, job: Job) -> Result:
    """The result in the places of a job."""
    first, *others = job.places
    return result.model_copy(update={**dict(first), "also": tuple(others)})
