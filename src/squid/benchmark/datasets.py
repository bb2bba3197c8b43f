"""Whether the datasets of a benchmark are there, before its first job."""

from collections.abc import Callable

from squid.benchmark.plan import Plan
from squid.benchmark.store import ResultStore
from squid.errors import DataError
from squid.recipe import Recipe


def check_data(plan: Plan, store: ResultStore) -> None:
    """Reads each dataset once, so that missing data stop a benchmark before its first job."""
    missing = sections_without_data(plan, store, read)
    if not missing:
        return
    names, left = list(missing), [name for name in plan.sections if name not in missing]
    which = f"Section '{names[0]}'" if len(names) == 1 else f"Sections {', '.join(names)}"
    remedy = f" To run the others, add --sections {','.join(left)}" if left else ""
    raise DataError(f"{which} cannot be run: {' '.join(dict.fromkeys(missing.values()))}{remedy}")


def sections_without_data(
    plan: Plan, store: ResultStore, look: Callable[[Recipe], object]
) -> dict[str, str]:
    """Why the images of a section cannot be used, by its name, for sections with jobs to run.
    `look` is called once for each dataset and image size."""
    looked: dict[str, str | None] = {}
    reasons: dict[str, str] = {}
    for job in plan.jobs:
        if store.find(job) is not None:
            continue
        key = f"{job.recipe.method.size} {job.recipe.data.model_dump_json()}"
        if key not in looked:
            try:
                look(job.recipe)
                looked[key] = None
            except DataError as error:
                looked[key] = str(error)
        if (reason := looked[key]) is not None:
            # A job that several sections share is missing in each of them.
            reasons |= {place.section: reason for place in job.places}
    return {name: reasons[name] for name in plan.sections if name in reasons}


def read(recipe: Recipe) -> object:
    return recipe.data.load(recipe.method.size)


def find(recipe: Recipe) -> object:
    """Looks for the files of a dataset without reading them."""
    return recipe.data.resolved()
