"""
What is asked for the proof, and what is made of the answers.
"""

from typing import Any

import pytest

from mtpdeploy.core.proof import Proof, Speculation
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.deploy.speculation import (
    AT_ONCE,
    FULL_TOKENS,
    PROMPT_ROOM,
    PROMPTS,
    SHORT_TOKENS,
    Room,
    devices,
    plan_waves,
    read_proof,
)
from mtpdeploy.remote.measure import Answer, Measured
from mtpdeploy.remote.power import Reading, Sample

WIDE = Room(longest=32768, pool=131072, requests=16)
SERVER = ServerSpec(
    name="s", flags={"model_path": "m", "speculative_algorithm": "EAGLE", "speculative_num_steps": 3}
)
PLAIN = ServerSpec(name="s", flags={"model_path": "m"})
TEXT = "and looked out over the sea until the fog came in and nothing could be seen any more of the ships"


def answer(begin: float, end: float, *, steps: int = 32, drafts: int = 64, text: str = TEXT) -> Answer:
    """
    97 tokens unless told otherwise, the first at `begin` and the last at `end`.
    """
    tokens = 1 + steps + drafts
    meta = {"completion_tokens": tokens, "spec_verify_ct": steps, "spec_num_correct_drafts": drafts}
    return Answer(200, "", text, meta, (begin, 1), (end, tokens), begin - 0.2)


def read(server: ServerSpec, *waves: tuple[Answer, ...], samples: tuple[Sample, ...] = ()) -> Speculation:
    """
    The proof of these answers, of prose and code and so on in each wave; the server's average is 2.2.
    """
    kinds = [tuple(PROMPTS)[: len(wave)] for wave in waves]
    return read_proof(server, kinds, Measured(waves, samples), lambda: (2.2, "the server's average"))


class TestWaves:
    def test_short(self) -> None:
        """
        All kinds at once, and one alone.
        """
        waves, tokens = plan_waves(WIDE, full=False)

        assert SHORT_TOKENS == tokens
        assert [tuple(PROMPTS), ("prose",)] == list(waves)

    def test_full(self) -> None:
        """
        Each kind alone, and then all at once.
        """
        waves, tokens = plan_waves(WIDE, full=True)

        assert FULL_TOKENS == tokens
        assert [1, 1, 1, 1, 4] == [len(wave) for wave in waves]

    @pytest.mark.parametrize(
        ("room", "most", "fewest_tokens"),
        [
            (Room(32768, 131072, 1), 1, SHORT_TOKENS),
            (Room(32768, 131072, 3), 2, SHORT_TOKENS),
            (Room(32768, 131072, 4), 4, SHORT_TOKENS),
            (Room(32768, 2 * (PROMPT_ROOM + FULL_TOKENS), 16), 2, SHORT_TOKENS),
            (Room(128, 131072, 16), 4, 32),
        ],
        ids=["one at a time", "three", "four", "a pool for two", "a short context"],
    )
    def test_no_more_than_the_server_takes(self, room: Room, most: int, fewest_tokens: int) -> None:
        """
        Waiting in a queue is no decoding.
        """
        for full in (False, True):
            waves, tokens = plan_waves(room, full=full)

            assert most == max(map(len, waves))
            assert set(PROMPTS) == {kind for wave in waves for kind in wave}
            assert tokens >= fewest_tokens

    def test_nothing_worth_asking(self) -> None:
        """
        A context of a hundred tokens has no room for a reply.
        """
        assert ((), 0) == plan_waves(Room(100, 131072, 16), full=True)

    def test_prompts_fit_their_room(self) -> None:
        """
        A character is a token at most, with a byte-level vocabulary.
        """
        assert max(len(text.encode()) for text in PROMPTS.values()) <= PROMPT_ROOM
        assert len(PROMPTS) == AT_ONCE


class TestReading:
    def test_decode_speed_is_without_prefill_and_way(self) -> None:
        """
        Tokens after the first by the seconds between first and last; at once over the span of all.
        """
        found = read(SERVER, (answer(1.0, 3.0),), (answer(4.0, 6.0), answer(4.5, 7.0)))
        one, two = found.speeds

        assert (1, 48.0, 48.0) == (one.at_once, one.tokens_per_second, one.per_request)
        assert (2, 192 / 3.0, (48.0 + 38.4) / 2) == (two.at_once, two.tokens_per_second, two.per_request)
        assert "the pieces of the answers, on the box" == found.timed_by

    def test_several_alone_are_one_speed(self) -> None:
        """
        All tokens over all seconds of decoding; the pauses between requests are none.
        """
        found = read(SERVER, (answer(1.0, 2.0),), (answer(10.0, 13.0),))

        assert [192 / 4.0] == [speed.tokens_per_second for speed in found.speeds]

    def test_power_belongs_to_its_speed(self) -> None:
        """
        Samples are told apart by when they were taken; tokens per joule are tokens/s per watt.
        """
        samples = tuple(
            Sample(at, at + 0.1, (Reading(0, watts),))
            for at, watts in ((1.5, 400.0), (3.5, 70.0), (5.0, 480.0))
        )
        found = read(SERVER, (answer(1.0, 3.0),), (answer(4.0, 6.0), answer(4.0, 6.0)), samples=samples)

        assert [400.0, 480.0] == [speed.power.watts if speed.power else None for speed in found.speeds]
        assert [48 / 400, 96 / 480] == [speed.tokens_per_joule for speed in found.speeds]

    def test_accept_length_over_steps(self) -> None:
        """
        10 steps with 3 tokens each and 30 with 1 are 1.5, and so worth it only just.
        """
        found = read(
            SERVER, (answer(1.0, 3.0, steps=10, drafts=20),), (answer(4.0, 6.0, steps=30, drafts=0),)
        )

        assert (1.5, 4, 40) == (found.accept_length, found.most, found.verify_steps)
        assert (Proof.SPECULATING, "of our own requests") == (found.proof, found.source)

    def test_drafts_that_do_not_add_up(self) -> None:
        """
        The tokens that came count, and that is said.
        """
        meta = {"completion_tokens": 97, "spec_verify_ct": 96, "spec_num_correct_drafts": 288}
        found = read(SERVER, (Answer(200, "", TEXT, meta, (1.0, 1), (3.0, 97)),))

        assert (Proof.NOT_SPECULATING, 1.0) == (found.proof, found.accept_length)
        assert "do not add up" in found.source

    def test_not_worth_it(self) -> None:
        """
        What a step costs is told with it.
        """
        found = read(SERVER, (answer(1.0, 3.0, steps=80, drafts=16),))

        assert (Proof.NOT_WORTH_IT, 1.2) == (found.proof, found.accept_length)
        assert "accept length 1.20, where a step costs about 1.45 plain ones" == found.because

    def test_replies_that_tell_nothing(self) -> None:
        """
        The server's average is second best.
        """
        silent = Answer(200, "", TEXT, {"completion_tokens": 96, "e2e_latency": 2.0})
        found = read(SERVER, (silent,))

        assert (2.2, "the server's average") == (found.accept_length, found.source)
        assert "the server's e2e_latency, prefill included" == found.timed_by
        assert [48.0] == [speed.tokens_per_second for speed in found.speeds]

    def test_the_servers_own_decode_throughput(self) -> None:
        """
        It goes before a time that includes the prefill, where nothing was streamed.
        """
        meta = {"completion_tokens": 96, "e2e_latency": 2.0, "decode_throughput": 70.0}
        found = read(SERVER, (Answer(200, "", TEXT, meta),))

        assert "the server's decode_throughput" == found.timed_by
        assert [70.0] == [speed.tokens_per_second for speed in found.speeds]

    def test_without_speculation(self) -> None:
        """
        It is timed all the same.
        """
        meta = {"completion_tokens": 97}
        found = read(PLAIN, (Answer(200, "", TEXT, meta, (1.0, 1), (3.0, 97)),))

        assert (Proof.NOT_ASKED, None, None) == (found.proof, found.accept_length, found.most)
        assert [48.0] == [speed.tokens_per_second for speed in found.speeds]

    def test_nonsense(self) -> None:
        """
        The verdict is on the replies; what is accepted of them is told beside it.
        """
        found = read(SERVER, (answer(1.0, 3.0, text="!" * 97),))

        assert (Proof.NONSENSE, 3.0) == (found.proof, found.accept_length)
        assert found.because.startswith("prose: nothing but `!`")
        assert 1 == len(found.broken)

    @pytest.mark.parametrize(
        ("given", "because"),
        [
            (Answer(0, "TimeoutError timed out", "", {}), "TimeoutError timed out"),
            (Answer(0, "", "", {}), "no answer in time"),
            (Answer(500, '{"error": "died"}', "", {}), '{"error": "died"}'),
            (Answer(200, "", "", {}), "HTTP 200 without a token"),
        ],
    )
    def test_no_answer(self, given: Answer, because: str) -> None:
        """
        Silence has no accept length, and the server's average is not asked for.
        """
        found = read(SERVER, (given,))

        assert (Proof.NOT_ANSWERING, None, because) == (found.proof, found.accept_length, found.because)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {0}),
        ({"flags": {"model_path": "m", "tp_size": 2}}, {0, 1}),
        ({"flags": {"model_path": "m", "tp_size": 2, "pp_size": 2}}, {0, 1, 2, 3}),
        ({"gpus": (3,)}, {3}),
        ({"gpus": (3, 5, 7), "flags": {"model_path": "m", "tp_size": 2}}, {3, 5}),
        ({"env": {"CUDA_VISIBLE_DEVICES": "2,6"}}, {2}),
        ({"env": {"CUDA_VISIBLE_DEVICES": "GPU-0123"}}, {0}),
    ],
)
def test_the_gpus_of_a_server(changes: dict[str, Any], expected: set[int]) -> None:
    """
    Those it was given, else the first it sees, as many as it is split over.
    """
    given: dict[str, Any] = {"name": "s", "flags": {"model_path": "m"}, **changes}

    assert expected == devices(ServerSpec(**given))
