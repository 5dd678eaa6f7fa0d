"""Write TensorBoard's event files without TensorBoard: scalars as PyTorch and Keras write them."""

import struct

from scalewise.analysis.measure.logs.event_file import masked_crc


def varint(number):
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def record(payload):
    length = struct.pack("<Q", len(payload))
    return b"".join(
        [length, struct.pack("<I", masked_crc(length)),
         payload, struct.pack("<I", masked_crc(payload))]
    )  # fmt: skip


def event(tag, step, value, wall_time=0.0, *, tensor=False):
    """Return the record of a scalar (a tensor in TensorFlow 2) or of a text."""
    if isinstance(value, str):
        content = field(8, varint(1 << 3) + varint(7) + field(8, value.encode()))
    elif tensor:
        content = field(8, varint(1 << 3) + varint(1) + field(4, struct.pack("<f", value)))
    else:
        content = varint(2 << 3 | 5) + struct.pack("<f", value)
    summary = field(1, field(1, tag.encode()) + content)
    clock = varint(1 << 3 | 1) + struct.pack("<d", wall_time)
    return record(clock + varint(2 << 3) + varint(step) + field(5, summary))


def event_file(*events):
    """Return a file: its version, then the events."""
    version = varint(1 << 3 | 1) + struct.pack("<d", 0.0) + field(3, b"brain.Event:2")
    return record(version) + b"".join(events)
