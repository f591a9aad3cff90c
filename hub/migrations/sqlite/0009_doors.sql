-- What a join token was used for, so that whoever asks again with the same key gets the same answer.
ALTER TABLE join_tokens ADD COLUMN certificate BLOB; -- DER
ALTER TABLE join_tokens ADD COLUMN fingerprint TEXT; -- names its row in certificates

-- Administrators who may do nothing: by name, whatever their certificate, or one certificate.
CREATE TABLE revoked_administrators (
    kind       TEXT NOT NULL CHECK (kind IN ('name', 'certificate')),
    value      TEXT NOT NULL, -- the name, or SHA-256 of the certificate in hex
    revoked_at INTEGER NOT NULL,
    revoked_by TEXT NOT NULL,
    reason     TEXT NOT NULL,
    PRIMARY KEY (kind, value)
) STRICT, WITHOUT ROWID;
