//! `nabuctl pki`: certificates as files.

use std::path::Path;

use super::dry_run::say;
use super::output::{Out, Output};
use super::{PkiCommand, SubjectCommand};
use crate::pki::{Authority, Subject, holds_certificate};

/// What a dry run adds if there is a certificate in the folder already.
pub(super) fn replaced(folder: &Path) -> &'static str {
    if holds_certificate(folder) {
        ", in place of those that are there"
    } else {
        ""
    }
}

pub(super) fn run(command: PkiCommand, output: Output, out: Out<'_>) -> anyhow::Result<()> {
    match command {
        PkiCommand::Init {
            dir,
            trust_domain,
            dry_run,
        } => {
            if dry_run {
                let domain = Authority::check_new(&dir, &trust_domain)?;
                let folder = dir.display();
                let message =
                    format!("would make the authority of trust domain {domain} in {folder}");
                return say(&message, dry_run, output, out);
            }
            let authority = Authority::create(&dir, &trust_domain)?;
            let message = format!(
                "made the authority of trust domain {} in {}; keep ca.key where only you can read it",
                authority.trust_domain(),
                dir.display()
            );
            say(&message, dry_run, output, out)
        }
        PkiCommand::Issue {
            ca,
            out: folder,
            days,
            dry_run,
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
            let subject = subject.with_days(days);
            if dry_run {
                authority.check_issue(&subject, &folder)?;
                let message = format!(
                    "would write ca.crt, tls.crt and tls.key to {}, valid for {days} days{}",
                    folder.display(),
                    replaced(&folder)
                );
                return say(&message, dry_run, output, out);
            }
            authority.issue_into(&subject, &folder)?;
            let message = format!(
                "wrote ca.crt, tls.crt and tls.key to {}, valid for {days} days",
                folder.display()
            );
            say(&message, dry_run, output, out)
        }
    }
}
