# Murho in a container: docker build -t murho .   (docker-compose.yml does it, and trains a demo checkpoint)
#
#   TORCH_VARIANT    cpu (the default) or cuda: the build of PyTorch
#   TORCH_INDEX_URL  an index to take torch from, such as a mirror
#   EXTRAS           further extras, such as s3: checkpoints from object storage

# ---- what Murho needs to run, in an environment of its own
FROM python:3.11-slim AS dependencies
ARG TORCH_VARIANT=cpu
ARG TORCH_INDEX_URL=
ARG EXTRAS=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
RUN python -m venv /opt/venv
COPY pyproject.toml constraints.txt ./
COPY client/pyproject.toml client/
COPY scripts/install.py scripts/
RUN /opt/venv/bin/python scripts/install.py --runtime-dependencies

# ---- Murho itself, beside that environment, so that a change of the code is a small layer
FROM dependencies AS application
COPY README.md LICENSE setup.py ./
COPY src src
COPY model model
COPY service service
COPY client client
RUN /opt/venv/bin/python -m pip install --no-deps --no-build-isolation --target /app . ./client
COPY examples /app/examples
COPY scripts/container_health.py /app/

# ---- that environment without build tools, headers, tests, and Arrow's network parts that nothing here uses
FROM dependencies AS trimmed
RUN cd /opt/venv/lib/python3.11/site-packages \
    && rm -rf pip pip-*.dist-info setuptools setuptools-*.dist-info pkg_resources _distutils_hack distutils-* /opt/venv/bin/pip* \
    && rm -rf torch/include torch/share torch/test torch/bin/protoc* torch/bin/*[tT]est* \
    && rm -rf pyarrow/include pyarrow/src pyarrow/*flight*.so* pyarrow/*s3*.so* \
    && find llvmlite mpmath networkx numba numpy pyarrow sympy -type d -name tests -prune -exec rm -rf {} + \
    && find . -type f \( -name '*.a' -o -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' \) -delete

# ---- the image
FROM python:3.11-slim
LABEL org.opencontainers.image.title="Murho" \
      org.opencontainers.image.description="A REST prediction service that answers with error bars" \
      org.opencontainers.image.licenses="MIT"
RUN groupadd --gid 10001 murho \
    && useradd --uid 10001 --gid murho --no-create-home --home-dir /tmp --shell /usr/sbin/nologin murho \
    && install -d -o murho -g murho /checkpoints /store \
    && python -m pip uninstall --yes --quiet --root-user-action ignore pip setuptools wheel
COPY --from=trimmed /opt/venv /opt/venv
COPY --from=application /app /app
ENV PATH=/app/bin:/opt/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# The settings that differ in a container; `serve` reads every setting from the environment.
ENV MURHO_HOST=0.0.0.0 \
    MURHO_PORT=8000 \
    MURHO_CHECKPOINTS=/checkpoints
WORKDIR /app
# Compiled once, here; on another kind of processor the service does it at its start, in some twenty seconds.
RUN python -c "from murho.model.predictive.compiled_engine import load; load()"
USER 10001:10001
VOLUME /checkpoints
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-I", "/app/container_health.py", "/healthz"]
ENTRYPOINT ["murho"]
CMD ["serve"]
