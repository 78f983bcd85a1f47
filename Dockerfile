# CPU: docker build -t tetris-sim . && docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" tetris-sim run case.yaml
# Written without a Docker daemon at hand: neither was the image built nor were these commands run.
FROM python:3.12-slim AS build
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheels

FROM python:3.12-slim
# MPI comes as a wheel; kernels are compiled by Numba, so no compiler is needed.
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir "$(ls /wheels/*.whl)[mpi,notebook,report]"
# Compiled kernels stay with the mounted folder, whoever runs the container.
ENV TETRIS_SIM_CACHE_DIR=/data/.tetris_sim MPLCONFIGDIR=/tmp/matplotlib
WORKDIR /data
ENTRYPOINT ["tetris-sim"]
CMD ["--help"]
