# The image of nabu-hub with a container daemon: docker build -f images/hub.Dockerfile -t nabu-hub .
# Without one, `make image` puts the same together as an OCI archive; see docs/src/development.md.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bins -p nabu-hub \
  && strip target/release/nabu-hub target/release/nabuctl

# The C library, the authorities of the web, and a user; no shell.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/nabu-hub /src/target/release/nabuctl /
USER 65532:65532
ENTRYPOINT ["/nabu-hub"]
