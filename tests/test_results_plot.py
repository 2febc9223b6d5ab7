"""The picture of final regrets: where its axis ends."""

import pandas as pd
import pytest

from rmft.tools.results_plot import FARTHEST, _right_edge


@pytest.mark.parametrize(
    ("regrets", "high", "edge"), [([0.4, 1.3], 1.2, 1.365), ([0.4, 0.8], 1.6, 1.68), ([0.4, 2.45], 0.9, FARTHEST)]
)
def test_the_axis_ends_a_little_beyond_all_that_is_drawn(regrets, high, edge):
    shown, trained = pd.DataFrame({"x": regrets}), pd.DataFrame({"high": [high]})
    assert _right_edge(shown, trained) == pytest.approx(edge)


def test_the_axis_holds_the_base_model_where_no_trained_one_is_drawn():
    assert _right_edge(pd.DataFrame({"x": [0.5]}), pd.DataFrame({"high": []})) == pytest.approx(1.05)
