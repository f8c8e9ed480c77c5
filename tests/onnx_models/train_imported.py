"""Reads net.onnx, trains it on two learners a rank, and prints the run directory: python -m ...train_imported RANKS."""

import numpy as np

import mpibow as mb


def corners(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of noise with one of four corners brighter, which is the class."""
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 128, (count, 1, 6, 6)).astype(np.uint8), generator.integers(0, 4, count)
    for image, label in zip(images, labels, strict=True):
        top, left = 3 * (label // 2), 3 * (label % 2)
        image[0, top : top + 3, left : left + 3] += 64
    return images, labels.astype(np.int32)


if __name__ == "__main__":
    images, labels = corners(400)
    fitted = mb.fit(
        mb.from_onnx("net.onnx"),
        (images[:320], labels[:320]),
        test=(images[320:], labels[320:]),
        batch_size=4,
        learners=2,
        update={"lr": 0.02},
        stop={"epochs": 6},
    )
    if fitted.rank == 0:
        np.savez("test.npz", images=images[320:], labels=labels[320:], logits=fitted.predict(images[320:]))
        print(fitted.summary.run)
