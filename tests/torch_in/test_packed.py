"""Packed sequences: outputs, states and a step of SGD as in PyTorch."""

import numpy as np
import pytest

import mpibow as mb
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()
nn = torch.nn
rnn = nn.utils.rnn


class States(nn.Sequential):
    """A recurrent layer behind its own last states: sums over steps, with padding of 0.5, beside all states."""

    def forward(self, x, lengths):
        first = self[0].batch_first
        sequences = rnn.pack_padded_sequence(x if first else x.transpose(0, 1), lengths.cpu(), first, False)
        y, states = self[0](sequences, self[0](sequences)[1])
        y, _ = rnn.pad_packed_sequence(y, first, 0.5, x.shape[1] + 1)
        return torch.cat([y.sum(int(first)), *torch.stack([*states]).flatten(0, -3)], 1)


@pytest.mark.parametrize(
    "layer", [nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), nn.GRU(3, 4, 2, bidirectional=True), nn.RNN(3, 4)]
)
def test_a_step_is_pytorchs(layer, tmp_path):
    module, x, lengths = States(layer).double(), torch.randn(4, 5, 3).double(), torch.tensor([3, 5, 1, 4])
    x[0, 3:] = torch.nan
    net = mb.from_torch(module, (x, lengths), lengths=(3,))
    assert type(rnn.pack_padded_sequence(x, lengths, True, False)) is rnn.PackedSequence
    data = {"x": x.numpy(), "lengths": lengths.int().numpy()}
    fitted = mb.fit(
        net, data | {"label": np.arange(4)}, loss=mb.cross_entropy, batch_size=4, learners=1, device="numpy",
        update={"name": "sgd", "lr": 1.0}, stop={"epochs": 1}, precision="float64", out=str(tmp_path),
    )  # fmt: skip
    nn.functional.cross_entropy(module(x, lengths), torch.arange(4)).backward()
    torch.optim.SGD(module.parameters(), 1.0).step()
    for name, weight in module.state_dict().items():
        np.testing.assert_allclose(fitted.weights[name], weight, 0, 1e-9)
    np.testing.assert_allclose(fitted.predict(data), module(x, lengths).detach(), 0, 1e-9)
