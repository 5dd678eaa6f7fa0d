"""Steps and samples of loops with unusual optimizers, and of programs that train several times.

All programs run in one process after the other (``rank_programs/watch_many.py``), on one rank. Each
has its true steps and samples beside it.
"""

import pytest

from watch_many import watch_programs

pytestmark = pytest.mark.timeout(300)

PRELUDE = """
import copy, threading
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def data(samples, size=8):
    return TensorDataset(torch.randn(samples, size), torch.randn(samples, 1))

def loader(samples, batch=32):
    return DataLoader(data(samples), batch_size=batch)

def model():
    return nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))

def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.01)

def error(net, x, y):
    return ((net(x) - y) ** 2).mean()

def train(net, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        error(net, x, y).backward()
        optimizer.step()

def closure_of(net, optimizer, x, y):
    def closure():
        optimizer.zero_grad()
        loss = error(net, x, y)
        loss.backward()
        return loss
    return closure

def train_by_hand(net, batches):
    for x, y in batches:
        net.zero_grad()
        error(net, x, y).backward()
        with torch.no_grad():
            for weight in net.parameters():
                weight -= 0.01 * weight.grad
"""

TRAININGS_IN_TURN = {
    "optimizer_then_by_hand": (40, 1280, """
net = model()
train(net, sgd(net), loader(320))
for epoch in range(3):
    train_by_hand(net, loader(320))
"""),
    "optimizer_then_another_model_by_hand_without_loader": (40, 1280, """
net = model()
train(net, sgd(net), loader(320))
other = nn.Linear(8, 1)
train_by_hand(other, [(torch.randn(32, 8), torch.randn(32, 1)) for _ in range(30)])
"""),
    "by_hand_then_optimizer": (40, 1280, """
net = model()
train_by_hand(net, loader(640))
train(net, sgd(net), loader(640))
"""),
    "two_by_hand": (40, 960, """
train_by_hand(model(), [(torch.randn(32, 8), torch.randn(32, 1)) for _ in range(20)])
train_by_hand(nn.Linear(8, 1), [(torch.randn(16, 8), torch.randn(16, 1)) for _ in range(20)])
"""),
    "two_by_hand_with_loaders": (40, 1280, """
train_by_hand(model(), loader(640))
train_by_hand(nn.Linear(8, 1), loader(640))
"""),
    "by_hand_then_accumulating_by_hand": (30, 1280, """
train_by_hand(model(), loader(640))
net = nn.Linear(8, 1)
for number, (x, y) in enumerate(loader(640)):
    error(net, x, y).backward()
    if number % 2:
        with torch.no_grad():
            for weight in net.parameters():
                weight -= 0.01 * weight.grad
                weight.grad = None
"""),
    "folds_with_optimizers_made_before": (24, 384, """
nets = [model() for _ in range(6)]
optimizers = [sgd(net) for net in nets]
for net, optimizer in zip(nets, optimizers):
    train(net, optimizer, loader(64, 16))
"""),
    "folds_in_turn_for_each_epoch": (24, 384, """
nets = [model() for _ in range(3)]
optimizers = [sgd(net) for net in nets]
loaders = [loader(64, 16) for _ in nets]
for epoch in range(2):
    for net, optimizer, batches in zip(nets, optimizers, loaders):
        train(net, optimizer, batches)
"""),
    "folds_of_one_batch_in_turn": (24, 384, """
nets = [model() for _ in range(3)]
optimizers = [sgd(net) for net in nets]
loaders = [loader(16, 16) for _ in nets]
for epoch in range(8):
    for net, optimizer, batches in zip(nets, optimizers, loaders):
        train(net, optimizer, batches)
"""),
    "folds_with_validation": (24, 384, """
nets = [model() for _ in range(3)]
optimizers = [sgd(net) for net in nets]
for net, optimizer in zip(nets, optimizers):
    for epoch in range(2):
        train(net, optimizer, loader(64, 16))
        with torch.no_grad():
            for x, y in loader(64, 16):
                error(net, x, y)
"""),
    "two_models_in_turn": (60, 1920, """
class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)
    def forward(self, x):
        return self.layer(x)
class Second(First):
    def forward(self, x):
        return self.layer(x).tanh()
nets = First(), Second()
optimizers = [sgd(net) for net in nets]
for net, optimizer in zip(nets, optimizers):
    train(net, optimizer, [(torch.randn(32, 8), torch.randn(32, 1)) for _ in range(30)])
"""),
    "short_trainings_of_new_models": (12, 192, """
for fold in range(6):
    net = model()
    train(net, sgd(net), loader(32, 16))
"""),
    "optimizer_made_anew_each_epoch": (40, 1280, """
net = model()
for epoch in range(4):
    train(net, sgd(net), loader(320))
"""),
    "few_updates_by_hand_after_an_optimizer": (13, 416, """
net = model()
train(net, sgd(net), loader(320))
train_by_hand(net, loader(96))
"""),
    "optimizer_by_hand_optimizer_without_loader": (24, 768, """
def batches(count):
    return [(torch.randn(32, 8), torch.randn(32, 1)) for _ in range(count)]
net = model()
optimizer = sgd(net)
train(net, optimizer, batches(12))
train_by_hand(net, batches(6))
train(net, optimizer, batches(6))
"""),
    "folds_without_loader": (24, 384, """
nets = [model() for _ in range(6)]
optimizers = [sgd(net) for net in nets]
for net, optimizer in zip(nets, optimizers):
    train(net, optimizer, [(torch.randn(16, 8), torch.randn(16, 1)) for _ in range(4)])
"""),
    "folds_of_one_step": (6, 96, """
nets = []
for fold in range(6):
    nets.append(model())
    train(nets[-1], sgd(nets[-1]), loader(16, 16))
"""),
    "folds_of_one_step_with_optimizers_kept": (6, 96, """
kept = []
for fold in range(6):
    net = model()
    kept.append((net, sgd(net)))
    train(*kept[-1], loader(16, 16))
"""),
    "two_gans": (40, 1280, """
for _ in range(2):
    maker, judge = nn.Linear(4, 8), nn.Linear(8, 1)
    makes, judges = sgd(maker), sgd(judge)
    for x, _ in loader(640):
        judges.zero_grad()
        (judge(maker(torch.randn(len(x), 4)).detach()) - judge(x)).mean().backward()
        judges.step()
        makes.zero_grad()
        judge(maker(torch.randn(len(x), 4))).mean().backward()
        makes.step()
"""),
    "optimizer_then_one_that_is_no_torch_optimizer": (60, 1880, """
class Updates:
    '''An optimizer such as Keras's with torch, which PyTorch does not know.'''
    def __init__(self, net):
        self.weights = list(net.parameters())
    def zero_grad(self):
        for weight in self.weights:
            weight.grad = None
    def step(self):
        for weight in self.weights:
            weight.data.add_(weight.grad, alpha=-0.01)
net = model()
train(net, sgd(net), loader(640))
for net in (nn.Linear(8, 1), model()):
    train(net, Updates(net), loader(620))
"""),
    "warm_up_then_both_optimizers": (20, 640, """
body, head = nn.Linear(8, 4), nn.Linear(4, 1)
net = nn.Sequential(body, head)
optimizers = sgd(head), sgd(body)
train(net, optimizers[0], loader(320))
for x, y in loader(320):
    net.zero_grad()
    error(net, x, y).backward()
    for optimizer in optimizers:
        optimizer.step()
"""),
    "three_trainings_in_turn_of_which_one_gets_a_new_optimizer": (30, 480, """
nets = [model() for _ in range(3)]
optimizers = [sgd(net) for net in nets]
loaders = [loader(80, 16) for _ in nets]
for epoch in range(2):
    for net, optimizer, batches in zip(nets, optimizers, loaders):
        train(net, optimizer, batches)
    optimizers[1] = sgd(nets[1])
"""),
    "taking_turns_with_a_training_that_begins_later": (40, 1280, """
nets = [model()]
optimizers = [sgd(nets[0])]
a, b = iter(loader(640)), iter(loader(640))
for number in range(20):
    x, y = next(a)
    optimizers[0].zero_grad()
    error(nets[0], x, y).backward()
    optimizers[0].step()
    if number == 0:
        nets.append(nn.Linear(8, 1))
        optimizers.append(sgd(nets[1]))
    x, y = next(b)
    optimizers[1].zero_grad()
    error(nets[1], x, y).backward()
    optimizers[1].step()
"""),
    "taking_turns_with_a_training_that_begins_after_some_steps": (40, 1280, """
nets = [model()]
optimizers = [sgd(nets[0])]
a, b = iter(loader(640)), iter(loader(640))
for number in range(20):
    x, y = next(a)
    optimizers[0].zero_grad()
    error(nets[0], x, y).backward()
    optimizers[0].step()
    if number == 4:
        nets.append(nn.Linear(8, 1))
        optimizers.append(sgd(nets[1]))
    if number < 4: continue
    x, y = next(b)
    optimizers[1].zero_grad()
    error(nets[1], x, y).backward()
    optimizers[1].step()
for x, y in b:
    optimizers[1].zero_grad()
    error(nets[1], x, y).backward()
    optimizers[1].step()
"""),
}  # fmt: skip

RAISING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)
    def forward(self, x):
        if x[0, 0] > 90:
            raise ValueError("bad batch")
        return self.layer(x)
values = torch.randn(640, 8)
values[5 * 32, 0] = values[11 * 32, 0] = 100
net = Net()
optimizer = sgd(net)
"""
"""A model that raises an exception for two of twenty batches."""

LOOPS = {
    "gan": (20, 640, """
maker, judge = nn.Linear(4, 8), nn.Linear(8, 1)
makes, judges = sgd(maker), sgd(judge)
for x, _ in loader(640):
    judges.zero_grad()
    (judge(maker(torch.randn(len(x), 4)).detach()) - judge(x)).mean().backward()
    judges.step()
    makes.zero_grad()
    judge(maker(torch.randn(len(x), 4))).mean().backward()
    makes.step()
"""),
    "five_critic_steps_for_each_of_the_generator": (25, 800, """
maker, judge = nn.Linear(4, 8), nn.Linear(8, 1)
makes, judges = sgd(maker), sgd(judge)
for number, (x, _) in enumerate(loader(800)):
    judges.zero_grad()
    (judge(maker(torch.randn(len(x), 4)).detach()) - judge(x)).mean().backward()
    judges.step()
    if number % 5 == 4:
        makes.zero_grad()
        judge(maker(torch.randn(len(x), 4))).mean().backward()
        makes.step()
"""),
    "architecture_search": (10, 640, """
net, choice = model(), nn.Parameter(torch.ones(1))
weights, architecture = sgd(net), torch.optim.Adam([choice])
for (x, y), (u, v) in zip(loader(320), loader(320)):
    architecture.zero_grad()
    (error(net, u, v) * choice).sum().backward()
    architecture.step()
    weights.zero_grad()
    (error(net, x, y) * choice).sum().backward()
    weights.step()
"""),
    "ensemble_on_the_same_batch": (20, 640, """
nets = [model() for _ in range(3)]
optimizers = [sgd(net) for net in nets]
for x, y in loader(640):
    for net, optimizer in zip(nets, optimizers):
        optimizer.zero_grad()
        error(net, x, y).backward()
        optimizer.step()
"""),
    "optimizer_of_each_parameter_in_backward": (20, 640, """
net = model()
optimizers = {weight: torch.optim.SGD([weight], lr=0.01) for weight in net.parameters()}
def step(weight):
    optimizers[weight].step()
    optimizers[weight].zero_grad()
for weight in net.parameters():
    weight.register_post_accumulate_grad_hook(step)
for x, y in loader(640):
    error(net, x, y).backward()
"""),
    "averaged_weights_and_ema": (20, 640, """
from torch.optim.swa_utils import AveragedModel, SWALR
net = model()
average = AveragedModel(net)
moving = copy.deepcopy(net)
optimizer = sgd(net)
for x, y in loader(640):
    optimizer.zero_grad()
    error(net, x, y).backward()
    optimizer.step()
    average.update_parameters(net)
    with torch.no_grad():
        for slow, fast in zip(moving.parameters(), net.parameters()):
            slow.lerp_(fast, 0.1)
"""),
    "lbfgs_after_adam_without_loader": (31, 1550, """
net = model()
inside, border = torch.randn(40, 8, requires_grad=True), torch.randn(10, 8)
def closure():
    optimizer.zero_grad()
    values = net(inside)
    slopes, = torch.autograd.grad(values, inside, torch.ones_like(values), create_graph=True)
    loss = slopes.pow(2).mean() + net(border).pow(2).mean()
    loss.backward()
    return loss
optimizer = torch.optim.Adam(net.parameters())
for step in range(30):
    closure()
    optimizer.step()
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=50)
optimizer.step(closure)
"""),
    "one_step_of_lbfgs": (1, 32, """
net = model()
x, y = torch.randn(32, 8), torch.randn(32, 1)
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=50, line_search_fn="strong_wolfe")
optimizer.step(closure_of(net, optimizer, x, y))
"""),
    "last_validation_after_an_unused_backward": (6, 448, """
net = model()
optimizer = sgd(net)
for epoch in range(3):
    for number, (x, y) in enumerate(loader(160)):
        error(net, x, y).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        for x, y in loader(96):
            error(net, x, y)
"""),
    "lbfgs": (20, 640, """
net = model()
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4)
for x, y in loader(640):
    optimizer.step(closure_of(net, optimizer, x, y))
"""),
    "lookahead": (20, 640, """
class Lookahead(torch.optim.Optimizer):
    def __init__(self, inner):
        self.inner, self.steps = inner, 0
        super().__init__(inner.param_groups, {})
        self.slow = [w.detach().clone() for g in self.param_groups for w in g["params"]]
    def step(self, closure=None):
        self.inner.step()
        self.steps += 1
        if self.steps % 5 == 0:
            with torch.no_grad():
                weights = [w for g in self.param_groups for w in g["params"]]
                for slow, fast in zip(self.slow, weights):
                    fast.copy_(slow.lerp_(fast, 0.5))
net = model()
optimizer = Lookahead(sgd(net))
train(net, optimizer, loader(640))
"""),
    "plain_wrapper_of_an_optimizer": (20, 640, """
class Fused:
    def __init__(self, inner):
        self.inner = inner
    def zero_grad(self):
        self.inner.zero_grad()
    def step(self):
        self.inner.step()
net = model()
train(net, Fused(sgd(net)), loader(640))
"""),
    "schedule_free": (20, 640, """
class ScheduleFree(torch.optim.SGD):
    def eval(self):
        with torch.no_grad():
            for group in self.param_groups:
                for weight in group["params"]:
                    weight.mul_(0.99)
    train = eval
net = model()
optimizer = ScheduleFree(net.parameters(), lr=0.01)
for epoch in range(2):
    optimizer.train()
    train(net, optimizer, loader(320))
    optimizer.eval()
    with torch.no_grad():
        for x, y in loader(64):
            error(net, x, y)
"""),
    "meta_learning_by_hand": (20, 640, """
net = model()
outer = sgd(net)
for x, y in loader(640):
    weights = dict(net.named_parameters())
    for _ in range(3):
        loss = ((torch.func.functional_call(net, weights, x[:16]) - y[:16]) ** 2).mean()
        grads = torch.autograd.grad(loss, weights.values(), create_graph=True)
        weights = {name: w - 0.01 * g for (name, w), g in zip(weights.items(), grads)}
    outer.zero_grad()
    ((torch.func.functional_call(net, weights, x[16:]) - y[16:]) ** 2).mean().backward()
    outer.step()
"""),
    "meta_learning_with_an_inner_optimizer": (10, 640, """
net = model()
outer = sgd(net)
tasks = iter(loader(640))
for _ in range(10):
    outer.zero_grad()
    for _ in range(2):
        x, y = next(tasks)
        learner = copy.deepcopy(net)
        inner = sgd(learner)
        for _ in range(3):
            inner.zero_grad()
            error(learner, x, y).backward()
            inner.step()
        error(learner, x, y).backward()
        for weight, learned in zip(net.parameters(), learner.parameters()):
            weight.grad = learned.grad.clone()
    outer.step()
"""),
    "epochs_over_a_buffer": (40, 1280, """
policy = model()
optimizer = sgd(policy)
for _ in range(5):
    with torch.no_grad():
        x = torch.stack([torch.randn(8) for _ in range(128)])
        y = policy(x)
    for epoch in range(2):
        for part in torch.randperm(128).split(32):
            optimizer.zero_grad()
            error(policy, x[part], y[part]).backward()
            optimizer.step()
"""),
    "step_without_gradients": (20, 640, """
net, idle = model(), model()
optimizer, unused = sgd(net), sgd(idle)
for x, y in loader(640):
    optimizer.zero_grad()
    error(net, x, y).backward()
    optimizer.step()
    unused.step()
"""),
    "optimizer_in_a_thread": (20, 640, """
net = model()
optimizer = sgd(net)
for x, y in loader(640):
    optimizer.zero_grad()
    error(net, x, y).backward()
    thread = threading.Thread(target=optimizer.step)
    thread.start()
    thread.join()
"""),
    "training_in_a_thread": (20, 640, """
net = model()
thread = threading.Thread(target=train, args=(net, sgd(net), loader(640)))
thread.start()
thread.join()
"""),
    "model_wrapped_at_every_call": (20, 640, """
class Wrapper(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return self.net(x)
net = model()
optimizer = sgd(net)
for _ in range(20):
    x, y = torch.randn(32, 8), torch.randn(32, 1)
    optimizer.zero_grad()
    error(Wrapper(net), x, y).backward()
    optimizer.step()
"""),
    "model_replicated_at_every_call": (20, 640, """
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
net = model()
optimizer = sgd(net)
for _ in range(20):
    x, y = torch.randn(32, 8), torch.randn(32, 1)
    optimizer.zero_grad()
    error(nn.parallel.DistributedDataParallel(net), x, y).backward()
    optimizer.step()
dist.destroy_process_group()
"""),
    "sharpness_aware_by_hand": (30, 960, """
net = model()
optimizer = sgd(net)
train(net, optimizer, loader(480))
optimizer.zero_grad()
for x, y in loader(480):
    error(net, x, y).backward()
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(0.01 * weight.grad)
    optimizer.zero_grad()
    error(net, x, y).backward()
    optimizer.step()
    optimizer.zero_grad()
"""),
    "accumulation_that_grows": (12, 1280, """
net = model()
optimizer = sgd(net)
count, size = 0, 1
for x, y in loader(1280):
    error(net, x, y).backward()
    count += 1
    if count == size:
        optimizer.step()
        optimizer.zero_grad()
        count, size = 0, min(size + 1, 4)
if count:
    optimizer.step()
"""),
    "tests_in_training_mode_with_gradients": (30, 960, """
net = model()
optimizer = sgd(net)
batches, tests = loader(320), loader(96)
for epoch in range(3):
    train(net, optimizer, batches)
    for x, y in tests:
        error(net, x, y).item()
"""),
    "second_stage_that_sums_a_whole_pass": (13, 544, """
net = model()
optimizer = sgd(net)
train(net, optimizer, loader(352))
batches = loader(96)
for epoch in range(2):
    optimizer.zero_grad()
    sum(error(net, x, y) for x, y in batches).backward()
    optimizer.step()
for x, y in loader(96):
    pass
"""),
    "batches_with_a_bad_loss_are_skipped_before_backward": (24, 768, """
net = model()
optimizer = sgd(net)
for epoch in range(3):
    for number, (x, y) in enumerate(loader(320)):
        loss = error(net, x * (float("nan") if number in (3, 7) else 1), y)
        if not torch.isfinite(loss):
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""),
    "batches_with_bad_gradients_are_skipped_after_backward": (24, 768, """
net = model()
optimizer = sgd(net)
for epoch in range(3):
    for number, (x, y) in enumerate(loader(320)):
        optimizer.zero_grad()
        error(net, x, y).backward()
        if number not in (3, 7):
            optimizer.step()
"""),
    "batches_without_enough_rows_are_skipped_before_forward": (24, 768, """
net = model()
optimizer = sgd(net)
for epoch in range(3):
    for number, (x, y) in enumerate(loader(320)):
        if number not in (3, 7):
            train(net, optimizer, [(x, y)])
"""),
    "an_agent_acts_with_gradients": (20, 640, """
net = model()
optimizer = sgd(net)
for step in range(100):
    action = net(torch.randn(1, 8)).argmax()
    if step % 5 == 4:
        train(net, optimizer, [(torch.randn(32, 8), torch.randn(32, 1))])
"""),
    "test_losses_of_derivatives_with_gradients": (20, 640, """
net = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = sgd(net)
x, other = (torch.randn(32, 8, requires_grad=True) for _ in range(2))
def slope(x):
    return torch.autograd.grad(net(x).sum(), x, create_graph=True)[0].pow(2).mean()
for step in range(20):
    slope(x).backward()
    optimizer.step()
    optimizer.zero_grad()
    tested = slope(other)
"""),
    "gradients_of_each_sample_by_vmap": (20, 640, """
net = model()
optimizer = sgd(net)
weights = {name: weight.detach() for name, weight in net.named_parameters()}
def loss(weights, x):
    return torch.func.functional_call(net, weights, (x[None],)).mean()
for step in range(20):
    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, torch.randn(32, 8))
    for name, weight in net.named_parameters():
        weight.grad = each[name].mean(0)
    optimizer.step()
"""),
    "batch_read_ahead_of_validation_on_new_loaders": (30, 480, """
net = model()
optimizer = sgd(net)
batches = iter(loader(484, 4))
x, y = next(batches)
for step in range(30):
    if step % 10 == 0:
        with torch.no_grad():
            for validation in (iter(loader(64, 4)), iter(loader(64, 4))):
                for _ in range(3):
                    error(net, *next(validation))
    for micro_step in range(4):
        loss = error(net, x, y)
        x, y = next(batches)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""),
    "pairs_as_a_list_of_features": (16, 500, """
net = model()
class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
    def forward(self, features):
        first, second = (self.net(part["x"]) for part in features)
        return (first - second).pow(2).mean()
pairs = Pairs()
optimizer = sgd(pairs)
for x, y in loader(500):
    optimizer.zero_grad()
    pairs([{"x": x}, {"x": -x}]).backward()
    optimizer.step()
"""),
    "gradients_of_tasks_are_kept_and_merged": (20, 1280, """
net = model()
optimizer = sgd(net)
tasks = iter(loader(640)), iter(loader(640))
for step in range(20):
    kept = []
    for batches in tasks:
        optimizer.zero_grad()
        error(net, *next(batches)).backward()
        kept.append([weight.grad.clone() for weight in net.parameters()])
    for weight, *gradients in zip(net.parameters(), *kept):
        weight.grad = sum(gradients)
    optimizer.step()
"""),
    "new_loader_each_epoch_read_with_an_old_one": (60, 1440, """
net = model()
optimizer = sgd(net)
memory = iter(loader(720, 8))
for epoch in range(3):
    for x, y in loader(320, 16):
        other, target = next(memory)
        optimizer.zero_grad()
        (error(net, x, y) + error(net, other, target)).backward()
        optimizer.step()
"""),
    "samples_by_a_method_of_a_copy": (20, 640, """
import time
class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = model()
    def forward(self, x):
        return self.net(x)
    @torch.no_grad()
    def sample(self):
        time.sleep(0.1)
        return self.net(torch.randn(4, 8))
net = Generator()
average = copy.deepcopy(net).requires_grad_(False)
optimizer = sgd(net)
for number, batch in enumerate(loader(640)):
    train(net, optimizer, [batch])
    if number % 5 == 4:
        for _ in range(4):
            average.sample()
"""),
    "graph_traced_before_training": (20, 640, """
net = model()
optimizer = sgd(net)
torch.jit.trace(net, torch.randn(4, 8))
train(net, optimizer, loader(640))
"""),
    "an_optimizer_for_matrices_and_one_for_vectors": (20, 640, """
net = model()
matrices, vectors = ([w for w in net.parameters() if w.ndim == n] for n in (2, 1))
optimizers = torch.optim.SGD(matrices, lr=0.01), torch.optim.Adam(vectors)
for x, y in loader(640):
    error(net, x, y).backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
"""),
    "model_compiled_at_every_call": (20, 640, """
net = model()
optimizer = sgd(net)
for _ in range(20):
    optimizer.zero_grad()
    compiled = torch.compile(net, backend="eager")
    error(compiled, torch.randn(32, 8), torch.randn(32, 1)).backward()
    optimizer.step()
"""),
    "lazy_regularization": (20, 640, """
maker, judge = nn.Linear(4, 8), nn.Linear(8, 1)
makes, judges = sgd(maker), sgd(judge)
for number, (x, _) in enumerate(loader(640)):
    makes.zero_grad()
    judge(maker(torch.randn(len(x), 4))).mean().backward()
    makes.step()
    if number % 4 == 0:
        makes.zero_grad()
        maker(torch.randn(len(x), 4)).pow(2).mean().backward()
        makes.step()
    judges.zero_grad()
    (judge(maker(torch.randn(len(x), 4)).detach()) - judge(x)).mean().backward()
    judges.step()
    if number % 4 == 0:
        judges.zero_grad()
        judge(x).pow(2).mean().backward()
        judges.step()
"""),
    "optimizer_step_that_raises": (18, 576, """
class Careful(torch.optim.SGD):
    def step(self, closure=None):
        if self.param_groups[0]["params"][0].grad.abs().max() > 1e3:
            raise ValueError("too large")
        return super().step(closure)
net = model()
optimizer = Careful(net.parameters(), lr=0.01)
for number, (x, y) in enumerate(loader(640)):
    optimizer.zero_grad()
    (error(net, x, y) * (1e6 if number in (2, 12) else 1)).backward()
    try:
        optimizer.step()
    except ValueError:
        pass
"""),
    "closure_that_raises": (18, 576, """
net = model()
optimizer = sgd(net)
for number, (x, y) in enumerate(loader(640)):
    def closure():
        if number in (2, 12):
            raise ValueError("bad batch")
        optimizer.zero_grad()
        loss = error(net, x, y)
        loss.backward()
        return loss
    try:
        optimizer.step(closure)
    except ValueError:
        pass
"""),
    "iterator_that_raises_once": (20, 640, """
class Late(DataLoader):
    ready = False
    def __iter__(self):
        if not self.ready:
            self.ready = True
            raise RuntimeError("not ready")
        return super().__iter__()
class LateInside(torch.utils.data.RandomSampler):
    ready = False
    def __iter__(self):
        if not self.ready:
            self.ready = True
            raise RuntimeError("not ready")
        return super().__iter__()
net = model()
optimizer = sgd(net)
values = data(320)
loaders = Late(values, batch_size=32), DataLoader(values, batch_size=32, sampler=LateInside(values))
for batches in loaders:
    for attempt in range(2):
        try:
            train(net, optimizer, batches)
        except RuntimeError:
            pass
"""),
    "function_compiled_at_the_first_call_of_the_model": (20, 640, """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.function = nn.Linear(8, 1), None
    def forward(self, x):
        if self.function is None:
            self.function = torch.compile(torch.tanh, backend="eager")
        return self.function(self.layer(x))
net = Net()
train(net, sgd(net), loader(640))
"""),
    "thread_that_evaluates_with_gradients": (60, 1920, """
import time
net, going = model(), True
other = copy.deepcopy(net).eval()
def evaluate():
    while going:
        other(torch.randn(4, 8))
        time.sleep(0.001)
thread = threading.Thread(target=evaluate)
thread.start()
optimizer = sgd(net)
for x, y in loader(1920):
    train(net, optimizer, [(x, y)])
    time.sleep(0.002)
going = False
thread.join()
"""),
    "lazy_modules": (20, 640, """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(16))
        self.head = nn.Linear(16, 1)
    def forward(self, x):
        return self.head(self.body(x))
net = Net()
optimizer = None
for x, y in loader(640):
    loss = error(net, x, y)
    if optimizer is None:
        optimizer = sgd(net)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""),
    "lazy_modules_with_an_optimizer": (20, 640, """
net = nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Linear(4,1))
optimizer = sgd(net)
train(net, optimizer, loader(640))
"""),
    "forward_that_raises": (18, 576, RAISING + """
for x, y in DataLoader(TensorDataset(values, torch.randn(640, 1)), batch_size=32):
    optimizer.zero_grad()
    try:
        loss = error(net, x, y)
    except ValueError:
        continue
    loss.backward()
    optimizer.step()
"""),
    "forward_that_raises_without_loader": (18, 576, RAISING + """
for x in values.split(32):
    optimizer.zero_grad()
    try:
        loss = net(x).mean()
    except ValueError:
        continue
    loss.backward()
    optimizer.step()
"""),
    "forward_that_raises_and_is_tried_with_half_of_the_batch": (20, 608, """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)
    def forward(self, x):
        if len(x) > 16 and x[0, 0] > 90:
            raise MemoryError("too large")
        return self.layer(x)
values = torch.randn(640, 8)
values[5 * 32, 0] = values[11 * 32, 0] = 100
net = Net()
optimizer = sgd(net)
for x, y in DataLoader(TensorDataset(values, torch.randn(640, 1)), batch_size=32):
    optimizer.zero_grad()
    try:
        loss = error(net, x, y)
    except MemoryError:
        loss = error(net, x[:16], y[:16])
    loss.backward()
    optimizer.step()
"""),
    "last_batch_of_an_epoch_is_skipped": (27, 864, """
net = model()
optimizer = sgd(net)
for epoch in range(3):
    for number, (x, y) in enumerate(loader(320)):
        loss = error(net, x, y)
        if number == 9:
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""),
    "last_batch_is_skipped_and_the_others_accumulated": (9, 864, """
net = model()
optimizer = sgd(net)
for epoch in range(3):
    for number, (x, y) in enumerate(loader(320)):
        loss = error(net, x, y)
        if number == 9:
            continue
        loss.backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad()
"""),
    "backward_without_step_after_it": (18, 576, """
net = model()
optimizer = sgd(net)
for number, (x, y) in enumerate(loader(640)):
    optimizer.zero_grad()
    error(net, x, y).backward()
    if number in (5, 11):
        continue
    optimizer.step()
"""),
    "optimizer_of_each_parameter_made_at_its_first_update": (20, 640, """
net = model()
optimizers = {}
for x, y in loader(640):
    error(net, x, y).backward()
    for weight in net.parameters():
        if weight not in optimizers:
            optimizers[weight] = torch.optim.SGD([weight], lr=0.01)
        optimizers[weight].step()
        weight.grad = None
"""),
    "target_network": (20, 640, """
import time
class Slow(nn.Linear):
    def forward(self, x):
        time.sleep(0.02)
        return super().forward(x)
net, target = nn.Linear(8, 1), Slow(8, 1)
optimizer = sgd(net)
for _ in range(20):
    x = torch.randn(32, 8)
    with torch.no_grad():
        goal = target(x)
    optimizer.zero_grad()
    error(net, x, goal).backward()
    optimizer.step()
"""),
}  # fmt: skip
PROGRAMS = {**TRAININGS_IN_TURN, **LOOPS}


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    texts = {name: PRELUDE + text for name, (_, _, text) in PROGRAMS.items()}
    return watch_programs(texts, tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_and_samples_are_those_of_the_program(name, watched):
    steps, samples, _ = PROGRAMS[name]
    seen = watched[name]
    assert seen.find("unwatched") is None
    assert (len(seen.column("samples")), sum(seen.column("samples"))) == (steps, samples)


def test_sampling_by_a_method_of_the_model_is_validation(watched):
    seen = watched["samples_by_a_method_of_a_copy"]
    spans = seen.find("ledgers")["time"]["spans"]
    assert spans["validate"] > 0.8 and spans["train"] < 0.8


def test_another_thread_without_an_optimizer_does_not_validate(watched):
    assert not watched["thread_that_evaluates_with_gradients"].spans("validate")


def test_the_call_of_a_target_network_is_no_validation(watched):
    spans = watched["target_network"].find("ledgers")["time"]["spans"]
    assert spans["train"] > 0.3 and spans.get("validate", 0) < 0.1


def test_updates_by_hand_of_one_model_after_another_are_in_the_ledger(watched):
    seen = watched["optimizer_then_one_that_is_no_torch_optimizer"]
    ledger = seen.find("ledgers")["steps"]
    assert (ledger["calls"], ledger["by_hand"], ledger["recorded"]) == (20, 40, 60)


def test_the_validation_after_an_unused_backward_is_recorded(watched):
    assert len(watched["last_validation_after_an_unused_backward"].spans("validate")) == 3
