"""NCCL: planes that go from GPU to GPU between processes, on one computer or several, and no host
waits for them.

Sends and receives of an axis are one group, which the GPU begins when the planes have left their
slabs. What takes them in waits on the GPU as well, so that Python only says what is to be done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.steppers.planes import GpuPlanes

_BYTE = 0  # ncclInt8


def import_nccl() -> Any:
    """CuPy's way to the library.

    Raises:
        UnsupportedError: it is not there.
    """
    msg = "CuPy finds no NCCL (pip install nvidia-nccl-cu13 or -cu12)"
    try:
        from cupy.cuda import nccl
    except ImportError as error:
        raise UnsupportedError(msg) from error
    if not getattr(nccl, "available", True):  # so say those of its builds that have none
        raise UnsupportedError(msg)
    return nccl


class NcclGroup:
    """The GPUs of all processes, one each, as one of them sees them.

    Args:
        device: the GPU of this process.
        size: number of processes; all of them open the group at the same time.
        identity: of the group, made by one of them (`nccl.get_unique_id()`).
        rank: number of this process.

    Raises:
        NcclError: the GPUs cannot reach each other.
    """

    def __init__(self, device: GpuDevice, size: int, identity: Any, rank: int) -> None:
        self._nccl = import_nccl()
        with device.use():
            self._group = self._nccl.NcclCommunicator(size, identity, rank)

    def swap(
        self,
        device: GpuDevice,
        leaving: Sequence[tuple[GpuPlanes, Any, int]],
        arriving: Sequence[tuple[Any, int]],
    ) -> list[GpuPlanes]:
        """Start to send planes and to receive others, beside what the stream was told and will be.

        Between two processes they arrive in the order in which they were sent.

        Args:
            device: the GPU of this process.
            leaving: planes of it, a contiguous array of it that they are sent from, the receiver.
            arriving: contiguous arrays of it that are filled, and the sender of each.

        Returns:
            What arrives, in that order; also a neighbour of another stream may take it.
        """

        def talk(stream: int) -> None:
            for planes, copy, _ in leaving:
                copy[...] = planes.unpacked(planes.memory)
            self._nccl.groupStart()
            try:
                for _, copy, to in leaving:
                    self._group.send(device.address(copy), copy.nbytes, _BYTE, to, stream)
                for array, source in arriving:
                    self._group.recv(device.address(array), array.nbytes, _BYTE, source, stream)
            finally:
                self._nccl.groupEnd()

        there = device.talk(talk, [planes.ready for planes, _, _ in leaving])
        return [GpuPlanes(device, array, ready=there) for array, _ in arriving]
