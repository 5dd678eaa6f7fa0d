"""What a forward leaves in memory for its backward, in live bytes of tensors."""

from functools import cache

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from builders import a_run
from scalewise.frameworks.torch.models.block_compile import apply_activation_checkpointing
from scalewise.frameworks.torch.models.gpt import gpt
from scalewise.frameworks.torch.models.resnet import resnet50
from scalewise.frameworks.torch.task import Task

BATCH, LENGTH, WIDTH, DEPTH, HEADS, WORDS = 8, 32, 64, 6, 4, 50
HANDED = 4 * BATCH * LENGTH * WIDTH
"""What a block takes and gives."""
PLACES = 4 * BATCH * LENGTH
"""One number for each position."""
OUTSIDE = 2 * HANDED + 2 * PLACES + WORDS * PLACES
"""What lies behind the blocks: the last norm's input and output, its mean and spread, and the
logarithms of the probabilities."""
ATTENTION = HEADS * PLACES
"""The sums that attention keeps of each head and position."""


class Living(TorchDispatchMode):
    """Knows all memory that tensors were given while it was entered, and what is left of it."""

    def __init__(self):
        super().__init__()
        self._given = {}

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        answer = operator(*args, **(kwargs or {}))
        for each in tree_leaves(answer):
            if isinstance(each, torch.Tensor):
                storage = each.untyped_storage()
                self._given[storage.data_ptr()] = StorageWeakRef(storage), storage.nbytes()
        return answer

    def forget(self, tensors):
        """Leave out what was there before."""
        for each in tensors:
            self._given.pop(each.untyped_storage().data_ptr(), None)

    @property
    def bytes(self):
        return sum(size for storage, size in self._given.values() if not storage.expired())


def kept(how):
    """Return the bytes that are alive when a forward is done."""
    torch.manual_seed(0)
    model = gpt(LENGTH, WORDS, width=WIDTH, depth=DEPTH, heads=HEADS)
    apply_activation_checkpointing(
        model, a_run(workload="gpt", data="tokens:100x32", recompute=how)
    )
    tokens = torch.randint(WORDS, (BATCH, LENGTH))
    with Living() as living:
        _, loss = Task(model, None).forward(model, tokens, tokens)
        del _
    living.forget([*model.parameters(), tokens])
    found = living.bytes
    loss.backward()
    return found


@pytest.mark.parametrize(
    ("how", "each"),
    [
        # Two norms' inputs, outputs, means and spreads; query, key, value and what attention
        # makes of them; what goes into the function between the dense layers, and comes out.
        ("none", 16 * HANDED + 4 * PLACES + ATTENTION),
        # The input, and what was multiplied: query, key, value, out, dense (4 wide, then 1);
        # and what attention made.
        ("selective", 11 * HANDED + ATTENTION),
        ("full", HANDED),
    ],
)
def test_blocks_keep_what_theory_says(how, each):
    computed = DEPTH * each + OUTSIDE
    assert kept(how) == pytest.approx(computed, rel=0.001)


@cache
def learned(how):
    """Return all that a residual network is after a step."""
    torch.manual_seed(0)
    model = resnet50((3, 32, 32), 10)
    apply_activation_checkpointing(
        model, a_run(workload="resnet50", data="synthetic:16x32x32x3", recompute=how)
    )
    model(torch.randn(4, 3, 32, 32)).square().mean().backward()
    torch.optim.SGD(model.parameters(), lr=0.01).step()
    return model.state_dict()


@pytest.mark.parametrize("how", ["full", "selective"])
def test_batch_norms_take_a_batch_once_that_is_computed_twice(how):
    plain, again = learned("none"), learned(how)
    assert all(torch.equal(plain[name], again[name]) for name in plain)
