"""Fine-tuning of a BERT of Hugging Face, here a tiny one, on sentences of two kinds: python examples/tiny_bert.py."""

import sys
import tempfile

import numpy as np

import mpibow as mb

try:
    import torch
    from transformers import BertConfig, BertForSequenceClassification
except ImportError:
    sys.exit("this example needs PyTorch and transformers: pip install torch transformers")

WORDS, LENGTH = 64, 16


def sentences(count, rng):
    """Token numbers, padded with 0; the class is whether word 5 is among them."""
    lengths = rng.integers(6, LENGTH + 1, count)
    mask = (np.arange(LENGTH) < lengths[:, None]).astype(np.int32)
    tokens = rng.integers(6, WORDS, (count, LENGTH)).astype(np.int32)
    labels = rng.integers(2, size=count).astype(np.int32)
    tokens[np.arange(count), rng.integers(lengths)] = np.where(labels, 5, 6)
    return {"input_ids": tokens * mask, "attention_mask": mask, "labels": labels}


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    train, test = sentences(2000, rng), sentences(400, rng)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    # A checkpoint on disk: BertForSequenceClassification.from_pretrained(FOLDER, num_labels=2)
    model = BertForSequenceClassification(BertConfig(vocab_size=WORDS, max_position_embeddings=LENGTH, **sizes))
    net = mb.from_torch(model, {name: torch.from_numpy(array[:2]).long() for name, array in train.items()})
    update = {"name": "adamw", "lr": 2e-3, "weight_decay": 0.01}
    fitted = mb.fit(net, train, test, batch_size=8, learners=2, update=update, stop={"epochs": 4})
    logits = fitted.predict({name: test[name] for name in ("input_ids", "attention_mask")})
    if fitted.rank == 0:
        with tempfile.TemporaryDirectory() as folder:
            fitted.to_torch().save_pretrained(folder)  # as Hugging Face's own Trainer does
        print((logits.argmax(1) == test["labels"]).mean())
