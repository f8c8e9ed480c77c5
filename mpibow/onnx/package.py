"""The package onnx, which reads, checks and writes models; mpibow does not depend on it."""

from types import ModuleType

from mpibow.errors import ConfigError


def onnx_package() -> ModuleType:
    """The package with the parts that mpibow uses. Raises ConfigError where it is not installed."""
    try:
        import onnx
        import onnx.inliner
        import onnx.reference
        import onnx.version_converter
    except ImportError as error:
        missing = error.name or "onnx"
        raise ConfigError(f"{missing} is not installed, and ONNX models need it: pip install 'mpibow[onnx]'") from None
    package: ModuleType = onnx
    return package
