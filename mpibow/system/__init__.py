"""Files, sizes and JSON, and what a command needs."""

from .files import StrPath, beside, is_full, open_file, read_file, reason, refusal, sync_folder, whole_file
from .json_text import JsonObject, finite, nulled, parse_object
from .sizes import aligned, in_words
