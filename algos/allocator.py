"""Memory that an update frees is kept for the next one, instead of going back to the system.

Large arrays that come and go would otherwise be mapped and cleared page by page in every minibatch.
"""

from __future__ import annotations

import ctypes
import functools
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, see mallopt(3)."""
KEPT_BYTES = 2**30
"""So much free memory stays with the process."""
LARGEST_ON_HEAP = 2**25
"""Larger blocks are mapped by themselves all the same; glibc allows no more."""


@functools.cache
def keep_freed_memory() -> bool:
    """Ask the C library for it, once per process; return whether it is one that can (glibc)."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(TRIM_THRESHOLD, KEPT_BYTES)) and bool(mallopt(MMAP_THRESHOLD, LARGEST_ON_HEAP))
