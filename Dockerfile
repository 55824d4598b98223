# The image of the server. docs/src/guides/install.md shows how to build and run it.

# The version of rust-toolchain.toml, on the Debian release of the second stage; a test compares both.
FROM rust:1.95.0-trixie AS build
WORKDIR /src
COPY . .
# Features of the binary, such as `otlp`.
ARG FEATURES=""
# The commit that `proscenium --version` names. The build context has no repository.
ARG COMMIT=""
# The cache mounts keep crates and compiled dependencies from one build to the next.
# Without line tables, the binary has a quarter of its size. Backtraces keep the names of functions.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    PROSCENIUM_BUILD_COMMIT="$COMMIT" cargo build --profile dist --locked --features "$FEATURES" \
 && strip --strip-debug -o /proscenium target/dist/proscenium \
 && mkdir /data

FROM debian:13.6-slim
# Authorities for `--otlp-endpoint` and for `proscenium health`, if they use https.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /proscenium /usr/local/bin/proscenium
# A new volume gets the owner of this directory.
COPY --from=build --chown=10001:10001 /data /data
USER 10001:10001
ENV PROSCENIUM_LISTEN=0.0.0.0:8787 \
    PROSCENIUM_DATA_DIR=/data
VOLUME /data
EXPOSE 8787
HEALTHCHECK --interval=30s --timeout=6s --start-period=30s --retries=3 CMD ["proscenium", "health"]
ENTRYPOINT ["proscenium"]
# The server refuses to start without a key, because anyone who reaches the port could read and write.
CMD ["serve"]
