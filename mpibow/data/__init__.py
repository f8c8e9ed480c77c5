"""Data sets: samples, records, and how they are read."""

from .dataset import (
    COUNTER,
    SAMPLE_WEIGHT,
    Array,
    ArrayData,
    ArraysByName,
    Dataset,
    DType,
    Frame,
    NamedArrays,
    NamedSamples,
    Samples,
    Shape,
    float32,
    inputs_of,
    is_frame,
    lots,
    numeric_array,
    read_into,
    row_bytes,
)
from .recordset import SHARD_SIZE, RecordSet, open_records, write_records
from .sample_settings import Auto, Image, TokenStream, Wanted
from .sample_weights import Weighed, unweighed
from .slots import Feed, Slot, arrays_for, specs_of
from .timeline import Change, Timeline, fixed, following
