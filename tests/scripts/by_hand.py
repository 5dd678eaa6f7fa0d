"""Without an optimizer: the weights are updated by hand under no_grad, gradients by autograd."""

import torch

torch.manual_seed(0)
x = torch.linspace(-3.14, 3.14, 200)
y = torch.sin(x)
a, b, c = (torch.randn((), requires_grad=True) for _ in range(3))
learning_rate = 1e-5
for t in range(30):
    y_pred = a + b * x + c * x**3
    loss = (y_pred - y).pow(2).sum()
    if t % 10 == 9:
        print(t, loss.item())
    loss.backward()
    with torch.no_grad():
        for w in (a, b, c):
            w -= learning_rate * w.grad
            w.grad = None
print(f"y = {a.item():.3f} + {b.item():.3f} x + {c.item():.3f} x^3")
