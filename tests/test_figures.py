"""Figures: the CSV is what is drawn, and the same data gives the same bytes."""

import numpy as np
import pandas as pd
import pytest
from helpers import played_evaluation

from rmft.figures import DRAWN, draw
from rmft.jobs import figure_job
from rmft.params import load

LABELS = list(load().figures.drawn)


@pytest.fixture
def inputs(tmp_path):
    """Return a function that gives small evaluations or training logs for a figure, in its order."""

    def make(label: str) -> list:
        params = load()
        figure = params.figures.drawn[label]
        if figure.evaluations:
            return [
                played_evaluation(tmp_path / f"{i}.parquet", ["trained", *figure.players])
                for i, _ in enumerate(figure.sources)
            ]
        columns = ("A_b", "C_minus_diagonal", "step", "d", "d_minus_mean")
        log = pd.DataFrame(
            [(t, s, *[t + s] * 5) for t in range(1, 1001) for s in range(5)],
            columns=["iteration", "training_seed", *columns],
        )
        for name in figure.experiments:
            log.to_csv(tmp_path / f"{name}.csv", index=False)
        return [tmp_path / f"{name}.csv" for name in figure.experiments]

    return make


@pytest.mark.parametrize("label", LABELS)
def test_the_csv_holds_every_line_that_is_drawn(inputs, tmp_path, label):
    drawing = draw(figure_job(load(), label, None), inputs(label))
    drawing.save(tmp_path / label)
    written = pd.read_csv(tmp_path / f"{label}.csv")
    curves = [
        group.y.to_numpy()
        for _, group in written[~written.series.str.startswith("band")].groupby(["panel", "player", "series"])
    ]
    drawn = [line.get_ydata() for ax in drawing.axes.flat for line in ax.get_lines()]
    assert len(drawn) == len(curves)
    for line in drawn:
        assert any(len(line) == len(curve) and np.allclose(line, curve) for curve in curves)


@pytest.mark.parametrize("label", ["tfbandit", "parameter"])
def test_the_same_data_gives_the_same_bytes(inputs, tmp_path, label):
    files, job = inputs(label), figure_job(load(), label, None)
    for folder in ("one", "two"):
        draw(job, files).save(tmp_path / folder / label)
    for ending in ("pdf", "png", "csv"):
        assert (tmp_path / f"one/{label}.{ending}").read_bytes() == (tmp_path / f"two/{label}.{ending}").read_bytes()


def test_a_figure_of_a_smaller_scale_says_so_in_itself_and_in_its_metadata(inputs, tmp_path):
    job = figure_job(load(), "tfbandit", "scale smoke: smaller than the paper's, not its result")
    drawing = draw(job, inputs("tfbandit"))
    drawing.save(tmp_path / "tfbandit")
    assert any("scale smoke" in text.get_text() for text in drawing.figure.texts)
    assert b"scale smoke" in (tmp_path / "tfbandit.png").read_bytes()


def test_every_figure_of_the_parameters_can_be_drawn():
    assert set(DRAWN) == set(LABELS)
