"""PyTorch's side of bench_pipeline.py: a DataLoader over files, torchvision's usual transform by Pillow; see peer_loop.

python -m benchmarks.data.torch_loader FOLDER WORKERS
"""

import math
import os
import sys

import PIL
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from benchmarks.data.peer_loop import serve

SIZE, BATCH = 224, 64
MEAN, STD = torch.tensor([0.485, 0.456, 0.406])[:, None, None], torch.tensor([0.229, 0.224, 0.225])[:, None, None]


def window(width: int, height: int) -> tuple[int, int, int, int]:
    """The crop of Szegedy et al., as torchvision draws it: left, top, right, bottom."""
    for _ in range(10):
        area = width * height * torch.empty(1).uniform_(0.08, 1.0).item()
        ratio = math.exp(torch.empty(1).uniform_(math.log(3 / 4), math.log(4 / 3)).item())
        columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < columns <= width and 0 < rows <= height:
            top = int(torch.randint(0, height - rows + 1, (1,)).item())
            left = int(torch.randint(0, width - columns + 1, (1,)).item())
            return left, top, left + columns, top + rows
    return 0, 0, width, height


class Files(Dataset):  # type: ignore[type-arg]
    """Images decoded, cropped, resized, flipped, made floats and normalised."""

    def __init__(self, folder: str) -> None:
        self.paths = sorted(
            os.path.join(where, name) for where, _, names in os.walk(folder) for name in names if name.endswith(".jpg")
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        with open(self.paths[number], "rb") as file:
            image = Image.open(file).convert("RGB")
        image = image.crop(window(*image.size)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        if torch.rand(1) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(SIZE, SIZE, 3)
        return pixels.permute(2, 0, 1).contiguous().float().div_(255).sub_(MEAN).div_(STD), 0


def main() -> None:
    torch.set_num_threads(1)
    loader = DataLoader(Files(sys.argv[1]), BATCH, shuffle=True, num_workers=int(sys.argv[2]), drop_last=True)
    epoch = iter(loader)

    def batch() -> int:
        nonlocal epoch
        try:
            images, _ = next(epoch)
        except StopIteration:
            epoch = iter(loader)
            images, _ = next(epoch)
        return len(images)

    serve(batch, {"torch": torch.__version__, "Pillow": PIL.__version__})


if __name__ == "__main__":
    main()
