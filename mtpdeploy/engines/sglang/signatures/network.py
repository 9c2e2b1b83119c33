"""
Ports and the network: the HTTP port, ports that SGLang chooses, NCCL, other nodes.
"""

from mtpdeploy.core.diagnosis import Cause, Signature

EXCEPTIONS: tuple[Signature, ...] = (
    # 71, 72
    Signature(
        cause=Cause.INTERNAL_PORT_TAKEN,
        pattern=(
            r"Port is already in use\. dist_init_port|\w+ at \d+ is not available in \d+ seconds"
            r"|EADDRINUSE|server socket has failed to listen|ZMQError: Address already in use"
        ),
        example="ValueError: dist_init_port at 30233 is not available in 30 seconds.",
        source="sglang 0.5.9 server_args.py and utils/common.py; torch, ZeroMQ",
    ),
    # 78
    Signature(
        cause=Cause.NCCL_FAILED,
        pattern=r"NCCL error|nccl\w+Error\b|unhandled (?:system|cuda) error|DistBackendError",
        example=(
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled "
            "system error, "
            "NCCL version 2.29.7"
        ),
        source="torch, NCCL",
        weight=9,
    ),
    # 79, after 72, which wears the same name
    Signature(
        cause=Cause.PEER_UNREACHABLE,
        pattern=(
            r"client socket has (?:timed out|failed to connect)|DistNetworkError|DistStoreError"
            r"|Gloo connect|gloo/transport/"
        ),
        example=(
            "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms "
            "while trying to "
            "connect to (10.0.0.1, 20000)."
        ),
        source="torch",
    ),
    # heavier than 57: the proxy's page says 403 Forbidden as the hub does
    Signature(
        cause=Cause.PROXIED,
        pattern=r"res=<Response \[(?:403|407|502|504)\]>|ProxyError\(|exceptions\.ProxyError",
        example="AssertionError: res=<Response [403]>, res.text='<html><title>403 Forbidden</title></html>'",
        source="sglang 0.5.9 entrypoints/http_server.py; sgl-project/sglang issue 11949; requests",
        weight=11,
    ),
    Signature(
        cause=Cause.PEER_ACCESS,
        pattern=r"peer access is not supported|CUDART error:|custom_all_reduce\S* .{0,80}failed",
        example="RuntimeError: CUDART error: peer access is not supported between these two devices",
        source="CUDA, from sglang 0.5.12 distributed/device_communicators/cuda_wrapper.py",
    ),
)

RECORDS: tuple[Signature, ...] = (
    Signature(
        cause=Cause.FILE_ACCESS,
        pattern=r"error while attempting to bind on address .{1,200}permission denied",
        example=(
            "ERROR:    [Errno 13] error while attempting to bind on address ('0.0.0.0', 80): "
            "permission denied"
        ),
        source="uvicorn",
    ),
    Signature(
        cause=Cause.PEER_ACCESS,
        pattern=r"Cuda error .{0,200}custom_all_reduce\.cuh:\d+",
        example="Failed: Cuda error /sgl-kernel/csrc/custom_all_reduce.cuh:455 'invalid argument'",
        source="sgl-kernel; sgl-project/sglang issue 552, vllm-project/vllm issue 9046",
    ),
    # 78: torch's own watchdog ends the process; another rank's failure is what mostly made it wait
    Signature(
        cause=Cause.NCCL_FAILED,
        pattern=r"Watchdog caught collective operation timeout",
        example=(
            "[rank3]:[E1016 03:31:38.919 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective "
            "operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)"
        ),
        source="torch; sgl-project/sglang issues 1693 and 3783",
        weight=8,
    ),
    # 70
    Signature(
        cause=Cause.PORT_TAKEN,
        pattern=r"error while attempting to bind on address .{1,200}(?:address already in use|in use)",
        example=(
            "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 33001): "
            "address already in use"
        ),
        source="a real start on a port that another SGLang held, 0.5.23; uvicorn",
    ),
)
