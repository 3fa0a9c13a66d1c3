"""What is gone whole is told once: nothing below it is a loss of its own."""

import pytest

import toolwire as tw
from tests.laws import material


def below(losses: list[tw.Loss]) -> list[str]:
    """Losses of something that another loss says is gone."""
    gone = {loss.path for loss in losses if loss.kind == "dropped" and loss.path}
    told = {loss.path for loss in losses if loss.kind != "invented" and not loss.guarded}
    return sorted(path for path in told if any(path.startswith(above + "/") for above in gone))


@pytest.mark.parametrize(("source", "target"), material.PAIRS)
def test_nothing_below_a_loss_is_another(source: str, target: str) -> None:
    wrong = {}
    for name, body in material.requests(source).items():
        try:
            made = tw.translate(body, source, target, **material.addressed(source, "request"))
        except tw.LossRefused:
            continue
        wrong[name] = below(made.losses)
    for name, body in material.responses(source).items():
        try:
            wrong[name] = below(tw.translate(body, source, target, "response").losses)
        except tw.LossRefused:
            continue
    assert {name: paths for name, paths in wrong.items() if paths} == {}
