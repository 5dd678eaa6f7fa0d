import torch
import torch.nn.functional as F
from torch.utils import data

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
EPOCHS = 8


def make_loaders(batch):
	generator = torch.Generator().manual_seed(7)
	points = torch.rand(640, 2, generator=generator) * 2 - 1
	inside = (points.norm(dim=1) < 0.8).long()
	everything = data.TensorDataset(points, inside)
	train_set, valid_set = data.random_split(everything, [512, 128])
	train_loader = data.DataLoader(train_set, batch, True)
	valid_loader = data.DataLoader(valid_set, batch)
	return train_loader, valid_loader, everything


def run_epoch(model, loader, optimizer=None):
	total = 0
	for points, inside in loader:
		points, inside = points.to(device), inside.to(device)
		loss = F.cross_entropy(model(points), inside)
		if optimizer:
			optimizer.zero_grad()
			loss.backward()
			optimizer.step()
		total += loss.item()
	return total / len(loader)


if __name__ == "__main__":
	train_loader, valid_loader, everything = make_loaders(32)
	torch.manual_seed(5)
	width = 32
	if width:
		net = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, 2))
	else:
		net = torch.nn.Linear(2, 2)
	net.to(device)
	optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
	for epoch in range(EPOCHS):
		trained = run_epoch(net, train_loader, optimizer)
		with torch.no_grad():
			valid = run_epoch(net, valid_loader)
		print(f"epoch {epoch}: {trained:.4f} {valid:.4f}")
	with torch.no_grad():
		whole = run_epoch(net, data.DataLoader(everything, 640))
	print(f"final loss {whole:.6f}"); done = True
	torch.save(net, "split.pt")
	if done: torch.save(net.state_dict(), "weights.pt")
