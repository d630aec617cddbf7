"""Trains a small CNN on scikit-learn's handwritten digits, on the xla device and on CPU eager.

python -m examples.digits [--epochs 8] [--device xla|cpu]

The two runs start from the same seed and see the same batches. Shown are the progress with loss,
steps a second and compiles, the test accuracy, the metrics report, and both runs side by side;
out/digits.png has the learning curves. Ends with an error if the network learned too little, if
anything was compiled after the second step, or if the two runs did not start out the same.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

from examples import common

BATCH = 64
FIRST_STEPS = 20  # losses compared with CPU eager


class DigitNet(nn.Module):
    """Images [N, 1, 8, 8] to logits [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Linear(64 * 4 * 4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images).flatten(1))


@dataclasses.dataclass
class Run:
    """What one training run leaves behind."""

    device: torch.device
    losses: list[float]  # one a step
    accuracies: list[float]  # on the test set, before the first epoch and after each
    seconds: float
    compiles: int
    late_compiles: int  # after the second step

    @property
    def accuracy(self) -> float:
        return self.accuracies[-1]

    @property
    def steps_per_second(self) -> float:
        return len(self.losses) / self.seconds


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """1437 digits to train on and 360 to test with: images [N, 1, 8, 8] in [0, 1], labels [N]."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, train = order[:360], order[360:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    images, labels = (tensor.to(device) for tensor in data.tensors)
    model.eval()
    right = (model(images).argmax(1) == labels).float().mean()
    model.train()
    return right.item()


def train(device: torch.device, epochs: int, seed: int) -> Run:
    torch.manual_seed(seed)
    train_data, test_data = load_data()
    # Batches of one size: every step is the same program.
    loader = DataLoader(train_data, BATCH, shuffle=True, drop_last=True)
    model = DigitNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=3e-3, total_steps=epochs * len(loader)
    )

    # The first look at the test set also compiles the program that later looks reuse.
    accuracies = [accuracy(model, test_data, device)]
    losses: list[torch.Tensor] = []
    compiles_before = common.compile_count(device)
    settled = compiles_before
    begin = time.perf_counter()
    with tqdm(total=epochs * len(loader), desc=device.type, unit="step") as bar:
        for _ in range(epochs):
            for images, labels in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(images.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
                schedule.step()  # new learning rate and betas are data: nothing compiles
                common.end_step(device)
                losses.append(loss.detach())
                if len(losses) == 2:
                    settled = common.compile_count(device)
                bar.update()
                if len(losses) % 10 == 0:  # reading a loss waits for its step
                    compiles = common.compile_count(device) - compiles_before
                    bar.set_postfix(loss=f"{loss.item():.4f}", compiles=compiles)
            accuracies.append(accuracy(model, test_data, device))
    common.wait(device)
    seconds = time.perf_counter() - begin
    compiles = common.compile_count(device)
    return Run(
        device,
        torch.stack([loss.cpu() for loss in losses]).tolist(),
        accuracies,
        seconds,
        compiles - compiles_before,
        compiles - settled,
    )


def first_difference(run: Run, reference: Run) -> float:
    """Largest difference of the two runs' first losses."""
    pairs = zip(run.losses[:FIRST_STEPS], reference.losses[:FIRST_STEPS], strict=True)
    return max(abs(a - b) for a, b in pairs)


def print_table(runs: list[Run]) -> None:
    print(f"\n{'device':8} {'accuracy':>9} {'last loss':>10} {'steps/s':>9} {'compiles':>9}")
    for run in runs:
        print(
            f"{run.device.type:8} {run.accuracy:9.4f} {run.losses[-1]:10.5f} "
            f"{run.steps_per_second:9.1f} {run.compiles:9d}"
        )


def plot(runs: list[Run], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for run, style in zip(runs, ("-", "--"), strict=False):
        left.plot(range(1, len(run.losses) + 1), run.losses, style, label=run.device.type)
        right.plot(run.accuracies, style, marker="o", label=run.device.type)
    left.set(xlabel="step", ylabel="training loss", yscale="log", title="Loss")
    right.set(xlabel="epoch", ylabel="test accuracy", ylim=(0, 1.02), title="Accuracy")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"learning curves: {path}")


def failures(run: Run, reference: Run | None) -> list[str]:
    """What went wrong, in words."""
    wrong = []
    if run.accuracy < 0.97:
        wrong.append(f"test accuracy {run.accuracy:.4f} is below 0.97")
    if run.late_compiles:
        wrong.append(f"{run.late_compiles} programs were compiled after the second step")
    if reference and first_difference(run, reference) > 1e-4:
        difference = first_difference(run, reference)
        wrong.append(f"the first {FIRST_STEPS} losses differ from CPU eager's by {difference:.2g}")
    return wrong


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--plot", type=Path, default=Path("out/digits.png"))
    arguments = parser.parse_args()

    device = common.open_device(arguments.device)
    runs = [train(device, arguments.epochs, arguments.seed)]
    print(f"test accuracy on {device.type}: {runs[0].accuracy:.4f}")
    if device.type == "xla":
        import torch_xla.debug.metrics as met

        print("\n" + met.metrics_report())
        runs.append(train(torch.device("cpu"), arguments.epochs, arguments.seed))
    print_table(runs)
    if len(runs) == 2:
        print(
            f"largest difference of the first {FIRST_STEPS} losses: {first_difference(*runs):.2g}"
        )
    plot(runs, arguments.plot)

    wrong = failures(runs[0], runs[1] if len(runs) == 2 else None)
    if wrong:
        sys.exit("FAILED: " + "; ".join(wrong))
    print("OK")


if __name__ == "__main__":
    main()
