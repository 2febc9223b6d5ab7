"""params.yaml: what is wrong is refused in one line that names the key."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from trees import OUTPUTS, set_value, values_in, write_values

from rmft.errors import InputError
from rmft.params import load
from rmft.params.language_model import VLLM, LlamaCpp
from rmft.workflow import paths, targets
from rmft.workflow.plan import conversion_job, evaluation_job, held_out_job, rollouts_job, sft_job, training_job
from rmft.workflow.records import TrainingJob

ROOT = Path(__file__).parents[1]


@pytest.fixture
def edited(tmp_path):
    """Return a function that writes params.yaml and outputs.yaml with one value changed and gives the first's path."""
    (tmp_path / "extensions").symlink_to(ROOT / "extensions")

    def edit(key: str, value: object) -> Path:
        write_values(tmp_path, values_in(ROOT))
        set_value(tmp_path, key, value)
        return tmp_path / "params.yaml"

    return edit


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("experiments.numeric_mab.rmft.selectd", 1, "experiments.numeric_mab.rmft.selectd: unknown key"),
        ("experiments.numeric_mab.rmft.selected", 11, "11 is more than trajectories: 10"),
        ("experiments.numeric_mab.rmft.selected", "two", "experiments.numeric_mab.rmft.selected: must be"),
        ("experiments.numeric_mab.rmft.scenarios", 10.5, "experiments.numeric_mab.rmft.scenarios: "),
        (
            "experiments.numeric_mab.T",
            0,
            "experiments.numeric_mab.T: must be greater than or equal to 1, not 0",
        ),
        (
            "experiments.numeric_mab.d",
            1,
            "experiments.numeric_mab.d: must be greater than or equal to 2, not 1",
        ),
        ("experiments.numeric_mab.process", ["adaptive"], "process 'adaptive' does not belong in mab"),
        ("experiments.numeric_mab.evaluations.gamma.rewards", "adaptive", "process 'adaptive' does not belong in mab"),
        (
            "experiments.numeric_mab.rmft.variance",
            -1.0,
            "experiments.numeric_mab.rmft.variance: must be greater",
        ),
        ("experiments.numeric_mab.process", ["gausian"], "unknown process 'gausian'; did you mean gaussian?"),
        ("extensions", ["extensions/nowhere.py"], "extensions: there is no file extensions/nowhere.py"),
        ("extensions", ["extensions/../mine.py"], "extensions.0: must be a Python file below extensions/"),
        ("models.qwen3-8b.revision", "main", "models.qwen3-8b.revision: must be the 40 digits of a commit, not 'main'"),
        ("server.sft.learning_rate", "fast", "server.sft.learning_rate: must be a number, not 'fast'"),
        ("extensions", ["mine/process.py"], "extensions.0: must be a Python file below extensions/"),
        (
            "experiments.open_fol.protocol",
            {"tolerance": 1.0},
            "open_fol.protocol.tolerance: must be less than 1, not 1",
        ),
        ("experiments.numeric_mab.policy_space", "ball", "goes with environment fol only"),
        ("experiments.numeric_ball.sft.distance", "kl", "on the ball use l2"),
        (
            "models.embedded.quantised",
            "nf4",
            "server.sft: method: full: embedded has quantised weights",
        ),
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
        ("models.gpt-4o-mini.base_urls", ["http://127.0.0.1:99999/v1"], "base_urls.0: must look like http://local"),
        ("rollouts.shards", 33, "rollouts.shards: 33 is more than the 16 scenarios of real_mab_gemma"),
        ("scales.demo", {"language": {"model": "tiny"}}, "at scale demo: experiments.open_fol.model: unknown 'tiny'"),
        ("scales.demo", {"language": {"instances": 500}}, "500 is more than the 400 instances of gaussian"),
        ("scale", "0" * 5000, "…'; one of paper, demo, smoke"),
        (
            "experiments.open_mab_gemma.environment",
            "fol",
            "experiments.open_mab_gemma.evaluations.gaussian-50.algorithms: ucb: algorithm 'ucb' cannot play fol",
        ),
        (
            "experiments.mab_l2.varies",
            "open_mab_qwn",
            "experiments.mab_l2.varies: unknown 'open_mab_qwn'; did you mean",
        ),
        (
            "experiments.mab_dpo_regret.setings",
            {},
            "experiments.mab_dpo_regret.setings: unknown key; did you mean setti",
        ),
        ("experiments.mab_dpo_regret.settings.bta", 1, "settings.bta: unknown key; there are beta, learning_rate"),
        ("experiments.mab_dpo_regret.method", "dpoo", "mab_dpo_regret.method: unknown 'dpoo'; one of dpo, or list"),
        ("scale", "huge", "scale: unknown 'huge'; one of paper, demo, smoke"),
        ("seed", -1, "seed: must be greater than or equal to 0, not -1"),
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
        ("figures.drawn.parameter.experiments", ["numeric_simplex", "numeric_ball"], "in this order: one on the ball"),
        ("figures.drawn.sdm-example.experiments", ["open_mab_gemma", "open_mab_qwen"], "must have at most 1 item"),
        (
            "figures.drawn.simplex-tf-all.experiments",
            ["numeric_simplex", "numeric_mab"],
            "numeric_mab is no variant of",
        ),
        ("models.gpt-4o-mini.api_key", "sk-proj-abcdefghijklmnop", "must name an environment variable: capital"),
        ("figures.drawn.tfbandit.evaluations", ["gaussian", "gamma"], "evaluations: must have at most 1 item"),
        (
            "figures.drawn.simplex-tf-all.players",
            [],
            "simplex-tf-all.players: must have at least 1 item",
        ),
        ("tables.theorem-1.experiments", ["numeric_mab"], "tables.theorem-1.experiments: unknown key"),
        ("tables.FOL-indist.experiments", [], "tables.FOL-indist.experiments: must have at least 1 item"),
        ("tables.prompt-diversity-ablation.scenarios", [], "ablation.scenarios: must have at least 1 item"),
        ("tables.prompt-diversity-ablation.scenarios", ["plain"], "scenarios: unknown 'plain'; one of plain-voice"),
        (
            "reasoning.judge",
            "nobody",
            "reasoning.judge: unknown 'nobody'; one of lexical, embedded-endpoint, gpt-4o-mini",
        ),
        (
            "reasoning.of.open_mab_qwen",
            ["gaussian"],
            "reasoning.of.open_mab_qwen: unknown 'gaussian'; one of gaussian-25",
        ),
        ("reasoning.of", {"numeric_mab": ["gaussian"]}, "reasoning.of: unknown 'numeric_mab'; one of open_fol"),
        ("figures.drawn.reasoning-variance.evaluations", ["gamma-100"], "unknown 'gamma-100'; one of gaussian-25"),
        ("figures.drawn.reasoning-variance.players", ["ucb"], "players: unknown 'ucb'; one of base, trained"),
        ("tables.claim-accuracy.experiments", ["closed_fol"], "unknown 'closed_fol'; one of open_mab_qwen, closed_mab"),
        ("experiments.closed_fol.protocol.scenarios", "plain", "protocol.scenarios: unknown 'plain'"),
        ("experiments.closed_fol.model", "embedded", "unknown 'embedded'; one of embedded-endpoint, gpt-4o-mini"),
        ("experiments.open_fol.model", "gpt-4o-mini", "unknown 'gpt-4o-mini'; one of embedded, embedded-narrow, phi"),
        ("experiments.closed_mab.rmft.scenarios", 9, "an endpoint learns from at least 10 conversations"),
        ("experiments.open_fol.evaluations.gaussian.scenarios", "vivid-voice", "games are not told in scenarios"),
        ("models.embedded-endpoint.serves", "gpt-4o-mini", "models.embedded-endpoint.serves: unknown 'gpt-4o-mini'"),
        ("models.embedded-endpoint.serves", None, "names a model for our own server"),
        ("models.gpt-4o-mini.base_urls", ["https://me:secret@there/v1"], "models.gpt-4o-mini.base_urls.0"),
        ("models.gpt-4o-mini.api_key", "sk-what-is-itself-a-key", "models.gpt-4o-mini.api_key"),
        ("experiments.mab_grpo_step.grpo.batch_size", 30, "batch_size: 30 must divide the 1000 games of an iteration"),
        ("experiments.mab_grpo_step.grpo.trajectories", 1, "experiments.mab_grpo_step.grpo.trajectories: "),
        ("experiments.mab_grpo_step.process", ["adaptive"], "process 'adaptive' does not belong in mab"),
        (
            "experiments.open_fol.evaluations.gaussian.rewards",
            "adaptive",
            "experiments.open_fol.evaluations.gaussian.rewards: adaptive rewards answer policies",
        ),
        ("experiments.mab_dpo_regret.method", {"a": 1}, "experiments.mab_dpo_regret.method: "),
        ("experiments.closed_mab.d", 128, "experiments.closed_mab.d: must be less than or equal to 127"),
        ("evaluation.algorithms.exp3", {"algorithm": "exp3", "gamma": True}, "gamma: must be a number, not True"),
        ("evaluation.algorithms.exp3", {"algorithm": "exp3", "gamma": "0.1"}, "gamma: must be a number, not '0.1'"),
        (
            "evaluation.algorithms.ftl",
            {"algorithm": "ftrl", "normalise": "no"},
            "evaluation.algorithms.ftl: normalise: must be true or false, not 'no'",
        ),
        ("figures.drawn.phi-loss.experiments", ["mab_grpo_step"], "needs experiments in words that select"),
        (
            "experiments.mab_l2.evaluations.gaussian-100.iterations",
            [1, 3],
            "iterations: are those before the last; the l",
        ),
        ("experiments.mab_replicates.evaluations.gaussian-50.replicates", 2, "2 of the base model are not the 3 train"),
        ("experiments.mab_l2.varies", "mab_l5", "experiments.mab_l2.varies: unknown 'mab_l5'; one of open_fol"),
        ("experiments.mab_l2.model", "gemma-2-9b-it", "experiments.mab_l2.varies: open_mab_qwen has another model"),
        ("experiments.mab_l2.evaluations.gaussian-100.T", 99, "its evaluation gaussian-100 has another T"),
        ("experiments.mab_l2.evaluations.gaussian-100.instances", 51, "evaluation gaussian-100 has only 50 instances"),
        ("experiments.mab_l5_cold.evaluations.gaussian-100.temperature", None, "is sampled at another temperature"),
        ("experiments.numeric_mab.evaluations.gamma.replicates", 2, "replicates belong to games in words"),
        ("scales.demo.language.experiments.mab_l3", {"trajectories": 3}, "language.experiments: unknown 'mab_l3'"),
        ("quick", {"numeric_mabs": "gamma"}, "quick: unknown 'numeric_mabs'"),
        ("quick", {"numeric_mab": "gamna"}, "quick.numeric_mab: unknown 'gamna'; one of gaussian, gamma"),
        ("tables.entropy.experiments", ["numeric_mab"], "form entropy is of games in words, not numeric_mab"),
        ("tables.replicate-robustness.evaluations", [], "robustness.evaluations: must have at least 1 item"),
        (
            "experiments.mab_distil_greedy.distillation.teacher",
            "gredy",
            "distillation.teacher: unknown 'gredy'; did you mean greedy?",
        ),
        ("experiments.mab_distil_greedy.distillation.teacher", "ftl", "teacher: algorithm 'ftl' cannot play mab"),
        ("experiments.mab_distil_greedy.distillation.budget", "IML2", "experiments.mab_distil_greedy.distillation.bud"),
        ("experiments.mab_distil_greedy.protocol.output", "distribution", "a teacher's actions are told"),
        ("experiments.open_fol.rmft.score", "rewards", "experiments.open_fol.rmft.score: "),
        (
            "tables.selection-scores-mab.evaluations",
            [],
            "scores-mab.evaluations: must have at least 1 item",
        ),
        (
            "tables.selection-scores-mab.experiments",
            ["open_mab_qwen", "numeric_mab"],
            "numeric_mab is no variant of open_mab_qwen",
        ),
        ("tables.selection-scores-mab.experiments", ["open_mab_qwen", "closed_mab"], "closed_mab is no variant"),
        ("tables.qwen-ad-grpo-comparison.beside", {"ours": "ours"}, "beside: unknown 'ours'; one of base, mab"),
        (
            "figures.drawn.luck-in-hindsight.experiments",
            ["mab_distil_greedy"],
            "needs experiments in words that select",
        ),
        ("tables.l2ball-table.beside", {"ftrl-52": "ftrl-25"}, "tables.l2ball-table.beside: unknown 'ftrl-52'"),
    ],
)
def test_a_wrong_value_is_refused_with_its_dotted_key(edited, key, value, says):
    with pytest.raises(InputError) as refusal:
        load(edited(key, value))
    message = str(refusal.value)
    assert says in message
    assert "\n" not in message
    file = "outputs.yaml" if key.partition(".")[0] in OUTPUTS else "params.yaml"
    assert message.startswith(str(edited(key, value).with_name(file)))


@pytest.mark.parametrize(
    ("experiment", "trained", "evaluated", "refused"),
    [
        ("closed_fol", 9, 9, None),
        ("closed_fol", 10, 9, "experiments.closed_fol.d: a policy over 10 actions"),
        ("closed_fol", 9, 12, "experiments.closed_fol.evaluations.gaussian.rewards: a policy over 12 actions"),
        ("closed_mab", 10, 12, None),  # no policy is read
        ("open_fol", 10, 12, None),  # the model is at hand
    ],
)
def test_no_policy_is_read_off_numbers_of_two_digits_at_an_endpoint(experiment, trained, evaluated, refused):
    params = load()
    one = params.experiments[experiment]
    action = one.protocol.model_copy(update={"output": "action"})
    rewards = params.rewards["gaussian"].model_copy(update={"d": evaluated})
    params = params.model_copy(update={"rewards": params.rewards | {"gaussian": rewards}})
    one = one.model_copy(update={"d": trained, "protocol": action})
    with pytest.raises(ValueError, match=re.escape(refused)) if refused else nullcontext():
        one.check(experiment, params)


@pytest.mark.parametrize("key", ["prices", "tuned_prices"])
def test_two_models_of_one_id_have_the_same_prices(edited, key):
    dear = load().models["gpt-4o-mini"]
    free = dict.fromkeys(("input", "cached_input", "output", "training"), 0)
    elsewhere = dear.model_dump(mode="json") | {"base_urls": ["http://localhost:8000/v1"]}
    assert load(edited("models.copy", elsewhere)).models["copy"].prices == dear.prices
    with pytest.raises(InputError, match=rf"models\.copy\.{key}: must be as in models\.gpt-4o-mini\.{key}, since both"):
        load(edited("models.copy", elsewhere | {key: free}))


def test_a_misspelt_key_is_named_with_the_one_that_was_meant(edited):
    path = edited("seed", 0)
    path.write_text(path.read_text(encoding="utf-8").replace("seed: 0", "sede: 0", 1), encoding="utf-8")
    with pytest.raises(InputError, match=r"sede: unknown key; did you mean seed\?"):
        load(path)


def test_a_key_that_is_gone_is_named(tmp_path):
    values = values_in(ROOT)
    del values["seed"], values["conversion"]["prompts"]
    write_values(tmp_path, values)
    (tmp_path / "extensions").symlink_to(ROOT / "extensions")
    with pytest.raises(
        InputError, match=r"params\.yaml: conversion\.prompts: is missing|params\.yaml: seed: is missing"
    ):
        load(tmp_path / "params.yaml")
    values["seed"] = 0
    write_values(tmp_path, values)
    with pytest.raises(InputError, match=r"params\.yaml: conversion\.prompts: is missing"):
        load(tmp_path / "params.yaml")


def test_a_key_given_twice_and_an_alias_are_refused(tmp_path):
    path = tmp_path / "params.yaml"
    for text, says in (
        ("seed: 0\nscale: demo\nseed: 7\n", "line 3: 'seed' is there twice"),
        ("seed: " + "{a: " * 100_000, "line 1: nested more than 100 deep"),
        ("experiments:\n  a: &a {T: 1}\n  b: *a\n", r"line 2: aliases and merges .* inherit with `varies`"),
        ("experiments:\n  a: &a {T: 1}\n  b:\n    <<: *a\n", r"line 4: aliases and merges .* inherit with `varies`"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=says) as refusal:
            load(path)
        assert "\n" not in str(refusal.value)


def test_a_section_of_the_other_file_is_refused(edited):
    path = edited("seed", 0)
    path.write_text(path.read_text(encoding="utf-8") + "report: {story: null, trajectories: 1}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"params\.yaml: report: belongs in outputs\.yaml"):
        load(path)


def test_an_experiment_takes_what_it_does_not_say_from_the_one_it_varies_and_then_from_defaults():
    experiments = load().experiments
    first, variant = experiments["open_mab_qwen"], experiments["mab_l2"]
    assert (variant.sft, variant.protocol, variant.T) == (first.sft, first.protocol, first.T)
    assert (variant.rmft.trajectories, first.rmft.trajectories) == (2, 10)
    assert list(variant.evaluations) == ["gaussian-100"]  # those that it names
    assert variant.evaluations["gaussian-100"].algorithms == first.evaluations["gaussian-100"].algorithms
    assert list(experiments["numeric_ball"].evaluations) == list(experiments["numeric_simplex"].evaluations)
    assert experiments["numeric_ball"].evaluations["gaussian"].rewards == "gaussian"
    assert experiments["mab_grpo_step"].protocol == first.protocol  # of another kind, which has no `sft`


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (
            "defaults.language.rmft.scenarios",
            "many",
            ".rmft.scenarios (which experiments.open_fol inherits): ",
        ),
        ("experiments.numeric_mab.rmft.varianc", 1.0, ".rmft.varianc: unknown key; did you mean variance?"),
        (
            "defaults.language.rmtf",
            {"scenarios": 1},
            ".rmtf (which experiments.open_fol inherits): unknown key; did you mean rmft?",
        ),
        ("experiments.open_mab_qwen.sft.epochs", 0, "experiments.open_mab_qwen.sft.epochs: "),
        ("experiments.mab_l2.each_evaluation.rounds", 3, "mab_l2.evaluations.gaussian-100.rounds: unknown key"),
    ],
)
def test_a_wrong_value_is_named_where_it_is_written(edited, key, value, says):
    with pytest.raises(InputError) as refusal:
        load(edited(key, value))
    assert says in str(refusal.value)


def test_a_scale_leaves_alone_what_an_experiment_is_about(edited):
    demo = load(edited("scale", "demo")).at_scale().experiments
    assert {demo[name].rmft.trajectories for name in ("open_mab_qwen", "open_mab_gemma")} == {8}
    assert [demo[name].rmft.trajectories for name in ("mab_l2", "mab_l5", "mab_l5_cold")] == [2, 5, 5]
    assert demo["open_mab_qwen"].evaluations["gaussian-50"].instances == 100
    assert demo["mab_replicates"].evaluations["gaussian-50"].instances == 50
    smoke = load(edited("scale", "smoke")).at_scale().experiments["mab_l2"]
    assert (smoke.rmft.iterations, smoke.evaluations["gaussian-100"].iterations) == (1, [])


def test_who_plays_in_an_evaluation_and_where_their_games_are():
    params = load()
    assert params.experiments["mab_l2"].evaluations["gaussian-100"].players(1) == [
        ("base", 0), ("iteration-1", 0), ("iteration-2", 0), ("trained", 0),
    ]  # fmt: skip
    assert [*paths.held_out_of(params, "mab_l2", "gaussian-100").values()] == [
        "results/experiments/open_mab_qwen/evaluation/gaussian-100/base.parquet",
        *(
            f"results/experiments/mab_l2/evaluation/gaussian-100/{name}-0.parquet"
            for name in ("iteration-1", "iteration-2", "trained")
        ),
    ]
    names = [Path(path).stem for path in paths.held_out_of(params, "mab_replicates", "gaussian-50").values()]
    assert names == ["base", "base-1", "base-2", "trained-0", "trained-1", "trained-2"]
    replicates = [paths.replicate_of(params, "mab_replicates", "gaussian-50", name) for name in names]
    assert replicates == [0, 1, 2, 0, 1, 2]
    assert paths.replicate_of(params, "mab_l2", "gaussian-100", "iteration-1-0") == 0
    weights = [
        paths.weights_of_player(params, "mab_l2", name) for name in ("base", "base-2", "iteration-1-0", "trained-0")
    ]
    assert weights == [
        [],
        [],
        *([f"results/experiments/mab_l2/seed-0/iteration-{i}/adapter.safetensors"] for i in (1, 3)),
    ]
    everything = targets.everything(params)
    assert len(everything) == len(set(everything))


def test_a_variant_learns_from_the_first_games_of_what_it_varies_where_they_are_the_same_games():
    params = load().at_scale()

    def player(experiment, seed=0, iteration=0):
        shards = targets.shards_of(params, experiment, seed, iteration)
        (folder,) = {Path(path).parents[3].name for path in shards}
        return folder

    assert {player(name) for name in ("open_mab_rerolled", "open_mab_seeds", "mab_dpo_regret", "mab_grpo_step")} == {
        "open_mab_qwen"
    }
    assert player("open_fol_pooled") == "open_fol"
    assert player("mab_l2") == "mab_l2"  # other trajectories
    assert player("open_mab_rerolled", iteration=1) == "open_mab_rerolled"  # another model
    assert player("open_mab_seeds", seed=1) == "open_mab_seeds"
    for own in (targets.training_of(params, "open_fol_pooled"), targets.everything(params.by_request)):
        assert not [path for path in own if "/open_fol/" in path or "/open_mab_qwen/" in path]


def test_the_versions_of_extras_are_on_record_where_a_job_loads_them():
    params, extras = load(), {"gguf", "xllamacpp"}
    name = "gemma-3-270m"
    by_llama_cpp = params.models[name].model_copy(update={"llama_cpp": LlamaCpp()})
    changed = params.model_copy(update={"models": {**params.models, name: by_llama_cpp}})
    assert extras <= conversion_job(params, name).code.libraries.keys()
    assert extras <= rollouts_job(changed, "real_mab_gemma", 0, 0, 1).code.libraries.keys()
    assert not extras & rollouts_job(params, "real_mab_gemma", 0, 0, 1).code.libraries.keys()


def test_a_server_that_plays_changes_what_is_played_and_not_how_a_model_is_trained():
    params = load(ROOT / "params.yaml").at_scale()
    server = VLLM(command=["vllm", "serve"], servers=1, gpus=1, concurrency=8)
    served = params.models["embedded"].model_copy(update={"vllm": server})
    other = params.model_copy(update={"models": {**params.models, "embedded": served}})
    assert rollouts_job(other, "open_mab_qwen", 0, 0, 1).model.vllm == server
    assert sft_job(other, "open_mab_qwen", 0, 1).model == sft_job(params, "open_mab_qwen", 0, 1).model


def test_quick_is_part_of_everything_and_has_an_experiment_of_every_section():
    params = load()
    built, everything = targets.quick(params), targets.everything(params)
    assert set(built) < set(everything)
    assert {params.experiments[name].kind for name in params.quick} == {"numeric", "language", "endpoint"}
    assert "results/experiments/mab_l5/evaluation/gaussian-25.parquet" in built
    assert "results/experiments/mab_l5/seed-0/iteration-1/adapter.safetensors" in built


def test_a_variant_meets_what_it_varies_meets_and_every_replicate_something_else():
    params = load()
    first = held_out_job(params, "open_mab_qwen", "gaussian-100")
    assert held_out_job(params, "mab_l5_cold", "gaussian-100") == first
    assert rollouts_job(params, "mab_l2", 0, 1, 1).stream == rollouts_job(params, "open_mab_qwen", 0, 1, 1).stream
    players = ("base", "base-1", "base-2")
    streams = {held_out_job(params, "mab_replicates", "gaussian-50", player).stream for player in players}
    assert len(streams) == 3
    assert held_out_job(params, "open_mab_qwen", "gaussian-50").stream in streams


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


def test_a_tab_is_refused_with_its_line_and_without_the_parser_s_name_of_the_file(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("seed:\n\t0\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"not YAML: .*line 2") as refusal:
        load(path)
    assert "<unicode string>" not in str(refusal.value)


def test_an_unknown_form_is_refused_with_those_that_there_are(edited):
    with pytest.raises(InputError, match=r"drawn\.tfbandit\.form: unknown 'explore'; one of parameters, .*exploration"):
        load(edited("figures.drawn.tfbandit.form", "explore"))


@pytest.mark.parametrize(("written", "trained"), [(1, 1), (5, 2)])
def test_a_scale_shortens_training_and_never_lengthens_it(edited, written, trained):
    params = load(edited("experiments.closed_fol.rmft", {"iterations": written}))
    assert params.scales["demo"].endpoint.iterations == 2
    assert params.at_scale().experiments["closed_fol"].rmft.iterations == trained


def test_numbers_without_a_point_are_numbers_as_dvc_writes_them(edited):
    path = edited("seed", 0)
    text = path.read_text(encoding="utf-8")
    for number in ("5e-5", "5E-05", "5.e-5"):
        path.write_text(text.replace("learning_rate: 5.0e-05", f"learning_rate: {number}"), encoding="utf-8")
        assert load(path) == load(), number


def test_at_scale_paper_nothing_changes_and_smaller_ones_say_so(edited):
    paper, smoke = load(edited("scale", "paper")), load(edited("scale", "smoke"))
    assert paper.at_scale() == paper
    assert paper.scale_note(["numeric_mab"]) is None
    assert smoke.at_scale().experiments["numeric_mab"].rmft.iterations == 20
    assert "not its result" in smoke.scale_note(["numeric_mab"])
    assert "not its result" in smoke.scale_note([])  # the theory


def test_an_experiment_in_words_needs_no_evaluation_unless_it_tells_the_story(edited):
    path = edited("experiments.open_fol_pooled.evaluations", {})
    values = values_in(path.parent)
    for kind in (values["figures"]["drawn"], values["tables"]):
        for label in [label for label, of in kind.items() if "open_fol_pooled" in of.get("experiments", [])]:
            del kind[label]
    write_values(path.parent, values)
    assert load(path).at_scale().experiments["open_fol_pooled"].evaluations == {}
    set_value(path.parent, "report.story", "open_fol_pooled")
    with pytest.raises(InputError, match=r"report\.story"):
        load(path)


def test_a_scale_is_checked_where_it_is_asked_for_in_place_of_the_files(edited):
    path = edited("scales.paper", {"language": {"sft": {"learning_ratee": 1}}})
    assert load(path).scale == "demo"
    assert load(path, scale="smoke").scale == "smoke"
    for scale, says in (
        ("paper", r"scales\.paper\.language\.sft\.learning_ratee: unknown key"),
        ("huge", "scale: unknown 'huge'"),
    ):
        with pytest.raises(InputError, match=says) as refusal:
            load(path, scale=scale)
        assert "\n" not in str(refusal.value)


def test_replies_are_examined_of_the_base_model_once_and_of_each_seeds_trained_model():
    params = load()
    for experiment, evaluation, games in (
        ("mab_l2", "gaussian-100", ["base", "trained-0"]),  # which plays models between them as well
        ("mab_replicates", "gaussian-50", ["base", "trained-0", "trained-1", "trained-2"]),
    ):
        examined = paths.examined_of(params, experiment, evaluation)
        assert [Path(path).stem for path in examined] == games


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
