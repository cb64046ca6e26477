"""One thread for torch and for NumPy's linear algebra while training.

The matrices are small: more threads do not help a lone process, and several processes that fight
for the cores are many times slower.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import ThreadpoolController


@functools.cache
def _controller() -> ThreadpoolController:
    # Finding the libraries takes milliseconds; they are loaded once.
    return ThreadpoolController()


@contextmanager
def limit_threads(n: int | None) -> Iterator[None]:
    """Use n threads inside the block, and as many as before after it; None changes nothing."""
    if n is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        with _controller().limit(limits=n, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
