//! `nabuctl ca` and `nabuctl admin`: the hub's authority, certificates of administrators, and who may do nothing any more.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use clap_complete::ArgValueCompleter;
use nabu_proto::admin_v1::administrator_service_client::AdministratorServiceClient;
use nabu_proto::admin_v1::authority_service_client::AuthorityServiceClient;
use nabu_proto::admin_v1::{
    FinishRotationRequest, GetRotationRequest, IssueAdminCertificateRequest,
    ListAdministratorsRequest, RestoreAdministratorRequest, RevokeAdministratorRequest,
    RollBackRotationRequest, Rotation, StartRotationRequest,
};
use rcgen::{CertificateParams, KeyPair};
use tonic::transport::Channel;

use super::client::{channel, explain};
use super::completion::administrator_names;
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

/// About administrators.
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
    /// List administrators: certificates that the hub made, and who is revoked.
    #[command(visible_alias = "ls")]
    List,
    /// Refuse every further call of an administrator, also on connections that are open. Nobody can revoke themselves, except
    /// at the socket of the hub's own machine.
    Revoke {
        /// Whom.
        #[command(flatten)]
        whom: Whom,
        /// Why; for those who look at the list.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Take a revocation back.
    Restore {
        /// Whom.
        #[command(flatten)]
        whom: Whom,
    },
}

/// An administrator, or one certificate.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct Whom {
    /// The administrator's name, whatever the certificate.
    #[arg(add = ArgValueCompleter::new(administrator_names))]
    name: Option<String>,
    /// One certificate instead: its SHA-256 in hex, as `admin list` and the audit log show it.
    #[arg(long, value_name = "SHA256")]
    fingerprint: Option<String>,
}

impl Whom {
    fn text(&self) -> String {
        match (&self.name, &self.fingerprint) {
            (Some(name), _) => format!("admin/{name}"),
            (None, Some(fingerprint)) => format!("certificate {fingerprint}"),
            (None, None) => String::new(),
        }
    }
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
    output: Output,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let channel = channel(connection).await?;
    let mut administrators = AdministratorServiceClient::new(channel.clone());
    let (name, folder) = match command {
        AdminCommand::Add { name, out } => (name, out),
        AdminCommand::Renew => (String::new(), way(connection)?.tls_dir),
        AdminCommand::List => {
            let request = ListAdministratorsRequest {};
            let listed = administrators.list_administrators(request).await;
            return view::administrators(&listed.map_err(explain)?.into_inner(), output, out);
        }
        AdminCommand::Revoke { whom, reason } => {
            let text = whom.text();
            let request = RevokeAdministratorRequest {
                name: whom.name.unwrap_or_default(),
                fingerprint: whom.fingerprint.unwrap_or_default(),
                reason,
            };
            let revoked = administrators.revoke_administrator(request).await;
            revoked.map_err(explain)?;
            return Ok(writeln!(out, "{text} is revoked")?);
        }
        AdminCommand::Restore { whom } => {
            let text = whom.text();
            let request = RestoreAdministratorRequest {
                name: whom.name.unwrap_or_default(),
                fingerprint: whom.fingerprint.unwrap_or_default(),
            };
            let restored = administrators.restore_administrator(request).await;
            restored.map_err(explain)?;
            return Ok(writeln!(out, "{text} is restored")?);
        }
    };
    let mut client = AuthorityServiceClient::new(channel);
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
