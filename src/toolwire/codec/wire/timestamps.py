"""RFC 3339 timestamps to seconds since 1970 and back, by arithmetic only."""

import re

_TIMESTAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))")
_SECONDS_PER_DAY = 86_400


def decode_timestamp(text: str) -> int | float | None:
    """Return the seconds since 1970, or None if the text is not a timestamp."""
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
    """Format seconds since 1970 as a UTC timestamp."""
    full_seconds = int(seconds // 1)
    days, time_of_day = divmod(full_seconds, _SECONDS_PER_DAY)
    year, month, day = _date_of(days)
    clock = f"{time_of_day // 3600:02}:{time_of_day % 3600 // 60:02}:{time_of_day % 60:02}"
    fraction = f"{seconds - full_seconds:.6f}"[1:].rstrip("0").rstrip(".") if seconds != full_seconds else ""
    return f"{year:04}-{month:02}-{day:02}T{clock}{fraction}Z"


def _days_since_epoch(year: int, month: int, day: int) -> int:
    """Return the days since 1970; years start in March, so that the leap day comes last."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def _date_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since 1970."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    return year + era * 400 + (month <= 2), month, day_of_year - (153 * month_from_march + 2) // 5 + 1
