-- What limits of forges hold up, by credential, so that a restart keeps to them.
CREATE TABLE gates (
    lane  TEXT NOT NULL PRIMARY KEY, -- JSON: kind, base URL, credential, installation
    state TEXT NOT NULL              -- JSON
) STRICT, WITHOUT ROWID;
