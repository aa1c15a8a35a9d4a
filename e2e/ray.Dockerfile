# What scenarios of engine `ray` run in: the runtime image and Ray with its dashboard. Build from the root of the
# checkout; e2e/images.py does.
#
# RUNTIME must have been built from BASE.
ARG BASE=python:3.11-slim
ARG RUNTIME=fray-runtime:0.1.0

# Built beside the runtime image, not on it, so that they stay when Fray changes.
FROM ${BASE} AS packages
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY tools/locked_packages.py requirements.lock ./
# Bytecode of what Ray's processes load, and not of its libraries for training and data.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=certificates \
    python3 -m venv --without-pip /opt/fray \
    && python3 -m venv tools \
    && python3 locked_packages.py 'fray[ray]' > ray.txt \
    && tools/bin/pip --python /opt/fray/bin/python install --no-compile --no-deps --require-hashes \
       --only-binary=:all: --requirement ray.txt \
    && python3 -m compileall -q --invalidation-mode unchecked-hash \
       -x '/ray/(data|llm|rllib|serve|train|tune)/' /opt/fray/lib

FROM ${RUNTIME}
COPY --from=packages --chown=65532:65532 /opt/fray /opt/fray
RUN pip check
