"""Mailboxes: planes that go from one process to another on the same computer without leaving the
memory of their GPUs.

The sender copies its planes into memory that it has opened to other processes (CUDA's inter-process
handles), and says so in a message of one byte; the receiver copies them from there
(`PostedPlanes`), over the link between the two GPUs, and says that it has.
"""

from __future__ import annotations

from tetris_sim.gpu_kernels.steppers.planes import GpuPlanes

HANDLE_BYTES = 64  # of a cudaIpcMemHandle_t


class Outbox:
    """Memory of a GPU in which another process finds planes, always as many."""

    def __init__(self, planes: GpuPlanes) -> None:
        """Take as much memory as these planes need.

        Raises:
            CUDARuntimeError: the memory cannot be opened to others here.
        """
        self._memory, self.handle = planes.device.share(planes.nbytes)

    def put(self, planes: GpuPlanes) -> None:
        """Returns when they are there; those from before must have been taken. The GPU goes on with
        what it was told after they were taken from their slab.
        """
        here = self._memory.view(planes.memory.dtype).reshape(planes.shape)
        there = planes.device.copy_beside(here, planes.unpacked(planes.memory), planes.ready)
        there.synchronize()
