"""Pages about recorded results, rendered from the results bundles: no number in them is typed."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rmft.artifacts.files import reading
from rmft.artifacts.json_files import read_json
from rmft.artifacts.number_text import difference, number, p_value, percent, signed
from rmft.artifacts.text import read_text
from rmft.errors import InputError
from rmft.metrics.comparison import LEVEL, below_zero, two_sided_by_holm
from rmft.recorded.bundle import SUMMARY, Bundle, bundles, read_bundle
from rmft.suite.measuring import ReplySettings
from rmft.suite.measuring import difference as paired
from rmft.suite.results import EvalResult, ReplyEntry, compared, read_result
from rmft.workflow.paths import BUNDLE_METRICS, RECORDED
from rmft.workflow.plan_outputs import ENVIRONMENT_TITLES

REAL_MODELS, FINDINGS = Path("docs/real-models.md"), Path("docs/findings.md")
README, BLOCK = Path("README.md"), "readme.md.j2"
BEGIN, END = "<!-- Recorded results; `rmft record` renders them. -->", "<!-- End of recorded results. -->"
OFTEN_INVALID = 0.1  # invalid replies in a round, beyond which a page says so
DEMO = "demo/all"  # the bundle of everything that `snakemake` builds at this scale


@dataclass(frozen=True)
class Recorded:
    """A results bundle, as the pages read it. metrics, summary: by experiment. tables: rows, by label."""

    folder: str
    about: Bundle
    metrics: dict[str, Any]
    summary: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a bundle."""
        about = read_bundle(folder)
        metrics, summary = read_json(folder / BUNDLE_METRICS), read_json(folder / SUMMARY)
        tables = {label: _rows(folder / "tables" / f"{label}.csv") for label in about.tables}
        return cls(folder.as_posix(), about, metrics, summary, tables)

    def played_in(self, environment: str) -> dict[str, Any]:
        """Return the metrics of the experiments in an environment, such as `mab`."""
        experiments = self.about.experiments
        return {
            name: of
            for name, of in self.metrics.items()
            if experiments[name]["experiment"]["environment"] == environment
        }

    def table(self, label: str, **values: object) -> list[dict[str, Any]]:
        """Return the rows of a table that have these values, with numbers as numbers and empty cells as None."""
        found = [row for row in self.tables[label] if all(row[name] == value for name, value in values.items())]
        if not found:
            raise InputError(f"{self.folder}/tables/{label}.csv: no row has {values}; a template asks for one")
        return found

    def statistics(self, label: str, **values: object) -> dict[str, Any]:
        """Return our values in the rows of a table that have these values, by statistic."""
        return {row["statistic"]: row["ours"] for row in self.table(label, **values)}

    def value(self, label: str, **values: object) -> Any:  # noqa: ANN401 (a number or a text)
        """Return our value in the first row of a table that has these values."""
        return self.table(label, **values)[0]["ours"]


def pages() -> dict[Path, str]:
    """Return every page, from all bundles, and README.md with its block. Raise InputError where that has no end."""
    environment = Environment(
        loader=FileSystemLoader(RECORDED), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    filters = (number, signed, percent, difference, p_value, relative_error)
    environment.filters |= {filter_.__name__: filter_ for filter_ in filters}
    recorded = {folder.relative_to(RECORDED).as_posix(): Recorded.read(folder) for folder in bundles()}
    others = with_other_weights(recorded)
    on_request = [of for name, of in recorded.items() if "/" not in name]
    values = {
        "recorded": on_request,
        "tally": in_gaussian_bandits(on_request),
        "bundles": recorded,
        "demo": recorded.get(DEMO),
        "variants": reply_variants(Path(RECORDED, "replies")),
        "environments": ENVIRONMENT_TITLES,
        "with_other_weights": others,
        "with_demo_weights": {name: of for name, of in recorded.items() if name not in others},
    }
    offered = (
        loop_of,
        learnt_from,
        verdict,
        invalid_replies,
        mostly_invalid,
        often_invalid,
        share,
        corrected,
        against_last,
        not_above_last,
        algorithm,
        counts,
        fallen_of,
        over_trainings,
    )
    values |= {function.__name__: function for function in offered}
    wanted = {REAL_MODELS: "real-models.md.j2"} | ({FINDINGS: "findings.md.j2"} if DEMO in recorded else {})
    before, begins, rest = read_text(README).partition(BEGIN)
    _, ends, after = rest.partition(END)
    if not (begins and ends):
        raise InputError(f"{README}: has no line `{END if begins else BEGIN}`; the results stand between the two")
    texts = {page: environment.get_template(name).render(values) for page, name in wanted.items()}
    block = environment.get_template(BLOCK).render(values)
    return texts | {README: f"{before}{BEGIN}\n\n{block}\n{END}{after}"}


def with_other_weights(recorded: Mapping[str, Recorded]) -> list[str]:
    """Return the bundles, at the scale of DEMO, whose models' files are not those of DEMO."""
    scale = f"{DEMO.partition('/')[0]}/"
    weights = recorded[DEMO].about.weights if DEMO in recorded else {}
    return [name for name, of in recorded.items() if name.startswith(scale) and of.about.weights != weights]


AS_USUAL = ReplyEntry.of(ReplySettings())


@dataclass(frozen=True)
class ReplyVariant:
    """A measurement of `rmft eval` that differs from others in its prompts or settings of replies.

    difference: of its regret to that of the first one: low, mean and high of 95%.
    """

    result: EvalResult
    difference: list[float] | None


def reply_variants(folder: Path) -> list[ReplyVariant]:
    """Return recorded measurements of one model, the one with the suite's own prompts and settings first."""
    results = [read_result(path) for path in sorted(folder.glob("*.json"))]
    results.sort(key=lambda of: (of.reply != AS_USUAL, of.reply.prompts, -of.reply.temperature, of.reply.format))
    return [
        ReplyVariant(result, next(iter(compared(result, results[0]).values())) if number else None)
        for number, result in enumerate(results)
    ]


def loop_of(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an experiment that say how often, and how many games, its model plays to learn."""
    return experiment["grpo" if experiment["kind"] == "grpo" else "rmft"]


def learnt_from(results: Recorded, name: str) -> str:
    """Return which games a language experiment learnt from in one training."""
    experiment = results.about.experiments[name]["experiment"]
    loop = loop_of(experiment)
    scenarios = loop["iterations"] * loop["scenarios"]
    if experiment["kind"] == "distillation":
        each = {"IMk": loop["selected"], "IML": loop["trajectories"], "2IML": 2 * loop["trajectories"]}
        of = experiment["distillation"]
        budget = scenarios * each[of["budget"]]
        return f"{min(budget, of.get('most') or budget)} games of the algorithm `{of['teacher']}`"
    if experiment["kind"] == "grpo":
        return f"all of its {scenarios * loop['trajectories']} games, by GRPO (`reward: {loop['reward']}`)"
    if experiment["kind"] == "method":
        return f"those of its {scenarios * loop['trajectories']} games that the method `{experiment['method']}` picks"
    chosen = {"random": "picked at random", "reward": "those of highest reward"}.get(
        loop.get("score"), "those of lowest regret"
    )
    counts = _demonstrations(results, name)
    learnt = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{learnt} of its {scenarios * loop['trajectories']} games, {chosen}"


def _demonstrations(results: Recorded, name: str) -> list[int]:
    """Return how many games each training learnt from, each number once: a game without a valid reply teaches nothing.

    The games are dialogues.
    """
    chosen = results.about.experiments[name]["experiment"]
    replies = chosen["T"] * (1 + chosen["protocol"]["retries"])  # of a game in which all are invalid
    counts = set()
    for training in Path(results.folder, "experiments", name).glob("seed-*"):
        rows = [row for selection in training.glob("iteration-*/selection.csv") for row in _rows(selection)]
        counts.add(sum(row["selected"] == "True" and row["invalid"] < replies for row in rows))
    return sorted(counts)


def in_gaussian_bandits(recorded: Iterable[Recorded]) -> dict[str, Any]:
    """Return evaluations in Gaussian bandits of 25 rounds, by experiment.

    all: the evaluations. own, taught: the experiments whose model learnt from its own games, or from an algorithm's.
    """
    tally: dict[str, Any] = {"own": [], "taught": [], "all": {}}
    for results in recorded:
        for name, evaluations in results.played_in("mab").items():
            if "gaussian-25" in evaluations:
                kind = results.about.experiments[name]["experiment"]["kind"]
                tally["taught" if kind == "distillation" else "own"].append(name)
                tally["all"][name] = evaluations["gaussian-25"]
    return tally


def verdict(interval: Sequence[float | None], invalid: Mapping[str, float] | None = None) -> str:
    """Return what a 95% interval (low, difference, high) of trained minus base says. invalid: of `invalid_replies`."""
    if mostly_invalid(invalid):
        return "says nothing: most replies of the trained model are invalid"
    if None in interval:
        return "cannot be told"
    return {True: "fell", False: "rose", None: "did not change significantly"}[below_zero(interval)]


def mostly_invalid(invalid: Mapping[str, float] | None) -> bool:
    """Return whether most replies of the trained model are invalid, so that its regret is that of chance."""
    return invalid is not None and invalid["trained"] > invalid["most"] / 2


def invalid_replies(results: Recorded, experiment: str, evaluation: str) -> dict[str, float] | None:
    """Return the invalid replies in a round, on average, of the base and the trained model, and the most there can be.

    None of numeric agents.
    """
    chosen = results.about.experiments[experiment]["experiment"]
    if chosen["kind"] == "numeric":
        return None
    players = results.summary[experiment]["exploration"][evaluation]
    found = {player: players[player]["invalid"] for player in ("base", "trained")}
    return found | {"most": 1 + chosen["protocol"]["retries"]}


def often_invalid(results: Recorded) -> dict[str, dict[str, float]]:
    """Return, by experiment and evaluation, the trained models' invalid replies in a round, where they are many."""
    found: dict[str, dict[str, float]] = {}
    for name, metrics in results.metrics.items():
        for evaluation in metrics:
            invalid = invalid_replies(results, name, evaluation)
            if invalid and invalid["trained"] > OFTEN_INVALID:
                found.setdefault(name, {})[evaluation] = invalid["trained"]
    return found


def share(rows: Sequence[Mapping[str, Any]], **values: object) -> str:
    """Return how many of the rows have these values, as `3 of 7`."""
    return f"{sum(all(row[name] == value for name, value in values.items()) for row in rows)} of {len(rows)}"


def counts(results: Recorded, experiments: Sequence[str]) -> dict[str, int]:
    """Count the evaluations of some experiments: of, all; fell, rose: in which regret did so significantly.

    fell_by_holm: those of `fell` whose p, corrected by Holm for all evaluations that are counted, is below .05.
    """
    every = {(name, evaluation): of for name in experiments for evaluation, of in results.metrics[name].items()}
    verdicts = [verdict(of["paired_difference"]) for of in every.values()]
    return {
        "of": len(every),
        "fell": verdicts.count("fell"),
        "rose": verdicts.count("rose"),
        "fell_by_holm": fallen_of(every, [*every], correct=True),
    }


def fallen_of(evaluations: Mapping[Any, Any], names: Sequence[Any], *, correct: bool = False) -> int:
    """Return in how many of the named evaluations regret fell; `correct`: and p, by Holm within all, is below .05."""
    p_values = dict(zip(evaluations, corrected(evaluations, [*evaluations]), strict=True))
    fell = [name for name in names if verdict(evaluations[name]["paired_difference"]) == "fell"]
    return sum(not correct or (p_values[name] is not None and p_values[name] < LEVEL) for name in fell)


def corrected(evaluations: Mapping[Any, Any], names: Sequence[Any]) -> list[float | None]:
    """Return the two-sided p-values of some evaluations, corrected by Holm; None where there is no test."""
    return two_sided_by_holm([evaluations[name]["paired_p"] for name in names])


def not_above_last(results: Recorded, label: str) -> list[str]:
    """Return the methods of a table whose regret is not significantly above that of the table's last method."""
    compared = results.table(label, statistic="difference")
    lows = [results.statistics(label, reward=row["reward"], method=row["method"])["difference_low"] for row in compared]
    return [row["method"] for row, low in zip(compared, lows, strict=True) if low <= 0]


def against_last(results: Recorded, label: str, row: Mapping[str, Any]) -> str:
    """Return by how much a method's regret differs from that of the table's last method, with its interval."""
    found = results.statistics(label, reward=row["reward"], method=row["method"])
    if "difference" not in found:
        return "–"
    return difference([found["difference_low"], found["difference"], found["difference_high"]])


def over_trainings(metrics: Mapping[str, Any], other: Mapping[str, Any]) -> list[float]:
    """Return how far trained models' regrets lie above those of other trainings: low, mean and high of 95%.

    Trainings are paired by their seeds and the only sample (Student's t): all of them play the same instances.
    """
    means = [np.array([training["mean"] for training in of["by_training_seed"]]) for of in (metrics, other)]
    return paired(*means)


def algorithm(metrics: Mapping[str, Any], name: str) -> float:
    """Return the mean regret of an algorithm in an evaluation; `ftrl` stands for FTRL with any step, as `ftrl-25`."""
    found = metrics["algorithms"]
    return found[name if name in found else next(key for key in found if key.startswith(f"{name}-"))]["mean"]


def relative_error(row: Mapping[str, Any]) -> float:
    """Return how far our value in a row of a table is from the paper's, as a share of it."""
    return abs(row["ours"] / row["paper"] - 1)


def _rows(path: Path) -> list[dict[str, Any]]:
    with reading(path), path.open(encoding="utf-8", newline="") as file:
        return [{name: _cell(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _cell(text: str) -> float | str | None:
    try:
        return float(text)
    except ValueError:
        return text or None
