"""What a person is asked about, by what a page says of itself."""

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
def test_a_control_that_spends_or_destroys_is_asked_about(name: str) -> None:
    assert Guard().click_reason(facts(name)) is not None
    assert Guard().key_press_reason(("Enter",), facts(name)) is not None
    assert Guard().key_press_reason((" ",), facts(name)) is not None
    assert Guard().key_press_reason(("Tab",), facts(name)) is None
    assert Guard().key_press_reason(("Enter",), facts(field=TEXT, button=(name,))) is not None


@pytest.mark.parametrize(
    "name", ["Search", "Next", "Buyers' guide", "Payload", "Add to cart", "Close", "Delete", "Sign in"]
)
def test_others_are_not(name: str) -> None:
    assert Guard().click_reason(facts(name)) is None


def test_a_long_text_is_no_name() -> None:
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
def test_a_field_for_secrets_is_asked_about(field: FormField) -> None:
    assert Guard().typing_reason("x", facts(field=field)) is not None
    assert Guard().click_reason(facts(field=field)) is None


def test_a_plain_field_is_not() -> None:
    assert Guard().typing_reason("hello", facts(field=FormField("text", "name", ("Full name", "Compass")))) is None
    assert Guard().typing_reason("hello", None) is None


def test_a_form_with_payment_details_is_not_submitted_unasked() -> None:
    assert Guard().click_reason(facts("Continue", submits=True, fields=(TEXT, CARD))) is not None
    assert Guard().click_reason(facts("Help", fields=(TEXT, CARD))) is None
    assert Guard().click_reason(facts("Continue", submits=True, fields=(TEXT,))) is None
    assert Guard().key_press_reason(("Enter",), facts(field=TEXT, fields=(TEXT, CARD))) is not None


def test_a_secret_is_known_whole_and_in_pieces_and_never_told() -> None:
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
def test_the_number_of_a_payment_card_is_known_by_its_check_digit(text: str, asked: bool) -> None:
    assert (Guard().typing_reason(text, None) is not None) == asked


def test_words_of_ones_own() -> None:
    assert Guard(sensitive=r"launch").click_reason(facts("Launch the rocket")) is not None
    assert Guard().click_reason(facts("Launch the rocket")) is None
