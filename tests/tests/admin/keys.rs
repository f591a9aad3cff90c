//! The key that the built-in authority is encrypted by is replaced.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;

use crate::bed::LIMIT;

#[tokio::test(flavor = "multi_thread")]
async fn a_new_encryption_key_takes_over_from_the_old_one_and_needs_it_once() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let old = folder.path().join("old.key");
    std::fs::write(&old, STANDARD.encode([1; 32]))?;
    let path = old.display().to_string();
    let options = HubOptions::certifying(&["--ca-old-encryption-key-file", &path]);
    let mut hub = TestHub::start(&[("config.yaml", noop_config("o/r"))], options).await?;
    let sealing = hub.dir().join("sealing.key");
    let first = std::fs::read_to_string(&sealing)?;
    assert!(hub.stop()?.success());

    // Without the key that it was made with, the authority is not replaced by another one.
    std::fs::write(&sealing, STANDARD.encode([2; 32]))?;
    hub.launch()?;
    assert!(!hub.process()?.wait(LIMIT)?.success());
    let log = hub.log();
    assert!(log.contains("is encrypted by the key"), "{log}");
    assert!(log.contains("--ca-old-encryption-key-file"), "{log}");

    std::fs::write(&old, &first)?;
    hub.start_again().await?;
    // The administrator's certificate is of the same authority.
    let printed = hub.nabuctl(&[
        "audit",
        "list",
        "--action",
        "AuthorityReencrypted",
        "-o",
        "json",
    ])?;
    assert!(printed.contains("1 authorities"), "{printed}");
    assert!(hub.stop()?.success());

    std::fs::write(&old, STANDARD.encode([1; 32]))?;
    hub.start_again().await?;
    // A rotation seals by the new key as well.
    hub.nabuctl(&["ca", "rotate", "start"])?;
    assert!(hub.stop()?.success());
    hub.start_again().await?;
    hub.nabuctl(&["cluster", "list"])?;
    assert!(hub.stop()?.success());
    std::fs::write(&sealing, &first)?;
    hub.launch()?;
    assert!(!hub.process()?.wait(LIMIT)?.success());
    Ok(())
}
