"""
What `up` would do, without doing it.
"""

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace

import pytest

from mtpdeploy.core import events
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.demo.home import QWEN36_27B, QWEN36_27B_WITHOUT_MTP, Hostile
from mtpdeploy.deploy.order import Options, Order
from mtpdeploy.deploy.rehearsal import rehearse, script_for
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.engines.sglang.rungs import LADDERS
from mtpdeploy.errors import BoxUnfit, ConfigError
from tests.deploy.place import FITTING, SEED, Place, tree
from tests.deploy.test_up import until

MakePlace = Callable[..., Place]


class TestRehearse:
    def test_touches_nothing(self, place: Place, port: int) -> None:
        """
        Not a byte of the box's home is another one afterwards, and nothing runs.
        """
        before = tree(place.home.path)

        plan = rehearse(place.order(place.server(port)), place.tools())

        assert before == tree(place.home.path)
        assert [] == place.home.living()
        assert (None, None, ()) == (plan.problem, plan.already_running, plan.in_the_way)

    def test_shows_the_script_that_up_launches(self, place: Place, port: int) -> None:
        """
        But for names that carry the time and the ascent, it is the script of the first attempt.
        """
        server = place.server(port)
        plan = rehearse(place.order(server), place.tools())
        ascent = place.up(server)
        run = place.home.path / ".mtpdeploy" / "runs" / ascent.outcomes[0].run
        launched = (run / "launch.sh").read_text()

        assert _command(plan.script) == _command(launched)
        assert set(plan.files) <= {path.name for path in run.iterdir()}

    def test_shows_what_a_forecast_chose(self, place: Place, port: int) -> None:
        """
        The script is that of the first configuration predicted to fit, with what was passed over and why.
        """
        server = place.server(port, SEED)
        plan = rehearse(place.order(server), place.tools())
        blind = rehearse(place.order(server, plan=False), place.tools())
        ascent = place.up(server)
        run = place.home.path / ".mtpdeploy" / "runs" / ascent.outcomes[0].run

        assert _command((run / "launch.sh").read_text()) == _command(plan.script)
        assert plan.foreseen is not None
        assert 3 == len(plan.foreseen.passed)
        assert (None, True) == (
            blind.foreseen,
            "--max-running-requests 512" in " ".join(_command(blind.script)),
        )

    def test_nothing_fits(self, make_place: MakePlace, port: int) -> None:
        """
        Where `up` would refuse to launch anything, that is the problem, with its exit status.
        """
        place = make_place(models=(QWEN36_27B, replace(QWEN36_27B, name="heavy", weights_gib=120.0)))
        server = place.server(port, {**SEED, "model_path": str(place.home.model("heavy"))})
        plan = rehearse(place.order(server), place.tools())

        assert plan.problem is not None
        assert plan.problem.message.startswith("nothing on the ladder `default` is predicted to fit")
        assert 4 == plan.exit_status

    def test_a_checkpoint_without_tensors_for_the_draft(self, place: Place, port: int) -> None:
        """
        Refused, unless that is allowed.
        """
        model = str(place.home.model(QWEN36_27B_WITHOUT_MTP.name))
        server = place.server(port, {**FITTING, "model_path": model})
        refused = rehearse(place.order(server), place.tools())
        allowed = rehearse(place.order(server, allow_no_mtp=True), place.tools())

        assert refused.problem is not None
        assert "has no tensors for multi-token prediction" in refused.problem.message
        assert allowed.problem is None

    def test_shards_of_a_few_bytes(self, place: Place, port: int) -> None:
        """
        A download that broke off ends `up` and its rehearsal alike, before anything is launched.
        """
        server = place.server(port)
        shard = place.home.model() / "model-00003-of-00014.safetensors"
        shard.write_bytes(b"x" * 100)
        plan = rehearse(place.order(server), place.tools())

        assert plan.problem is not None
        assert f"weight files of the model on `local` are cut short: {shard.name}" == plan.problem.message
        with pytest.raises(BoxUnfit, match=re.escape(plan.problem.message)):
            place.up(server)
        assert [] == place.home.living()

    def test_a_model_of_which_nothing_can_be_planned(self, place: Place, port: int) -> None:
        """
        It is said as `up` says it.
        """
        (place.home.model() / "config.json").write_text('{"model_type": "new", "architectures": ["New"]}')
        plan = rehearse(place.order(place.server(port)), place.tools())
        said = "not planned: config.json describes no model: it has no `num_hidden_layers`"

        assert (None, None) == (plan.problem, plan.foreseen)
        assert said in [event.text for event in place.told if isinstance(event, events.Note)]

    def test_the_script_is_one_for_sh(self, place: Place, port: int) -> None:
        """
        A shell reads it without complaint.
        """
        plan = rehearse(place.order(place.server(port)), place.tools())

        checked = subprocess.run(["bash", "-n"], input=plan.script.encode(), capture_output=True, check=False)

        assert (0, b"") == (checked.returncode, checked.stderr)

    def test_says_what_would_be_stopped(self, make_place: MakePlace, port: int) -> None:
        """
        An older server of the same user is listed with its fate, and goes on.
        """
        place = make_place(hostile=Hostile(stale_port=port))
        until(lambda: "ready to roll" in _stale_log(place))
        before = place.home.living()

        plan = rehearse(place.order(place.server(port)), place.tools())

        assert 1 == len(plan.in_the_way)
        assert f"listens on port {port}" in plan.in_the_way[0]
        assert plan.in_the_way[0].endswith("ended unless it is working on requests")
        assert before == place.home.living()

    def test_says_what_already_serves(self, place: Place, port: int) -> None:
        """
        The same configuration that serves is named.
        """
        server = place.server(port)
        ascent = place.up(server)

        plan = rehearse(place.order(server), place.tools())

        assert ascent.outcomes[0].run == plan.already_running

    def test_says_what_is_missing(self, place: Place, port: int) -> None:
        """
        A problem that would end `up` is told beside the script.
        """
        plan = rehearse(
            place.order(place.server(port, {**FITTING, "model_path": "/nowhere/model"})), place.tools()
        )

        assert plan.problem is not None
        assert "the model is not on `local`: no folder /nowhere/model" == plan.problem.message
        assert 4 == plan.exit_status

    def test_says_what_is_never_ended(self, make_place: MakePlace, port: int) -> None:
        """
        A stranger on the port ends `up` with 4, and is told so before.
        """
        place = make_place(hostile=Hostile(listener="http", listener_port=port))

        plan = rehearse(place.order(place.server(port)), place.tools())

        assert plan.problem is not None
        assert plan.problem.message.startswith(
            "something on `local` is in the way, and mtpdeploy never ends it"
        )
        assert 4 == plan.exit_status

    def test_a_missing_thing_goes_before_an_unknown_flag(self, place: Place, port: int) -> None:
        """
        As in `up`, which asks the box first.
        """
        server = place.server(port, {**FITTING, "model_path": "/nowhere/model", "max_runing_requests": 3})

        with pytest.raises(BoxUnfit, match="/nowhere/model"):
            rehearse(place.order(server), place.tools())

    def test_an_unknown_flag_is_refused(self, place: Place, port: int) -> None:
        """
        A flag that the version on the box does not know is an error before any launch.
        """
        server = place.server(port, {**FITTING, "max_runing_requests": 3})

        with pytest.raises(ConfigError, match="max_runing_requests"):
            rehearse(place.order(server), place.tools())

    @pytest.mark.parametrize("version", ["0.5.5", "0.4.10.post2"])
    def test_a_release_of_long_ago_is_refused(self, version: str, make_place: MakePlace, port: int) -> None:
        """
        As in a plan: nothing is known of its flags and its memory.
        """
        place = make_place(sglang_version=version)

        with pytest.raises(ConfigError, match=f"SGLang {version} is older than all that are known"):
            rehearse(place.order(place.server(port, FITTING)), place.tools())


class TestScriptFor:
    def test_another_version_another_spelling(self, place: Place) -> None:
        """
        Without a box the script can be had for any version.
        """
        server = ServerSpec(name="s", flags={"model_path": "m", "mamba_radix_cache_strategy": "extra_buffer"})
        order = Order(server, place.host, LADDERS["default"], Options())

        def script(version: str) -> str:
            return script_for(order, SGLANG, now=0.0, version=version, python="python3", templates=None)

        assert "--mamba-scheduler-strategy" in script("0.5.9")
        assert "--mamba-radix-cache-strategy" in script("0.5.23")


def _command(script: str) -> list[str]:
    return [line for line in script.splitlines() if line.strip().startswith("--")]


def _stale_log(place: Place) -> str:
    path = place.home.path / "stale.log"
    return path.read_text(errors="replace") if path.exists() else ""
