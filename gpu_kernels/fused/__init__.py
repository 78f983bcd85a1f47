"""Methods and kernels that make several steps at once, and formats shorter than FP32."""
