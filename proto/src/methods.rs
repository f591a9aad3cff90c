//! What the descriptors tell of methods.

use prost::Message as _;
use prost_types::FileDescriptorSet;

use crate::FILE_DESCRIPTOR_SET;

/// The methods of a package whose request has a field of this name, as `nabu.admin.v1.ClusterService/AddCluster`.
pub fn methods_with_field(package: &str, field: &str) -> Vec<String> {
    // The descriptors are part of this build, so that they can be read.
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap_or_default();
    let files = || set.file.iter().filter(|file| file.package() == package);
    let has_field = |request: &str| {
        let mut messages = files().flat_map(|file| &file.message_type);
        messages.any(|message| {
            request == format!(".{package}.{}", message.name())
                && message.field.iter().any(|one| one.name() == field)
        })
    };
    let services = files().flat_map(|file| &file.service);
    services
        .flat_map(|service| {
            let of_service = |method: &str| format!("{package}.{}/{method}", service.name());
            let methods = service.method.iter();
            methods
                .filter(|method| has_field(method.input_type()))
                .map(move |method| of_service(method.name()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_found_by_a_field_of_its_request_alone() {
        let found = methods_with_field("nabu.admin.v1", "kube_system_uid");
        assert_eq!(found, ["nabu.admin.v1.ClusterService/RebindCluster"]);
        assert!(methods_with_field("nabu.admin.v1", "previous_kube_system_uid").is_empty());
        assert!(methods_with_field("nabu.other.v1", "kube_system_uid").is_empty());
    }
}
