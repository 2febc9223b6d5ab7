"""docs/paper-map.md: every label of the paper has a place that is there."""

import pytest
from trees import ROOT

from rmft.params import load
from rmft.tools.paper_labels import PaperLabel, read_labels
from rmft.tools.paper_map import PAGE, Place, page, places_of, problems, read_map


@pytest.fixture(scope="module")
def params():
    return load(ROOT / "params.yaml")


def test_every_label_of_the_paper_has_a_place_and_every_place_is_there(params):
    assert problems(read_labels(ROOT), read_map(ROOT), params, ROOT) == []


def test_the_page_is_up_to_date(params):
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(ROOT, params), "make it again: rmft paper-map"


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        (None, "sec:one: has no place"),
        (Place(code=["src/rmft/nowhere.py"]), "sec:one: there is no src/rmft/nowhere.py"),
        (Place(code=["src/rmft/workflow/paths.py:nothing"]), "sec:one: there is no src/rmft/workflow/paths.py:nothing"),
        (Place(params=["rewards.gaussian.nothing"]), "sec:one: params.yaml has no rewards.gaussian.nothing"),
        (Place(build=["results/figures/nothing.csv"]), "sec:one: there is no target results/figures/nothing.csv"),
        (Place(build=["exp_nothing"]), "sec:one: there is no target exp_nothing"),
    ],
)
def test_a_label_without_a_place_and_a_place_that_is_not_there_are_found(params, place, problem):
    mapped = {} if place is None else {"sec:one": place}
    assert problems([PaperLabel("sec:one", "section", "1")], mapped, params, ROOT) == [problem]


def test_a_place_of_no_label_is_found(params):
    assert problems([], {"fig:mine": Place(open="mine")}, params, ROOT) == ["fig:mine: is no label of the paper"]


def test_the_state_of_a_figure_is_what_the_parameters_draw(params):
    drawn, undrawn = PaperLabel("fig:simplex_tf_all", "figure", "1"), PaperLabel("fig:no-such", "figure", "1")
    in_words = PaperLabel("fig:phi-loss", "figure", "1")
    labels = [drawn, in_words, undrawn]
    places = places_of(labels, {label.label: Place(open="to do") for label in labels}, params)
    assert places[drawn.label].state == "built, at the paper's size"
    assert places[in_words.label].state == "built, at scale demo"
    assert places[drawn.label].build == ["results/figures/simplex-tf-all.csv"]
    assert places[undrawn.label].state == "open: to do"
    assert places_of([undrawn], {}, params) == {}


def test_what_the_paper_does_not_have_is_on_the_page_too(params):
    ours = page(ROOT, params).split("## Not in the paper")[1]
    assert "| `luck-in-hindsight` | figure |" in ours
    assert "| `tfbandit` | figure |" not in ours


@pytest.mark.parametrize("values", [{"differs": "a", "open": "b"}, {}])
def test_a_place_has_one_state(values):
    with pytest.raises(ValueError, match=r"has two states|has no code"):
        Place.model_validate(values)
