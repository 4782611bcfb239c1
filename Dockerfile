# Images of Tollkeeper, one target for each kind of process: docker build --target gateway -t tollkeeper-gateway:0.1.0 .
# gateway, control, collector, analytics, engine and providers; docker-compose.yml builds and runs them all. Each holds
# the wheel with its compiled modules, the pinned versions of what it needs, and a bill of materials in CycloneDX.
# To pin the base to its content as well: --build-arg BASE=debian:12.12-slim@sha256:DIGEST
ARG BASE=debian:12.12-slim
ARG VLLM=vllm/vllm-openai:v0.25.1

FROM ${BASE} AS base
# The distribution's Python: built with profile-guided optimisation, and updated with the distribution.
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin tollkeeper \
    && install --directory --owner tollkeeper --group tollkeeper --mode 0700 /data /data/audit /data/secrets /backups /run/tollkeeper /run/keys
# Volumes mounted on these directories start with their owner and mode.
ENV PATH=/venv/bin:$PATH \
    PYTHONSAFEPATH=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TOLLKEEPER_DATA=/data \
    TOLLKEEPER_HOST=0.0.0.0
WORKDIR /data

FROM base AS build
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-dev python3-venv gcc libc6-dev binutils \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
COPY pyproject.toml README.md ./
COPY constraints constraints
# What builds the wheel and what the gateway needs: mypyc compiles better where it can read the types.
RUN python3 -m venv /tools \
    && /tools/bin/pip install -q -c constraints/base.txt hatchling mypy cyclonedx-bom types-PyYAML $(python3 -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'])")
COPY . .
RUN /tools/bin/python -m hatchling build -t wheel -d /dist \
    && ls /dist/tollkeeper-*-manylinux_*.whl \
    && TOLLKEEPER_WHEEL_PURE=1 /tools/bin/python -m hatchling build -t wheel -d /pure

# Installs the parts that its arguments name, as pyproject.toml lists them, into /venv.
FROM build AS install-gateway
RUN deploy/images/install.sh gateway
FROM build AS install-control
RUN deploy/images/install.sh gateway,analytics,cli
FROM build AS install-collector
RUN deploy/images/install.sh collector
FROM build AS install-analytics
RUN deploy/images/install.sh analytics,dashboard,cli
FROM build AS install-engine
RUN deploy/images/install.sh gateway,engine
FROM build AS install-providers
RUN deploy/images/install.sh providers

FROM base AS gateway
COPY --from=install-gateway /venv /venv
USER tollkeeper
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=12 CMD ["python", "-m", "gateway.process.probe"]
CMD ["python", "-m", "gateway"]

# Names on invoices in any script: Latin, Greek, Cyrillic, Arabic and Hebrew; Chinese, Japanese and Korean.
FROM base AS fonts
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends fonts-dejavu-core fonts-wqy-zenhei \
    && rm -rf /var/lib/apt/lists/*

# The control plane, the migrations, and the command line for administration and backups.
FROM fonts AS control
COPY --from=install-control /venv /venv
USER tollkeeper
EXPOSE 8081
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=12 CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8081/ready', timeout=2)"]
CMD ["python", "-m", "gateway.control"]

FROM base AS collector
COPY --from=install-collector /venv /venv
USER tollkeeper
EXPOSE 4317 4318 13133
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=12 CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:13133/health', timeout=2)"]
CMD ["python", "-m", "collector"]

# Analytics, and the dashboard by another command.
FROM fonts AS analytics
COPY --from=install-analytics /venv /venv
USER tollkeeper
EXPOSE 8082 8501
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=12 CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8082/ready', timeout=2)"]
CMD ["python", "-m", "analytics"]

FROM base AS engine
COPY --from=install-engine /venv /venv
USER tollkeeper
ENV TOLLKEEPER_ENGINE_SOCKET=/run/tollkeeper/engine-default.sock
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s --retries=12 CMD ["python", "-c", "import socket; socket.socket(socket.AF_UNIX).connect('/run/tollkeeper/engine-default.sock')"]
CMD ["python", "-m", "backends.engine"]

# Hosted providers through LiteLLM, which needs other versions than the rest.
FROM base AS providers
COPY --from=install-providers /venv /venv
USER tollkeeper
ENV TOLLKEEPER_PROVIDERS_SOCKET=/run/tollkeeper/providers.sock
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=12 CMD ["python", "-c", "import socket; socket.socket(socket.AF_UNIX).connect('/run/tollkeeper/providers.sock')"]
CMD ["python", "-m", "backends.providers"]

# vLLM's own image with our host and meter in it. Its Python is another one, so the wheel is the one without machine code.
FROM ${VLLM} AS vllm
COPY --from=build /pure /tmp/pure
COPY constraints/vllm.txt /tmp/vllm.txt
RUN python3 -m pip install -q --no-deps /tmp/pure/tollkeeper-*.whl \
    && python3 -m pip install -q -c /tmp/vllm.txt msgspec pydantic-settings uvloop tokenizers jinja2 psutil prometheus-client nvidia-ml-py \
    && useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin tollkeeper \
    && install --directory --owner tollkeeper --group tollkeeper --mode 0700 /data /run/tollkeeper /models
ENV PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 TOLLKEEPER_DATA=/data TOLLKEEPER_ENGINE_KIND=vllm
WORKDIR /data
USER tollkeeper
ENTRYPOINT []
CMD ["python3", "-m", "backends.engine"]
