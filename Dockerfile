# syntax=docker/dockerfile:1
#
# One static binary on an empty image: no shell, no libc, no user but the one it runs as.
#
# Both base images are pinned by tag. For a build that is the same bit for bit, pin them by digest as well
# (`rust:1.95.0-slim-bookworm@sha256:...`); the toolchain, the lock file and the flags below are fixed already.

FROM rust:1.95.0-slim-bookworm AS build

# protobuf-compiler: etcd's API is generated at build time. musl-tools: the C compiler for the TLS library.
RUN apt-get update \
 && apt-get install --no-install-recommends --yes musl-tools protobuf-compiler libprotobuf-dev make \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /src
# Paths and times of the build must not reach the binary.
ENV CARGO_INCREMENTAL=0 \
    SOURCE_DATE_EPOCH=0 \
    RUSTFLAGS="--remap-path-prefix=/src=. --remap-path-prefix=/usr/local/cargo=cargo -C target-feature=+crt-static"

COPY . .

RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    set -eu; \
    target="$(uname -m)-unknown-linux-musl"; \
    rustup target add "$target"; \
    export "CC_$(echo "$target" | tr - _)=musl-gcc"; \
    cargo build --locked --release --package quorumgate --bin quorumgate --target "$target"; \
    cp "target/$target/release/quorumgate" /quorumgate

FROM scratch
COPY --from=build --chmod=0555 /quorumgate /quorumgate
USER 65532:65532
# 8443: webhooks over TLS. 8080: /livez, /readyz and /metrics.
EXPOSE 8443 8080
ENTRYPOINT ["/quorumgate"]
CMD ["run"]
