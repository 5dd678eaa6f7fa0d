"""Load pickles with allowed classes only, since unrestricted pickles can call any function."""

import pickle
import re
from collections.abc import Mapping
from typing import Any, BinaryIO

MAX_NAME_CHARACTERS = 80  # In messages.


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that refuses every name but ``allowed``, a mapping (module, name) -> object."""

    def __init__(
        self, file: BinaryIO, allowed: Mapping[tuple[str, str], Any], *, encoding: str = "ASCII"
    ) -> None:
        super().__init__(file, encoding=encoding)
        self._allowed = allowed

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"{one_line(f'{module}.{name}')} is not allowed in it"
            ) from None


def one_line(name: str) -> str:
    r"""Return a name read from a file as one short, printable line.

    >>> one_line("posix.system"), one_line("a\nb")
    ('posix.system', 'a?b')
    """
    line = "".join(letter if letter.isprintable() else "?" for letter in name)
    return line if len(line) <= MAX_NAME_CHARACTERS else line[:MAX_NAME_CHARACTERS] + "…"


def describe_failure(problem: BaseException) -> str:
    """Return in one line why a file was not loaded, without PyTorch's advice to load it unsafely.

    >>> describe_failure(ValueError("Weights only load failed. Use weights_only=False … "
    ...     "Unsupported global: GLOBAL posix.system was not an allowed global by default."))
    'posix.system is not allowed in it'
    """
    text = str(problem).strip()
    if any(word in text.lower() for word in ("weights_only", "weights only", "weightsunpickler")):
        refused_name = re.search(r"GLOBAL (\S+)", text)
        if refused_name:
            return f"{one_line(refused_name[1])} is not allowed in it"
        return "it holds something other than tensors"
    if "allow_pickle" in text:
        return "it is not a plain array"
    return text.splitlines()[0] if text else type(problem).__name__
