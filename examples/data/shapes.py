"""shapes.py - writes shapes.safetensors for examples/fine_tune.c: a small CNN, trained by PyTorch to tell discs,
squares, triangles and crosses of 16 x 16 pixels apart.      python3 examples/data/shapes.py"""
import json
import struct

import torch
import torch.nn as nn


def save_file(tensors, path):
    """safetensors.torch.save_file for f32, so that the package is not needed."""
    header, at = {}, 0
    for name, t in sorted(tensors.items()):
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + 4 * t.numel()]}
        at += 4 * t.numel()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, t in sorted(tensors.items()):
            f.write(t.detach().numpy().astype("<f4").tobytes())


def draw(kind, n, g):
    """n pictures [n, 1, 16, 16]: place, size, angle and paper differ. fine_tune.c draws in the same way."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij")
    r = torch.rand(n, 5, generator=g)
    size, turn = 0.45 + 0.3 * r[:, 0], 6.2832 * r[:, 1]
    dx, dy = (x - 0.5 * (r[:, 2, None, None] - 0.5)), (y - 0.5 * (r[:, 3, None, None] - 0.5))
    c, s = torch.cos(turn)[:, None, None], torch.sin(turn)[:, None, None]
    u, v, k = (c * dx + s * dy) / size[:, None, None], (c * dy - s * dx) / size[:, None, None], kind
    if k == 0:
        d = torch.hypot(u, v) - 1
    elif k == 1:
        d = torch.maximum(u.abs(), v.abs()) - 0.85
    elif k == 2:
        d = torch.maximum(v - 0.5, 0.866 * u.abs() - 0.5 * v - 0.5)
    else:
        d = torch.minimum(torch.maximum(u.abs() - 0.3, v.abs() - 1), torch.maximum(v.abs() - 0.3, u.abs() - 1))
    picture = torch.clamp(0.5 - 5 * d * size[:, None, None], 0, 1) * (0.6 + 0.4 * r[:, 4, None, None])
    return (picture + 0.08 * torch.randn(picture.shape, generator=g))[:, None]


torch.manual_seed(1)
torch.set_num_threads(1)
g = torch.Generator().manual_seed(1)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Flatten(), nn.Linear(256, 48), nn.ReLU(), nn.Linear(48, 4))
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
for step in range(1500):
    x = torch.cat([draw(k, 32, g) for k in range(4)])
    y = torch.arange(4).repeat_interleave(32)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
x, y = torch.cat([draw(k, 500, g) for k in range(4)]), torch.arange(4).repeat_interleave(500)
print("test accuracy %.3f" % (net(x).argmax(1) == y).float().mean())
probe = torch.linspace(-1, 1, 256).reshape(1, 1, 16, 16)
state = {name: t.contiguous() for name, t in net.state_dict().items()}
save_file({**state, "probe.output": net(probe).detach()}, "examples/data/shapes.safetensors")
