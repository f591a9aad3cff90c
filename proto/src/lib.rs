//! The wire: messages and services between agents, the hub and administrators.
//!
//! Everything here is generated from the files under `proto/proto`; read those for the meaning of each
//! message and field. No other crate knows how the bytes look, and these types go no further than
//! `nabu_agent::session`, `nabu_hub::gateway` and `nabu_hub::admin`.

mod methods;

pub use methods::methods_with_field;

/// What agents speak with the hub (package `nabu.agent.v1`).
#[expect(
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::large_enum_variant,
    reason = "generated code; the .proto files carry the documentation"
)]
pub mod agent_v1 {
    tonic::include_proto!("nabu.agent.v1");
}

/// What administrators ask the hub (package `nabu.admin.v1`).
#[expect(
    clippy::pedantic,
    clippy::allow_attributes,
    reason = "generated code; the .proto files carry the documentation"
)]
pub mod admin_v1 {
    tonic::include_proto!("nabu.admin.v1");
}

/// The encoded `FileDescriptorSet` of both packages, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/nabu_descriptor.bin"));

/// The protocol version that this build speaks; it also serves the one before it.
pub const PROTOCOL_VERSION: u32 = 1;

/// The largest encoded frame, in bytes, in either direction (1 MiB). The sender checks it.
pub const MAX_FRAME_BYTES: usize = 1024 * 1024;
