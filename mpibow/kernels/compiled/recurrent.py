"""LSTM and GRU: the inputs of all steps at once, then step by step the passes of `time_steps`."""

from mpibow.graph import FLOAT, Buffers, Call, Kernel, Run, Shapes, Spec, Specs
from mpibow.ops import Gru, Lstm

from .boxes import copied
from .command import together
from .matmul import multiplied, rows
from .native import Arguments
from .products import column_sums, laid_out, room, room_spec
from .time_steps import Gates, return_steps, run_steps

KEPT = {4: ("cells", "tanhs"), 3: ("inner",)}  # beside the gates, by their number


def _number(op: Lstm | Gru) -> Gates:
    return 4 if isinstance(op, Lstm) else 3


def buffers(op: Lstm | Gru, shapes: Shapes) -> Buffers:
    n, t, units = shapes.y
    number = _number(op)
    features = shapes.x[0][2]
    m = n * t
    wide = number * units
    one = ((n, units), FLOAT)
    gates: Spec = ((n, t, wide), FLOAT)
    kept: Specs = {"gates": gates, **dict.fromkeys(KEPT[number], (shapes.y, FLOAT))}
    forward: Specs = {
        "room": room_spec(room(m, wide, features)),
        "laid": ((laid_out(wide, units),), FLOAT),
        **({} if number == 4 else {"part": ((n, wide), FLOAT)}),
    }
    rooms = [room(wide, each, m, transposed=True) for each in (features, units)]
    rooms += [room(m, features, wide)] if shapes.wanted else []
    backward: Specs = {
        "room": room_spec(*rooms),
        "laid": ((laid_out(units, wide),), FLOAT),
        "dgates": gates,
        "past": (shapes.y, FLOAT),
        "dh": one,
        **({"dc": one} if number == 4 else {"dinner": gates}),
    }
    return Buffers(saved=kept, forward=forward, backward=backward)


def _of_both(call: Call) -> Arguments:
    """The arguments that both directions have in common."""
    n, t, _ = call.y.shape
    initial = zip(("first", "first_cell"), call.x[1:], strict=False)
    return {"number": _number(call.op), "weight": call.w["weight_hh"], "n": n, "t": t, **dict(initial)}


def forward(call: Call) -> Run:
    outputs: Arguments = dict(zip(("y", "last", "cell"), call.ys, strict=False))
    gates = rows(call.saved["gates"])
    w = call.w
    inputs = multiplied(rows(call.x0), w["weight_ih"].T, gates, call.scratch["room"], w["bias_ih"])
    return together([inputs, run_steps.on(call, bias=w["bias_hh"], **outputs, **_of_both(call))])


def backward(call: Call) -> Run:
    scratch = call.scratch
    dw = call.dw
    dx, *dfirst = call.dx
    place = scratch["room"]
    dgates = scratch["dgates"]
    dinner = scratch.get("dinner", dgates)
    gradients: Arguments = dict(zip(("dy", "dlast", "dcell"), call.dys, strict=False))
    through = return_steps.on(call, dinner=dinner, **gradients, **_of_both(call))
    pairs = zip(("dh", "dc"), dfirst, strict=False)
    firsts = [copied(target, scratch[key]) for key, target in pairs if target is not None]
    outer = rows(dgates)
    inner = rows(dinner)
    x = rows(call.x0)
    past = rows(scratch["past"])
    weights = [
        multiplied(outer.T, x, dw["weight_ih"], place),
        multiplied(inner.T, past, dw["weight_hh"], place),
        column_sums.command(x=outer, sums=dw["bias_ih"]),
        column_sums.command(x=inner, sums=dw["bias_hh"]),
    ]
    if dx is not None:
        weights.append(multiplied(outer, call.w["weight_ih"], rows(dx), place))
    return together([through, *firsts, *weights])


KERNELS = dict.fromkeys((Gru, Lstm), Kernel(forward, backward, buffers))
