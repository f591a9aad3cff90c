-- Calls to the admin API are lines of the audit log as well: the method, what it was about, and the gRPC code.
ALTER TABLE audit ADD COLUMN method TEXT;
ALTER TABLE audit ADD COLUMN target TEXT;
ALTER TABLE audit ADD COLUMN outcome TEXT;

CREATE INDEX audit_of_admins ON audit (id) WHERE method IS NOT NULL;

-- When the cluster's API server said what it has stored.
ALTER TABLE responses ADD COLUMN acknowledged_at INTEGER;

-- Every change of a response takes the next number, so that a watch can go on where it ended.
ALTER TABLE responses ADD COLUMN change INTEGER NOT NULL DEFAULT 0;

UPDATE responses SET change = id;

CREATE INDEX responses_by_change ON responses (change);

CREATE TRIGGER responses_number_inserts AFTER INSERT ON responses
BEGIN
    UPDATE responses SET change = (SELECT max(change) + 1 FROM responses) WHERE id = NEW.id;
END;

CREATE TRIGGER responses_number_updates
AFTER UPDATE OF phase, revision, acknowledged_revision, deleted, progress ON responses
BEGIN
    UPDATE responses SET change = (SELECT max(change) + 1 FROM responses) WHERE id = NEW.id;
END;
