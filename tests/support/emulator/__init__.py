"""CUDA on the host: kernels, launches and whole steppers without a GPU. README.md says how."""
