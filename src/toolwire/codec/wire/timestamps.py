"""Moments as text, to seconds since 1970 and back: arithmetic only, no clock and no calendar of this machine's."""

import re

_TIMESTAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))")
_SECONDS_PER_DAY = 86_400


def decode_timestamp(text: str) -> int | float | None:
    """None if it is no moment as the wire writes them."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60):
        return None
    seconds = _days_since_epoch(year, month, day) * _SECONDS_PER_DAY + hour * 3600 + minute * 60 + second
    if match[8] is not None:
        offset = int(match[9]) * 3600 + int(match[10]) * 60
        seconds += offset if match[8] == "-" else -offset
    return seconds + float("0." + match[7]) if match[7] is not None and int(match[7]) else seconds


def encode_timestamp(seconds: float) -> str:
    whole = int(seconds // 1)
    days, rest = divmod(whole, _SECONDS_PER_DAY)
    year, month, day = _date_of(days)
    fraction = f"{seconds - whole:.6f}"[1:].rstrip("0").rstrip(".") if seconds != whole else ""
    return f"{year:04}-{month:02}-{day:02}T{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}{fraction}Z"


def _days_since_epoch(year: int, month: int, day: int) -> int:
    """Days since 1970; years start in March, so that the leap day is their last."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _date_of(days: int) -> tuple[int, int, int]:
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1
