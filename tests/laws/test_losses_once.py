"""What is gone whole is told once: nothing below it is a loss of its own."""

import pytest

import toolwire as tw
from tests.support.samples import recorded_bodies


def below(losses: list[tw.Loss]) -> list[str]:
    """Losses of something that another loss says is gone."""
    gone = {loss.path for loss in losses if loss.kind == "dropped" and loss.path}
    told = {loss.path for loss in losses if loss.kind != "added" and not loss.constraint}
    return sorted(path for path in told if any(path.startswith(above + "/") for above in gone))


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_nothing_below_a_loss_is_another(source: str, target: str) -> None:
    wrong = {}
    for name, body in recorded_bodies.requests(source).items():
        try:
            translated = tw.translate(body, source, target, **recorded_bodies.address_options(source, "request"))
        except tw.LossyTranslationError:
            continue
        wrong[name] = below(translated.losses)
    for name, body in recorded_bodies.responses(source).items():
        try:
            wrong[name] = below(tw.translate(body, source, target, "response").losses)
        except tw.LossyTranslationError:
            continue
    assert {name: paths for name, paths in wrong.items() if paths} == {}
