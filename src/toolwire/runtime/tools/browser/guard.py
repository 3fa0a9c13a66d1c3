"""What a person must agree to before it is done: secrets that are typed, and controls that buy, pay or destroy.

It is judged by what the page says about itself, just before each click and key. A page that hides what a control does
(a picture without a name, a drawing, a shortcut of its own) is not seen through: what must never happen unasked is kept
out by the hosts and the kinds of action that a session allows.
"""

import re

from msgspec import Struct

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
    type: str
    autocomplete: str
    hints: tuple[str, ...] = ()

    @property
    def is_payment(self) -> bool:
        return "cc-" in self.autocomplete or any(CARD_HINT.search(hint) for hint in self.hints)

    @property
    def is_secret(self) -> bool:
        return (
            self.type == "password"
            or not SECRET_AUTOCOMPLETE.isdisjoint(self.autocomplete.split())
            or any(SECRET_HINT.search(hint) for hint in self.hints)
        )


class ElementFacts(Struct, frozen=True):
    """What a page says about one of its elements. `choices` are those of a list that would open, `button` is what
    Enter would press. Of one that is `redacted`, it is judged, and not told."""

    frame: bool
    redacted: bool
    shadowed: bool
    tag: str
    control: bool
    names: tuple[str, ...]
    field: FormField | None
    fields: tuple[FormField, ...]
    choices: tuple[str, ...]
    submits: bool
    button: tuple[str, ...]

    @property
    def choices_text(self) -> str:
        return REDACTED if self.redacted else "; ".join(self.choices)


class Guard:
    def __init__(self, *, secrets: tuple[str, ...] = (), sensitive: str | None = None) -> None:
        self.secrets = tuple(filter(None, secrets))
        self._sensitive_pattern = re.compile(sensitive, re.IGNORECASE) if sensitive else None
        self._recent_text = ""

    def typing_reason(self, text: str, facts: ElementFacts | None) -> str | None:
        """Why it may not be typed unasked. The reason never says what would be typed."""
        whole = self._recent_text + text
        if any(secret in whole for secret in self.secrets):
            return "this types a text that is configured as a secret"
        if any(_is_card_number(found) for found in CARD_DIGITS.findall(whole)):
            return "this types what looks like the number of a payment card"
        field = facts.field if facts is not None else None
        if field is not None and field.is_secret:
            return "this types into a field for a password or another secret"
        if field is not None and field.is_payment:
            return "this types into a field for payment details"
        return None

    def record_typing(self, text: str) -> None:
        """Remembers the end, so that a secret in pieces is seen, too."""
        longest = max([19 * 2, *map(len, self.secrets)])
        self._recent_text = (self._recent_text + text)[-longest:]

    def click_reason(self, facts: ElementFacts | None) -> str | None:
        if facts is None:
            return None
        # The text of a large area is not the name of what is clicked.
        names = facts.names if facts.control else tuple(name for name in facts.names if len(name) <= MAX_LABEL_LENGTH)
        if facts.field is None and (why := self._label_reason(names, redacted=facts.redacted)):
            return why
        if facts.submits and any(field.is_payment for field in facts.fields):
            return "this submits a form with payment details"
        return None

    def key_press_reason(self, keys: tuple[str, ...], facts: ElementFacts | None) -> str | None:
        """Of keys that go to the element with the focus."""
        if facts is None:
            return None
        if facts.field is None:
            return self.click_reason(facts) if "Enter" in keys or " " in keys else None
        if "Enter" in keys:
            if why := self._label_reason(facts.button, redacted=facts.redacted):
                return why
            if any(field.is_payment for field in facts.fields):
                return "this submits a form with payment details"
        return None

    def redact_secrets(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "[secret]")
        return text

    def _label_reason(self, names: tuple[str, ...], *, redacted: bool) -> str | None:
        for name in names:
            control = f"the control {REDACTED if redacted else repr(name[:MAX_LABEL_LENGTH])}"
            if PAYMENT_LABEL.search(name):
                return f"{control} looks like it spends money"
            if DESTRUCTIVE_LABEL.search(name):
                return f"{control} looks like it destroys something"
            if self._sensitive_pattern is not None and self._sensitive_pattern.search(name):
                return f"{control} is configured as sensitive"
        return None


def _is_card_number(text: str) -> bool:
    """By the check digit that the numbers of all payment cards have."""
    digits = [int(one) for one in text if one.isdigit()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return len(digits) >= 13 and len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
