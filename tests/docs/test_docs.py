"""The documentation says what the code says, its links lead somewhere, and its examples run."""

import importlib.util
import itertools
import re
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from PIL import Image

import agentic_gym
from agentic_gym.families import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = [ROOT / "README.md", *PAGES]
FENCE = re.compile(r"^```[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^(<!-- no test -->\n)?```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def load_generator():
    spec = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


generate = load_generator()
names = {path: str(path.relative_to(ROOT)) for path in TEXTS}


def test_generated_pages_are_current():
    old = [str(path.relative_to(ROOT)) for path, text in generate.pages().items() if path.read_text("utf-8") != text]
    assert not old, f"out of date, run: python docs/generate.py ({', '.join(old)})"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_current_card(family):
    with Image.open(generate.CARDS / f"{family.lower()}.png") as image:
        stored = np.asarray(image.convert("RGB"), dtype=float)
    drawn = generate.draw_card(family)
    assert stored.shape == drawn.shape
    # Fonts and palettes may differ a little between versions of Pillow; another text differs more.
    assert np.abs(stored - drawn).mean() < 2.0, "out of date, run: python docs/generate.py"


def test_every_id_is_in_the_tables():
    suite = (DOCS / "environments" / "index.md").read_text("utf-8")
    for env_id in agentic_gym.IDS:
        family = gymnasium.spec(env_id).kwargs["family"]
        name = env_id.removeprefix("agentic_gym/")
        target = "../mixtures.md" if family == "Mixture" else f"{family.lower()}.md"
        assert f"[`{name}`]({target})" in suite
        assert f"`{name}`" in (DOCS / "environments" / target).read_text("utf-8")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_whole_page(family):
    text = generate.page_of(family).read_text("utf-8")
    headings = re.findall(r"^## (.*)$", FENCE.sub("", text), flags=re.MULTILINE)
    needed = [*generate.BEFORE, "Known truth", "Example"]
    assert headings[: len(needed)] == needed and headings[-1] == "Version History"
    assert f"environments/{family.lower()}.md" in (ROOT / "mkdocs.yml").read_text("utf-8")
    assert ", success" in text


@pytest.mark.parametrize("family", FAMILIES)
def test_knob_tables_are_right(family):
    """What the table allows is allowed, and numbers beyond it are not."""
    entry = generate.entries()[generate.id_of(family)]
    table = generate.family_page(family).partition("### All knobs")[2].partition("## Known truth")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.strip().splitlines()[2:]]
    assert [row[0] for row in rows] == [f"`{argument.name}`" for argument in entry.arguments]
    for name, default, allowed, meaning in rows:
        assert default and meaning, name
        span = re.fullmatch(r"([\d.]+) to ([\d.]+)", allowed)
        if span is None:
            continue
        kind = float if name in ("`difficulty`", "`slip`") or "." in default else int
        low, high = kind(span[1]), kind(span[2])
        for value in (low, high):
            gymnasium.make(entry.id, **{name.strip("`"): value})
        for value in (low - 1, high + 1):
            with pytest.raises(ValueError, match=name.strip("`")):
                gymnasium.make(entry.id, **{name.strip("`"): value})


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    listed = re.findall(r"[\w/-]+\.md", navigation)
    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in PAGES)


@pytest.mark.parametrize("path", TEXTS, ids=names.get)
def test_links_lead_somewhere(path):
    for target in LINK.findall(FENCE.sub("", path.read_text("utf-8"))):
        if target.startswith("https://arxiv.org/abs/"):
            continue
        file, _, anchor = target.partition("#")
        found = path if not file else (path.parent / file).resolve()
        assert found.is_relative_to(ROOT) and found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", FENCE.sub("", found.read_text("utf-8")), flags=re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_references_name_what_there_is():
    for path in (DOCS / "api").glob("*.md"):
        lines = path.read_text("utf-8").splitlines()
        for line, *options in itertools.zip_longest(lines, lines[1:], lines[2:], fillvalue=""):
            if line.startswith("::: "):
                found = resolve(line.removeprefix("::: "))
                members = re.findall(r"\w+", options[1].partition("members:")[2])
                assert all(hasattr(found, member) for member in members), line


def resolve(name):
    """Return a module, or what a module holds."""
    module, _, attribute = name.rpartition(".")
    if importlib.util.find_spec(module) and hasattr(importlib.import_module(module), "__path__"):
        if importlib.util.find_spec(name):
            return importlib.import_module(name)
    return getattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("path", TEXTS, ids=names.get)
def test_examples_run(path, capsys, tmp_path, monkeypatch):
    """The blocks of a page run one after the other; training is cut short to one update."""
    monkeypatch.chdir(tmp_path)  # Some save a model.
    scope = {}
    for excused, code in BLOCK.findall(path.read_text("utf-8")):
        compile(code, str(path), "exec")
        if not excused:
            exec(re.sub(r"\.learn\([\d_]+", ".learn(1", code), scope)


def test_own_rollouts_get_the_credit_that_is_printed():
    """The README's example says in a comment what credit its turns get."""
    code, parts = [code for _, code in BLOCK.findall((ROOT / "README.md").read_text("utf-8")) if "policy_loss(" in code]
    scope = {}
    exec(code, scope)
    (printed,) = re.findall(r"# \(turns,\): (.*)", code)
    np.testing.assert_allclose(scope["credit"], [float(number) for number in printed.split(",")], atol=5e-4)
    mask = np.asarray(scope["batch"].token_mask)
    whole = scope["log_prob"].grad.numpy().copy()
    assert ((whole != 0) == mask).all()
    # The micro-batches add the gradient once more.
    exec(parts, scope)
    np.testing.assert_allclose(scope["log_prob"].grad.numpy(), 2 * whole, rtol=1e-6)
