"""Actions that need approval, judged by what a page says about itself."""

import pytest

from toolwire.runtime.tools.browser.guard import ElementFacts, FormField, Guard

TEXT = FormField("text", "")
PASSWORD = FormField("password", "")
CARD = FormField("text", "section-pay billing cc-number")


def facts(
    *names: str,
    control: bool = True,
    field: FormField | None = None,
    fields: tuple[FormField, ...] = (),
    submits: bool = False,
    button: tuple[str, ...] = (),
) -> ElementFacts:
    tag = "input" if field else "button"
    return ElementFacts(
        frame=False,
        redacted=False,
        shadowed=False,
        tag=tag,
        control=control,
        names=names,
        field=field,
        fields=fields,
        choices=(),
        submits=submits,
        button=button,
    )


@pytest.mark.parametrize(
    "name",
    [
        "Buy now",
        "BUY",
        "Pay $30.00",
        "Place your order",
        "Proceed to checkout",
        "Complete purchase",
        "Confirm and pay",
        "Delete my account",
        "Close account",
        "Jetzt kaufen",
        "Zahlungspflichtig bestellen",
        "購入する",
        "立即支付",
    ],
)
def test_spending_and_destructive_controls_need_approval(name: str) -> None:
    assert Guard().click_reason(facts(name)) is not None
    assert Guard().key_press_reason(("Enter",), facts(name)) is not None
    assert Guard().key_press_reason((" ",), facts(name)) is not None
    assert Guard().key_press_reason(("Tab",), facts(name)) is None
    assert Guard().key_press_reason(("Enter",), facts(field=TEXT, button=(name,))) is not None


@pytest.mark.parametrize(
    "name", ["Search", "Next", "Buyers' guide", "Payload", "Add to cart", "Close", "Delete", "Sign in"]
)
def test_other_controls_need_no_approval(name: str) -> None:
    assert Guard().click_reason(facts(name)) is None


def test_long_text_is_not_a_label() -> None:
    story = "Where to buy the best of everything, and how to pay for it: a story in many words that never seem to end."
    assert Guard().click_reason(facts(story, control=False)) is None
    assert Guard().click_reason(facts("Buy", control=False)) is not None


@pytest.mark.parametrize(
    "field",
    [
        PASSWORD,
        CARD,
        FormField("text", "current-password"),
        FormField("text", "one-time-code"),
        FormField("tel", "", ("cardnumber",)),
        FormField("text", "", ("Card number",)),
        FormField("text", "", ("CVV",)),
        FormField("text", "", ("IBAN",)),
        FormField("text", "", ("Passwort",)),
    ],
)
def test_secret_field_needs_approval(field: FormField) -> None:
    assert Guard().typing_reason("x", facts(field=field)) is not None
    assert Guard().click_reason(facts(field=field)) is None


def test_plain_field_needs_no_approval() -> None:
    assert Guard().typing_reason("hello", facts(field=FormField("text", "name", ("Full name", "Compass")))) is None
    assert Guard().typing_reason("hello", None) is None


def test_submitting_payment_details_needs_approval() -> None:
    assert Guard().click_reason(facts("Continue", submits=True, fields=(TEXT, CARD))) is not None
    assert Guard().click_reason(facts("Help", fields=(TEXT, CARD))) is None
    assert Guard().click_reason(facts("Continue", submits=True, fields=(TEXT,))) is None
    assert Guard().key_press_reason(("Enter",), facts(field=TEXT, fields=(TEXT, CARD))) is not None


def test_secret_is_detected_in_parts_and_never_shown() -> None:
    guard = Guard(secrets=("hunter2!", ""))
    reason = guard.typing_reason("my hunter2! is", None)
    assert reason is not None
    assert "hunter2" not in reason
    assert guard.typing_reason("ter2!", None) is None
    guard.record_typing("hun")
    assert guard.typing_reason("ter2!", None) is not None
    assert guard.redact_secrets("it is hunter2!.") == "it is [secret]."


@pytest.mark.parametrize(
    ("text", "asked"), [("4111 1111 1111 1111", True), ("4111111111111112", False), ("0" * 16, False)]
)
def test_card_number_is_detected_by_check_digit(text: str, asked: bool) -> None:
    assert (Guard().typing_reason(text, None) is not None) == asked


def test_configured_sensitive_words() -> None:
    assert Guard(sensitive=r"launch").click_reason(facts("Launch the rocket")) is not None
    assert Guard().click_reason(facts("Launch the rocket")) is None
