"""Freed memory stays with the process."""

import subprocess
import sys

import pytest

from algos.allocator import keep_freed_memory

COUNT = """
import resource
import sys
import numpy as np
from algos.allocator import keep_freed_memory

def fill():
    for array in [np.empty(2**19, dtype=np.float32) for _ in range(16)]:
        array.fill(1.0)

if sys.argv[1] == "kept":
    keep_freed_memory()
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(setting):
    result = subprocess.run(
        [sys.executable, "-c", COUNT, setting], capture_output=True, text=True, check=True, timeout=120
    )
    return int(result.stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="only glibc can be asked")
def test_arrays_that_come_and_go_are_not_mapped_anew():
    # Ten times 16 arrays of 2 MiB are thousands of pages, even where the system hands out large ones.
    assert page_faults("kept") < 0.1 * page_faults("given back")


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert not keep_freed_memory.__wrapped__()
