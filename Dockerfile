# One image for every process of ours; docker-compose.yml gives each service its command.
FROM python:3.11-slim AS build
# Which parts to install, as pyproject.toml names them. "all" includes the embedded store (half a gigabyte).
ARG EXTRAS=all
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /venv
WORKDIR /app
# Only what decides the dependencies, so that a change of code does not install them again. An editable installation
# copies nothing of ours; the next stage puts the code where PYTHONPATH looks.
COPY pyproject.toml README.md ./
COPY constraints constraints
# "providers" is LiteLLM's environment, which has none of the others' parts.
RUN if [ "$EXTRAS" = providers ]; then /venv/bin/pip install --no-deps -r constraints/providers.txt; \
    else /venv/bin/pip install -c constraints/base.txt -e ".[$EXTRAS]"; fi

FROM python:3.11-slim
# Volumes mounted on these directories start with their owner and mode.
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin tollkeeper \
    && install --directory --owner tollkeeper --group tollkeeper --mode 0700 /data /data/audit /data/secrets /run/tollkeeper /run/keys
COPY --from=build /venv /venv
COPY . /app
# PYTHONPATH puts our packages before any installed one of the same name.
ENV PATH=/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TOLLKEEPER_DATA=/data \
    TOLLKEEPER_HOST=0.0.0.0
WORKDIR /app
USER tollkeeper
EXPOSE 8080 8081 8082 4317 4318 8501
CMD ["python", "-m", "gateway"]
