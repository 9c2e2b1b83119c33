import pytest

from mtpdeploy.engines.sglang import server_args


class TestConfigured:
    """
    The server that a log's arguments tell of.
    """

    def test_older_names_and_what_is_not_given(self) -> None:
        """
        Flags by their newest names, with the values of their kind; nothing of what is off.
        """
        told = {
            "cuda_graph_max_bs": "256",
            "mamba_scheduler_strategy": "extra_buffer",
            "mem_fraction_static": "0.85",
            "disable_radix_cache": "False",
            "enable_hierarchical_cache": "True",
            "speculative_algorithm": "None",
        }

        server = server_args.configured(told)

        assert server is not None
        assert server.mtp is None
        assert {
            "model_path": "",
            "cuda_graph_max_bs_decode": 256,
            "mamba_radix_cache_strategy": "extra_buffer",
            "mem_fraction_static": 0.85,
            "enable_hierarchical_cache": True,
        } == server.flags

    def test_nothing_told(self) -> None:
        """
        A log without arguments tells of no server.
        """
        assert server_args.configured({}) is None


class TestReleasesOf:
    """
    Which releases print them.
    """

    @pytest.mark.parametrize(
        ("names", "first", "last"),
        [
            (("cuda_graph_max_bs",), "0.5.6", "0.5.13.post1"),
            (("mamba_scheduler_strategy", "tp_size"), "0.5.7", "0.5.13.post1"),
            (("cuda_graph_max_bs_decode", "mamba_radix_cache_strategy"), "0.5.14", "0.5.23"),
            (("tp_size", "mem_fraction_static"), "0.5.6", "0.5.23"),
            ((), "0.5.6", "0.5.23"),
        ],
    )
    def test_by_names_that_changed(self, names: tuple[str, ...], first: str, last: str) -> None:
        """
        0.5.14 renamed some fields.
        """
        told = server_args.releases_of(dict.fromkeys(names, "1"))

        assert (first, last) == (told[0], told[-1])
