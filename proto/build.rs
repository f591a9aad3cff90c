//! Compiles the `.proto` files with protox, so that no `protoc` is needed on any machine.

use std::path::PathBuf;

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protos = [
        "proto/nabu/agent/v1/agent.proto",
        "proto/nabu/agent/v1/enrolment.proto",
        "proto/nabu/admin/v1/admin.proto",
        "proto/nabu/admin/v1/responses.proto",
        "proto/nabu/admin/v1/operations.proto",
        "proto/nabu/admin/v1/clusters.proto",
        "proto/nabu/admin/v1/administrators.proto",
    ];
    for proto in protos {
        println!("cargo:rerun-if-changed={proto}");
    }
    let descriptors = protox::compile(protos, ["proto"])?;
    // Kept for gRPC reflection: grpcurl asks the running server what it speaks.
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("nabu_descriptor.bin");
    std::fs::write(out, descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".nabu.agent.v1")
        .compile_fds(descriptors)?;
    Ok(())
}
