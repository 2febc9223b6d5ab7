"""Parameters are refused whose conversations exceed what a model can read; no tokenizer is needed to find out."""

from pathlib import Path

import pandas as pd
import pytest
from trees import ROOT

from rmft.errors import InputError
from rmft.params import load
from rmft.workflow.contexts import TURN, EstimatedTokenizer, check_contexts

LENGTHS = Path(__file__).parent / "data" / "message-lengths.csv"  # tokens of our messages, by two models' tokenizers


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("scale", ["paper", "demo"])
def test_every_experiment_fits_what_its_model_can_read(scale):
    check_contexts(load(Path("params.yaml"), scale).at_scale())


def test_replies_that_are_too_long_are_refused_by_name():
    whole = load(Path("params.yaml"), "paper").at_scale()
    longer = whole.models["gemma-2-9b-it"].model_copy(update={"max_tokens": None})
    params = whole.model_copy(update={"models": whole.models | {"gemma-2-9b-it": longer}})
    with pytest.raises(InputError, match=r"experiments\.open_fol: .*gemma-2-9b-it: .* \(128 \+ 1\) .* reads 8192"):
        check_contexts(params)


def test_estimated_lengths_are_hardly_below_those_of_real_tokenizers():
    lengths = pd.read_csv(LENGTHS).set_index("message")
    estimated = [len(EstimatedTokenizer(limit=0).first(message)) - TURN for message in lengths.index]
    ratios = lengths.div(estimated, axis=0)
    assert ratios.max().max() < 1.04
    assert ratios.min().min() > 0.75
    assert (lengths.sum() / sum(estimated)).max() < 1
