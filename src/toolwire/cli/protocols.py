"""`toolwire protocols`: the protocols, and what becomes of each feature on the way from one to another.

The matrix is made from the golden files of the tests (`make matrix`), and read here as it is.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from toolwire.cli.inputs import BadInput, parse_protocol

MATRIX_FILE = Path(__file__).with_name("support_matrix.json")

OUTCOMES = {
    "mapped": ("+", "it arrives as what it is"),
    "approximated": ("~", "it arrives as something close, and the report says so"),
    "varies": ("?", "some forms of it arrive, others are reported or refused"),
    "reported": ("-", "it is left out, and the report says so"),
    "refused": ("x", "it may not be left out, so nothing is sent"),
}
SAME_PROTOCOL_MARK = "="


class SupportMatrix(NamedTuple):
    protocols: dict[str, str]
    features: dict[str, dict[str, str]]
    pairs: dict[str, dict[str, dict[str, Any]]]

    def outcome(self, source: str, target: str, feature: str) -> str | None:
        cell = self.pairs[source][target].get(feature)
        return cell[0] if isinstance(cell, list) else cell

    def losses(self, source: str, target: str, feature: str) -> list[list[str]]:
        cell = self.pairs[source][target][feature]
        return cell[1:] if isinstance(cell, list) else []


@click.command("protocols", short_help="List the protocols, and what becomes of each feature between them.")
@click.argument("feature", required=False)
@click.option("--from", "source", type=parse_protocol, metavar="P", help="Only from this protocol.")
@click.option("--to", "target", type=parse_protocol, metavar="P", help="Only to this protocol.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def command(feature: str | None, source: str | None, target: str | None, *, as_json: bool) -> None:
    """List the protocols, and what becomes of each feature on the way from one to another.

    Without options: the protocols, and how many features arrive. With --from and --to: every feature of
    that pair, and why it is not simply mapped. With one of them: a column for each other protocol. With a
    FEATURE: that one, between all.

    \b
    Examples:
      toolwire protocols
      toolwire protocols --from anthropic --to gemini
      toolwire protocols --to ollama
      toolwire protocols cache-marks
    """
    matrix = SupportMatrix(**json.loads(MATRIX_FILE.read_bytes()))
    known = _select_features(matrix, feature)
    for name in (source, target):
        if name is not None and name not in matrix.protocols:
            raise BadInput(f"{name!r} comes from another package: the matrix knows only the built-in protocols")
    if as_json:
        click.echo(json.dumps(_matrix_as_json(matrix, known, source, target), indent=2, ensure_ascii=False))
        return
    if source is not None and target is not None:
        lines = _pair_lines(matrix, source, target, known)
    elif source is not None or target is not None:
        lines = _column_lines(matrix, source, target, known)
    elif feature is not None:
        lines = _feature_lines(matrix, feature)
    else:
        lines = _overview_lines(matrix)
    click.echo("\n".join(lines))


def _select_features(matrix: SupportMatrix, feature: str | None) -> dict[str, dict[str, str]]:
    """The features that are asked for, by heading."""
    if feature is None:
        return matrix.features
    for heading, features in matrix.features.items():
        if feature in features:
            return {heading: {feature: features[feature]}}
    from difflib import get_close_matches

    names = [name for features in matrix.features.values() for name in features]
    near = get_close_matches(feature, names, n=3, cutoff=0.5) or [name for name in names if feature in name][:3]
    hint = f"did you mean {' or '.join(near)}?" if near else "'toolwire protocols --from P' lists them"
    raise BadInput(f"unknown feature {feature!r}: {hint}")


def _overview_lines(matrix: SupportMatrix) -> Iterator[str]:
    from toolwire.protocols import PROTOCOLS

    width = max(map(len, PROTOCOLS)) + 2
    for name in PROTOCOLS:
        yield name.ljust(width) + matrix.protocols.get(name, "from another package")
    yield ""
    yield "How many features arrive, mapped or approximated, of those that the source has words for:"
    yield ""
    rows = [
        (source, [_arrival_ratio(matrix, source, target) for target in matrix.protocols]) for source in matrix.protocols
    ]
    yield from _table_lines("from", matrix.protocols, rows)
    yield ""
    yield "'toolwire protocols --from P --to P' tells of two, feature by feature; --help shows more."


def _arrival_ratio(matrix: SupportMatrix, source: str, target: str) -> str:
    if source == target:
        return SAME_PROTOCOL_MARK
    counts = _count_outcomes(matrix, source, target)
    return f"{counts['mapped'] + counts['approximated']}/{counts.total()}"


def _count_outcomes(matrix: SupportMatrix, source: str, target: str) -> Counter[str]:
    return Counter(str(matrix.outcome(source, target, feature)) for feature in matrix.pairs[source][target])


def _pair_lines(matrix: SupportMatrix, source: str, target: str, groups: dict[str, dict[str, str]]) -> Iterator[str]:
    if source == target:
        yield f"{source} to itself: everything comes back as it was."
        return
    counts = _count_outcomes(matrix, source, target)
    yield f"{source} to {target}: " + ", ".join(f"{outcome} {counts[outcome]}" for outcome in OUTCOMES)
    width = max(len(name) for features in matrix.features.values() for name in features) + 2
    for heading, features in groups.items():
        yield f"\n{heading}"
        for feature, title in features.items():
            outcome = matrix.outcome(source, target, feature)
            if outcome is not None:
                yield f"  {outcome.ljust(14)}{feature.ljust(width)}{title}"
                for kind, path, why in matrix.losses(source, target, feature):
                    yield f"      {kind} {path}: {why}"
            elif len(groups) == 1 and len(features) == 1:
                yield f"  {source} has no words for it: {title}"


def _column_lines(
    matrix: SupportMatrix, source: str | None, target: str | None, groups: dict[str, Any]
) -> Iterator[str]:
    """One protocol on one side, a column for each other on the other."""
    others = [name for name in matrix.protocols if name not in (source, target)]
    pairs = [(source or other, target or other) for other in others]
    yield f"from {source} to:" if source is not None else f"to {target} from:"
    for heading, features in groups.items():
        rows = [(feature, [_outcome_mark(matrix, *pair, feature) for pair in pairs]) for feature in features]
        yield from _table_lines(heading, others, [row for row in rows if any(mark.strip() for mark in row[1])])
        yield ""
    yield from _legend_lines()


def _feature_lines(matrix: SupportMatrix, feature: str) -> Iterator[str]:
    title = next(features[feature] for features in matrix.features.values() if feature in features)
    yield f"{feature}: {title}\n"
    rows = [
        (
            source,
            [
                SAME_PROTOCOL_MARK if source == target else _outcome_mark(matrix, source, target, feature)
                for target in matrix.protocols
            ],
        )
        for source in matrix.protocols
    ]
    yield from _table_lines("from", matrix.protocols, rows)
    yield ""
    yield from _legend_lines()


def _outcome_mark(matrix: SupportMatrix, source: str, target: str, feature: str) -> str:
    outcome = matrix.outcome(source, target, feature)
    return OUTCOMES[outcome][0] if outcome is not None else " "


def _legend_lines() -> Iterator[str]:
    for outcome, (mark, meaning) in OUTCOMES.items():
        yield f"  {mark}  {outcome.ljust(14)}{meaning}"
    yield f"  {SAME_PROTOCOL_MARK}  {'the same'.ljust(14)}to itself, everything comes back as it was"
    yield f"     {'(nothing)'.ljust(14)}the source has no words for it"


def _table_lines(corner: str, columns: Any, rows: list[tuple[str, list[str]]]) -> Iterator[str]:
    """Names of columns take two lines, so that seven fit."""
    heads = [name.rpartition("-") for name in columns]
    widths = [max(len(first) + len(dash), len(last)) + 2 for first, dash, last in heads]
    label = max(len(name) for name, _ in rows) if rows else 0
    label = max(label, len(corner))
    tops = "".join((first + dash).rjust(width) for (first, dash, _), width in zip(heads, widths, strict=True))
    yield (" " * label + tops).rstrip()
    yield corner.ljust(label) + "".join(last.rjust(width) for (_, _, last), width in zip(heads, widths, strict=True))
    for name, cells in rows:
        yield (
            name.ljust(label) + "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        ).rstrip()


def _matrix_as_json(
    matrix: SupportMatrix, groups: dict[str, Any], source: str | None, target: str | None
) -> dict[str, Any]:
    wanted = [feature for features in groups.values() for feature in features]
    pairs = [
        {"from": one, "to": other, "features": _cells_as_json(matrix, one, other, wanted)}
        for one, targets in matrix.pairs.items()
        for other in targets
        if source in (None, one) and target in (None, other)
    ]
    return {"protocols": matrix.protocols, "features": groups, "pairs": pairs}


def _cells_as_json(matrix: SupportMatrix, source: str, target: str, features: list[str]) -> dict[str, Any]:
    return {
        feature: {
            "outcome": matrix.outcome(source, target, feature),
            "losses": [
                {"kind": kind, "path": path, "reason": why}
                for kind, path, why in matrix.losses(source, target, feature)
            ],
        }
        for feature in features
        if feature in matrix.pairs[source][target]
    }
