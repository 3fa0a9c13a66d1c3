"""Checks for actions that need approval: typing secrets, and controls that buy, pay or destroy.

The checks rely on what the page says about itself, just before each click and key press. They can't see through a
page that hides the purpose of a control (an image without a name, a canvas, a custom shortcut). Actions that must
never happen without approval should be excluded by the allowed hosts and action kinds of a session.
"""

import re

from msgspec import Struct

from toolwire.codec.sensitive_data import is_card_number

SECRET_AUTOCOMPLETE = frozenset({"current-password", "new-password", "one-time-code"})
CARD_HINT = re.compile(
    r"card.?(number|no\b|num\b)|credit.?card|debit.?card|\bcc.?(num|number|csc|exp)|\bcv[vc]2?\b|security code"
    r"|card.?expir|\biban\b|account number|routing number|kartennummer|numéro de carte|número de (la )?tarjeta",
    re.IGNORECASE,
)
SECRET_HINT = re.compile(
    r"pass(word|code|phrase)|passwort|mot de passe|contraseña|\bpin\b|social security|\bssn\b", re.IGNORECASE
)
PAYMENT_LABEL = re.compile(
    r"\b(buy|purchase|pay|order now|(place|submit|complete|confirm) (your |my |the )?(order|purchase|booking|payment)"
    r"|confirm and pay|check ?out|subscribe|donate|book now|place (a |your )?bid|send (money|payment)|withdraw"
    r"|transfer (money|funds)|start (free )?trial|upgrade (now|plan)|kaufen|zahlen|bezahlen|bestellen|zahlungspflichtig"
    r"|acheter|payer|commander|comprar|pagar|acquista|paga|kopen|betalen)\b"
    r"|購入|注文を確定|支払|购买|支付|结账|付款|구매|결제",
    re.IGNORECASE,
)
DESTRUCTIVE_LABEL = re.compile(
    r"\b(delete|close|deactivate|terminate|erase|cancel) (my |your |the |this )?"
    r"(account|profile|subscription|workspace|repository|project|everything|all)\b"
    r"|\b(delete|erase) (permanently|forever)\b|\bkonto löschen\b|\bfactory reset\b",
    re.IGNORECASE,
)
CARD_DIGITS = re.compile(r"(?:\d[ -]?){13,19}")
MAX_LABEL_LENGTH = 80
REDACTED = "[redacted]"


class FormField(Struct, frozen=True):
    """A field of a form, as the page describes it."""

    type: str
    autocomplete: str
    hints: tuple[str, ...] = ()

    @property
    def is_payment(self) -> bool:
        """Return whether the field is for payment details."""
        return "cc-" in self.autocomplete or any(CARD_HINT.search(hint) for hint in self.hints)

    @property
    def is_secret(self) -> bool:
        """Return whether the field is for a password or another secret."""
        return (
            self.type == "password"
            or not SECRET_AUTOCOMPLETE.isdisjoint(self.autocomplete.split())
            or any(SECRET_HINT.search(hint) for hint in self.hints)
        )


class ElementFacts(Struct, frozen=True):
    """The page's own description of one of its elements, as reported by look.js."""

    # Whether the element is a frame, whose content must be inspected separately.
    frame: bool
    # Whether its texts are checked but never shown.
    redacted: bool
    # Whether it may have a closed shadow root.
    shadowed: bool
    tag: str
    # Whether it is a control, and not just an area of the page.
    control: bool
    # Its labels and texts.
    names: tuple[str, ...]
    # The element itself if it is a field, and all fields of its form.
    field: FormField | None
    fields: tuple[FormField, ...]
    # The options of a drop-down list.
    choices: tuple[str, ...]
    # Whether it submits its form.
    submits: bool
    # The names of the button that Enter would press.
    button: tuple[str, ...]

    @property
    def choices_text(self) -> str:
        """Return the options as text, redacted if necessary."""
        return REDACTED if self.redacted else "; ".join(self.choices)


class Guard:
    """Decides which actions need approval, and why. `sensitive` is a regular expression for further control names."""

    def __init__(self, *, secrets: tuple[str, ...] = (), sensitive: str | None = None) -> None:
        self.secrets = tuple(filter(None, secrets))
        self._sensitive_pattern = re.compile(sensitive, re.IGNORECASE) if sensitive else None
        self._recent_text = ""

    def typing_reason(self, text: str, facts: ElementFacts | None) -> str | None:
        """Return why typing a text needs approval, without quoting the text; None if it needs none."""
        recent = self._recent_text + text
        if any(secret in recent for secret in self.secrets):
            return "this types a text that is configured as a secret"
        if any(is_card_number(digits) for digits in CARD_DIGITS.findall(recent)):
            return "this types what looks like a payment card number"
        field = facts.field if facts is not None else None
        if field is not None and field.is_secret:
            return "this types into a field for a password or another secret"
        if field is not None and field.is_payment:
            return "this types into a field for payment details"
        return None

    def record_typing(self, text: str) -> None:
        """Remember the end of what was typed, so that a secret typed in parts is detected."""
        max_length = max([19 * 2, *map(len, self.secrets)])
        self._recent_text = (self._recent_text + text)[-max_length:]

    def click_reason(self, facts: ElementFacts | None) -> str | None:
        """Return why clicking an element needs approval; None if it needs none."""
        if facts is None:
            return None
        # The text of a large area is not a label of the clicked element.
        names = facts.names if facts.control else tuple(name for name in facts.names if len(name) <= MAX_LABEL_LENGTH)
        if facts.field is None and (reason := self._label_reason(names, redacted=facts.redacted)):
            return reason
        if facts.submits and any(field.is_payment for field in facts.fields):
            return "this submits a form with payment details"
        return None

    def key_press_reason(self, keys: tuple[str, ...], facts: ElementFacts | None) -> str | None:
        """Return why pressing keys in the focused element needs approval; None if it needs none."""
        if facts is None:
            return None
        if facts.field is None:
            return self.click_reason(facts) if "Enter" in keys or " " in keys else None
        if "Enter" in keys:
            if reason := self._label_reason(facts.button, redacted=facts.redacted):
                return reason
            if any(field.is_payment for field in facts.fields):
                return "this submits a form with payment details"
        return None

    def redact_secrets(self, text: str) -> str:
        """Replace the configured secrets in a text."""
        for secret in self.secrets:
            text = text.replace(secret, "[secret]")
        return text

    def _label_reason(self, names: tuple[str, ...], *, redacted: bool) -> str | None:
        """Return why a control with these labels needs approval; None if it needs none.

        The reason does not quote the labels if they are `redacted`.
        """
        for name in names:
            control = f"the control {REDACTED if redacted else repr(name[:MAX_LABEL_LENGTH])}"
            if PAYMENT_LABEL.search(name):
                return f"{control} looks like it spends money"
            if DESTRUCTIVE_LABEL.search(name):
                return f"{control} looks like it destroys something"
            if self._sensitive_pattern is not None and self._sensitive_pattern.search(name):
                return f"{control} is configured as sensitive"
        return None
