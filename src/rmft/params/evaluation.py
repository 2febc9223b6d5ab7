"""Held-out reward sets, and what is evaluated on them."""

from typing import Annotated, Self, get_args, get_type_hints

from pydantic import BeforeValidator, ConfigDict, model_validator, with_config

from rmft.algorithms import AlgorithmSettings
from rmft.environments import check_features, check_mixture
from rmft.environments.regret import Mean
from rmft.params.section import Actions, Count, Name, Positive, Section, Several, prefixed

# The record itself belongs to `algorithms`, which does not know pydantic; a YAML map may stand for it.
_Settings = with_config(ConfigDict(extra="forbid", strict=False))(AlgorithmSettings)
HINTS = get_type_hints(AlgorithmSettings)
KINDS = {name: get_args(hint) for name, hint in HINTS.items() if type(None) in get_args(hint)}
SAID = {float: "a number", bool: "true or false", str: "words"}


def _as_written(settings: object) -> object:
    """Return settings of an algorithm. Raise ValueError where one would be converted: "no" is not False, nor true 1."""
    for key, value in settings.items() if isinstance(settings, dict) else ():
        kinds = [kind for kind in KINDS.get(key, ()) if kind in SAID]
        if kinds and value is not None and type(value) not in kinds and (type(value), float) != (int, kinds[0]):
            raise ValueError(f"{key}: must be {' or '.join(SAID[kind] for kind in kinds)}, not {value!r}")
    return settings


Algorithm = Annotated[_Settings, BeforeValidator(_as_written)]


class RewardSet(Section):
    """A stored set of reward tables, held out for evaluation; several processes make an even mixture.

    features: of the context that is shown before each round, where the process has one.
    """

    process: Several
    d: Actions
    features: Count | None = None
    T: Count
    instances: Count

    @model_validator(mode="after")
    def _known(self) -> Self:
        # Whether an environment allows it is checked where an experiment uses the set.
        prefixed("process", check_mixture, self.process)
        prefixed("features", check_features, self.process, self.features)
        return self


class Evaluation(Section):
    """Base model, trained model and reference algorithms on the first instances and rounds of one reward set.

    scenarios: the set of texts that are told, where it is another one than in training. iterations: those before the
    last whose models play as well. temperature: of sampling, where it is another one than in training. replicates: how
    often the base model plays, each time with other random numbers to sample by; each is also that of a training seed.
    """

    rewards: str
    T: Count
    instances: Count
    scenarios: Name | None = None
    algorithms: list[str]
    iterations: list[Count] = []
    temperature: Positive | None = None
    replicates: Count = 1

    def players(self, training_seeds: int) -> list[tuple[str, int]]:
        """Return name and training seed of the models that play in words: base, after some iterations, trained.

        The base model is of no training seed; it plays each replicate.
        """
        seeds, trained = range(training_seeds), [*(f"iteration-{i}" for i in self.iterations), "trained"]
        return [*(("base", r) for r in range(self.replicates)), *((name, seed) for name in trained for seed in seeds)]


class Measures(Section):
    """What all evaluations share: how regret is measured, and the reference algorithms by name."""

    mean: Mean
    floor: Positive | None
    resamples: Count
    algorithms: dict[Name, Algorithm]
