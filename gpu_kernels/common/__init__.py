"""What do all kernels of a GPU share? The compiler (`build.py`), the device with its streams
(`device.py`), where points lie in its memory (`layout.py`), the terms of a stencil as a kernel is
told them (`terms.py`), and the headers that several rooms include.

Begin with `layout.py`, and `common.cuh`, which is the same for the kernels.
"""
