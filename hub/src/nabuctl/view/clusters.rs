//! Clusters, and one of them with everything that is known of it.

use nabu_proto::admin_v1::Cluster;

use super::json::cluster_json;
use super::text::{skew, time};
use crate::nabuctl::output::{Listing, Out, Output, print_value};
use crate::nabuctl::table::{Cell, Tone, visible};

fn backlog(cluster: &Cluster) -> String {
    let backlog = cluster.backlog.map(|backlog| backlog.to_string());
    backlog.unwrap_or_default()
}

fn labels(cluster: &Cluster) -> String {
    let mut labels: Vec<_> = cluster.labels.iter().collect();
    labels.sort();
    let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
    labels.collect::<Vec<_>>().join(",")
}

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
            time(cluster.oldest_unfinished_at).into(),
            backlog(cluster).into(),
            skew(cluster.clock_skew).into(),
            time(cluster.certificate_not_after).into(),
            cluster.last_error.as_str().into(),
            time(cluster.last_error_at).into(),
            labels(cluster).into(),
            cluster.responder_names.join(",").into(),
            cluster.kube_system_uid.as_str().into(),
            cluster.session_epoch.to_string().into(),
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
            "OLDEST UNFINISHED",
            "BACKLOG",
            "CLOCK",
            "CERTIFICATE UNTIL",
            "LAST ERROR",
            "ERROR AT",
            "LABELS",
            "RESPONDERS",
            "KUBE-SYSTEM UID",
            "EPOCH",
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

pub(in crate::nabuctl) fn cluster(
    one: &Cluster,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    match output {
        Output::Json | Output::Yaml => return print_value(&cluster_json(one), output, out),
        Output::Name => return Ok(writeln!(out, "{}", visible(&one.cluster_id))?),
        Output::Table | Output::Wide => {}
    }
    let session = if one.connected {
        format!("open (epoch {})", one.session_epoch)
    } else {
        "none".to_owned()
    };
    let at = |text: &str, at| match text {
        "" => String::new(),
        text => format!("{}  {text}", time(at)),
    };
    for (label, text) in [
        ("Cluster", one.cluster_id.clone()),
        ("Name", one.name.clone()),
        ("State", one.state.clone()),
        ("Labels", labels(one)),
        ("Session", session),
        ("Last seen", time(one.last_seen_at)),
        ("Registered", time(one.registered_at)),
        ("Agent", one.agent_version.clone()),
        ("Kubernetes", one.kubernetes_version.clone()),
        ("Clock", skew(one.clock_skew)),
        ("Certificate until", time(one.certificate_not_after)),
        ("Responders", one.responder_names.join(", ")),
        ("Kube-system UID", one.kube_system_uid.clone()),
        ("Backlog", backlog(one)),
        ("Unfinished", one.unfinished.to_string()),
        ("Oldest unfinished", time(one.oldest_unfinished_at)),
        ("Last error", at(&one.last_error, one.last_error_at)),
        (
            "Refused UID",
            at(&one.refused_kube_system_uid, one.refused_at),
        ),
    ] {
        if !text.is_empty() {
            writeln!(out, "{:<19}{}", format!("{label}:"), visible(&text))?;
        }
    }
    Ok(())
}
