"""Runs a study: executes missing runs, chooses settings on validation data, and gathers the results of all seeds."""

import warnings
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from selbo.checks import one_of, whole
from selbo_lab.run.build import KNOWN_FRACTIONS
from selbo_lab.run.corrupted_cache import make_missing
from selbo_lab.run.records import Manifest, MethodRuns, Run, RunValidation, StudyComparison, StudyResults, Tried
from selbo_lab.run.result_store import Store
from selbo_lab.run.table_methods import can_be_trained
from selbo_lab.run.tasks import generated_sets, require_files
from selbo_lab.schedule.executors import BY_NAME, Done, Work
from selbo_lab.studies import plan, reader, smoke
from selbo_lab.studies.paper import PaperValues
from selbo_lab.studies.run_spec import RunSpec
from selbo_lab.studies.study import Study, StudyMethod, Track, Variant

CORRUPTED_SETS: Final = "corrupted sets"
WHOLE_STUDY: Final = plan.StudyPart()


class StudyProgress(NamedTuple):
    """Progress of a study: number of runs, or of corrupted sets generated before them, done and in total."""

    done: int
    running: int
    failed: int
    total: int
    label: str
    of: str = "runs"


ProgressListener = Callable[[StudyProgress], object]


class Failed(RuntimeError):  # noqa: N818  (reads as a sentence)
    """Some runs ended with an error."""


def load_known_study(name: str, *, trial: bool = False) -> Study:
    """Load a study by name; for a trial, with tiny data."""
    found = reader.load_study(name)
    return smoke.smoke(found) if trial else found


def run_study(
    study: Study,
    folder: Path,
    *,
    tracks: Sequence[str] | None = None,
    seeds: int | None = None,
    part: plan.StudyPart = WHOLE_STUDY,
    executor: str = "processes",
    jobs: int = 1,
    device: str = "cpu",
    helpers: int = 0,
    listener: ProgressListener = lambda _: None,
) -> StudyResults:
    """Execute the missing runs of a study, and gather all results.

    Args:
        study: The study.
        folder: Results folder; an unfinished study in it is resumed.
        tracks: Names of the tracks; all if not given.
        seeds: Number of seeds; that of the study if not given.
        part: Methods and variants to run.
        executor: ``processes``, ``here`` or ``ray``.
        jobs: Number of parallel runs.
        device: Device to train on.
        helpers: Number of processes that generate missing corrupted sets in advance; if 0, the first run that needs a
            set generates it.
        listener: Called whenever something starts or ends.

    Returns:
        The results, as returned by `gather`.

    Raises:
        Failed: If a run ended with an error; finished runs are kept.
        MissingData: If the store lacks data for a missing run.
    """
    known = [track.name for track in study.tracks]
    chosen = [one_of("track", name, known) for name in tracks] if tracks else known
    count = study.seeds if seeds is None else whole("seeds", seeds, at_least=1)
    whole("jobs", jobs, at_least=1)
    part.check(study)
    store = Store(folder)
    planned = _Plan(store, study, chosen, study.seed_range(count), part)
    run = _StudyRunner(store, BY_NAME[one_of("executor", executor, BY_NAME)], jobs, device, listener)
    run.need(planned.now, planned.later)
    _write_manifest(store, study, chosen, count)
    if helpers:
        run.sets([*planned.now, *planned.later], helpers)
    run.all(planned)
    return gather(folder)


def require_data(
    study: Study,
    folder: Path,
    *,
    tracks: Sequence[str] | None = None,
    seeds: int | None = None,
    part: plan.StudyPart = WHOLE_STUDY,
    executor: str = "processes",
) -> None:
    """Check that `reproduce` with these arguments would not lack data; nothing is written.

    Raises:
        MissingData: If the store lacks data for a missing run.
    """
    part.check(study)
    chosen = tracks or [track.name for track in study.tracks]
    store = Store(folder)
    planned = _Plan(store, study, chosen, study.seed_range(study.seeds if seeds is None else seeds), part)
    _StudyRunner(store, BY_NAME[executor], 1, "cpu", lambda _: None).need(planned.now, planned.later)


class _Plan:
    """The runs of a study: those that can start, and reported runs whose settings have not been chosen yet.

    Attributes:
        now: Tuning runs, and reported runs of methods whose tuning runs have all ended.
    """

    def __init__(
        self, store: Store, study: Study, tracks: Sequence[str], seeds: Sequence[int], part: plan.StudyPart
    ) -> None:
        self.store, self.seeds, self.specs = store, seeds, partial(part.specs, study)
        self.val_nll = val_nll(store, study, tracks)
        methods = list(plan.planned_methods(study, tracks))
        self.waiting = [(planned, {spec.id for spec in planned.chosen_by()}) for planned in methods]
        tuning = self.specs(job for planned in methods for job in planned.tuning_jobs())
        self.now = [*tuning, *self._ready()]

    @property
    def later(self) -> list[RunSpec]:
        """The other reported runs; their settings are those of the first candidate."""
        found = self.specs(job for planned, _ in self.waiting for job in planned.final_jobs(self.seeds, {}))
        return [spec for spec in found if can_be_trained(spec.recipe)]

    def after(self, spec: RunSpec) -> list[RunSpec]:
        """Reported runs that can start because this run has ended."""
        result = None if spec.evaluation.test else self.store.read_validation(spec)
        if result is None:
            return []
        self.val_nll[spec.id] = _nll_to_choose_by(result)
        return self._ready()

    def _ready(self) -> list[RunSpec]:
        ready = [planned for planned, needs in self.waiting if needs <= self.val_nll.keys()]
        self.waiting = [(planned, needs) for planned, needs in self.waiting if not needs <= self.val_nll.keys()]
        return self.specs(job for planned in ready for job in planned.final_jobs(self.seeds, self.val_nll))


class _StudyRunner:
    """Passes runs to an executor and counts their outcomes."""

    def __init__(self, store: Store, executor: Any, jobs: int, device: str, listener: ProgressListener) -> None:
        self.store, self.executor, self.jobs, self.device, self.listener = store, executor, jobs, device, listener
        self.done = self.started = self.running = 0
        self.failed: list[Done] = []

    def _threads(self) -> int:
        """Threads per run: one on a CPU, so that results do not depend on parallel runs; an equal share on a GPU."""
        return 1 if self.device == "cpu" else max(1, torch.get_num_threads() // self.jobs)

    def need(self, specs: Sequence[RunSpec], later: Sequence[RunSpec] = ()) -> None:
        """Raise an error before the first run if data for missing runs, or for later ones, are not in the store."""
        missing = [spec for spec in specs if not self.store.has(spec)]
        if self.executor is not BY_NAME["ray"]:  # its machines have their own stores
            wanted = [*missing, *(later if missing else ())]
            for data, evaluation in dict.fromkeys((spec.data, spec.evaluation) for spec in wanted):
                require_files(data, evaluation)

    def sets(self, specs: Sequence[RunSpec], helpers: int) -> None:
        """Generate the corrupted sets that missing runs need."""
        needed = {(spec.data, spec.evaluation) for spec in specs if not self.store.has(spec)}
        sets = [each for data, evaluation in needed for each in generated_sets(data, evaluation)]

        def told(done: int, total: int) -> None:
            self.listener(StudyProgress(done, min(helpers, total - done), 0, total, "", CORRUPTED_SETS))

        make_missing(sets, processes=helpers, told=told)

    def all(self, planned: "_Plan") -> None:
        """Execute the missing runs; reported runs of a method start as soon as its settings are chosen."""
        known: set[str] = set()
        works: list[Work] = []
        places: dict[Hashable, int] = {}

        def add(specs: Sequence[RunSpec]) -> None:
            new = list({spec.id: spec for spec in specs if spec.id not in known}.values())
            missing = [spec for spec in new if not self.store.has(spec)]
            left_out = {spec.id for spec in missing if not can_be_trained(spec.recipe)}
            if left_out:
                message = "runs of LightGBM are left out, as it is not installed: `pip install 'selbo-lab[tables]'`"
                warnings.warn(message, UserWarning, stacklevel=2)
            known.update(spec.id for spec in new if spec.id not in left_out)
            self.done += len(new) - len(missing)
            for spec in missing:
                if spec.id not in left_out:
                    places.setdefault(spec.training, len(places))
                    works.append(Work(spec, str(self.store.folder), self.device, self._threads()))
            works.sort(key=turn)

        def turn(work: Work) -> tuple[bool, int, int]:
            # reported runs wait for tuning runs; long runs first, so that none is waited for at the end; runs that
            # share networks follow each other
            return work.spec.evaluation.test, -_length(work.spec), places[work.spec.training]

        def say(label: str) -> None:
            total = len(known) + len(planned.later)
            self.listener(StudyProgress(self.done, self.running, len(self.failed), total, label))

        def started(spec: RunSpec) -> None:
            self.running += 1
            self.started += 1
            say(_label(spec))

        def ended(spec: RunSpec, how: Done) -> None:
            self.running -= 1
            if how.status == "failed":
                self.failed.append(how)
            else:
                self.done += 1
                add(planned.after(spec))
            say(_label(spec))

        add(planned.now)
        say("")
        if works:
            self.executor(works, self.jobs, started, ended)
        if self.failed:
            first = self.failed[0]
            raise Failed(
                f"{len(self.failed)} of {self.started} runs failed, the first, {first.run_id}, with "
                f"{first.error}; finished runs are kept; run the same command again to resume"
            )


def _length(spec: RunSpec) -> int:
    """Relative duration of a run within its study: the number of passes through a network."""
    recipe = spec.recipe
    return recipe.members * recipe.steps * (recipe.draws if recipe.bayesian else 1)


def _label(spec: RunSpec) -> str:
    return f"{spec.recipe.objective}, seed {spec.seed}"


def val_nll(store: Store, study: Study, tracks: Sequence[str]) -> dict[str, float | None]:
    """Validation NLL of the tuning runs, by run id; None if a run diverged or its NLL is not finite."""
    found: dict[str, float | None] = {}
    for job in plan.tuning_jobs(study, tracks):
        result = store.read_validation(job.spec)
        if result is not None:
            found[job.spec.id] = _nll_to_choose_by(result)
    return found


def _nll_to_choose_by(run: Run | RunValidation) -> float | None:
    """Validation NLL; weighted to the class fractions of the target domain, if there is one."""
    if not run.finished or run.val is None:
        return None
    return run.val.nll_at_use if run.spec.data.labels else run.val.value("nll")


def _write_manifest(store: Store, study: Study, tracks: Sequence[str], seeds: int) -> None:
    """Write the manifest; tracks that were requested earlier are kept."""
    if store.exists():
        earlier = store.manifest()
        if (earlier.study, earlier.generated) != (study.name, study.generated):
            what = "a trial of " if earlier.generated else ""
            raise ValueError(f"'{store.folder}' holds {what}the study {earlier.study!r}: choose another folder")
        tracks = [name for name in (track.name for track in study.tracks) if name in {*tracks, *earlier.tracks}]
        seeds = max(seeds, earlier.seeds)
    store.write_manifest(Manifest(study=study.name, generated=study.generated, tracks=tuple(tracks), seeds=seeds))


def gather(folder: Path) -> StudyResults:
    """Read the results of a study from its folder, in the order of the study; missing runs are None."""
    store = Store(folder)
    manifest = store.manifest()
    study = load_known_study(manifest.study, trial=manifest.generated)
    seeds = study.seed_range(manifest.seeds)
    nll = val_nll(store, study, manifest.tracks)

    def with_runs(variant: Variant, track: Track, method: StudyMethod) -> MethodRuns:
        recipe, names = plan.chosen(variant, track, method, nll), [name for name, _ in method.grid]
        like = track.method(method.chosen_with) if method.chosen_with else method
        specs = [RunSpec(variant.data, variant.model, recipe, track.evaluation, seed) for seed in seeds]
        return MethodRuns(
            name=method.name,
            title=method.title,
            note=method.note,
            chosen={name: getattr(recipe, name) for name, _ in like.grid},
            chosen_with=like.title if method.chosen_with else "",
            tried=tuple(
                Tried(
                    settings={name: getattr(each, name) for name in names},
                    val_nll=plan.tuned_nll(variant, track, each, nll),
                )
                for each in (method.candidates() if names else ())
            ),
            recipe=recipe,
            runs=tuple(store.read(spec) for spec in specs),
        )

    comparisons = [
        StudyComparison(
            variant=variant.name,
            title=variant.title,
            track=track.name,
            reference=track.reference,
            focus=track.focus,
            paper_noise=study.paper_noise,
            paper=reader.paper_values(study.name, variant.name) if track.name == "published" else PaperValues(),
            data=variant.data,
            classes=KNOWN_FRACTIONS.get(variant.data.name, {}),
            model=variant.model,
            evaluation=track.evaluation,
            methods=tuple(with_runs(variant, track, variant.adapted(track, each)) for each in track.methods),
        )
        for variant, track in study.comparisons(manifest.tracks)
    ]
    return StudyResults(
        study=study.name,
        title=study.title,
        paper=study.paper,
        generated=study.generated,
        seeds=tuple(seeds),
        comparisons=tuple(comparisons),
    )
