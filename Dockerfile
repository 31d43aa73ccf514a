# Castor's image in three stages: build, test (on demand), runtime.
#   docker build -t castor .                            the CPU image
#   docker build -t castor-cuda --build-arg FLAVOR=--cuda .
#   docker build --target test .                        runs every test in the image's own build
# In a release, say which commit it is, and pin the base by digest:
#   --build-arg CASTOR_GIT_COMMIT=$(git rev-parse HEAD)
#   --build-arg BASE=docker.io/library/debian@sha256:...
ARG BASE=docker.io/library/debian:bookworm-slim

# ---- build -------------------------------------------------------------------------------------
FROM ${BASE} AS build
ARG FLAVOR=--cpu
ENV CASTOR_DEPS_DIR=/opt/castor-deps
WORKDIR /src
# Layers by how often they change: tools and libraries depend on these two files only.
COPY deploy/setup.sh deploy/versions.env deploy/
RUN deploy/setup.sh ${FLAVOR} && rm -rf /var/lib/apt/lists/* /root/.cache
COPY . .
ARG CASTOR_GIT_COMMIT=unknown
ARG CUDA_ARCHITECTURES=90a-real
RUN deploy/setup.sh ${FLAVOR} \
  && cmake -G Ninja -B build -S . -DCMAKE_BUILD_TYPE=Release \
    "-DCASTOR_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES}" \
  && cmake --build build --target castor-server castor castor-load \
  && deploy/image/rootfs.sh build /rootfs

# ---- test: the same build folder, so that the tested binary is the shipped one -------------------
FROM build AS test
RUN tests/run.sh

# ---- runtime: programs, their libraries, certificates; no shell, no package manager ---------------
FROM scratch AS runtime
ARG CASTOR_GIT_COMMIT=unknown
LABEL org.opencontainers.image.title="castor" \
      org.opencontainers.image.description="Attention and encoder inference over gRPC and HTTP" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${CASTOR_GIT_COMMIT}"
COPY --from=build /rootfs /
ENV PATH=/opt/castor/bin \
    CASTOR_LISTEN=0.0.0.0:50051 \
    CASTOR_HTTP_LISTEN=0.0.0.0:8080 \
    CASTOR_METRICS_LISTEN=0.0.0.0:9464 \
    CASTOR_LOG_FORMAT=json
EXPOSE 50051 8080 9464
# Numeric, so that runAsNonRoot can be checked. The server handles SIGTERM as process 1 itself.
USER 10001:10001
ENTRYPOINT ["/opt/castor/bin/castor-server"]
