# The image of lmerge: servers, controller, drills, every command. Without Spark: deploy/spark/Dockerfile has that.
#   docker build -t lmerge . ; docker run -p 7171:7171 -p 7172:7172 lmerge
# It is the same byte for byte for the same bases and sources:
#   docker buildx build --build-arg SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) --output type=oci,dest=lmerge.tar,rewrite-timestamp=true .
# Both stages are of one Debian release: what is compiled in the first must find its libraries in the second.
FROM python:3.12-bookworm AS build
COPY --from=rust:1.88-slim-bookworm /usr/local/rustup /usr/local/rustup
COPY --from=rust:1.88-slim-bookworm /usr/local/cargo /usr/local/cargo
# An image that silently runs on Python would be a slow one: no native core, no image.
ENV RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo PATH=/usr/local/cargo/bin:$PATH LMERGE_REQUIRE_NATIVE=1 \
    PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# Locked versions with hashes: `make image-lock` writes both files.
COPY deploy/image deploy/image
RUN python -m venv /opt/build && /opt/build/bin/pip install --no-compile --require-hashes -r deploy/image/build-requirements.txt \
    && python -m venv --without-pip /opt/lmerge \
    && /opt/build/bin/pip --python /opt/lmerge/bin/python install --no-compile --require-hashes --only-binary :all: \
       -r deploy/image/requirements.txt
# The slow step comes before the sources that change daily: it compiles the native core alone.
COPY native native
RUN cd native && cargo fetch --locked --quiet
COPY pyproject.toml setup.py README.md LICENSE ./
COPY lmerge lmerge
COPY lmerge_replicas lmerge_replicas
COPY lmerge_controller lmerge_controller
# File times and the time in each bytecode file would differ in every build. Bytecode with hashes that nobody checks
# starts fastest, and a read-only root could not write it later.
ARG SOURCE_DATE_EPOCH=0
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} PYTHONHASHSEED=0
RUN export PATH=/opt/build/bin:$PATH RUSTFLAGS="--remap-path-prefix=/src=. --remap-path-prefix=/usr/local/cargo=cargo -Cstrip=symbols" \
    && pip wheel --no-deps --no-build-isolation --quiet --wheel-dir /tmp/wheel . \
    && pip --python /opt/lmerge/bin/python install --no-deps --no-compile /tmp/wheel/*.whl \
    && python deploy/image/licences.py /opt/lmerge/lib/python3.12/site-packages native/Cargo.lock /usr/local/cargo/registry/src \
       /opt/lmerge/share/licences \
    && find /opt/lmerge -name tests -path '*/site-packages/*' -prune -exec rm -rf {} + \
    && find /opt/lmerge -name direct_url.json -delete \
    && /opt/lmerge/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/lmerge/lib/python3.12/site-packages \
    && find /opt/lmerge -exec touch --no-dereference --date=@$SOURCE_DATE_EPOCH {} +

FROM python:3.12-slim-bookworm
ARG SOURCE_DATE_EPOCH=0
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="lmerge" \
      org.opencontainers.image.description="N replicas of a continuous query in, one stream out" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# A name for the user, for programs that look it up. `useradd` would write the date of the build to /etc/shadow.
RUN echo 'lmerge:x:10001:10001:lmerge:/nonexistent:/usr/sbin/nologin' >>/etc/passwd && echo 'lmerge:x:10001:' >>/etc/group \
    && touch --date=@$SOURCE_DATE_EPOCH /etc/passwd /etc/group
COPY --from=build /opt/lmerge /opt/lmerge
# By number: Kubernetes cannot see that a name is not root's.
USER 10001:10001
# Nothing is written outside of volumes, so the root may be read-only.
ENV PATH=/opt/lmerge/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
EXPOSE 7171 7172
STOPSIGNAL SIGTERM
# Of a server: that it accepts connections. Asking it more takes credentials once it has certificates and tokens.
# Kubernetes uses the probes of the chart instead.
HEALTHCHECK --interval=10s --timeout=3s \
    CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 7171), 2).close()"]
ENTRYPOINT ["lmerge"]
# Inside a container the port is reached from outside by definition, and the network around it decides who may. Whoever
# gives a command (serve --host 0.0.0.0 --tls-cert ... --tokens ...) replaces this one.
CMD ["serve", "--host", "0.0.0.0", "--port", "7171", "--http-port", "7172", "--insecure"]
