"""What the encoders of the Interactions API decide and remember for a whole request or answer."""

from msgspec import Raw

from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules
from toolwire.codec.interface import Target
from toolwire.codec.losses import LossReport


class StepPlan(EncodingPlan):
    """`calls` gives the name of each call by its id, for its result. `google`: it comes from Google's other protocol,
    so that thoughts without a proof of their own are the issuer's, too. `located`: where its maps are to look."""

    def __init__(
        self,
        rules: IdAndNameRules,
        report: LossReport,
        target: Target,
        *,
        same_protocol: bool,
        for_client: bool = False,
        from_gemini: bool = False,
    ) -> None:
        super().__init__(rules, report, target, same_protocol=same_protocol, for_client=for_client)
        self.calls: dict[str, str] = {}
        self.from_gemini = from_gemini
        self.map_location: dict[str, Raw] = {}
