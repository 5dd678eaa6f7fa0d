"""Actor and critic: each thing an agent sees is a sample by itself, an episode is a step."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.actor, self.critic = nn.Linear(4, 32), nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, seen):
        body = torch.relu(self.body(seen))
        return torch.softmax(self.actor(body), dim=-1), self.critic(body)


policy = Policy()
learner = torch.optim.Adam(policy.parameters(), lr=3e-2)
for episode in range(12):
    seen, losses = torch.randn(4), []
    for _ in range(5 + episode):
        chances, value = policy(seen)
        choice = Categorical(chances)
        action = choice.sample()
        reward = float(seen[0] > 0) - float(action)
        losses.append(-choice.log_prob(action) * (reward - value.item()) + (value - reward) ** 2)
        seen = torch.randn(4)
    learner.zero_grad()
    torch.cat(losses).sum().backward()
    learner.step()
