"""Trains a small GPT on the documentation of an installed package, then lets it write.

python -m examples.gpt [--package torch] [--steps 500] [--device xla|cpu]

The text is every docstring found in the package's modules; tokens are its bytes. Sampling keeps
all shapes fixed, position included, so that writing 300 characters compiles one program, not 300.
"""

from __future__ import annotations

import ast
import importlib.util
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from examples import common

CONTEXT = 64
VOCABULARY = 128  # ASCII


class Block(nn.Module):
    """Pre-norm transformer block: [N, T, width] to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, width = x.shape
        heads = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Tokens [N, T] to next-token logits [N, T, VOCABULARY]; input and output embeddings tied."""

    def __init__(self, width: int = 128, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.zeros(CONTEXT, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def documentation(package: str, limit: int = 2_000_000) -> torch.Tensor:
    """The docstrings of `package` as bytes [count], int64, read from its source unexecuted."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"no installed package is called {package!r}")
    text: list[str] = []
    size = 0
    for path in sorted(Path(spec.submodule_search_locations[0]).rglob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):  # templates and test data are no modules
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text.append(ast.get_docstring(node) or "")
                size += len(text[-1])
        if size > limit:
            break
    ascii_bytes = "\n\n".join(filter(None, text)).encode("ascii", "replace")
    if len(ascii_bytes) <= 100 * CONTEXT:
        raise SystemExit(f"{package!r} has too little documentation to learn from")
    return torch.frombuffer(bytearray(ascii_bytes), dtype=torch.uint8).to(torch.int64)


def batch(text: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random windows of the text, tokens and their successors: two tensors [size, CONTEXT]."""
    starts = torch.randint(len(text) - CONTEXT - 1, (size, 1))
    windows = text[starts + torch.arange(CONTEXT + 1)]
    return windows[:, :-1], windows[:, 1:]


@torch.no_grad()
def write(model: GPT, prompt: str, length: int, device: torch.device) -> str:
    """Continues `prompt` by `length` characters, sampled from the model's distribution."""
    model.eval()
    # The last CONTEXT tokens, right-aligned; what stands before the prompt is blank.
    window = torch.tensor([list(prompt.rjust(CONTEXT).encode("ascii"))[-CONTEXT:]], device=device)
    written = []
    for _ in range(length):
        chances = torch.softmax(model(window)[:, -1] / 0.8, -1)
        token = torch.multinomial(chances, 1)
        window = torch.cat([window[:, 1:], token], 1)
        common.end_step(device)
        written.append(token)
    model.train()
    return prompt + bytes(torch.cat(written, 1)[0].tolist()).decode("ascii")


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--package", default="torch", help="whose documentation to learn")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=300, help="characters to write at the end")
    arguments = parser.parse_args()

    device = common.open_device(arguments.device)
    torch.manual_seed(arguments.seed)
    text = documentation(arguments.package)
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=arguments.steps)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{len(text):,} characters of {arguments.package}'s documentation, {parameters:,} weights"
    )

    begin = time.perf_counter()
    with tqdm(range(arguments.steps), desc=device.type, unit="step") as bar:
        for step in bar:
            tokens, targets = (tensor.to(device) for tensor in batch(text, arguments.batch))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            common.end_step(device)
            if step == 0:
                first = loss.item()
            if step % 10 == 9:
                bar.set_postfix(loss=f"{loss.item():.3f}", compiles=common.compile_count(device))
    last = loss.item()
    print(f"loss {first:.3f} -> {last:.3f} in {time.perf_counter() - begin:.1f} s")

    before = common.compile_count(device)
    print("\n" + write(model, "Returns a tensor ", arguments.length, device) + "\n")
    print(f"programs compiled: {before} to train, {common.compile_count(device) - before} to write")
    if not last < first:
        raise SystemExit("FAILED: the loss did not fall")


if __name__ == "__main__":
    main()
