# docker build --build-arg VERSION=0.1.0 --tag mfu-optimizer .
# docker run --rm --volume "$PWD:/work" mfu-optimizer --model gpt3 --gpus 1024
# Python 3.13.15 on Debian, for every architecture; `docker buildx imagetools inspect python:3.13-slim` has a newer digest.
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS build
# An image has no git: the version is told. `git describe` has it.
ARG VERSION=0.1.dev0
ENV SETUPTOOLS_SCM_PRETEND_VERSION=$VERSION
WORKDIR /source
COPY LICENSE README.md pyproject.toml ./
COPY presets presets
COPY optimizer optimizer
RUN python -m pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
LABEL org.opencontainers.image.title="mfu-optimizer" \
    org.opencontainers.image.description="The training parallelism plan with the highest MFU, with a proof" \
    org.opencontainers.image.licenses="Apache-2.0"
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    python -m pip install --no-cache-dir --no-index --find-links /wheels /wheels/mfu_optimizer-*.whl && \
    useradd --uid 10001 --create-home planner
USER 10001
WORKDIR /work
ENTRYPOINT ["optimize"]
CMD ["--help"]
