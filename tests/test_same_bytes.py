"""The comparison of two built trees, on trees of a few small files."""

from pathlib import Path

from same_bytes import FIGURES, PAGES, artifacts, differences, main


def tree(folder: Path, experiments: str, files: dict[str, str]) -> Path:
    """Write a built checkout: params.yaml with the names of experiments, and some artifacts."""
    for name, text in {"params.yaml": f"experiments: {experiments}", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_trees_of_the_same_bytes_have_no_difference_wherever_experiments_stand(tmp_path):
    common = {"data/rewards/a.npz": "r", "results/metrics.json": "{}", "results/tables/one.csv": "t"}
    old = tree(tmp_path / "old", "{one: {}}", {**common, "results/one/evaluation/a.parquet": "e"})
    new = tree(tmp_path / "new", "{one: {}}", {**common, "results/experiments/one/evaluation/a.parquet": "e"})
    assert list(differences(artifacts(old), artifacts(new))) == []
    assert len(artifacts(new)) == 4


def test_each_artifact_that_differs_is_named_and_figures_and_pages_are_not_compared(tmp_path, monkeypatch, capsys):
    old = tree(
        tmp_path / "old",
        "{one: {}}",
        {"results/one/a.csv": "1", "results/gone.csv": "1", "results/figures/f.png": "1", "results/report.html": "1"},
    )
    new = tree(
        tmp_path / "new",
        "{one: {}}",
        {"results/experiments/one/a.csv": "2", "data/rewards/added.npz": "1", "results/figures/f.png": "2"},
    )
    expected = [
        "only in the new tree: data/rewards/added.npz",
        "other bytes: results/experiments/one/a.csv",
        "only in the old tree: results/gone.csv",
    ]
    left_out = [FIGURES, PAGES]
    assert list(differences(artifacts(old, left_out), artifacts(new, left_out))) == expected
    monkeypatch.setattr("sys.argv", ["same_bytes.py", str(old), str(new)])
    assert main() == 1
    assert capsys.readouterr().out.splitlines() == [*expected, "3 artifacts, 3 differences"]
    monkeypatch.setattr("sys.argv", ["same_bytes.py", str(old), str(new), "--figures", "--pages"])
    assert main() == 1
    assert "5 artifacts, 5 differences" in capsys.readouterr().out
