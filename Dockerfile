# One static program on an empty image: no shell, no libc, no user but the one it runs as.
#
# The program is built before, by scripts/image-binaries: `make image` does both. So an image for several architectures
# needs no emulation, and whoever doubts it builds the same program byte for byte (docs/install.md).

FROM scratch
ARG TARGETARCH
COPY --chmod=0555 target/image/${TARGETARCH}/quorumgate /quorumgate
USER 65532:65532
# 8443: webhooks over TLS. 8080: /livez, /readyz and /metrics.
EXPOSE 8443 8080
ENTRYPOINT ["/quorumgate"]
CMD ["run"]
