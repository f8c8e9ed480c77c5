"""Training of a small GPT-2 of Hugging Face from its config, on a generated text: python examples/small_gpt2.py."""

import sys

import numpy as np

import mpibow as mb

try:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError:
    sys.exit("this example needs PyTorch and transformers: pip install torch transformers")

CONTEXT = 32
WORDS = ("the", "small", "net", "learns", "from", "a", "small", "batch", "and", "the", "next", "net", "learns")

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    text = " ".join(" ".join(rng.permutation(WORDS)) for _ in range(400))
    letters = sorted(set(text))
    numbers = np.array([letters.index(letter) for letter in text], np.int32)
    samples = numbers[: len(numbers) // CONTEXT * CONTEXT].reshape(-1, CONTEXT)
    tokens = {"input_ids": samples, "labels": samples}  # the model moves its labels on by one itself
    part = {name: array[-64:] for name, array in tokens.items()}
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=len(letters), n_positions=CONTEXT, n_embd=48, n_layer=2, n_head=4)
    net = mb.from_torch(
        GPT2LMHeadModel(config), {key: torch.from_numpy(array[:2]).long() for key, array in part.items()}
    )
    train = {name: array[:-64] for name, array in tokens.items()}
    update = {"name": "adamw", "lr": 3e-3, "weight_decay": 0.1}
    fitted = mb.fit(net, train, part, batch_size=8, learners=2, update=update, stop={"epochs": 4})
    if fitted.rank == 0:
        print(fitted.predict(tokens["input_ids"][:1]).shape)  # logits; the log has the loss by letter
