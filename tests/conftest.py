"""One torch thread: the networks of the tests are too small to share, and the machine may be small as well."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
