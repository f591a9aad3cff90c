//! `nabuctl pki`: certificates as files.

use super::output::Out;
use super::{PkiCommand, SubjectCommand};
use crate::pki::{Authority, Subject};

pub(super) fn run(command: PkiCommand, out: Out<'_>) -> anyhow::Result<()> {
    match command {
        PkiCommand::Init { dir, trust_domain } => {
            let authority = Authority::create(&dir, &trust_domain)?;
            writeln!(
                out,
                "made the authority of trust domain {} in {}; keep ca.key where only you can read it",
                authority.trust_domain(),
                dir.display()
            )?;
        }
        PkiCommand::Issue {
            ca,
            out: folder,
            days,
            subject,
        } => {
            let authority = Authority::open(&ca)?;
            let subject = match subject {
                SubjectCommand::Agent { cluster } => Subject::cluster(&cluster),
                SubjectCommand::Admin { name } => Subject::admin(&name),
                SubjectCommand::Hub { name, dns, ip } => {
                    let named = dns
                        .iter()
                        .fold(Subject::hub(&name), |subject, name| subject.with_dns(name));
                    ip.iter().fold(named, |subject, address| {
                        subject.with_ip(&address.to_string())
                    })
                }
            };
            authority.issue_into(&subject.with_days(days), &folder)?;
            writeln!(
                out,
                "wrote ca.crt, tls.crt and tls.key to {}, valid for {days} days",
                folder.display()
            )?;
        }
    }
    Ok(())
}
