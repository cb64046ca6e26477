"""On a chain with a tabular policy the expected gradient of unbiased schemes is the exact policy gradient."""

import numpy as np
import pytest
import torch

from agentic_gym import AgenticVectorEnv
from algos import RolloutBatch, advantages, make_scheme, policy_loss

OPTIONS, DEPTH, PROMPTS, GROUP = 3, 2, 3, 4
UPDATES = 200


class Tabular:
    """Logits of both tokens of a message, for every prompt and turn: nothing is shared."""

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        self.tool = torch.tensor(random.normal(size=(PROMPTS, DEPTH, 2)), requires_grad=True)
        self.option = torch.tensor(random.normal(size=(PROMPTS, DEPTH, OPTIONS)), requires_grad=True)

    def log_prob(self, prompt, turn, choice):
        """Return (m, 2) log-probabilities of choices (m, 2)."""
        logits = (self.tool[prompt, turn], self.option[prompt, turn])
        return torch.stack(
            [
                torch.log_softmax(table, dim=1)[np.arange(len(prompt)), choice[:, slot]]
                for slot, table in enumerate(logits)
            ],
            dim=1,
        )

    def gradient(self, objective):
        return np.concatenate(
            [part.numpy().ravel() for part in torch.autograd.grad(objective, [self.tool, self.option])]
        )


@pytest.fixture(scope="module")
def policy(engine):
    """Leans towards the right message, lest successes be too rare to measure anything."""
    made = Tabular(0)
    for turn, right in enumerate(right_choices(engine)):
        with torch.no_grad():
            for slot, table in enumerate((made.tool, made.option)):
                table[np.arange(PROMPTS), turn, right[:, slot]] += 1.0
    return made


@pytest.fixture(scope="module")
def engine():
    return AgenticVectorEnv(
        PROMPTS * GROUP * UPDATES, family="Chain", options=OPTIONS, depth=DEPTH, num_prompts=PROMPTS, difficulty=0.0,
        autoreset_mode="Disabled",
    )  # fmt: skip


def right_choices(engine):
    """Return the expert's choices (PROMPTS, 2) of every turn."""
    prompt = np.repeat(np.arange(PROMPTS), GROUP * UPDATES)
    engine.reset(options={"prompt": prompt, "rollout": np.arange(len(prompt))})
    found = []
    for _ in range(DEPTH):
        right = engine.expert_message()
        found.append(choices(engine, right[:: GROUP * UPDATES]))
        engine.step(right)
    return found


def exact_gradient(policy, engine):
    """Of the mean success: a product of the right tokens' probabilities."""
    log_success = torch.zeros(PROMPTS, dtype=torch.float64)
    for turn, right in enumerate(right_choices(engine)):
        log_success = log_success + policy.log_prob(np.arange(PROMPTS), turn, right).sum(dim=1)
    return policy.gradient(log_success.exp().mean())


def choices(engine, message):
    """Return (m, 2) which legal token each slot holds."""
    return engine.grammar.parse(message, np.zeros(len(message), dtype=np.int64)).position[:, :2]


def messages(engine, choice):
    """Return the messages of choices (m, 2)."""
    grammar = engine.grammar
    message = np.zeros((len(choice), grammar.n_slots), dtype=np.int64)
    state = np.full(len(choice), grammar.start[0])
    for slot in range(2):
        message[:, slot] = grammar.tokens[state, choice[:, slot]]
        state = grammar.next_state[state, choice[:, slot]]
    return message


def rolled_out(policy, engine, random):
    """Play every row once; return prompt (N,), reward (N,), and rollout, turn and choice of every turn."""
    prompt = np.tile(np.repeat(np.arange(PROMPTS), GROUP), UPDATES)
    engine.reset(options={"prompt": prompt, "rollout": random.integers(2**62, size=len(prompt))})
    reward, over = np.zeros(len(prompt)), np.zeros(len(prompt), dtype=np.bool_)
    rollout, turns, chosen = [], [], []
    for turn in range(DEPTH):
        tables = (policy.tool[:, turn], policy.option[:, turn])
        choice = np.stack(
            [
                (random.random(len(prompt))[:, None] > torch.softmax(table, 1).detach().numpy().cumsum(1)[prompt]).sum(
                    1
                )
                for table in tables
            ],
            axis=1,
        )
        alive = np.flatnonzero(~over)
        rollout.append(alive)
        turns.append(np.full(len(alive), turn))
        chosen.append(choice[alive])
        _, gained, terminated, truncated, _ = engine.step(messages(engine, choice))
        reward += np.where(over, 0.0, gained)
        over = over | terminated | truncated
    assert over.all()
    return prompt, reward, np.concatenate(rollout), np.concatenate(turns), np.concatenate(chosen)


def estimates(scheme, policy, engine):
    """Return (UPDATES, P): the ascent direction of every update."""
    prompt, reward, rollout, turn, choice = rolled_out(policy, engine, np.random.default_rng(1))
    found, size = [], PROMPTS * GROUP
    for update in range(UPDATES):
        own = (rollout >= update * size) & (rollout < (update + 1) * size)
        rows = slice(update * size, (update + 1) * size)
        batch = RolloutBatch.from_arrays(
            returns=reward[rows], prompt=prompt[rows], task=[0] * size, environment=[0] * size,
            turn_rollout=rollout[own] - update * size, token_mask=np.ones((own.sum(), 2), dtype=np.bool_),
        )  # fmt: skip
        log_prob = policy.log_prob(prompt[rollout[own]], turn[own], choice[own])
        credit = advantages(scheme, batch)
        loss, _ = policy_loss(scheme, log_prob, log_prob.detach(), credit, batch)
        found.append(policy.gradient(-loss))
    return np.array(found)


def length(found, exact):
    """Return the estimates' mean length along the exact gradient, in units of it, and its standard error."""
    along = found @ exact / (exact @ exact)
    return along.mean(), along.std(ddof=1) / np.sqrt(len(along))


@pytest.mark.parametrize(("baseline", "surrogate"), [("reinforce", "reinforce"), ("rloo", "ppo_clip")])
def test_the_expected_gradient_is_the_exact_one(engine, policy, baseline, surrogate):
    """At the start of an update, where all ratios are 1, PPO's clip has the same gradient."""
    exact = exact_gradient(policy, engine)
    assert np.linalg.norm(exact) > 0.02
    found = estimates(make_scheme(baseline, surrogate=surrogate, aggregation="token_sum"), policy, engine)
    error = found.std(axis=0, ddof=1) / np.sqrt(UPDATES)
    deviation = (found.mean(axis=0) - exact) / np.maximum(error, 1e-12)
    assert np.abs(deviation).max() < 4.5
    along, error = length(found, exact)
    assert abs(along - 1.0) < 3.0 * error < 0.3
    cosine = found.mean(axis=0) @ exact / np.linalg.norm(found.mean(axis=0)) / np.linalg.norm(exact)
    assert cosine > 0.97


def test_dividing_by_the_spread_is_another_objective(engine, policy):
    """The test above can fail: GRPO's scale changes the length, and weighs prompts anew."""
    exact = exact_gradient(policy, engine)
    found = estimates(make_scheme("grpo", aggregation="token_sum"), policy, engine)
    along, error = length(found, exact)
    assert along - 1.0 > 3.0 * error
