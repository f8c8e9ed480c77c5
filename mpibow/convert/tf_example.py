"""tf.Example, a message of protobuf: features by name, each a list of bytes, of float32 or of int64."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from mpibow.data import Array
from mpibow.errors import RecordError

DTYPES = {"float": "float32", "int64": "int64"}
# TensorFlow's feature.proto and example.proto, as protoc describes them
SCHEMA = """
name: "example.proto" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "FloatList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Int64List" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type {
  name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: "BytesList" oneof_index: 0 }
  field { name: "float" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: "FloatList" oneof_index: 0 }
  field { name: "int64" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: "Int64List" oneof_index: 0 }
}
message_type {
  name: "Features"
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "Features.FeatureEntry" }
  nested_type {
    name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: "Feature" }
  }
}
message_type {
  name: "Example" field { name: "features" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: "Features" }
}
"""
_file = DescriptorPool().AddSerializedFile(text_format.Parse(SCHEMA, FileDescriptorProto()).SerializeToString())
Example = GetMessageClass(_file.message_types_by_name["Example"])


@dataclass(frozen=True, eq=False)
class Feature:
    """`kind` is bytes, float or int64; `values` then are bytes, (n,) float32 or (n,) int64. Kind '' has none."""

    kind: str
    values: Sequence[bytes] | Array

    def __str__(self) -> str:
        sizes = f" of {', '.join(f'{len(v):,}' for v in self.values[:3])} bytes" if self.kind == "bytes" else ""
        return f"{len(self.values):,} {self.kind}{sizes}" if self.kind else "empty"


def parse(data: bytes | memoryview, names: Collection[str] | None = None) -> dict[str, Feature]:
    """The features of an Example, or the ones in `names`.

    Raises RecordError without the file's name, which the caller adds.
    """
    features = {}
    try:
        example = Example.FromString(bytes(data))
    except DecodeError as error:
        raise RecordError("is not a tf.Example: damaged, or another kind of record") from error
    for name, feature in example.features.feature.items():
        if names is None or name in names:
            kind = feature.WhichOneof("kind") or ""
            values = getattr(feature, kind).value if kind else ()
            features[name] = Feature(kind, [*values] if kind == "bytes" else np.array(values, DTYPES.get(kind)))
    return features


def encode(features: Mapping[str, bytes | Array]) -> bytes:
    """An Example of bytes and integers (an array of int64), sorted by name."""
    example = Example()
    for name, value in features.items():
        feature = example.features.feature[name]
        if isinstance(value, bytes):
            feature.bytes.value.append(value)
        else:
            feature.int64.value.extend(value.tolist())
    return bytes(example.SerializeToString(deterministic=True))
