"""Read the rows of a table that people wrote, and note how each column was understood."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from scalewise.analysis.measure.table_columns import Selection, choose_columns
from scalewise.analysis.measure.table_header import Column, Role, match_column
from scalewise.analysis.measure.table_layout import (
    COLUMNS,
    HEADER_HINT,
    VALUE_ROLES,
    Layout,
    find_layout,
    is_header,
)
from scalewise.analysis.measure.table_lines import Line
from scalewise.analysis.measure.table_numbers import (
    MAX_DEVICES,
    MAX_VALUE,
    MIN_VALUE,
    Number,
    is_missing,
    parse_count,
    parse_measured,
)
from scalewise.errors import SpecError, parameter, shown

IMPORTED = "# Imported: "
"""How a comment begins that says which log a table was made of."""
NEEDED = "devices and throughput or time are needed"
NO_VALUE = "no value"
"""The remark about rows whose throughput, time and the like are empty."""
SUMMARY = re.compile(r"(?:total|sum|mean|average|avg|geo|note|source|summary|\*)", re.IGNORECASE)
"""How a line below a table begins that is no row of it."""


@dataclass(frozen=True, kw_only=True)
class TableReading:
    """How a table was read."""

    columns: Mapping[str, str]
    """By role: the title of the column, several repeats joined with commas."""
    units: Mapping[str, str]
    """By role: the unit in which its numbers were read, where the title or the cells give one."""
    delimiter: str
    decimal_mark: str = "."
    decimal_rule: str | None = None
    """How the decimal mark was decided where no number shows it."""
    transposed: bool = False
    """Whether the table has one column, not one row, per number of devices."""
    repeats: tuple[int, int] = (1, 1)
    """The fewest and the most repeats of a number of devices."""
    remarks: tuple[str, ...] = ()
    """Kinds of interpretation, see ``report.text.table_reading``."""
    compared: tuple[str, ...] = ()
    """Titles of speedups and efficiencies that were only compared with the computed ones."""
    ignored: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Cells that were read as unknown values, such as ``OOM``."""
    skipped_lines: int = 0
    """Lines above the header and below the rows that are no part of the table."""
    imported: tuple[str, ...] = ()
    """Of a table that was made of logs: where its numbers are from."""


@dataclass(kw_only=True)
class TableRow:
    """The numbers of one row by role; several numbers of a role are repeats."""

    where: str
    devices: int
    nodes: int | None
    numbers: dict[Role, list[Number]]


@dataclass(kw_only=True)
class Table:
    """Rows of a table, and what was noted while they were read."""

    source: str
    layout: Layout
    selection: Selection
    rows: list[TableRow] = field(default_factory=list)
    remarks: dict[str, None] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    skipped_lines: int = 0
    plain: bool = True
    """Whether all numbers are written as Python writes them."""
    node_size: int | None = None
    """Devices of a full node."""
    cell_units: dict[str, str] = field(default_factory=dict)
    """By role: the unit that its cells have, or that was assumed."""
    imported: tuple[str, ...] = ()
    """The comments that begin with ``IMPORTED``."""

    def where(self, line: Line) -> str:
        """Return a line's position for a message."""
        return self.layout.where(self.source, line)


def read_table(source: str, text: str, devices_per_node: int | None, *, in_order: bool) -> Table:
    """Return the rows of a table. With ``in_order``, they must be sorted by devices."""
    layout = find_layout(source, text)
    selection = choose_columns(source, layout)
    table = Table(source=source, layout=layout, selection=selection, node_size=devices_per_node)
    table.skipped_lines = layout.title_lines
    table.imported = tuple(
        line.removeprefix(IMPORTED) for line in text.splitlines() if line.startswith(IMPORTED)
    )
    _check_sizes(table, devices_per_node)
    counts: set[int] = set()
    largest = 0
    for line in _table_lines(table):
        row = _read_row(table, _with_size_above(table, line))
        if row is None:
            continue
        if in_order and row.devices < largest and row.devices not in counts:
            raise SpecError(
                f"{row.where}: {row.devices} devices come after {largest}",
                hint="sort the rows, from few devices to many",
            )
        counts.add(row.devices)
        largest = max(largest, row.devices)
        table.rows.append(row)
    if not table.rows:
        is_empty = NO_VALUE in table.remarks
        problem = "no throughput or time in any row" if is_empty else "a header and no rows"
        raise SpecError(f"{source} has {problem}", hint=HEADER_HINT)
    _refuse_several_curves(table)
    return table


def _check_sizes(table: Table, devices_per_node: int | None) -> None:
    """Refuse nodes without their size."""
    selection = table.selection
    nodes = selection.first("nodes")
    if not nodes and not selection.first("devices"):
        if not table.layout.lines:
            raise SpecError(f"{table.source} has a header and no rows", hint=HEADER_HINT)
        first_line = table.where(table.layout.lines[0])
        raise SpecError(f"{first_line}: {NEEDED}", hint=HEADER_HINT)
    if selection.first("devices") or devices_per_node or selection.first("devices_per_node"):
        return
    if nodes and nodes.factor == 1:
        raise SpecError(
            f"{table.source} has nodes and no devices",
            hint=f"{parameter('devices_per_node', 4)} says how many devices a node has; "
            "or add a column GPUs per node",
        )


def _table_lines(table: Table) -> list[Line]:
    """Return the lines of rows: not blank, and without notes below the table."""
    lines = [line for line in table.layout.lines if not line.is_blank]
    for index, line in enumerate(lines):
        titles = [match_column(k, cell) for k, cell in enumerate(line.cells) if not _is_plain(cell)]
        if is_header(titles):
            raise SpecError(
                f"{table.where(line)} begins a second table", hint="keep one table per file"
            )
        if index and all(_is_note(table, other) for other in lines[index:]):
            table.skipped_lines += len(lines) - index
            return lines[:index]
    return lines


def _with_size_above(table: Table, line: Line) -> Line:
    """Return a line whose empty number of devices is that of the row above, as in merged cells."""
    column = table.selection.first("devices")
    if column is None or not table.rows or line.cells[column.index : column.index + 1] != ("",):
        return line
    cells = list(line.cells)
    cells[column.index] = str(table.rows[-1].devices)
    table.remarks["merged cells"] = None
    return Line(line.number, tuple(cells))


def _is_note(table: Table, line: Line) -> bool:
    """Say whether a line is text below the table, or a total."""
    sizes = [c for role in ("devices", "nodes") if (c := table.selection.first(role))]
    index = sizes[0].index
    cell = line.cells[index] if index < len(line.cells) else ""
    first = next(filter(None, line.cells), "")
    if not re.match(r"\d", cell) and SUMMARY.match(first):
        return True
    has_numbers = any(re.match(r"[~≈]?\d", text) for text in line.cells)
    return not has_numbers and not any(is_missing(text) for text in line.cells if text)


def _read_row(table: Table, line: Line) -> TableRow | None:
    """Return the numbers of a line; None if they are unknown."""
    where, columns = table.where(line), table.layout.columns
    cells = list(line.cells)
    used = [c.index for group in table.selection.columns.values() for c in group]
    if any(cells[len(columns) :]) or len(cells) <= max(used):
        hint = "give each row as many cells as there are titles"
        if table.layout.delimiter == "commas":
            hint = "put numbers with commas in quotes"
        raise SpecError(f"{where}: {len(cells)} cells under {len(columns)} columns", hint=hint)
    devices, nodes = _read_size(table, where, cells)
    numbers: dict[Role, list[Number]] = {}
    is_marked = False
    for role, group in table.selection.columns.items():
        if role in ("devices", "nodes", "devices_per_node"):
            continue
        for column in group:
            cell = cells[column.index]
            if is_missing(cell):
                table.missing[cell] = None
                is_marked = True
            elif cell:
                numbers.setdefault(role, []).append(_read_number(table, where, column, cell))
    if not VALUE_ROLES & numbers.keys():
        if not is_marked:
            table.remarks[NO_VALUE] = None
        return None
    if devices is None:
        raise SpecError(f"{where}: {NEEDED}", hint=HEADER_HINT)
    return TableRow(where=where, devices=devices, nodes=nodes, numbers=numbers)


def _read_size(table: Table, where: str, cells: list[str]) -> tuple[int | None, int | None]:
    """Return the devices and nodes of a row."""
    counts = _read_counts(table, where, cells)
    devices, nodes = counts.get("devices"), counts.get("nodes")
    nodes_column = table.selection.first("nodes")
    in_title = int(nodes_column.factor) if nodes_column and nodes_column.factor > 1 else None
    per_node = counts.get("devices_per_node") or in_title or table.node_size
    if devices is None and nodes:
        if not per_node:
            raise SpecError(
                f"{where}: nodes without the number of their devices",
                hint=f"{parameter('devices_per_node', 4)} says how many devices a node has",
            )
        devices = nodes * per_node
    elif devices and nodes is None and per_node:
        nodes = -(-devices // per_node)  # Rounded up.
    return devices, nodes


def _read_counts(table: Table, where: str, cells: list[str]) -> dict[str, int]:
    """Return the whole numbers of a row by role. A cell of devices may hold the nodes, too."""
    counts: dict[str, int] = {}
    for role in ("devices", "nodes", "devices_per_node"):
        column = table.selection.first(role)
        cell = cells[column.index] if column else ""
        if not column or not cell:
            continue
        table.plain &= _is_plain(cell)
        try:
            count, nodes = parse_count(cell, table.selection.mark(column))
        except (ValueError, OverflowError):
            name = "devices" if role == "devices" else f'"{column.title}"'
            raise SpecError(
                f"{where}: {name} must be a whole number up to {MAX_DEVICES:,}, got {shown(cell)}",
                hint=HEADER_HINT,
            ) from None
        if role == "nodes":  # The cell may be "2" or "2 nodes".
            count, nodes = nodes if count is None else count, None
        if count:
            counts[role] = count
        if nodes:
            counts.setdefault("nodes", nodes)
    return counts


def _read_number(table: Table, where: str, column: Column, cell: str) -> Number:
    table.plain &= _is_plain(cell)
    try:
        number = parse_measured(cell, column, table.selection.mark(column))
    except (ValueError, OverflowError):
        number = Number(0.0)
    if not MIN_VALUE <= number.value <= MAX_VALUE:
        canonical = column.title.lower() in COLUMNS
        name = column.title.lower() if canonical else f'"{column.title}"'
        limit = f" from {MIN_VALUE:g} to {MAX_VALUE:g}" if number.value > 0 else " above 0"
        raise SpecError(
            f"{where}: {name} must be a number{limit}, got {shown(cell)}",
            hint="leave a cell empty where the number is not known",
        )
    is_time = column.role in ("time", "epoch_time", "step_time")
    if is_time and not column.unit and not re.search(r"[^\W\d]|:", cell):
        table.cell_units[str(column.role)] = "s, assumed"
    if number.low is not None:
        table.remarks["spread" if "[" not in cell else "interval"] = None
    elif re.search(r"[\(\[](?!\s*(?:±|\+))", cell):
        table.remarks["brackets"] = None
    if re.fullmatch(r"\d+:\d\d(?:[.,]\d+)?", cell):
        hours_first = re.fullmatch(r"h+:m+", column.unit or "")
        table.remarks["hours:minutes" if hours_first else "minutes:seconds"] = None
    return number


def _is_plain(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _refuse_several_curves(table: Table) -> None:
    """Refuse rows of one number of devices that differ in a setting, such as the model."""
    lines = {table.where(line): line for line in table.layout.lines}
    for column in _setting_columns(table):
        if len({line.cells[column.index : column.index + 1] for line in lines.values()}) == 1:
            continue
        values: dict[str, set[int]] = {}
        by_devices: dict[int, list[str]] = {}
        value = ""
        for row in table.rows:
            cells = lines[row.where].cells
            # An empty cell repeats the one above, as in merged cells of a spreadsheet.
            value = (cells[column.index] if column.index < len(cells) else "") or value
            values.setdefault(value, set()).add(row.devices)
            by_devices.setdefault(row.devices, []).append(value)
        differ = any(len(set(cells)) > 1 for cells in by_devices.values())
        recur = all(len(devices) > 1 for devices in values.values())
        if differ and recur and len(values) > 1:
            names = ", ".join(list(values)[:4])
            raise SpecError(
                f"{table.source} has several curves: rows of the same number of devices differ in "
                f'"{column.title}": {names}',
                hint="keep the rows of one",
            )


def _setting_columns(table: Table) -> list[Column]:
    """Return the columns that may hold a setting: a batch, or an unused one that counts nothing."""
    repeat = re.compile(
        r"(?:#|run|repeat|rep|trial|seed|iteration|attempt|try|index|id|job|unnamed)"
    )
    columns = [c for c in table.selection.ignored if not repeat.match(c.title.lower() or "#")]
    for role in ("batch", "batch_per_device", "global_batch"):
        columns += table.selection.columns.get(role, [])
    return [column for column in columns if column.role not in VALUE_ROLES]
