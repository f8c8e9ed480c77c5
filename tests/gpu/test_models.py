"""Whole models by the `cuda` kernel set, as they are trained and evaluated, against NumPy in float64.

A few that have layers of every kind between them: cuDNN compiles for seconds for each new shape. That it has an engine
for every layer of every model is planned without a GPU, in tests/cuda/kernels/test_specs.py.
"""

import pytest

from tests.gpu import opened
from tests.models.beside_numpy import compare
from tests.models.test_onednn import BATCH, CASES, begin, build, inputs

pytestmark = opened.needs_gpu(pytest.mark.timeout(120))

# Of ||expected||: evaluation, training's outputs, gradients. Deep nets in training divide by deviations of few values,
# and a relu at a value that is 0 but for rounding may fall on either side: TF32 rounds to 1 in 2048.
BOUNDS = {"fp32": (1e-5, 5e-4, 0.1), "tf32": (1e-2, 5e-2, 0.5)}

FEW = [case for case in CASES if case[0] in ("lenet", "resnet20", "alexnet") and "shortcut" not in case[2]]


@pytest.mark.parametrize("precision", list(BOUNDS))
@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize(("name", "shape", "options"), FEW, ids=lambda value: str(value) if value else "")
def test_as_numpy(name, shape, options, training, precision):
    if max(shape) > 64 and (training or precision == "tf32"):
        pytest.skip("NumPy takes long")
    evaluated, trained, gradient = BOUNDS[precision]
    bounds = trained if training else evaluated, gradient
    net = build(name, shape, options)
    compare(net, BATCH, inputs(shape), begin(net), training, bounds, opened.kernels(precision))
