//! Clusters.

use nabu_proto::admin_v1::Cluster;

use super::json::cluster_json;
use super::text::time;
use crate::nabuctl::output::Listing;
use crate::nabuctl::table::{Cell, Tone};

pub(in crate::nabuctl) fn clusters(clusters: &[Cluster]) -> Listing {
    let row = |cluster: &Cluster| -> Vec<Cell> {
        let connected = if cluster.connected {
            Cell::toned("yes", Tone::Good)
        } else {
            Cell::toned("no", Tone::Bad)
        };
        vec![
            cluster.cluster_id.as_str().into(),
            cluster.name.as_str().into(),
            cluster.state.as_str().into(),
            connected,
            time(cluster.last_seen_at).into(),
            cluster.unfinished.to_string().into(),
            cluster.agent_version.as_str().into(),
            cluster.kubernetes_version.as_str().into(),
            cluster.responder_names.join(",").into(),
            cluster.kube_system_uid.as_str().into(),
            cluster.session_epoch.to_string().into(),
            time(cluster.certificate_not_after).into(),
            cluster.refused_kube_system_uid.as_str().into(),
        ]
    };
    Listing {
        headings: vec![
            "CLUSTER",
            "NAME",
            "STATE",
            "CONNECTED",
            "LAST SEEN",
            "UNFINISHED",
            "AGENT",
            "KUBERNETES",
            "RESPONDERS",
            "KUBE-SYSTEM UID",
            "EPOCH",
            "CERTIFICATE UNTIL",
            "REFUSED UID",
        ],
        narrow: 8,
        rows: clusters.iter().map(row).collect(),
        names: clusters
            .iter()
            .map(|cluster| cluster.cluster_id.clone())
            .collect(),
        values: clusters.iter().map(cluster_json).collect(),
        empty: "the hub knows no cluster yet",
    }
}
