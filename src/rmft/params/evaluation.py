"""Held-out reward sets, and what is evaluated on them."""

from typing import TYPE_CHECKING, Annotated, Self, get_args, get_type_hints

from pydantic import BeforeValidator, ConfigDict, Field, model_validator, with_config

from rmft.algorithms import AlgorithmSettings, check_settings
from rmft.environments import check_features, check_mixture
from rmft.environments.regret import Mean
from rmft.params.section import Actions, Count, Name, Positive, Section, Several, known, prefixed

if TYPE_CHECKING:
    from rmft.params.whole import Params

# The record itself belongs to `algorithms`, which does not know pydantic; a YAML map may stand for it.
_Settings = with_config(ConfigDict(extra="forbid", strict=False))(AlgorithmSettings)
HINTS = get_type_hints(AlgorithmSettings)
OPTIONAL = {name: get_args(hint) for name, hint in HINTS.items() if type(None) in get_args(hint)}
IN_WORDS = {float: "a number", bool: "true or false", str: "words"}
ALGORITHM_FIELDS = {  # descriptions of the fields of AlgorithmSettings
    "algorithm": "The algorithm: ftl, ftrl, hedge, ucb, exp3, rexp3, greedy, thompson-sampling, linucb, uniform, or "
    "one of an extension.",
    "eta": "Step size of ftrl, hedge and exp3: a number; anytime for η_t = √(2 log d / t); T=25 for the constant tuned "
    "to 25 rounds.",
    "gamma": "Exploration of exp3. Default: the paper's.",
    "variation": "V_T of rexp3, on the scale of rewards. Default: each instance's own.",
    "normalise": "Whether ftrl and hedge see rewards in [0, 1], as in the appendix, or in [0, 10] as they are.",
    "alpha": "Width of linucb's confidence bound.",
    "options": "What else an algorithm of an extension takes, by name.",
}


def _as_written(settings: object) -> object:
    """Return settings of an algorithm. Raise ValueError where one would be converted: "no" is not False, nor true 1."""
    for key, value in settings.items() if isinstance(settings, dict) else ():
        kinds = [kind for kind in OPTIONAL.get(key, ()) if kind in IN_WORDS]
        if kinds and value is not None and type(value) not in kinds and (type(value), float) != (int, kinds[0]):
            raise ValueError(f"{key}: must be {' or '.join(IN_WORDS[kind] for kind in kinds)}, not {value!r}")
    return settings


Algorithm = Annotated[_Settings, BeforeValidator(_as_written)]


class RewardSet(Section):
    """A stored set of reward tables, held out for evaluation."""

    process: Several = Field(description="Reward processes; several make an even mixture.")
    d: Actions = Field(description="Number of actions.")
    features: Count | None = Field(
        default=None, description="Features of the context that is shown before each round, where the process has one."
    )
    T: Count = Field(description="Rounds. A longer set begins like a shorter one.")
    instances: Count = Field(description="Instances. A larger set begins like a smaller one.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        # Whether an environment allows it is checked where an experiment uses the set.
        prefixed("process", check_mixture, self.process)
        prefixed("features", check_features, self.process, self.features)
        return self


class Evaluation(Section):
    """Base model, trained model and reference algorithms on the first instances and rounds of one reward set."""

    rewards: str = Field(description="The reward set of `rewards`. Default: the one of the evaluation's name.")
    T: Count = Field(description="Rounds of a game.")
    instances: Count = Field(description="Games of each player.")
    scenarios: Name | None = Field(
        default=None, description="The set of `scenarios` that prompts use, where it is another one than in training."
    )
    algorithms: list[str] = Field(description="Reference algorithms of `evaluation.algorithms` that play as well.")
    iterations: list[Count] = Field(
        default=[], description="Iterations before the last whose models play as well, in experiments in words."
    )
    temperature: Positive | None = Field(
        default=None, description="Temperature of sampling, where it is another one than in training."
    )
    replicates: Count = Field(
        default=1,
        description="How often the base model plays: once, or once for each training seed, each time with the random "
        "numbers of that training seed.",
    )

    def players(self, training_seeds: int) -> list[tuple[str, int]]:
        """Return name and training seed of the models that play in words: base, after some iterations, trained.

        The base model has no training seed; it plays each replicate.
        """
        seeds, trained = range(training_seeds), [*(f"iteration-{i}" for i in self.iterations), "trained"]
        return [*(("base", r) for r in range(self.replicates)), *((name, seed) for name in trained for seed in seeds)]

    def check_size(self, key: str, params: "Params") -> None:
        """Raise ValueError where the reward set is unknown or too small."""
        known(f"{key}.rewards", self.rewards, params.rewards)
        rewards = params.rewards[self.rewards]
        if self.T > rewards.T:
            raise ValueError(f"{key}.T: {self.T} is more than the {rewards.T} rounds of {self.rewards}")
        if self.instances > rewards.instances:
            stored = f"the {rewards.instances} instances of {self.rewards}"
            raise ValueError(f"{key}.instances: {self.instances} is more than {stored}")
        for part in ("algorithms", "iterations"):
            if len({*getattr(self, part)}) < len(getattr(self, part)):
                raise ValueError(f"{key}.{part}: one is there twice")


class Measures(Section):
    """What all evaluations share: how regret is measured, and the reference algorithms by name."""

    mean: Mean = Field(
        description="The mean in the regret of bandits: `nominal`, before rewards are clipped, or `clipped`, of "
        "the clipped rewards."
    )
    floor: Positive | None = Field(
        description="null: fits of growth drop rounds with Regret(t) ≤ 0; a number: fits raise smaller regrets to it."
    )
    resamples: Count = Field(
        description="Bootstrap samples of training seeds and instances, for the standard errors in tables."
    )
    algorithms: dict[Name, Algorithm] = Field(
        description="Reference algorithms, under the names that experiments use; App. `appendix_baseline`."
    )

    def check(self) -> None:
        """Raise ValueError where an algorithm has a model's name, or settings that it does not take."""
        for name, settings in self.algorithms.items():
            if name.startswith(("base", "iteration", "trained")):
                raise ValueError(f"evaluation.algorithms.{name}: names like this are those of models")
            prefixed(f"evaluation.algorithms.{name}", check_settings, settings)
