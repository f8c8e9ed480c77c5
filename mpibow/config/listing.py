"""Every setting of a dataclass tree on a line of its own, for --help."""

from collections.abc import Iterator, Sequence
from dataclasses import MISSING

from mpibow.optim.update import TOGETHER

from .strict import Setting, all_tags, join, plain, records_of, rest_of, settings_of, tags_of
from .words import show, unwrap, words


def listing(kind: type) -> str:
    """Lines of path, default, rule and purpose of each setting; the first two in columns."""
    lines = list(rows(kind))
    path, default = (max(len(row[column]) for row in lines) for column in (0, 1))
    return "\n".join(f"{row[0]:<{path}}  {row[1]:<{default}}  {row[2]}" for row in lines)


def rows(kind: type, path: str = "", owner: str = "") -> Iterator[tuple[str, str, str]]:
    """Path, default and meaning of each setting below `path`; `owner` stands in front of the meaning."""
    for setting in settings_of(kind):
        where = join(path, setting.name)
        records = records_of(setting.hint)
        if path.endswith("fallback") and setting.name in TOGETHER:
            continue
        given = setting.default is None and (path or unwrap(setting.hint)[2])  # a file can give it, too
        if not records or (len(records) == 1 and given):
            yield where, _default(setting.default), owner + _text(setting, words(setting.hint))
        if len(records) == 1:
            yield from rows(records[0], where, owner)
        elif records:
            rule = f"one of {all_tags(records)}"
            yield f"{where}.name", _default(getattr(setting.default, "name", MISSING)), _text(setting, rule)
            yield from _of_some(records, where, owner)
    if rest_of(kind):
        yield join(path, "<option>"), "", "any option that the named one takes"


def _of_some(records: Sequence[type], path: str, owner: str) -> Iterator[tuple[str, str, str]]:
    """Lines of the records' settings, each once, without `name`; a line that not all records have lists its records."""
    owners = dict[tuple[str, str, str], list[type]]()
    for record in records:
        for row in rows(record, path):
            if row[0] != f"{path}.name":
                owners.setdefault(row, []).append(record)
    for (where, default, text), having in owners.items():
        yield where, default, owner + _only(having, records) + text


def _only(having: Sequence[type], records: Sequence[type]) -> str:
    """The names of the records that have a setting, in few words; '' where all do."""
    others = [record for record in records if record not in having]
    if not others:
        return ""
    names, rest = ([tag for record in some for tag in tags_of(record)] for some in (having, others))
    return f"all but {', '.join(rest)}: " if len(names) > 3 * len(rest) else f"{', '.join(names)}: "


def _default(value: object) -> str:
    if value is MISSING:
        return "required"
    return value if isinstance(value, str) else show(plain(value))


def _text(setting: Setting, rule: str) -> str:
    help_text = unwrap(setting.hint)[2]
    return f"{help_text} ({rule})" if help_text else rule
