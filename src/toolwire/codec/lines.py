"""Frames that stay whole for readers that split text into lines, as httpx does for several SDKs."""


def in_one_line(frames: bytes) -> bytes:
    """The frames, with what Unicode also calls the end of a line escaped: JSON has it in strings only."""
    if frames.isascii() or not (b"\xe2\x80" in frames or b"\xc2\x85" in frames):
        return frames
    return (
        frames.replace(b"\xe2\x80\xa8", rb"\u2028")
        .replace(b"\xe2\x80\xa9", rb"\u2029")
        .replace(b"\xc2\x85", rb"\u0085")
    )
