"""What the tests of figures share."""

from collections.abc import Iterator

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def no_figure_stays_open() -> Iterator[None]:
    """Close the figures of a test: matplotlib warns where many are open."""
    yield
    plt.close("all")
