//! `nabuctl ca` and `nabuctl admin`: the hub's authority, certificates of administrators, and who may do nothing any more.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use clap_complete::ArgValueCompleter;
use nabu_proto::admin_v1::administrator_service_client::AdministratorServiceClient;
use nabu_proto::admin_v1::authority_service_client::AuthorityServiceClient;
use nabu_proto::admin_v1::{
    FinishRotationRequest, GetRotationRequest, IssueAdminCertificateRequest,
    ListAdministratorsRequest, ListAdministratorsResponse, RestoreAdministratorRequest,
    RevokeAdministratorRequest, RollBackRotationRequest, StartRotationRequest,
};
use rcgen::{CertificateParams, KeyPair};
use tonic::transport::Channel;

use super::client::{channel, explain};
use super::completion::administrator_names;
use super::context::way;
use super::dry_run::{count, look_first, say};
use super::pki::replaced;
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
    Start {
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
    /// Show the authorities, and who still depends on the one that is to go.
    Status,
    /// End the trust in the authority that is to go.
    Finish {
        /// Though some still depend on it: they have to be enrolled again.
        #[arg(long)]
        force: bool,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
    /// Let the old authority certify again; the new one stays trusted until `finish`.
    Rollback {
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
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
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
    /// Make a new key and certificate for yourself in the folder of --tls-dir, in place of the present one.
    Renew {
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
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
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
    /// Take a revocation back.
    Restore {
        /// Whom.
        #[command(flatten)]
        whom: Whom,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
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

const ISSUE: &str = "AuthorityService/IssueAdminCertificate";

/// Where an administrator's key and certificate go.
struct Place<'a> {
    /// Whom they are for; empty for whoever asks.
    name: String,
    folder: &'a Path,
    dry_run: bool,
}

pub(super) async fn ca(
    connection: &Connection,
    CaCommand::Rotate(command): CaCommand,
    output: Output,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let channel = channel(connection).await?;
    let mut client = AuthorityServiceClient::new(channel.clone());
    let mut shown = view::RotationStep::default();
    let own = match command {
        RotateCommand::Start { dry_run } => {
            look_first(&channel, dry_run, "AuthorityService/StartRotation").await?;
            let request = StartRotationRequest {
                validate_only: dry_run,
            };
            let answer = client.start_rotation(request).await;
            shown.rotation = answer.map_err(explain)?.into_inner().rotation;
            // With the old certificate alone, the administrator would be locked out in the end.
            Some(dry_run)
        }
        RotateCommand::Status => {
            let answer = client.get_rotation(GetRotationRequest {}).await;
            shown.rotation = answer.map_err(explain)?.into_inner().rotation;
            None
        }
        RotateCommand::Finish { force, dry_run } => {
            look_first(&channel, dry_run, "AuthorityService/FinishRotation").await?;
            let request = FinishRotationRequest {
                force,
                validate_only: dry_run,
            };
            let answer = client.finish_rotation(request).await;
            let answer = answer.map_err(explain)?.into_inner();
            shown.rotation = answer.rotation;
            shown.left_behind = answer.left_behind;
            shown.dry_run = dry_run;
            None
        }
        RotateCommand::Rollback { dry_run } => {
            look_first(&channel, dry_run, "AuthorityService/RollBackRotation").await?;
            let request = RollBackRotationRequest {
                validate_only: dry_run,
            };
            let answer = client.roll_back_rotation(request).await;
            shown.rotation = answer.map_err(explain)?.into_inner().rotation;
            Some(dry_run)
        }
    };
    if let Some(dry_run) = own {
        shown.dry_run = dry_run;
        let way = way(connection)?;
        // Whoever comes by the socket has no certificate that could be made anew.
        if !way.is_socket() {
            let place = Place {
                name: String::new(),
                folder: &way.tls_dir,
                dry_run,
            };
            let message = issue(&channel, &place).await?;
            shown.own = dry_run.then_some(message);
        }
    }
    view::rotation(&shown, output, out)
}

pub(super) async fn admin(
    connection: &Connection,
    command: AdminCommand,
    output: Output,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let channel = channel(connection).await?;
    let mut administrators = AdministratorServiceClient::new(channel.clone());
    let (name, folder, dry_run) = match command {
        AdminCommand::Add { name, out, dry_run } => (name, out, dry_run),
        AdminCommand::Renew { dry_run } => (String::new(), way(connection)?.tls_dir, dry_run),
        AdminCommand::List => {
            let mut request = ListAdministratorsRequest::default();
            let mut all = ListAdministratorsResponse::default();
            loop {
                let page = administrators.list_administrators(request.clone()).await;
                let page = page.map_err(explain)?.into_inner();
                all.certificates.extend(page.certificates);
                all.revocations.extend(page.revocations);
                request.page_token = page.next_page_token;
                if request.page_token.is_empty() {
                    break;
                }
            }
            return view::administrators(&all, output, out);
        }
        AdminCommand::Revoke {
            whom,
            reason,
            dry_run,
        } => {
            let method = "AdministratorService/RevokeAdministrator";
            look_first(&channel, dry_run, method).await?;
            let text = whom.text();
            let request = RevokeAdministratorRequest {
                name: whom.name.unwrap_or_default(),
                fingerprint: whom.fingerprint.unwrap_or_default(),
                reason,
                validate_only: dry_run,
            };
            let revoked = administrators.revoke_administrator(request).await;
            let revoked = revoked.map_err(explain)?.into_inner();
            let message = if dry_run {
                let certificates = count(revoked.certificates, "good certificate");
                format!("{text} would be revoked; the hub has made {certificates} of it")
            } else {
                format!("{text} is revoked")
            };
            return say(&message, dry_run, output, out);
        }
        AdminCommand::Restore { whom, dry_run } => {
            let method = "AdministratorService/RestoreAdministrator";
            look_first(&channel, dry_run, method).await?;
            let text = whom.text();
            let request = RestoreAdministratorRequest {
                name: whom.name.unwrap_or_default(),
                fingerprint: whom.fingerprint.unwrap_or_default(),
                validate_only: dry_run,
            };
            let restored = administrators.restore_administrator(request).await;
            restored.map_err(explain)?;
            let is = if dry_run { "would be" } else { "is" };
            return say(&format!("{text} {is} restored"), dry_run, output, out);
        }
    };
    let place = Place {
        name,
        folder: &folder,
        dry_run,
    };
    say(&issue(&channel, &place).await?, dry_run, output, out)
}

/// Makes a key, has it certified, and writes everything into a folder; gives a sentence about that. In a dry run the key
/// only shows that it could be certified.
async fn issue(channel: &Channel, place: &Place<'_>) -> anyhow::Result<String> {
    let Place {
        name,
        folder,
        dry_run,
    } = place;
    look_first(channel, *dry_run, ISSUE).await?;
    // Before there is a certificate that nobody gets.
    pki::check_folder(folder)?;
    let key = KeyPair::generate()?;
    let request = CertificateParams::new(Vec::new())?.serialize_request(&key)?;
    let request = IssueAdminCertificateRequest {
        name: name.clone(),
        csr_der: request.der().to_vec(),
        lifetime: None,
        validate_only: *dry_run,
    };
    let mut client = AuthorityServiceClient::new(channel.clone());
    let answer = client.issue_admin_certificate(request).await;
    let answer = answer.map_err(explain)?.into_inner();
    let (name, until) = (&answer.name, view::time(answer.not_after));
    let about = format!("of {name} to {}, valid until {until}", folder.display());
    if *dry_run {
        let replaced = replaced(folder);
        return Ok(format!(
            "would write ca.crt, tls.crt and tls.key {about}{replaced}"
        ));
    }
    pki::create_folder(folder)?;
    pki::write(&folder.join("ca.crt"), &answer.authorities_pem, 0o644)?;
    pki::write(&folder.join("tls.key"), &key.serialize_pem(), 0o600)?;
    pki::write(&folder.join("tls.crt"), &answer.chain_pem, 0o644)?;
    Ok(format!("wrote ca.crt, tls.crt and tls.key {about}"))
}
