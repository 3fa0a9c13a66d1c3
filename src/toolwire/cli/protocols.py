"""`toolwire protocols`: list the protocols, and the outcome of translating each feature between them.

The support matrix is generated from the golden files of the tests (`make matrix`).
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import click

from toolwire.cli.inputs import BadInput
from toolwire.cli.output.terminal import Part, Style, json_option, print_json, print_line, terminal_width
from toolwire.cli.values import PROTOCOL, completion

MATRIX_FILE = Path(__file__).with_name("support_matrix.json")

OUTCOMES = {
    "mapped": ("+", "translated exactly"),
    "approximated": ("~", "translated to the closest equivalent, and reported"),
    "varies": ("?", "some forms are translated, others are reported or refused"),
    "reported": ("-", "left out, and reported"),
    "refused": ("x", "may not be left out, so the request is refused"),
}
SAME_PROTOCOL_MARK = "="
_OUTCOME_STYLES: dict[str, Style] = {
    "mapped": "good",
    "approximated": "accent",
    "varies": "accent",
    "reported": "warning",
    "refused": "problem",
}
_MARK_STYLES: dict[str, Style] = {OUTCOMES[name][0]: style for name, style in _OUTCOME_STYLES.items()} | {
    SAME_PROTOCOL_MARK: "muted"
}
_WIDE_SCREEN = 94
_NARROW_HEADING = 9
_BREAKS = {"interactions": 5, "openrouter": 4}


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
@click.argument("feature", required=False, shell_complete=completion(lambda _: _list_features()))
@click.option("--from", "source", type=PROTOCOL, metavar="P", help="Only from this protocol.")
@click.option("--to", "target", type=PROTOCOL, metavar="P", help="Only to this protocol.")
@json_option()
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
        print_json(_matrix_as_json(matrix, groups, source, target))
    elif source is not None and target is not None:
        _print_pair(matrix, source, target, groups)
    elif source is not None or target is not None:
        _print_columns(matrix, source, target, groups)
    elif feature is not None:
        _print_feature(matrix, feature)
    else:
        _print_overview(matrix)


def _list_features() -> list[tuple[str, str]]:
    """Return all features with their titles, for completion in a shell."""
    matrix = SupportMatrix(**json.loads(MATRIX_FILE.read_bytes()))
    return [item for features in matrix.features.values() for item in features.items()]


def _select_features(matrix: SupportMatrix, feature: str | None) -> dict[str, dict[str, str]]:
    """Return feature titles by id under each heading, or only `feature` if given."""
    if feature is None:
        return matrix.features
    for heading, features in matrix.features.items():
        if feature in features:
            return {heading: {feature: features[feature]}}
    from toolwire.codec.suggestions import suggest

    names = [name for features in matrix.features.values() for name in features]
    hint = suggest(feature, names, "`toolwire protocols --from P` lists them")
    raise BadInput(f"unknown feature {feature!r}: {hint}")


def _print_overview(matrix: SupportMatrix) -> None:
    """Print the list of protocols and the table of how many features are carried over."""
    from toolwire.protocols import PROTOCOLS

    width = max(map(len, PROTOCOLS)) + 2
    for name in PROTOCOLS:
        print_line((name, "accent"), " " * (width - len(name)) + matrix.protocols.get(name, "from another package"))
    print_line()
    print_line("Features carried over (mapped or approximated) / features of the source:")
    print_line()
    rows = [
        (source, [_arrival_ratio(matrix, source, target) for target in matrix.protocols]) for source in matrix.protocols
    ]
    _print_matrix("from", matrix.protocols, rows)
    print_line()
    print_line("`toolwire protocols --from P --to P` lists every feature of a pair; see --help for more.")


def _arrival_ratio(matrix: SupportMatrix, source: str, target: str) -> str:
    """Format how many features of the source arrive in the target, such as `40/45`."""
    if source == target:
        return SAME_PROTOCOL_MARK
    counts = _count_outcomes(matrix, source, target)
    return f"{counts['mapped'] + counts['approximated']}/{counts.total()}"


def _count_outcomes(matrix: SupportMatrix, source: str, target: str) -> Counter[str]:
    """Count the features of a pair by outcome."""
    return Counter(str(matrix.outcome(source, target, feature)) for feature in matrix.pairs[source][target])


def _print_pair(matrix: SupportMatrix, source: str, target: str, groups: dict[str, dict[str, str]]) -> None:
    """Print every feature of a protocol pair, with its losses."""
    if source == target:
        print_line(f"{source} to itself: passed through unchanged.")
        return
    counts = _count_outcomes(matrix, source, target)
    print_line(f"{source} to {target}: " + ", ".join(f"{outcome} {counts[outcome]}" for outcome in OUTCOMES), indent=2)
    width = max(len(name) for features in matrix.features.values() for name in features) + 2
    for heading, features in groups.items():
        print_line()
        print_line((heading, "strong"))
        for feature, title in features.items():
            outcome = matrix.outcome(source, target, feature)
            if outcome is not None:
                style = _OUTCOME_STYLES[outcome]
                print_line("  ", (outcome.ljust(14), style), f"{feature.ljust(width)}{title}", indent=16)
                for kind, path, reason in matrix.losses(source, target, feature):
                    print_line(f"      {kind} {path}: {reason}", indent=8)
            elif len(groups) == 1 and len(features) == 1:
                print_line(f"  not supported by {source}: {title}")


def _print_columns(matrix: SupportMatrix, source: str | None, target: str | None, groups: dict[str, Any]) -> None:
    """Print a table with one fixed protocol and a column for each of the others."""
    others = [name for name in matrix.protocols if name not in (source, target)]
    pairs = [(source or other, target or other) for other in others]
    print_line((f"from {source} to:" if source is not None else f"to {target} from:", "strong"))
    width = max(len(feature) for features in groups.values() for feature in features)
    for heading, features in groups.items():
        rows = [(feature, [_outcome_mark(matrix, *pair, feature) for pair in pairs]) for feature in features]
        _print_matrix(heading, others, [row for row in rows if any(mark.strip() for mark in row[1])], width)
        print_line()
    _print_legend()


def _print_feature(matrix: SupportMatrix, feature: str) -> None:
    """Print a table of one feature between all protocols."""
    title = next(features[feature] for features in matrix.features.values() if feature in features)
    print_line((feature, "strong"), f": {title}")
    print_line()
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
    _print_matrix("from", matrix.protocols, rows)
    print_line()
    _print_legend()


def _outcome_mark(matrix: SupportMatrix, source: str, target: str, feature: str) -> str:
    """Return the one-character mark for an outcome; a space if the source does not have the feature."""
    outcome = matrix.outcome(source, target, feature)
    return OUTCOMES[outcome][0] if outcome is not None else " "


def _print_legend() -> None:
    """Print the lines that explain the marks."""
    for outcome, (mark, meaning) in OUTCOMES.items():
        print_line("  ", (mark, _OUTCOME_STYLES[outcome]), f"  {outcome.ljust(14)}{meaning}", indent=19)
    print_line(
        "  ", (SAME_PROTOCOL_MARK, "muted"), f"  {'same'.ljust(14)}same protocol, passed through unchanged", indent=19
    )
    print_line(f"     {'(blank)'.ljust(14)}not supported by the source", indent=19)


def _print_matrix(corner: str, columns: Iterable[str], rows: list[tuple[str, list[str]]], label_width: int = 0) -> None:
    """Print a table of short cells. Column names take several lines, so that seven columns fit."""
    label_width = max([label_width, len(corner), *(len(name) for name, _ in rows)])
    screen = terminal_width()
    is_narrow = screen is not None and screen < _WIDE_SCREEN
    headings = [_break_heading(name, _NARROW_HEADING if is_narrow else len(name)) for name in columns]
    gap = 1 if is_narrow else 2
    widths = [max(map(len, lines)) + gap for lines in headings]
    height = max(map(len, headings))
    for line in range(height):
        texts = [lines[line - height + len(lines)] if line >= height - len(lines) else "" for lines in headings]
        label = (corner if line == height - 1 else "").ljust(label_width)
        cells = "".join(text.rjust(width) for text, width in zip(texts, widths, strict=True))
        print_line((label, "strong"), (cells.rstrip(), "muted"))
    for name, row in rows:
        parts: list[Part] = [name.ljust(label_width)]
        filled = max((index + 1 for index, cell in enumerate(row) if cell.strip()), default=0)
        for cell, width in list(zip(row, widths, strict=True))[:filled]:
            parts += [" " * (width - len(cell)), (cell, _MARK_STYLES.get(cell, ""))]
        print_line(*parts)


def _break_heading(name: str, width: int) -> list[str]:
    """Break the name of a column before its last word, and longer words in their middle."""
    first, dash, last = name.rpartition("-")
    pieces = [first + dash, last] if dash else [last]
    lines = list[str]()
    for piece in pieces:
        middle = _BREAKS.get(piece, (len(piece) + 1) // 2)
        lines += [piece] if len(piece) <= width else [f"{piece[:middle]}-", piece[middle:]]
    return lines


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
