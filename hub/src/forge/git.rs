//! What git itself lays down, whatever the forge.

use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// Git's name of a content: by SHA-1 in most repositories, by SHA-256 where names have 64 digits.
pub(super) fn blob_id(contents: &str, digits: usize) -> String {
    let header = format!("blob {}\0", contents.len());
    if digits == 64 {
        let hasher = Sha256::new().chain_update(header);
        hex::encode(hasher.chain_update(contents).finalize())
    } else {
        let hasher = Sha1::new().chain_update(header);
        hex::encode(hasher.chain_update(contents).finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_have_the_names_that_git_gives_them() {
        // `git hash-object` of an empty file, and of "hello\n" in both kinds of repository.
        assert_eq!(blob_id("", 40), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(
            blob_id("hello\n", 40),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
        assert_eq!(
            blob_id("hello\n", 64),
            "2cf8d83d9ee29543b34a87727421fdecb7e3f3a183d337639025de576db9ebb4"
        );
    }
}
