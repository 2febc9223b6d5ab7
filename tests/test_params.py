"""params.yaml: what is wrong is refused in one line that names the key."""

from pathlib import Path

import pytest
import yaml

from rmft.errors import InputError
from rmft.jobs import TrainingJob, evaluation_job, training_job
from rmft.params import load

ROOT = Path(__file__).parents[1]


@pytest.fixture
def edited(tmp_path):
    """Return a function that writes params.yaml with one value changed and gives its path."""

    def edit(key: str, value: object) -> Path:
        values = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
        section = values
        *path, last = key.split(".")
        for part in path:
            section = section[part]
        section[last] = value
        file = tmp_path / "params.yaml"
        file.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
        return file

    return edit


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("experiments.numeric_mab.rmft.selectd", 1, "experiments.numeric_mab.rmft.selectd: unknown key"),
        ("experiments.numeric_mab.rmft.selected", 11, "11 is more than trajectories: 10"),
        ("experiments.numeric_mab.rmft.selected", "two", "experiments.numeric_mab.rmft.selected: Input should be"),
        ("experiments.numeric_mab.rmft.scenarios", 10.5, "experiments.numeric_mab.rmft.scenarios: "),
        (
            "experiments.numeric_mab.T",
            0,
            "experiments.numeric_mab.T: Input should be greater than or equal to 1, not 0",
        ),
        (
            "experiments.numeric_mab.d",
            1,
            "experiments.numeric_mab.d: Input should be greater than or equal to 2, not 1",
        ),
        ("experiments.numeric_mab.process", ["adaptive"], "process 'adaptive' does not belong in mab"),
        ("experiments.numeric_mab.evaluations.gamma.rewards", "adaptive", "process 'adaptive' does not belong in mab"),
        (
            "experiments.numeric_mab.rmft.variance",
            -1.0,
            "experiments.numeric_mab.rmft.variance: Input should be greater",
        ),
        ("experiments.numeric_mab.process", ["gausian"], "unknown process 'gausian'; one of uniform, gaussian"),
        ("experiments.numeric_mab.policy_space", "ball", "goes with environment fol only"),
        ("experiments.numeric_ball.sft.distance", "kl", "on the ball use l2"),
        ("experiments.numeric_mab.evaluations.gamma.T", 101, "101 is more than the 100 rounds of gamma"),
        ("experiments.numeric_mab.evaluations.gamma.instances", 401, "401 is more than the 400 instances of gamma"),
        ("experiments.numeric_mab.evaluations.gamma.algorithms", ["ftl"], "algorithm 'ftl' cannot play mab"),
        (
            "experiments.numeric_mab.model",
            "gpt",
            "experiments.numeric_mab.model: unknown 'gpt'; one of linear_attention",
        ),
        ("evaluation.algorithms.ucb", {"algorithm": "ucb", "eta": 0.1}, "eta belongs to ftrl and hedge and exp3"),
        ("rewards.gamma.T", 50, "100 is more than the 50 rounds of gamma"),
        ("experiments.open_fol.sft.accumulation", 3, "accumulation: 3 must divide batch_size: 4"),
        ("experiments.open_fol.rmft.selected", 11, "11 is more than trajectories: 10"),
        ("experiments.open_fol.kind", "languages", "experiments.open_fol.kind: "),
        ("experiments.open_fol.model", "linear_attention", "unknown 'linear_attention'; one of embedded"),
        ("experiments.open_fol.protocol.output", "actions", "experiments.open_fol.protocol.output: "),
        ("models.qwen3-8b.revision", "main", "models.qwen3-8b.revision: "),
        ("rollouts.shards", 49, "at scale demo: rollouts.shards: 49 is more than the 48 scenarios of open_fol"),
        ("scales.demo", {"language": {"model": "tiny"}}, "at scale demo: experiments.open_fol.model: unknown 'tiny'"),
        ("scales.demo", {"language": {"instances": 500}}, "500 is more than the 400 instances of gaussian"),
        ("scale", "huge", "scale: unknown 'huge'; one of paper, demo, smoke"),
        ("seed", -1, "seed: Input should be greater than or equal to 0, not -1"),
        ("figures.style.colours.ftl", "orange", "figures.style.colours.ftl"),
        ("figures.drawn.tfbandit.players", ["greddy"], "figures.drawn.tfbandit.players: unknown 'greddy'; one of base"),
        ("figures.drawn.tfbandits", {"experiments": ["numeric_mab"]}, "figures.drawn.tfbandits"),
        ("tables.simplex-tabel", {"experiments": []}, "tables.simplex-tabel"),
        ("evaluation.algorithms.unused", {"algorithm": "nonsense"}, "evaluation.algorithms.unused: unknown algorithm"),
        ("experiments.numeric_simplex.radius", 1.0, "a ball needs one, and the simplex has none"),
        ("experiments.numeric_ball.radius", None, "a ball needs one"),
        ("theory.d", [], "theory.d: "),
        ("evaluation.algorithms.trained", {"algorithm": "ftl"}, "names like this are those of models"),
        ("experiments.numeric_mab.evaluations.gamma.algorithms", ["ucb", "ucb"], "algorithms: one is there twice"),
        ("figures.drawn.parameter.experiments", ["numeric_simplex", "numeric_ball"], "one on the ball and one on"),
        ("figures.drawn.tfbandit.evaluations", ["gaussian", "gamma"], "draws one evaluation"),
        ("figures.drawn.simplex-tf-all.players", [], "needs evaluations and players"),
        ("tables.theorem-1.experiments", ["numeric_mab"], "form theorem has none"),
        ("tables.FOL-indist.experiments", [], "form regret has at least one"),
        ("tables.prompt-diversity-ablation.scenarios", [], "form diversity has at least one set"),
        ("tables.prompt-diversity-ablation.scenarios", ["plain"], "scenarios: unknown 'plain'; one of plain-voice"),
        ("experiments.closed_fol.protocol.scenarios", "plain", "protocol.scenarios: unknown 'plain'"),
        ("experiments.closed_fol.model", "embedded", "unknown 'embedded'; one of embedded-endpoint, gpt-4o-mini"),
        ("experiments.open_fol.model", "gpt-4o-mini", "unknown 'gpt-4o-mini'; one of embedded, phi-3-5-mini-instruct"),
        ("experiments.closed_mab.rmft.scenarios", 9, "an endpoint learns from at least 10 conversations"),
        ("experiments.open_fol.evaluations.gaussian.scenarios", "vivid-voice", "games are not told in scenarios"),
        ("models.embedded-endpoint.serves", "gpt-4o-mini", "models.embedded-endpoint.serves: unknown 'gpt-4o-mini'"),
        ("models.embedded-endpoint.serves", None, "names a model for our own server"),
        ("models.gpt-4o-mini.base_urls", ["https://me:secret@there/v1"], "models.gpt-4o-mini.base_urls.0"),
        ("models.gpt-4o-mini.api_key", "sk-what-is-itself-a-key", "models.gpt-4o-mini.api_key"),
        ("experiments.mab_grpo_step.grpo.batch_size", 30, "batch_size: 30 must divide the 1000 games of an iteration"),
        ("experiments.mab_grpo_step.grpo.trajectories", 1, "experiments.mab_grpo_step.grpo.trajectories: "),
        ("experiments.mab_grpo_step.process", ["adaptive"], "process 'adaptive' does not belong in mab"),
        ("figures.drawn.phi-loss.experiments", ["mab_grpo_step"], "and what is selected of them"),
        ("tables.l2ball-table.beside", {"ftrl-52": "ftrl-25"}, "tables.l2ball-table.beside: unknown 'ftrl-52'"),
    ],
)
def test_a_wrong_value_is_refused_with_its_dotted_key(edited, key, value, says):
    with pytest.raises(InputError) as refusal:
        load(edited(key, value))
    message = str(refusal.value)
    assert says in message
    assert "\n" not in message
    assert message.startswith(str(edited(key, value)))


def test_a_misspelt_key_is_named_with_the_one_that_was_meant(edited):
    path = edited("seed", 0)
    path.write_text(path.read_text(encoding="utf-8").replace("seed: 0", "sede: 0", 1), encoding="utf-8")
    with pytest.raises(InputError, match=r"sede: unknown key; did you mean seed\?"):
        load(path)


def test_a_key_given_twice_is_refused(tmp_path):
    twice = tmp_path / "params.yaml"
    twice.write_text("seed: 0\nscale: demo\nseed: 7\n", encoding="utf-8")
    with pytest.raises(InputError, match="'seed' is there twice"):
        load(twice)


def test_text_that_is_no_yaml_and_a_missing_file_are_refused_in_one_line(tmp_path):
    broken = tmp_path / "params.yaml"
    broken.write_text("seed: [0", encoding="utf-8")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(bytes(range(128, 256)))
    for path, says in (
        (broken, "not YAML"),
        (tmp_path / "nowhere.yaml", "no such file"),
        (tmp_path, "not a text file"),
        (binary, "not a text file"),
    ):
        with pytest.raises(InputError, match=says) as refusal:
            load(path)
        assert "\n" not in str(refusal.value)


def test_at_scale_paper_nothing_changes_and_smaller_ones_say_so(edited):
    paper, smoke = load(edited("scale", "paper")), load(edited("scale", "smoke"))
    assert paper.at_scale() == paper
    assert paper.scale_note(["numeric_mab"]) is None
    assert smoke.at_scale().experiments["numeric_mab"].rmft.iterations == 20
    assert "not its result" in smoke.scale_note(["numeric_mab"])
    assert "not its result" in smoke.scale_note([])  # the theory


def test_a_job_is_read_back_from_its_canonical_text():
    job = training_job(load(), "numeric_mixture")
    assert TrainingJob.parse(job.canonical()) == job


@pytest.mark.parametrize(
    ("key", "value", "training_changes", "evaluation_changes"),
    [
        ("experiments.numeric_mab.rmft.selected", 2, True, False),
        ("experiments.numeric_mab.sft.learning_rate", 0.02, True, False),
        ("experiments.numeric_mab.evaluations.gamma.T", 50, False, True),
        ("experiments.numeric_mab.evaluations.gaussian.T", 50, False, False),
        ("experiments.numeric_simplex.rmft.selected", 2, False, False),
        ("evaluation.algorithms.ftl", {"algorithm": "uniform"}, False, False),
        ("evaluation.algorithms.ucb", {"algorithm": "uniform"}, False, True),
        ("figures.style.dpi", 100, False, False),
    ],
)
def test_a_job_depends_on_what_matters_to_it_and_on_nothing_else(
    edited, key, value, training_changes, evaluation_changes
):
    before, after = load(ROOT / "params.yaml"), load(edited(key, value))
    trains = [training_job(params, "numeric_mab").canonical() for params in (before, after)]
    evaluates = [evaluation_job(params, "numeric_mab", "gamma").canonical() for params in (before, after)]
    assert (trains[0] != trains[1]) == training_changes
    assert (evaluates[0] != evaluates[1]) == evaluation_changes
