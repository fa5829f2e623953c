# The lmerge server. Build: docker build -t lmerge . ; run: docker run -p 7171:7171 -p 7172:7172 lmerge
# Both stages are of one Debian release: what is compiled in the first must find its libraries in the second.
FROM python:3.12-bookworm AS build
COPY --from=rust:1.88-slim-bookworm /usr/local/rustup /usr/local/rustup
COPY --from=rust:1.88-slim-bookworm /usr/local/cargo /usr/local/cargo
ENV RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo PATH=/usr/local/cargo/bin:$PATH
# An image that silently runs on Python would be a slow one: no native core, no image.
ENV LMERGE_REQUIRE_NATIVE=1
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY native native
COPY lmerge lmerge
COPY lmerge_replicas lmerge_replicas
COPY lmerge_controller lmerge_controller
RUN python -m venv /opt/lmerge && /opt/lmerge/bin/pip install --no-cache-dir .

FROM python:3.12-slim-bookworm
COPY --from=build /opt/lmerge /opt/lmerge
RUN useradd --system --uid 10001 --no-create-home lmerge
USER 10001
ENV PATH=/opt/lmerge/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 7171 7172
STOPSIGNAL SIGTERM
# That it accepts connections: asking it more takes credentials once it is given certificates and tokens.
HEALTHCHECK --interval=10s --timeout=3s CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 7171), 2)"]
# Inside a container the port is reached from outside by definition. The default leaves it to the network around it who
# may; whoever gives options of his own (--tls-cert and --tls-key, --tokens) replaces it.
ENTRYPOINT ["lmerge", "serve", "--host", "0.0.0.0", "--port", "7171", "--http-port", "7172"]
CMD ["--insecure"]
