"""All kinds of experiments, by name."""

from typing import Annotated, get_args

from pydantic import Field

from rmft.params.distillation import DistillationExperiment
from rmft.params.experiment import Experiment
from rmft.params.grpo import GRPOExperiment
from rmft.params.language import EndpointExperiment, LanguageExperiment
from rmft.params.method import MethodExperiment
from rmft.params.numeric import NumericExperiment

AnyExperiment = Annotated[
    NumericExperiment
    | LanguageExperiment
    | EndpointExperiment
    | GRPOExperiment
    | DistillationExperiment
    | MethodExperiment,
    Field(discriminator="kind"),
]
KINDS: dict[str, type[Experiment]] = {
    name: kind
    for kind in get_args(get_args(AnyExperiment)[0])
    for name in get_args(kind.model_fields["kind"].annotation)
}
