"""How do keywords become the words of `joulefs trace replay`?

A single value holds for every run. Of several values the program makes every combination, with the controls that a comparison
needs. What the program compares by `--compare` is its own; of other options that have several values a command is made for
each.
"""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypedDict, cast

from joulefs._binary import Error
from joulefs._help import VOLUME

__all__ = ["Command", "Options", "Value", "Values", "commands"]

Value: TypeAlias = str | int | float | bool | os.PathLike[str] | None
"""One value of an option; `None` leaves it out."""

Values: TypeAlias = Value | Iterable[Value]
"""One value, or several: a run for each."""


class Options(TypedDict, total=False):
    """What a replay takes; `joulefs trace replay --help` says what each means."""

    profile: Values
    fs: Values
    size: Values
    age: Values
    seed: Values
    seeds: Values
    fill: Values
    full: Values
    queue: Values
    of: Values
    image: Values
    after: Values
    #: Further files of the recording.
    further: Values
    repeat: Values
    hurry: Values
    page_cache: Values
    cold: Values
    no_cache: Values
    on_time: Values
    closed_loop: Values
    back_to_back: Values
    paced: Values
    from_: Values
    to: Values
    max_gap: Values
    #: Numbers of the profile, and `flush`.
    assume: Mapping[str, Values]
    #: Options of the volume that are not listed here.
    options: Mapping[str, Values]
    gc: Values
    power: Values
    background_gc: Values
    discard: Values
    inline: Values
    delta: Values
    clean: Values
    sync: Values
    node_cache: Values
    dirty: Values
    dir_cache: Values
    compress_extension: Values
    compress_algorithm: Values


_FLAGS = ("full", "hurry", "cold", "no_cache", "on_time", "closed_loop", "back_to_back", "paced")
#: Those that are no options of a volume, and have a value.
_NAMED = (
    *("profile", "fs", "size", "of", "queue", "image", "age", "seed", "seeds", "fill", "repeat", "page_cache", "from", "to", "max_gap"),
)
#: What `--compare` does not compare.
_ALONE = ("of", "image", "seeds", "repeat", "page_cache", "from", "to", "max_gap", *(name for name in _FLAGS if name != "full"))


#: What people call an option, too.
_MEANINGS = {
    "age": ("aged", "aging", "recipe", "state", "wear"),
    "after": ("before", "prepare", "previous", "warmup"),
    "assume": ("numbers", "override", "parameters", "price", "prices"),
    "back_to_back": ("asap", "fast", "no_pauses"),
    "compress_algorithm": ("codec", "compress", "compression"),
    "delta": ("deltas", "differences"),
    "dirty": ("buffer", "write_buffer"),
    "discard": ("trim", "unmap"),
    "fill": ("full_to", "usage", "utilization"),
    "from_": ("begin", "offset", "since", "start"),
    "further": ("files", "more", "recordings", "rest"),
    "fs": ("file_system", "filesystem", "format", "type"),
    "gc": ("cleaner", "cleaning", "collector", "garbage_collection", "policies", "policy", "victim"),
    "hurry": ("background", "eager"),
    "max_gap": ("gap", "idle", "pause", "pauses"),
    "no_cache": ("afresh", "uncached"),
    "of": ("dev", "disk_number", "partition"),
    "options": ("mount", "mount_options", "o"),
    "paced": ("live", "real_time", "realtime"),
    "page_cache": ("memory", "ram"),
    "power": ("battery", "charger"),
    "profile": ("device", "disk", "drive", "hardware", "model", "phone", "profiles", "ssd", "storage"),
    "queue": ("depth", "iodepth", "qd", "queue_depth"),
    "repeat": ("iterations", "loops", "rounds", "times"),
    "seed": ("random", "random_seed", "random_state", "rng"),
    "seeds": ("n", "repetitions", "samples", "trials"),
    "size": ("bytes", "capacity"),
    "sync": ("fsync",),
    "to": ("end", "stop", "until"),
}
#: What a sweep takes when it is run.
_OF_RUN = ("cache", "engine", "jobs", "told")


def _check(keyword: str) -> None:
    """Refuses a keyword that is no option, and names the one that was meant."""
    known = tuple(Options.__annotations__)
    if keyword in known or keyword in VOLUME:
        return
    if keyword in _OF_RUN:
        raise Error(f"no option {keyword}: give it to the method run of a sweep", 2)
    meant = next((name for name, words in _MEANINGS.items() if keyword.lower() in words), None)
    words = {word: name for name, all_words in _MEANINGS.items() for word in all_words}
    words |= {name: name for name in (*VOLUME, *known)}
    close = difflib.get_close_matches(keyword.lower(), words, 1, 0.7)
    if meant is None and close:
        meant = words[close[0]]
    tip = f"did you mean {meant}?" if meant is not None else "help(joulefs.replay) lists them"
    raise Error(f"no option {keyword}; {tip}", 2)


@dataclass(frozen=True)
class Command:
    """A command line, and what tells its runs from those of others."""

    words: tuple[str, ...]
    name: str


def _several(values: object) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, (str, bytes, os.PathLike))


def _list(name: str, values: Values) -> list[Value]:
    every = list(cast("Iterable[Value]", values))
    if not every:
        raise Error(f"{name}: no value; leave it out, or give one", 2)
    return every


def _text(name: str, value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None and name == "age":
        return "none"
    if isinstance(value, (str, int, float, os.PathLike)):
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    raise Error(f"{name}={value!r}: not a text, a number or a truth value", 2)


def _compared(name: str, values: Values) -> list[str]:
    texts = [_text(name, value) for value in _list(name, values)]
    comma = next((text for text in texts if "," in text), None)
    if comma is not None:
        raise Error(f"{name}={comma!r}: a value that is compared has no comma", 2)
    return ["--compare", f"{name}={','.join(texts)}"]


def commands(options: Options) -> Iterator[Command]:
    """The command lines that make every combination, without the recording.

    What is compared is compared in the order of the keywords.
    """
    shared: list[str] = []
    products: list[list[tuple[str, list[str]]]] = []
    for name, values in _named(options):
        if name in ("after", "further") and values is not None:
            for file in _list(name, values) if _several(values) else [cast("Value", values)]:
                shared += ["--after", _text(name, file)] if name == "after" else [_text(name, file)]
        elif not _several(values):
            shared += _single(name, cast("Value", values))
        elif name in _ALONE:
            products.append([(f"{name}={_text(name, value)}", _single(name, value)) for value in _list(name, values)])
        else:
            shared += _compared(name, values)
    for picked in itertools.product(*products):
        words = [word for _, own in picked for word in own]
        yield Command((*shared, *words), " ".join(name for name, _ in picked))


def _named(options: Options) -> Iterator[tuple[str, Values]]:
    """Every option with its value or values, in order."""
    for keyword, value in options.items():
        _check(keyword)
        if keyword in ("assume", "options"):
            yield from cast("Mapping[str, Values]", value).items()
        else:
            yield keyword.rstrip("_"), cast("Values", value)


def _single(name: str, value: Value) -> list[str]:
    """The words for one value: none leaves the option out."""
    if value is None:
        return []
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise Error(f"{name}={value!r}: write True or False", 2)
        return [f"--{name.replace('_', '-')}"] if value else []
    if name in _NAMED:
        return [f"--{name.replace('_', '-')}", _text(name, value)]
    # Names of numbers of a profile have dots.
    return ["--assume" if "." in name or name == "flush" else "-o", f"{name}={_text(name, value)}"]
