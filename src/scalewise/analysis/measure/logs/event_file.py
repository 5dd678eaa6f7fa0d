"""TensorBoard's event files, without TensorBoard: records of protocol buffers.

A record is the length of its data (8 bytes), the checksum of the length (4), the data, and the
checksum of the data (4). The data is an ``Event``, of which we need the wall time (field 1), the
step (2) and the summary (5): its values (1) have a tag (1) and a simple value (2) or a tensor (8).
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from scalewise.analysis.measure.logs.exported import Entry, entry_logs
from scalewise.analysis.measure.logs.log import Log, Observation
from scalewise.analysis.measure.logs.tag_names import tag_meaning
from scalewise.analysis.measure.table_numbers import MAX_DEVICES, MAX_VALUE

EVENT_FILE = "TensorBoard event file"
"""The format, as it is shown to users."""
MAX_RECORDS = 100_000
MAX_DATA = 65_536
"""A larger record is an image, a histogram or a graph."""
EPOCH_ENDS = ("epoch_loss", "epoch_accuracy")
"""Tags that Keras' callback writes at the end of each epoch: their wall times give epoch times."""
ENTRY_TAG = re.compile(r"(run|scaling)/(\w+?)(?:_(low|high|count))?")
_CRC_TABLE = [0] * 256
for _byte in range(256):
    _crc = _byte
    for _ in range(8):
        _crc = (_crc >> 1) ^ (0x82F63B78 if _crc & 1 else 0)
    _CRC_TABLE[_byte] = _crc


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value of a tag."""

    tag: str
    step: int
    value: float | str
    wall_time: float


def masked_crc(data: bytes) -> int:
    """Return the checksum of a record: CRC-32C, rotated and shifted by a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def is_event_file(data: bytes) -> bool:
    """Say whether data begins with a record."""
    return len(data) >= 12 and masked_crc(data[:8]) == struct.unpack_from("<I", data, 8)[0]


def read_event_file(data: bytes) -> list[Log]:
    """Return the run of an event file; the runs or points, if scalewise wrote it."""
    scalars = list(read_scalars(data))
    tags = {scalar.tag for scalar in scalars}
    if "unit" in tags and any(map(ENTRY_TAG.fullmatch, tags)):
        return _entries(scalars)
    log = Log(format=EVENT_FILE)
    for scalar in scalars:
        meaning = tag_meaning(scalar.tag)
        if meaning is None or isinstance(scalar.value, str):
            continue
        log.add(meaning.observation(scalar.value, f'the tag "{scalar.tag}"'))
    log.observations += _epoch_times(scalars)
    return [log] if log.observations else []


def _epoch_times(scalars: list[Scalar]) -> Iterator[Observation]:
    """Yield the seconds between the ends of epochs, as Keras' callback notes them."""
    tag = next((tag for tag in EPOCH_ENDS if any(s.tag == tag for s in scalars)), None)
    ends = {scalar.step: scalar.wall_time for scalar in scalars if scalar.tag == tag}
    for epoch, end in ends.items():
        if epoch - 1 in ends and 0 < end - ends[epoch - 1] <= MAX_VALUE:
            yield Observation(
                quantity="epoch_time",
                value=end - ends[epoch - 1],
                source=f'the time stamps of "{tag}"',
                rank=2,
                epoch=epoch,
                warmed_up=True,
            )


def _entries(scalars: list[Scalar]) -> list[Log]:
    """Return the runs or points that scalewise wrote: the step is the number of devices, and the
    folder, which is not known here, is the curve.
    """
    entries: dict[tuple[str, int], Entry] = {}
    unit = next((s.value for s in scalars if s.tag == "unit" and isinstance(s.value, str)), None)
    for scalar in scalars:
        match = ENTRY_TAG.fullmatch(scalar.tag)
        if match is None or isinstance(scalar.value, str) or not 0 < scalar.step <= MAX_DEVICES:
            continue
        kind, name, part = match[1], match[2], match[3] or "value"
        key = (kind, scalar.step)
        entry = entries.setdefault(
            key, Entry(curve="", run="run" if kind == "run" else None, devices=scalar.step)
        )
        entry.unit = unit.replace("\\", "") if unit else None  # Markdown's escapes.
        if name == "nodes":
            entry.nodes = int(scalar.value) if 0 < scalar.value <= MAX_DEVICES else None
        elif part != "count":
            entry.values.setdefault(name, {})[part] = scalar.value
    logs = entry_logs(list(entries.values()), EVENT_FILE)
    for log in logs:
        log.name = None
    return logs


def read_scalars(data: bytes) -> Iterator[Scalar]:
    """Yield the scalars and texts of a file, up to where it is damaged or cut."""
    offset, size = 0, len(data)
    for _ in range(MAX_RECORDS):
        if offset + 16 > size:
            return
        length, checksum = struct.unpack_from("<QI", data, offset)
        if masked_crc(data[offset : offset + 8]) != checksum or offset + 16 + length > size:
            return
        if length <= MAX_DATA:
            record = data[offset + 12 : offset + 12 + length]
            try:
                scalars = list(_event_scalars(record))
            except (ValueError, struct.error, IndexError):
                return
            (checksum,) = struct.unpack_from("<I", data, offset + 12 + length)
            if scalars and masked_crc(record) != checksum:
                return
            yield from scalars
        offset += 16 + length


def _event_scalars(record: bytes) -> Iterator[Scalar]:
    wall_time, step, summaries = 0.0, 0, []
    for field, value in _fields(record):
        if field == 1 and isinstance(value, bytes):
            (wall_time,) = struct.unpack("<d", value)
        elif field == 2 and isinstance(value, int):
            step = value
        elif field == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for field, value in _fields(summary):
            if field == 1 and isinstance(value, bytes):
                tag, number = _summary_value(value)
                if number is not None:
                    yield Scalar(tag, step, number, wall_time)


def _summary_value(data: bytes) -> tuple[str, float | str | None]:
    tag, number = "", None
    for field, value in _fields(data):
        if not isinstance(value, bytes):
            continue
        if field == 1:
            tag = value.decode("utf-8", "replace")
        elif field == 2:
            (number,) = struct.unpack("<f", value)
        elif field == 8:
            number = _tensor_value(value)
    return tag, number


def _tensor_value(data: bytes) -> float | str | None:
    """Return the number or the text of a tensor of one element; None if it is another one."""
    content = dict(_fields(data))
    formats = {1: ("<f", 5), 2: ("<d", 6)}  # By data type: float and double, and their fields.
    kind = content.get(1)
    if kind == 7 and isinstance(text := content.get(8), bytes):
        return text.decode("utf-8", "replace")
    if kind not in formats:
        return None
    code, field = formats[kind]
    for raw in (content.get(4), content.get(field)):
        if isinstance(raw, bytes) and len(raw) == struct.calcsize(code):
            return float(struct.unpack(code, raw)[0])
    return None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a protocol buffer."""
    offset, size = 0, len(data)
    while offset < size:
        key, offset = _varint(data, offset)
        field, kind = key >> 3, key & 7
        if kind == 0:
            value, offset = _varint(data, offset)
            yield field, value
            continue
        if kind == 2:
            length, offset = _varint(data, offset)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError("unknown kind of field")
        if offset + length > size:
            raise ValueError("a field is cut")
        yield field, data[offset : offset + length]
        offset += length


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
