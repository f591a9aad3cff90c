//! `nabuctl ca` and `nabuctl admin`: the hub's authority, and certificates of administrators.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use nabu_proto::admin_v1::authority_service_client::AuthorityServiceClient;
use nabu_proto::admin_v1::{
    FinishRotationRequest, GetRotationRequest, IssueAdminCertificateRequest,
    RollBackRotationRequest, Rotation, StartRotationRequest,
};
use rcgen::{CertificateParams, KeyPair};
use tonic::transport::Channel;

use super::client::{channel, explain};
use super::context::way;
use super::{Connection, Output, view};
use crate::pki;

/// About the hub's authority.
#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// Replace the built-in authority by a new one, without an interruption.
    #[command(subcommand)]
    Rotate(RotateCommand),
}

/// The steps of a rotation.
#[derive(Debug, Subcommand)]
pub enum RotateCommand {
    /// Make a new authority, which certifies from now on; the old one stays trusted.
    Start,
    /// Show the authorities, and who still depends on the one that is to go.
    Status,
    /// End the trust in the authority that is to go.
    Finish {
        /// Though some still depend on it: they have to be enrolled again.
        #[arg(long)]
        force: bool,
    },
    /// Let the old authority certify again; the new one stays trusted until `finish`.
    Rollback,
}

/// About certificates of administrators.
#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// Make the key and certificate of another administrator: ca.crt, tls.crt and tls.key.
    Add {
        /// Who it is; ends up in the audit log.
        name: String,
        /// Folder to write to.
        #[arg(long)]
        out: PathBuf,
    },
    /// Make a new key and certificate for yourself in the folder of --tls-dir, in place of the present one.
    Renew,
}

async fn connect(connection: &Connection) -> anyhow::Result<AuthorityServiceClient<Channel>> {
    Ok(AuthorityServiceClient::new(channel(connection).await?))
}

pub(super) async fn ca(
    connection: &Connection,
    CaCommand::Rotate(command): CaCommand,
    output: Output,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let mut client = connect(connection).await?;
    let rotation: Option<Rotation> = match command {
        RotateCommand::Start => {
            let answer = client.start_rotation(StartRotationRequest {}).await;
            let rotation = answer.map_err(explain)?.into_inner().rotation;
            // With the old certificate alone, the administrator would be locked out in the end.
            issue(&mut client, String::new(), &way(connection)?.tls_dir).await?;
            rotation
        }
        RotateCommand::Status => {
            let answer = client.get_rotation(GetRotationRequest {}).await;
            answer.map_err(explain)?.into_inner().rotation
        }
        RotateCommand::Finish { force } => {
            let request = FinishRotationRequest { force };
            let answer = client.finish_rotation(request).await;
            answer.map_err(explain)?.into_inner().rotation
        }
        RotateCommand::Rollback => {
            let answer = client.roll_back_rotation(RollBackRotationRequest {}).await;
            let rotation = answer.map_err(explain)?.into_inner().rotation;
            issue(&mut client, String::new(), &way(connection)?.tls_dir).await?;
            rotation
        }
    };
    view::rotation(&rotation.unwrap_or_default(), output, out)
}

pub(super) async fn admin(
    connection: &Connection,
    command: AdminCommand,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let mut client = connect(connection).await?;
    let (name, folder) = match command {
        AdminCommand::Add { name, out } => (name, out),
        AdminCommand::Renew => (String::new(), way(connection)?.tls_dir),
    };
    let (name, until) = issue(&mut client, name, &folder).await?;
    writeln!(
        out,
        "wrote ca.crt, tls.crt and tls.key of {name} to {}, valid until {until}",
        folder.display()
    )?;
    Ok(())
}

/// Makes a key, has it certified, and writes everything into a folder; gives the name and the end of the certificate.
async fn issue(
    client: &mut AuthorityServiceClient<Channel>,
    name: String,
    folder: &Path,
) -> anyhow::Result<(String, String)> {
    let key = KeyPair::generate()?;
    let request = CertificateParams::new(Vec::new())?.serialize_request(&key)?;
    let request = IssueAdminCertificateRequest {
        name,
        csr_der: request.der().to_vec(),
        lifetime: None,
    };
    let answer = client.issue_admin_certificate(request).await;
    let answer = answer.map_err(explain)?.into_inner();
    pki::create_folder(folder)?;
    pki::write(&folder.join("ca.crt"), &answer.authorities_pem, 0o644)?;
    pki::write(&folder.join("tls.key"), &key.serialize_pem(), 0o600)?;
    pki::write(&folder.join("tls.crt"), &answer.chain_pem, 0o644)?;
    Ok((answer.name, view::time(answer.not_after)))
}
