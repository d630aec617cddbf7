"""Trains ResNet-18 on scikit-learn's handwritten digits, enlarged to 32 x 32.

python -m examples.resnet18 [--steps 60] [--amp] [--device xla|cpu]

ResNet-18 as in He et al. 2015 (table 1) with the stem for small images (3 x 3, no pooling). With
--amp the forward pass runs under autocast in bfloat16; parameters and optimizer stay in float32.
"""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from examples import common


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a way around them: [N, C, H, W] to [N, D, H/s, W/s]."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


class ResNet18(nn.Module):
    """Images [N, 1, H, W] to logits [N, classes]."""

    def __init__(self, classes: int = 10, width: int = 64) -> None:
        super().__init__()
        layers = [nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
        for stage, stride in enumerate((1, 2, 2, 2)):
            out = width << stage
            layers += [BasicBlock(channels, out, stride), BasicBlock(out, out, 1)]
            channels = out
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images))


def load_images() -> tuple[torch.Tensor, torch.Tensor]:
    """1797 digits: images [N, 1, 32, 32] standardized, labels [N], in random order."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
    images = F.interpolate(images, size=(32, 32), mode="bilinear")
    images = (images - images.mean()) / images.std()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return images[order], torch.tensor(digits.target)[order]


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--amp", action="store_true", help="bfloat16 autocast")
    arguments = parser.parse_args()

    device = common.open_device(arguments.device)
    torch.manual_seed(arguments.seed)
    images, labels = load_images()
    test_images, test_labels = images[:256], labels[:256]
    images, labels = images[256:], labels[256:]

    model = ResNet18(width=arguments.width).to(device)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=arguments.steps)

    begin = time.perf_counter()
    with tqdm(range(arguments.steps), desc=device.type, unit="step") as bar:
        for step in bar:
            chosen = torch.randint(len(images), (arguments.batch,))
            batch, targets = images[chosen].to(device), labels[chosen].to(device)
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=arguments.amp):
                loss = F.cross_entropy(model(batch), targets)
            loss.backward()
            optimizer.step()
            schedule.step()
            common.end_step(device)
            if step % 5 == 4:
                bar.set_postfix(loss=f"{loss.item():.4f}", compiles=common.compile_count(device))
    common.wait(device)
    print(f"{arguments.steps / (time.perf_counter() - begin):.2f} steps/s, compiling included")

    model.eval()
    with torch.no_grad():
        guesses = [model(part.to(device)).argmax(1).cpu() for part in test_images.split(64)]
    right = (torch.cat(guesses) == test_labels).float().mean().item()
    print(f"test accuracy {right:.4f}")


if __name__ == "__main__":
    main()
