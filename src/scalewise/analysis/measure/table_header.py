"""The meaning of a column by its title: names, units and quantities as people write them."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from scalewise.analysis.measure.energy import JOULES_PER_UNIT
from scalewise.errors import cut

Role = Literal[
    "devices", "nodes", "devices_per_node", "throughput", "throughput_per_device",
    "steps_per_second", "time", "epoch_time", "step_time", "speedup", "efficiency", "samples",
    "energy", "global_batch", "batch_per_device", "batch",
]  # fmt: skip
"""What a column holds. ``batch`` is a batch size that may be of one device or of all."""

SECONDS = {
    **dict.fromkeys(("us", "µs", "μs", "usec", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(
        (
            "s",
            "sec",
            "secs",
            "second",
            "seconds",
            "segundo",
            "segundos",
            "sekunde",
            "sekunden",
            "seconde",
        ),
        1.0,
    ),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes", "minutos", "minuten"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "horas", "stunden"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
"""Seconds by unit of time."""
JOULES = {unit.lower(): joules for unit, joules in JOULES_PER_UNIT.items()} | {
    "kj": 1e3,
    "mj": 1e6,
    "gj": 1e9,
    "joules": 1.0,
}
NOUNS = {
    "images": "img imgs image images im imag pictures imágenes bilder",
    "samples": "sample samples smp",
    "examples": "example examples",
    "tokens": "token tokens tok toks tk",
    "sequences": "seq seqs sequence sequences",
    "sentences": "sentence sentences sent",
    "items": "item items",
    "frames": "frame frames",
    "words": "word words",
    "records": "record records rows row",
    "graphs": "graph graphs",
    "videos": "video videos clips",
    "steps": "step steps it its iter iters iteration iterations batch batches update updates",
}
"""By unit of work: the words for it in a rate such as ``img/s``."""
NOUN_OF = {word: noun for noun, words in NOUNS.items() for word in words.split()}
OTHER_RATE = re.compile(
    r"[kmgt]?(?:i?b|bytes?|bits?)|[kmgtp]?(?:flops?|ops)|joules?|requests?|messages?|packets?"
    r"|epochs?|throughput|speed|time|total|mean|avg|loss|train|training|per|kwh|watts?"
)
"""Words whose rate is no throughput of a training."""
RATE_ABBREVIATIONS = {"fps": "frames", "wps": "words", "ips": "images"}
PREFIXES = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "mega": 1e6, "b": 1e9}

DEVICE = r"(?:n?gpus?|gpgpus?|devices?|accelerators?|tpus?|npus?|hpus?|ipus?|gcds?|gaudis?|chips?)"
RANK = r"(?:ranks?|workers?|process|processes|procs?|tasks?|ntasks|mpi ranks?|replicas?)"
CORE = r"(?:cores?|cpus?|threads?|processors?)"
NODE = r"(?:n?nodes?|hosts?|machines?|servers?|nodos?|knoten|noeuds)"
MODEL = r"(?:(?:nvidia|amd|tesla|dgx|[a-z]{1,3}\d{2,4}[a-z]*) )*"
"""Names of devices that may precede the noun, as in ``A100 GPUs``."""
COUNT_WORDS = {
    "n", "no", "nr", "num", "number", "numbers", "count", "total", "nb", "nbr", "of", "the",
    "used", "anzahl", "de", "der", "numero", "número", "nombre",
}  # fmt: skip
DEVICE_NAMES = (
    (rf"{MODEL}{DEVICE}(?: cores?| chips?)?|(?:{NODE} (?:x|per|by) )?{DEVICE} x {NODE}"
     rf"|{NODE} x {DEVICE}(?: per node)?", 0),
    (rf"{RANK}|world|world size|np|nprocs|nproc|parallelism|dp|data parallel size", 1),
    (CORE, 2),
    (r"n|p", 3),
)  # fmt: skip
"""Names of a device column; where several match, the one with the lowest number is used."""

TIME_WORDS = {
    "mean", "avg", "average", "median", "measured", "total", "training", "train", "wall",
    "clock", "execution", "exec", "run", "job", "complete", "overall", "full", "end", "to",
    "completion", "elapsed", "solution", "the", "of", "in", "real", "walltime", "wallclock",
}  # fmt: skip
"""Words that may stand beside the name of a time."""
TIME_NAMES = {
    "time", "times", "timing", "runtime", "duration", "walltime", "wallclock", "elapsed",
    "makespan", "tiempo", "zeit", "laufzeit", "temps", "t", "tp", "tn", "ttt",
} | {"wall clock"}  # fmt: skip
EPOCH = re.compile(
    r"(?:mean |avg |average |training )?(?:epoch (?:time|duration|runtime)|epoch|"
    r"(?:time|duration|runtime) (?:per|of one|of an|for one) epoch|t epoch)"
)
STEP = re.compile(
    r"(?:mean |avg |average )?(?:(?:step|iteration|iter|batch) (?:time|duration|latency)|"
    r"time per (?:step|iteration|iter|batch))"
)
PARTS_OF_TRAINING: dict[Role, str] = {
    "epoch_time": "epoch",
    "step_time": "(?:step|iteration|iter|it|batch)",
}
"""By role of a time: the words for the part of the training that takes it."""
SPEEDUP = re.compile(
    r"(?:relative |measured |actual |achieved |observed |strong scaling |weak scaling )?"
    r"(?:speed ?ups?|scaling factor|relative (?:speed|throughput|performance)|normali[sz]ed "
    r"throughput|t ?1 per t ?[pn]|accélération|aceleracion|aceleración|sp|sn)"
    r"(?: (?:vs|over|against|wrt|relative to|compared to|compared with|to) "
    r"(?:1|one|single|a single|baseline|base)\b.*| factor| x)?"
)
EFFICIENCY = re.compile(
    r"(?:scaling |parallel |strong |weak |relative |measured |% |percent )*"
    r"(?:efficiency|eff|effic|effizienz|eficiencia|efficacite|efficacité|ep|en"
    r"|(?:of )?(?:linear|ideal)(?: scaling)?)(?: %| percent| vs 1.*)?"
)
THROUGHPUT = re.compile(
    r"(?:mean |avg |average |median |total |aggregate |aggregated |global |training |train "
    r"|overall |system |measured |processing |steady |state )*"
    r"(?:throughput|speed|performance|perf|rate|durchsatz|rendimiento)"
)
MAX_TITLE_LENGTH = 100
"""A longer cell is text, not a title; matching it would take long."""
NOT_MEASURED = re.compile(
    r"\b(?:ideal|theoretical|theory|expected|perfect|predicted|target|projected|std|stdev|stddev|sd|"
    r"stderr|sem|error|err|variance|min|minimum|max|maximum|best|worst|p\d\d|first)\b"
)
"""Words of a title that make a column something else than the measured value."""
BATCHES = (
    ("global_batch", r"(?:global|total|effective|overall) (?:mini ?)?(?:batch|bs|batch ?size)"),
    ("batch_per_device", rf"(?:(?:local|micro|per {DEVICE}|{DEVICE}) ?(?:mini ?)?(?:batch|bs)"
     rf"(?: ?size)?|(?:mini ?)?(?:batch|bs)(?: ?size)? (?:per|on each|of each) "
     rf"(?:{DEVICE}|{RANK}))"),
    ("batch", r"(?:mini ?)?(?:batch(?: ?size)?|bs|batches)"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: where it stands, its title, and what that means."""

    index: int
    title: str
    role: Role | None = None
    factor: float = 1.0
    """From the numbers of the column to s, J, or units of work per second; from nodes to devices
    in a title such as ``nodes (8 GPUs each)``.
    """
    unit: str | None = None
    """The unit of the numbers as the title gives it; of a rate, the unit of work."""
    preference: int = 0
    """Of several columns with one role, that with the lowest number is used."""
    repeat: bool = False
    """Whether the title has the number of a repeat, as in ``time run 2``."""
    percent: bool = False


def match_column(index: int, title: str) -> Column:
    """Return what a title means; its role is None if it is not known."""
    if len(title) > MAX_TITLE_LENGTH:
        return Column(index, cut(title))
    return replace(_match_title(title), index=index)


@lru_cache(maxsize=4096)  # The titles of a table are looked at for each way to split its lines.
def _match_title(title: str) -> Column:
    written = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", title)
    for text in dict.fromkeys((title, written)):
        column = _match(0, title, text)
        if column.role:
            return column
    return Column(0, title)


def _match(index: int, title: str, text: str) -> Column:
    name, unit = _split_unit(text)
    name, repeat = _without_repeat(name)
    if not name and not unit:
        return Column(index, title)
    # "ideal" is no measurement, "% of ideal" is an efficiency, "min per epoch" a time.
    is_other = NOT_MEASURED.search(name) and not re.search(r"\bper\b", name)
    if is_other and not re.search(r"(%|percent) (?:of )?(?:linear|ideal)", name):
        return Column(index, title)
    name = re.sub(r"^(?:mean|avg|average|median) | (?:mean|avg|average|median)$", "", name)
    for match in (_match_count, _match_rate, _match_time, _match_ratio, _match_amount):
        if repeat and match is _match_count:  # "GPUs: 1" is no title.
            continue
        if role := match(name, unit):
            kind, factor, used_unit, preference = role
            percent = "%" in name or unit in ("%", "percent")
            return Column(index, title, kind, factor, used_unit, preference, repeat, percent)
    return Column(index, title)


Meaning = tuple[Role, float, str | None, int]
"""Role, factor, unit and preference of a column."""


def _split_unit(title: str) -> tuple[str, str]:
    """Return the words of a title and the unit in brackets or at its end.

    >>> _split_unit("Epoch time [min]"), _split_unit("wall_time_s"), _split_unit("T(p)")
    (('epoch time', 'min'), ('wall time', 's'), ('tp', ''))
    """
    text = title.strip().lower()
    if course := re.fullmatch(r"([tse])[_ ]?\(?\{?([pn])\}?\)?(\s*[\(\[].*)?", text):
        text = course[1] + course[2] + (course[3] or "")
    unit = ""
    if bracket := re.search(r"[\(\[]([^\)\]]*)[\)\]]", text):
        unit = bracket[1].strip()
        text = f"{text[: bracket.start()]} {text[bracket.end() :]}"
    words = split_words(text)
    time = re.fullmatch(r"(\w+(?: \w+)?) per (s|min|h|ms)", words)
    if time and time[1] in TIME_NAMES:  # "Time / s" is a time in seconds.
        return time[1], time[2]
    tail = re.fullmatch(r"(.*[a-z].*?) (?:in )?(\S+)", words)
    if unit or not tail or tail[2] not in SECONDS.keys() | JOULES.keys():
        return words, unit
    before = tail[1].split()[-1]
    is_rate = before in NOUN_OF or before == "per"
    if not is_rate and (len(tail[2]) > 1 or tail[2] in "sh"):
        return tail[1], tail[2]
    return words, unit


def split_words(text: str) -> str:
    """Return lower-case words: ``#_GPUs/node`` is ``gpus per node``."""
    text = re.sub(r"\b(s|sec|min|h)(?:\^?\{?-1\}?|⁻¹)", r"per \1", text)
    text = (
        re.sub(r"\s*/\s*| (?:pro|par|por) ", " per ", text).replace("×", " x ").replace("*", " x ")
    )
    text = re.sub(r"[_\-–.#№º°:,'\"?^]+", " ", text).replace("%", " % ")
    return re.sub(r"\s+", " ", text).strip()


def _without_repeat(name: str) -> tuple[str, bool]:
    """Return a title without the number of a repeat, and whether it had one."""
    shorter = re.sub(r"\b(?:run|trial|rep|repeat|try|attempt|measurement)s? ?\d+\b", "", name)
    shorter = re.sub(r"(?<=[a-z]{3}) ?\d$", "", shorter.strip())
    shorter = " ".join(shorter.split())
    return (shorter, True) if shorter != name else (name, False)


def _match_count(name: str, unit: str) -> Meaning | None:
    if unit in SECONDS or unit in JOULES:  # "GPU hours" is no number of GPUs.
        return None
    words = [word for word in name.split() if word not in COUNT_WORDS] or name.split()
    short = " ".join(words)
    if re.fullmatch(rf"per {NODE}", unit):
        short = f"{short} {unit}"
    if re.fullmatch(rf"{MODEL}(?:{DEVICE}|{RANK}) per {NODE}|ppn|{RANK} per {NODE}", short):
        return "devices_per_node", 1.0, None, 0
    for pattern, preference in DEVICE_NAMES:
        if re.fullmatch(pattern, short):
            return "devices", 1.0, None, preference
    if re.fullmatch(NODE, short):
        each = re.match(rf"(?:with )?(\d+) ?x? ?{MODEL}{DEVICE}", unit)
        return "nodes", float(each[1]) if each else 1.0, each and each[0], 0
    return None


def _match_rate(name: str, unit: str) -> Meaning | None:
    """Match ``images/sec``, ``throughput (tokens/s/GPU)``, ``per-GPU throughput``, ``it/s``."""
    device = rf"(?:per {DEVICE}|per {RANK})"
    per_device = bool(re.search(device, f"{name} {split_words(unit)}"))
    name = " ".join(re.sub(device, " ", name).split())
    rate = " ".join(re.sub(device, " ", split_words(unit)).split())
    is_named = bool(THROUGHPUT.fullmatch(name))
    factor_and_noun = parse_rate(rate) if rate else None
    if factor_and_noun is None and not is_named:
        leading = r"(?:throughput|speed|total|mean|avg|average|median|training|train|aggregate|" \
                  r"performance|global|steady|measured) "  # fmt: skip
        factor_and_noun = parse_rate(re.sub(rf"^(?:{leading})+", "", name))
    if factor_and_noun is None and not is_named:
        return None
    if "flop" in unit:
        return None
    factor, noun = factor_and_noun or (1.0, None)
    if noun == "steps":
        return ("steps_per_second", factor, None, 0)
    role: Role = "throughput_per_device" if per_device else "throughput"
    return role, factor, noun, 0


def parse_rate(text: str) -> tuple[float, str] | None:
    """Return the factor and the unit of work of a rate.

    >>> parse_rate("img per sec"), parse_rate("k tokens per min"), parse_rate("fps")
    ((1.0, 'images'), (16.666666666666668, 'tokens'), (1.0, 'frames'))
    """
    if text in RATE_ABBREVIATIONS:
        return 1.0, RATE_ABBREVIATIONS[text]
    parts = re.fullmatch(r"(?:(k|m|b|thousand|million|mega) )?([^\W\d]+) (?:per |a )?(\w+)", text)
    if not parts or parts[3] not in SECONDS or (" per " not in text and len(text) < 5):
        return None
    prefix, word = parts[1], parts[2]
    if word not in NOUN_OF and word[:1] in PREFIXES and word[1:] in NOUN_OF:
        prefix, word = word[0], word[1:]
    if word not in NOUN_OF and (len(word) < 3 or OTHER_RATE.fullmatch(word)):
        return None
    return PREFIXES.get(prefix or "", 1.0) / SECONDS[parts[3]], NOUN_OF.get(word, word)


def _match_time(name: str, unit: str) -> Meaning | None:
    return _match_part_time(name, unit) or _match_whole_time(name, unit)


def _match_part_time(name: str, unit: str) -> Meaning | None:
    """Match the time of an epoch or of a step."""
    for role, parts in PARTS_OF_TRAINING.items():
        per_part = re.fullmatch(rf"(?:time )?(?:in )?(\w+) per {parts}", name)
        if per_part and per_part[1] in SECONDS:
            return role, SECONDS[per_part[1]], per_part[1], 0
    seconds = _seconds(unit)
    if unit.endswith(("per epoch", "/epoch")):
        return "epoch_time", _seconds(re.split(r" per |/", unit)[0]) or 1.0, unit, 0
    if EPOCH.fullmatch(name) and (name != "epoch" or seconds):
        return "epoch_time", seconds or 1.0, _time_unit(unit), 0
    if STEP.fullmatch(name):
        return "step_time", seconds or 1.0, _time_unit(unit), 0
    return None


def _match_whole_time(name: str, unit: str) -> Meaning | None:
    seconds = _seconds(unit)
    words = name.split()
    short = [word for word in words if word not in TIME_WORDS] or words
    joined = " ".join(short)
    is_time = name in TIME_NAMES or joined in TIME_NAMES or "elapsed" in words[:1]
    if short[:-1] and short[0] in TIME_NAMES and set(short[1:]) <= {"per", "run", "job"}:
        is_time = True
    if is_time or (not name and seconds):  # "Run 1 (s)" has no other name.
        return "time", seconds or 1.0, _time_unit(unit), 0
    if not unit and joined in SECONDS and len(name) > 2:  # A title such as "seconds".
        return "time", SECONDS[joined], joined, 0
    return None


def _seconds(unit: str) -> float | None:
    return SECONDS.get(re.sub(r"^in ", "", unit).strip(" ."))


def _time_unit(unit: str) -> str | None:
    return unit if _seconds(unit) or re.fullmatch(r"[hmsd:.]+", unit) else None


def _match_ratio(name: str, unit: str) -> Meaning | None:
    if SPEEDUP.fullmatch(name):
        return "speedup", 1.0, None, 0
    if EFFICIENCY.fullmatch(name):
        alone = re.fullmatch(r"(?:of )?(?:linear|ideal)(?: scaling)?", name)
        return None if alone and unit not in ("%", "percent") else ("efficiency", 1.0, None, 0)
    return None


def _match_amount(name: str, unit: str) -> Meaning | None:
    words = [word for word in name.split() if word not in COUNT_WORDS | {"processed", "seen"}]
    if " ".join(words) in ("samples", "images") and (name != "images"):
        return "samples", 1.0, None, 0
    energy = unit.lower() or "kwh"
    if name in ("energy", "total energy", "energy consumption", "energy used", "kwh", "energy kwh"):
        return ("energy", JOULES[energy], energy, 0) if energy in JOULES else None
    for role, pattern in BATCHES:
        if re.fullmatch(pattern, name):
            per_device = bool(re.search(DEVICE, unit))
            kind: Role = "batch_per_device" if role == "batch" and per_device else role  # type: ignore[assignment]
            return kind, 1.0, None, 0
    return None
