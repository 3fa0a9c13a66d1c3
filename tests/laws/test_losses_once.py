"""A dropped value is reported once: nothing below it is another loss."""

import pytest

import toolwire as tw
from tests.support.samples import recorded_bodies


def nested_losses(losses: list[tw.Loss]) -> list[str]:
    """Return the paths of losses inside a dropped value."""
    dropped = {loss.path for loss in losses if loss.kind == "dropped" and loss.path}
    reported = {loss.path for loss in losses if loss.kind != "added" and not loss.constraint}
    return sorted(path for path in reported if any(path.startswith(above + "/") for above in dropped))


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_a_dropped_value_is_reported_once(source: str, target: str) -> None:
    wrong = {}
    requests, responses = (
        recorded_bodies.sample_for_target(bodies, target, one_in=1)
        for bodies in (recorded_bodies.requests(source), recorded_bodies.responses(source))
    )
    for name, body in requests.items():
        try:
            translated = tw.translate(body, source, target, **recorded_bodies.address_options(source, "request"))
        except tw.LossyTranslationError:
            continue
        wrong[name] = nested_losses(translated.losses)
    for name, body in responses.items():
        try:
            wrong[name] = nested_losses(tw.translate(body, source, target, "response").losses)
        except tw.LossyTranslationError:
            continue
    assert {name: paths for name, paths in wrong.items() if paths} == {}
