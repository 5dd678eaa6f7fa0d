r"""The lines of plain-text logs that are understood: one entry per line format.

To add a format, add an entry to ``LINE_FORMATS`` and a line to
``tests/analysis/measure/logs/lines.txt``. Of several formats of one quantity in a log, the first
one of the table is used: so those that say most stand first.

A pattern is a regular expression that is searched in the line, without regard to case. Words in
capitals stand for groups: RATE, SPREAD (after ±), UNIT (a word of ``UNITS``), SECONDS, DURATION
(``12.3 s``, ``1:05:00``), MS, EPOCH, STEPS (of an epoch; ``STEPS/SAME`` is a finished bar),
BATCH (of all devices), PER_DEVICE (the line is then about one device). Without EPOCH, the line
belongs to the epoch that was last mentioned.
"""

import re
from dataclasses import dataclass, field

from scalewise.analysis.measure.logs.log import Quantity
from scalewise.analysis.measure.table_header import NOUN_OF

NUMBER = (
    r"(?:[-+]?(?:\d[\d,]{0,40}(?:\.\d{0,40})?|\.\d{1,40})(?:e[-+]?\d{1,9})?|[-+]?(?:nan|inf)\b)"
)
_DURATION = (
    r"(?:\d+ days?, )?\d+:\d\d(?::\d\d)?(?:\.\d+)?"
    r"|(?:\d+ ?h(?:ours?)? ?)?\d+ ?m(?:in(?:utes?)?)? ?[\d.]+ ?s(?:ec(?:onds?)?)?\b"
    rf"|{NUMBER} ?(?:ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?)?\b"
)
UNITS = {word: noun for word, noun in NOUN_OF.items() if noun != "steps"}
"""By word that may precede ``/s``: the unit of work."""
_GROUPS = {
    "RATE": rf"(?P<rate>{NUMBER})",
    "SPREAD": rf"(?:\s*(?:±|\+/?-)\s*(?P<spread>{NUMBER}))?",
    "UNIT": r"(?P<unit>[^\W\d_]+)",
    "SECONDS": rf"(?P<seconds>{NUMBER})",
    "DURATION": rf"(?P<duration>{_DURATION})",
    "MS": rf"(?P<ms>{NUMBER})",
    "EPOCH": r"(?P<epoch>\d+)",
    "STEPS": r"(?P<steps>\d+)",
    "SAME": r"(?P=steps)",
    "BATCH": r"(?P<batch>\d+)",
    "PER_DEVICE": r"(?P<device>\s*(?:/|per|each)\s*(?:gpu|device|rank|worker|process|chip|tpu)\b)",
}
_SECOND = r"s(?:ec(?:ond)?)?\b"


@dataclass(frozen=True, slots=True)
class LineFormat:
    """One kind of line."""

    name: str
    """As it is shown to users."""
    quantity: Quantity
    needle: str
    """Text in lower case that every such line contains; it makes the search fast."""
    pattern: str
    per_device: bool = False
    """Whether this program prints the rate of one device."""
    whole_run: bool = False
    """Whether it is printed once, for the complete run."""
    unit: str | None = None
    regex: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        pattern = re.sub("|".join(_GROUPS), lambda word: _GROUPS[word[0]], self.pattern)
        object.__setattr__(self, "regex", re.compile(pattern, re.IGNORECASE))


_RATE: Quantity = "throughput"
_STEP: Quantity = "step_time"
_EPOCH: Quantity = "epoch_time"
_TIME: Quantity = "time"
LINE_FORMATS: tuple[LineFormat, ...] = (
    # Throughput of the complete run.
    LineFormat("Horovod benchmark, total", _RATE, "total img/sec on",
               r"total img/sec on \d+ \w+\(s\): RATESPREAD", whole_run=True, unit="images"),
    LineFormat("TensorFlow benchmark, total", _RATE, "total images/sec:",
               r"total images/sec: RATE", whole_run=True, unit="images"),
    LineFormat("Hugging Face Trainer", _RATE, "train_samples_per_second",
               r"train_samples_per_second['\"]?\s*[:=]\s*['\"]?RATE", whole_run=True),
    LineFormat("Horovod benchmark, per device", _RATE, "img/sec per",
               r"img/sec per \w+: RATESPREAD", per_device=True, whole_run=True, unit="images"),
    # Throughput, again and again.
    LineFormat("torchvision references", _RATE, "img/s:",
               r"epoch: \[EPOCH\]\s+\[.*\bimg/s: RATE.*\btime:", per_device=True, unit="images"),
    LineFormat("timm", _RATE, "train:",
               r"train: EPOCH \[.*\btime: [\d.]+s, +RATE/s", unit="images"),
    LineFormat("Apex and DALI examples", _RATE, "speed",
               r"epoch: \[EPOCH\]\[.*\btime \S+ \(.*\bspeed +RATE", unit="images"),
    LineFormat("MXNet", _RATE, "speed:", r"epoch ?\[EPOCH\] batch ?\[.*\bspeed: RATE UNIT/sec"),
    LineFormat("DeepSpeed", _RATE, "currsamplespersec=",
               r"\bcurrsamplespersec=RATE"),
    LineFormat("DeepSpeed, older", _RATE, "samplespersec=", r"\bsamplespersec=RATE"),
    LineFormat("DLLogger", _RATE, "train.total_ips",
               r"train\.total_ips ?: RATE", unit="images"),
    LineFormat("torchtitan", _RATE, "tps:", r"\bstep: .*\btps: RATE", per_device=True,
               unit="tokens"),
    LineFormat("fairseq", _RATE, "wps", r"\bwps\b['\"]?[:= ]+['\"]?RATE", unit="words"),
    LineFormat("Composer", _RATE, "throughput/samples_per_sec",
               r"throughput/samples_per_sec: RATE"),
    LineFormat("Horovod benchmark, iterations", _RATE, "img/sec per",
               r"iter #\d+: RATE img/sec per", per_device=True, unit="images"),
    LineFormat("TensorFlow benchmark, steps", _RATE, "images/sec:",
               r"^\W*(?:\S+\|)?\s*\d+\s+images/sec: RATE", unit="images"),
    LineFormat("rate line", _RATE, "/s",
               rf"(?<![^\W\d_])UNIT/{_SECOND}(?:PER_DEVICE)?['\"]?\)?\s*[:=]\s*['\"]?RATESPREAD"),
    LineFormat("rate line", _RATE, "/s",  # Not the loss of "loss 0.2 img/s 240".
               r"(?<![\w.])(?:(?<![a-z] )|(?<=throughput )|(?<=speed )|(?<=rate )|(?<=at ))"
               rf"RATE ?SPREAD ?UNIT/{_SECOND}(?:PER_DEVICE)?"),
    LineFormat("rate line", _RATE, "/s",
               rf"(?<![^\W\d_])UNIT/{_SECOND}(?:PER_DEVICE)?\s+RATESPREAD"),
    LineFormat("rate line", _RATE, "/s",
               rf"(?<![\w.])RATE ?SPREAD ?UNIT/{_SECOND}(?:PER_DEVICE)?"),
    LineFormat("rate line", _RATE, "per",
               rf"(?<![\w.])RATE ?SPREAD ?UNIT per {_SECOND}"
               r"(?:PER_DEVICE)?"),
    LineFormat("rate line", _RATE, "per_s",
               r"(?<![a-z])(?!(?<=train_)samples_per_second)UNIT_per_s(?:ec(?:ond)?)?"
               r"(?P<device>_per_(?:gpu|device))?['\"]?[:= ]+['\"]?RATESPREAD"),
    LineFormat("throughput line", _RATE, "throughput",
               r"\bthroughput(?:PER_DEVICE)?['\"]?\s*[:=]?\s*['\"]?RATESPREAD"
               r"(?![\d.,]| ?(?:t?flop|[kmg]i?b\b|[kmg]i?b/|%))"),
    # Time of a step; the throughput needs the batch.
    LineFormat("Megatron", _STEP, "elapsed time per iteration (ms)",
               r"elapsed time per iteration \(ms\): MS(?:.*\bglobal batch size: +BATCH)?"),
    LineFormat("nanoGPT", _STEP, "iter", r"\biter \d+: loss .*\btime MS ?ms"),
    LineFormat("PyTorch ImageNet example", _STEP, "time",
               r"^epoch: \[EPOCH\]\[ *\d+/STEPS\]\s+time +SECONDS \("),
    LineFormat("Detectron2 and MMEngine", _STEP, "time:",
               r"\biter\b.*\btime: SECONDS +(?:last_time|data_time)"),
    LineFormat("Lightning progress bar", "steps_per_second", "it/s",
               r"epoch EPOCH: 100%\|.*\| STEPS/SAME \[.*?RATE ?it/s"),
    LineFormat("Lightning progress bar", _STEP, "s/it",
               r"epoch EPOCH: 100%\|.*\| STEPS/SAME \[.*?SECONDS ?s/it"),
    LineFormat("tqdm progress bar", "steps_per_second", "it/s",
               r"100%\|.*\| STEPS/SAME \[.*?RATE ?it/s"),
    LineFormat("tqdm progress bar", _STEP, "s/it", r"100%\|.*\| STEPS/SAME \[.*?SECONDS ?s/it"),
    # Time of an epoch.
    LineFormat("Keras", _EPOCH, "/step",
               r"(?<![\d/])STEPS/SAME\s(?!.*\beta\b)[^\w]*SECONDS ?s(?:/epoch)?\b[\s\-]*.*?"
               r"\b(?P<step>\d+)(?P<step_unit>us|µs|ms|s)/step"),
    LineFormat("Keras", _EPOCH, "/sample",
               r"(?<![\d/])STEPS/SAME\s(?!.*\beta\b)[^\w]*SECONDS ?s\b.*/sample"),
    LineFormat("epoch line", _EPOCH, "epoch",
               r"epoch\W*EPOCH\b(?!.*\b(?:step|iter|iteration|batch|eta)\b)(?!.*\]\s*\[)"
               r".*?\b(?:time|took|duration|elapsed|takes|finished in|completed in|done in|cost)\b"
               r"[^\d\w]{0,4}(?:taken|of|is|was|in)?[^\d\w-]{0,4}DURATION"),
    LineFormat("epoch line", _EPOCH, "epoch",
               r"(?:epoch[ _](?:time|duration)|(?:time|seconds) per epoch)\b['\"]?"
               r"(?: ?\((?:s|sec|seconds)\))?[^\d\w-]{0,4}DURATION"),
    LineFormat("epoch line", _EPOCH, "epoch",
               r"epoch\W*EPOCH\b(?:/\d+)?\]?\W{1,4}DURATION$(?<=[a-z])"),
    # Time of the complete run.
    LineFormat("Hugging Face Trainer", _TIME, "train_runtime",
               r"train_runtime['\"]?\s*[:=]\s*['\"]?DURATION", whole_run=True),
    LineFormat("training time", _TIME, "time",
               r"^(?!.*\bepoch).*?\b(?:total|training|complete|overall|full)"
               r"(?: training| elapsed| run| wall(?:[ -]?"
               r"clock)?)? ?(?:time|runtime)\b(?: taken| elapsed)?(?: ?\((?:s|sec|seconds)\))?"
               r"[^\d\w-]{0,4}(?:is|was)?[^\d\w-]{0,4}DURATION", whole_run=True),
    LineFormat("training time", _TIME, "training",
               r"\btraining (?:took|finished in|completed in|complete in|done in)"
               r"[^\d\w-]{0,4}DURATION", whole_run=True),
    LineFormat("time of the shell", _TIME, "real", r"^real\s+DURATION$", whole_run=True),
    LineFormat("GNU time", _TIME, "elapsed (wall clock)",
               r"elapsed \(wall clock\) time \(h:mm:ss or m:ss\): DURATION", whole_run=True),
)  # fmt: skip
