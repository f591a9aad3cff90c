# The image of nabu-hub with a container daemon: docker build -f images/hub.Dockerfile -t nabu-hub .
# Without one, `make image` puts the same together as an OCI archive; see docs/src/development.md.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
ENV CARGO_TARGET_DIR=/target
# docker build --build-arg COMMIT=$(git rev-parse HEAD) …
ARG COMMIT=unknown
RUN NABU_COMMIT=$COMMIT scripts/release.sh cargo build --release --locked --bins -p nabu-hub \
  && scripts/image-root.sh hub /target/release /image

# The programs, the libraries that they need, and a user; no shell.
FROM scratch
COPY --from=build /image/ /
USER 65532:65532
ENTRYPOINT ["/nabu-hub"]
