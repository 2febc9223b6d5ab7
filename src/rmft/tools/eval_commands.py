"""Sub-commands of `rmft` that measure any model: eval, leaderboard, luck. They alone print."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from rmft.errors import InputError, refuse_options
from rmft.language.protocol import MOST_TOKENS
from rmft.suite import DEFAULT_LEVEL, DEFAULTS, FILE, MOST_ACTIONS, MOST_GAMES, MOST_ROUNDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from rmft.params.endpoint import Prices
    from rmft.suite.measuring import Measurement, PlayedPart
    from rmft.suite.results import EvalResult, Interval, PartResult

TOOLS = "Measure a model"
ENDPOINT, OWN = "A model behind an endpoint", "Games of one's own, in place of the suite"
app = typer.Typer()


@app.command("eval", rich_help_panel=TOOLS)
def evaluate(
    model: Annotated[
        str, Argument(help="A hub repository, a folder, a GGUF file, a model of params.yaml, or an endpoint's model.")
    ],
    suite: Annotated[
        str | None, Option(help=f"quick, standard or full: how many games of which kinds. Default: {DEFAULT_LEVEL}.")
    ] = None,
    part: Annotated[list[str] | None, Option(help="Only this part of the suite. May be repeated.")] = None,
    compare: Annotated[Path | None, Option(help="An earlier eval.json, perhaps of the model before training.")] = None,
    stop_when: Annotated[
        Literal["decided"] | None,
        Option(help="Stop a part as soon as its differences to uniform play and --compare are significant."),
    ] = None,
    output: Annotated[Path | None, Option(help="The folder of the results. Default: named after the model.")] = None,
    seed: Annotated[
        int | None, Option(min=0, help="A private root of the rewards. Default: the suite's, which is public.")
    ] = None,
    prompts: Annotated[
        Path | None, Option(help="A folder of templates that tell the games. Default: data/prompts/plain.")
    ] = None,
    reasoning: Annotated[bool, Option("--reasoning", help="Let the model reason before each decision.")] = False,
    max_tokens: Annotated[
        int | None, Option(min=1, max=MOST_TOKENS, help="Tokens of a reply. Default: what its form needs.")
    ] = None,
    temperature: Annotated[float, Option(min=0.01, max=100, help="The temperature at which the model samples.")] = 1.0,
    revision: Annotated[str | None, Option(help="A commit of the hub repository. Default: the newest.")] = None,
    device: Annotated[
        str | None,
        Option(
            help="Where the model is loaded: cpu, cuda, mps, or one of several, such as cuda:1. Default: as params.yaml"
            " says; of other models, the CPU."
        ),
    ] = None,
    base_url: Annotated[
        str | None, Option(help="The endpoint's address, such as http://localhost:8080/v1.", rich_help_panel=ENDPOINT)
    ] = None,
    key_env: Annotated[
        str | None,
        Option(
            help="The environment variable with the API key. Default: OPENAI_API_KEY for OpenAI, RMFT_API_KEY here.",
            rich_help_panel=ENDPOINT,
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        Option(
            min=1,
            help="Simultaneous requests, for a server on this machine no more than its slots. Default: 16.",
            rich_help_panel=ENDPOINT,
        ),
    ] = None,
    token_limit: Annotated[
        Literal["max_completion_tokens", "max_tokens"] | None,
        Option(
            help="What requests call the most tokens of a reply. Default: max_completion_tokens; some servers know the "
            "older max_tokens alone.",
            rich_help_panel=ENDPOINT,
        ),
    ] = None,
    prices: Annotated[
        str | None,
        Option(metavar="IN,CACHED,OUT", help="Dollars for a million tokens.", rich_help_panel=ENDPOINT),
    ] = None,
    budget: Annotated[
        float | None, Option(min=0, help="Dollars; the run stops before it spends more.", rich_help_panel=ENDPOINT)
    ] = None,
    environment: Annotated[
        Literal["fol", "mab", "ns-mab"] | None, Option(help="Environment.", rich_help_panel=OWN)
    ] = None,
    process: Annotated[
        str | None,
        Option(help=f"Reward process; several, with commas. Default: {DEFAULTS.process}.", rich_help_panel=OWN),
    ] = None,
    actions: Annotated[
        int | None,
        Option(
            min=2, max=MOST_ACTIONS, help=f"d, the number of actions. Default: {DEFAULTS.actions}.", rich_help_panel=OWN
        ),
    ] = None,
    horizon: Annotated[
        int | None,
        Option(
            min=1, max=MOST_ROUNDS, help=f"T, the rounds of a game. Default: {DEFAULTS.horizon}.", rich_help_panel=OWN
        ),
    ] = None,
    instances: Annotated[
        int | None,
        Option(
            min=4, max=MOST_GAMES, help=f"Games of each player. Default: {DEFAULTS.instances}.", rich_help_panel=OWN
        ),
    ] = None,
) -> None:
    """Measure how much a model regrets, beside algorithms on the same games; write eval.json and a page to share.

    Examples: `rmft eval embedded` · `rmft eval model.gguf` · `rmft eval qwen --base-url http://localhost:8080/v1`
    """
    from urllib.parse import urlsplit

    from rmft.language.prompts import Prompts
    from rmft.params import load_extensions
    from rmft.params.endpoint import TOKEN_LIMIT
    from rmft.suite.measuring import Measurement, ReplySettings
    from rmft.suite.models import at_hand, at_url
    from rmft.suite.parts import CUSTOM, read_suite
    from rmft.suite.results import read_result

    chosen, level = read_suite(), DEFAULT_LEVEL if suite is None else suite
    if prompts is not None:
        Prompts.load(prompts)
        chosen = chosen.model_copy(update={"prompts": prompts.as_posix()})
    own = {"--process": process, "--actions": actions, "--horizon": horizon, "--instances": instances}
    if environment is not None:
        load_extensions()
        refuse_options({"--suite": suite, "--part": part or None}, "does not go with --environment")
        chosen = chosen.with_own_games(environment, process, actions, horizon, instances)
        level = CUSTOM
    else:
        refuse_options(own, "goes with --environment, which is not given")
    chosen = chosen.only(level, part or [])
    if seed is not None:
        chosen = chosen.model_copy(update={"seed": seed})
    other = read_result(compare) if compare else None
    if base_url is None:
        at_endpoint = {"--key-env": key_env, "--concurrency": concurrency, "--token-limit": token_limit}
        refuse_options(
            at_endpoint | {"--prices": prices, "--budget": budget}, "goes with --base-url, which is not given"
        )
        measured = at_hand(model, revision, device)
    else:
        refuse_options(
            {"--revision": revision, "--device": device}, "goes with a model that plays here, not with --base-url"
        )
        charged = _prices(prices, budget), budget
        measured = at_url(model, base_url, key_env, concurrency or 16, *charged, token_limit or TOKEN_LIMIT)
    reply = ReplySettings(ReplySettings.form(reasoning=reasoning), max_tokens, temperature)
    if output is None:
        words = [measured.name, base_url and urlsplit(base_url).netloc, revision and revision[:8], level, *(part or [])]
        sizes = {"actions": actions, "rounds": horizon, "games": instances}
        words += [environment, process, *(f"{value}-{name}" for name, value in sizes.items() if value)]
        words += [None if seed is None else f"seed-{seed}"]
        words += [prompts and prompts.name, reasoning and "reasoning", max_tokens and f"{max_tokens}-tokens"]
        output = _folder_named(*words, temperature != 1 and temperature)
    _measure(Measurement(measured, chosen, level, reply, output, stop=stop_when is not None), other)


def _folder_named(*words: object) -> Path:
    """Return the folder of a measurement whose options have these words; those that are not given are falsy."""
    return Path("evals", re.sub(r"[^A-Za-z0-9.]+", "-", " ".join(str(word) for word in words if word)).strip("-"))


def _play(measurement: "Measurement", part: str, compared_with: "Sequence[float] | None") -> "PlayedPart":
    """Have a part played, and say what an endpoint was asked for it."""
    from rmft.suite.measuring import play_part

    played = play_part(measurement, part, compared_with)
    if played.requests:
        print(f"eval {part}: {played.requests}", file=sys.stderr)
    elif measurement.model.settings.kind == "endpoint":
        before = f"all games are on record in {measurement.folder}, and {measurement.model.name} was asked nothing"
        print(f"eval {part}: {before}; where another model answers now, --output FOLDER plays anew", file=sys.stderr)
    return played


def _measure(measurement: "Measurement", other: "EvalResult | None") -> None:
    """Play all parts, and write and print what came out. other: a result to compare with."""
    from rmft.suite.card import write_card
    from rmft.suite.results import (
        compared,
        refuse_other_measurement,
        regrets_to_compare,
        result_of,
        write_result,
    )
    from rmft.tools.terminal import print_tables

    there = measurement.suite.instances(measurement.level)
    compared_with = regrets_to_compare(measurement, other) if other else {}
    refuse_other_measurement(measurement)
    games = ", ".join(f"{n} games of {part}" for part, n in there.items())
    most = "at most " if measurement.stop else ""
    print(f"eval {measurement.model.name}: {most}{games}: {_expected(measurement)}", file=sys.stderr)
    try:
        played = {part: _play(measurement, part, compared_with.get(part)) for part in there}
    except KeyboardInterrupt:
        print(f"eval: {measurement.folder} has what was played; run the same command again to go on", file=sys.stderr)
        raise
    result = result_of(measurement, played)
    path = measurement.folder / FILE
    write_result(path, result)
    comparison = compared(result, other) if other else {}
    name = f"{other.model.name}, compared" if other else None
    card = write_card(measurement, result, played, comparison, name)
    print_tables(*_tables(result, comparison, name), LEGEND)
    if other and other.reply.words != result.reply.words:
        print(f"{name}: {other.reply.words}; {result.model.name}: {result.reply.words}")
    if result.usage:
        print(_used(result.usage))
    print(f"{path}: all numbers; {card}: a page to look at and to share")


def _used(usage: "dict[str, float | None]") -> str:
    """Return what an endpoint was asked, in a line."""
    dollars = usage["dollars"]
    line = (
        "{responses:,.0f} replies; {prompt:,.0f} tokens sent, {cached:,.0f} of them cached; {completion:,.0f} received"
    )
    return line.format(**usage) + ("" if dollars is None else f"; ${dollars:,.4f}")


def _expected(measurement: "Measurement") -> str:
    """Return how much there is to play, and at an endpoint about how many tokens and dollars that takes."""
    from rmft.endpoint.budget import cost

    replies = f"{measurement.replies:,} replies{' if no game is left out' if measurement.stop else ''}, or a few more"
    if measurement.model.settings.kind == "language" or measurement.model.gguf:
        return replies
    usage, prices = measurement.usage(), measurement.model.settings.prices
    dollars = f", ${cost(usage, prices):,.2f} without a cache" if prices.input else ""
    return f"{replies}, about {usage.prompt:,} tokens sent and {usage.completion:,} received{dollars}"


LEGEND = (
    "Mean final regret with its 95% interval; 0 is as good as always playing the best action. "
    "Difference: the model's regret less that of the player on the same games, with its 95% interval."
)


def _tables(result: "EvalResult", comparison: "dict[str, Interval]", other: str | None) -> "Iterator[Table | str]":
    """Yield a table for each part, and how the model played there."""
    from rich.markup import escape

    from rmft.tools.terminal import empty_table, interval

    for part, of in result.parts.items():
        table = empty_table(f"{part}: {of.instances} games of {of.rounds} rounds")
        for header in ("", "regret", "95%", "difference", "95%"):
            table.add_column(header, justify="right" if header else "left", no_wrap=True)
        table.add_row(
            escape(result.model.name), f"{of.regret.mean:.2f}", f"[{of.regret.low:.2f}, {of.regret.high:.2f}]"
        )
        if part in comparison:
            low, mean, high = comparison[part]
            table.add_row(escape(other), "", "", f"{mean:+.2f}", interval(low, high))
        for name, reference in sorted(of.references.items(), key=lambda one: one[1].regret.mean):
            (low, mean, high), own = reference.difference, reference.regret
            table.add_row(
                name,
                f"{own.mean:.2f}",
                f"[{own.low:.2f}, {own.high:.2f}]",
                f"{mean:+.2f}",
                interval(low, high),
            )
        yield from (table, "\n".join(filter(None, [_explored(of), of.on_stopping, " "])))


def _explored(of: "PartResult") -> str:
    """Return how the model played, in a line."""
    growth = "" if of.exponent is None else f"; regret grows like t^{of.exponent:.2f}"
    return (
        f"best action in {of.best_action:.0%} of rounds; SuffFailFreq {of.suffix_failures:.0%}; d·MinFrac "
        f"{of.min_frac:.2f}{growth}; {of.invalid_replies:.2f} invalid replies a round{_warning(of)}"
    )


def _warning(of: "PartResult") -> str:
    """Return a warning where the model's regret says little of the model."""
    if not of.says_little:
        return ""
    return (
        f"\nchance decided {of.chance:.0%} of rounds, after invalid replies: try a larger --max-tokens, or --reasoning"
    )


def _prices(text: str | None, budget: float | None) -> "Prices":
    """Return prices from three numbers with commas. Raise InputError for other texts, or a budget without prices."""
    from rmft.params.endpoint import Prices
    from rmft.suite.models import FREE

    if text is None:
        if budget is not None:
            raise InputError("--budget: needs --prices, to know what a token costs")
        return FREE
    try:
        read, cached, written = map(float, text.split(","))
        return Prices(input=read, cached_input=cached, output=written, training=0.0)
    except ValueError:  # pydantic's errors are such, too
        raise InputError(f"--prices: {text}: must be three numbers, such as 0.15,0.075,0.6") from None


@app.command(rich_help_panel=TOOLS)
def leaderboard(
    folder: Annotated[Path, Argument(help="A folder with results of `rmft eval`, below which all are read.")],
    output: Annotated[Path, Option(help="The page to write.")] = Path("leaderboard.html"),
) -> None:
    """Rank all that `rmft eval` measured, as a page: models, algorithms, and which differences are significant."""
    from rmft.suite.card import write_leaderboard
    from rmft.suite.leaderboard import ranked, read_all

    results = read_all(folder)
    write_leaderboard(output, results, ranked(results))
    print(f"{output}: {len(results)} measurements")


@app.command(rich_help_panel=TOOLS)
def luck(
    file: Annotated[Path, Argument(help="rollouts.parquet, selection.parquet, or JSON lines (docs/measure.md).")],
    keep: Annotated[
        str | None, Option(help="best:K/L or best:K of each group. Default: what the file says was selected.")
    ] = None,
    regret: Annotated[
        Literal["realized", "expected"] | None,
        Option(help="What selects rollouts: actions or policies. Default: as their experiment says."),
    ] = None,
) -> None:
    """Say how much of the selected trajectories' advantage is left where rewards are drawn again.

    Example: `rmft luck results/experiments/open_mab_qwen/seed-0/iteration-0/rollouts.parquet --keep best:1/4`
    """
    from rich.console import Console

    from rmft.tools.luck import Keep, as_text, selection_in

    selection = selection_in(file, Keep.parse(keep) if keep else None, regret)
    Console(highlight=False, soft_wrap=True).print(*as_text(selection), sep="\n")
