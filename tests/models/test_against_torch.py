"""Whole nets against PyTorch: the same weights give the same logits, and one step of SGD the same weights after it."""

from functools import partial
from importlib import import_module

import numpy as np
import pytest

from mpibow.graph import Kernels, compile_plan, initial_weights, plan_layout, plan_statistics
from mpibow.kernels.numpy import OPERATORS
from mpibow.models import MODELS
from mpibow.models.classifier import classifier
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()
nets = import_module("tests.models.torch_nets")  # imports torch itself

CLASSES, BATCH, LR = 7, 3, 0.01
TOLERANCE = 1e-8  # of the largest number of an array; float64, so that what is found is a difference of the nets
HIDDEN = {"hidden": 24, "drop": 0.0}
NETS = {  # ours, its options, image, PyTorch's
    "logistic": ("logistic", {}, (1, 28, 28), partial(nets.logistic, CLASSES)),
    "mlp": ("mlp", {}, (1, 28, 28), partial(nets.mlp, CLASSES)),
    "convnet": ("convnet", {}, (1, 8, 8), partial(nets.convnet, CLASSES)),
    **{
        f"convnet-{norm}": ("convnet", {"layers": 3, "norm": norm}, (3, 8, 8), partial(nets.convnet3, CLASSES, norm))
        for norm in ("batch", "group")
    },
    "lenet": ("lenet", {"drop": 0.0}, (1, 28, 28), partial(nets.lenet, CLASSES, 0.0)),
    **{
        f"resnet{layers}-{shortcut}": (
            f"resnet{layers}",
            {"shortcut": shortcut},
            (3, size, size),
            partial(nets.resnet_cifar, CLASSES, layers, shortcut, size),
        )
        for layers, shortcut, size in (
            (20, "identity", 16),
            (20, "projection", 16),
            (20, "crossbow", 32),
            (32, "identity", 8),
        )
    },
    "resnet18": ("resnet18", {}, (3, 64, 64), partial(nets.resnet, CLASSES, (2, 2, 2, 2), 1)),
    "resnet50": ("resnet50", {}, (3, 64, 64), partial(nets.resnet, CLASSES, (3, 4, 6, 3), 4)),
    "vgg_a": ("vgg_a", HIDDEN, (3, 32, 32), partial(nets.vgg, CLASSES, nets.VGG11, 24, 1)),
    "vgg16": ("vgg16", HIDDEN, (3, 64, 64), partial(nets.vgg, CLASSES, nets.VGG16, 24, 4)),
    "vgg16_cifar": ("vgg16_cifar", {"drops": (0.0, 0.0, 0.0)}, (3, 32, 32), partial(nets.vgg16_cifar, CLASSES)),
    "alexnet": ("alexnet", HIDDEN, (3, 96, 96), partial(nets.alexnet, CLASSES, 24, 4)),
    "googlenet": ("googlenet", {"drop": 0.0}, (3, 72, 72), partial(nets.googlenet, CLASSES)),
    "inception_v3": ("inception_v3", {"drop": 0.0}, (3, 107, 107), partial(nets.inception_v3, CLASSES)),
    "overfeat": (
        "overfeat",
        {"hidden": (24, 20), "drop": 0.0},
        (3, 119, 119),
        partial(nets.overfeat, CLASSES, (24, 20), 4),
    ),
}


def close(got, expected, tolerance: float = TOLERANCE) -> None:
    expected = expected.detach().numpy()
    scale = max(float(np.abs(expected).max()), 1e-12)
    np.testing.assert_allclose(got / scale, expected / scale, rtol=0, atol=tolerance)


def modules_in_order(net, image) -> list:
    """The modules that have parameters, in the order in which they run, which is the order of our nodes."""
    found = []
    own = [module for module in net.modules() if list(module.parameters(recurse=False))]
    hooks = [module.register_forward_hook(lambda module, *_: found.append(module)) for module in own]
    net.eval()(image)
    for hook in hooks:
        hook.remove()
    assert len(found) == len(own)
    return found


@pytest.mark.parametrize("name", NETS)
def test_a_step_of_sgd(name):
    model, options, shape, make = NETS[name]
    generator = np.random.default_rng(3)
    images, labels = generator.standard_normal((BATCH, *shape)), np.arange(BATCH) % CLASSES
    net = make().double()
    modules = modules_in_order(net, torch.from_numpy(images))

    graph = classifier(partial(MODELS[model], classes=CLASSES, **options), shape, "float64")(BATCH)
    layout, running = plan_layout(graph), plan_statistics(graph)
    weights, gradients = initial_weights(layout, 1, "float64"), np.zeros(layout.size)
    weights[weights == 0] = 0.05 * generator.standard_normal((weights == 0).sum())  # biases, and all of a convex net
    statistics = initial_weights(running, 0, "float64")
    ours, ours_running = layout.views(weights), running.views(statistics)
    theirs = [(m, key) for m in modules for key, _ in m.named_parameters(recurse=False)]
    owned = [f"{node.name}.{key}" for node in graph.nodes for key in node.weights]
    with torch.no_grad():
        for (module, key), span in zip(theirs, owned, strict=True):
            assert span.endswith(key)
            getattr(module, key).copy_(torch.from_numpy(ours[span]))

    single = compile_plan(graph, layout, Kernels(OPERATORS), "float32", training=False)
    bound = single.bind(weights.astype("float32"), None, statistics.astype("float32"))
    bound.inputs["image"][...] = images
    bound.run()
    close(bound.outputs["logits"], net.eval()(torch.from_numpy(images)), tolerance=1e-4)  # float32's rounding

    for training in (False, True):
        plan = compile_plan(graph, layout, Kernels(OPERATORS), "float64", training=training)
        bound = plan.bind(weights, gradients, statistics)
        bound.inputs["image"][...], bound.inputs["label"][...] = images, labels
        bound.run()
        logits = net.train(training)(torch.from_numpy(images))
        close(bound.outputs["logits"], logits)

    torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels)).backward()
    torch.optim.SGD(net.parameters(), lr=LR).step()
    for (module, key), span in zip(theirs, owned, strict=True):
        close(layout.views(gradients)[span], getattr(module, key).grad)
    weights -= LR * gradients
    for (module, key), span in zip(theirs, owned, strict=True):
        close(ours[span], getattr(module, key))
    norms = [module for module in modules if hasattr(module, "running_mean")]
    nodes = [node for node in graph.nodes if node.statistics]
    for module, node in zip(norms, nodes, strict=True):
        close(ours_running[f"{node.name}.mean"], module.running_mean)
        close(ours_running[f"{node.name}.variance"], module.running_var)
    if norms:  # and what was learnt is what evaluation takes
        plan = compile_plan(graph, layout, Kernels(OPERATORS), "float64", training=False)
        bound = plan.bind(weights, None, statistics)
        bound.inputs["image"][...], bound.inputs["label"][...] = images, labels
        bound.run()
        close(bound.outputs["logits"], net.eval()(torch.from_numpy(images)))
