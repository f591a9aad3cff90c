-- Who may speak for which cluster: revocation, join tokens, certificates, and the authorities that make them.

ALTER TABLE clusters ADD COLUMN revoked_at INTEGER;
-- A removed cluster keeps its row, so that what was certified for it stays refused.
ALTER TABLE clusters ADD COLUMN removed_at INTEGER;
-- The last cluster that was refused because the id is bound to another one.
ALTER TABLE clusters ADD COLUMN refused_uid TEXT;
ALTER TABLE clusters ADD COLUMN refused_at INTEGER;

CREATE TABLE join_tokens (
    id         TEXT NOT NULL PRIMARY KEY,
    cluster    TEXT NOT NULL,
    hash       BLOB NOT NULL, -- SHA-256 of the token
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    revoked_at INTEGER,
    used_at    INTEGER,
    used_key   BLOB -- SHA-256 of the public key that it was used for
) STRICT, WITHOUT ROWID;

CREATE INDEX join_tokens_by_cluster ON join_tokens (cluster, created_at);

-- Every certificate that the hub has made.
CREATE TABLE certificates (
    id            INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    fingerprint   TEXT NOT NULL UNIQUE, -- SHA-256 of the certificate, in hex
    serial        TEXT NOT NULL,        -- in hex
    identity      TEXT NOT NULL,        -- cluster/<id>, admin/<name> or hub/<name>
    cluster       TEXT,
    authority     TEXT NOT NULL,        -- pin of the authority that made it
    issued_at     INTEGER NOT NULL,
    not_after     INTEGER NOT NULL,
    first_used_at INTEGER,
    superseded_at INTEGER,
    revoked_at    INTEGER
) STRICT;

CREATE INDEX certificates_by_identity ON certificates (identity, id);

CREATE TABLE authorities (
    pin            TEXT NOT NULL PRIMARY KEY,
    certificate    BLOB NOT NULL, -- DER
    sealed_key     BLOB NOT NULL, -- PKCS #8, sealed by the encryption key
    sealing_key_id TEXT NOT NULL, -- which encryption key
    created_at     INTEGER NOT NULL,
    retired_at     INTEGER
) STRICT, WITHOUT ROWID;

-- One row: which authorities are in use.
CREATE TABLE authority_state (
    one      INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    revision INTEGER NOT NULL,
    serving  TEXT NOT NULL REFERENCES authorities (pin),
    incoming TEXT REFERENCES authorities (pin),
    issuing  TEXT NOT NULL REFERENCES authorities (pin)
) STRICT;
