"""What the encoders of the Interactions API decide and remember for a whole request or answer."""

from msgspec import Raw

from toolwire.codec.interface import Target
from toolwire.codec.losses import Report
from toolwire.codec.plan import Plan, Rules


class StepPlan(Plan):
    """`calls` gives the name of each call by its id, for its result. `google`: it comes from Google's other protocol,
    so that thoughts without a proof of their own are the issuer's, too. `located`: where its maps are to look."""

    def __init__(
        self,
        rules: Rules,
        report: Report,
        target: Target,
        *,
        home: bool,
        answering: bool = False,
        google: bool = False,
    ) -> None:
        super().__init__(rules, report, target, home=home, answering=answering)
        self.calls: dict[str, str] = {}
        self.google = google
        self.located: dict[str, Raw] = {}
