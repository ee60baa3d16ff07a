"""Seeds: no two purposes and no two seeds share a stream."""

import numpy as np
import torch

from murho.model.seeds import seed_for

PURPOSES = ("minibatches", "steps", "KL", "settling fit", "longer fit", *(f"member {number}" for number in range(12)))
SEEDS = (*range(50), 2**32, 2**32 + 1, 2**62 + 1, 2**63 - 1)


def test_no_two_seeds_and_purposes_share_a_stream_of_pytorch() -> None:
    """Its generator on the CPU reads the lower half of a seed alone."""
    seeds = [*range(50), *(seed_for(each, purpose) for each in SEEDS for purpose in PURPOSES)]
    drawn = [torch.randint(2**62, (), generator=torch.Generator().manual_seed(seed)).item() for seed in seeds]
    assert len(set(drawn)) == len(seeds)


def test_a_seed_is_a_child_of_the_seed_sequence() -> None:
    child = np.random.SeedSequence(7, spawn_key=(75, 76))
    assert seed_for(7, "KL") == child.generate_state(1, np.uint64)[0]
