"""`toolwire protocols`: list the protocols, and the outcome of translating each feature between them.

The support matrix is generated from the golden files of the tests (`make matrix`).
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from toolwire.cli.inputs import BadInput
from toolwire.cli.values import PROTOCOL

MATRIX_FILE = Path(__file__).with_name("support_matrix.json")

OUTCOMES = {
    "mapped": ("+", "translated exactly"),
    "approximated": ("~", "translated to the closest equivalent, and reported"),
    "varies": ("?", "some forms are translated, others are reported or refused"),
    "reported": ("-", "left out, and reported"),
    "refused": ("x", "may not be left out, so the request is refused"),
}
SAME_PROTOCOL_MARK = "="


class SupportMatrix(NamedTuple):
    """The generated support matrix, as stored in `support_matrix.json`."""

    # Descriptions by protocol.
    protocols: dict[str, str]
    # Titles by feature, grouped by heading.
    features: dict[str, dict[str, str]]
    # By source, target and feature: the outcome, or a list of the outcome and its losses.
    pairs: dict[str, dict[str, dict[str, Any]]]

    def outcome(self, source: str, target: str, feature: str) -> str | None:
        """Return how a feature arrives in the target protocol; None if the source protocol does not have it."""
        cell = self.pairs[source][target].get(feature)
        return cell[0] if isinstance(cell, list) else cell

    def losses(self, source: str, target: str, feature: str) -> list[list[str]]:
        """Return kind, path and reason of each loss when a feature is translated from source to target."""
        cell = self.pairs[source][target][feature]
        return cell[1:] if isinstance(cell, list) else []


@click.command("protocols", short_help="List the protocols and the features they support.")
@click.argument("feature", required=False)
@click.option("--from", "source", type=PROTOCOL, metavar="P", help="Only from this protocol.")
@click.option("--to", "target", type=PROTOCOL, metavar="P", help="Only to this protocol.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(feature: str | None, source: str | None, target: str | None, *, as_json: bool) -> None:
    """List the protocols, and the outcome of translating each feature between them.

    Without options: all protocols, and the number of features carried over. With --from and --to: every feature of
    that pair, with its losses. With one of them: a column for each other protocol. With FEATURE: that feature, between
    all protocols.

    \b
    Examples:
      toolwire protocols
      toolwire protocols --from anthropic --to gemini
      toolwire protocols --to ollama
      toolwire protocols cache-marks
    """
    matrix = SupportMatrix(**json.loads(MATRIX_FILE.read_bytes()))
    groups = _select_features(matrix, feature)
    for name in (source, target):
        if name is not None and name not in matrix.protocols:
            raise BadInput(f"{name!r} is from another package: the matrix covers only built-in protocols")
    if as_json:
        click.echo(json.dumps(_matrix_as_json(matrix, groups, source, target), indent=2, ensure_ascii=False))
        return
    if source is not None and target is not None:
        lines = _pair_lines(matrix, source, target, groups)
    elif source is not None or target is not None:
        lines = _column_lines(matrix, source, target, groups)
    elif feature is not None:
        lines = _feature_lines(matrix, feature)
    else:
        lines = _overview_lines(matrix)
    click.echo("\n".join(lines))


def _select_features(matrix: SupportMatrix, feature: str | None) -> dict[str, dict[str, str]]:
    """Return feature titles by id under each heading, or only `feature` if given."""
    if feature is None:
        return matrix.features
    for heading, features in matrix.features.items():
        if feature in features:
            return {heading: {feature: features[feature]}}
    from difflib import get_close_matches

    names = [name for features in matrix.features.values() for name in features]
    similar = get_close_matches(feature, names, n=3, cutoff=0.5) or [name for name in names if feature in name][:3]
    hint = f"did you mean {' or '.join(similar)}?" if similar else "'toolwire protocols --from P' lists them"
    raise BadInput(f"unknown feature {feature!r}: {hint}")


def _overview_lines(matrix: SupportMatrix) -> Iterator[str]:
    """Yield the list of protocols and the table of how many features are carried over."""
    from toolwire.protocols import PROTOCOLS

    width = max(map(len, PROTOCOLS)) + 2
    for name in PROTOCOLS:
        yield name.ljust(width) + matrix.protocols.get(name, "from another package")
    yield ""
    yield "Features carried over (mapped or approximated) / features of the source:"
    yield ""
    rows = [
        (source, [_arrival_ratio(matrix, source, target) for target in matrix.protocols]) for source in matrix.protocols
    ]
    yield from _table_lines("from", matrix.protocols, rows)
    yield ""
    yield "'toolwire protocols --from P --to P' lists every feature of a pair; see --help for more."


def _arrival_ratio(matrix: SupportMatrix, source: str, target: str) -> str:
    """Format how many features of the source arrive in the target, such as `40/45`."""
    if source == target:
        return SAME_PROTOCOL_MARK
    counts = _count_outcomes(matrix, source, target)
    return f"{counts['mapped'] + counts['approximated']}/{counts.total()}"


def _count_outcomes(matrix: SupportMatrix, source: str, target: str) -> Counter[str]:
    """Count the features of a pair by outcome."""
    return Counter(str(matrix.outcome(source, target, feature)) for feature in matrix.pairs[source][target])


def _pair_lines(matrix: SupportMatrix, source: str, target: str, groups: dict[str, dict[str, str]]) -> Iterator[str]:
    """Yield every feature of a protocol pair, with its losses, as text lines."""
    if source == target:
        yield f"{source} to itself: passed through unchanged."
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
                for kind, path, reason in matrix.losses(source, target, feature):
                    yield f"      {kind} {path}: {reason}"
            elif len(groups) == 1 and len(features) == 1:
                yield f"  not supported by {source}: {title}"


def _column_lines(
    matrix: SupportMatrix, source: str | None, target: str | None, groups: dict[str, Any]
) -> Iterator[str]:
    """Yield a table with one fixed protocol and a column for each of the others."""
    others = [name for name in matrix.protocols if name not in (source, target)]
    pairs = [(source or other, target or other) for other in others]
    yield f"from {source} to:" if source is not None else f"to {target} from:"
    for heading, features in groups.items():
        rows = [(feature, [_outcome_mark(matrix, *pair, feature) for pair in pairs]) for feature in features]
        yield from _table_lines(heading, others, [row for row in rows if any(mark.strip() for mark in row[1])])
        yield ""
    yield from _legend_lines()


def _feature_lines(matrix: SupportMatrix, feature: str) -> Iterator[str]:
    """Yield a table of one feature between all protocols."""
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
    """Return the one-character mark for an outcome; a space if the source does not have the feature."""
    outcome = matrix.outcome(source, target, feature)
    return OUTCOMES[outcome][0] if outcome is not None else " "


def _legend_lines() -> Iterator[str]:
    """Yield the lines that explain the marks."""
    for outcome, (mark, meaning) in OUTCOMES.items():
        yield f"  {mark}  {outcome.ljust(14)}{meaning}"
    yield f"  {SAME_PROTOCOL_MARK}  {'same'.ljust(14)}same protocol, passed through unchanged"
    yield f"     {'(blank)'.ljust(14)}not supported by the source"


def _table_lines(corner: str, columns: Any, rows: list[tuple[str, list[str]]]) -> Iterator[str]:
    """Yield the lines of a table. Column names take two lines, so that seven columns fit."""
    headings = [name.rpartition("-") for name in columns]
    widths = [max(len(first) + len(dash), len(last)) + 2 for first, dash, last in headings]
    label_width = max(len(name) for name, _ in rows) if rows else 0
    label_width = max(label_width, len(corner))
    top_line = "".join((first + dash).rjust(width) for (first, dash, _), width in zip(headings, widths, strict=True))
    yield (" " * label_width + top_line).rstrip()
    yield corner.ljust(label_width) + "".join(
        last.rjust(width) for (_, _, last), width in zip(headings, widths, strict=True)
    )
    for name, cells in rows:
        yield (
            name.ljust(label_width) + "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        ).rstrip()


def _matrix_as_json(
    matrix: SupportMatrix, groups: dict[str, Any], source: str | None, target: str | None
) -> dict[str, Any]:
    """Return the selected part of the matrix as JSON data."""
    names = [name for features in groups.values() for name in features]
    pairs = [
        {"from": pair_source, "to": pair_target, "features": _cells_as_json(matrix, pair_source, pair_target, names)}
        for pair_source, targets in matrix.pairs.items()
        for pair_target in targets
        if source in (None, pair_source) and target in (None, pair_target)
    ]
    return {"protocols": matrix.protocols, "features": groups, "pairs": pairs}


def _cells_as_json(matrix: SupportMatrix, source: str, target: str, features: list[str]) -> dict[str, Any]:
    """Return outcome and losses of the given features for a pair."""
    return {
        feature: {
            "outcome": matrix.outcome(source, target, feature),
            "losses": [
                {"kind": kind, "path": path, "reason": reason}
                for kind, path, reason in matrix.losses(source, target, feature)
            ],
        }
        for feature in features
        if feature in matrix.pairs[source][target]
    }
