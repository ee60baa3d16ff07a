"""posteriors: draws from the state of ``vi.diag``, all at once through ``torch.vmap`` and ``functional_call``."""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import posteriors
import torch
import torchopt
from torch import Tensor
from torch.func import functional_call

from benchmarks.peers.engine_task import drive
from benchmarks.peers.engine_torch_parts import begin, calls_of, loaded, with_activations

if TYPE_CHECKING:
    from benchmarks.peers.engine_task import Call, EngineTask


def prepare(task: EngineTask) -> dict[str, Call]:
    """Sets it up."""
    begin(task)
    model = with_activations(torch.nn.Linear(*sizes) for sizes in task.sizes)
    log_sigmas = {}
    for number, given in enumerate(task.posterior()):
        for name, mu, sigma in (
            (f"{2 * number}.weight", given.weight_mu, given.weight_sigma),
            (f"{2 * number}.bias", given.bias_mu, given.bias_sigma),
        ):
            loaded(model.get_parameter(name), mu)
            log_sigmas[name] = torch.from_numpy(np.ascontiguousarray(np.log(sigma).T))
    means = {name: parameter.detach() for name, parameter in model.named_parameters()}
    state: Any = posteriors.vi.diag.init(means, torchopt.adam(), init_log_sds=log_sigmas)

    def draw(rows: Tensor, samples: int) -> Tensor:
        def values(weights: dict[str, Tensor]) -> Tensor:
            drawn: Tensor = functional_call(model, weights, (rows,))
            return drawn

        draws = posteriors.vi.diag.sample(state, sample_shape=torch.Size([samples]))
        return torch.vmap(values)(draws)

    return calls_of(draw)


if __name__ == "__main__":
    drive(prepare)
