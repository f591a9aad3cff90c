//! A cluster for the charts, with the CRDs of others.

use std::path::Path;
use std::time::Duration;

use nabu_tests::charts::{kubectl_on, path};
use nabu_tests::cluster::{Crds, TestCluster};
use nabu_tests::process::cached;
use tokio::sync::OnceCell;

/// What must come comes within this time, on a busy machine too.
pub(crate) const LIMIT: Duration = Duration::from_mins(2);

static SHARED: OnceCell<TestCluster> = OnceCell::const_new();

/// A cluster with our CRDs and those of cert-manager, the Gateway API, the Prometheus Operator, Argo CD and Flux.
pub(crate) async fn shared() -> &'static TestCluster {
    SHARED
        .get_or_init(|| async {
            let cluster = TestCluster::start(Crds::Nabu).await.unwrap();
            let crds = cached(Path::new("crds")).unwrap();
            let arguments = ["apply", "--server-side", "-f", path(&crds).unwrap()];
            kubectl_on(&cluster.kubeconfig(), &arguments).unwrap();
            let established = "--for=condition=Established";
            let wait = ["wait", "crd", "--all", established, "--timeout=180s"];
            kubectl_on(&cluster.kubeconfig(), &wait).unwrap();
            cluster
        })
        .await
}
