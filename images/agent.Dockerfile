# The image of nabu-agent with a container daemon: docker build -f images/agent.Dockerfile -t nabu-agent .
# Without one, `make image` puts the same together as an OCI archive; see docs/src/development.md.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bins -p nabu-agent \
  && strip target/release/nabu-agent

# The C library, the authorities of the web, and a user; no shell.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/nabu-agent /nabu-agent
USER 65532:65532
ENTRYPOINT ["/nabu-agent"]
