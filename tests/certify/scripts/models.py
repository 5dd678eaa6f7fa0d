"""Four small models, their data and their optimizers, shared by the scripts of this folder."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

CLASSES = 5
TOKENS, LENGTH, PADDING = 32, 12, 0


class MLP(nn.Module):
    """Four linear layers; ``statistics`` adds a running mean of the inputs for evaluation."""

    def __init__(self, statistics=""):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(20, 48), nn.Linear(48, 64)
        self.fc3, self.fc4 = nn.Linear(64, 48), nn.Linear(48, CLASSES)
        self.dropout = nn.Dropout(0.1)
        self.statistics = statistics
        if statistics:
            self.register_buffer("input_mean", torch.zeros(20))

    def forward(self, x):
        if self.statistics and self.training:
            mean = x.mean(0)
            if self.statistics == "global":
                mean = mean_over_ranks(mean)
            self.input_mean.lerp_(mean, 0.1)
        x = torch.tanh(self.fc1(x))
        x = x + self.fc3(torch.tanh(self.fc2(x)))
        return self.fc4(self.dropout(x))


class ConvNet(nn.Module):
    """Two convolutions, each with a bias and a normalization."""

    def __init__(self, norm):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 8, 3, padding=1), norm(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 16, 3, stride=2), norm(16)
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


class BatchNormOverRanks(nn.Module):
    """Batch normalization over the batches of all ranks; PyTorch's own needs accelerators."""

    def __init__(self, channels):
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.ones(channels)),
            nn.Parameter(torch.zeros(channels)),
        )
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, inputs):
        x = inputs.float()
        mean = mean_over_ranks(x.mean((0, 2, 3)))
        centred = x - mean[:, None, None]
        variance = mean_over_ranks(centred.square().mean((0, 2, 3)))
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), 0.1)
            self.running_var.lerp_(variance.to(self.running_var.dtype), 0.1)
        scale = self.weight * torch.rsqrt(variance + 1e-5)
        normalized = centred * scale[:, None, None] + self.bias[:, None, None]
        return normalized.to(inputs.dtype)


def mean_over_ranks(values):
    """Return the mean of the ranks' values; gradients flow back to all of them."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return values
    from torch.distributed.nn.functional import all_reduce

    return all_reduce(values) / dist.get_world_size()


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.qkv, self.proj = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.ln2, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.ln1(x)).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).flatten(-2))
        return x + self.down(functional.gelu(self.up(self.ln2(x))))


class GPT(nn.Module):
    """Two blocks; the embedding of the tokens is also the head."""

    def __init__(self, width=32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(TOKENS, width), nn.Embedding(LENGTH, width)
        self.drop = nn.Dropout(0.1)
        self.h = nn.ModuleList(Block(width, 4) for _ in range(2))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, TOKENS, bias=False)
        for embedding in (self.wte, self.wpe):
            nn.init.normal_(embedding.weight, std=0.1)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.drop(self.wte(tokens) + self.wpe.weight)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 16)
        self.lstm = nn.LSTM(16, 24, batch_first=True)
        self.fc = nn.Linear(24, CLASSES)

    def forward(self, tokens):
        return self.fc(self.lstm(self.embedding(tokens))[0].mean(1))


def build(args):
    """Return the model of this name, with the weights of its seed."""
    torch.manual_seed(args.seed)
    if args.model == "mlp":
        return MLP()
    if args.model == "statistics":
        return MLP("local" if args.fault == "local_buffers" else "global")
    if args.model == "conv":
        local = args.fault == "local_batch_norm"
        return ConvNet(nn.BatchNorm2d if local else BatchNormOverRanks)
    return GPT() if args.model == "gpt" else LSTM()


def data(args):
    """Return random samples whose class can be learned."""
    source = torch.Generator().manual_seed(1000 + args.seed)
    if args.model in ("gpt", "lstm"):
        tokens = torch.randint(1, TOKENS, (args.samples, LENGTH + 1), generator=source)
        if args.model == "lstm":
            return TensorDataset(tokens[:, 1:], tokens[:, 1:].sum(1) % CLASSES)
        if args.padded:  # Texts of several lengths: the first half of the samples is short.
            tokens[::2, 4:] = PADDING
        return TensorDataset(tokens[:, :-1], tokens[:, 1:])
    shape = (1, 8, 8) if args.model == "conv" else (20,)
    inputs = torch.randn(args.samples, *shape, generator=source)
    projection = torch.randn(inputs[0].numel(), CLASSES, generator=source)
    return TensorDataset(inputs, (inputs.flatten(1) @ projection).argmax(1))


def loss_of(output, target):
    """Return the mean cross-entropy over classes, or over the tokens that are no padding."""
    ignored = PADDING if output.ndim == 3 else -1
    return functional.cross_entropy(
        output.float().flatten(0, -2), target.flatten(), ignore_index=ignored
    )


def optimizer_of(args, parameters, lr_factor=1.0):
    """Return AdamW for the models of texts, SGD with momentum for the others."""
    if args.model in ("gpt", "lstm"):
        return torch.optim.AdamW(parameters, lr=3e-3 * lr_factor, weight_decay=0.01)
    return torch.optim.SGD(parameters, lr=0.05 * lr_factor, momentum=0.9, weight_decay=1e-4)
