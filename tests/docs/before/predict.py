"""A run at runs/NAME, of pictures with a bright stripe at the top, in the middle or below; and pictures to predict."""

from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

import mpibow as mb
from mpibow.data import write_records

images, labels = np.random.default_rng(0).integers(0, 60, (60, 1, 6, 6), "uint8"), np.arange(60) % 3
for image, label in zip(images, labels.tolist(), strict=True):
    image[0, 2 * label : 2 * label + 2] += 150
samples = zip(images, labels.tolist(), strict=True)
write_records(Path("records"), samples, classes=3, class_names=("top", "middle", "bottom"))
Path("photos/more").mkdir(parents=True)
for number, name in enumerate(("photo.png", "photos/a.png", "photos/more/b.png")):
    Image.fromarray(images[number, 0]).save(name)
mb.fit = partial(mb.fit, batch_size=4, learners=1, stop={"epochs": 20})
Path(mb.fit(lambda image: mb.dense(mb.flatten(image), 3), "records").summary.run).rename("runs/NAME")
