"""`rmft eval`: a model is measured on frozen games, outside of the workflow."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from endpoint_servers import TOKEN
from oracle import Oracle
from trees import ROOT

from rmft.artifacts.trajectories import read_trajectories, write_trajectories
from rmft.cli import main
from rmft.evaluation import Instances, evaluate_in_words
from rmft.metrics.power import power
from rmft.package_data import find_file
from rmft.params import load
from rmft.suite.leaderboard import ranked
from rmft.suite.measuring import ReplySettings, mean_interval
from rmft.suite.models import at_hand
from rmft.suite.parts import digest_of, own_part, read_suite
from rmft.suite.results import EvalResult, MeanInterval, Stopping, compared, read_result, write_result

SMALL = ["--environment", "mab", "--process", "gaussian", "--horizon", "4", "--instances", "6"]


@pytest.fixture(autouse=True)
def in_repository(monkeypatch):
    """Run in the repository, where params.yaml and the suite are."""
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def measured_once(tmp_path_factory) -> Path:
    """Return the folder in which the embedded model was measured on a few games; nobody changes it."""
    folder = tmp_path_factory.mktemp("measured") / "one"
    with pytest.MonkeyPatch.context() as here:
        here.chdir(ROOT)
        here.setattr("sys.argv", ["rmft", "eval", "embedded", *SMALL, "--output", str(folder)])
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code
    return folder


@pytest.fixture
def measured(measured_once, tmp_path) -> Path:
    """Return a copy of that folder, of the test's own."""
    return shutil.copytree(measured_once, tmp_path / "one")


def games_in(folder: Path) -> dict:
    (file,) = (folder / "games").glob("*.1-of-1.parquet")
    return read_trajectories(file, tokens=False)


def test_the_games_of_the_suite_are_those_that_were_published():
    suite = read_suite()
    published = json.loads((ROOT / "data/suite/digests.json").read_text(encoding="utf-8"))[str(suite.version)]
    assert published == {level: digest_of(suite, level) for level in suite.levels}, "give the suite a new version"


@pytest.mark.parametrize(
    ("part", "environment", "algorithm", "found"),
    [
        ("bandit-gaussian", "mab", "greedy", 0.9),
        ("full-information", "fol", "hedge", 0.9),
        ("bandit-bernoulli", "mab", "greedy", 0.7),
    ],
)
def test_the_standard_level_finds_a_tenth_of_the_regret_of_uniform_play(part, environment, algorithm, found):
    suite = read_suite()
    assert len(suite.levels["standard"]) == 3
    n = suite.levels["standard"][part]
    instances = Instances(suite.rewards(part, 4000), "power", suite.seed, environment, "nominal")
    none = evaluate_in_words(instances, [], {name: suite.algorithms[name] for name in (algorithm, "uniform")})
    final = np.array([curve[-1] for curve in none["regret"]])
    better, uniform = (final[np.array(none["player"]) == name] for name in (algorithm, "uniform"))
    effect = uniform.mean() / 10 / (uniform - better).std(ddof=1)
    assert round(power(n, effect, alpha=0.025), 1) == found  # one side of a two-sided test at level .05


def test_the_page_about_measuring_has_the_sizes_of_the_suite():
    suite, page = read_suite(), (ROOT / "docs/measure.md").read_text(encoding="utf-8")
    for level, parts in suite.levels.items():
        replies = sum(n * suite.parts[part].T for part, n in parts.items())
        assert re.search(rf"^\| `{level}` .* \| {replies:,} \|$", page, re.MULTILINE)


def test_a_larger_part_begins_like_a_smaller_one():
    suite = read_suite()
    few, many = (suite.rewards("bandit-gaussian", n).rewards for n in (3, 9))
    assert np.array_equal(few, many[:3])


def test_the_regret_is_that_of_the_actions_in_the_games(measured):
    games, (part,) = games_in(measured), read_result(measured).parts.values()
    order = np.argsort(games["scenario"])
    means, actions = (np.array(games[name])[order] for name in ("means", "action"))
    means = means.reshape(6, 4, 3)
    by_hand = [
        sum(max(of[t]) - of[t][a] for t, a in enumerate(plays)) for of, plays in zip(means, actions, strict=True)
    ]
    assert part.final_regrets == pytest.approx(by_hand, abs=1e-6)
    assert part.regret.mean == pytest.approx(np.mean(by_hand))
    uniform = np.mean([(of.max(axis=1) - of.mean(axis=1)).sum() for of in means])
    assert part.references["uniform"].regret.mean == pytest.approx(uniform)
    low, difference, high = part.references["uniform"].difference
    assert difference == pytest.approx(np.mean(by_hand) - uniform)
    assert low < difference < high


def test_a_second_run_plays_nothing_again_and_never_takes_other_games_for_its_own(measured, rmft):
    (file,) = (measured / "games").glob("*.1-of-1.parquet")
    result = read_result(measured)
    elsewhere = result.model_copy(update={"made": result.made.model_copy(update={"machine": "where it was played"})})
    write_result(measured / "eval.json", elsewhere)
    before = file.stat().st_mtime_ns
    assert rmft("eval", "embedded", *SMALL, "--output", str(measured))[0] == 0
    again = read_result(measured)
    assert (file.stat().st_mtime_ns, again.parts, again.made) == (before, result.parts, elsewhere.made)
    for others in (["--temperature", "0.5"], ["--seed", "0"], ["--instances", "5"]):
        code, _, error = rmft("eval", "embedded", *SMALL, *others, "--output", str(measured))
        assert (code, "is of another measurement" in error, error.count("\n")) == (2, True, 1), error
    assert read_result(measured).parts == result.parts


def test_games_that_other_code_played_are_played_again(rmft, tmp_path, monkeypatch):
    arguments = ["eval", "embedded", *SMALL, "--output", str(tmp_path)]
    assert rmft(*arguments)[0] == 0
    monkeypatch.setattr("rmft.suite.measuring.Measurement._code", lambda _: "edited")
    assert rmft(*arguments)[0] == 0
    assert len(list((tmp_path / "games").glob("*.1-of-1.parquet"))) == 2


def test_a_model_that_is_trained_further_in_its_folder_plays_again(rmft, tmp_path):
    model, output = tmp_path / "model", tmp_path / "out"
    shutil.copytree(ROOT / "data/models/embedded", model)
    arguments = ["eval", str(model), *SMALL, "--output", str(output)]
    assert rmft(*arguments)[0] == 0
    text = (output / "eval.json").read_text(encoding="utf-8") + (output / "card.html").read_text(encoding="utf-8")
    assert str(tmp_path) not in text  # a page to send says nothing of this machine's folders
    (model / "README.md").write_text("another file changes nothing")
    config = json.loads((model / "generation_config.json").read_text(encoding="utf-8")) | {"changed": 1}
    (model / "generation_config.json").write_text(json.dumps(config))
    code, _, error = rmft(*arguments)
    assert (code, "of another measurement (model.files.generation_config.json is " in error) == (2, True), error
    (output / "eval.json").unlink()
    assert rmft(*arguments)[0] == 0
    assert len(list((output / "games").glob("*.1-of-1.parquet"))) == 2


def test_a_card_escapes_what_a_model_replies(measured, rmft):
    (file,) = (measured / "games").glob("*.1-of-1.parquet")
    games = read_trajectories(file)
    games["reply"] = [["<script>alert(1)</script>"] * 4] * 6
    write_trajectories(file, games)
    assert rmft("eval", "embedded", *SMALL, "--output", str(measured))[0] == 0
    page = (measured / "card.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>" not in page


def test_the_card_shows_every_number_and_needs_no_other_file(measured):
    page = (measured / "card.html").read_text(encoding="utf-8")
    (part,) = read_result(measured).parts.values()
    assert f"{part.regret.mean:.2f}" in page
    assert all(f"{of.regret.mean:.2f}" in page for of in part.references.values())
    assert page.count("<details>") == 3
    assert not re.findall(r'(?:src|href)="(?!data:)', page)  # a page to send: nothing in it is elsewhere


def test_lineage_verifies_a_measurement(measured, rmft):
    path = str(measured / "eval.json")
    code, printed, _ = rmft("lineage", path)
    assert (code, "model.safetensors, sha256" in printed) == (0, True)
    assert rmft("lineage", str(measured))[1] == printed
    whole = (measured / "eval.json").read_text(encoding="utf-8")
    edited = json.loads(whole)
    edited["parts"]["custom"]["regret"]["mean"] = 0.01
    (measured / "eval.json").write_text(json.dumps(edited), encoding="utf-8")
    code, printed, _ = rmft("lineage", path)
    assert (code, "regrets of custom are not those in" in printed) == (1, True)
    (measured / "eval.json").write_text(whole, encoding="utf-8")
    (file,) = (measured / "games").glob("*.results.parquet")
    file.write_bytes(file.read_bytes() + b" ")
    code, printed, _ = rmft("lineage", path)
    assert (code, "results.parquet is not what was measured" in printed) == (1, True)


def test_two_measurements_are_compared_on_their_common_games_and_ranked(measured, rmft, tmp_path):
    more = [*SMALL[:-1], "8", "--temperature", "0.3", "--output", str(tmp_path / "two")]
    code, printed, error = rmft("eval", "embedded", *more, "--compare", str(measured))
    assert code == 0, error
    ours, theirs = (next(iter(read_result(tmp_path / name).parts.values())) for name in ("two", "one"))
    difference = np.mean(ours.final_regrets[:6]) - np.mean(theirs.final_regrets)
    assert f"{difference:+.2f}" in printed
    (foreign := tmp_path / "other/eval.json").parent.mkdir()
    foreign.write_text('{"score": 1}', encoding="utf-8")
    code, _, error = rmft("leaderboard", str(tmp_path), "--output", str(tmp_path / "page.html"))
    assert (code, error.count("\n")) == (0, 1)
    assert error.startswith(f"passed over: {foreign}: is no result of `rmft eval`")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    names = re.findall(r'<th scope="row">(.*?)</th>', page)
    assert {"embedded (one)", "embedded (two)", "ucb", "uniform"} <= set(names)
    assert "custom, 6 games" in page  # other instances are another table
    assert "custom, 8 games" in page
    assert "3 actions, gaussian rewards, 4 rounds, 8 games; " in page


def test_an_endpoint_is_measured_and_what_was_answered_is_not_asked_again(rmft, tmp_path, server, monkeypatch):
    monkeypatch.setenv("KEY_OF_TEST", TOKEN)
    at = ["--base-url", f"{server.url}/v1", "--key-env", "KEY_OF_TEST", *SMALL, "--output", str(tmp_path / "at")]
    code, _, error = rmft("eval", "embedded", *at)
    assert code == 0, error
    first = read_result(tmp_path / "at")
    assert first.usage["responses"] >= 24
    assert TOKEN not in (tmp_path / "at/eval.json").read_text(encoding="utf-8")
    (file,) = (tmp_path / "at/games").glob("*.1-of-1.parquet")
    file.unlink()  # as if the run had been killed: its journal is there
    monkeypatch.delenv("KEY_OF_TEST")
    code, _, error = rmft("eval", "embedded", *at)
    assert (code, "0 responses" in error) == (0, True), error
    again = read_result(tmp_path / "at")
    assert (again.parts, again.usage) == (first.parts, first.usage)


def test_the_key_that_a_refusal_names_opens_a_server_on_this_machine(rmft, tmp_path, server, monkeypatch):
    at = ["--base-url", f"{server.url}/v1", *SMALL, "--output", str(tmp_path / "at")]
    monkeypatch.delenv("RMFT_API_KEY", raising=False)
    code, _, error = rmft("eval", "embedded", *at)
    assert (code, "the server wants a key" in error, "export RMFT_API_KEY=…" in error) == (2, True, True), error
    monkeypatch.setenv("RMFT_API_KEY", TOKEN)
    assert rmft("eval", "embedded", *at)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["nobody"],
            "nobody: no folder, no GGUF file, no hub repository (owner/name), and no model of params.yaml; those are ",
        ),
        (["embeded"], "no model of params.yaml; did you mean embedded? A model behind an endpoint needs --base-url"),
        (["linear_attention"], "plays numbers, not words; one of embedded"),
        (["absent.gguf"], "absent.gguf: no such file"),
        (["embedded", "--suite", "hard"], "--suite: unknown 'hard'; one of quick, standard, full"),
        (["embedded", "--part", "x"], "--part: unknown 'x'; one of bandit-gaussian, full-information"),
        (
            ["embedded", "--environment", "mab", "--process", "sine-trend"],
            "process 'sine-trend' does not belong in mab",
        ),
        (["m", "--base-url", "localhost:80"], "--base-url: localhost:80: must look like http://localhost:8080/v1"),
        (["m", "--base-url", "http://127.0.0.1:9/v1", "--budget", "3"], "--budget: needs --prices"),
        (["m", "--base-url", "https://example.org/v1"], "say which environment variable holds its key: --key-env NAME"),
        (["m", "--base-url", "https://localhost.example.org/v1"], "say which environment variable holds its key"),
        (["m", "--base-url", "https://127.0.0.1.example.org/v1"], "say which environment variable holds its key"),
        (["m", "--base-url", "http://127.0.0.1:9/v1?key=sk-secret"], "--base-url: must look like"),
        (
            ["m", "--base-url", "http://127.0.0.1:9/v1", "--device", "cpu"],
            "--device: goes with a model that plays here",
        ),
        (["embedded-endpoint", "--device", "cpu"], "--device: embedded-endpoint is a model behind an endpoint"),
        (["embedded", "--device", "cuda:99"], "device: cuda:99: torch finds no such device"),
        (["nobody/nothing", "--device", "gpu"], "--device: 'gpu': must be cpu, cuda or mps, or one of several"),
        (["m", "--base-url", "http:///"], "--base-url: http:///: must look like"),
        (["m", "--base-url", "http://127.0.0.1:9/v1", "--key-env", "my_key"], "--base-url or --key-env: 'my_key'"),
        (["m", "--base-url", "http://127.0.0.1:9/v1", "--prices", "-1,0,0"], "--prices: -1,0,0: must be three numbers"),
        (["embedded", "--budget", "3"], "--budget: goes with --base-url, which is not given"),
        (["embedded", "--horizon", "50"], "--horizon: goes with --environment, which is not given"),
        (["embedded", "--environment", "mab", "--suite", "full"], "--suite: does not go with --environment"),
        (["embedded", "--environment", "mab", "--part", "custom"], "--part: does not go with --environment"),
        (["embedded", "--revision", "main"], "--revision: embedded is no hub repository (owner/name)"),
        (["embedded", "--environment", "fol", "--process", "adaptive"], "adaptive rewards answer policies"),
        (["m", "--base-url", "http://127.0.0.1:9/v1", "--prices", "1,2"], "--prices: 1,2: must be three numbers"),
        (["embedded", "--environment", "mab", "--process", ""], "process: unknown process ''; one of"),
        (["embedded", "--environment", "mab", "--actions", "128"], "Invalid value for '--actions'"),
        (["embedded", "--compare", "absent.json"], "absent.json: no such file"),
        (["embedded", "--compare", "data/suite/digests.json"], "data/suite/digests.json: is no result of `rmft eval`"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(arguments, words, rmft, tmp_path):
    code, _, error = rmft("eval", *arguments, "--output", str(tmp_path / "none"))
    assert (code, words in error, error.count("\n")) == (2, True, 1), error
    assert not (tmp_path / "none").exists()


def test_a_file_that_is_no_gguf_file_starts_no_server(rmft, tmp_path):
    for content in (b"", b"GGML" * 9):
        (tmp_path / "damaged.gguf").write_bytes(content)
        code, _, error = rmft("eval", str(tmp_path / "damaged.gguf"), "--output", str(tmp_path / "none"))
        assert (code, "damaged.gguf: is no GGUF file" in error, error.count("\n")) == (2, True, 1), error


def test_in_another_projects_folder_the_models_are_the_packages_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("lr: 0.1\n", encoding="utf-8")
    assert at_hand("embedded", None, None).settings.kind == "language"


def test_spaces_beside_the_commas_of_processes_are_no_part_of_their_names():
    assert own_part("mab", ["gaussian", " bernoulli "], 3, 25).process == ["gaussian", "bernoulli"]


def test_a_reply_has_room_for_a_policy_over_many_actions():
    limits = [ReplySettings().limit(own_part("fol", ["gaussian"], d, 25)) for d in (6, 20, 127)]
    assert limits == [64, 176, 1032]
    assert ReplySettings().limit(own_part("mab", ["gaussian"], 127, 25)) == 16


def test_a_result_whose_differences_are_all_the_same_is_read_again(rmft, tmp_path):
    games = (
        "--environment",
        "fol",
        "--process",
        "alternating",
        "--max-tokens",
        "1",
        "--horizon",
        "4",
        "--instances",
        "4",
    )
    for expected in ("regret", "uniform"):  # the second time from the file
        code, out, error = rmft("eval", "embedded", *games, "--max-tokens", "1", "--output", str(tmp_path / "same"))
        assert (code, expected in out, "nan" in out) == (0, True, False), error


def test_the_name_of_a_folder_is_no_markup_and_a_slash_at_its_end_no_part_of_it(rmft, tmp_path):
    folder = tmp_path / "my[q4] $x_$"
    shutil.copytree("data/models/embedded", folder)
    games = ("--environment", "mab", "--horizon", "2", "--instances", "4", "--output", str(tmp_path / "measured"))
    code, out, error = rmft("eval", str(folder), *games)
    assert (code, "my[q4] $x_$" in out) == (0, True), error
    assert rmft("eval", f"{folder}/", *games)[0] == 0


def test_a_snakefile_of_another_project_hides_no_file_of_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").touch()
    assert find_file("params.yaml").is_file()
    Path("outputs.yaml").touch()
    assert find_file("params.yaml") == Path("params.yaml")


def test_a_folder_of_results_hides_no_model_of_the_parameters(rmft, tmp_path, monkeypatch):
    for name in ("params.yaml", "outputs.yaml", "extensions", "data"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "embedded").mkdir()
    code, _, error = rmft("eval", "embedded", *SMALL, "--output", "embedded")
    assert code == 0, error
    assert read_result(tmp_path / "embedded").model.name == "embedded"


@pytest.mark.parametrize("name", ["mine", "./mine", "owner/mine"])
def test_a_folder_without_a_model_is_refused_and_no_folder_is_made(rmft, tmp_path, monkeypatch, name):
    for shared in ("params.yaml", "outputs.yaml", "extensions", "data"):
        (tmp_path / shared).symlink_to(ROOT / shared)
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir(parents=True)
    code, _, error = rmft("eval", name, *SMALL)
    assert (code, f"{name}: the folder has no config.json" in error, error.count("\n")) == (2, True, 1), error
    assert not (tmp_path / "evals").exists()


def test_the_same_instances_in_other_words_are_compared(measured, rmft, tmp_path):
    more = [*SMALL, "--prompts", "data/prompts/no-range", "--output", str(tmp_path / "two")]
    code, printed, error = rmft("eval", "embedded", *more, "--compare", str(measured))
    assert code == 0, error
    words = "policy-only, data/prompts"
    assert f"embedded, compared: {words}/plain; embedded: {words}/no-range" in printed
    plain, other = read_result(measured), read_result(tmp_path / "two")
    assert plain.parts["custom"].identity != other.parts["custom"].identity
    assert plain.parts["custom"].instances_identity == other.parts["custom"].instances_identity
    assert other.reply.prompts == "data/prompts/no-range"


def test_a_result_is_not_replaced_by_one_with_other_replies(measured, rmft):
    code, _, error = rmft("eval", "embedded", *SMALL, "--max-tokens", "99", "--output", str(measured))
    assert (code, "is of another measurement (max_tokens is 16 there, and 99 here)" in error) == (2, True), error


def test_other_games_are_not_compared(measured, rmft, tmp_path):
    code, _, error = rmft("eval", "embedded", "--compare", str(measured), "--output", str(tmp_path / "none"))
    assert (code, "embedded played other games (suite 1, custom)" in error) == (2, True), error


def test_a_result_has_the_documented_schema(measured):
    assert EvalResult.model_validate_json((measured / "eval.json").read_text(encoding="utf-8")).schema_version == 1


# --- Stopping early ---


def test_a_measurement_stops_when_it_is_decided_and_says_so(tmp_path, monkeypatch, rmft):
    monkeypatch.setattr(
        "rmft.suite.models.at_hand", lambda *_: Oracle("oracle", load(ROOT / "params.yaml").models["embedded"])
    )
    options = [*SMALL[:-1], "90", "--output", str(tmp_path)]
    code, printed, error = rmft("eval", "embedded", *options, "--stop-when", "decided")
    assert code == 0, error
    (part,) = read_result(tmp_path).parts.values()
    assert len(list((tmp_path / "games").glob("*-of-6.parquet"))) * 15 == part.instances == len(part.final_regrets) < 90
    low, mean, high = part.stopping.anytime["uniform"]
    assert (part.stopping.planned, mean) == (90, pytest.approx(part.references["uniform"].difference[1]))
    assert low < part.references["uniform"].difference[0] < high < 0  # the price of looking after every block
    assert f"Stopped early, decided after {part.instances} of 90 games" in " ".join(printed.split())
    assert f"Stopped early, decided after {part.instances} of 90 games" in (tmp_path / "card.html").read_text(
        encoding="utf-8"
    )
    assert rmft("lineage", str(tmp_path / "eval.json"))[0] == 0
    # Two equal models are never decided. So where the compared result has no more games, the other difference decides.
    compare = ["--stop-when", "decided", "--compare"]
    code, printed, error = rmft("eval", "embedded", *options, *compare, str(tmp_path))
    assert code == 0, error
    (again,) = read_result(tmp_path).parts.values()
    assert (again.final_regrets, again.stopping.anytime["compared"][1]) == (part.final_regrets, 0)
    assert "games, as many as the compared result has. Differences" in " ".join(printed.split())
    whole = str(tmp_path / "whole")
    assert rmft("eval", "embedded", *options[:-1], whole)[0] == 0
    code, _, error = rmft("eval", "embedded", *options, *compare, whole)
    assert code == 0, error
    (longer,) = read_result(tmp_path).parts.values()
    assert (longer.instances, longer.final_regrets[: part.instances]) == (90, part.final_regrets)
    assert longer.stopping.anytime["compared"][1] == 0
    assert compared(read_result(tmp_path), read_result(tmp_path))["custom"][1] == 0
    # A result of all games is not replaced by one that could have fewer.
    code, _, error = rmft("eval", "embedded", *options[:-1], whole, "--stop-when", "decided")
    assert (code, "has all 90 games of custom, and --stop-when could leave fewer" in error) == (2, True), error


def test_a_leaderboard_says_more_only_where_luck_over_all_pairs_is_ruled_out(measured):
    result = read_result(measured)
    ((part, of),) = result.parts.items()

    def with_regrets(regrets, **changes):
        changed = of.model_copy(
            update={"final_regrets": regrets, "regret": MeanInterval(**mean_interval(np.array(regrets))), **changes}
        )
        return result.model_copy(update={"parts": {part: changed}})

    near = with_regrets([0.0, 0.1, 0.2, 0.1, 0.0, 0.2])
    apart = with_regrets([0.5, 0.1, 0.8, 0.6, 0.2, 0.9])  # p = .016 to the one above
    two = ranked({"near": near, "apart": apart})
    many = ranked({"near": near, "apart": apart} | {f"copy {i}": near for i in range(4)})
    differ = [{line["name"]: line["apart"] for line in lines}["apart"] for lines in (*two.values(), *many.values())]
    assert differ == [True, False]
    stopping = Stopping(planned=90, anytime={}, widest=4.0)
    early = with_regrets([0.5, 0.1, 0.8, 0.6, 0.2, 0.9], stopping=stopping)
    ((*_, last),) = ranked({"near": near, "early": early}).values()
    assert not last["apart"]  # six games decide nothing that holds whenever one stops
    low, mean, high = compared(early, near)[part]
    usual = compared(apart, near)[part]
    assert (low < usual[0], mean, high > usual[2]) == (True, pytest.approx(usual[1]), True)
