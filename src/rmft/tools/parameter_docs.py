"""docs/parameters.md and the JSON schemas for editors, all made from the schema of params.yaml and outputs.yaml."""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from rmft.artifacts.text import write_text
from rmft.params.evaluation import ALGORITHM_FIELDS
from rmft.params.inheritance import EACH, ON_REQUEST
from rmft.params.kinds import KINDS
from rmft.params.outputs import Outputs
from rmft.params.whole import Science

PAGE = Path("docs/parameters.md")
SCHEMAS = {Path("docs/params.schema.json"): Science, Path("docs/outputs.schema.json"): Outputs}
DEFAULTS = "What experiments of a kind do not say, by kind."
EACH_EVALUATION = "What the experiment's evaluations do not say."
HEAD = """# Parameters

`rmft params --docs` makes this page from the schema. `params.yaml` describes the experiments, `outputs.yaml` the
figures, tables and report. `rmft params` checks both files; `rmft params EXPERIMENT` prints one experiment, and where
each of its values comes from; `rmft params --all` prints everything, inherited values too.

An experiment inherits every value that it does not set: first from the experiment that it `varies`, then from
`defaults` of its kind. Maps are merged, lists replaced. An experiment has the evaluations that it names, or else all
evaluations of the experiment that it varies. An evaluation inherits from the evaluation of the same name in the varied
experiment, then from `each_evaluation`. `dvc exp run -S experiments.NAME.KEY=VALUE` changes a value that the experiment
itself sets; `-S +experiments.NAME.KEY=VALUE` sets a value that it would inherit.
"""
Schema = dict[str, Any]


def write_docs() -> None:
    """Write the page and the schemas."""
    for path, text in documents().items():
        write_text(path, text)


def documents() -> dict[Path, str]:
    """Return the page and the schemas by path."""
    schemas = {path: schema_of(sections) for path, sections in SCHEMAS.items()}
    texts = {path: json.dumps(schema, indent=1, ensure_ascii=False) + "\n" for path, schema in schemas.items()}
    return {PAGE: page(), **texts}


def schema_of(sections: type[Science | Outputs]) -> Schema:
    """Return the JSON schema of a file as it is written: of what is inherited nothing is required."""
    schema = _described(sections)
    for of in schema["$defs"].values():
        of.pop("required", None)
    if sections is Science:
        kinds = {kind: of.__name__ for kind, of in KINDS.items()}
        for name in kinds.values():
            schema["$defs"][name]["properties"][EACH] = {"$ref": "#/$defs/Evaluation", "description": EACH_EVALUATION}
        schema["properties"]["defaults"] = {
            "type": "object",
            "additionalProperties": False,
            "properties": {kind: {"$ref": f"#/$defs/{name}"} for kind, name in kinds.items()},
            "description": DEFAULTS,
        }
    return _without_tags(schema)


def _described(sections: type[Science | Outputs]) -> Schema:
    schema = sections.model_json_schema()
    for name, text in ALGORITHM_FIELDS.items():
        if "AlgorithmSettings" in schema["$defs"]:
            schema["$defs"]["AlgorithmSettings"]["properties"][name]["description"] = text
    for of in schema["$defs"].values():
        if "form" in of.get("properties", {}):  # of a figure or table: its class describes it
            of["properties"]["form"]["description"] = f"Form: {of['description'][0].lower()}{of['description'][1:]}"
    return schema


def _without_tags(schema: object) -> object:
    """Return a schema in which any member of a union may match, since an inherited tag is not written."""
    if isinstance(schema, list):
        return [_without_tags(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: _without_tags(part) for key, part in schema.items() if key != "title" or not isinstance(part, str)}
    if "discriminator" in schema and "oneOf" in schema:
        del schema["discriminator"]
        schema["anyOf"] = schema.pop("oneOf")
    return schema


def page() -> str:
    """Return docs/parameters.md."""
    lines = [HEAD]
    for file, sections in (("params.yaml", Science), ("outputs.yaml", Outputs)):
        schema = _described(sections)
        for name, section in schema["properties"].items():
            lines += [f"## {name}", "", f"In `{file}`. {_description(schema['$defs'], section)}", ""]
            if name == ON_REQUEST:  # has the keys of `experiments`
                continue
            for title, rows, same in _without_repeats(tables(schema["$defs"], name, section)):
                lines += [*([f"### {title}", ""] if title else []), "| key | type | default | description |"]
                lines += ["|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows), ""]
                lines += [line for first, keys in same.items() for line in (f"{_as_in(first)}: {', '.join(keys)}.", "")]
    return "\n".join(lines)


Rows = list[tuple[str, str, str, str]]


def _without_repeats(titled: Iterable[tuple[str, Rows]]) -> Iterator[tuple[str, Rows, dict[str, list[str]]]]:
    """Yield the tables of a section without groups of keys that an earlier one has, and their names by its title."""
    earlier: dict[tuple[tuple[str, str, str, str], ...], str] = {}
    for title, rows in titled:
        own, same = [], {}
        for key, block in groupby(rows, lambda row: row[0].strip("`").partition(".NAME.")[2].partition(".")[0]):
            block = tuple(block)
            if title and len(block) > 1 and block in earlier:
                same.setdefault(earlier[block], []).append(f"`{key}`")
            else:
                earlier[block] = title
                own += block
        yield title, own, same


def _as_in(title: str) -> str:
    """Return the beginning of the line that names the keys which an earlier table has."""
    anchor = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")
    return f"And these, as in [{title}](#{anchor})"


def tables(defs: Schema, name: str, section: Schema) -> Iterator[tuple[str, Rows]]:
    """Yield titles and rows of a section: one table, and one for each member of a union, also of one within it."""
    prefix, schema = name, section
    if (mapped := _mapped(schema)) is not None:
        prefix, schema = f"{name}.NAME", mapped
    if "oneOf" in schema:
        tag = schema["discriminator"]["propertyName"]
        for member in schema["oneOf"]:
            of = _definition(defs, member)
            yield f"{name}: {tag} {_type(defs, of['properties'][tag])}", list(_rows(defs, prefix, of, section))
    else:
        schema = _definition(defs, schema)
        parts = schema.get("properties", {})
        unions = {key: part for key, part in parts.items() if "oneOf" in (_mapped(part) or {})}
        rest = {"properties": {key: part for key, part in parts.items() if key not in unions}} if unions else {}
        yield "", list(_rows(defs, prefix, {**schema, **rest}, section))
        for key, part in unions.items():
            yield from tables(defs, f"{prefix}.{key}", part)


def _mapped(schema: Schema) -> Schema | None:
    """Return the schema of a map's values; None where it is no map from names of one's own."""
    values = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
    return next((of for of in values if isinstance(of, dict)), None)


def _definition(defs: Schema, schema: Schema) -> Schema:
    return defs[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _description(defs: Schema, schema: Schema) -> str:
    """Return a description; pydantic leaves out one that is its section's as well."""
    return schema.get("description") or _definition(defs, schema).get("description", "")


def _rows(defs: Schema, key: str, schema: Schema, about: Schema) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each leaf below a key. about: the property that holds default and description."""
    inner = _definition(defs, schema)
    optional = [of for of in inner.get("anyOf", []) if of.get("type") != "null"]
    if len(optional) == 1 and "$ref" in optional[0]:
        inner = _definition(defs, optional[0])
    mapped = _mapped(inner)
    if "properties" in inner:
        required = inner.get("required", [])
        for name, part in inner["properties"].items():
            default = {} if name in required else {"default": part.get("default")}
            yield from _rows(defs, f"{key}.{name}", part, {**part, **default})
    elif "oneOf" in inner:
        for member in inner["oneOf"]:
            yield from _rows(defs, key, member, about)
    elif mapped is not None and ("$ref" in mapped or "oneOf" in mapped):
        yield from _rows(defs, f"{key}.NAME", mapped, about)
    else:
        default = f"`{json.dumps(about['default'], ensure_ascii=False)}`" if "default" in about else ""
        yield f"`{key}`", _type(defs, inner), default, _description(defs, about).replace("|", "\\|")


def _type(defs: Schema, schema: Schema) -> str:
    """Return the type of a leaf in words."""
    schema = _definition(defs, schema)
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(defs, of) for of in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_type(defs, schema.get('items', {}))}"
    if schema.get("type") == "object":
        mapped = _mapped(schema)
        return "map" if mapped is None else f"map to {_type(defs, mapped)}"
    bounds = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
    name = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}
    limits = [f"{sign} {schema[bound]:g}" for bound, sign in bounds if bound in schema]
    return " ".join([name.get(schema.get("type", ""), "anything"), ", ".join(limits)]).strip()
