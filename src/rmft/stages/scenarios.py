"""Stage `scenarios`: a model behind an endpoint writes texts about which games are played.

Reads the template of the prompt, and the journal of the endpoint's responses. Writes the scenarios (jsonl).
"""

from pathlib import Path

from rmft.artifacts.files import noted
from rmft.artifacts.json_files import write_jsonl
from rmft.endpoint.session import journal_of, open_connection, text_generator
from rmft.language.generation import generate
from rmft.language.prompts import read_template
from rmft.progress import now_and_then
from rmft.workflow.records import ScenariosJob


def run(job: ScenariosJob, output: Path) -> None:
    """Have the scenarios of every number of actions written."""
    settings, written, say = job.scenarios, [], now_and_then()
    template, total = read_template(noted(Path(settings.prompt))), settings.count * len(settings.d)
    with open_connection(job.model_name, job.model, job.served, job.model.model, journal_of(output)) as connection:
        ask = text_generator(connection, job.name, settings.temperature, settings.max_tokens)
        for d in settings.d:
            before = list(written)

            def report(new: list[dict], before: list[dict] = before) -> None:
                say(f"scenarios {output}: {len(before) + len(new)} of {total}")

            written += generate(ask, template, settings.count, d, job.seed, before, settings.batch, report)
    write_jsonl(output, written)
