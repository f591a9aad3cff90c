-- Times are microseconds since 1970-01-01T00:00:00Z.

CREATE TABLE clusters (
    cluster            TEXT NOT NULL PRIMARY KEY,
    name               TEXT NOT NULL,
    kube_system_uid    TEXT NOT NULL,
    kubernetes_version TEXT NOT NULL,
    agent_version      TEXT NOT NULL,
    responder_names    TEXT NOT NULL, -- JSON list of text
    labels             TEXT NOT NULL DEFAULT '{}', -- JSON map of text
    registered_at      INTEGER NOT NULL,
    last_seen_at       INTEGER NOT NULL,
    epoch              INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE responses (
    id                    INTEGER NOT NULL PRIMARY KEY,
    cluster               TEXT NOT NULL,
    uid                   TEXT NOT NULL,
    name                  TEXT NOT NULL,
    generation            INTEGER NOT NULL,
    responder             TEXT NOT NULL,
    spec_hash             BLOB NOT NULL,
    observed_at           INTEGER NOT NULL,
    -- What queries look at, repeated out of progress.
    phase                 TEXT NOT NULL,
    revision              INTEGER NOT NULL,
    acknowledged_revision INTEGER NOT NULL,
    deleted               INTEGER NOT NULL,
    progress              TEXT NOT NULL, -- JSON, without the intent
    UNIQUE (cluster, uid)
) STRICT;

CREATE INDEX responses_unfinished ON responses (cluster, uid) WHERE phase IN ('Pending', 'Running');
CREATE INDEX responses_unacknowledged ON responses (cluster, uid) WHERE revision > acknowledged_revision AND deleted = 0;
CREATE INDEX responses_by_time ON responses (observed_at, cluster, uid);
CREATE INDEX responses_by_name ON responses (cluster, name);

-- The objects that a response was decided on.
CREATE TABLE response_objects (
    response INTEGER NOT NULL PRIMARY KEY REFERENCES responses (id),
    content  TEXT NOT NULL -- JSON
) STRICT;

-- The change that was decided, from before the first write to the forge on.
CREATE TABLE intents (
    response   INTEGER NOT NULL PRIMARY KEY REFERENCES responses (id),
    route      TEXT NOT NULL,
    provider   TEXT NOT NULL,
    repository TEXT NOT NULL,
    intent     TEXT NOT NULL -- JSON
) STRICT;

CREATE TABLE attempts (
    response   INTEGER NOT NULL REFERENCES responses (id),
    number     INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    result     TEXT,
    error      TEXT, -- JSON
    requests   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (response, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    id      INTEGER NOT NULL PRIMARY KEY,
    at      INTEGER NOT NULL,
    cluster TEXT,
    uid     TEXT,
    actor   TEXT NOT NULL,
    action  TEXT NOT NULL,
    detail  TEXT NOT NULL
) STRICT;

CREATE INDEX audit_by_response ON audit (cluster, uid, id) WHERE uid IS NOT NULL;

CREATE TRIGGER audit_is_append_only_update BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;

CREATE TRIGGER audit_is_append_only_delete BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
