"""DPO on regret, an extension: against pairs and losses worked out here. Two scenarios of three trajectories."""

import copy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from rmft import extensions
from rmft.agents.weights import load_pretrained
from rmft.artifacts.tensors import write_tensors
from rmft.errors import InputError
from rmft.params import load
from rmft.workflow.plan import method_job
from rmft.workflow.records import MethodJob

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft calls transformers by an old name

ROOT = Path(__file__).parents[1]
FILE = "extensions/dpo.py"
REGRETS = np.array([3.0, 1.0, 2.0, 5.0, 5.0, 5.5])
PAIRS = [(1, 0), (3, 5)]  # best and worst of each scenario; of equal regrets the first
BETA = 0.1


@pytest.fixture(scope="module", autouse=True)
def params():
    found = load(ROOT / "params.yaml")
    extensions.load([FILE], ROOT)
    return found


@pytest.fixture(scope="module")
def job(params) -> MethodJob:
    """Return the job of the embedded model, which takes one large step of plain gradient descent at a time."""
    of = method_job(params.model_copy(update={"scale": "smoke"}).at_scale(), "mab_dpo_regret", 0, 0)
    steps = {"method": "full", "batch_size": 2, "epochs": 2, "learning_rate": 1e-3, "schedule": "constant"}
    sft = of.sft.model_copy(update={**steps, "gradient_checkpointing": False})
    model = of.model.model_copy(update={"weights": str(ROOT / of.model.weights)})
    settings = of.settings | {"learning_rate": None}
    return of.model_copy(update={"sft": sft, "model": model, "settings": settings})


@pytest.fixture(scope="module")
def trajectories() -> dict[str, list]:
    """Return random conversations of 9 to 14 tokens, about half of them the model's."""
    numbers = np.random.default_rng(0)
    lengths = [9, 14, 11, 12, 10, 13]
    return {
        "scenario": [0, 0, 0, 7, 7, 7],
        "ids": [[numbers.integers(10, 500, n).tolist()] for n in lengths],
        "replied": [[[False, *(numbers.random(n - 1) < 0.5).tolist()]] for n in lengths],
    }


def train(job, trajectories, start=None):
    return extensions.METHODS["dpo"].train(job, trajectories, {"regret": REGRETS}, start, lambda *_: None)


def log_probability(model, ids, chosen) -> torch.Tensor:
    """Return log π of the tokens that the model chose, each given all tokens before it."""
    likely = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    return likely[range(len(ids) - 1), ids[1:]][torch.tensor(chosen[1:])].sum()


def loss(model, reference, trajectories) -> torch.Tensor:
    """Return the mean DPO loss of PAIRS."""

    def ratio(row: int) -> torch.Tensor:
        conversation = trajectories["ids"][row][0], trajectories["replied"][row][0]
        with torch.no_grad():
            before = log_probability(reference, *conversation)
        return log_probability(model, *conversation) - before

    return torch.stack([-logsigmoid(BETA * (ratio(best) - ratio(worst))) for best, worst in PAIRS]).mean()


def test_the_loss_of_each_step_is_that_of_pairs_of_lowest_and_highest_regret(job, trajectories):
    log = train(job, trajectories).log
    model, _ = load_pretrained(job.model)
    model, reference = model.train(), copy.deepcopy(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=tuple(job.sft.betas), weight_decay=0.0)
    expected = []
    for _ in range(2):
        optimiser.zero_grad()
        value = loss(model, reference, trajectories)
        expected.append(value.item())
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), job.sft.max_grad_norm)
        optimiser.step()
    assert expected[0] == pytest.approx(np.log(2))
    np.testing.assert_allclose([row["loss"] for row in log], expected, rtol=2e-4)
    assert log[1]["margin"] > 0
    assert log[1]["accuracy"] == 1.0


def test_an_adapter_goes_on_from_the_one_that_played_which_is_the_reference(job, trajectories, tmp_path):
    adapted = job.model_copy(update={"sft": job.sft.model_copy(update={"method": "lora"})})
    first = train(adapted, trajectories)
    write_tensors(tmp_path / "adapter.safetensors", first.tensors, first.metadata)
    second = train(adapted, trajectories, tmp_path / "adapter.safetensors")
    assert second.log[0]["loss"] == pytest.approx(np.log(2))
    assert first.tensors.keys() == second.tensors.keys()
    moved = [name for name in first.tensors if not torch.equal(first.tensors[name], second.tensors[name])]
    assert len(moved) == len(first.tensors)


def test_its_own_learning_rate_takes_the_place_of_that_of_fine_tuning(job, trajectories):
    own = job.model_copy(update={"settings": job.settings | {"learning_rate": 2e-5}})
    assert [row["learning_rate"] for row in train(own, trajectories).log] == [2e-5, 2e-5]


@pytest.mark.parametrize("key", ["settings", "sft"])
def test_a_loss_that_diverges_names_the_learning_rate_that_is_in_force(key, job, trajectories):
    far = job.sft.model_copy(update={"max_grad_norm": 0.0, "learning_rate": 1e30})
    own = job.settings | {"learning_rate": 1e30 if key == "settings" else None}
    with pytest.raises(InputError, match=rf"^{key}\.learning_rate: at 1e\+30 the loss diverges"):
        train(job.model_copy(update={"sft": far, "settings": own}), trajectories)


def test_the_same_arguments_give_the_same_weights(job, trajectories):
    one, other = train(job, trajectories), train(job, trajectories)
    assert all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


@pytest.mark.parametrize(
    ("changes", "regrets", "reason"),
    [
        ({}, np.ones(6), "in every scenario all trajectories have the same regret"),
        ({"ids": [[[1], [2]]] * 6}, REGRETS, "set it to dialogue"),
    ],
)
def test_trajectories_that_cannot_be_compared_are_refused(trajectories, changes, regrets, reason):
    pairs_of = sys.modules["rmft_extension:extensions/dpo"].pairs_of
    with pytest.raises(InputError, match=reason):
        pairs_of({**trajectories, **changes}, regrets)


def test_a_conversation_that_is_longer_than_the_context_is_refused(job, trajectories):
    longer = {**trajectories, "ids": [[one[0] * 2] for one in trajectories["ids"]]}
    longer["replied"] = [[one[0] * 2] for one in trajectories["replied"]]
    short = job.model_copy(update={"model": job.model.model_copy(update={"context": 20})})
    with pytest.raises(InputError, match=r"^T: a conversation has 28 tokens, the context 20; play fewer rounds$"):
        train(short, longer)


@pytest.mark.parametrize("settings", [{"beta": 0.0}, {"beta": "0.1"}, {"gamma": 1.0}])
def test_settings_that_dpo_does_not_have_are_refused(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        extensions.METHODS["dpo"].complete(settings)
