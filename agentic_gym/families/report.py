"""Report: research, write and submit a report that is graded on four qualities at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from agentic_gym import streams
from agentic_gym.family import (
    NOTHING,
    BoolArray,
    Draws,
    Family,
    Features,
    FloatArray,
    IntArray,
    OneHot,
    Outcome,
    State,
    indices,
    spread_difficulty,
)
from agentic_gym.grammar import Tool
from agentic_gym.knobs import Knobs, check_integer, check_number

AUDIENCES = ("board", "engineers", "press", "public")
FORMATS = ("slides", "memo", "bulletin", "leaflet")
TOPICS = ("market", "rivals", "costs", "risks", "staff", "law")
FINDINGS = ("up", "down", "flat", "mixed", "high", "low", "good", "poor")
N_AUDIENCES, N_FORMATS = len(AUDIENCES), len(FORMATS)
N_TOPICS = len(TOPICS)
RESEARCH, WRITE, SUBMIT = 2, 3, 4
FIRST_TOPIC = 5
FIRST_FINDING = FIRST_TOPIC + N_TOPICS
FORMAT_RANGE = 0.5

# Stages of a report, as counted in the state "ledger".
OPEN, WELL_FORMED, ILL_FORMED, MISSING = range(4)
# Columns of the state "brief"; the last N_TOPICS say which topics are wanted.
AUDIENCE, URGENT, FIRST_WANTED = range(3)


class Report(Family):
    """Write a report for an audience; accuracy, coverage, brevity and format pull on it unequally.

    ## Description
    Mirrors report-writing agents that are graded on several rewards of unequal ranges. A brief
    names an audience (4), the ``depth`` wanted topics (of 6) and, for some of these, the finding
    (one of 6); half of the briefs are urgent. ``research(topic)`` shows the finding of a topic,
    ``write(topic, finding)`` adds a section; a section stands once it is written, and further
    writes on its topic do nothing. ``submit(format)`` ends the rollout. The right format follows
    from a house style, the same in all prompts: slides for the board, memo for engineers, bulletin
    for the press, leaflet for the public; if the brief is urgent, the next in this order (for the
    public: slides). A section is right if its topic is wanted and its finding true. A report is
    rejected if fewer than half of the wanted topics have a right section.

    ## Action Space
    ``research(topic)``, ``write(topic, finding)``, ``submit(format)``: 3 token slots, plus filler.

    ## Observation Space
    One-hot: audience (4); urgent (1); per topic whether it is wanted (6 times 1); per topic the
    finding, where the brief or research has shown it (6 times ``findings``); per topic the finding that was
    written (6 times ``findings``); then the engine's three features (share of turns used, tool failure,
    illegal message).

    ## Starting State
    The brief; nothing is written. Audience, urgency, wanted topics and all findings are uniform
    and independent.

    ## Rewards
    Four components; a report that is rejected, or not submitted in time, has the worst of each:

    * ``accuracy``: ``accuracy_scale / depth`` for each right section. Range 0 to ``accuracy_scale``.
    * ``coverage``: share of the wanted topics that have a section, right or wrong, minus the share of
      the other topics that have one, but at least 0. Range 0 to 1.
    * ``brevity``: ``-section_cost`` for each section. Worst ``-6 * section_cost``, best ``-section_cost``.
    * ``format``: 0.5 for the right format, else 0.

    Accuracy, coverage and brevity change with the section that is written, format comes with
    ``submit``; rejection, or running out of turns, takes back what was earned. Every section costs
    brevity, but a right one pays. A section on a guess pays coverage, and gives accuracy away.
    ``illegal``: -0.02 for each illegal message.

    The score is the sum of the four qualities, each mapped to [0, 1] from its worst to its best,
    divided by ``3 + (6 - depth) / 5``, the sum of the best report. Success is the best report:
    exactly the wanted topics, every section right, the right format; its score is 1.

    ## Episode End
    Termination by ``submit``; truncation after ``max_turns`` (default ``2 * depth + 2``).

    ## Arguments
    Common knobs, and:

    * ``accuracy_scale`` (default 10, 5 to 1000): how far accuracy outweighs the other components.
    * ``section_cost`` (default 0.5, 0.1 to 0.8): how much brevity each section costs.
    * ``findings`` (default 6, 2 to 8): how many there are.
    * ``n_rewards`` (default 4, 1 to 4): how many of the components are paid, in the order above; the others are
      0. The score counts all four.

    ``depth`` (default 3, 1 to 5): wanted topics. ``difficulty`` (default 0.5): mean probability that
    the brief does not tell the finding of a wanted topic; each prompt has its own. Tasks: the audiences.

    ## Known truth
    With all four rewards the best value is ``accuracy_scale + 1.5 - depth * section_cost``, and the worst
    ``-6 * section_cost``; submitting at once has it, too. Best score 1, if there are at least
    ``2 * depth + 1`` turns. To a policy that ignores the observation all topics, findings and formats
    are alike, so only the number m of topics that it writes counts; the expected score has a closed
    form (hypergeometric in the wanted topics among the m, binomial in the right sections among these),
    and ``chance`` is its maximum over m: 0.019 with the default knobs.

    ## References
    Mirrors multi-reward training of GDPO and MAESTRO, and rubric-graded report writing.

    ## Version History
    * v0: initial version.
    """

    name = "Report"
    components = ("accuracy", "coverage", "brevity", "format")
    default_depth = 3
    depth_range = (1, 5)
    tasks = AUDIENCES
    illegal_penalty = -0.02

    def __init__(
        self,
        knobs: Knobs,
        accuracy_scale: float = 10.0,
        section_cost: float = 0.5,
        n_rewards: int = 4,
        findings: int = 6,
    ) -> None:
        """See the class docstring."""
        # Within these bounds a right section always pays more than it costs.
        self.accuracy_scale = check_number("accuracy_scale", accuracy_scale, 5.0, 1000.0)
        self.section_cost = check_number("section_cost", section_cost, 0.1, 0.8)
        self.n_rewards = check_integer("n_rewards", n_rewards, 1, len(self.components))
        self.findings = check_integer("findings", findings, 2, len(FINDINGS))
        self._first_format = FIRST_FINDING + self.findings
        super().__init__(knobs)
        self._one_hot = OneHot(N_AUDIENCES, 1, *[1] * N_TOPICS, *[self.findings] * (2 * N_TOPICS))
        self.n_features = self._one_hot.width
        wanted = itertools.combinations(range(N_TOPICS), self.depth)
        self._briefs = np.array([[0 if t in chosen else NOTHING for t in range(N_TOPICS)] for chosen in wanted])
        self._fill_ledger()
        worst, best = self._worth.sum(axis=1)[[MISSING * self._stride_of_stage, self._best]]
        self.value_range = (float(worst), float(best))
        self._written_places = (self.findings + 1) ** np.arange(N_TOPICS)
        self._known_places = (self.findings + 1) ** N_TOPICS * 2 ** np.arange(N_TOPICS)

    def _fill_ledger(self) -> None:
        """Tabulate components and score over the places of the ledger.

        A place counts right sections, wanted topics and other topics that have a section, and the
        stage, in mixed radix; all that the grading needs.
        """
        depth, others = self.depth, N_TOPICS - self.depth
        self._stride_of_other = (depth + 1) ** 2
        self._stride_of_stage = self._stride_of_other * (others + 1)
        self._stride_of_wanted = depth + 1
        self._best = WELL_FORMED * self._stride_of_stage + depth * self._stride_of_wanted + depth
        stage, other, wanted, right = np.indices((4, others + 1, depth + 1, depth + 1)).reshape(4, -1)
        accuracy = right / depth
        coverage = np.maximum(wanted / depth - other / others, 0.0)
        sections = wanted + other
        worthless = (stage == MISSING) | ((stage != OPEN) & (2 * right < depth))
        accuracy[worthless], coverage[worthless], sections[worthless] = 0.0, 0.0, N_TOPICS
        well_formed = (stage == WELL_FORMED) & ~worthless
        scale = np.array([self.accuracy_scale, 1.0, -self.section_cost, FORMAT_RANGE])
        self._worth = np.column_stack([accuracy, coverage, sections, well_formed]) * scale
        self._worth[:, self.n_rewards :] = 0.0
        brevity = (N_TOPICS - sections) / (N_TOPICS - 1)
        quality = accuracy + coverage + brevity + well_formed
        quality /= quality[self._best]
        self._score = np.where((stage == OPEN) | worthless, 0.0, quality)

    def chance(self) -> float:
        """Maximise the expected score over the number of topics that are written blindly."""
        return max(self._blind_score(m) for m in range(1, min(N_TOPICS, self.turn_limit - 1) + 1))

    def _blind_score(self, sections: int) -> float:
        depth, others, hit = self.depth, N_TOPICS - self.depth, 1.0 / self.findings
        total = 0.0
        for wanted in range(max(0, sections - others), min(depth, sections) + 1):
            ways = math.comb(depth, wanted) * math.comb(others, sections - wanted) / math.comb(N_TOPICS, sections)
            for right in range(wanted + 1):
                share = ways * math.comb(wanted, right) * hit**right * (1 - hit) ** (wanted - right)
                place = right + wanted * self._stride_of_wanted + (sections - wanted) * self._stride_of_other
                well, ill = self._score[place + np.array([WELL_FORMED, ILL_FORMED]) * self._stride_of_stage]
                total += share * float(ill + (well - ill) / N_FORMATS)
        return total

    def closed_forms(self) -> dict[str, float]:
        """Without tool failures the expert writes the best report, given turns to research every topic."""
        if self.knobs.slip or self.turn_limit <= 2 * self.depth:
            return {}
        return {"best_score": 1.0, "best_value": self.value_range[1]}

    def default_max_turns(self) -> int:
        """Research and a section for each topic, the submission, and one mistake."""
        return 2 * self.depth + 2

    def tools(self) -> Sequence[Tool]:
        """The three tools; their order and slots fix the token ids above."""
        findings = FINDINGS[: self.findings]
        return [Tool("research", (TOPICS,)), Tool("write", (TOPICS, findings)), Tool("submit", (FORMATS,))]

    def start(self, key: streams.Keys) -> State:
        """Draw the brief and the findings."""
        n = len(key)
        draw = streams.uniform(key[:, None], np.arange(N_TOPICS + 2))
        share = spread_difficulty(self.difficulty, draw[:, :1])
        (audience, urgent, chosen), _ = streams.digits(draw[:, 1], N_AUDIENCES, 2, len(self._briefs))
        (finding,), rest = streams.digits(draw[:, 2:], self.findings)
        brief = np.empty((n, FIRST_WANTED + N_TOPICS), dtype=np.int8)
        brief[:, AUDIENCE], brief[:, FIRST_WANTED:] = audience, self._briefs[chosen]
        brief[:, URGENT] = np.where(urgent, 0, NOTHING)
        told = (brief[:, FIRST_WANTED:] != NOTHING) & (rest >= share)
        return {
            "brief": brief,
            "finding": finding.astype(np.int8),
            "known": np.where(told, finding, NOTHING).astype(np.int8),
            "written": np.full((n, N_TOPICS), NOTHING, dtype=np.int8),
            "ledger": np.zeros(n, dtype=np.int64),
        }

    def observe(self, state: State, rows: IntArray) -> Features:
        """Show the brief, the findings known, and the sections."""
        return self._one_hot(*(state[name].take(rows, axis=0) for name in ("brief", "known", "written")))

    def expert(self, state: State, rows: IntArray) -> IntArray:
        """Research and write the wanted topics in turn, then submit."""
        brief, known = state["brief"].take(rows, axis=0), state["known"].take(rows, axis=0)
        missing = (brief[:, FIRST_WANTED:] != NOTHING) & (state["written"].take(rows, axis=0) == NOTHING)
        topic = missing.argmax(axis=1)
        at = np.arange(len(rows)), topic
        finding = known[at]
        write, research = missing[at] & (finding != NOTHING), missing[at] & (finding == NOTHING)
        message = np.zeros((len(rows), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = np.select([write, research], [WRITE, RESEARCH], SUBMIT)
        message[:, 1] = np.where(missing[at], FIRST_TOPIC + topic, self._first_format + self._format(state, rows))
        message[:, 2] = np.where(write, FIRST_FINDING + finding.astype(np.int64), 0)
        return message

    def _format(self, state: State, rows: IntArray) -> IntArray:
        audience, urgent = state["brief"][rows, AUDIENCE].astype(np.int64), state["brief"][rows, URGENT] != NOTHING
        return np.asarray((audience + urgent) % N_FORMATS)

    def ground_truth(self, state: State, rows: IntArray) -> IntArray:
        """The submission in the right format, which is the last message of the best report."""
        message = np.zeros((len(rows), self.grammar.n_slots), dtype=np.int64)
        message[:, 0] = SUBMIT
        message[:, 1] = self._first_format + self._format(state, rows)
        return message

    def apply(self, state: State, rows: IntArray, message: IntArray, draws: Draws) -> Outcome:
        """Carry out one tool call; a turn's components are what it changed of the report's worth."""
        before = state["ledger"].take(rows)
        tool = message[:, 0]
        for token, carry_out in ((RESEARCH, self._research), (WRITE, self._write), (SUBMIT, self._submit)):
            chosen = indices(tool == token)
            if len(chosen):
                carry_out(state, rows[chosen], message.take(chosen, axis=0))
        after = state["ledger"].take(rows)
        return Outcome(self._worth.take(after, axis=0) - self._worth.take(before, axis=0), tool == SUBMIT)

    def _research(self, state: State, rows: IntArray, message: IntArray) -> None:
        topic = message[:, 1] - FIRST_TOPIC
        state["known"][rows, topic] = state["finding"][rows, topic]

    def _write(self, state: State, rows: IntArray, message: IntArray) -> None:
        topic, finding = message[:, 1] - FIRST_TOPIC, message[:, 2] - FIRST_FINDING
        present = state["written"][rows, topic]
        new = present == NOTHING
        state["written"][rows, topic] = np.where(new, finding, present)
        wanted = state["brief"][rows, FIRST_WANTED + topic] != NOTHING
        right = wanted & (finding == state["finding"][rows, topic])
        state["ledger"][rows] += new * np.where(wanted, self._stride_of_wanted + right, self._stride_of_other)

    def _submit(self, state: State, rows: IntArray, message: IntArray) -> None:
        well_formed = message[:, 1] - self._first_format == self._format(state, rows)
        state["ledger"][rows] += np.where(well_formed, WELL_FORMED, ILL_FORMED) * self._stride_of_stage

    def timeout(self, state: State, rows: IntArray) -> FloatArray:
        """A report that was not submitted is worth the least."""
        before = state["ledger"][rows]
        after = before + MISSING * self._stride_of_stage
        state["ledger"][rows] = after
        return np.asarray(self._worth[after] - self._worth[before])

    def score(self, state: State, rows: IntArray) -> FloatArray:
        """The four qualities' sum in units of the best report's; 0 until the report is submitted."""
        return np.asarray(self._score.take(state["ledger"].take(rows)))

    def success(self, state: State, rows: IntArray) -> BoolArray:
        """The report is the best possible one."""
        return np.asarray(state["ledger"].take(rows) == self._best)

    def task(self, state: State, rows: IntArray) -> IntArray:
        """The audience."""
        return np.asarray(state["brief"][rows, AUDIENCE].astype(np.int64))

    def state_key(self, state: State, rows: IntArray) -> IntArray:
        """The sections, what is known, and the stage, as one number."""
        written = (state["written"].take(rows, axis=0) - NOTHING) @ self._written_places
        known = (state["known"].take(rows, axis=0) != NOTHING) @ self._known_places
        stage = state["ledger"].take(rows) // self._stride_of_stage
        return np.asarray(written + known + stage * (2 * self._known_places[-1]))

    def describe(self, state: State, row: int) -> str:
        """Read the brief, the findings known, and the sections."""
        stage = state["ledger"][row] // self._stride_of_stage
        if stage != OPEN:
            ends = "The report is in, in the right format.", "The report is in, in a wrong format."
            return (*ends, "The report is late.")[stage - WELL_FORMED]
        audience, urgent, *wanted = state["brief"][row].tolist()
        names = ", ".join(topic for topic, flag in zip(TOPICS, wanted, strict=True) if flag != NOTHING)
        kind = "A report" if urgent == NOTHING else "An urgent report"
        text = f"{kind} for the {AUDIENCES[audience]} about {names}."
        for title, column in (("Known", "known"), ("Written", "written")):
            pairs = zip(TOPICS, state[column][row].tolist(), strict=True)
            parts = [f"{topic} {FINDINGS[finding]}" for topic, finding in pairs if finding != NOTHING]
            text += f" {title}: {', '.join(parts) or 'nothing'}."
        return text
